"""A shift: one process works through one phone's due messages until there is a reason to stop."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from cerniq_pipeline.domain.deliveries import OPTED_OUT
from cerniq_pipeline.domain.holds import Hold
from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt, State
from cerniq_pipeline.errors import LeaseLost, SendFailed, Stopped, named
from cerniq_pipeline.logs import event
from cerniq_pipeline.services import breaking, claiming, leasing, recording, sending
from cerniq_pipeline.services.leasing import Holder, Lease
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store.database import Unavailable

T = TypeVar("T")

DATABASE_PATIENCE = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between two tries while Postgres restarts; together well within the lease."""

LINGER = timedelta(minutes=3)
"""A wait up to this long is cheaper than ending the run and starting another."""

NAP = timedelta(seconds=15)
"""The longest uninterrupted wait: well within the lease, and how soon a kill switch is noticed
while waiting. Between two sends the claim itself reads the switches."""


@dataclass
class Shift:
    """What a shift did, and why it ended."""

    phone_id: str
    outcomes: Counter[str] = field(default_factory=Counter)
    ended: str = ""


def work_shift(desk: Desk, phone_id: str, me: Holder, *, longest: timedelta) -> Shift:
    """Send this phone's due messages one at a time; returns what was done and why it stopped."""
    shift = Shift(phone_id)
    started = desk.clock.now()
    lease = leasing.acquire(desk.begin, phone_id, me, now=started)
    if lease is None:
        shift.ended = "another shift holds this phone"
        return shift
    event("shift", "shift_opened", phone=phone_id, run=me.name)
    try:
        _work(desk, lease, shift, until=started + longest)
    except LeaseLost as lost:
        shift.ended = f"replaced: {lost}"
        event("shift", "shift_replaced", level="warning", phone=phone_id, run=me.name)
        # Nothing of ours is in flight. When nobody has taken the phone yet, the next one need not
        # wait; when somebody has, this changes nothing.
        leasing.give_back(desk.begin, lease)
        return shift
    except Stopped:
        shift.ended = "it was asked to stop"
    leasing.give_back(desk.begin, lease)
    event(
        "shift",
        "shift_closed",
        phone=phone_id,
        run=me.name,
        reason=shift.ended,
        outcomes=dict(shift.outcomes),
    )
    return shift


def _work(desk: Desk, lease: Lease, shift: Shift, *, until: datetime) -> None:
    while True:
        with uninterrupted():
            claimed = patiently(desk, lambda: claiming.claim(desk, lease))
            if isinstance(claimed, OutboxMessage):
                state = _send(desk, claimed, lease.holder.name)
                shift.outcomes[state.value] += 1
        now = desk.clock.now()
        if now >= until:
            shift.ended = "its time was up"
            return
        if isinstance(claimed, OutboxMessage):
            continue
        wake = claimed.until if isinstance(claimed, Hold) else claimed.next_due_at
        if isinstance(claimed, Hold) and claimed.rule == "breaker_open" and wake and wake <= now:
            patiently(desk, lambda: breaking.probe(desk, lease.phone_id))
            continue
        if wake is None or wake - now > LINGER:
            shift.ended = _why(claimed, wake)
            return
        desk.clock.sleep(min(wake - now, NAP).total_seconds())
        patiently(desk, lambda: leasing.confirm(desk.begin, lease, now=desk.clock.now()))


def patiently(desk: Desk, act: Callable[[], T]) -> T:
    """Try again while the database restarts; within the lease, then give up and let it be found."""
    for pause in DATABASE_PATIENCE:
        try:
            return act()
        except Unavailable as error:
            event("shift", "database_unavailable", level="warning", error=type(error).__name__)
            desk.clock.sleep(pause)
    return act()


def _send(desk: Desk, message: OutboxMessage, who: str) -> State:
    outcome = sending.call(desk, message)
    if not isinstance(outcome, Receipt) and outcome.code == OPTED_OUT:
        # Before the record: should we die in between, the message is looked up, and the stop kept.
        patiently(desk, partial(_opt_out, desk, message, outcome.why))
    state = _record(desk, message, outcome, who)
    if isinstance(outcome, Receipt):
        _check_sender(desk, message, outcome)
    failed = isinstance(outcome, Exception)
    event(
        "send",
        f"message_{state}",
        level="warning" if failed else "info",
        message=message.id,
        lead=str(message.lead_id),
        phone=message.phone_id,
        channel=message.channel,
        kind=message.kind,
        duration_ms=round((desk.clock.now() - message.begun_at).total_seconds() * 1000),
        error={"code": outcome.code, "message": outcome.why} if failed else None,
    )
    return state


def _record(desk: Desk, message: OutboxMessage, outcome: Receipt | SendFailed, who: str) -> State:
    """Write the outcome down; if that cannot be done, this message is in doubt and others go on."""
    try:
        return patiently(desk, lambda: recording.record(desk, message, outcome, who=who))
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - what is wrong with this lead must not stop the phone
        why = named(error)
        event("send", "not_recorded", level="error", message=message.id, error=why)
        return patiently(
            desk, lambda: recording.leave_in_doubt(desk, message, outcome, why, who=who)
        )


def _check_sender(desk: Desk, message: OutboxMessage, receipt: Receipt) -> None:
    patiently(desk, lambda: recording.check_sender(desk, message, receipt))


def _opt_out(desk: Desk, message: OutboxMessage, why: str) -> None:
    """Honour a "stop" that the provider heard before us."""
    opt_out(
        desk.begin,
        tenant_id=message.tenant_id,
        lead_id=message.lead_id,
        secret=desk.secret,
        reason=why,
        now=desk.clock.now(),
        told_of=message.to,
    )


def _why(claimed: Hold | claiming.Nothing, wake: datetime | None) -> str:
    if isinstance(claimed, Hold):
        return f"{claimed.rule}: {claimed.detail}"
    return f"nothing is due before {wake:%F %R} UTC" if wake else "nothing is due"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a message in flight be finished and recorded before an interrupt is heard.

    Only the main thread may set handlers; elsewhere there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = {
        name: signal.signal(name, lambda number, _: heard.append(number))
        for name in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
    for number in heard[:1]:
        signal.raise_signal(number)
