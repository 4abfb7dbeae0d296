"""Our phones write to each other: by every rule, at most once, and the silent one is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.providers.calls import open_client
from cerniq_pipeline.providers.timelinesai.history import PublicHistory
from cerniq_pipeline.services import checkpoints, leasing
from cerniq_pipeline.services.heartbeat import (
    HEARD_WITHIN,
    beat,
    settle_heartbeats,
    settle_until_quiet,
    work_to_do,
)
from cerniq_pipeline.services.leasing import this_process
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline_tests.builders import (
    ManualClock,
    a_desk,
    a_world,
    rows,
    run_sql,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

THEN = datetime(2024, 11, 20, 10, 0, tzinfo=UTC)
"""A working noon of the past: the sandbox's own clock is real, and runs after it."""

EVERY = timedelta(minutes=60)
AT_ONCE = timedelta()


@dataclass
class House:
    """A tenant with heartbeats, its phones all linked."""

    database: Engine
    sandbox: RunningSandbox
    clock: ManualClock
    desk: Desk

    def beat(self, *, patience: timedelta = AT_ONCE) -> Counter[str]:
        return beat(self.desk, this_process("heartbeat"), patience=patience)

    def settle(self) -> Counter[str]:
        return settle_heartbeats(self.desk)

    def outcomes(self) -> list[object]:
        found = rows(self.database, "SELECT outcome FROM heartbeats ORDER BY id")
        return [row["outcome"] for row in found]

    def alerts(self) -> list[tuple[object, object]]:
        found = rows(
            self.database, "SELECT kind, subject FROM alerts WHERE closed_at IS NULL ORDER BY id"
        )
        return [(row["kind"], row["subject"]) for row in found]


Build = Callable[..., House]


@pytest.fixture
def house(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Build:
    def build(*, phones: int = 2, minutes: int = 60, **tenant: Any) -> House:
        clock = ManualClock(THEN)
        with database.begin() as conn:
            world = a_world(conn, phones=phones, heartbeat_minutes=minutes, **tenant)
        sandbox.set_accounts(**{f"+4079000{n:04d}": "active" for n in range(len(world.phones))})
        history = PublicHistory(open_client(sandbox.public_url, "sandbox-token"))
        desk = replace(a_desk(database, redis, sandbox, clock), histories={"timelinesai": history})
        return House(database, sandbox, clock, desk)

    return build


def test_each_phone_writes_to_another_and_is_heard(house: Build):
    home = house(phones=3)
    assert work_to_do(home.desk)
    assert home.beat() == {"sent": 3}
    assert work_to_do(home.desk)
    sent = [(line["sender"][-1], line["recipient"][-1]) for line in home.sandbox.accepted()]
    assert sent == [("0", "1"), ("1", "0"), ("2", "0")]
    assert home.settle() == {"seen": 3}
    assert home.outcomes() == ["seen"] * 3
    assert home.alerts() == []
    # No quota, no lead and no log has anything to do with it.
    for table in ("quota_ledger", "gold_communication_log", "outbox_messages", "send_attempts"):
        assert rows(home.database, f"SELECT 1 FROM {table}") == []
    assert {row["holder"] for row in rows(home.database, "SELECT holder FROM phone_leases")} == {
        None
    }

    assert not work_to_do(home.desk)
    assert home.beat() == {}  # not due yet
    home.clock.move(EVERY)
    assert home.beat() == {"sent": 3}
    sent = [(line["sender"][-1], line["recipient"][-1]) for line in home.sandbox.accepted()]
    assert sent[3:] == [("0", "2"), ("1", "2"), ("2", "1")]  # in turn


@pytest.mark.parametrize(
    ("phones", "tenant", "sql"),
    [
        (2, {"minutes": 0}, None),
        (2, {"status": "paused"}, None),
        (1, {}, None),
        (2, {}, "UPDATE wa_phone_numbers SET status = 'OFFLINE' WHERE id = 'acme-02'"),
        (2, {}, "UPDATE wa_phone_numbers SET is_enabled = false WHERE id = 'acme-02'"),
    ],
    ids=["off", "paused", "alone", "the other is offline", "the other is disabled"],
)
def test_nothing_is_due_without_two_phones_that_may_write(
    house: Build, phones: int, tenant: dict[str, object], sql: str | None
):
    home = house(phones=phones, **tenant)
    if sql:
        run_sql(home.database, sql)
    assert home.beat() == {}
    assert home.sandbox.accepted() == []


@pytest.mark.parametrize(
    ("sql", "rule"),
    [
        (
            "INSERT INTO switches VALUES ('global', '', 'a test', 'test', now())",
            "switched_off",
        ),
        ("UPDATE tenants SET closes = 600", "outside_hours"),
        ("UPDATE tenants SET working_days = '{6}'", "outside_hours"),
        (
            "UPDATE wa_phone_numbers SET next_send_at = '2024-11-20 11:00+00'",
            "pacing",
        ),
        (
            "INSERT INTO breakers (scope, key, state, probe_at, changed_at) "
            "VALUES ('provider', 'timelinesai', 'open', '2024-11-20 11:00+00', now())",
            "breaker_open",
        ),
    ],
)
def test_a_heartbeat_skips_no_rule(house: Build, sql: str, rule: str):
    home = house()
    run_sql(home.database, sql)
    assert work_to_do(home.desk) is (rule == "pacing")
    assert home.beat() == {f"held: {rule}": 2}
    assert home.sandbox.accepted() == []
    assert home.outcomes() == []


def test_a_heartbeat_waits_for_the_gap_and_leaves_one_behind(house: Build):
    home = house(gap_least_seconds=30, gap_spread_seconds=0)
    ready = THEN + timedelta(seconds=100)
    run_sql(home.database, "UPDATE wa_phone_numbers SET next_send_at = :at", at=ready)
    assert home.beat() == {"sent": 1}  # the wait took all the time there was
    assert home.beat() == {"sent": 1}
    begun = rows(home.database, "SELECT begun_at FROM heartbeats ORDER BY id")
    assert all(row["begun_at"] >= ready for row in begun)  # pyright: ignore[reportOperatorIssue]
    phone = the_row(home.database, "SELECT next_send_at FROM wa_phone_numbers WHERE id = 'acme-02'")
    assert phone["next_send_at"] == home.clock.now() + timedelta(seconds=30)


def test_a_heartbeat_counts_against_the_rate_of_the_account(house: Build):
    home = house(phones=3)
    home.desk = replace(home.desk, sends_per_minute=2)
    assert home.beat(patience=2 * HEARD_WITHIN) == {"sent": 3}
    begun = [row["begun_at"] for row in rows(home.database, "SELECT begun_at FROM heartbeats")]
    assert sorted(begun) == [THEN, THEN, THEN + timedelta(minutes=1)]  # pyright: ignore[reportArgumentType]


def test_a_phone_on_shift_is_waited_for_and_never_interrupted(house: Build):
    home = house()
    shift = leasing.acquire(
        home.database.begin, "acme-01", this_process("shift"), now=home.clock.now()
    )
    assert shift is not None
    assert home.beat() == {"busy": 1, "sent": 1}
    assert [line["sender"][-1] for line in home.sandbox.accepted()] == ["1"]

    sleep = home.clock.sleep

    def shift_ends(seconds: float) -> None:
        leasing.give_back(home.database.begin, shift)
        sleep(seconds)

    home.clock.sleep = shift_ends  # pyright: ignore[reportAttributeAccessIssue]
    assert home.beat(patience=timedelta(minutes=1)) == {"sent": 1}
    assert [line["sender"][-1] for line in home.sandbox.accepted()] == ["1", "0"]


def test_a_message_that_never_arrives_tells_of_a_dead_phone_until_the_next_is_heard(house: Build):
    home = house()
    dead = home.sandbox.fault("not_delivered", phone="+40790000000")
    home.beat()
    assert home.settle() == {"seen": 1, "waiting": 1}
    home.clock.move(HEARD_WITHIN - timedelta(seconds=1))
    assert home.settle() == {"waiting": 1}
    assert home.alerts() == []
    home.clock.move(timedelta(seconds=1))
    assert home.settle() == {"lost": 1}
    assert home.alerts() == [("phone_dead", "acme-01")]

    home.clock.move(EVERY)
    home.beat()
    home.clock.move(HEARD_WITHIN)
    assert home.settle() == {"seen": 1, "lost": 1}
    assert len(rows(home.database, "SELECT 1 FROM alerts")) == 1

    home.sandbox.lift(dead)
    home.clock.move(EVERY)
    home.beat()
    assert home.settle() == {"seen": 2}
    assert home.alerts() == []


def test_what_cannot_be_read_is_not_taken_for_silence(house: Build):
    home = house()
    home.beat()
    fault = home.sandbox.fault("server_error", operation="chats")
    home.clock.move(2 * HEARD_WITHIN)
    assert home.settle() == {"unreadable": 2}
    assert home.alerts() == []
    home.sandbox.lift(fault)
    assert settle_until_quiet(home.desk, longest=HEARD_WITHIN) == {"seen": 2}


def test_one_at_a_time_is_under_way_per_phone(house: Build):
    home = house()
    home.beat()
    home.clock.move(2 * EVERY)
    assert home.beat() == {}
    home.settle()
    assert home.beat() == {"sent": 2}


@pytest.mark.parametrize(
    ("fault", "result", "alert"),
    [
        ("cut_before_accept", "unconfirmed", None),
        ("rate_limited", "not sent", None),
        ("banned", "not sent", "phone_banned"),
        ("suspended", "not sent", "account_suspended"),
    ],
)
def test_a_refusal_is_settled_at_once_and_has_its_usual_consequences(
    house: Build, fault: str, result: str, alert: str | None
):
    home = house()
    home.sandbox.fault(fault, times=1)
    assert home.beat()[result] == 1
    assert home.outcomes()[0] == (None if result == "unconfirmed" else "not_sent")
    assert [kind for kind, _ in home.alerts()] == ([alert] if alert else [])
    assert len(home.sandbox.journal("request")) == (1 if alert else 2)  # never tried again
    home.clock.move(HEARD_WITHIN)
    home.settle()
    assert "phone_dead" not in [kind for kind, _ in home.alerts()]


def test_a_message_that_left_from_another_phone_stops_the_account(house: Build):
    home = house()
    home.sandbox.fault("wrong_phone", as_phone="+40790000001", times=1, phone="+40790000000")
    assert home.beat()["wrong sender"] == 1
    assert ("wrong_sender", "timelinesai") in home.alerts()
    assert len(home.sandbox.accepted()) == 1


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize(
    "place",
    [
        "lease_before_commit",
        "lease_committed",
        "claim_before_commit",
        "claim_committed",
        "call_before_first_byte",
        "call_answered",
        "record_before_commit",
        "record_committed",
        "lease_released",
    ],
)
def test_a_crash_anywhere_sends_no_second_message_and_frees_the_phone(
    house: Build, monkeypatch: pytest.MonkeyPatch, place: str
):
    home = house()

    def die(name: str) -> None:
        if name == place:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "reach", die)
        with pytest.raises(Died):
            home.beat()
    # Its process is gone, so whoever comes next sees that nobody is there.
    run_sql(home.database, "UPDATE phone_leases SET pid_started = 0 WHERE holder IS NOT NULL")
    before = len(home.sandbox.accepted())
    home.beat()
    per_phone = Counter(line["sender"] for line in home.sandbox.accepted())
    assert max(per_phone.values()) == 1
    assert len(home.sandbox.accepted()) > before
    home.clock.move(HEARD_WITHIN)
    assert "lost" not in home.settle()
    assert home.alerts() == []
    home.clock.move(EVERY)
    assert home.beat() == {"sent": 2}


class StandsStill(ManualClock):
    """A clock under which a short wait takes longer than a lease lasts."""

    def sleep(self, seconds: float) -> None:
        self.move(leasing.LEASE + timedelta(seconds=1))


def test_a_lease_that_ran_out_while_a_phone_waited_is_given_back_and_nothing_is_sent(house: Build):
    """This process lives on: whoever finds it holding an expired lease would end it."""
    home = house()
    run_sql(home.database, "UPDATE wa_phone_numbers SET next_send_at = :at",
            at=THEN + timedelta(seconds=30))  # fmt: skip
    home.desk = replace(home.desk, clock=StandsStill(THEN))

    assert home.beat()["replaced"] >= 1

    first = rows(home.database, "SELECT holder FROM phone_leases WHERE phone_id = 'acme-01'")
    assert first == [{"holder": None}]
    assert [line["sender"] for line in home.sandbox.accepted()].count("+40790000000") == 0
