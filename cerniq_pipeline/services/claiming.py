"""The first beat: take a phone's next message, with every rule checked under its locks.

What is claimed is written down before a byte may leave; see `sending.py` for the three beats.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import Connection

from cerniq_pipeline.domain import address, likeness, templates
from cerniq_pipeline.domain.breakers import PROBE_EVERY
from cerniq_pipeline.domain.conversations import BAD_DATA
from cerniq_pipeline.domain.holds import HUMAN_RECHECK, Hold, hold_on_message
from cerniq_pipeline.domain.media import LONGEST_CAPTION
from cerniq_pipeline.domain.outbox import ApprovedText, OutboxMessage, State
from cerniq_pipeline.domain.pacing import MEDIA_PER_MINUTE, RETRIES_PER_MINUTE
from cerniq_pipeline.domain.quotas import Standing
from cerniq_pipeline.errors import (
    CerniqError,
    LeaseLost,
    MissingVariable,
    QuotaUnknown,
    TemplateError,
    named,
)
from cerniq_pipeline.logs import event
from cerniq_pipeline.services import checkpoints, leasing, sending
from cerniq_pipeline.services.bad_data import mended, show
from cerniq_pipeline.services.facts import message_facts
from cerniq_pipeline.services.leasing import Lease
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import (
    alerts,
    breakers,
    dead_letters,
    leads,
    leases,
    outbox,
    phones,
    quotas,
)
from cerniq_pipeline.store.database import Unavailable
from cerniq_pipeline.store.outbox import Candidate, Due
from cerniq_pipeline.store.phones import Phone
from cerniq_pipeline.store.quotas import Gate

PASSED_OVER_AT_ONCE = 50
"""Messages that are cancelled or put off, each in a transaction of its own, before the shift looks
up: it may be asked to stop."""

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
    try:
        for _ in range(PASSED_OVER_AT_ONCE):
            decided = _claim_next(desk, lease)
            if decided is not None:
                return decided
    except QuotaUnknown as unknown:
        # Fail closed: while the count cannot be known, nobody writes to anyone.
        return Hold("quota_unknown", str(unknown), desk.clock.now() + REDIS_RECHECK)
    return Nothing(desk.clock.now())


def _claim_next(desk: Desk, lease: Lease) -> OutboxMessage | Hold | Nothing | None:
    """Decide about the phone's next message, and no other: None when it was passed over.

    Whatever goes wrong with this one is undone, and costs it alone.
    """
    due = None
    try:
        with desk.begin() as conn:
            now = desk.clock.now()
            leasing.check(leases.lock(conn, lease.phone_id), lease, now=now)
            leases.extend(conn, lease.phone_id, until=now + leasing.LEASE)
            phone = phones.get(conn, lease.phone_id)
            _forget_unsent(conn, lease, now=now)
            hold = desk.hold_on(phone, now=now)
            if hold is not None:
                return hold
            due = outbox.next_due(conn, phone.id, now=now)
            if due is None:
                return Nothing(outbox.next_due_at(conn, phone.id))
            candidate = outbox.lock_candidate(conn, due)
            if candidate is None:
                outbox.cancel_orphan(conn, due, who=lease.holder.name, now=now)
                return None
            decided = _decide(desk, conn, lease, phone, candidate, now=now)
            if isinstance(decided, OutboxMessage):
                checkpoints.reach("claim_before_commit")
    except (*Unavailable, LeaseLost, QuotaUnknown):
        raise
    except Exception as error:
        if due is None:
            raise
        _set_aside(desk, lease, due, error)
        return None
    if isinstance(decided, OutboxMessage):
        checkpoints.reach("claim_committed")
    return decided


def _set_aside(desk: Desk, lease: Lease, due: Due, error: Exception) -> None:
    """Put a message off that nobody could decide about, and show its lead to a person."""
    why = named(error)
    event("send", "message_set_aside", level="error", message=due.id, error=why)
    with desk.begin() as conn:
        now = desk.clock.now()
        leasing.check(leases.lock(conn, lease.phone_id), lease, now=now)
        state = outbox.lock_state(conn, due)
        if state in (State.PLANNED, State.DEFERRED):
            outbox.move(
                conn,
                due.id,
                current=state,
                target=State.DEFERRED,
                why=f"unexpected_error: {why}",
                who=lease.holder.name,
                now=now,
                due_at=now + HUMAN_RECHECK,
            )
            show(conn, due.lead_id, now=now)


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
    if facts.bad_data is not None:
        show(conn, candidate.lead["lead_id"], now=now)
    elif candidate.lead["human_review_reason"] == BAD_DATA:
        mended(conn, candidate.lead["lead_id"], now=now)
    hold = hold_on_message(facts, calendar=phone.tenant.calendar, now=now)
    if hold is not None:
        return _pass_over(conn, lease, candidate, hold, now=now)
    try:
        body, approved = render(
            candidate, introduction=phone.tenant.introduction, as_approved=not facts.window_open
        )
    except CerniqError as unusable:
        _fail(conn, phone, candidate, str(unusable), lease.holder.name, now=now)
        return None
    hold = _hold_on_text(conn, phone, body, now=now) or _hold_on_rates(
        desk, phone, candidate, now=now
    )
    if hold is not None:
        return _pass_over(conn, lease, candidate, hold, now=now)
    if not all(breakers.take_turn(conn, each, now=now) for each in phone.facts.breakers):
        return Hold("breaker_open", "another message is the probe", now + PROBE_EVERY)
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
        chat_id=None if candidate.opens_a_chat else candidate.lead["chat_id"],
        body=body,
        sequence_id=candidate.sequence_id,
        step=candidate.step,
        attempt=candidate.attempts + 1,
        fence=lease.fence,
        begun_at=now,
        media=candidate.media,
        approved=approved,
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
    phones.set_next_send(conn, phone.id, at=now + sending.gap_after(desk, phone, message))
    return message


def _hold_on_text(conn: Connection, phone: Phone, body: str, *, now: datetime) -> Hold | None:
    """Refuse one more text like the last ones of this phone, and tell somebody."""
    if phone.tenant.alike_texts == 0:
        return None
    hold = too_alike(conn, phone, body, now=now)
    if hold is None:
        alerts.close(conn, kinds=("texts_too_alike",), subjects=[phone.id], now=now)
        return None
    alerts.open_once(
        conn,
        tenant_id=phone.tenant.id,
        kind="texts_too_alike",
        subject=phone.id,
        detail=hold.detail,
        now=now,
    )
    return hold


def too_alike(conn: Connection, phone: Phone, body: str, *, now: datetime) -> Hold | None:
    """What holds one more text like the last ones of this phone."""
    window = phone.tenant.alike_texts
    last = leads.last_texts(conn, phone.id, since=now - likeness.WINDOW, limit=window)
    if window == 0 or not likeness.too_alike(body, last, window=window):
        return None
    detail = f"it is like the last {window} texts of {phone.id}; the template needs more variety"
    return Hold("too_alike", detail, now + HUMAN_RECHECK, "defer")


def _hold_on_rates(desk: Desk, phone: Phone, candidate: Candidate, *, now: datetime) -> Hold | None:
    """Keep the provider's limits: sends, retries and media per minute and account.

    A message that must wait for its own limit steps aside; only the limit of all sends holds the
    phone.
    """
    attempt = f"{candidate.id}:{candidate.attempts + 1}"
    rates: list[tuple[str, int, Literal["wait", "defer"]]] = []
    if candidate.retries:
        rates.append(("retry", RETRIES_PER_MINUTE, "defer"))
    if candidate.media:
        rates.append(("media", MEDIA_PER_MINUTE, "defer"))
    rates.append(("send", desk.sends_per_minute, "wait"))
    for name, most, then in rates:
        free_at = desk.gate.rate(
            f"{name}:{phone.provider}",  # one account for all tenants, so one limit for all of them
            most=max(1, round(most * desk.speed)),
            window=timedelta(minutes=1),
            now=now,
            token=attempt,
        )
        if free_at is not None:
            rule = "rate_limit" if name == "send" else f"{name}_limit"
            return Hold(rule, f"{most} a minute are out", free_at, then)
    return None


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
        leads.end_sequence(conn, candidate.id, reason=hold.rule, now=now)
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


def render(
    candidate: Candidate, *, introduction: str, as_approved: bool
) -> tuple[str, ApprovedText | None]:
    """The exact text for this lead, and its approved form when only that may go.

    The same each time it is asked: the choices of a text hang on the lead and its step. Raises when
    anything in it is missing or not allowed.
    """
    if candidate.content is not None and candidate.kind != "handover":
        return candidate.content, None
    lead = candidate.lead
    values = address.values_for(
        company_name=lead["denumire"],
        contact_name=lead["contact_principal_nume"],
        county=lead["judet"],
        city=lead["localitate"],
        custom=_own_fields(lead["custom"]),
    )
    seed = f"{lead['lead_id']}/{candidate.sequence_id}/{candidate.step}"
    source = candidate.template or ""
    if candidate.kind == "handover":
        # From a number that the lead does not know: say first who writes.
        source = f"{introduction}\n\n{source}"
    body = templates.render(templates.parse(source), values, seed=seed)
    if candidate.content is not None:
        # What a person wrote is no template: it stands as they wrote it.
        body = f"{body.rstrip()}\n\n{candidate.content}".rstrip()
    if candidate.media and len(body) > LONGEST_CAPTION:
        too_long = f"the caption of a file has {len(body)} characters, at most {LONGEST_CAPTION}"
        raise TemplateError(too_long, line=1, column=1)
    if templates.looks_unresolved(body):
        raise TemplateError("the rendered text still has template marks in it", line=1, column=1)
    if candidate.opens_a_chat and templates.mentions_url(body):
        raise TemplateError("a first message must not carry an address", line=1, column=1)
    if not as_approved or candidate.approved_name is None:
        return body, None
    filled = {name: values.get(name) or "" for name in candidate.approved_parameters}
    if missing := tuple(name for name, value in filled.items() if not value):
        raise MissingVariable(missing)
    approved = ApprovedText(
        candidate.approved_name, candidate.approved_language, tuple(filled.values())
    )
    return body, approved


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
    dead_letters.bury(
        conn,
        message_id=candidate.id,
        tenant_id=phone.tenant.id,
        code="INVALID_LEAD",
        detail=why,
        now=now,
    )
    leads.end_sequence(conn, candidate.id, reason="failed", now=now)
