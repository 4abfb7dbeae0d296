"""What every run has in common: it names its process, stops when asked, and is not missed dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import dagster as dg
import pytest
from dagster._core.events import EngineEventData

from cerniq_pipeline.definitions import defs
from cerniq_pipeline.defs import running
from cerniq_pipeline.defs.running import MACHINE_TAG, PROCESS_TAG, in_this_process
from cerniq_pipeline.errors import Stopped
from cerniq_pipeline.services.leasing import Holder, machine, this_process

HERE = this_process("this test")
Status = dg.DagsterRunStatus


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def gone() -> int:
    """The pid of a process that was, and is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


# ── Dead runs ─────────────────────────────────────────────────────────────────────────────────


def a_run(
    instance: dg.DagsterInstance, job: str, status: Status = Status.STARTED, **tags: str
) -> str:
    named = {{"process": PROCESS_TAG, "machine": MACHINE_TAG}[key]: tags[key] for key in tags}
    run = instance.create_run_for_job(defs.resolve_job_def(job), status=status, tags=named)
    return run.run_id


def tick(instance: dg.DagsterInstance) -> None:
    running.end_dead_runs(instance)


def status_of(instance: dg.DagsterInstance, run_id: str) -> Status:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


@pytest.mark.parametrize("job", ["dispatch", "drain_inbox", "settle_unconfirmed", "sweep_history"])
def test_a_run_of_any_job_is_ended_when_its_process_is_gone(
    job: str, instance: dg.DagsterInstance, gone: int
):
    """A dispatch that was killed with its code server kept the next one queued for minutes."""
    process = running._as_tag(replace(HERE, pid=gone))
    for status, then in (
        (Status.STARTED, Status.FAILURE),
        (Status.STARTING, Status.FAILURE),
        (Status.CANCELING, Status.CANCELED),
    ):
        run_id = a_run(instance, job, status, process=process)
        tick(instance)
        assert status_of(instance, run_id) is then


@pytest.mark.parametrize(
    "process",
    [
        HERE,
        replace(HERE, host="elsewhere/boot/1", pid=1 << 22),
        replace(HERE, host=HERE.host.replace("/", "/another-boot-", 1), pid=1 << 22),
    ],
    ids=["alive here", "on another machine", "before a restart of the machine"],
)
def test_what_lives_or_cannot_be_seen_is_left_alone(process: Holder, instance: dg.DagsterInstance):
    run_id = a_run(instance, "dispatch", process=running._as_tag(process))
    tick(instance)
    assert status_of(instance, run_id) is Status.STARTED


def test_a_later_process_with_the_same_pid_is_not_taken_for_the_run(instance: dg.DagsterInstance):
    earlier = replace(HERE, started=HERE.started - 10)
    run_id = a_run(instance, "dispatch", process=running._as_tag(earlier))
    tick(instance)
    assert status_of(instance, run_id) is Status.FAILURE


@pytest.mark.parametrize(
    ("where", "is_alive", "then"),
    [
        (machine(), False, Status.FAILURE),
        (machine(), True, Status.STARTING),
        ("elsewhere/boot/1", False, Status.STARTING),
    ],
)
def test_a_run_that_died_before_it_named_its_process_is_known_by_its_pid(
    where: str, is_alive: bool, then: Status, instance: dg.DagsterInstance, gone: int
):
    run_id = a_run(instance, "dispatch", Status.STARTING, machine=where)
    run = instance.get_run_by_id(run_id)
    pid = os.getpid() if is_alive else gone
    data = EngineEventData.in_process(pid)  # as a run's process does it first of all
    instance.report_engine_event(f"Started process for run (pid: {pid}).", run, data)
    tick(instance)
    assert status_of(instance, run_id) is then


# ── Stopping ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def nobody_wants_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_WISH", running._Wish())


@dg.op
@running.stoppable
def wait_for_ever() -> None:
    signal.raise_signal(signal.SIGTERM)
    raise AssertionError("it went on")


@dg.op
@running.stoppable
def end_well() -> None:
    try:
        signal.raise_signal(signal.SIGTERM)
    except Stopped:
        return


@dg.op
@running.finishing
def come_to_the_end() -> int:
    signal.raise_signal(signal.SIGINT)
    return 7


@dg.job(executor_def=in_this_process)
def interrupted() -> None:
    wait_for_ever()


@dg.job(executor_def=in_this_process)
def put_away() -> None:
    end_well()


@dg.job(executor_def=in_this_process)
def finished() -> None:
    come_to_the_end()


@pytest.mark.parametrize("job", [interrupted, put_away, finished], ids=lambda job: job.name)
def test_a_run_that_is_asked_to_stop_is_cancelled_and_shows_no_stack_trace(
    job: dg.JobDefinition, instance: dg.DagsterInstance
):
    result = dg.execute_job(dg.reconstructable(job), instance=instance)
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.status is Status.CANCELED
    told = [entry.dagster_event for entry in instance.all_logs(run.run_id) if entry.dagster_event]
    assert not any(event.is_step_failure or event.is_run_failure for event in told)
    assert not any(getattr(event.event_specific_data, "error", None) for event in told)
    process = json.loads(run.tags[PROCESS_TAG])
    assert process == {"pid": HERE.pid, "started": HERE.started, "machine": HERE.host}
