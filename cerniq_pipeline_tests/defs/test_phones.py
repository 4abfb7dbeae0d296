"""What Dagster runs for the phones: ticks that do the work themselves, runs for what takes long."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.defs import phones, resources
from cerniq_pipeline.domain.reads import LIMITS
from cerniq_pipeline.providers.calls import open_client
from cerniq_pipeline.providers.timelinesai.history import PublicHistory
from cerniq_pipeline.services.reads import turns
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline_tests.builders import (
    ManualClock,
    a_desk,
    a_world,
    rows,
    run_sql,
    some_leads,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

THEN = datetime(2024, 11, 20, 10, 0, tzinfo=UTC)
"""A working noon of the past: the sandbox's own clock is real, and runs after it."""

ONE, TWO, PERSON = "+40790000000", "+40790000001", "+40721000000"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(THEN)


@pytest.fixture
def desk(
    database: Engine,
    redis: Redis,
    sandbox: RunningSandbox,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Desk:
    """A tenant with two linked phones and one lead; the resources of this process open them."""
    with database.begin() as conn:
        a_world(conn, phones=2)
        some_leads(conn)
    sandbox.set_accounts(**{ONE: "active", TWO: "active"})
    history = PublicHistory(open_client(sandbox.public_url, "sandbox-token"))
    desk = replace(a_desk(database, redis, sandbox, clock), histories={"timelinesai": history})
    monkeypatch.setattr(resources, "_engine", lambda: database)
    monkeypatch.setattr(resources, "_clock", lambda: clock)
    monkeypatch.setattr(resources.Senders, "desk", lambda _: desk)
    return desk


@pytest.fixture
def instance() -> dg.DagsterInstance:
    return dg.DagsterInstance.ephemeral()


def launch(
    job: dg.JobDefinition, instance: dg.DagsterInstance, run_config: object = None
) -> dict[str, object]:
    """Run a job in this process and return its op's metadata."""
    result = job.execute_in_process(
        instance=instance,
        resources={"database": resources.Database(), "senders": resources.Senders()},
        run_config=run_config,  # pyright: ignore[reportArgumentType]
    )
    (op,) = job.nodes
    outputs = result.filter_events(
        lambda one: one.is_successful_output and one.node_name == op.name
    )
    return {name: told.value for name, told in outputs[0].step_output_data.metadata.items()}


def tick(
    sensor: dg.SensorDefinition, instance: dg.DagsterInstance, cursor: str | None = None
) -> dg.SensorExecutionData:
    context = dg.build_sensor_context(
        instance=instance,
        cursor=cursor,
        resources={"database": resources.Database(), "senders": resources.Senders()},
        definitions=dg.Definitions.merge(phones.defs, resources.defs),
    )
    return sensor.evaluate_tick(context)


def said(answer: dg.SensorExecutionData) -> str:
    assert not answer.run_requests, answer.run_requests
    return str(answer.skip_message)


def kept(database: Engine) -> int:
    return len(rows(database, "SELECT 1 FROM webhook_events"))


def test_a_status_run_shows_every_phone(
    database: Engine, desk: Desk, sandbox: RunningSandbox, instance: dg.DagsterInstance
):
    sandbox.set_accounts(**{TWO: "disconnected"})
    told = launch(phones.sync_phone_status, instance)
    assert (told["phones"], told["unreadable"]) == (2, 0)
    assert told["statuses"] == {
        "acme-01": {"before": "ACTIVE", "status": "ACTIVE", "error": None, "score": 100},
        "acme-02": {"before": "ACTIVE", "status": "OFFLINE", "error": None, "score": 60},
    }


@pytest.mark.usefixtures("desk")
def test_the_health_tick_says_who_is_silent(database: Engine, instance: dg.DagsterInstance):
    assert said(tick(phones.phone_health, instance)) == "no phone is silent"
    run_sql(
        database,
        """
        INSERT INTO gold_communication_log
          (tenant_id, lead_journey_id, channel, direction, phone_id, status, sent_at)
        SELECT 'acme', lead_id, 'WHATSAPP', direction, 'acme-01', 'SENT', at
        FROM gold_lead_journey,
          (SELECT 'OUTBOUND' AS direction, :reply - n * interval '1 minute' AS at
           FROM generate_series(1, 50) n
           UNION ALL SELECT 'INBOUND', :reply
           UNION ALL SELECT 'OUTBOUND', :reply + n * interval '1 second'
           FROM generate_series(1, 300) n) said
        """,
        reply=THEN - timedelta(days=1),
    )
    assert said(tick(phones.phone_health, instance)) == "silent: acme-01"


@pytest.mark.usefixtures("desk")
def test_missed_messages_are_found_in_the_tick_itself(
    database: Engine, sandbox: RunningSandbox, instance: dg.DagsterInstance
):
    sandbox.inbound(ONE, PERSON, "Da", at=THEN)
    assert said(tick(phones.missed_messages, instance)) == "1 missed messages found in 1 chats"
    assert kept(database) == 1


def test_a_tick_that_runs_out_of_time_asks_for_a_run_that_goes_on(
    database: Engine,
    desk: Desk,
    sandbox: RunningSandbox,
    clock: ManualClock,
    instance: dg.DagsterInstance,
):
    for n in range(5):
        sandbox.inbound(ONE, f"+4072100000{n}", "Da", at=THEN - timedelta(minutes=9 - n))
    turn = turns(desk, "timelinesai")
    for _ in range(LIMITS["history"].of_sweeps - 2):
        turn("history")
    (request,) = tick(phones.missed_messages, instance).run_requests or []
    assert request.tags["cerniq/sweep"] == "much to read"
    assert kept(database) == 2

    instance.create_run_for_job(phones.sweep_history, status=dg.DagsterRunStatus.STARTED)
    assert said(tick(phones.missed_messages, instance)) == "a sweep is under way"
    told = launch(phones.sweep_history, instance)
    assert (told["timelinesai_new"], told["timelinesai_unfinished"]) == (3, "no")
    assert kept(database) == 5


@pytest.mark.usefixtures("desk")
def test_the_nights_full_sweep_is_asked_for_once_and_not_while_nothing_can_be_read(
    sandbox: RunningSandbox, clock: ManualClock, instance: dg.DagsterInstance
):
    tick(phones.missed_messages, instance)
    clock.set(datetime(2024, 11, 21, 1, 5, tzinfo=UTC))
    fault = sandbox.fault("server_error", operation="chats")
    assert said(tick(phones.missed_messages, instance)).startswith("to be tried again")
    sandbox.lift(fault)
    asked = tick(phones.missed_messages, instance)
    (request,) = asked.run_requests or []
    assert request.tags["cerniq/sweep"] == "full"
    clock.move(timedelta(minutes=2))
    said(tick(phones.missed_messages, instance, cursor=asked.cursor))
    clock.move(phones.FULL_SWEEP_ASKED_EVERY)
    assert tick(phones.missed_messages, instance, cursor=asked.cursor).run_requests

    told = launch(phones.sweep_history, instance, request.run_config)
    assert told["full_timelinesai_unfinished"] == "no"
    said(tick(phones.missed_messages, instance))


def test_without_a_history_there_is_nothing_to_sweep(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
):
    monkeypatch.setattr(resources.Senders, "desk", lambda _: replace(desk, histories={}))
    assert said(tick(phones.missed_messages, instance)) == "no provider lists its chats"


@pytest.mark.usefixtures("desk")
def test_a_leads_chat_is_fetched_by_hand(
    database: Engine, sandbox: RunningSandbox, instance: dg.DagsterInstance
):
    sandbox.inbound(ONE, PERSON, "Bună", at=THEN)
    run_sql(database, "UPDATE gold_lead_journey SET assigned_phone_id = 'acme-01'")
    config = {"ops": {"read_chat": {"config": {"lead": PERSON}}}}
    told = launch(phones.fetch_chat_history, instance, config)
    assert (told["chats"], told["messages"], told["new"]) == (1, 1, 1)
    assert told["oldest"] == str(THEN)
    logged = the_row(database, "SELECT direction, content FROM gold_communication_log")
    assert logged == {"direction": "INBOUND", "content": "Bună"}


@pytest.mark.usefixtures("desk")
def test_heartbeats_run_only_for_tenants_that_turned_them_on(
    database: Engine, sandbox: RunningSandbox, clock: ManualClock, instance: dg.DagsterInstance
):
    assert said(tick(phones.heartbeats_due, instance)) == "no tenant turned heartbeats on"
    run_sql(database, "UPDATE tenants SET heartbeat_minutes = 30")
    assert tick(phones.heartbeats_due, instance).run_requests
    assert launch(phones.phone_heartbeats, instance) == {"sent": 2, "seen": 2}
    assert len(sandbox.accepted()) == 2
    assert said(tick(phones.heartbeats_due, instance)) == "no phone is due that may write now"
    clock.set(THEN + timedelta(hours=12))  # due, but at night
    assert said(tick(phones.heartbeats_due, instance)) == "no phone is due that may write now"
