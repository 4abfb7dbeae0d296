"""Row 42: somebody speaks as one of their leads while messages to the others are on the way."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from sqlalchemy import text

from cerniq_pipeline.domain.outbox import OutboxMessage
from cerniq_pipeline.services import leasing, recording, sending
from cerniq_pipeline_tests.builders import FIRST, SECOND, a_sequence, dispatch, run_sql
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.decisions import Decision, Verb
from cerniq_pipeline_tests.faults.matrix.listening import hear_all, hearing_desk
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage
from cerniq_pipeline_tests.faults.matrix.walking import Walking
from cerniq_pipeline_tests.faults.said import a_message, keep

Tie = Literal["number", "address", "company"]
"""What two leads of one person share."""

TWO_DAYS = timedelta(days=2)
A_MOMENT = timedelta(seconds=1)
PHONES = 3
TROUBLES = ("accept_then_cut", "cut_before_accept", "rate_limited")
LIKELY_STOP = "poate nu mai scrieți chiar zilnic"
SAYINGS = {
    "reply": ("Bună, mă interesează", False),
    "takeover": ("Bună, sunt Ion de la vânzări", True),
    "likely stop": (LIKELY_STOP, False),
}


@dataclass
class Person:
    """Somebody in several leads; `begun` is what had been begun when they were heard."""

    lead_ids: Sequence[uuid.UUID]
    begun: set[int] | None = None


@dataclass
class Walk(Walking):
    """Beats of shifts, events and decisions in an order that the dice make."""

    troubled: set[str] = field(default_factory=set)
    """Phones whose last call went wrong: the next one does not, or a breaker opens."""

    def go(self, people: Sequence[Person]) -> None:
        """Go on until everybody has spoken: mostly while something is on its way to them."""
        silent = list(people)
        while silent:
            person = silent[-1]
            for _ in range(self.dice.randint(2, 12)):
                self.beat()
            if not on_the_way(self.stage, person) and self.dice.random() < 3 / 4:
                silent.insert(0, silent.pop())
                if any(on_the_way(self.stage, one) for one in silent):
                    continue
            self.speak(silent.pop())
        self.come_to_rest()

    def come_to_rest(self) -> None:
        """Work and look up until nothing is due and nothing is in doubt."""
        for _ in range(2000):
            if not self.stage.crew.busy():
                return
            self.beat()
        raise Broken("STUCK", f"{self.stage.states()}")

    def beat(self) -> None:
        """Do one thing of those that shifts and look-ups do."""
        self.stage.move_time(A_MOMENT)
        self.dice.choice([self.claim, self.claim, self.record, self.look_up])()

    def record(self) -> None:
        if not self.in_flight:
            return
        lease, message = self.in_flight.pop(self.dice.choice(sorted(self.in_flight)))
        desk = self.stage.crew.desk
        if lease.phone_id not in self.troubled and self.dice.random() < 2 / 3:
            self.stage.sandbox.fault(self.dice.choice(TROUBLES), times=1)
            self.troubled.add(lease.phone_id)
        else:
            self.troubled.discard(lease.phone_id)
        outcome = sending.call(desk, message)
        self.stage.sandbox.lift()
        self.called(message)
        recording.record(desk, message, outcome, who="walk")
        leasing.give_back(desk.begin, lease)

    def called(self, message: OutboxMessage) -> None:
        """What happens between the call of a message and its record."""

    def look_up(self) -> None:
        self.stage.look_up(settle_time=self.dice.choice([timedelta(), timedelta(hours=1)]))

    def speak(self, person: Person) -> None:
        """Let them be heard as one of their leads."""
        stage = self.stage
        person.begun = _begun(stage, person)
        words, by_hand = SAYINGS[self.dice.choice(list(SAYINGS))]
        (lead,) = stage.ask(
            "SELECT telefon_principal AS number FROM gold_companies WHERE id = :id",
            id=self.dice.choice(person.lead_ids),
        )
        said = a_message(
            words,
            at=stage.now(),
            ours=self.dice.choice(stage.senders()),
            theirs=str(lead["number"]),
            from_us=by_hand,
        )
        desk = hearing_desk(stage)
        with desk.begin() as conn:
            keep(conn, [said], now=stage.now(), source="sweep")
        assert hear_all(stage, desk) == {"done": 1}


def spoken_to_on_the_way(stage: Stage, dice: random.Random) -> Recovery:
    """Bring the messages of everybody's leads into all states, and have people speak meanwhile.

    What they say ends what is automatic for each of their leads: what had been begun by then is
    all that they get. One of them says nothing, and is followed up.
    """
    people = stage.scale.pick(4, 20)
    stage.plan(leads=3 * people, limit=9 * people, phones=PHONES, follow_up=True, delay=TWO_DAYS)
    persons = _make_persons(stage, dice)
    walk = Walk(stage, dice)
    walk.go(persons[1:])
    _decide(stage, dice)
    stage.move_time(TWO_DAYS + timedelta(hours=1))
    dispatch(stage.crew.engine, now=stage.now())
    walk.come_to_rest()
    stage.fault_over()
    stage.come_to_rest()
    stage.limit = 9 * people
    for person in persons[1:]:
        _judge(stage, person)
    steps = stage.ask(
        """
        SELECT DISTINCT step FROM outbox_messages
        WHERE lead_id = ANY(:leads) AND state <> 'cancelled' ORDER BY step
        """,
        leads=list(persons[0].lead_ids),
    )
    if steps == [{"step": 1}]:
        raise Broken("STUCK", "no second step for who said nothing")
    return stage.recovery(f"{people} people")


def _make_persons(stage: Stage, dice: random.Random) -> list[Person]:
    """Make one person of every two or three leads: by number, address or company."""
    engine = stage.crew.engine
    with engine.begin() as conn:
        other_sequence = a_sequence(
            conn, "acme", name="other", steps=(FIRST, SECOND), delay=TWO_DAYS
        )
        leads = list(
            conn.execute(text("SELECT id FROM gold_companies ORDER BY telefon_principal")).scalars()
        )
    persons = []
    for n in range(0, len(leads), 3):
        first, *others = leads[n : n + dice.choice([2, 3])]
        ties: list[Tie] = dice.sample(get_args(Tie), len(others))
        for other, tie in zip(others, ties, strict=True):
            _tie(stage, first, other, tie, n=n, other_sequence=other_sequence)
        persons.append(Person([first, *others]))
    return persons


def _tie(
    stage: Stage, first: uuid.UUID, other: uuid.UUID, tie: Tie, *, n: int, other_sequence: int
) -> None:
    engine = stage.crew.engine
    if tie == "number":
        # One sequence writes to a number once; another one may as well.
        values = {"first": first, "other": other}
        run_sql(
            engine,
            """
            UPDATE gold_companies SET telefon_principal =
              (SELECT telefon_principal FROM gold_companies WHERE id = :first)
            WHERE id = :other
            """,
            **values,
        )
        run_sql(
            engine,
            "UPDATE gold_lead_journey SET current_sequence_id = :s WHERE lead_id = :other",
            other=other,
            s=other_sequence,
        )
        run_sql(
            engine,
            """
            UPDATE outbox_messages o SET sequence_id = :s, recipient = c.telefon_principal
            FROM gold_companies c WHERE o.lead_id = :other AND c.id = o.lead_id
            """,
            other=other,
            s=other_sequence,
        )
        return
    column, spellings = {
        "address": ("email_principal", (f"ana.{n}@firma.example", f"Ana.{n}@Firma.example")),
        "company": ("cui", (f"RO {10_000_000 + n}", f"{10_000_000 + n}")),
    }[tie]
    for lead_id, spelt in zip((first, other), spellings, strict=True):
        run_sql(
            engine,
            f"UPDATE gold_companies SET {column} = :spelt WHERE id = :id",
            id=lead_id,
            spelt=spelt,
        )


def on_the_way(stage: Stage, person: Person) -> bool:
    """Whether a message to this person has been begun and has not come to its end."""
    return bool(
        stage.ask(
            """
            SELECT 1 FROM outbox_messages WHERE lead_id = ANY(:leads)
              AND state IN ('sending', 'unconfirmed', 'parked')
            """,
            leads=list(person.lead_ids),
        )
    )


def _decide(stage: Stage, dice: random.Random) -> None:
    """Settle everything that is parked, as a person would who looked into the chat."""
    seen = {(line["recipient"], line["text"]) for line in stage.sandbox.accepted()}
    for row in stage.ask("SELECT id, recipient, body FROM outbox_messages WHERE state = 'parked'"):
        is_there = (row["recipient"], row["body"]) in seen
        verb: Verb = "mark_sent" if is_there else dice.choice(["resend", "drop"])
        message_id = int(str(row["id"]))
        decided = Decision(verb, message_id, message_id)
        if not decided.apply(stage.crew.engine.begin, now=stage.now()):
            Decision("drop", message_id, message_id).apply(stage.crew.engine.begin, now=stage.now())


def _begun(stage: Stage, person: Person) -> set[int]:
    """The messages to a person that have been begun."""
    rows = stage.ask(
        """
        SELECT id FROM outbox_messages WHERE lead_id = ANY(:leads)
          AND (state IN ('sending', 'unconfirmed', 'parked', 'sent') OR replaced_by IS NOT NULL)
        """,
        leads=list(person.lead_ids),
    )
    return {int(str(row["id"])) for row in rows}


def _judge(stage: Stage, person: Person) -> None:
    assert person.begun is not None
    if more := _begun(stage, person) - person.begun:
        rows = stage.ask(
            "SELECT id, lead_id, step, state, reason FROM outbox_messages WHERE id = ANY(:ids)",
            ids=list(more),
        )
        raise Broken("AFTER REPLY", f"begun after they were heard: {rows}")
    waiting = stage.ask(
        """
        SELECT id, lead_id, step, state FROM outbox_messages
        WHERE lead_id = ANY(:leads) AND state IN ('planned', 'deferred')
        """,
        leads=list(person.lead_ids),
    )
    if waiting:
        raise Broken("AFTER REPLY", f"still waits for who was heard: {waiting}")
