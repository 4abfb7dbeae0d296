"""Everything at once: shifts, claims, dispatches and opt-outs that start in the same moment."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import text

from cerniq_pipeline.dev.embedded import EmbeddedRedis
from cerniq_pipeline.domain.outbox import OutboxMessage
from cerniq_pipeline.services import claiming, leasing, recording, sending
from cerniq_pipeline.services.dispatch import Request
from cerniq_pipeline.services.leasing import Lease, this_process
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline_tests.builders import (
    FIRST,
    SECOND,
    SECRET,
    a_world,
    always_open,
    dispatch,
    some_leads,
    states,
)
from cerniq_pipeline_tests.faults.campaign import GAP, TOGETHER, set_limit, take_all_at_once
from cerniq_pipeline_tests.faults.judge import OptOut, check_all, witnessed
from cerniq_pipeline_tests.faults.shift_process import (
    Crew,
    DispatchOrder,
    Servers,
    ShiftOrder,
    Trap,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox


@pytest.fixture
def crew(
    database_url: str, redis: Redis, redis_server: EmbeddedRedis, sandbox: RunningSandbox
) -> Iterator[Crew]:
    crew = Crew(Servers(database_url, redis_server.url(), sandbox.public_url))
    yield crew
    crew.dismiss()


def make_world(crew: Crew, *, leads: int, **world: Any) -> list[UUID]:
    now = crew.desk.clock.now()
    with crew.engine.begin() as conn:
        a_world(conn, **world, **always_open(now))
        return some_leads(conn, count=leads, at=now - timedelta(hours=1))


# ── One phone ─────────────────────────────────────────────────────────────────────────────────


def test_two_shifts_of_one_phone_started_at_once_send_each_message_once(
    crew: Crew, sandbox: RunningSandbox
):
    make_world(crew, leads=30, phones=10)
    assert dispatch(crew.engine, now=crew.desk.clock.now()) == (30, 0)
    sandbox.fault("late", delay_ms=20)  # long enough for a second request to overlap

    for phones in (range(1, 6), range(6, 11)):
        orders = [ShiftOrder(f"acme-{n:02d}") for n in phones]
        shifts = [crew.ready(order) for order in orders for _ in range(2)]
        for shift in shifts:
            shift.go()
        ends = [shift.wait() for shift in shifts]
        assert sum(end.outcomes.get("sent", 0) for end in ends) == 15

    assert len(sandbox.accepted()) == 30
    check_all(sandbox, crew.engine, limit=200, gap=GAP)


def test_twenty_threads_and_four_processes_take_the_last_place_of_a_phone_once(
    crew: Crew, sandbox: RunningSandbox
):
    make_world(crew, leads=10, quota=10)
    dispatch(crew.engine, now=crew.desk.clock.now())
    set_limit(crew, 4)
    assert crew.work().outcomes == {"sent": 4}
    set_limit(crew, 5)
    with crew.engine.begin() as conn:
        conn.execute(text("UPDATE outbox_messages SET due_at = now() WHERE state = 'deferred'"))

    assert take_all_at_once(crew, threads=20, processes=4) == 1

    assert len(sandbox.accepted()) == 5
    check_all(sandbox, crew.engine, limit=5, gap=GAP)


# ── One tenant ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("quota", "planned"), [(200, 60), (7, 21)], ids=["room for all", "room for some"]
)
def test_ten_dispatches_at_once_plan_each_step_once_and_no_phone_beyond_its_room(
    crew: Crew, quota: int, planned: int
):
    leads = make_world(crew, leads=60, phones=3, quota=quota)
    with crew.engine.begin() as conn:
        conn.execute(
            text("UPDATE gold_lead_journey SET priority = 'HIGH' WHERE lead_id = ANY(:leads)"),
            {"leads": leads[::2]},
        )
    # Different plans for the same room, all made before one of them is written.
    asked = [Request(priority_filter=wanted) for wanted in ("HIGH", None, "NORMAL", "HIGH", None)]
    processes = [crew.ready(DispatchOrder(request=request)) for request in asked]
    start = threading.Barrier(6)

    def dispatch_now(request: Request) -> int:
        return DispatchOrder(request=request).dispatch(crew.desk, partial(start.wait, TOGETHER))

    with ThreadPoolExecutor(5) as pool:
        threads = [pool.submit(dispatch_now, request) for request in asked]
        start.wait(TOGETHER)
        for process in processes:
            process.go()
        written = [thread.result() for thread in threads]
    written += [process.wait().report["written"] for process in processes]

    assert sum(written) == planned
    with crew.engine.connect() as conn:
        rows = conn.execute(text("SELECT lead_id, phone_id FROM outbox_messages")).all()
    assert len({row.lead_id for row in rows}) == len(rows) == planned
    assert max(Counter(row.phone_id for row in rows).values()) <= quota


# ── One person ────────────────────────────────────────────────────────────────────────────────

RACES = 300
APART = 0.008
"""Seconds by which one side of a race is held back at most: about as long as a claim takes."""


def test_nothing_is_begun_for_a_person_after_their_opt_out_was_committed(
    crew: Crew, sandbox: RunningSandbox
):
    leads = make_world(
        crew,
        leads=RACES,
        quota=RACES,
        steps=(FIRST, SECOND),
        delay=timedelta(),
        weekly_per_person=9,
    )
    now = crew.desk.clock.now()
    dispatch(crew.engine, now=now, request=Request(batch_size=RACES))
    with crew.engine.begin() as conn:
        conn.execute(text("UPDATE outbox_messages SET due_at = due_at + interval '1 hour'"))
    desk = replace(crew.desk, speed=1e9)  # no gap: the next race begins when this one is over
    lease = leasing.acquire(desk.begin, "acme-01", this_process("races"), now=now)
    assert lease is not None
    opt_outs: list[OptOut] = []
    dice = random.Random(7)

    with ThreadPoolExecutor(2) as pool:
        for turn, lead_id in enumerate(leads):
            recipient = _make_due(crew, lead_id)
            wait = dice.uniform(-APART, APART) if turn % 2 else 0.0
            start = threading.Barrier(2)
            stop = partial(
                opt_out,
                partial(witnessed, desk.begin, sandbox, recipient, opt_outs),
                tenant_id="acme",
                lead_id=lead_id,
                secret=SECRET,
                reason="asked to stop",
                now=now,
            )
            racers = [
                pool.submit(_after, start, max(0.0, wait), partial(_send_next, desk, lease)),
                pool.submit(_after, start, max(0.0, -wait), stop),
            ]
            for racer in racers:
                racer.result()
    leasing.give_back(desk.begin, lease)
    crew.come_to_rest()

    found = states(crew.engine)
    assert 0 < len(sandbox.accepted()) < RACES, "one side won every race, so nothing was tried"
    assert len(opt_outs) == RACES
    assert found.keys() == {"sent", "cancelled"}
    assert found["sent"] == len(sandbox.accepted())  # first messages only: no follow-up got out
    check_all(sandbox, crew.engine, limit=RACES, gap=timedelta(), opt_outs=opt_outs)


@pytest.mark.parametrize("dies", [False, True], ids=["recorded", "found in the history"])
def test_a_lead_erased_while_its_message_is_in_flight_holds_nobody_up(
    crew: Crew, sandbox: RunningSandbox, dies: bool
):
    leads = make_world(crew, leads=3)
    dispatch(crew.engine, now=crew.desk.clock.now())
    shift = crew.start(trap=Trap("call_answered", 1, signal.SIGSTOP))
    shift.wait_until_stopped()

    with crew.engine.begin() as conn:
        conn.execute(
            text("""
                DELETE FROM gold_companies WHERE id IN
                  (SELECT lead_id FROM outbox_messages WHERE state = 'sending')
            """)
        )
    shift.signal(signal.SIGKILL if dies else signal.SIGCONT)
    shift.wait()
    crew.come_to_rest()

    assert states(crew.engine) == {"sent": len(leads)}
    assert len(sandbox.accepted()) == len(leads)


def _make_due(crew: Crew, lead_id: UUID) -> str:
    with crew.engine.begin() as conn:
        return conn.execute(
            text("""
                UPDATE outbox_messages SET due_at = due_at - interval '1 hour'
                WHERE lead_id = :lead RETURNING recipient
            """),
            {"lead": lead_id},
        ).scalar_one()


def _after(start: threading.Barrier, seconds: float, act: Callable[[], object]) -> None:
    start.wait(TOGETHER)
    time.sleep(seconds)
    act()


def _send_next(desk: Desk, lease: Lease) -> None:
    claimed = claiming.claim(desk, lease)
    if isinstance(claimed, OutboxMessage):
        recording.record(desk, claimed, sending.call(desk, claimed), who="races")
