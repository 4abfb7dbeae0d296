"""The code location as Dagster loads it: its names, its rhythm, and what loading it costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from sqlalchemy import Engine

from cerniq_pipeline.definitions import defs
from cerniq_pipeline.defs import resources, sending
from cerniq_pipeline.defs.sending import PHONE_TAG, PHONES, open_shifts
from cerniq_pipeline.domain.automation import NEEDED_FOR, WITHOUT
from cerniq_pipeline.settings import Settings
from cerniq_pipeline_tests.builders import a_world, always_open, dispatch, some_leads

PROJECT = Path(__file__).parent.parent
REPOSITORY = defs.get_repository_def()
INSTANCE = yaml.safe_load((PROJECT / "dagster.yaml").read_text(encoding="utf-8"))

JOBS = [
    "close_quota_day",
    "dead_letter_upkeep",
    "dispatch",
    "drain_inbox",
    "fetch_chat_history",
    "phone_heartbeats",
    "phone_shift",
    "retention",
    "settle_unconfirmed",
    "sweep_history",
    "sync_phone_status",
]
SENSORS = {
    # name: (seconds between two ticks, the job it asks for)
    "open_shifts": (10, "phone_shift"),
    "unconfirmed_sends": (20, "settle_unconfirmed"),
    "quota_gate": (60, "close_quota_day"),
    "dead_runs": (15, "settle_unconfirmed"),
    "lost_phones": (10, "phone_shift"),
    "phone_health": (60, "sync_phone_status"),
    "missed_messages": (120, "sweep_history"),
    "heartbeats_due": (60, "phone_heartbeats"),
    "untold_alerts": (15, "dead_letter_upkeep"),
    "stored_webhooks": (5, "drain_inbox"),
}

# ── Names: operators, links and other applications rely on them ───────────────────────────────


def test_the_location_loads_and_every_reference_resolves():
    dg.Definitions.validate_loadable(defs)


def test_the_assets_follow_each_other_from_leads_to_the_outbox():
    graph = defs.resolve_asset_graph()
    parents = {key: graph.get(key).parent_keys for key in graph.get_all_asset_keys()}
    assert parents == {
        dg.AssetKey("eligible_leads"): set(),
        dg.AssetKey("dispatch_plan"): {dg.AssetKey("eligible_leads")},
        dg.AssetKey("outbox"): {dg.AssetKey("dispatch_plan")},
    }


def test_every_check_stands_between_the_plan_and_the_outbox():
    graph = defs.resolve_asset_graph()
    checks = {key.name: key.asset_key.to_user_string() for key in graph.asset_check_keys}
    assert checks == {
        "no_planned_lead_opted_out": "dispatch_plan",
        "every_planned_lead_has_a_lawful_basis": "dispatch_plan",
        "no_lead_is_planned_twice": "dispatch_plan",
        "no_phone_is_over_its_quota": "dispatch_plan",
    }
    assert all(graph.get(key).blocking for key in graph.asset_check_keys)


def test_the_jobs_have_their_names():
    made_by_dagster = {"__ASSET_JOB"}
    assert sorted({job.name for job in REPOSITORY.get_all_jobs()} - made_by_dagster) == JOBS


def test_the_schedules_tick_in_bucharest_and_are_on_from_the_start():
    rhythm = {
        schedule.name: (schedule.cron_schedule, schedule.execution_timezone, schedule.job_name)
        for schedule in REPOSITORY.schedule_defs
    }
    assert rhythm == {
        "dispatch_every_5_minutes": ("*/5 * * * *", "Europe/Bucharest", "dispatch"),
        "quota_midnight": ("0 0 * * *", "Europe/Bucharest", "close_quota_day"),
        "phone_status_every_10_minutes": ("*/10 * * * *", "Europe/Bucharest", "sync_phone_status"),
        "dead_letters_daily": ("30 3 * * *", "Europe/Bucharest", "dead_letter_upkeep"),
        "retention_nightly": ("15 4 * * *", "Europe/Bucharest", "retention"),
    }
    running = dg.DefaultScheduleStatus.RUNNING
    assert {schedule.default_status for schedule in REPOSITORY.schedule_defs} == {running}


def test_the_sensors_are_on_from_the_start():
    there = {
        sensor.name: (sensor.minimum_interval_seconds, sensor.job_name)
        for sensor in REPOSITORY.sensor_defs
    }
    assert there == SENSORS
    running = dg.DefaultSensorStatus.RUNNING
    assert {sensor.default_status for sensor in REPOSITORY.sensor_defs} == {running}


def test_of_everything_that_starts_work_it_is_known_what_rests_without_it():
    ours = {each.name for each in [*REPOSITORY.sensor_defs, *REPOSITORY.schedule_defs]}
    with dg.instance_for_test() as instance:
        daemons = set(instance.get_required_daemon_types())
    assert set(WITHOUT) >= ours
    assert set(WITHOUT) - ours <= daemons | {"QUEUED_RUN_COORDINATOR", "MONITORING"}
    assert set(NEEDED_FOR.values()) <= ours


def test_a_dispatch_takes_the_configuration_of_the_documents():
    fields = defs.resolve_job_def("dispatch").run_config_schema.config_type.fields
    asked = fields["ops"].config_type.fields["eligible_leads"].config_type.fields["config"]
    defaults = {name: field.default_value for name, field in asked.config_type.fields.items()}
    assert defaults == {
        "tenant": "ALL",
        "batch_size": 100,
        "channel_preference": "AUTO",
        "priority_filter": "ALL",
        "sequence_filter": "",
        "dry_run": False,
    }


# ── Words: whoever looks at the UI for the first time reads them ──────────────────────────────


def test_everything_in_the_ui_has_a_description():
    graph = defs.resolve_asset_graph()
    described = {
        **{f"asset {key.to_user_string()}": graph.get(key).description
           for key in graph.get_all_asset_keys()},
        **{f"check {key.name}": graph.get_check_spec(key).description
           for key in graph.asset_check_keys},
        **{f"sensor {each.name}": each.description for each in REPOSITORY.sensor_defs},
        **{f"schedule {each.name}": each.description for each in REPOSITORY.schedule_defs},
    }  # fmt: skip
    for name in JOBS:
        job = defs.resolve_job_def(name)
        described[f"job {name}"] = job.description
        for op in job.all_node_defs:
            described[f"op {op.name}"] = op.description
            fields = getattr(op.config_schema.config_type, "fields", None) or {}
            for field_name, field in fields.items():
                described[f"field {op.name}.{field_name}"] = field.description
    assert [name for name, words in described.items() if not words] == []
    assert any(name.startswith("field ") for name in described)


def test_every_metadata_key_is_explained_where_it_is_shown():
    """Read from the code, so that a new key without a word is noticed."""
    keys = {
        (function.name, key.value)
        for path in (PROJECT / "cerniq_pipeline" / "defs").glob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "add_output_metadata"
        for shown in ast.walk(call)
        if isinstance(shown, ast.Dict)
        for key in shown.keys
        if isinstance(key, ast.Constant)
    }
    assert {op for op, _ in keys} > {"work_phone", "close_days", "read_chat"}
    ops = {op.name: op for name in JOBS for op in defs.resolve_job_def(name).all_node_defs}
    unexplained = {(op, key) for op, key in keys if f"`{key}`" not in (ops[op].description or "")}
    assert unexplained == set()


def test_loading_the_location_warns_of_nothing():
    """Dagster warned of a parameter of every sensor, which nobody here uses, at each start."""
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            "import cerniq_pipeline.definitions as d; d.defs.get_repository_def()",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stderr == ""


# ── One run per phone ─────────────────────────────────────────────────────────────────────────


def test_a_run_of_a_phone_carries_its_tag_whoever_asks_for_it():
    """The tag comes from the partition, so a sensor, a person and a backfill all set it."""
    shift = defs.resolve_job_def("phone_shift")
    assert shift.partitions_def == PHONES
    assert _tags("demo-07")[PHONE_TAG] == "demo-07"


def test_the_instance_runs_one_phone_once():
    runs = INSTANCE["concurrency"]["runs"]
    limits = {limit["key"]: limit for limit in runs["tag_concurrency_limits"]}
    for key in (PHONE_TAG, "cerniq/single"):
        assert limits[key]["limit"] == 1
        assert limits[key]["value"] == {"applyLimitPerUniqueValue": True}


@pytest.mark.parametrize("job", sorted(set(JOBS) - {"phone_shift"}))
def test_what_must_not_overlap_itself_has_a_tag_of_its_own(job: str):
    assert defs.resolve_job_def(job).tags["cerniq/single"] == job


@pytest.mark.parametrize("job", sorted(set(JOBS) - {"phone_shift"}))
def test_whatever_plans_hears_and_settles_goes_before_shifts(job: str):
    assert int(defs.resolve_job_def(job).tags["dagster/priority"]) > 0
    assert "dagster/priority" not in defs.resolve_job_def("phone_shift").tags


@pytest.mark.parametrize("job", [*JOBS, "__ASSET_JOB"])
def test_jobs_run_in_their_own_process_without_one_more_per_step(job: str):
    assert REPOSITORY.get_job(job).executor_def.name == "in_process"


def test_dagster_never_repeats_a_send():
    assert INSTANCE["run_retries"] == {"enabled": False}
    assert INSTANCE["run_monitoring"]["max_resume_run_attempts"] == 0
    for job in JOBS:
        ops = defs.resolve_job_def(job).nodes
        assert [op.name for op in ops if op.definition.retry_policy is not None] == []


def test_a_shift_has_ended_by_itself_before_its_run_is_taken_for_stuck():
    bounds = Settings.model_fields["shift_minutes"].metadata
    longest = next(bound.le for bound in bounds if hasattr(bound, "le"))
    given = timedelta(seconds=INSTANCE["run_monitoring"]["max_runtime_seconds"])
    assert timedelta(minutes=longest) + timedelta(minutes=2) <= given


@pytest.fixture
def desk_of_definitions(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    """Let the resources of this process open the test's own database."""
    monkeypatch.chdir(tmp_path)  # away from anybody's .env
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", "unix:///nowhere")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "of the tests")
    opened = (resources.settings, resources._engine, resources._clock)
    for each in opened:
        each.cache_clear()
    yield
    resources._engine().dispose()
    for each in opened:
        each.cache_clear()


@pytest.mark.usefixtures("desk_of_definitions")
def test_the_sensor_opens_a_shift_for_each_phone_with_work_and_makes_its_partition(
    database: Engine,
):
    now = resources.Database().now()
    with database.begin() as conn:
        a_world(conn, phones=3, **always_open(now))
        some_leads(conn, count=2, at=now - timedelta(hours=1))
    assert dispatch(database, now=now) == (2, 0)

    with dg.DagsterInstance.ephemeral() as instance:
        first = _tick(instance)
        assert {request.partition_key for request in first.run_requests} == {"acme-01", "acme-02"}
        (added,) = first.dynamic_partitions_requests
        assert added.partition_keys == ["acme-01", "acme-02", "acme-03"]

        # While a run of a phone is under way, nobody asks for a second one.
        instance.add_dynamic_partitions("phones", added.partition_keys)
        shift = defs.resolve_job_def("phone_shift")
        instance.create_run_for_job(
            shift,
            status=dg.DagsterRunStatus.STARTED,
            tags=_tags("acme-01"),
        )
        second = _tick(instance)
        assert [request.partition_key for request in second.run_requests] == ["acme-02"]
        assert second.dynamic_partitions_requests == []


@pytest.mark.usefixtures("desk_of_definitions")
def test_no_more_shifts_start_at_once_than_the_machine_can_start(
    database: Engine, monkeypatch: pytest.MonkeyPatch
):
    """Twenty were asked for at once, and a dispatch waited for 81 seconds behind them."""
    monkeypatch.setattr(sending, "STARTING_AT_ONCE", 2)
    now = resources.Database().now()
    with database.begin() as conn:
        a_world(conn, phones=4, **always_open(now))
        some_leads(conn, count=4, at=now - timedelta(hours=1))
    assert dispatch(database, now=now) == (4, 0)

    with dg.DagsterInstance.ephemeral() as instance:
        asked = [request.partition_key for request in _tick(instance).run_requests]
        assert len(asked) == 2
        instance.add_dynamic_partitions("phones", [f"acme-0{n}" for n in range(1, 5)])
        shift = defs.resolve_job_def("phone_shift")
        for phone_id, status in zip(
            asked, (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING), strict=True
        ):
            instance.create_run_for_job(shift, status=status, tags=_tags(str(phone_id)))
        assert len(_tick(instance).run_requests) == 1  # one is at work, one still starts


def _tags(phone_id: str) -> dict[str, str]:
    partitioned = defs.resolve_job_def("phone_shift").partitioned_config
    assert partitioned is not None
    return dict(partitioned.get_tags_for_partition_key(phone_id))


def _tick(instance: dg.DagsterInstance) -> dg.SensorResult:
    context = dg.build_sensor_context(
        instance=instance, resources={"database": resources.Database()}, definitions=defs
    )
    result = open_shifts(context)
    assert isinstance(result, dg.SensorResult), result
    return result


# ── What loading costs ────────────────────────────────────────────────────────────────────────

HEAVY = ["alembic", "holidays", "httpx", "pandas", "phonenumbers", "psycopg", "redis", "sqlalchemy"]


def test_loading_the_location_imports_nothing_that_only_runs_need():
    """It is loaded for every run, and most loads use only a part of it."""
    look = (
        "import json, sys\n"
        "import cerniq_pipeline.definitions\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        f"print(json.dumps(sorted(loaded & set({HEAVY}))))"
    )
    seen = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", look], capture_output=True, text=True, check=True
    )
    assert json.loads(seen.stdout) == []
