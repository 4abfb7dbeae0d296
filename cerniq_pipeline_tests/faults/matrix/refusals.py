"""Row 41: a message that every phone refuses as if the phone itself were banned or offline."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cerniq_pipeline.domain.refusals import OTHERS_FIRST
from cerniq_pipeline.services import leasing, phone_status, recording, sending
from cerniq_pipeline.services.failover import fail_over, phones_to_fail_over
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage
from cerniq_pipeline_tests.faults.matrix.walking import Walking

PHONES = 4
A_MOMENT = timedelta(milliseconds=200)
ABOUT_THE_PHONE: Sequence[Mapping[str, Any]] = (
    {"kind": "banned"},
    {"kind": "refuse", "status": 409, "code": "account_inactive"},
    {"kind": "refuse", "status": 400, "message": "No connected WhatsApp account"},
)


@dataclass
class Walk(Walking):
    """Beats of shifts, of failover and of the look at connections, in an order that the dice make.

    Claims and records are apart, so that the others fall between them too.
    """

    def beat(self) -> None:
        """Do one thing; never may a second phone be stopped."""
        self.stage.move_time(A_MOMENT)
        acts = [self.claim] * 4 + [self.record] * 4 + [self.fail_over, self.look_at_connections]
        self.dice.choice(acts)()
        stopped = stopped_phones(self.stage)
        if len(stopped) > 1:
            raise Broken("SILENCED", f"one message stopped {stopped}")

    def record(self) -> None:
        if not self.in_flight:
            return
        lease, message = self.in_flight.pop(self.dice.choice(sorted(self.in_flight)))
        desk = self.stage.crew.desk
        recording.record(desk, message, sending.call(desk, message), who="walk")
        leasing.give_back(desk.begin, lease)

    def fail_over(self) -> None:
        begin = self.stage.crew.engine.begin
        for phone in phones_to_fail_over(begin, now=self.stage.now()):
            fail_over(begin, phone, now=self.stage.now(), who="walk")

    def look_at_connections(self) -> None:
        phone_status.sync(self.stage.crew.desk)


def refused_by_every_phone(stage: Stage, dice: random.Random) -> Recovery:
    """Let one message among good ones be refused by every phone, each in words of its own."""
    each = stage.scale.pick(5, 20)
    stage.plan(
        leads=PHONES * each,
        limit=PHONES * each,
        phones=PHONES,
        failover="hand_over",
        failover_after_minutes=0,
    )
    stage.sandbox.set_accounts(**dict.fromkeys(stage.senders(), "active"))
    walk = Walk(stage, dice)
    for _ in range(dice.randint(0, 6 * each)):
        walk.beat()
    waiting = stage.ask("SELECT recipient FROM outbox_messages WHERE state = 'planned' ORDER BY id")
    poison = str(dice.choice(waiting)["recipient"])
    for sender in stage.senders():
        stage.sandbox.fault(phone=sender, recipient=poison, **dice.choice(ABOUT_THE_PHONE))
    for _ in range(200 * each):
        if not walk.in_flight and not _unfinished(stage):
            break
        if not walk.in_flight and not stage.crew.busy():
            stage.move_time(OTHERS_FIRST)  # all but this message went out meanwhile
        walk.beat()
    stage.fault_over()
    stage.come_to_rest()
    ended = stage.ask("SELECT state FROM outbox_messages WHERE recipient = :it", it=poison)
    letters = stage.ask("SELECT code FROM dead_letters")
    if ended != [{"state": "failed"}] or letters != [{"code": "REFUSED_BY_PHONES"}]:
        raise Broken("STUCK", f"the message that nobody takes: {ended}, {letters}")
    if stage.states() != {"sent": PHONES * each - 1, "failed": 1}:
        raise Broken("STUCK", f"good messages among them: {stage.states()}")
    return stage.recovery(f"stopped: {', '.join(stopped_phones(stage))}")


def stopped_phones(stage: Stage) -> list[str]:
    """The phones that were ever stopped, also if they are back."""
    found = stage.ask("""
        SELECT DISTINCT subject FROM alerts WHERE kind IN ('phone_banned', 'phone_offline')
        ORDER BY subject
    """)
    return [str(row["subject"]) for row in found]


def _unfinished(stage: Stage) -> bool:
    return bool(stage.states().keys() - {"sent", "failed"})
