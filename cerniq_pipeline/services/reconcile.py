"""Settle what nobody is sure of: look unconfirmed sends up, and keep Redis equal to the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from cerniq_pipeline.domain.alerts import SENDS_PARKED, SENDS_UNCONFIRMED
from cerniq_pipeline.domain.history import History
from cerniq_pipeline.domain.outbox import Channel, OutboxMessage, Receipt, Sighting, State
from cerniq_pipeline.errors import ProviderUnreadable, ReadsUsedUp
from cerniq_pipeline.logs import caused_by, event
from cerniq_pipeline.services.crossing import insist
from cerniq_pipeline.services.reads import at_once
from cerniq_pipeline.services.recording import hear_early, settle_sent
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import alerts, inbox, leases, outbox, phones, quotas, tenants
from cerniq_pipeline.store.database import Begin, Unavailable

LOOK_AGAIN = timedelta(seconds=20)

LOOKED_FOR = timedelta(hours=6)
"""What could not be looked up for so long is for a person to decide."""

UNDECIDED = frozenset({"waiting", "unreadable", "failed", "put off"})
"""The outcomes after which a send is looked up again."""

OLD = timedelta(hours=1)
"""A send that is in doubt for longer is an alert."""


def settle_unconfirmed(desk: Desk, *, settle_time: timedelta, who: str) -> Counter[str]:
    """Look unconfirmed sends up: found → sent; absent or ambiguous → parked for a person.

    "Found" counts at any time, "absent" only after the settle time, and never leads to a resend:
    a history that lags makes "absent" a lie. Each is looked up on its own: one that cannot be
    costs no other its turn, and is parked when that lasts.
    """
    counts: Counter[str] = Counter()
    with desk.begin() as conn:
        waiting = outbox.unconfirmed(conn)
    used_up: set[str] = set()
    for message in waiting:
        ask = message.provider not in used_up
        outcome = _settle(desk, message, ask=ask, settle_time=settle_time, who=who)
        if outcome == "put off":
            used_up.add(message.provider)
        counts[outcome] += 1
    return counts


def settle_told(
    desk: Desk, people: Mapping[str, str | None], ids: Mapping[int, str | None], *, who: str
) -> None:
    """Settle the unconfirmed sends to these people, and with these ids, of which an event told.

    Each comes with the correlation id of the event that told of it.
    """
    with desk.begin() as conn:
        waiting = outbox.unconfirmed(conn, to=people, ids=ids)
    for message in waiting:
        with caused_by(ids.get(message.id) or people.get(message.to)):
            _settle(desk, message, ask=False, settle_time=timedelta.max, who=who)


def settle_until_quiet(
    desk: Desk, *, settle_time: timedelta, longest: timedelta, who: str
) -> Counter[str]:
    """Look up now and then every few seconds, until nothing is unconfirmed or the time is up."""
    total: Counter[str] = Counter()
    until = desk.clock.now() + longest
    while True:
        counts = settle_unconfirmed(desk, settle_time=settle_time, who=who)
        total += Counter({name: counts[name] for name in ("sent", "parked")})
        if not counts or desk.clock.now() >= until:
            return total
        if counts.keys() & UNDECIDED:
            desk.clock.sleep(LOOK_AGAIN.total_seconds())


def tell_of_doubts(begin: Begin, *, now: datetime) -> None:
    """Keep an alert open per tenant with sends that have been unconfirmed, or parked, for long."""
    with begin() as conn:
        for state, kind in ((State.UNCONFIRMED, SENDS_UNCONFIRMED), (State.PARKED, SENDS_PARKED)):
            old = outbox.long_in_doubt(conn, state, before=now - OLD)
            told = {
                tenant_id: f"{count} sends are {state} for more than an hour"
                for tenant_id, count in old.items()
            }
            alerts.keep_open(conn, told, kind=kind, of_tenants=True, now=now)


def _settle(
    desk: Desk, message: OutboxMessage, *, ask: bool, settle_time: timedelta, who: str
) -> str:
    """Settle one send if that can be done now; whatever is wrong with it costs it alone."""
    try:
        found = _look(desk, message, ask=ask)
        if found is None:
            return "put off"
        return _decide(desk, message, found, settle_time=settle_time, who=who)
    except Unavailable:
        raise
    except ReadsUsedUp:
        return "put off"
    except ProviderUnreadable as unreadable:
        outcome, why = "unreadable", str(unreadable)
    except Exception as error:  # noqa: BLE001 - whatever it is, the others must not wait for it
        outcome, why = "failed", type(error).__name__  # its words may hold what a person wrote
    event("reconcile", "look_up_failed", level="warning", message=message.id, error=why)
    age = desk.clock.now() - message.begun_at
    if age < max(settle_time, LOOKED_FOR):
        return outcome
    return _park(desk, message, f"it could not be looked up for {LOOKED_FOR}: {why}", who=who)


def _decide(
    desk: Desk,
    message: OutboxMessage,
    found: tuple[Sighting, ...],
    *,
    settle_time: timedelta,
    who: str,
) -> str:
    if len(found) == 1:
        return insist(lambda: _record(desk, message, found[0], who=who), worker="reconcile")
    if desk.clock.now() - message.begun_at < settle_time:
        return "waiting"
    why = f"{len(found)} messages like it in the history after {settle_time}"
    return _park(desk, message, why, who=who)


def _record(desk: Desk, message: OutboxMessage, seen: Sighting, *, who: str) -> str:
    with desk.begin() as conn:
        if outbox.lock_state(conn, message) is not State.UNCONFIRMED:
            return "settled elsewhere"
        now, receipt = desk.clock.now(), Receipt(seen.external_id, seen.chat_id)
        settle_sent(
            conn,
            message,
            receipt,
            current=State.UNCONFIRMED,
            sent_at=seen.sent_at,
            now=now,
            who=who,
        )
        hear_early(desk, conn, message, receipt, now=now)
    event("reconcile", "message_sent", message=message.id, phone=message.phone_id)
    return "sent"


def _park(desk: Desk, message: OutboxMessage, why: str, *, who: str) -> str:
    with desk.begin() as conn:
        if outbox.lock_state(conn, message) is not State.UNCONFIRMED:
            return "settled elsewhere"
        outbox.move(
            conn,
            message.id,
            current=State.UNCONFIRMED,
            target=State.PARKED,
            why=why,
            who=who,
            now=desk.clock.now(),
        )
    event("reconcile", "message_parked", message=message.id, phone=message.phone_id)
    return "parked"


def _look(desk: Desk, message: OutboxMessage, *, ask: bool) -> tuple[Sighting, ...] | None:
    """What the events in the inbox say of this message, or else the provider's history.

    None when they say nothing and the provider is not to be asked.
    """
    if found := _told(desk, message):
        return found
    if not ask:
        return None
    with desk.begin() as conn:
        # Before it is asked: should the answer be the end of us, the next one begins with others.
        outbox.note_look_up(conn, message.id, now=desk.clock.now())
    return _channel(desk, message).sightings(message, turn=at_once(desk, message.provider))


def _told(desk: Desk, message: OutboxMessage) -> tuple[Sighting, ...]:
    """What the events in the inbox say of this message, and its provider too where it can be asked.

    Anybody who knows a token may have written an event; the next step would follow from it.
    """
    with desk.begin() as conn:
        told = inbox.about(
            conn, provider=message.provider, contact=message.to, since=message.begun_at
        )
    found = _channel(desk, message).recognise(message, told)
    history = desk.histories.get(message.provider)
    return (
        found
        if history is None
        else tuple(one for one in found if _shown(desk, history, one, message))
    )


def _shown(desk: Desk, history: History, seen: Sighting, message: OutboxMessage) -> bool:
    turn = at_once(desk, message.provider)
    shown = history.shown(seen.external_id, chat_id=seen.chat_id, turn=turn)
    return shown is not None and shown.from_us and shown.text.strip() == message.body.strip()


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
    """Close ended days in the ledger for every tenant, then open the new one in Redis.

    Where a tenant's row cannot be read nobody knows which days have ended: they wait.
    """
    closed = {}
    with desk.begin() as conn:
        now = desk.clock.now()
        for tenant in tenants.everyone(conn):
            if tenant.fault is None:
                today = tenant.calendar.day_of(now)
                closed[tenant.id] = quotas.close_days(
                    conn, tenant_id=tenant.id, before=today, now=now
                )
    compare_gate(desk)
    return closed
