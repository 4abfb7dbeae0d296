"""Processes and servers that die or freeze in the middle of sending; the journal is the judge."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import psutil
import pytest
from redis import Redis
from sqlalchemy import create_engine, text

from cerniq_pipeline.dev.embedded import EmbeddedPostgres, EmbeddedRedis
from cerniq_pipeline.services import checkpoints, leasing
from cerniq_pipeline.services.reconcile import compare_gate
from cerniq_pipeline.services.sending import CALL_DEADLINE
from cerniq_pipeline.store.migrations import upgrade
from cerniq_pipeline_tests.builders import states
from cerniq_pipeline_tests.faults.campaign import check, plan, running, wait_for
from cerniq_pipeline_tests.faults.sabotage import (
    down,
    epoch_of_another_type,
    evicted,
    flushed,
    full_of_memory,
    killed,
    of_another_type,
    quota_key,
    read_only,
    scripts_forgotten,
    stopped_immediately,
    too_many,
)
from cerniq_pipeline_tests.faults.shift_process import HELD, Crew, Servers, ShiftOrder, Trap
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

DIED = -signal.SIGKILL


@pytest.fixture
def crew(
    database_url: str, redis: Redis, redis_server: EmbeddedRedis, sandbox: RunningSandbox
) -> Iterator[Crew]:
    crew = Crew(Servers(database_url, redis_server.url(), sandbox.public_url))
    yield crew
    crew.dismiss()


# ── kill -9 of a shift ────────────────────────────────────────────────────────────────────────

ALL_SENT = {"message": 3, "chat_message": 3}
FIRST_LOST = {"message": 2, "chat_message": 2}
FOLLOW_UP_LOST = {"message": 3, "chat_message": 2}

KILLS = [
    # A first message: the second of the three that the phone may open today.
    ("lease_before_commit", 1, ALL_SENT),
    ("lease_committed", 1, ALL_SENT),
    ("quota_reserved_in_redis", 2, ALL_SENT),
    ("claim_before_commit", 2, ALL_SENT),
    ("claim_committed", 2, FIRST_LOST),
    ("call_before_first_byte", 2, FIRST_LOST),
    ("call_answered", 2, ALL_SENT),
    ("record_before_commit", 2, ALL_SENT),
    ("record_committed", 2, ALL_SENT),
    ("quota_settled_in_redis", 2, ALL_SENT),
    ("lease_released", 1, ALL_SENT),
    # A follow-up: the second one, after three first messages.
    ("claim_before_commit", 5, ALL_SENT),
    ("claim_committed", 5, FOLLOW_UP_LOST),
    ("chat_looked_up", 2, FOLLOW_UP_LOST),
    ("call_before_first_byte", 5, FOLLOW_UP_LOST),
    ("call_answered", 5, ALL_SENT),
    ("record_before_commit", 5, ALL_SENT),
    ("record_committed", 5, ALL_SENT),
]


@pytest.mark.parametrize(("point", "nth", "accepted"), KILLS)
def test_a_shift_killed_anywhere_repeats_nothing_and_loses_at_most_what_it_had_begun(
    crew: Crew, sandbox: RunningSandbox, point: str, nth: int, accepted: dict[str, int]
):
    plan(crew, follow_up=True)

    killed = crew.work(trap=Trap(point, nth))
    next_one = crew.work()
    crew.come_to_rest()

    assert killed.exit_code == DIED
    assert next_one.ended.startswith("nothing is due")  # a dead holder is noticed at once
    assert Counter(line["kind"] for line in sandbox.accepted()) == accepted
    at_rest = {"sent": sum(accepted.values()), "deferred": 1}  # one lead more than today's limit
    assert states(crew.engine) == at_rest | ({} if accepted is ALL_SENT else {"parked": 1})
    check(crew, sandbox)
    compare_gate(crew.desk)
    assert compare_gate(crew.desk) == 0


def test_every_checkpoint_has_been_died_at():
    assert {point for point, _, _ in KILLS} == set(checkpoints.NAMES)


def test_many_kills_in_one_campaign_leave_each_lead_with_one_message_or_before_a_person(
    crew: Crew, sandbox: RunningSandbox
):
    plan(crew, leads=20, limit=20)
    points = [point for point, _, _ in KILLS[2:9]]

    for point in points:
        assert crew.work(trap=Trap(point, 2)).exit_code == DIED
    crew.come_to_rest()

    assert states(crew.engine) == {"sent": 18, "parked": 2}
    assert len(sandbox.accepted()) == 18
    check(crew, sandbox, limit=20)


# ── A provider that falls silent, and a shift that dies with it ───────────────────────────────


@pytest.mark.parametrize(
    ("point", "shown"),
    [
        ("call_answered", True),
        ("record_before_commit", True),
        ("record_committed", True),
        ("call_answered", False),  # the history does not have it
    ],
)
def test_a_send_that_was_accepted_and_cut_off_is_found_or_parked_and_never_repeated(
    crew: Crew, sandbox: RunningSandbox, point: str, shown: bool
):
    plan(crew)
    sandbox.fault("accept_then_cut", after=1, times=1)
    if not shown:
        sandbox.fault("history_hidden")

    assert crew.work(trap=Trap(point, 2)).exit_code == DIED
    crew.come_to_rest()

    assert len(sandbox.accepted()) == 3
    in_doubt = {} if shown else {"parked": 1}
    assert states(crew.engine) == {"sent": 3 - len(in_doubt), "deferred": 1, **in_doubt}
    check(crew, sandbox)


def test_a_shift_killed_while_the_provider_thinks_leaves_a_message_that_is_found(
    crew: Crew, sandbox: RunningSandbox
):
    plan(crew)
    sandbox.fault("late", delay_ms=20_000, after=1, times=1)

    shift = crew.start()
    wait_for(lambda: len(sandbox.accepted()) == 2)
    shift.signal(signal.SIGKILL)
    assert shift.wait().exit_code == DIED
    crew.come_to_rest()

    assert len(sandbox.accepted()) == 3
    assert states(crew.engine) == {"sent": 3, "deferred": 1}
    check(crew, sandbox)


# ── SIGSTOP: a shift that stands still ────────────────────────────────────────────────────────


@pytest.mark.parametrize("point", ["claim_committed", "call_before_first_byte"])
def test_a_shift_that_stood_still_past_its_lease_is_ended_before_it_is_replaced(
    crew: Crew, sandbox: RunningSandbox, point: str
):
    plan(crew)
    frozen = crew.start(trap=Trap(point, 2, signal.SIGSTOP))
    frozen.wait_until_stopped()
    assert crew.work().ended == HELD  # its lease still runs

    crew.servers.move_time(leasing.LEASE + timedelta(seconds=1))
    assert crew.work().outcomes == {"sent": 1}
    frozen.signal(signal.SIGCONT)

    assert frozen.wait().exit_code == DIED
    crew.come_to_rest()
    assert len(sandbox.accepted()) == 2
    assert states(crew.engine) == {"sent": 2, "parked": 1, "deferred": 1}
    check(crew, sandbox)


def test_a_shift_that_wakes_up_within_its_lease_sends_what_it_had_claimed(
    crew: Crew, sandbox: RunningSandbox
):
    plan(crew)
    frozen = crew.start(trap=Trap("call_before_first_byte", 2, signal.SIGSTOP))
    frozen.wait_until_stopped()

    crew.servers.move_time(CALL_DEADLINE - timedelta(seconds=5))
    frozen.signal(signal.SIGCONT)

    assert frozen.wait().outcomes == {"sent": 3}
    check(crew, sandbox)


@pytest.mark.parametrize(
    ("late", "goes_on"),
    [
        (CALL_DEADLINE + timedelta(seconds=1), True),
        (leasing.LEASE + timedelta(seconds=1), False),
    ],
    ids=["past the deadline", "past the lease"],
)
def test_a_shift_that_wakes_up_too_late_sends_nothing_of_what_it_had_claimed(
    crew: Crew, sandbox: RunningSandbox, late: timedelta, goes_on: bool
):
    plan(crew, leads=2, limit=2)
    frozen = crew.start(trap=Trap("call_before_first_byte", 2, signal.SIGSTOP))
    frozen.wait_until_stopped()

    crew.servers.move_time(late)
    frozen.signal(signal.SIGCONT)
    if goes_on:
        wait_for(lambda: states(crew.engine) == {"sent": 1, "deferred": 1})
        assert len(sandbox.accepted()) == 1
        crew.servers.move_time(timedelta(seconds=31))  # the wait before another try
    woken = frozen.wait()

    assert woken.outcomes == ({"sent": 2, "deferred": 1} if goes_on else {"sent": 1, "deferred": 1})
    assert woken.ended.startswith("nothing is due" if goes_on else "replaced")
    crew.servers.move_time(timedelta(seconds=31))
    crew.come_to_rest()
    assert len(sandbox.accepted()) == 2
    check(crew, sandbox, limit=2)


def test_a_step_of_the_wall_clock_does_not_make_a_living_holder_look_dead(
    monkeypatch: pytest.MonkeyPatch,
):
    me = leasing.this_process("test")
    # What the kernel answers after somebody has set the clock: the machine seems to have started
    # at another time. The clock of the machine that runs the tests is not ours to set.
    booted = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted + 3600)

    assert psutil.Process().create_time() > time.time()  # the step is really seen
    assert leasing.is_alive(me)


# ── Redis ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def frail_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A Redis that tests may break."""
    server = EmbeddedRedis(tmp_path_factory.mktemp("frail-redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_crew(
    database_url: str, frail_redis: EmbeddedRedis, sandbox: RunningSandbox
) -> Iterator[Crew]:
    frail_redis.stop()  # what the last test told it is forgotten
    frail_redis.start()
    with Redis.from_url(frail_redis.url()) as client:
        client.flushall()
    crew = Crew(Servers(database_url, frail_redis.url(), sandbox.public_url))
    yield crew
    crew.dismiss()


@pytest.mark.xdist_group("frail_redis")
@pytest.mark.parametrize("break_it", [down, full_of_memory, read_only])
def test_while_redis_cannot_count_nothing_is_sent_and_then_the_shift_goes_on(
    redis_crew: Crew,
    frail_redis: EmbeddedRedis,
    sandbox: RunningSandbox,
    break_it: Callable[[EmbeddedRedis], Callable[[], object]],
):
    plan(redis_crew, leads=12, limit=5)
    shift = redis_crew.start(trap=Trap("claim_committed", 2, signal.SIGSTOP))
    shift.wait_until_stopped()

    mend = break_it(frail_redis)
    shift.signal(signal.SIGCONT)
    wait_for(lambda: states(redis_crew.engine).get("sent") == 2)  # the one it had claimed before
    second = redis_crew.start(longest=timedelta(seconds=1), insists=True)
    time.sleep(0.5)  # ten claims
    while_broken = len(sandbox.accepted())
    mend()

    assert while_broken == 2
    assert shift.wait().outcomes == {"sent": 5}
    assert second.wait().outcomes == {}
    assert len(sandbox.accepted()) == 5
    check(redis_crew, sandbox, limit=5)


@pytest.mark.xdist_group("frail_redis")
@pytest.mark.parametrize(
    ("spoil", "point"),
    [
        (flushed, "quota_reserved_in_redis"),
        (flushed, "record_committed"),
        (evicted, "record_committed"),
        (of_another_type, "quota_reserved_in_redis"),
        (of_another_type, "record_committed"),
        (epoch_of_another_type, "record_committed"),
        (scripts_forgotten, "record_committed"),
        (too_many, "record_committed"),
    ],
)
def test_whatever_redis_shows_in_the_middle_of_a_shift_the_ledger_keeps_the_quota(
    redis_crew: Crew,
    frail_redis: EmbeddedRedis,
    sandbox: RunningSandbox,
    spoil: Callable[[Redis, str], None],
    point: str,
):
    plan(redis_crew, leads=12, limit=5)
    shift = redis_crew.start(trap=Trap(point, 3, signal.SIGSTOP))
    shift.wait_until_stopped()

    with Redis.from_url(frail_redis.url()) as client:
        spoil(client, quota_key(redis_crew))
    shift.signal(signal.SIGCONT)

    assert shift.wait().outcomes == {"sent": 5}
    assert len(sandbox.accepted()) == 5
    check(redis_crew, sandbox, limit=5)


@pytest.mark.xdist_group("frail_redis")
def test_a_storm_of_flushes_costs_no_message_and_no_quota(
    redis_crew: Crew, frail_redis: EmbeddedRedis, sandbox: RunningSandbox
):
    plan(redis_crew, leads=8, limit=8)
    over = threading.Event()

    def storm() -> None:
        with Redis.from_url(frail_redis.url()) as client:
            while not over.wait(0.001):
                client.flushall()

    with running(storm, over):
        shift = redis_crew.start(longest=timedelta(seconds=3))
        time.sleep(1)
    shift.wait()
    redis_crew.come_to_rest()

    assert len(sandbox.accepted()) == 8
    check(redis_crew, sandbox, limit=8)


# ── Postgres ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def frail_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that tests may break."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("frail-postgres"), durable=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postgres_crew(
    frail_postgres: EmbeddedPostgres,
    redis: Redis,
    redis_server: EmbeddedRedis,
    sandbox: RunningSandbox,
    request: pytest.FixtureRequest,
) -> Iterator[Crew]:
    frail_postgres.start()
    name = f"t_{abs(hash(request.node.name)):x}"
    frail_postgres.create_database(name)
    upgrade(frail_postgres.url(name))
    crew = Crew(Servers(frail_postgres.url(name), redis_server.url(), sandbox.public_url))
    yield crew
    crew.dismiss()


@pytest.mark.xdist_group("frail_postgres")
@pytest.mark.parametrize(
    ("point", "end"),
    [
        ("claim_before_commit", killed),
        ("claim_committed", stopped_immediately),
        ("call_answered", killed),
        ("record_before_commit", stopped_immediately),
    ],
)
def test_a_shift_outlives_a_restart_of_postgres_and_repeats_nothing(
    postgres_crew: Crew,
    frail_postgres: EmbeddedPostgres,
    sandbox: RunningSandbox,
    point: str,
    end: Callable[[EmbeddedPostgres], None],
):
    plan(postgres_crew, leads=12, limit=5)
    shift = postgres_crew.start(trap=Trap(point, 2, signal.SIGSTOP), nap=2.0)
    shift.wait_until_stopped()

    end(frail_postgres)
    shift.signal(signal.SIGCONT)
    frail_postgres.start()

    assert shift.wait().outcomes == {"sent": 5}
    assert len(sandbox.accepted()) == 5
    check(postgres_crew, sandbox, limit=5)


def test_a_commit_whose_answer_got_lost_is_neither_repeated_nor_forgotten(
    crew: Crew, sandbox: RunningSandbox
):
    plan(crew, leads=24, limit=3, phones=8)
    orders = [ShiftOrder(f"acme-{n:02d}", unheard=n) for n in range(1, 9)]  # each another commit

    shifts = [crew.ready(order) for order in orders]
    for shift in shifts:
        shift.go()
    for shift in shifts:
        shift.wait()
    crew.come_to_rest()

    assert states(crew.engine) == {"sent": 24}
    assert len(sandbox.accepted()) == 24
    check(crew, sandbox)


@pytest.mark.xdist_group("frail_postgres")
def test_connections_cut_at_any_moment_cost_no_message_and_repeat_none(
    postgres_crew: Crew, frail_postgres: EmbeddedPostgres, sandbox: RunningSandbox
):
    plan(postgres_crew, leads=30, limit=25)
    over = threading.Event()
    admin = create_engine(frail_postgres.url("postgres"), isolation_level="AUTOCOMMIT")

    def cut() -> None:
        with admin.connect() as conn:
            while not over.wait(0.03):
                conn.execute(
                    text("""
                        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                        WHERE pid <> pg_backend_pid() AND datname LIKE 't\\_%'
                    """)
                )

    order = ShiftOrder(longest=timedelta(seconds=2), nap=0.2)
    shifts = [postgres_crew.ready(order) for _ in range(2)]
    with running(cut, over):
        for shift in shifts:  # whether one goes on or gives up, the next finds all in order
            shift.go()
            shift.wait()
    admin.dispose()
    postgres_crew.come_to_rest()

    found = states(postgres_crew.engine)
    assert found["sent"] + found.get("parked", 0) == 25
    check(postgres_crew, sandbox, limit=25)
