"""The third beat: write down what a call taught us, with all that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from sqlalchemy import Connection

from cerniq_pipeline.domain.alerts import PHONE_MAY_BE_WELL
from cerniq_pipeline.domain.events import Contact
from cerniq_pipeline.domain.leads import stage_after_contact
from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt, State
from cerniq_pipeline.domain.pacing import retry_in
from cerniq_pipeline.domain.quotas import cost_of
from cerniq_pipeline.domain.refusals import (
    OTHERS_FIRST,
    REFUSED_BY_PHONES,
    Refused,
    is_the_messages_fault,
)
from cerniq_pipeline.domain.sequences import next_step
from cerniq_pipeline.errors import (
    AccountSuspended,
    PhoneUnusable,
    QuotaUnknown,
    SendDeferred,
    SendFailed,
    SendRejected,
    SendUnconfirmed,
)
from cerniq_pipeline.logs import event
from cerniq_pipeline.services import breaking, checkpoints, deliveries
from cerniq_pipeline.services.reads import at_once
from cerniq_pipeline.services.sending import Desk, gap_after
from cerniq_pipeline.store import (
    alerts,
    conversations,
    dead_letters,
    leads,
    outbox,
    phones,
    quotas,
    sequences,
)
from cerniq_pipeline.store.quotas import QuotaGate


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
        held_until = breaking.note(conn, message, outcome, now=now)
        if isinstance(outcome, Receipt):
            state = settle_sent(
                conn, message, outcome, current=State.SENDING, sent_at=now, now=now, who=who
            )
            hear_early(desk, conn, message, outcome, now=now)
        else:
            state = _record_failure(
                desk, conn, message, outcome, held_until=held_until, now=now, who=who
            )
        phone = phones.get(conn, message.phone_id)
        phones.set_next_send(conn, phone.id, at=now + gap_after(desk, phone, message))
        day = phone.tenant.calendar.day_of(message.begun_at)
        checkpoints.reach("record_before_commit")
    checkpoints.reach("record_committed")
    if cost_of(message.kind):
        _settle_gate(desk.gate, message, day, state)
    return state


def leave_in_doubt(
    desk: Desk, message: OutboxMessage, outcome: Receipt | SendFailed, why: str, *, who: str
) -> State:
    """Note only that the outcome could not be written down: who looks it up tries that again.

    Nothing of the lead is touched, whose rows may be what stood in the way.
    """
    with desk.begin() as conn:
        now = desk.clock.now()
        state = outbox.lock_state(conn, message)
        moved = state is State.SENDING and outbox.move(
            conn,
            message.id,
            current=state,
            target=State.UNCONFIRMED,
            why=f"NOT_RECORDED: {why}",
            who=who,
            now=now,
            under_fence=message.fence,
        )
        if not moved:
            return state
        outbox.finish_attempt(
            conn,
            message_id=message.id,
            n=message.attempt,
            outcome="unconfirmed",
            code="NOT_RECORDED",
            detail=why,
            external_id=outcome.external_id if isinstance(outcome, Receipt) else None,
            now=now,
        )
    return State.UNCONFIRMED


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
        exchange=outcome.exchange,
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
    why: str = "accepted by the provider",
) -> State:
    """All that follows from a message having gone out; also when that was found out later."""
    moved = outbox.move(
        conn,
        message.id,
        current=current,
        target=State.SENT,
        why=why,
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
        exchange=receipt.exchange,
        now=now,
    )
    outbox.lock_person(conn, message.tenant_id, message.to)  # before the ledger, as everywhere
    quota_day = quotas.settle(conn, message_id=message.id, state="committed", now=now)
    phones.count_sent(conn, message.phone_id, now=sent_at)
    standing = leads.standing(conn, message.lead_id)
    if standing is None:
        return State.SENT  # erased while the message was in flight: nothing is left to write on
    # An opt-out, a reply or a person's own words may have come while the message was in flight.
    stage, goes_on = standing
    leads.record_contact(
        conn,
        message,
        receipt,
        stage=stage,
        new_stage=stage_after_contact(stage, message.channel),
        quota_day=quota_day,
        goes_on=goes_on,
        sent_at=sent_at,
        who=who,
    )
    _log(conn, message, receipt, sent_at=sent_at, now=now)
    if message.sequence_id is not None:
        _plan_next(conn, message, goes_on=goes_on, sent_at=sent_at, now=now, who=who)
    return State.SENT


def hear_early(
    desk: Desk, conn: Connection, message: OutboxMessage, receipt: Receipt, *, now: datetime
) -> None:
    """Let a message that was just settled as sent hear what its provider said of it before."""
    deliveries.apply_early(conn, message.channel, receipt.external_id, secret=desk.secret, now=now)


def _log(
    conn: Connection, message: OutboxMessage, receipt: Receipt, *, sent_at: datetime, now: datetime
) -> None:
    """Write the message into the log, as a part of the conversation with this person."""
    conversation_id = None
    if message.channel == "WHATSAPP":
        conversation_id = conversations.open_conversation(
            conn,
            tenant_id=message.tenant_id,
            lead_id=message.lead_id,
            contact=Contact(phone=message.to),
            phone_id=message.phone_id,
            chat_id=receipt.chat_id or message.chat_id,
            now=now,
        )
    leads.log_message(
        conn,
        message,
        receipt,
        conversation_id=conversation_id,
        quota_cost=cost_of(message.kind),
        sent_at=sent_at,
    )
    if conversation_id is not None:
        conversations.recount(conn, conversation_id)


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
        now=now,
    )


def _record_failure(
    desk: Desk,
    conn: Connection,
    message: OutboxMessage,
    outcome: SendFailed,
    *,
    held_until: datetime | None,
    now: datetime,
    who: str,
) -> State:
    retries = outbox.retries_of(conn, message.id)
    target, due_at = State.FAILED, None
    before = outbox.refused_by_phones(conn, message) if isinstance(outcome, PhoneUnusable) else []
    if is_the_messages_fault(before, phone_id=message.phone_id):
        outcome = _blame(conn, message, outcome, before, now=now)
    match outcome:
        case SendUnconfirmed():
            target = State.UNCONFIRMED
        case PhoneUnusable():
            # Not the message's fault: it waits for what becomes of its phone.
            target, due_at = State.DEFERRED, now + (OTHERS_FIRST if before else timedelta())
            stop_phone(conn, message, outcome, now=now)
        case AccountSuspended():
            target, due_at = State.DEFERRED, now
            stop_account(conn, message, "account_suspended", str(outcome), now=now)
        case SendDeferred() if held_until is not None:
            # The provider's trouble, not the message's: it costs none of its tries.
            wish = now + (outcome.retry_after or timedelta())
            target, due_at = State.DEFERRED, max(held_until, wish)
        case SendDeferred():
            if outcome.code == "WINDOW_CLOSED":
                leads.close_window(conn, message.lead_id, now=now)
            wait = retry_in(
                outcome.code,
                retries_so_far=retries,
                asked=outcome.retry_after,
                luck=desk.luck(),
            )
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
        exchange=outcome.exchange,
        now=now,
    )
    if target is not State.UNCONFIRMED:
        # Certainly not sent, so the contact does not count. What may have gone out stays counted.
        quotas.settle(conn, message_id=message.id, state="released", now=now)
    if target is State.FAILED:
        code = outcome.code if isinstance(outcome, SendRejected) else "RETRIES_EXHAUSTED"
        dead_letters.bury(
            conn,
            message_id=message.id,
            tenant_id=message.tenant_id,
            code=code,
            detail=str(outcome),
            now=now,
        )
        leads.end_sequence(conn, message.id, reason="failed", now=now)
    return target


def _blame(
    conn: Connection,
    message: OutboxMessage,
    outcome: SendFailed,
    before: Sequence[Refused],
    *,
    now: datetime,
) -> SendRejected:
    """Take a refusal that speaks of the phone for one of the message; its phone goes on.

    A phone that is still stopped for this message alone may be well: a person is told.
    """
    for one in before:
        if one.still_stopped and one.phone_id != message.phone_id:
            alerts.open_once(
                conn,
                tenant_id=message.tenant_id,
                kind=PHONE_MAY_BE_WELL,
                subject=one.phone_id,
                detail=f"it was stopped for message {message.id}, which {message.phone_id} could "
                "not send either",
                now=now,
            )
    phones_before = ", ".join(one.phone_id for one in before)
    return SendRejected(REFUSED_BY_PHONES, f"first by {phones_before}; now {outcome}")


def stop_phone(
    conn: Connection, message: OutboxMessage, outcome: PhoneUnusable, *, now: datetime
) -> None:
    """Keep this message's phone silent as its provider says, and say so once."""
    phones.set_status(conn, message.phone_id, status=outcome.status, reason=outcome.why, now=now)
    alerts.open_once(
        conn,
        tenant_id=message.tenant_id,
        kind=f"phone_{outcome.status.lower()}",
        subject=message.phone_id,
        detail=outcome.why,
        now=now,
    )


def stop_account(
    conn: Connection, message: OutboxMessage, kind: str, why: str, *, now: datetime
) -> None:
    """Switch every phone of this message's account off, and say so once."""
    phones.switch_off(
        conn, scope="account", key=message.provider, reason=why, by=message.phone_id, now=now
    )
    alerts.open_once(
        conn,
        tenant_id=message.tenant_id,
        kind=kind,
        subject=message.provider,
        detail=why,
        now=now,
    )


def check_sender(desk: Desk, message: OutboxMessage, receipt: Receipt) -> bool:
    """Make sure that a message left from the phone that was asked; False: all is stopped.

    A vendor that takes another phone would put twenty phones' traffic onto one, which is then
    banned. A check that cannot be made proves nothing; the next message is checked again.
    """
    sender = desk.channels[message.provider].sender_of(
        message, receipt, turn=at_once(desk, message.provider)
    )
    if sender is None or sender == message.sender:
        return True
    why = f"a message of {message.phone_id} left from another phone"
    with desk.begin() as conn:
        stop_account(conn, message, "wrong_sender", why, now=desk.clock.now())
    event("send", "wrong_sender", level="error", message=message.id, phone=message.phone_id)
    return False


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
