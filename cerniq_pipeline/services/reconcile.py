"""Settle what nobody is sure of: look unconfirmed sends up, and keep Redis equal to the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta

from cerniq_pipeline.domain.outbox import Channel, OutboxMessage, Receipt, Sighting, State
from cerniq_pipeline.errors import ProviderUnreadable
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.recording import settle_sent
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import inbox, leases, outbox, phones, quotas, tenants

LOOK_AGAIN = timedelta(seconds=20)


def settle_unconfirmed(desk: Desk, *, settle_time: timedelta, who: str) -> Counter[str]:
    """Look every unconfirmed send up: found → sent; absent or ambiguous → parked for a person.

    "Found" counts at any time, "absent" only after the settle time, and never leads to a resend:
    a history that lags makes "absent" a lie.
    """
    counts: Counter[str] = Counter()
    with desk.begin() as conn:
        waiting = outbox.unconfirmed(conn)
    for message in waiting:
        counts[_settle(desk, message, settle_time=settle_time, who=who)] += 1
    return counts


def settle_told(desk: Desk, people: Collection[str], *, who: str) -> None:
    """Settle the unconfirmed sends to these people of which their provider has just spoken."""
    with desk.begin() as conn:
        waiting = outbox.unconfirmed(conn, to=people)
    for message in waiting:
        found = _told(desk, message)
        if len(found) == 1:
            _decide(desk, message, found, settle_time=timedelta.max, who=who)


def settle_until_quiet(
    desk: Desk, *, settle_time: timedelta, longest: timedelta, who: str
) -> Counter[str]:
    """Look up now and then every few seconds, until nothing is unconfirmed or the time is up."""
    total: Counter[str] = Counter()
    until = desk.clock.now() + longest
    while True:
        counts = settle_unconfirmed(desk, settle_time=settle_time, who=who)
        total += Counter({name: counts[name] for name in ("sent", "parked")})
        undecided = counts["waiting"] + counts["unreadable"]
        if not undecided or desk.clock.now() >= until:
            return total
        desk.clock.sleep(LOOK_AGAIN.total_seconds())


def _settle(desk: Desk, message: OutboxMessage, *, settle_time: timedelta, who: str) -> str:
    try:
        found = _look(desk, message)
    except ProviderUnreadable as unreadable:
        event(
            "reconcile",
            "look_up_failed",
            level="warning",
            message=message.id,
            error=str(unreadable),
        )
        return "unreadable"
    return _decide(desk, message, found, settle_time=settle_time, who=who)


def _decide(
    desk: Desk,
    message: OutboxMessage,
    found: tuple[Sighting, ...],
    *,
    settle_time: timedelta,
    who: str,
) -> str:
    now = desk.clock.now()
    settled = now - message.begun_at >= settle_time
    if len(found) != 1 and not settled:
        return "waiting"
    with desk.begin() as conn:
        if outbox.lock_state(conn, message) is not State.UNCONFIRMED:
            return "settled elsewhere"
        if len(found) == 1:
            receipt = Receipt(found[0].external_id, found[0].chat_id)
            settle_sent(
                conn,
                message,
                receipt,
                current=State.UNCONFIRMED,
                sent_at=found[0].sent_at,
                now=now,
                who=who,
            )
            result = "sent"
        else:
            result = "parked"
            outbox.move(
                conn,
                message.id,
                current=State.UNCONFIRMED,
                target=State.PARKED,
                why=f"{len(found)} messages like it in the history after {settle_time}",
                who=who,
                now=now,
            )
    event("reconcile", f"message_{result}", message=message.id, phone=message.phone_id)
    return result


def _look(desk: Desk, message: OutboxMessage) -> tuple[Sighting, ...]:
    """What the events in the inbox say of this message, or else the provider's history."""
    return _told(desk, message) or _channel(desk, message).sightings(message)


def _told(desk: Desk, message: OutboxMessage) -> tuple[Sighting, ...]:
    """What the events in the inbox say of this message."""
    with desk.begin() as conn:
        told = inbox.between(
            conn,
            provider=message.provider,
            account=message.sender,
            contact=message.to,
            since=message.begun_at,
        )
    return _channel(desk, message).recognise(message, told)


def _channel(desk: Desk, message: OutboxMessage) -> Channel:
    channel = desk.channels.get(message.provider)
    if channel is None:
        raise ProviderUnreadable(f"there is no key for {message.provider}")
    return channel


def compare_gate(desk: Desk) -> int:
    """Make Redis show exactly what the ledger has for today; returns the entries that differed."""
    drift = 0
    with desk.begin() as conn:
        now = desk.clock.now()
        quotas.rebuild(conn, desk.gate, now=now)
        everyone = phones.ids(conn)
    for phone_id in everyone:
        with desk.begin() as conn:
            leases.lock(conn, phone_id)  # no claim of this phone may be half done
            phone = phones.get(conn, phone_id)
            day = phone.tenant.calendar.day_of(now)
            drift += desk.gate.replace(phone_id, day, quotas.counted_leads(conn, phone_id, day))
    if drift:
        event("quota", "gate_corrected", level="warning", entries=drift)
    return drift


def close_quota_days(desk: Desk) -> dict[str, int]:
    """Close ended days in the ledger for every tenant, then open the new one in Redis."""
    closed = {}
    with desk.begin() as conn:
        now = desk.clock.now()
        for tenant_id in tenants.all_ids(conn):
            today = tenants.get(conn, tenant_id).calendar.day_of(now)
            closed[tenant_id] = quotas.close_days(conn, tenant_id=tenant_id, before=today, now=now)
    compare_gate(desk)
    return closed
