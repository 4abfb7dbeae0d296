"""One message in three beats: claim (one transaction), call (none open), record (one transaction).

What is known after each beat is in the database before the next one begins, so a process may die
anywhere: an attempt that was begun and not recorded is never repeated, only looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from sqlalchemy import Connection

from cerniq_pipeline.domain import address, templates
from cerniq_pipeline.domain.clock import Clock
from cerniq_pipeline.domain.holds import Hold, hold_on_message, hold_on_phone
from cerniq_pipeline.domain.leads import AUTOMATED, stage_after_contact
from cerniq_pipeline.domain.outbox import Channel, OutboxMessage, Receipt, State
from cerniq_pipeline.domain.pacing import retry_in
from cerniq_pipeline.domain.quotas import Standing, cost_of
from cerniq_pipeline.domain.sequences import next_step
from cerniq_pipeline.errors import (
    CerniqError,
    PhoneUnusable,
    ProviderUnreadable,
    QuotaUnknown,
    SendDeferred,
    SendFailed,
    SendRejected,
    SendUnconfirmed,
    TemplateError,
)
from cerniq_pipeline.logs import event
from cerniq_pipeline.services import checkpoints, leasing
from cerniq_pipeline.services.facts import message_facts
from cerniq_pipeline.services.leasing import Lease
from cerniq_pipeline.store import leads, leases, outbox, phones, quotas, sequences
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.outbox import Candidate
from cerniq_pipeline.store.phones import Phone
from cerniq_pipeline.store.quotas import Gate, QuotaGate

PASSED_OVER_AT_ONCE = 50
"""Messages one claim may cancel or put off before it lets go of its locks."""

CALL_DEADLINE = leasing.LEASE - timedelta(seconds=25)
"""No first byte later than this after the claim: the call must be over before the lease is."""

REDIS_RECHECK = timedelta(seconds=10)


@dataclass(frozen=True)
class Desk:
    """Everything a shift brings along: where to write, whom to call, how fast time runs."""

    begin: Begin
    gate: QuotaGate
    channel: Channel
    clock: Clock
    luck: Callable[[], float]
    secret: bytes
    live: bool = False
    speed: float = 1.0
    sends_per_minute: int = 50


@dataclass(frozen=True)
class Nothing:
    """Nothing is due; the next message, if any, is due then."""

    next_due_at: datetime | None


def claim(desk: Desk, lease: Lease) -> OutboxMessage | Hold | Nothing:
    """Take the phone's next message for sending, or say what holds it.

    Everything is checked under the locks of the phone and the lead, in the transaction that
    records the attempt. Raises LeaseLost when this shift was replaced.
    """
    reserved: list[OutboxMessage] = []
    try:
        with desk.begin() as conn:
            now = desk.clock.now()
            leasing.check(leases.lock(conn, lease.phone_id), lease, now=now)
            leases.extend(conn, lease.phone_id, until=now + leasing.LEASE)
            phone = phones.get(conn, lease.phone_id)
            _forget_unsent(conn, lease, now=now)
            hold = hold_on_phone(phone.facts, live=desk.live, now=now)
            if hold is not None:
                return hold
            for _ in range(PASSED_OVER_AT_ONCE):
                due = outbox.next_due(conn, phone.id, now=now)
                if due is None:
                    return Nothing(outbox.next_due_at(conn, phone.id))
                candidate = outbox.lock_candidate(conn, due)
                if candidate is None:
                    outbox.cancel_orphan(conn, due, who=lease.holder.name, now=now)
                    continue
                decided = _decide(desk, conn, lease, phone, candidate, now=now)
                if isinstance(decided, Hold):
                    return decided
                if isinstance(decided, OutboxMessage):
                    reserved.append(decided)
                    checkpoints.reach("claim_before_commit")
                    break
        checkpoints.reach("claim_committed")
    except QuotaUnknown as unknown:
        # Fail closed: while the count cannot be known, nobody writes to anyone.
        return Hold("quota_unknown", str(unknown), desk.clock.now() + REDIS_RECHECK)
    if reserved:
        return reserved[0]
    return Nothing(desk.clock.now())


def _forget_unsent(conn: Connection, lease: Lease, *, now: datetime) -> None:
    """Put back a message whose claim was committed without our hearing of it.

    A shift records every call before it claims again, so what is still in flight under its own
    fence was claimed in a transaction whose answer got lost: certainly nothing was sent.
    """
    for message_id, attempt in outbox.in_flight(conn, lease.phone_id, fence=lease.fence):
        why = "the claim's commit went unheard, so nothing was sent"
        outbox.move(
            conn,
            message_id,
            current=State.SENDING,
            target=State.DEFERRED,
            why=why,
            who=lease.holder.name,
            now=now,
        )
        outbox.finish_attempt(
            conn, message_id=message_id, n=attempt, outcome="deferred", detail=why, now=now
        )
        quotas.settle(conn, message_id=message_id, state="released", now=now)


def _decide(
    desk: Desk, conn: Connection, lease: Lease, phone: Phone, candidate: Candidate, *, now: datetime
) -> OutboxMessage | Hold | None:
    """Begin this message, hold the phone, or pass the message over (None) with a trace."""
    day = phone.tenant.calendar.day_of(now)
    facts = message_facts(conn, phone, candidate, secret=desk.secret, now=now)
    hold = hold_on_message(facts, calendar=phone.tenant.calendar, now=now)
    if hold is not None:
        return _pass_over(conn, lease, candidate, hold, now=now)
    try:
        body = _render(candidate)
    except CerniqError as unusable:
        _fail(conn, phone, candidate, str(unusable), lease.holder.name, now=now)
        return None
    free_at = desk.gate.rate(
        "send:WHATSAPP",  # one account for all tenants, so one limit for all of them
        most=max(1, round(desk.sends_per_minute * desk.speed)),
        window=timedelta(minutes=1),
        now=now,
        token=f"{candidate.id}:{candidate.attempts + 1}",
    )
    if free_at is not None:
        return Hold("rate_limit", f"{desk.sends_per_minute} sends a minute are out", free_at)
    if facts.standing is not None:
        if not _reserve(desk, conn, phone, candidate, facts.standing, now=now):
            full = f"{facts.standing.used} of {facts.standing.limit} new contacts today"
            until = phone.tenant.calendar.next_working_day(now)
            return _pass_over(conn, lease, candidate, Hold("quota", full, until, "defer"), now=now)
        checkpoints.reach("quota_reserved_in_redis")
        quotas.reserve(
            conn,
            phone_id=phone.id,
            lead_id=candidate.lead["lead_id"],
            day=day,
            message_id=candidate.id,
            now=now,
        )
    message = OutboxMessage(
        id=candidate.id,
        tenant_id=phone.tenant.id,
        channel="WHATSAPP",
        kind=candidate.kind,
        lead_id=candidate.lead["lead_id"],
        phone_id=phone.id,
        sender=phone.number,
        account_id=phone.account_id,
        to=candidate.recipient,
        chat_id=candidate.lead["chat_id"],
        body=body,
        sequence_id=candidate.sequence_id,
        step=candidate.step,
        attempt=candidate.attempts + 1,
        fence=lease.fence,
        begun_at=now,
    )
    outbox.move(
        conn,
        message.id,
        current=candidate.state,
        target=State.SENDING,
        why=f"attempt {message.attempt}",
        who=lease.holder.name,
        now=now,
        fence=lease.fence,
        attempts=message.attempt,
        begun_at=now,
        body=body,
    )
    outbox.begin_attempt(conn, message)
    # Set now, not after the call: an attempt that dies in mid-flight still used the gap.
    gap = phone.tenant.gap.draw(desk.luck(), speed=desk.speed)
    phones.set_next_send(conn, phone.id, at=now + gap)
    return message


def _pass_over(
    conn: Connection, lease: Lease, candidate: Candidate, hold: Hold, *, now: datetime
) -> Hold | None:
    who = lease.holder.name
    why = f"{hold.rule}: {hold.detail}"
    if hold.then == "wait":
        return hold
    if hold.then == "cancel" or hold.until is None:
        outbox.move(
            conn,
            candidate.id,
            current=candidate.state,
            target=State.CANCELLED,
            why=why,
            who=who,
            now=now,
        )
        leads.after_message(
            conn,
            candidate.lead["lead_id"],
            open_message=False,
            next_action_at=None,
            hold_reason=hold.rule,
            now=now,
        )
    else:
        outbox.move(
            conn,
            candidate.id,
            current=candidate.state,
            target=State.DEFERRED,
            why=why,
            who=who,
            now=now,
            due_at=hold.until,
        )
    return None


def _render(candidate: Candidate) -> str:
    """The exact text for this lead; raises when anything in it is missing or not allowed."""
    lead = candidate.lead
    values = address.values_for(
        company_name=lead["denumire"],
        contact_name=lead["contact_principal_nume"],
        county=lead["judet"],
        city=lead["localitate"],
        custom=_own_fields(lead["custom"]),
    )
    seed = f"{lead['lead_id']}/{candidate.sequence_id}/{candidate.step}"
    body = templates.render(templates.parse(candidate.template or ""), values, seed=seed)
    if templates.looks_unresolved(body):
        raise TemplateError("the rendered text still has template marks in it", line=1, column=1)
    if candidate.kind == "initial" and templates.mentions_url(body):
        raise TemplateError("a first message must not carry an address", line=1, column=1)
    return body


def _own_fields(custom: object) -> dict[str, str]:
    """A lead's own fields as texts; others write them too, so anything may stand there."""
    if not isinstance(custom, dict):
        return {}
    return {
        name: str(value)
        for name, value in custom.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    }


def _reserve(
    desk: Desk,
    conn: Connection,
    phone: Phone,
    candidate: Candidate,
    standing: Standing,
    *,
    now: datetime,
) -> bool:
    """Pass the Redis gate; the ledger has room already.

    A gate that shows another epoch is rebuilt first, and one that is full or spoilt while the
    ledger is not is corrected: this phone's lease is locked, so nobody else counts on it now.
    Raises QuotaUnknown when the gate loses its memory again in between.
    """
    day = phone.tenant.calendar.day_of(now)
    lead = candidate.lead["lead_id"]
    epoch = quotas.epoch(conn)
    answer = desk.gate.reserve(phone.id, day, lead, limit=standing.limit, epoch=epoch)
    if answer is Gate.UNKNOWN:
        epoch = quotas.rebuild(conn, desk.gate, now=now)
        answer = desk.gate.reserve(phone.id, day, lead, limit=standing.limit, epoch=epoch)
    if answer is not Gate.GRANTED:
        drift = desk.gate.replace(phone.id, day, quotas.counted_leads(conn, phone.id, day))
        event("quota", "gate_corrected", level="warning", phone=phone.id, entries=drift)
        answer = desk.gate.reserve(phone.id, day, lead, limit=standing.limit, epoch=epoch)
    if answer is Gate.UNKNOWN:
        raise QuotaUnknown("Redis was emptied while it was being filled")
    return answer is Gate.GRANTED


def _fail(
    conn: Connection, phone: Phone, candidate: Candidate, why: str, who: str, *, now: datetime
) -> None:
    outbox.move(
        conn,
        candidate.id,
        current=candidate.state,
        target=State.FAILED,
        why=f"INVALID_LEAD: {why}",
        who=who,
        now=now,
    )
    outbox.bury(
        conn,
        message_id=candidate.id,
        tenant_id=phone.tenant.id,
        code="INVALID_LEAD",
        detail=why,
        now=now,
    )
    leads.after_message(
        conn,
        candidate.lead["lead_id"],
        open_message=False,
        next_action_at=None,
        hold_reason="failed",
        now=now,
    )


# ── Call and record ───────────────────────────────────────────────────────────────────────────


def call(desk: Desk, message: OutboxMessage) -> Receipt | SendFailed:
    """Hand one claimed message to the provider: one call, one of the known outcomes.

    A follow-up belongs into the chat that exists. When its id is not known yet it is looked up
    first: a read, which may fail without anything having been sent.
    """
    if message.kind == "followup" and message.chat_id is None:
        try:
            chat_id = desk.channel.find_chat(sender=message.sender, recipient=message.to)
        except ProviderUnreadable as unreadable:
            return SendDeferred("UNREACHABLE", str(unreadable))
        if chat_id is None:
            return SendDeferred("CHAT_UNKNOWN", "the provider shows no chat with this lead yet")
        message = replace(message, chat_id=chat_id)
        checkpoints.reach("chat_looked_up")
    checkpoints.reach("call_before_first_byte")
    if desk.clock.now() - message.begun_at > CALL_DEADLINE:
        return SendDeferred("TOO_LATE", "this process stood still between claim and call")
    try:
        receipt = desk.channel.send(message)
    except SendFailed as outcome:
        return outcome
    return receipt if receipt.chat_id else replace(receipt, chat_id=message.chat_id)


def record(desk: Desk, message: OutboxMessage, outcome: Receipt | SendFailed, *, who: str) -> State:
    """Write down what the call taught us, with all its consequences, in one transaction.

    Returns where the message stands. A shift that was replaced while it called finds the message
    moved on; its result is then kept as evidence and changes nothing.
    """
    checkpoints.reach("call_answered")
    with desk.begin() as conn:
        now = desk.clock.now()
        state = outbox.lock_state(conn, message)
        if state is not State.SENDING:
            _keep_as_evidence(conn, message, outcome, now=now)
            return state
        if isinstance(outcome, Receipt):
            state = settle_sent(
                conn, message, outcome, current=State.SENDING, sent_at=now, now=now, who=who
            )
        else:
            state = _record_failure(conn, message, outcome, now=now, who=who)
        phone = phones.get(conn, message.phone_id)
        gap = phone.tenant.gap.draw(desk.luck(), speed=desk.speed)
        phones.set_next_send(conn, phone.id, at=now + gap)
        day = phone.tenant.calendar.day_of(message.begun_at)
        checkpoints.reach("record_before_commit")
    checkpoints.reach("record_committed")
    if cost_of(message.kind):
        _settle_gate(desk.gate, message, day, state)
    return state


def _keep_as_evidence(
    conn: Connection, message: OutboxMessage, outcome: Receipt | SendFailed, *, now: datetime
) -> None:
    """Keep what was learnt too late to move the message; another silence teaches nothing."""
    if isinstance(outcome, SendUnconfirmed):
        return
    sent = isinstance(outcome, Receipt)
    outbox.finish_attempt(
        conn,
        message_id=message.id,
        n=message.attempt,
        outcome="sent" if sent else "failed",
        code=None if sent else outcome.code,
        detail=None if sent else outcome.why,
        external_id=outcome.external_id if sent else None,
        now=now,
        late=True,
    )


def settle_sent(
    conn: Connection,
    message: OutboxMessage,
    receipt: Receipt,
    *,
    current: State,
    sent_at: datetime,
    now: datetime,
    who: str,
) -> State:
    """All that follows from a message having gone out; also when that was found out later."""
    moved = outbox.move(
        conn,
        message.id,
        current=current,
        target=State.SENT,
        why="accepted by the provider",
        who=who,
        now=now,
        under_fence=message.fence,
        external_id=receipt.external_id,
    )
    if not moved:
        return current
    outbox.finish_attempt(
        conn,
        message_id=message.id,
        n=message.attempt,
        outcome="sent",
        external_id=receipt.external_id,
        now=now,
    )
    quota_day = quotas.settle(conn, message_id=message.id, state="committed", now=now)
    phones.count_sent(conn, message.phone_id, now=sent_at)
    standing = leads.standing(conn, message.lead_id)
    if standing is None:
        return State.SENT  # erased while the message was in flight: nothing is left to write on
    stage, opted_out = standing
    leads.record_contact(
        conn,
        message,
        receipt,
        stage=stage,
        new_stage=stage_after_contact(stage, message.channel),
        quota_day=quota_day,
        sent_at=sent_at,
        who=who,
    )
    leads.log_message(conn, message, receipt, quota_cost=cost_of(message.kind), sent_at=sent_at)
    # An opt-out or a reply that came while the message was in flight ends the sequence here.
    goes_on = stage in AUTOMATED and not opted_out
    _plan_next(conn, message, goes_on=goes_on, sent_at=sent_at, now=now, who=who)
    return State.SENT


def _plan_next(
    conn: Connection,
    message: OutboxMessage,
    *,
    goes_on: bool,
    sent_at: datetime,
    now: datetime,
    who: str,
) -> None:
    """Plan the step after this one, counted from when this one really went out."""
    opened, next_action_at = False, None
    if goes_on and message.sequence_id is not None and message.step is not None:
        calendar = phones.get(conn, message.phone_id).tenant.calendar
        steps = sequences.steps(conn, message.sequence_id)
        following = next_step(steps, done=message.step, sent_at=sent_at, calendar=calendar)
        if following is not None:
            step, due_at = following
            if step.channel == message.channel:
                opened = outbox.plan_step(
                    conn,
                    after=message,
                    step=step.step,
                    template_id=step.template_id,
                    due_at=due_at,
                    by=who,
                )
            else:
                next_action_at = due_at  # another channel: selection chooses how, when it is due
    leads.after_message(
        conn,
        message.lead_id,
        open_message=opened,
        next_action_at=next_action_at,
        hold_reason=None,
        now=now,
    )


def _record_failure(
    conn: Connection, message: OutboxMessage, outcome: SendFailed, *, now: datetime, who: str
) -> State:
    retries = outbox.retries_of(conn, message.id)
    target, due_at = State.FAILED, None
    match outcome:
        case SendUnconfirmed():
            target = State.UNCONFIRMED
        case PhoneUnusable():
            # Not the message's fault: it stays with its phone, which selection no longer uses.
            target, due_at = State.DEFERRED, now
            _stop_phone(conn, message, outcome, now=now)
        case SendDeferred():
            wait = retry_in(outcome.code, retries_so_far=retries, asked=outcome.retry_after)
            if wait is not None:
                target, due_at = State.DEFERRED, now + wait
                retries += 1
        case _:
            pass
    changes = {"retries": retries} | ({"due_at": due_at} if due_at else {})
    moved = outbox.move(
        conn,
        message.id,
        current=State.SENDING,
        target=target,
        why=str(outcome),
        who=who,
        now=now,
        under_fence=message.fence,
        **changes,
    )
    if not moved:
        return State.SENDING
    outbox.finish_attempt(
        conn,
        message_id=message.id,
        n=message.attempt,
        outcome={State.UNCONFIRMED: "unconfirmed", State.DEFERRED: "deferred"}.get(
            target, "rejected"
        ),
        code=outcome.code,
        detail=outcome.why,
        now=now,
    )
    if target is not State.UNCONFIRMED:
        # Certainly not sent, so the contact does not count. What may have gone out stays counted.
        quotas.settle(conn, message_id=message.id, state="released", now=now)
    if target is State.FAILED:
        code = outcome.code if isinstance(outcome, SendRejected) else "RETRIES_EXHAUSTED"
        outbox.bury(
            conn,
            message_id=message.id,
            tenant_id=message.tenant_id,
            code=code,
            detail=str(outcome),
            now=now,
        )
        leads.after_message(
            conn,
            message.lead_id,
            open_message=False,
            next_action_at=None,
            hold_reason="failed",
            now=now,
        )
    return target


def _stop_phone(
    conn: Connection, message: OutboxMessage, outcome: PhoneUnusable, *, now: datetime
) -> None:
    phones.set_status(conn, message.phone_id, status=outcome.status, reason=outcome.why, now=now)
    phones.open_alert(
        conn,
        tenant_id=message.tenant_id,
        kind=f"phone_{outcome.status.lower()}",
        subject=message.phone_id,
        detail=outcome.why,
        now=now,
    )


def _settle_gate(gate: QuotaGate, message: OutboxMessage, day: date, state: State) -> None:
    """Tell Redis what the ledger knows; a failure here is put right by the next comparison."""
    try:
        if state is State.SENT:
            gate.commit(message.phone_id, day, message.lead_id)
        elif state in (State.DEFERRED, State.FAILED):
            gate.release(message.phone_id, day, message.lead_id)
    except QuotaUnknown as unknown:
        event(
            "quota", "gate_unreachable", level="warning", phone=message.phone_id, error=str(unknown)
        )
    checkpoints.reach("quota_settled_in_redis")
