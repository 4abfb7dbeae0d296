"""A phone that is gone stops, one that is back goes on, and a failed read is no answer."""

from __future__ import annotations

from datetime import timedelta

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.outbox import Connection
from cerniq_pipeline.services.phone_status import sync
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import phone_health
from cerniq_pipeline_tests.builders import (
    NOON,
    ManualClock,
    a_desk,
    a_world,
    rows,
    run_sql,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

ONE, TWO = "+40790000000", "+40790000001"
LATER = timedelta(minutes=10)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture(params=["public", "v1"])
def desk(
    database: Engine,
    redis: Redis,
    sandbox: RunningSandbox,
    clock: ManualClock,
    request: pytest.FixtureRequest,
) -> Desk:
    """A tenant with two linked phones, in each of the vendor's dialects."""
    with database.begin() as conn:
        a_world(conn, phones=2)
    sandbox.set_accounts(**{ONE: "active", TWO: "active"})
    return a_desk(database, redis, sandbox, clock, dialect=request.param)


def statuses(database: Engine) -> dict[str, str]:
    found = rows(database, "SELECT id, status, is_online FROM wa_phone_numbers ORDER BY id")
    assert all(row["is_online"] == (row["status"] == "ACTIVE") for row in found)
    return {str(row["id"]): str(row["status"]) for row in found}


def alerts(database: Engine, *, state: str = "open") -> list[tuple[object, object]]:
    asked = "IS NULL" if state == "open" else "IS NOT NULL"
    found = rows(database, f"SELECT kind, subject FROM alerts WHERE closed_at {asked} ORDER BY id")
    return [(row["kind"], row["subject"]) for row in found]


def test_linked_phones_stay_as_they_are(database: Engine, desk: Desk):
    changes = sync(desk)
    assert [(one.phone_id, one.before, one.status, one.error) for one in changes] == [
        ("acme-01", "ACTIVE", "ACTIVE", None),
        ("acme-02", "ACTIVE", "ACTIVE", None),
    ]
    assert alerts(database) == []
    checked = rows(database, "SELECT last_health_check_at, status_changed_at FROM wa_phone_numbers")
    assert checked == [{"last_health_check_at": NOON, "status_changed_at": None}] * 2


def test_a_phone_goes_offline_is_told_once_and_comes_back_by_itself(
    database: Engine, desk: Desk, sandbox: RunningSandbox, clock: ManualClock
):
    sandbox.set_accounts(**{TWO: "disconnected"})
    sync(desk)
    assert statuses(database) == {"acme-01": "ACTIVE", "acme-02": "OFFLINE"}
    gone = the_row(database, "SELECT * FROM wa_phone_numbers WHERE id = 'acme-02'")
    assert gone["status_changed_at"] == NOON
    assert gone["status_reason"]
    assert alerts(database) == [("phone_offline", "acme-02")]

    clock.move(LATER)
    sync(desk)
    assert len(rows(database, "SELECT 1 FROM alerts")) == 1
    gone = the_row(database, "SELECT status_changed_at FROM wa_phone_numbers WHERE id = 'acme-02'")
    assert gone["status_changed_at"] == NOON  # since when it is gone, not when we last looked

    sandbox.set_accounts(**{TWO: "active"})
    clock.move(LATER)
    (_, back) = sync(desk)
    assert (back.before, back.status) == ("OFFLINE", "ACTIVE")
    assert statuses(database) == {"acme-01": "ACTIVE", "acme-02": "ACTIVE"}
    assert alerts(database) == []
    assert alerts(database, state="closed") == [("phone_offline", "acme-02")]


def test_a_banned_phone_stays_banned_until_a_person_says_otherwise(
    database: Engine, desk: Desk, sandbox: RunningSandbox
):
    run_sql(
        database,
        "UPDATE wa_phone_numbers SET status = 'BANNED', is_online = false WHERE id = 'acme-01'",
    )
    sync(desk)
    assert statuses(database)["acme-01"] == "BANNED"
    sandbox.set_accounts(**{ONE: "disconnected"})
    sync(desk)
    assert statuses(database)["acme-01"] == "BANNED"
    assert alerts(database) == []


def test_what_cannot_be_read_changes_no_status_and_is_noted_per_phone(
    database: Engine, desk: Desk, sandbox: RunningSandbox, clock: ManualClock
):
    sandbox.set_accounts(**{TWO: "disconnected"})
    sync(desk)
    sandbox.set_accounts(**{ONE: "disconnected", TWO: "active"})
    fault = sandbox.fault("server_error", operation="accounts")
    clock.move(LATER)
    sync(desk)
    assert statuses(database) == {"acme-01": "ACTIVE", "acme-02": "OFFLINE"}
    seen = rows(database, "SELECT last_sync_error, last_health_check_at FROM wa_phone_numbers")
    assert all(row["last_sync_error"] for row in seen)
    assert {row["last_health_check_at"] for row in seen} == {NOON + LATER}
    assert alerts(database) == [("phone_offline", "acme-02")]

    sandbox.lift(fault)
    sync(desk)
    assert statuses(database) == {"acme-01": "OFFLINE", "acme-02": "ACTIVE"}
    assert rows(database, "SELECT DISTINCT last_sync_error FROM wa_phone_numbers") == [
        {"last_sync_error": None}
    ]


def test_a_phone_of_a_provider_without_a_channel_is_unreadable_not_offline(
    database: Engine, desk: Desk
):
    run_sql(
        database,
        "UPDATE wa_phone_numbers SET provider = 'meta', meta_phone_number_id = '109' "
        "WHERE id = 'acme-02'",
    )
    changes = {one.phone_id: one.error for one in sync(desk)}
    assert changes["acme-01"] is None
    assert "meta" in str(changes["acme-02"])
    assert statuses(database) == {"acme-01": "ACTIVE", "acme-02": "ACTIVE"}


def test_a_word_that_is_older_than_the_last_change_is_not_believed(database: Engine):
    """A send that was refused while we asked knows better than the answer we got."""
    with database.begin() as conn:
        a_world(conn)
    run_sql(
        database,
        "UPDATE wa_phone_numbers SET status = 'OFFLINE', is_online = false, "
        "status_changed_at = :at",
        at=NOON + timedelta(seconds=1),
    )
    linked = {"acme-01": Connection(True, "active")}
    with database.begin() as conn:
        phone_health.apply_links(conn, linked, asked_at=NOON, now=NOON + timedelta(seconds=2))
    assert statuses(database) == {"acme-01": "OFFLINE"}
    with database.begin() as conn:
        later = NOON + timedelta(seconds=3)
        phone_health.apply_links(conn, linked, asked_at=later, now=later)
    assert statuses(database) == {"acme-01": "ACTIVE"}
