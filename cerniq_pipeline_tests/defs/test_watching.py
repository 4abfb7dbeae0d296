"""Two sensors see what of Dagster runs, and so each of them sees the other."""

from __future__ import annotations

import time
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
)
from dagster._daemon.types import DaemonHeartbeat
from sqlalchemy import Engine

from cerniq_pipeline.definitions import defs
from cerniq_pipeline.defs import resources, upkeep
from cerniq_pipeline.defs.health import dead_runs
from cerniq_pipeline.defs.upkeep import untold_alerts
from cerniq_pipeline.settings import Settings
from cerniq_pipeline.store.database import DatabaseClock
from cerniq_pipeline_tests.builders import rows

SERVER = GrpcServerCodeLocationOrigin(host="localhost", port=1, location_name="cerniq")
REPOSITORY = RemoteRepositoryOrigin(SERVER, "__repository__")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def opened(database: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    told = Settings(
        database_url="postgresql://unused/unused", redis_url="redis://unused", secret_key="x"
    )
    monkeypatch.setattr(resources, "_engine", lambda: database)
    monkeypatch.setattr(resources, "_clock", lambda: DatabaseClock(database))
    monkeypatch.setattr(upkeep, "settings", lambda: told)
    return database


def switch(instance: dg.DagsterInstance, name: str, status: InstigatorStatus) -> None:
    """As a person does it in the UI."""
    is_schedule = name in {each.name for each in defs.schedules or []}
    kind = InstigatorType.SCHEDULE if is_schedule else InstigatorType.SENSOR
    origin = REPOSITORY.get_instigator_origin(name)
    data = ScheduleInstigatorData("* * * * *") if is_schedule else None
    state = InstigatorState(origin, kind, status, data)
    if instance.get_instigator_state(origin.get_id(), state.selector_id):
        instance.update_instigator_state(state)
    else:
        instance.add_instigator_state(state)


@pytest.mark.parametrize("sensor", [dead_runs, untold_alerts], ids=lambda sensor: sensor.name)
def test_a_tick_notes_what_is_stopped_whoever_else_is(
    sensor: dg.SensorDefinition, opened: Engine, instance: dg.DagsterInstance
):
    def stopped() -> list[str]:
        context = dg.build_sensor_context(
            instance=instance, definitions=defs, resources={"database": resources.Database()}
        )
        sensor.evaluate_tick(context)
        found = rows(opened, "SELECT name FROM automations WHERE NOT is_running ORDER BY name")
        return [str(row["name"]) for row in found]

    assert stopped() == []
    other = next(name for name in ("dead_runs", "untold_alerts") if name != sensor.name)
    for name in (other, "open_shifts", "dispatch_every_5_minutes"):
        switch(instance, name, InstigatorStatus.STOPPED)
    assert stopped() == sorted([other, "open_shifts", "dispatch_every_5_minutes"])
    for name in (other, "open_shifts", "dispatch_every_5_minutes"):
        switch(instance, name, InstigatorStatus.RUNNING)
    instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - 600, "SCHEDULER", "id", []))
    assert stopped() == ["SCHEDULER"]
    instance.add_daemon_heartbeat(DaemonHeartbeat(time.time(), "SCHEDULER", "id", []))
    assert stopped() == []
