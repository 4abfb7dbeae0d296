"""Row 40: a provider tells of a stop as of a status, in whatever moment, and its hearer may die."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from cerniq_pipeline.domain.outbox import OutboxMessage
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.store.database import Begin, connect
from cerniq_pipeline_tests.builders import dispatch
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.copies import (
    TWO_DAYS,
    Person,
    Walk,
    _begun,
    _decide,
    _judge,
    _make_persons,
)
from cerniq_pipeline_tests.faults.matrix.listening import hear_all
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage
from cerniq_pipeline_tests.faults.said import SIGNED, a_status, keep, twilio_status
from cerniq_pipeline_tests.faults.shift_process import Servers

PHONES = 3
STOPPED = {"code": 131050, "title": "User has stopped marketing messages"}
HIDDEN = "123456@lid"
MOST_TRANSACTIONS = 4
"""One of these is the last one of a hearer that dies."""


@dataclass(frozen=True)
class HearOrder:
    """Hears what waits, in a process that dies in this transaction, before or after its commit."""

    nth: int
    after_commit: bool

    def carry_out(self, servers: Servers, go: Callable[[], object]) -> dict[str, Any]:
        """Hear, and live to tell only when there was less to do than that."""
        desk = servers.desk(connect(servers.database_url))
        go()
        dying = _Dying(desk.begin, self.nth, after_commit=self.after_commit)
        return {"heard": dict(handle_waiting(replace(desk, begin=dying.begin), SIGNED))}


class _Dying:
    """Transactions of which the n-th is the last."""

    def __init__(self, begin: Begin, nth: int, *, after_commit: bool) -> None:
        self._begin = begin
        self._left = nth
        self._after_commit = after_commit

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        self._left -= 1
        with self._begin() as conn:
            yield conn
            if self._left == 0 and not self._after_commit:
                os.kill(os.getpid(), signal.SIGKILL)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class ToldWalk(Walk):
    """A walk on which providers tell of people who asked them to stop."""

    silent: list[Person] = field(default_factory=list)
    by_id_alone: list[Person] = field(default_factory=list)
    """Nobody can know whose stop it is before the message is recorded."""
    deaths: int = 0
    told_at_call: bool = False
    """Whether somebody was told of between call and record, and heard by one that lives on."""

    def walk(self) -> None:
        """Go on until everybody has been told of: while their messages are in all states."""
        while self.silent:
            for _ in range(self.dice.randint(2, 9)):
                self.beat()
            may_tell = self.told_at_call or not self.stage.crew.busy()
            if self.silent and may_tell and self.dice.random() < 1 / 4:
                self._tell(self.dice.choice(self.silent))
        self.come_to_rest()

    def called(self, message: OutboxMessage) -> None:
        """Between call and record: here an id that nobody knows yet may be told of."""
        person = next((one for one in self.silent if message.lead_id in one.lead_ids), None)
        if person is not None and (not self.told_at_call or self.dice.random() < 2 / 3):
            self._tell(person, about=message)

    def _tell(self, person: Person, *, about: OutboxMessage | None = None) -> None:
        stage = self.stage
        self.silent.remove(person)
        number = about.to if about else self._number_of(person)
        uid = next(
            (
                str(line["message_uid"])
                for line in stage.sandbox.accepted()
                if about and (line["recipient"], line["text"]) == (about.to, about.body)
            ),
            None,
        )
        first = uid is not None and not self.told_at_call
        if uid and (first or self.dice.random() < 2 / 3):
            self.by_id_alone.append(person)
            theirs, provider = HIDDEN, "timelinesai"
        else:
            theirs, provider = number, self.dice.choice(["timelinesai", "twilio"])
            person.begun = _begun(stage, person)
        ours = self.dice.choice(stage.senders())
        body = (
            twilio_status("21610", theirs=theirs, sid=uid)
            if provider == "twilio"
            else a_status(
                "failed", uid or "", at=stage.now(), ours=ours, theirs=theirs, failure=STOPPED
            )
        )
        with stage.crew.desk.begin() as conn:
            keep(conn, [body], now=stage.now(), provider=provider)
        if not first and self.dice.random() < 1 / 2:
            self.deaths += 1
            nth = self.dice.randint(1, MOST_TRANSACTIONS)
            hearer = stage.crew.ready(HearOrder(nth, self.dice.random() < 1 / 2))
            hearer.go()
            hearer.wait()
        hear_all(stage, stage.crew.desk, SIGNED)
        self.told_at_call |= first

    def _number_of(self, person: Person) -> str:
        (lead,) = self.stage.ask(
            "SELECT telefon_principal AS number FROM gold_companies WHERE id = :id",
            id=self.dice.choice(person.lead_ids),
        )
        return str(lead["number"])


def stop_told_as_a_status(stage: Stage, dice: random.Random) -> Recovery:
    """Tell of stops while messages to all leads of these people are in all states.

    What is told names the message by an id that is not recorded yet, or only a number; who hears it
    may die in any of its transactions. One person stays silent, and is followed up.
    """
    people = stage.scale.pick(4, 16)
    stage.plan(leads=3 * people, limit=9 * people, phones=PHONES, follow_up=True, delay=TWO_DAYS)
    control, *persons = _make_persons(stage, dice)
    walk = ToldWalk(stage, dice, silent=list(persons))
    walk.walk()
    _decide(stage, dice)
    stage.move_time(TWO_DAYS + timedelta(hours=1))
    dispatch(stage.crew.engine, now=stage.now())
    walk.come_to_rest()
    stage.fault_over()
    stage.come_to_rest()
    stage.limit = 9 * people
    for person in persons:
        _judge_stopped(stage, person)
        if person not in walk.by_id_alone:
            _judge(stage, person)
    steps = stage.ask(
        "SELECT DISTINCT step FROM outbox_messages WHERE lead_id = ANY(:leads) AND step = 2",
        leads=list(control.lead_ids),
    )
    if not steps:
        raise Broken("STUCK", "no second step for who said nothing")
    return stage.recovery(f"{len(persons)} stops, {walk.deaths} hearers that died")


def _judge_stopped(stage: Stage, person: Person) -> None:
    goes_on = stage.ask(
        """
        SELECT lead_id FROM gold_lead_journey
        WHERE lead_id = ANY(:leads) AND NOT (whatsapp_opted_out AND email_opted_out)
        """,
        leads=list(person.lead_ids),
    )
    waits = stage.ask(
        """
        SELECT id, state FROM outbox_messages
        WHERE lead_id = ANY(:leads) AND state IN ('planned', 'deferred')
        """,
        leads=list(person.lead_ids),
    )
    if goes_on or waits:
        raise Broken("AFTER OPT-OUT", f"told to stop, and go on: {goes_on}, {waits}")
