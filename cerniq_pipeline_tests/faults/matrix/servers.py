"""Rows 9 and 10: servers that stand still, and a Postgres that dies."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from contextlib import nullcontext

from sqlalchemy import Connection, text

from cerniq_pipeline.store.database import Unavailable
from cerniq_pipeline_tests.faults.campaign import wait_for
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import (
    ANSWER_WITHIN,
    OpenShifts,
    Stage,
    frozen,
    pause,
)
from cerniq_pipeline_tests.faults.sabotage import killed, stopped_immediately

MOST_GROWTH = 50_000_000
"""Bytes by which a shift may grow while it waits for somebody."""

LONGEST = 0.8 * ANSWER_WITHIN
"""Seconds for which a server stands still at most. A provider that slept for longer would find,
on waking, the next message beside one that we had given up on, and call it two at once."""

PHONES = 2


def servers_frozen(stage: Stage, dice: random.Random) -> Recovery:
    """Stop Postgres, Redis and the provider in turn, each for some seconds under load."""
    pids: dict[str, Callable[[], int | None]] = {
        "postgres": stage.postgres.pid,
        "redis": stage.redis.pid,
        "sandbox": lambda: stage.sandbox.pid,
    }
    _plan(stage, leads=stage.scale.pick(80, 400))
    grown = 0
    with stage.shifts_open() as shifts:
        for name in dice.sample(list(pids), len(pids)):
            _wait_for_work(stage, shifts)
            before = shifts.memory()
            pause(dice.uniform(0.0, 0.2))
            seconds = dice.uniform(0.5, 1.0) if stage.scale.brief else dice.uniform(2.0, LONGEST)
            quiet = nullcontext() if name == "sandbox" else stage.silence(in_flight=PHONES)
            with frozen(pids[name]()), quiet:
                pause(seconds)
            stage.fault_over()
            grown = max(grown, shifts.memory() - before)
    if grown > MOST_GROWTH:
        raise Broken("GREW", f"a shift grew by {grown / 1e6:.0f} MB while a server stood still")
    _all_sent_or_parked(stage)
    return stage.recovery(f"memory +{max(0, grown) / 1e6:.0f} MB")


def postgres_dies(stage: Stage, dice: random.Random) -> Recovery:
    """Restart Postgres at once, or kill one of its processes, again and again under load."""
    _plan(stage, leads=stage.scale.pick(60, 400))
    deaths: list[Callable[[Stage], None]] = [_restarted, _server_killed, _worker_killed]
    todo = stage.scale.pick(1, 3) * deaths
    dice.shuffle(todo)
    done = 0
    with stage.shifts_open() as shifts:
        for die in todo:
            _wait_for_work(stage, shifts)
            pause(dice.uniform(0.0, 0.3))
            die(stage)
            stage.fault_over()
            done += 1
    _all_sent_or_parked(stage)
    return stage.recovery(f"{done} deaths")


def _plan(stage: Stage, *, leads: int) -> None:
    stage.plan(leads=leads, limit=leads // PHONES, phones=PHONES)


def _wait_for_work(stage: Stage, shifts: OpenShifts) -> None:
    """Wait until messages go out again, or there is nothing left to send."""
    before = len(stage.sandbox.accepted())
    wait_for(lambda: len(stage.sandbox.accepted()) > before + PHONES or not shifts.any_work_left())


def _all_sent_or_parked(stage: Stage) -> None:
    found = stage.states()
    assert found.keys() <= {"sent", "parked"}, f"messages were left behind: {found}"


def _restarted(stage: Stage) -> None:
    stopped_immediately(stage.postgres)
    stage.postgres.start()


def _server_killed(stage: Stage) -> None:
    killed(stage.postgres)
    stage.postgres.start()


def _worker_killed(stage: Stage) -> None:
    """Postgres then ends all its workers, and recovers by itself."""
    with stage.crew.engine.connect() as conn:
        pid = conn.execute(
            text("""
                SELECT pid FROM pg_stat_activity WHERE datname = current_database()
                ORDER BY pid = pg_backend_pid(), backend_start DESC LIMIT 1
            """)
        ).scalar_one()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not _answers(conn))
        conn.invalidate()
    wait_for(lambda: _connects(stage))


def _answers(conn: Connection) -> bool:
    try:
        conn.execute(text("SELECT 1"))
    except Unavailable:
        return False
    return True


def _connects(stage: Stage) -> bool:
    try:
        with stage.crew.engine.connect() as conn:
            return _answers(conn)
    except Unavailable:
        return False
