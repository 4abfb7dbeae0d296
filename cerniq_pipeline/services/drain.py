"""Drain the inbox: every stored event is handled, in order, or stands on the dead-letter list.

A run drains until nothing came for a while. It sleeps on the database's bell, so that a reply is
heard as soon as it is stored, without a run being started for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import IntEnum
from functools import partial
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from cerniq_pipeline.domain.conversations import Meaning, meaning_of
from cerniq_pipeline.domain.deliveries import as_shown
from cerniq_pipeline.domain.events import InboundEvent, Kind, WebhookReader
from cerniq_pipeline.errors import (
    ProviderUnreadable,
    Stopped,
    UnconfirmedEvent,
    UnknownReceiver,
    UnreadableWebhook,
    named,
)
from cerniq_pipeline.logs import caused_by
from cerniq_pipeline.logs import event as log_event
from cerniq_pipeline.services import phone_status
from cerniq_pipeline.services.crossing import insist
from cerniq_pipeline.services.dead_letters import bury_event
from cerniq_pipeline.services.hearing import (
    ABOUT_A_MESSAGE,
    ABOUT_A_PHONE,
    hear,
    hear_of_messages,
    hear_stop,
    tells_of_a_stop,
)
from cerniq_pipeline.services.reads import at_once
from cerniq_pipeline.services.reconcile import settle_told
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.services.work_shift import patiently, uninterrupted
from cerniq_pipeline.store import inbox, phones, run_leases
from cerniq_pipeline.store.database import Unavailable, is_locked_out
from cerniq_pipeline.store.dead_letters import EventCode
from cerniq_pipeline.store.inbox import Stored

LEASE = "inbox"
LEASE_TIME = timedelta(seconds=15)
T = TypeVar("T")

LINGER = timedelta(minutes=5)
"""A reply is answered by another within minutes; to wait for it is cheaper than another run."""

NAP = timedelta(seconds=5)
"""The longest sleep without a bell: how late an event is seen whose ring got lost."""

AT_ONCE = 200

GLANCE = timedelta(seconds=0.2)
"""How often what comes in is looked at while a provider is being asked."""

TRIES = 5
FIRST_PAUSE = timedelta(seconds=2)
SHOWN_WITHIN = timedelta(hours=6)
"""How late a history may show what an unsigned event told; later only the sweep revives it."""

LOCKED = "somebody keeps a row locked that it needs"

UNSHOWN_MOST = timedelta(hours=1)
SILENCE_LEAST = timedelta(seconds=5)
SILENCE_MOST = timedelta(minutes=2)


class Bell(Protocol):
    """Rings when an event was stored."""

    def wait(self, seconds: float) -> bool:
        """Sleep until it rings, at most so long; True when it rang."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


@dataclass
class Drained:
    """What a drain did, and why it ended."""

    outcomes: Counter[str] = field(default_factory=Counter)
    ended: str = ""


def drain(
    desk: Desk,
    readers: Mapping[str, WebhookReader],
    bell: Bell,
    *,
    who: str,
    longest: timedelta,
    linger: timedelta = LINGER,
) -> Drained:
    """Handle stored events until nothing came for a while, or the time is up."""
    drained = Drained()
    quiet_since = desk.clock.now()
    watch = _Watch(desk, who, until=quiet_since + longest)
    try:
        _await_turn(desk, watch, bell, patience=min(linger, LEASE_TIME))
        while patiently(desk, watch.hold_lease):
            with uninterrupted():
                handled = patiently(desk, lambda: handle_waiting(desk, readers, go_on=watch.go_on))
            drained.outcomes += handled
            now = desk.clock.now()
            if now >= watch.until:
                drained.ended = "its time was up"
                return drained
            if handled:
                quiet_since = now
                continue
            if now - quiet_since >= linger:
                drained.ended = "nothing came for a while"
                return drained
            bell.wait(min(NAP, linger).total_seconds())
        drained.ended = "another run drains the inbox"
        return drained
    except Stopped:
        drained.ended = "it was asked to stop"
        return drained
    finally:
        bell.close()
        with desk.begin() as conn:
            run_leases.give_back(conn, LEASE, holder=who)


def _await_turn(desk: Desk, watch: _Watch, bell: Bell, *, patience: timedelta) -> None:
    """Let a sensor's tick finish, which is soon over; a run that is at it stays for longer."""
    until = desk.clock.now() + patience
    while not patiently(desk, watch.hold_lease) and desk.clock.now() < until:
        bell.wait(1.0)


class _Watch:
    """Keeps the lease while there is work, and says when to stop."""

    def __init__(self, desk: Desk, who: str, *, until: datetime) -> None:
        self.until = until
        self._desk = desk
        self._who = who
        self._held_at: datetime | None = None

    def hold_lease(self) -> bool:
        """Take the lease or extend it; False when somebody else has it."""
        with self._desk.begin() as conn:
            now = self._held_at = self._desk.clock.now()
            until = now + LEASE_TIME
            return run_leases.take(conn, LEASE, holder=self._who, until=until, now=now)

    def go_on(self) -> bool:
        """Whether one more event may be handled now."""
        now = self._desk.clock.now()
        if now >= self.until:
            return False
        fresh = self._held_at is not None and now - self._held_at < LEASE_TIME / 3
        return fresh or self.hold_lease()


# ── One round ─────────────────────────────────────────────────────────────────────────────────


class Turn(IntEnum):
    """When an event is handled: the lower one first, and of the same the older one."""

    STOP = 0
    """It is, or may be, a request to stop, and needs no asking: at once."""
    SOON = 1
    """It needs no asking, or may be a request to stop."""
    ASKED_FOR = 2
    """Its provider must be asked about it, which may take long."""
    STATUS_ASKED_FOR = 3
    """The same, about a message of ours: nobody waits for that."""


@dataclass(frozen=True)
class _Opened:
    """A stored event and what it says."""

    stored: Stored
    events: tuple[InboundEvent, ...]
    to_confirm: tuple[InboundEvent, ...]
    """What must be asked for before anything follows from it."""
    turn: Turn

    @property
    def is_about_messages(self) -> bool:
        return bool(self.events) and all(one.kind in ABOUT_A_MESSAGE for one in self.events)


def handle_waiting(
    desk: Desk,
    readers: Mapping[str, WebhookReader],
    *,
    go_on: Callable[[], bool] = lambda: True,
) -> Counter[str]:
    """Handle the events whose turn it is, one batch; returns how many ended which way.

    Everything that nobody has looked at yet is looked at first: stops are honoured, and what became
    of messages is taken in for a whole batch at once. What is left has a transaction of its own
    each: one event that cannot be handled holds no other up. What a provider must be asked about
    comes last, and no more of it once that provider does not answer. While it is being asked, what
    comes in is looked at: a stop never waits behind somebody else's silence.
    """
    return _Round(desk, readers, go_on).handle()


class _Round:
    """One batch of the drain's work."""

    def __init__(
        self, desk: Desk, readers: Mapping[str, WebhookReader], go_on: Callable[[], bool]
    ) -> None:
        self._desk = desk
        self._readers = readers
        self._go_on = go_on
        self._outcomes: Counter[str] = Counter()
        self._told: list[InboundEvent] = []
        self._silent: dict[str, str] = {}
        self._at_hand: set[int] = set()
        """New ones that were looked at in this round, and need not be again."""
        self._left: set[Turn] = set()
        """The turns of those that came during the round and were left to wait."""

    def handle(self) -> Counter[str]:
        """Look at what is new, then handle what has its turn."""
        rest = self._look()
        self._at_hand.update(one.stored.id for one in rest)
        if self._go_on():
            rest += self._open_all(self._stored(AT_ONCE, new=False))
        rest.sort(key=lambda one: (one.turn, one.stored.received_at))
        for one in rest[:AT_ONCE]:
            self._look(leave_the_rest=True)
            if not self._go_on() or self._is_overtaken(one):
                break
            self._take(one)
        while self._told:
            told, self._told = self._told, []
            self._follow_up(told)
        return self._outcomes

    def _is_overtaken(self, one: _Opened) -> bool:
        """Whether something came meanwhile that goes before this one: the next round has both.

        Something is done in each round, or nobody would begin another at once.
        """
        return bool(self._outcomes) and any(turn < one.turn for turn in self._left)

    def _stored(self, limit: int, *, new: bool) -> list[Stored]:
        with self._desk.begin() as conn:
            now = self._desk.clock.now()
            return inbox.waiting(conn, limit=limit, new=new, besides=self._at_hand, now=now)

    def _look(self, *, leave_the_rest: bool = False) -> list[_Opened]:
        """Look at everything new, and honour the stops in it; returns what else there is.

        While more may be new, or the caller wants nothing but stops, the rest is left to wait.
        """
        with caused_by(None):  # it may stand within what is done for another event
            return self._look_around(leave_the_rest=leave_the_rest)

    def _look_around(self, *, leave_the_rest: bool) -> list[_Opened]:
        while self._go_on():
            batch = self._stored(AT_ONCE, new=True)
            opened = self._open_all(batch)
            statuses = [one for one in opened if one.is_about_messages and not one.to_confirm]
            if len(statuses) > 1 and _take_in_together(self._desk, statuses):
                self._outcomes["done"] += len(statuses)
                opened = [one for one in opened if one not in statuses]
            for one in opened:
                if one.turn is Turn.STOP:
                    self._at_hand.add(one.stored.id)
                    self._take(one)
            rest = [one for one in opened if one.turn is not Turn.STOP]
            is_last = len(batch) < AT_ONCE
            if is_last and not leave_the_rest:
                return rest
            with self._desk.begin() as conn:
                inbox.set_turns(conn, {one.stored.id: one.turn for one in rest})
            if leave_the_rest:
                self._left.update(one.turn for one in rest)
            if is_last:
                break
        return []

    def _open_all(self, batch: Sequence[Stored]) -> list[_Opened]:
        opened: list[_Opened] = []
        for stored in batch:
            with caused_by(stored.correlation_id):
                try:
                    one = _open(self._desk, self._readers, stored)
                    if one.to_confirm:
                        _heed(self._desk, one.events)  # a stop waits for nobody's answer
                    opened.append(one)
                except UnreadableWebhook as unreadable:
                    _bury(self._desk, stored, "UNREADABLE_WEBHOOK", str(unreadable))
                    self._outcomes["dead"] += 1
                except Unavailable as error:
                    if not is_locked_out(error):
                        raise
                    self._outcomes[_wait_for(self._desk, stored, LOCKED)] += 1
                except Exception as error:  # noqa: BLE001 - a fault in reading one stops no other
                    self._outcomes[_broken(self._desk, stored, error)] += 1
        self._told += [event for one in opened for event in one.events]
        return opened

    def _take(self, one: _Opened) -> None:
        provider = one.stored.provider
        if one.to_confirm and provider in self._silent:
            self._outcomes[_wait_for(self._desk, one.stored, self._silent[provider])] += 1
            return
        try:
            with caused_by(one.stored.correlation_id):
                self._outcomes[self._handle(one)] += 1
        except ProviderUnreadable as unreadable:
            self._silent[provider] = str(unreadable)
            self._outcomes[_wait_for(self._desk, one.stored, str(unreadable))] += 1

    def _handle(self, one: _Opened) -> str:
        """Handle one event; a failure is written down, and the event waits or is given up.

        Raises ProviderUnreadable when it must be asked for and cannot.
        """
        desk = self._desk
        try:
            confirmed = self._meanwhile(partial(_confirmed, desk, one)) if one.to_confirm else one
            return _insist(partial(_apply, desk, confirmed))
        except ProviderUnreadable:
            raise
        except Unavailable as error:
            if not is_locked_out(error):
                raise
            return _wait_for(desk, one.stored, LOCKED)
        except UnconfirmedEvent as unknown:
            return _wait_to_be_shown(desk, one, str(unknown))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the others
            _stop_at_least(desk, one)
            return _broken(desk, one.stored, error)

    def _meanwhile(self, ask: Callable[[], T]) -> T:
        """Ask a provider, which may take long, and look at what comes in until it has answered."""
        with ThreadPoolExecutor(1) as aside:
            asked = aside.submit(copy_context().run, ask)
            while not wait([asked], timeout=GLANCE.total_seconds()).done:
                self._look(leave_the_rest=True)
            return asked.result()

    def _follow_up(self, events: Sequence[InboundEvent]) -> None:
        """What these events give reason to ask the providers for."""
        desk = self._desk
        gone = next((event for event in events if event.kind in ABOUT_A_PHONE), None)
        if gone is not None:
            with caused_by(gone.correlation_id):
                # Anybody may say that a phone is gone: ask who must know.
                self._meanwhile(partial(phone_status.sync, desk))
        ids = {
            event.delivery.our_id: event.correlation_id
            for event in events
            if event.delivery and event.delivery.our_id is not None
        }
        people = {
            event.contact.phone: event.correlation_id
            for event in events
            if event.contact.phone and event.by_api
        }
        if ids or people:
            try:
                settle_told(desk, people, ids, who="inbox")
            except ProviderUnreadable as unreadable:  # the next look-up will try again
                log_event("inbox", "not_settled", level="warning", error=str(unreadable))


def _open(desk: Desk, readers: Mapping[str, WebhookReader], stored: Stored) -> _Opened:
    """What a stored event says, what of it must be asked for, and when its turn is.

    Messages and statuses that nobody signed are asked for; but a request to stop is honoured at
    once: better one stop too many.
    """
    reader = readers.get(stored.provider)
    if reader is None:
        raise UnreadableWebhook(f"nobody reads the events of {stored.provider}")
    events = tuple(
        replace(event, correlation_id=stored.correlation_id)
        for event in reader.read(stored.body, received_at=stored.received_at)
    )
    believed = stored.source == "sweep" or reader.signed or stored.provider not in desk.histories
    meanings = [meaning_of(event) for event in events]
    to_confirm = tuple(
        event
        for event, meaning in zip(events, meanings, strict=True)
        if not believed and (event.delivery is not None or _is_news(event, meaning))
    )
    return _Opened(stored, events, to_confirm, _turn_of(events, meanings, ask=bool(to_confirm)))


def _turn_of(events: Sequence[InboundEvent], meanings: Sequence[Meaning], *, ask: bool) -> Turn:
    may_be_a_stop = any(meaning.may_be_a_stop for meaning in meanings)
    if not ask:
        told = any(map(tells_of_a_stop, events))
        return Turn.STOP if may_be_a_stop or told else Turn.SOON
    if may_be_a_stop:
        return Turn.SOON
    is_status = all(event.delivery is not None for event in events)
    return Turn.STATUS_ASKED_FOR if is_status else Turn.ASKED_FOR


def _is_news(event: InboundEvent, meaning: Meaning) -> bool:
    return event.kind in _WAYS and not event.by_api and not meaning.stop


def _take_in_together(desk: Desk, statuses: Sequence[_Opened]) -> bool:
    """Take in many statuses in one transaction; False: one of them is in the way of the others."""
    events = [event for one in statuses for event in one.events]
    try:
        _heed(desk, events)
        with desk.begin() as conn:
            now = desk.clock.now()
            locked = set(inbox.lock(conn, [one.stored.id for one in statuses]))
            if len(locked) < len(statuses):
                return False
            result = hear_of_messages(conn, events, now=now)
            together = f"{result} (of {len(locked)} events together)"
            inbox.finish(conn, dict.fromkeys(sorted(locked), together), now=now)
    except Unavailable as error:
        if not is_locked_out(error):
            raise
        return False
    except Exception as error:  # noqa: BLE001 - each alone will show which one it is
        log_event("inbox", "batch_failed", level="warning", error=type(error).__name__)
        return False
    return True


def _stop_at_least(desk: Desk, one: _Opened) -> None:
    """Honour what an event asks to stop, though something else that follows from it fails.

    One body may tell of several people: each stop has a transaction of its own.
    """
    for event in one.events:
        if tells_of_a_stop(event):
            stop = partial(_stop, desk, event)
        elif event.kind not in ABOUT_A_MESSAGE and meaning_of(event).stop:
            stop = partial(_hear_only_stop, desk, event)
        else:
            continue
        try:
            _insist(stop)
        except Exception as error:
            if isinstance(error, Unavailable) and not is_locked_out(error):
                raise
            # It is tried again, and then shown to people.
            why = named(error)
            log_event("inbox", "stop_failed", level="error", event=one.stored.id, error=why)


def _insist(act: Callable[[], T]) -> T:
    return insist(act, worker="inbox", when_locked_out=False)


def _hear_only_stop(desk: Desk, event: InboundEvent) -> None:
    with desk.begin() as conn:
        hear(conn, event, secret=desk.secret, now=desk.clock.now(), only_stop=True)


def _heed(desk: Desk, events: Sequence[InboundEvent]) -> None:
    """Honour every stop that is told as a status, each in a transaction of its own.

    Before its event is marked: should we die in between, it is honoured once more.
    """
    for event in filter(tells_of_a_stop, events):
        with caused_by(event.correlation_id):
            _insist(partial(_stop, desk, event))


def _stop(desk: Desk, event: InboundEvent) -> None:
    heard = False
    while not heard:  # its message was recorded in the very moment
        with desk.begin() as conn:
            heard = hear_stop(conn, event, secret=desk.secret, now=desk.clock.now())


def _apply(desk: Desk, one: _Opened) -> str:
    """Everything that one event says; its words about messages first, as they lock otherwise.

    Should we die in between, they are said once more, which changes nothing.
    """
    statuses = [event for event in one.events if event.kind in ABOUT_A_MESSAGE]
    results: list[str] = []
    if statuses:
        _heed(desk, statuses)
        with desk.begin() as conn:
            results.append(hear_of_messages(conn, statuses, now=desk.clock.now()))
    with desk.begin() as conn:
        now = desk.clock.now()
        if not inbox.lock(conn, [one.stored.id]):
            return "handled elsewhere"
        unknown: list[UnknownReceiver] = []
        for event in one.events:
            if event in statuses:
                continue
            try:
                results.append(hear(conn, event, secret=desk.secret, now=now))
            except UnknownReceiver as nobodys:
                unknown.append(nobodys)
        if unknown:
            _lay_aside(conn, one.stored, unknown[0], now=now)
        else:
            inbox.finish(conn, {one.stored.id: "; ".join(results) or "it says nothing"}, now=now)
    log_event(
        "inbox",
        "event_handled",
        event=one.stored.id,
        provider=one.stored.provider,
        result=results,
        duration_ms=round((now - one.stored.received_at).total_seconds() * 1000),
    )
    return "dead" if unknown else "done"


# ── Whom to believe ───────────────────────────────────────────────────────────────────────────

_WAYS = {Kind.MESSAGE_RECEIVED: False, Kind.MESSAGE_SENT_ELSEWHERE: True, Kind.STATUS: True}
"""Whether the message that such an event is about goes from us to the person."""


def _confirmed(desk: Desk, one: _Opened) -> _Opened:
    """The same event with what its provider says itself of every message that is asked for.

    Raises UnconfirmedEvent when it does not know a message, or not yet that it came so far.
    """
    asked = {id(event): _as_shown(desk, one, event) for event in one.to_confirm}
    return replace(one, events=tuple(asked.get(id(event), event) for event in one.events))


def _as_shown(desk: Desk, one: _Opened, event: InboundEvent) -> InboundEvent:
    provider = one.stored.provider
    shown = desk.histories[provider].shown(
        event.external_id or "",
        chat_id=event.chat_id,
        turn=at_once(desk, provider, sweeping=one.is_about_messages),
    )
    if shown is None or shown.from_us != _WAYS[event.kind]:
        raise UnconfirmedEvent(f"{provider} does not know the message it tells of")
    if event.delivery is None:
        return event
    own = as_shown(event.delivery, shown.status)
    if own is None:
        raise UnconfirmedEvent(f"{provider} says that this message is {shown.status}")
    return replace(event, delivery=own)


# ── What could not be handled ─────────────────────────────────────────────────────────────────


def _broken(desk: Desk, stored: Stored, error: Exception) -> str:
    """Note a fault of ours; the event is tried again, for the next release may know better."""
    log_event("inbox", "event_failed", level="error", event=stored.id, error=named(error))
    return _failed(desk, stored, "UNHANDLED_EVENT", named(error))


def _failed(desk: Desk, stored: Stored, code: EventCode, error: str) -> str:
    if stored.tries + 1 >= TRIES:
        _bury(desk, stored, code, error)
        return "dead"
    with desk.begin() as conn:
        until = desk.clock.now() + FIRST_PAUSE * 4**stored.tries
        _put_off(conn, stored, error=f"{code}: {error}", until=until, tried=True)
    return "put off"


def _wait_to_be_shown(desk: Desk, one: _Opened, why: str) -> str:
    """Let an event wait that its provider does not know yet, for hours; then give it up.

    Histories lag. The longer it has waited the rarer it is asked for, and it costs no try: that it
    came before its message is no fault. Should the sweep find the message, it is heard then, also
    when it was given up.
    """
    stored, now = one.stored, desk.clock.now()
    age = now - stored.received_at
    if age < SHOWN_WITHIN:
        with desk.begin() as conn:
            until = now + min(max(3 * age, FIRST_PAUSE), UNSHOWN_MOST)
            _put_off(conn, stored, error=f"UNCONFIRMED_SENDER: {why}", until=until)
        return "put off"
    if one.is_about_messages:
        return _pass_by(desk, stored, why)
    _bury(desk, stored, "UNCONFIRMED_SENDER", why)
    return "dead"


def _pass_by(desk: Desk, stored: Stored, why: str) -> str:
    """Let a status be that its provider does not confirm: nothing follows from it."""
    with desk.begin() as conn:
        inbox.finish(conn, {stored.id: f"not confirmed: {why}"}, now=desk.clock.now())
    log_event("inbox", "status_not_confirmed", level="warning", event=stored.id, error=why)
    return "done"


def _wait_for(desk: Desk, stored: Stored, error: str) -> str:
    """Let an event wait until its provider can be asked, or a row is free; it costs no try.

    The longer it has waited the rarer it is asked for.
    """
    with desk.begin() as conn:
        now = desk.clock.now()
        pause = min(max((now - stored.received_at) / 4, SILENCE_LEAST), SILENCE_MOST)
        _put_off(conn, stored, error=error, until=now + pause)
    return "put off"


def _put_off(
    conn: Connection, stored: Stored, *, error: str, until: datetime, tried: bool = False
) -> None:
    inbox.put_off(conn, stored.id, error=error, until=until, tried=tried, source=stored.source)


def _bury(desk: Desk, stored: Stored, code: EventCode, error: str) -> None:
    with desk.begin() as conn:
        now = desk.clock.now()
        said = f"{code}: {error}"
        if inbox.give_up(conn, stored.id, error=said, now=now, source=stored.source):
            ours = phones.by_number(conn, stored.account) if stored.account else None
            bury_event(
                conn,
                event_id=stored.id,
                tenant_id=ours[0] if ours else None,
                code=code,
                detail=error,
                now=now,
            )
    log_event("inbox", "event_dead", level="error", event=stored.id, provider=stored.provider)


def _lay_aside(
    conn: Connection, stored: Stored, unknown: UnknownReceiver, *, now: datetime
) -> None:
    """Keep an event until somebody says whose it is; what else it told has been heard.

    It stays with the installation: no tenant sees it.
    """
    code: EventCode = "UNKNOWN_RECEIVER"
    said = f"{code}: {unknown}"
    if not inbox.give_up(conn, stored.id, error=said, now=now, source=stored.source):
        return  # the sweep has confirmed it meanwhile: it is heard once more, in those words
    bury_event(
        conn,
        event_id=stored.id,
        tenant_id=None,
        code=code,
        detail=str(unknown),
        receiver=unknown.receiver,
        now=now,
    )
