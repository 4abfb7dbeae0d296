"""Why nothing is being sent now: the same rules as the claim, asked without changing anything."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from cerniq_pipeline.domain.alerts import DISPATCH_STUCK
from cerniq_pipeline.domain.automation import NEEDED_FOR, standstill
from cerniq_pipeline.domain.calendar import local
from cerniq_pipeline.domain.holds import Hold, Installation, hold_on_message, hold_on_phone
from cerniq_pipeline.domain.leads import AUTOMATED, known_stage, unreadable
from cerniq_pipeline.domain.names import Name, read_name
from cerniq_pipeline.domain.selection import Skip, allocate
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.dispatch import next_dispatch, refusal_of
from cerniq_pipeline.services.facts import message_facts, standing_of
from cerniq_pipeline.services.people import the_lead
from cerniq_pipeline.services.work_shift import LINGER
from cerniq_pipeline.store import (
    alerts,
    automations,
    failover,
    outbox,
    overview,
    phones,
    suppressions,
    tenants,
)
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.outbox import Due
from cerniq_pipeline.store.phones import Phone

SELECTION_SAID: dict[str, str] = {
    Skip.NO_LAWFUL_BASIS: "its lawful basis does not suffice for any channel that reaches it",
    Skip.NO_CHANNEL: "it has no verified number or address on an enabled channel",
    Skip.LANDLINE: "its number is a landline, which has no WhatsApp; give it a mobile number",
    Skip.QUOTA_EXCEEDED: "no phone had room for a new contact",
    Skip.PHONE_NOT_ACTIVE: "no phone that may write to it is active",
    Skip.SEQUENCE_FINISHED: "it has had every step of its sequence",
    Skip.SEQUENCE_PAUSED: "its sequence is paused",
    Skip.TEMPLATE_BROKEN: "the text of its next step cannot be used; `cerniq templates` says why",
    Skip.NO_SEQUENCE: "neither it nor its tenant has a sequence",
    Skip.CHANNEL_UNAVAILABLE: "its next step is on a channel that nothing is sent on yet",
    Skip.STEP_REPEATED: "its next step went out to it before: its step was set back",
    Skip.ALREADY_PLANNED: "this step was planned before, for it or for its number",
    Skip.OPTED_OUT: "it asked not to be contacted",
}


@dataclass(frozen=True)
class Explanation:
    """One answer: the rule that binds, its numbers in words, when that changes, and the figures."""

    subject: str
    rule: str
    detail: str
    until: datetime | None
    facts: dict[str, Any]


def why(
    begin: Begin,
    subject: str,
    *,
    tenant_id: str | None,
    secret: bytes,
    here: Installation,
    now: datetime,
) -> Explanation:
    """Explain a phone (by id or number) or a person (by anything that they are called)."""
    name = read_name(subject)
    with begin() as conn:
        phone_id = overview.find_phone(conn, name, tenant_id=tenant_id)
        if phone_id is not None:
            return _unless_stopped(conn, _why_phone(conn, phone_id, here=here, now=now), now)
        stranger = _stopped_stranger(conn, name, tenant_id=tenant_id, secret=secret)
        if stranger is not None:
            return stranger
        _, lead_id = the_lead(conn, name, tenant_id=tenant_id)
        told = _why_lead(conn, lead_id, secret=secret, here=here, now=now)
        return _unless_stopped(conn, told, now)


def _unless_stopped(conn: Connection, told: Explanation, now: datetime) -> Explanation:
    """The explanation, or what is stopped when the rule would lift only if that ran."""
    needed = NEEDED_FOR.get(told.rule)
    stopped = standstill(automations.seen(conn), now=now).of(needed) if needed else None
    if stopped is None:
        return told
    return replace(told, rule="stopped", detail=f"{stopped} ({told.detail})", until=None)


def _stopped_stranger(
    conn: Connection, name: Name, *, tenant_id: str | None, secret: bytes
) -> Explanation | None:
    """What keeps somebody out who is nobody's lead."""
    _, known = overview.find_leads(conn, name, tenant_id=tenant_id)
    if known:
        return None
    keys = suppressions.keys_of(secret, addresses=[name.reaches], cui=name.company)
    places = [tenant_id] if tenant_id else tenants.all_ids(conn)
    at = [place for place in places if suppressions.is_suppressed(conn, place, keys)]
    if not at:
        return None
    detail = "this person is nobody's lead, and asked not to be contacted"
    return Explanation(name.reaches or name.typed, "opted_out", detail, None, {"tenants": at})


def _why_phone(
    conn: Connection, phone_id: str, *, here: Installation, now: datetime
) -> Explanation:
    phone = phones.get(conn, phone_id)
    due_at = outbox.next_due_at(conn, phone_id)
    standing = standing_of(conn, phone, now=now)
    facts = {
        "tenant": phone.tenant.id,
        "status": phone.facts.status,
        "new_contacts_today": standing.used,
        "quota_today": standing.limit,
        "quota_resets_at": standing.resets_at,
        "next_send_at": phone.facts.next_send_at,
        "next_due_at": due_at,
        "waiting_messages": overview.waiting(conn, phone_id),
    }
    hold = _hold_on(conn, phone, due_at, here=here, now=now)
    return Explanation(f"phone {phone_id}", hold.rule, hold.detail, hold.until, facts)


def next_send(
    conn: Connection, phone_id: str, *, here: Installation, now: datetime
) -> tuple[Hold, datetime | None]:
    """What a phone waits for, and when it sends next: None when that hangs on somebody else.

    That is a person who must let it go on, or a dispatch that must give it something to send.
    """
    phone = phones.get(conn, phone_id)
    due_at = outbox.next_due_at(conn, phone_id)
    hold = _hold_on(conn, phone, due_at, here=here, now=now)
    at = max(hold.until, due_at) if hold.until is not None and due_at is not None else None
    return hold, at


def _hold_on(
    conn: Connection, phone: Phone, due_at: datetime | None, *, here: Installation, now: datetime
) -> Hold:
    hold = hold_on_phone(phone.facts, here=here, now=now)
    return hold or _hold_on_next(conn, phone, due_at, now)


def _hold_on_next(conn: Connection, phone: Phone, due_at: datetime | None, now: datetime) -> Hold:
    flight = overview.in_flight(conn, phone.id)
    if flight:
        return Hold("in_flight", f"message {flight} is being sent", None)
    if due_at is None:
        return Hold("nothing_due", "no message waits for this phone", next_dispatch(now))
    if due_at > now:
        at = local(due_at, phone.tenant.calendar.time_zone, seconds=False)
        return Hold("nothing_due", f"its next message is due at {at}", due_at)
    return Hold("ready", "the next shift sends its next message", now)


def _why_lead(
    conn: Connection, lead_id: UUID, *, secret: bytes, here: Installation, now: datetime
) -> Explanation:
    lead = overview.lead(conn, lead_id)
    message = overview.last_message(conn, lead_id)
    hold = hold_on_lead(conn, lead, message, secret=secret, here=here, now=now)
    facts = {
        "tenant": lead["tenant_id"],
        "company": lead["denumire"],
        "stage": lead["engagement_stage"],
        "phone": lead["assigned_phone_id"],
        "sequence_step": lead["sequence_step"],
        "lawful_basis": lead["lawful_basis"],
        "next_action_at": lead["next_action_at"],
        "message": message,
        "allocation": None
        if message or hold.rule == DISPATCH_STUCK
        else _allocation(conn, lead, now),
    }
    return Explanation(f"lead {lead_id}", hold.rule, hold.detail, hold.until, facts)


def _allocation(conn: Connection, lead: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The phone that would write to this lead now, and why that one."""
    tenant = tenants.get(conn, lead["tenant_id"])
    desks = phones.desks(conn, tenant.id, day=tenant.calendar.day_of(now))
    allocation = allocate(
        lead["assigned_phone_id"],
        desks,
        new_contact=lead["sequence_step"] == 0,
        failover="hand_over",
        lost_phones=failover.handing_over(conn, tenant.id, now=now),
    )
    return asdict(allocation)


def hold_on_lead(
    conn: Connection,
    lead: dict[str, Any],
    message: dict[str, Any] | None,
    *,
    secret: bytes,
    here: Installation,
    now: datetime,
) -> Hold:
    """What holds a lead, and its newest message, now."""
    keys = suppressions.keys_of(
        secret, addresses=(lead["telefon_principal"], lead["email_principal"]), cui=lead["cui"]
    )
    opted_out = (
        lead["whatsapp_opted_out"]
        or lead["email_opted_out"]
        or suppressions.is_suppressed(conn, lead["tenant_id"], keys)
    )
    fault = unreadable(
        stage=lead["engagement_stage"], basis=lead["lawful_basis"], name=lead["denumire"]
    )
    waits = message is not None and message["state"] in ("planned", "deferred")
    if fault is not None and not opted_out and (waits or message is None):
        return Hold("bad_data", fault, message["due_at"] if message else None)
    if message is not None:
        hold = _hold_on_open_message(conn, message, secret=secret, here=here, now=now)
        if hold is not None:
            return hold
    if opted_out:
        return Hold("opted_out", "this person asked not to be contacted", None)
    if lead["requires_human_review"]:
        reason = lead["human_review_reason"] or "no reason given"
        return Hold("human_review", f"a person must look first: {reason}", None)
    stage = known_stage(lead["engagement_stage"])
    if stage not in AUTOMATED:
        return Hold("conversation", f"the lead is in {stage}", None)
    look_again = lead["next_action_at"]
    if look_again is None or look_again > now:
        rule = lead["hold_reason"] or ("not_due" if look_again else Skip.SEQUENCE_FINISHED)
        said = SELECTION_SAID.get(rule, "its next step is not due" if look_again else rule)
        return Hold(rule, said, look_again)
    return _hold_on_dispatch(conn, lead, now)


def _hold_on_open_message(
    conn: Connection, message: dict[str, Any], *, secret: bytes, here: Installation, now: datetime
) -> Hold | None:
    match message["state"]:
        case "sending":
            return Hold("in_flight", f"message {message['id']} is being sent", None)
        case "unconfirmed":
            return Hold("unconfirmed", "its last message may have gone out; it is looked up", None)
        case "parked":
            return Hold("parked", "nobody knows whether its last message went out", None)
        case "planned" | "deferred":
            pass
        case _:
            return None
    if message["phone_id"] is None:
        return Hold(Skip.CHANNEL_UNAVAILABLE, SELECTION_SAID[Skip.CHANNEL_UNAVAILABLE], None)
    phone = phones.get(conn, message["phone_id"])
    candidate = outbox.see_candidate(conn, Due(message["id"], message["lead_id"]))
    if message["due_at"] > now:
        return Hold("not_due", message["reason"] or "its next step is not due", message["due_at"])
    hold = hold_on_phone(phone.facts, here=here, now=now)
    if hold is None and candidate is not None:
        facts = message_facts(conn, phone, candidate, secret=secret, now=now)
        hold = hold_on_message(facts, calendar=phone.tenant.calendar, now=now)
    ahead = overview.ahead_of(conn, phone.id, message["id"])
    waiting = f"{ahead} messages before it on {phone.id}"
    return hold or Hold("queued", waiting, phone.facts.next_send_at or now)


def _hold_on_dispatch(conn: Connection, lead: dict[str, Any], now: datetime) -> Hold:
    tenant_id = lead["tenant_id"]
    tenant = tenants.get(conn, tenant_id)
    if tenant.fault is not None:
        return Hold("bad_data", tenant.fault, None)
    for alert in alerts.open_alerts(conn, tenant_id=tenant_id, kind=DISPATCH_STUCK):
        if alert.tenant_id == tenant_id:
            return Hold(DISPATCH_STUCK, f"its tenant cannot be dispatched: {alert.detail}", None)
    # What is wrong with the lead itself comes first: the rest passes by itself.
    refusal = refusal_of(conn, lead["lead_id"], tenant)
    if refusal is Skip.NO_LAWFUL_BASIS and lead["lawful_basis"] is None:
        return Hold(refusal, "it has no lawful basis: nobody said why it may be contacted", None)
    if refusal is not None:
        return Hold(refusal, SELECTION_SAID[refusal], None)
    for switch in phones.switches_off(conn, tenant_id, channel="WHATSAPP"):
        return Hold("switched_off", f"the {switch.scope} switch is off: {switch.reason}", None)
    if not tenant.active:
        return Hold("tenant_paused", "the tenant is paused", None)
    if not tenant.calendar.is_open(now):
        return Hold("outside_hours", "the tenant is closed", tenant.calendar.next_open(now))
    return Hold("next_dispatch", "it waits for the next dispatch", next_dispatch(now))


def phones_needing_a_shift(begin: Begin, *, here: Installation, now: datetime) -> list[str]:
    """Phones with work to do that no rule keeps silent for longer than a shift would wait.

    While a provider is in trouble one of its phones is enough: a single probe is made at a time.
    """
    with begin() as conn:
        needing = []
        probed: set[str] = set()
        for phone_id, left_behind in phones.with_work(conn, now=now):
            try:
                facts = phones.get(conn, phone_id).facts
                hold = hold_on_phone(facts, here=here, now=now)
            except Exception as error:
                if isinstance(error, SQLAlchemyError):
                    raise
                why = type(error).__name__
                event("shift", "phone_unreadable", level="error", phone=phone_id, error=why)
                continue
            soon = hold is None or (hold.until is not None and hold.until - now <= LINGER)
            if any(breaker.scope == "provider" for breaker in facts.breakers):
                soon = soon and facts.provider not in probed
                probed.add(facts.provider)
            if soon or left_behind:
                needing.append(phone_id)
        return needing
