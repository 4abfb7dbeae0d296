"""What Dagster runs for the inbox: one drain at a time, asked for when events wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.defs import replies, resources
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.services import drain
from cerniq_pipeline.settings import Settings
from cerniq_pipeline.store import inbox, run_leases
from cerniq_pipeline.store.database import DatabaseClock
from cerniq_pipeline_tests.builders import ManualClock, a_desk, a_world, the_row
from cerniq_pipeline_tests.sandbox.running import RunningSandbox


@pytest.fixture
def opened(
    database: Engine, redis: Redis, sandbox: RunningSandbox, monkeypatch: pytest.MonkeyPatch
) -> Engine:
    """The resources of this process open the servers of this test."""
    with database.begin() as conn:
        a_world(conn)
    desk = a_desk(database, redis, sandbox, ManualClock(datetime.now(UTC)))
    told = Settings(
        database_url="postgresql://unused/unused", redis_url="redis://unused", secret_key="x"
    )
    monkeypatch.setattr(resources, "_engine", lambda: database)
    monkeypatch.setattr(resources, "_clock", lambda: DatabaseClock(database))
    monkeypatch.setattr(resources.Senders, "desk", lambda _: desk)
    monkeypatch.setattr(replies, "settings", lambda: told)
    return database


@pytest.fixture
def instance() -> dg.DagsterInstance:
    return dg.DagsterInstance.ephemeral()


def store(database: Engine) -> None:
    with database.begin() as conn:
        copy = InboundCopy("timelinesai", "k", "odd", "+40790000000", "+40721000000", b"{}")
        inbox.keep(conn, [copy], source="webhook", now=datetime.now(UTC))


def tick(instance: dg.DagsterInstance) -> dg.SensorExecutionData:
    context = dg.build_sensor_context(
        instance=instance,
        resources={"database": resources.Database(), "senders": resources.Senders()},
        definitions=dg.Definitions.merge(replies.defs, resources.defs),
    )
    return replies.stored_webhooks.evaluate_tick(context)


def a_run(instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    return instance.create_run_for_job(replies.drain_inbox, status=status)


def hold_lease(database: Engine, holder: str) -> None:
    with database.begin() as conn:
        now = datetime.now(UTC)
        until = now + timedelta(minutes=1)
        assert run_leases.take(conn, drain.LEASE, holder=holder, until=until, now=now)


def test_nothing_waits_and_nobody_is_asked(opened: Engine, instance: dg.DagsterInstance):
    assert tick(instance).skip_message == "no event waits"


def test_an_event_that_waits_is_heard_at_once_and_asks_for_a_drain(
    opened: Engine, instance: dg.DagsterInstance
):
    store(opened)
    assert len(tick(instance).run_requests or []) == 1
    assert the_row(opened, "SELECT state FROM webhook_events") == {"state": "dead"}


def test_a_drain_that_is_still_starting_lets_the_tick_hear(
    opened: Engine, instance: dg.DagsterInstance
):
    a_run(instance, dg.DagsterRunStatus.STARTING)
    store(opened)
    assert tick(instance).skip_message == "a drain is under way; 1 dead"
    assert the_row(opened, "SELECT state FROM webhook_events") == {"state": "dead"}


def test_a_drain_at_work_is_left_alone(opened: Engine, instance: dg.DagsterInstance):
    run = a_run(instance, dg.DagsterRunStatus.STARTED)
    hold_lease(opened, run.run_id)
    store(opened)
    assert tick(instance).skip_message == "a drain is under way; it hears everything"
    assert the_row(opened, "SELECT state FROM webhook_events") == {"state": "waiting"}


def test_a_run_drains_and_says_what_it_did(
    opened: Engine, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
):
    store(opened)
    monkeypatch.setattr(drain.drain, "__kwdefaults__", {"linger": timedelta()})
    result = replies.drain_inbox.execute_in_process(
        instance=instance,
        resources={"senders": resources.Senders()},
    )
    (output,) = result.filter_events(lambda one: one.is_successful_output)
    told = {name: value.value for name, value in output.step_output_data.metadata.items()}
    assert told == {"ended": "nothing came for a while", "dead": 1}
    assert the_row(opened, "SELECT state FROM webhook_events") == {"state": "dead"}
