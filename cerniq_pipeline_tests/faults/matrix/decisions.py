"""Row 7: a person decides on what is parked or dead, and the process dies in the middle of it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Engine

from cerniq_pipeline.services import dead_letters, parked
from cerniq_pipeline.store.database import Begin, connect
from cerniq_pipeline_tests.builders import SECRET
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage, pause
from cerniq_pipeline_tests.faults.shift_process import Servers

Verb = Literal["mark_sent", "resend", "drop", "retry", "drop_letter"]
Moment = Literal["before commit", "after commit", "any"]

FATES = ["accepted and not shown", "never accepted", "refused"]
TROUBLES = {
    "accepted and not shown": "accept_then_cut",
    "never accepted": "cut_before_accept",
    "refused": "invalid_number",
}


@dataclass(frozen=True)
class Decision:
    """What a person wants done with one message; for letters, `id` is the letter's."""

    verb: Verb
    id: int
    message_id: int

    def apply(self, begin: Begin, *, now: datetime) -> bool:
        """Do it; False when it is refused."""
        answers = {
            "mark_sent": lambda: [parked.mark_sent(begin, self.id, by="ana", now=now)],
            "resend": lambda: [parked.resend(begin, self.id, by="ana", secret=SECRET, now=now)],
            "drop": lambda: [parked.drop(begin, self.id, by="ana", reason="old", now=now)],
            "retry": lambda: dead_letters.retry(
                begin, [self.id], by="ana", secret=SECRET, now=now, reviewed=True
            ),
            "drop_letter": lambda: dead_letters.drop(
                begin, [self.id], by="ana", reason="old", now=now
            ),
        }
        (answer,) = answers[self.verb]()
        return answer.done


@dataclass(frozen=True)
class DecisionOrder:
    """One decision in a process that dies at its commit, or that somebody kills at any moment."""

    decision: Decision
    dies: Moment

    def carry_out(self, servers: Servers, go: Callable[[], object]) -> dict[str, Any]:
        """Decide; a process that lives to tell says whether it was done."""
        engine = connect(servers.database_url)
        now = servers.desk(engine).clock.now()
        go()
        return {"done": self.decision.apply(_dying(engine, self.dies), now=now)}


def _dying(engine: Engine, moment: Moment) -> Begin:
    @contextmanager
    def begin() -> Iterator[Connection]:
        with engine.begin() as conn:
            yield conn
            if moment == "before commit":
                os.kill(os.getpid(), signal.SIGKILL)
        if moment == "after commit":
            os.kill(os.getpid(), signal.SIGKILL)

    return begin


def killed_while_deciding(stage: Stage, dice: random.Random) -> Recovery:
    """Decide on every parked message and dead letter, die, and decide again, twice."""
    leads = stage.scale.pick(10, 24)
    stage.plan(leads=leads, limit=2 * leads)
    _bring_into_trouble(stage, dice, leads)
    decisions = _decisions(stage, dice)
    for decision in decisions:
        moment: Moment = dice.choice(["before commit", "after commit", "any"])
        applied = _applied_though_killed(stage, dice, decision, moment)
        again = [decision.apply(stage.crew.engine.begin, now=stage.now()) for _ in range(2)]
        if applied + sum(again) != 1:
            raise Broken("DUPLICATE", f"{decision}, {moment}: {applied=}, {again=}")
        if applied != {"before commit": False, "after commit": True}.get(moment, applied):
            raise Broken("DISAGREEMENT", f"{decision} was killed {moment}, but {applied=}")
    stage.fault_over()
    stage.come_to_rest()
    stage.limit = 2 * leads
    return stage.recovery(f"{len(decisions)} decisions")


def _bring_into_trouble(stage: Stage, dice: random.Random, leads: int) -> None:
    """Leave every other message in doubt or refused; a good one between, or a breaker opens."""
    for position in range(0, leads, 2):
        trouble = TROUBLES[dice.choice(FATES)]
        stage.sandbox.fault(trouble, after=position, times=1)
    stage.sandbox.fault("history_hidden")
    stage.crew.work()
    stage.look_up()
    stage.sandbox.lift()


def _decisions(stage: Stage, dice: random.Random) -> list[Decision]:
    """Wise ones: what a person finds in the chat counts as sent, the rest is repeated or not."""
    seen = {line["recipient"] for line in stage.sandbox.accepted()}
    parked_ones = stage.ask("SELECT id, recipient FROM outbox_messages WHERE state = 'parked'")
    letters = stage.ask("SELECT id, message_id FROM dead_letters")
    wise: list[Decision] = []
    for row in parked_ones:
        verb: Verb = "mark_sent" if row["recipient"] in seen else dice.choice(["resend", "drop"])
        wise.append(Decision(verb, int(str(row["id"])), int(str(row["id"]))))
    for row in letters:
        verb = dice.choice(["retry", "drop_letter"])
        wise.append(Decision(verb, int(str(row["id"])), int(str(row["message_id"]))))
    dice.shuffle(wise)
    return wise


def _applied_though_killed(
    stage: Stage, dice: random.Random, decision: Decision, moment: Moment
) -> bool:
    """Kill the process that decides; returns whether its decision can be seen all the same."""
    before = _standing(stage, decision)
    process = stage.crew.ready(DecisionOrder(decision, moment))
    process.go()
    if moment == "any":
        pause(dice.uniform(0.0, 0.03))
        process.signal(signal.SIGKILL)
    process.wait()
    return _standing(stage, decision) != before


def _standing(stage: Stage, decision: Decision) -> list[dict[str, object]]:
    return stage.ask(
        """
        SELECT o.state, o.replaced_by, d.resolved_at FROM outbox_messages o
        LEFT JOIN dead_letters d ON d.message_id = o.id WHERE o.id = :id
        """,
        id=decision.message_id,
    )
