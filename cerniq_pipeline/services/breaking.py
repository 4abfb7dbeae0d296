"""Keep the circuit breakers: count troubles, probe with a harmless read, close on success."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from cerniq_pipeline.domain.breakers import (
    ASKED_NOBODY,
    TROUBLE,
    Breaker,
    Scope,
    after_probe,
    after_trouble,
)
from cerniq_pipeline.domain.outbox import Line, OutboxMessage, Receipt
from cerniq_pipeline.errors import ProviderUnreadable, ReadsUsedUp, SendFailed
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.reads import at_once
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import alerts, breakers, phones


def note(
    conn: Connection, message: OutboxMessage, outcome: Receipt | SendFailed, *, now: datetime
) -> datetime | None:
    """Count what a call taught us; returns until when a breaker now holds this phone, if one does.

    Everybody locks breakers before the phone's row. Writes nothing while everything is in order.
    """
    code = outcome.code if isinstance(outcome, SendFailed) else None
    if code in ASKED_NOBODY:
        return None
    keys: tuple[tuple[Scope, str], ...] = (
        ("provider", message.provider),
        ("phone", message.phone_id),
    )
    held = []
    for scope, key in keys:
        if code in TROUBLE[scope]:
            held.append(_count(conn, message.tenant_id, scope, key, code, now=now))
    if not held:
        _heal(conn, message, now=now)
    return max((until for until in held if until), default=None)


def _count(
    conn: Connection, tenant_id: str, scope: Scope, key: str, code: str, *, now: datetime
) -> datetime | None:
    before = breakers.lock(conn, scope, key, now=now)
    breaker = after_trouble(before, code, now=now)
    breakers.save(conn, breaker, now=now)
    if breaker.state == "open" and before.state == "closed":
        detail = f"{breaker.failures} troubles in a row, the last was {code}; nothing is sent"
        alerts.open_once(
            conn, tenant_id=tenant_id, kind=f"{scope}_trouble", subject=key, detail=detail, now=now
        )
        event("breaker", "breaker_opened", level="warning", scope=scope, key=key, code=code)
    return breaker.holds_until(now)


def _heal(conn: Connection, message: OutboxMessage, *, now: datetime) -> None:
    if breakers.heal(conn, provider=message.provider, phone_id=message.phone_id, now=now):
        alerts.close(conn, kinds=("provider_trouble",), subjects=[message.provider], now=now)
        alerts.close(conn, kinds=("phone_trouble",), subjects=[message.phone_id], now=now)


def probe(desk: Desk, phone_id: str) -> bool:
    """Ask the provider something harmless when an open breaker's probe is due; True: it answered.

    One process gets the turn. A send as a probe would leave one more message in doubt each time.
    """
    with desk.begin() as conn:
        now = desk.clock.now()
        phone = phones.get(conn, phone_id)
        due = [one for one in phone.facts.breakers if _probe_is_due(one, now)]
        if any(one.scope == "provider" and one.state == "open" for one in phone.facts.breakers):
            # Whether a phone is at fault can be asked when its provider answers again.
            due = [one for one in due if one.scope == "provider"]
        mine = [one for one in due if breakers.take_turn(conn, one, now=now)]
    if not mine:
        return False
    line = Line(phone.id, phone.number, phone.account_id)
    turn = at_once(desk, phone.provider)
    try:
        links = desk.channels[phone.provider].connections([line], turn=turn)
        answered = links[phone.id].connected is not None
    except ReadsUsedUp:
        return False  # nobody was asked: that is no answer, and the next probe has its turn
    except ProviderUnreadable:
        answered = False
    with desk.begin() as conn:
        now = desk.clock.now()
        for one in mine:
            breaker = breakers.lock(conn, one.scope, one.key, now=now)
            breakers.save(conn, after_probe(breaker, answered=answered, now=now), now=now)
    event("breaker", "breaker_probed", phone=phone_id, answered=answered)
    return answered


def _probe_is_due(breaker: Breaker, now: datetime) -> bool:
    return breaker.state == "open" and breaker.probe_at is not None and breaker.probe_at <= now
