"""A shift over the real servers, judged by the sandbox's journal."""

from __future__ import annotations

from datetime import timedelta

import pytest
from redis import Redis
from sqlalchemy import Engine, text

from cerniq_pipeline.services.leasing import this_process
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    THIRD,
    ManualClock,
    a_desk,
    a_world,
    dispatch,
    some_leads,
    states,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("dialect", ["public", "v1"])
def test_a_shift_sends_what_was_dispatched_and_plans_the_follow_up(
    database: Engine, redis: Redis, sandbox: RunningSandbox, dialect: str
):
    clock = ManualClock()
    with database.begin() as conn:
        a_world(conn, steps=(FIRST, SECOND, THIRD))
        some_leads(conn, count=3)
    assert dispatch(database) == (3, 0)
    desk = a_desk(database, redis, sandbox, clock, dialect=dialect)

    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)

    assert shift.outcomes == {"sent": 3}
    assert sorted(line["text"] for line in sandbox.accepted()) == [
        f"Bună ziua, Firma {n}! Pasul unu." for n in range(3)
    ]
    assert states(database) == {"sent": 3, "planned": 3}
    clock.set(NOON + timedelta(days=1, minutes=10))
    work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert [line["kind"] for line in sandbox.accepted()] == ["message"] * 3 + ["chat_message"] * 3
    with database.connect() as conn:
        used = conn.execute(text("SELECT state, count(*) FROM quota_ledger GROUP BY 1")).all()
    assert used == [("committed", 3)]
