"""The first beat: take a phone's next message, with every rule checked under its locks.

What is claimed is written down before a byte may leave; see `sending.py` for the three beats.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from cerniq_pipeline.domain import address, templates
from cerniq_pipeline.domain.holds import Hold, hold_on_message, hold_on_phone
from cerniq_pipeline.domain.outbox import OutboxMessage, State
from cerniq_pipeline.domain.quotas import Standing
from cerniq_pipeline.errors import CerniqError, QuotaUnknown, TemplateError
from cerniq_pipeline.logs import event
from cerniq_pipeline.services import checkpoints, leasing
from cerniq_pipeline.services.facts import message_facts
from cerniq_pipeline.services.leasing import Lease
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import leads, leases, outbox, phones, quotas
from cerniq_pipeline.store.outbox import Candidate
from cerniq_pipeline.store.phones import Phone
from cerniq_pipeline.store.quotas import Gate

PASSED_OVER_AT_ONCE = 50
"""Messages one claim may cancel or put off before it lets go of its locks."""

REDIS_RECHECK = timedelta(seconds=10)


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
        provider=phone.provider,
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
