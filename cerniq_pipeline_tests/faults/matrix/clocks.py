"""Row 23: clocks that jump, days of 23 and 25 hours, and a machine in the wrong time zone."""

from __future__ import annotations

import random
import signal
from datetime import date, datetime, timedelta

from cerniq_pipeline.domain.calendar import Calendar
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage
from cerniq_pipeline_tests.faults.shift_process import Trap

LIMIT = 3
HOUR = timedelta(hours=1)
DAYS = {
    "23 hours": date(2027, 3, 28),
    "25 hours": date(2027, 10, 31),
    "leap day": date(2028, 2, 29),
    "plain day": date(2027, 6, 9),
}
ZONES = ["Pacific/Kiritimati", "America/Los_Angeles", "Asia/Kathmandu", "UTC"]
QUIET = ["lease_committed", "record_committed"]
"""Where nothing is in flight. A clock set back during a call would make it fall on another day or
hour than its claim, by the clock that the journal is read with."""


def clock_jumps(stage: Stage, dice: random.Random) -> Recovery:
    """Work through an odd day and the next one, on a machine with any time zone.

    Undisturbed, each day's quota is used to the last contact. With jumps of two hours either way,
    also over midnight, no day may have more, and nobody is lost in the end.
    """
    name, zone = dice.choice(list(DAYS)), dice.choice(ZONES)
    jumps = dice.random() < 0.6
    calendar = dice.choice([_open(0, 24), _open(9, 18)])
    days = [DAYS[name], DAYS[name] + timedelta(days=1)]
    _plan(stage, calendar, at=calendar.hours_of(days[0])[0] + timedelta(minutes=20))
    for day in days:
        before = len(stage.sandbox.accepted())
        for hour in sorted(dice.sample(range(23), 4)):  # the shortest of these days has 23
            minutes = timedelta(minutes=dice.randint(5, 40))
            _forward_to(stage, calendar.day_starts(day) + hour * HOUR + minutes)
            if jumps:
                _work_through_a_jump(stage, dice, zone)
            else:
                stage.crew.work(time_zone=zone)
        _forward_to(stage, calendar.hours_of(day)[1] - HOUR)
        stage.crew.work(time_zone=zone)
        sent = len(stage.sandbox.accepted()) - before
        if not jumps and sent != LIMIT:
            raise Broken("OVER QUOTA", f"{sent} of {LIMIT} contacts on {day} ({name}, {zone})")
    stage.fault_over()
    for later in range(1, 4):
        _forward_to(stage, calendar.hours_of(days[1] + later * timedelta(days=1))[0] + HOUR)
        stage.crew.work(time_zone=zone)
    stage.come_to_rest()
    assert stage.states() == {"sent": 3 * LIMIT}, f"some were lost: {stage.states()}"
    return stage.recovery(f"{name}, {zone}" + (", jumps" if jumps else ""))


def _open(opens: int, closes: int) -> Calendar:
    every_day = frozenset(range(1, 8))
    return Calendar(opens=60 * opens, closes=60 * closes, working_days=every_day, country=None)


def _plan(stage: Stage, calendar: Calendar, *, at: datetime) -> None:
    stage.go_to(at)
    stage.calendar = calendar
    stage.plan(
        leads=3 * LIMIT,
        limit=LIMIT,
        time_zone=calendar.time_zone,
        opens=calendar.opens,
        closes=calendar.closes,
        working_days=sorted(calendar.working_days),
        holiday_country=calendar.country,
    )


def _work_through_a_jump(stage: Stage, dice: random.Random, zone: str) -> None:
    """Stop a shift somewhere, set the clock two hours off, go on, and put the clock right."""
    jump = dice.choice([2 * HOUR, -2 * HOUR])
    point = dice.choice([*QUIET, "claim_committed"] if jump > timedelta() else QUIET)
    shift = stage.crew.start(trap=Trap(point, 1, signal.SIGSTOP), time_zone=zone)
    if shift.stops():
        stage.move_time(jump)
        shift.signal(signal.SIGCONT)
        shift.wait()
        stage.move_time(timedelta(minutes=1))  # what came too late is tried again after a while
        stage.crew.work(time_zone=zone)
        stage.move_time(-jump)
    else:
        shift.wait()


def _forward_to(stage: Stage, instant: datetime) -> None:
    if instant > stage.now():
        stage.go_to(instant)
