"""Every order in which some events may come, and the state that each of them ends in.

The orders are walked as a tree: what has happened stays for all that may follow it, and is taken
back by a savepoint. So 720 orders of six events cost 1956 events and not 4320.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, text

from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt
from cerniq_pipeline.services import recording
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline_tests.builders import ManualClock
from cerniq_pipeline_tests.faults.said import SIGNED, THEIRS, a_message, a_status, chat_with, keep

UID = "11111111-1111-4111-8111-111111111111"
"""The provider's id of the message of ours that all is about."""

CHAT = str(chat_with(THEIRS))
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

Act = Callable[[Desk], None]
Events = Mapping[str, Act]
State = dict[str, list[dict[str, Any]]]


def an_answer(message: OutboxMessage, at: datetime) -> Events:
    """Our own record of a send, the echo, delivered, read, a question, and a stop at last."""
    return {
        "recorded": _record(message),
        "echo": _told(a_message(message.body, uid=UID, at=at, from_us=True)),
        "delivered": _told(a_status("delivered", UID, at=at + 1 * MINUTE)),
        "read": _told(a_status("read", UID, at=at + 2 * MINUTE)),
        "reply": _told(a_message("Cât costă?", uid="r-1", at=at + 3 * MINUTE)),
        "stop": _told(a_message("STOP", uid="r-2", at=at + 4 * MINUTE)),
    }


def a_stop_first(message: OutboxMessage, at: datetime) -> Events:
    """The same with a person who says stop, and then asks something after all."""
    return {
        **an_answer(message, at),
        "stop": _told(a_message("STOP", uid="r-1", at=at + 3 * MINUTE)),
        "reply": _told(a_message("Cât costă?", uid="r-2", at=at + 4 * MINUTE)),
    }


def a_failure(message: OutboxMessage, at: datetime) -> Events:
    """A send that is said to have failed and arrived all the same, answers, and one of us."""
    failure = {"code": 131026, "title": "Message undeliverable"}
    return {
        "recorded": _record(message),
        "failed": _told(a_status("failed", UID, at=at + 1 * MINUTE, failure=failure)),
        "delivered": _told(a_status("delivered", UID, at=at + 2 * MINUTE)),
        "reply": _told(a_message("Cât costă?", uid="r-1", at=at + 3 * MINUTE)),
        "typed": _told(a_message("Vă sun eu.", uid="h-1", at=at + 4 * MINUTE, from_us=True)),
        "second reply": _told(a_message("Trimiteți un contract", uid="r-2", at=at + 5 * MINUTE)),
    }


SETS = {"an answer": an_answer, "a stop first": a_stop_first, "a failure": a_failure}


def _record(message: OutboxMessage) -> Act:
    def act(desk: Desk) -> None:
        recording.record(desk, message, Receipt(UID, CHAT), who="orders")

    return act


def _told(body: bytes) -> Act:
    def act(desk: Desk) -> None:
        with desk.begin() as conn:
            assert keep(conn, [body], now=desk.clock.now()) == 1
        outcomes = handle_waiting(desk, SIGNED)
        assert outcomes == Counter(done=1), outcomes

    return act


# ── Walking ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Ending:
    """An order, and the state that it ended in."""

    order: tuple[str, ...]
    state: State


def endings(
    engine: Engine, desk: Desk, events: Events, *, start: datetime, firsts: Sequence[str] = ()
) -> Iterator[Ending]:
    """How each order ends; only those that begin with one of `firsts`, when some are named.

    Nothing of it stays in the database. The clock starts when all of it has happened, and goes on
    by a second with each event.
    """
    for first in firsts or list(events):
        # A transaction for each: what was taken back is in the way of the rest until it has ended.
        with engine.connect() as conn, conn.begin() as whole:
            clock = ManualClock(start)
            inside = replace(desk, begin=partial(_within, conn), clock=clock)
            yield from _Walk(conn, inside, clock, events, start).on_from((), [first])
            whole.rollback()


@contextmanager
def _within(conn: Connection) -> Iterator[Connection]:
    """What takes itself for a transaction, and is a part of ours."""
    with conn.begin_nested():
        yield conn


@dataclass(frozen=True)
class _Walk:
    conn: Connection
    desk: Desk
    clock: ManualClock
    events: Events
    start: datetime

    def on_from(self, order: tuple[str, ...], following: Sequence[str]) -> Iterator[Ending]:
        """Every ending of what has begun in this order."""
        if not following:
            yield Ending(order, state_of(self.conn, handled=(self.start, self.clock.now())))
        for name in following:
            with self.conn.begin_nested() as step:
                self.clock.set(self.start + len(order) * SECOND)
                self.events[name](self.desk)
                left = [other for other in self.events if other not in (*order, name)]
                yield from self.on_from((*order, name), left)
                step.rollback()


# ── Comparing ─────────────────────────────────────────────────────────────────────────────────

STATE = {
    # A step that was planned and taken back unsent is a trace of the order, like the audit: when
    # the reply is quicker than our own record, nobody plans it in the first place.
    "outbox_messages": "WHERE state <> 'cancelled' OR attempts > 0",
    "gold_communication_log": "",
    "gold_lead_journey": "",
    "whatsapp_conversations": "",
    "suppressions": "",
    # A letter that was answered is a trace too.
    "dead_letters": "WHERE resolved_at IS NULL",
    "early_deliveries": "",
    "quota_ledger": "",
    "send_attempts": "",
    "wa_phone_numbers": "",
    "alerts": "WHERE closed_at IS NULL",
}
"""Everything that decides what happens next; audits (`stage_changes`, `outbox_changes`) tell how it
came to be, and of course in the order in which it did."""

LEFT_OUT = {
    "id",
    "conversation_id",
    "created_at",
    "updated_at",
    # Where a lead stood before it came to where it stands: part of the way, not of the state.
    "previous_stage",
    # Which of several events that say the same was heard first.
    "correlation_id",
    "human_review_correlation_id",
    # A while after our own record, whenever that was.
    "next_send_at",
}


def state_of(conn: Connection, *, handled: tuple[datetime, datetime]) -> State:
    """All that stands in the database, but for ids and traces.

    A moment within `handled` is when somebody got to it, which the order decides: only that it is
    such a moment is kept.
    """
    return {
        table: sorted(
            (
                {**_values(row, handled)}
                for row in conn.execute(text(f"SELECT * FROM {table} {some}")).mappings()
            ),
            key=repr,
        )
        for table, some in STATE.items()
    }


def _values(row: RowMapping, handled: tuple[datetime, datetime]) -> dict[str, Any]:
    first, last = handled
    return {
        name: "when it was handled"
        if isinstance(value, datetime) and first <= value <= last
        else value
        for name, value in row.items()
        if name not in LEFT_OUT
    }


def differences(one: State, other: State) -> list[str]:
    """Where two states differ, field by field."""
    found = []
    for table in one:
        if len(one[table]) != len(other[table]):
            found.append(f"{table}: {one[table]} and {other[table]}")
            continue
        for here, there in zip(one[table], other[table], strict=True):
            found += [
                f"{table}.{name}: {here[name]!r} and {there[name]!r}"
                for name in here
                if here[name] != there[name]
            ]
    return found
