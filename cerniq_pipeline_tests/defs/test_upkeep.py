"""Upkeep as Dagster runs it: a tick that counts and tells, and a job that settles old letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import Engine

from cerniq_pipeline.definitions import defs
from cerniq_pipeline.defs import resources
from cerniq_pipeline.defs.retention import retention
from cerniq_pipeline.defs.upkeep import dead_letter_upkeep, untold_alerts
from cerniq_pipeline.services.dead_letters import KEPT, MOST_OPEN
from cerniq_pipeline_tests.builders import a_world, rows, run_sql
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

Tick = Callable[[], str]


@pytest.fixture
def acme(database: Engine) -> Engine:
    with database.begin() as conn:
        a_world(conn)
    return database


@pytest.fixture
def tick(
    database_url: str, sandbox: RunningSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Tick]:
    """One tick of the sensor over this test's servers; returns what it says."""
    monkeypatch.chdir(tmp_path)  # away from anybody's .env
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", "unix:///nowhere")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "of the tests")
    monkeypatch.setenv("CERNIQ_SANDBOX_URL", sandbox.base_url)
    opened = (resources.settings, resources._engine, resources._clock)

    def said() -> str:
        with (
            dg.instance_for_test() as instance,
            dg.build_sensor_context(
                instance=instance, definitions=defs, resources={"database": resources.Database()}
            ) as context,
        ):
            result = untold_alerts(context)
        assert isinstance(result, dg.SkipReason), result
        return result.skip_message or ""

    for each in opened:
        each.cache_clear()
    yield said
    resources._engine().dispose()
    for each in opened:
        each.cache_clear()


def bury(engine: Engine, count: int, *, age: timedelta = timedelta(0)) -> None:
    run_sql(
        engine,
        """
        INSERT INTO dead_letters (tenant_id, message_id, code, detail, review_required, at)
        SELECT 'acme', n, 'REFUSED', '', false, now() - CAST(:age AS interval)
        FROM generate_series(1, CAST(:count AS int)) n
        """,
        age=age,
        count=count,
    )


def test_a_tick_notices_the_backlog_and_tells_it_once(
    tick: Tick, acme: Engine, sandbox: RunningSandbox
):
    assert tick() == "nobody waits for an alert"
    bury(acme, MOST_OPEN + 1)
    assert tick() == "1 alerts told"
    assert tick() == "nobody waits for an alert"
    (line,) = sandbox.journal("slack")
    assert "cerniq dlq list" in line["text"]


def test_without_an_address_the_backlog_is_still_noticed(
    tick: Tick, acme: Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CERNIQ_MODE", "live")
    monkeypatch.setenv("CERNIQ_TIMELINESAI_API_KEY", "of nobody")
    bury(acme, MOST_OPEN + 1)
    assert "CERNIQ_SLACK_WEBHOOK_URL" in tick()
    assert len(rows(acme, "SELECT 1 FROM alerts WHERE notified_at IS NULL")) == 1


@pytest.mark.usefixtures("tick")
def test_the_daily_job_settles_what_is_older_than_a_week(acme: Engine):
    bury(acme, 2, age=KEPT + timedelta(hours=1))
    done = dead_letter_upkeep.execute_in_process(resources={"database": resources.Database()})
    assert done.success
    settled = rows(acme, "SELECT resolution FROM dead_letters")
    assert settled == [{"resolution": "expired after 7 days"}] * 2


@pytest.mark.usefixtures("tick")
@pytest.mark.parametrize(("dry_run", "left"), [(True, 3), (False, 0)])
def test_the_nightly_job_shows_what_it_forgot_or_would_forget(
    acme: Engine, dry_run: bool, left: int
):
    run_sql(
        acme,
        """INSERT INTO alerts (kind, subject, detail, opened_at, closed_at)
           SELECT 'sweep_stuck', n::text, '', now(), now() - interval '1 year'
           FROM generate_series(1, 3) n""",
    )
    done = retention.execute_in_process(
        run_config={"ops": {"forget": {"config": {"dry_run": dry_run}}}},
        resources={"database": resources.Database()},
    )
    assert done.success
    (output,) = [one for one in done.all_events if one.is_successful_output]
    shown = {name: value.value for name, value in output.step_output_data.metadata.items()}
    assert (shown["alerts"], shown["dry_run"]) == (3, dry_run)
    assert shown["left_for_the_next_night"] == "nothing"
    assert len(rows(acme, "SELECT 1 FROM alerts")) == left
