"""Rows 1, 2 and 8: shifts that die or stand still."""

from __future__ import annotations

import random
import signal
from datetime import timedelta

from cerniq_pipeline.services import checkpoints, leasing
from cerniq_pipeline_tests.faults.campaign import PHONE, plan_more
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage, pause
from cerniq_pipeline_tests.faults.shift_process import Trap

LEADS = 3
ONCE_PER_SHIFT = {"lease_before_commit", "lease_committed", "lease_released"}
ONCE_PER_LEAD = {"quota_reserved_in_redis", "quota_settled_in_redis", "chat_looked_up"}
"""The others are passed twice per lead: by its first message, and by its follow-up."""

DIED = -signal.SIGKILL


def killed_at_every_point(stage: Stage, dice: random.Random) -> Recovery:
    """Kill a shift at each point, at one of the messages that pass it, and let another go on."""
    points = dice.sample(checkpoints.NAMES, stage.scale.pick(3, len(checkpoints.NAMES)))
    stage.plan(leads=LEADS, limit=LEADS * len(points), follow_up=True)
    for n, point in enumerate(points):
        if n:
            plan_more(stage.crew, LEADS)
        dead = stage.crew.work(trap=Trap(point, dice.randint(1, _passed(point))))
        assert dead.exit_code == DIED, f"no shift died at {point}: {dead}"
        stage.fault_over()
        stage.come_to_rest()
    return stage.recovery(f"{len(points)} points")


def _passed(point: str) -> int:
    if point in ONCE_PER_SHIFT:
        return 1
    return LEADS if point in ONCE_PER_LEAD else 2 * LEADS


def killed_at_random_moments(stage: Stage, dice: random.Random) -> Recovery:
    """Kill shifts all through one campaign, whatever they are just doing."""
    kills, phones = stage.scale.pick(6, 100), stage.scale.pick(2, 4)
    leads = phones * stage.scale.pick(10, 110)
    stage.plan(leads=leads, limit=leads // phones, phones=phones, follow_up=True)
    killed = 0
    with stage.shifts_open() as shifts:
        while killed < kills and shifts.any_work_left():
            pause(dice.uniform(0.0, 0.3))
            if shifts.kill(dice.choice(stage.phones())):
                killed += 1
                stage.fault_over()
            elif dice.random() < 0.5:
                stage.look_up()  # or what is in doubt would keep the campaign from its end
    found = stage.states()
    assert found.keys() <= {"sent", "parked"}, f"messages were left behind: {found}"
    assert len(stage.sandbox.accepted()) == found["sent"], "the journal is not the plan"
    assert killed >= kills // 2, f"only {killed} shifts could be killed"
    return stage.recovery(f"{killed} kills")


def stood_still_past_its_lease(stage: Stage, dice: random.Random) -> Recovery:
    """Stop a shift between its claim and its first byte, for longer than its lease; wake it.

    Another shift takes the phone first, or nobody does until it wakes.
    """
    stage.plan(leads=LEADS + 1, limit=LEADS, follow_up=True)
    point = dice.choice(["claim_committed", "call_before_first_byte", "chat_looked_up"])
    asleep = stage.crew.start(trap=Trap(point, dice.randint(1, _passed(point)), signal.SIGSTOP))
    asleep.wait_until_stopped()
    begun = len(stage.sandbox.journal("request"))
    stage.move_time(leasing.LEASE + timedelta(seconds=dice.uniform(1, 240)))
    replaced = dice.random() < 0.7
    if replaced:
        successor = stage.crew.work(PHONE)
        assert not successor.ended.startswith("another"), successor
        begun = len(stage.sandbox.journal("request"))
    asleep.signal(signal.SIGCONT)
    stage.fault_over()
    woken = asleep.wait()
    assert len(stage.sandbox.journal("request")) == begun, "the woken shift sent something"
    assert (woken.exit_code == DIED) == replaced, f"the sleeper should be dead: {woken}"
    stage.move_time(timedelta(minutes=1))  # what came too late is tried again after a while
    stage.come_to_rest()
    return stage.recovery()
