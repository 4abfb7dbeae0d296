"""A small campaign for fault tests: planned, worked by many at once, and judged at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from cerniq_pipeline.services.dispatch import Request
from cerniq_pipeline.services.leasing import this_process
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline_tests.builders import (
    FIRST,
    SECOND,
    a_world,
    always_open,
    dispatch,
    run_sql,
    some_leads,
)
from cerniq_pipeline_tests.faults.judge import TimeOf, check_all, journal_time
from cerniq_pipeline_tests.faults.shift_process import HELD, SPEED, Crew, ShiftOrder
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

LEADS, LIMIT = 4, 3
PHONE = "acme-01"
GAP = timedelta(seconds=30) / SPEED / 2
"""Half of the gap that the shifts keep: two processes read the clock a few milliseconds apart."""

TOGETHER = 30.0
"""Seconds for which somebody waits for the others to be ready; only reached when one has failed."""

BATCH = 1000


def plan(
    crew: Crew,
    *,
    leads: int = LEADS,
    limit: int = LIMIT,
    phones: int = 1,
    follow_up: bool = False,
    delay: timedelta = timedelta(),
    **tenant: Any,
) -> None:
    """Plan a first message for every lead, though the phone may contact only some of them today.

    A `follow_up` comes `delay` after the first one has gone out.
    """
    now = crew.desk.clock.now()
    steps = (FIRST, SECOND) if follow_up else (FIRST,)
    hours = always_open(now) | tenant
    with crew.engine.begin() as conn:
        a_world(conn, phones=phones, quota=leads, steps=steps, delay=delay, **hours)
    plan_more(crew, leads)
    set_limit(crew, limit)


def plan_more(crew: Crew, leads: int) -> None:
    """Plan a first message for so many people whom nobody has heard of yet."""
    now = crew.desk.clock.now()
    with crew.engine.begin() as conn:
        known = conn.execute(text("SELECT count(*) FROM gold_companies")).scalar_one()
        some_leads(conn, count=leads, at=now - timedelta(hours=1), first=known)
    for left in range(leads, 0, -BATCH):
        due = min(left, BATCH)
        assert dispatch(crew.engine, now=now, request=Request(batch_size=due)) == (due, 0)


def set_limit(crew: Crew, limit: int) -> None:
    """Let every phone open so many conversations a day."""
    run_sql(crew.engine, "UPDATE wa_phone_numbers SET daily_quota = :limit", limit=limit)


def check(
    crew: Crew,
    sandbox: RunningSandbox,
    *,
    limit: int = LIMIT,
    time_of: TimeOf = journal_time,
    erased: Collection[str] = (),
) -> None:
    """Every promise, once everything came to rest; and nobody holds a phone any more."""
    now = datetime.now(UTC) + timedelta(seconds=crew.servers.moved.value)
    check_all(sandbox, crew.engine, limit=limit, gap=GAP, now=now, time_of=time_of, erased=erased)
    with crew.engine.connect() as conn:
        holders = conn.execute(text("SELECT holder FROM phone_leases")).scalars().all()
    assert set(holders) == {None}, f"somebody still holds a phone: {holders}"


def take_all_at_once(crew: Crew, *, threads: int, processes: int) -> int:
    """Let so many insist on one phone in the same moment; returns how many messages they sent."""
    others = [crew.ready(ShiftOrder(insists=True)) for _ in range(processes)]
    start = threading.Barrier(threads + 1)

    def insist() -> int:
        start.wait(TOGETHER)
        while True:
            me = this_process(threading.current_thread().name)
            shift = work_shift(crew.desk, PHONE, me, longest=timedelta(minutes=1))
            if shift.ended != HELD:
                return shift.outcomes["sent"]
            time.sleep(0.005)

    with ThreadPoolExecutor(threads) as pool:
        here = [pool.submit(insist) for _ in range(threads)]
        start.wait(TOGETHER)
        for other in others:
            other.go()
        sent = [thread.result() for thread in here]
    return sum(sent) + sum(other.wait().outcomes.get("sent", 0) for other in others)


def wait_for(condition: Callable[[], bool], *, seconds: float = 30.0, every: float = 0.01) -> None:
    """Return when it has come true; it must within half a minute, or the time given."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(every)


@contextmanager
def running(work: Callable[[], None], over: threading.Event) -> Iterator[None]:
    """Do something beside the test until the block ends."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
