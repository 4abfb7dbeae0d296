"""What every run has in common: which process it is, how it is stopped, whether it still lives."""

import inspect
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import dagster as dg
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.in_process import InProcessExecutor

from cerniq_pipeline.errors import CerniqError, Stopped, named
from cerniq_pipeline.logs import mask

if TYPE_CHECKING:
    from dagster._core.execution.context.system import PlanOrchestrationContext
    from dagster._core.execution.plan.plan import ExecutionPlan

    from cerniq_pipeline.store.leases import Holder

P = ParamSpec("P")
T = TypeVar("T")

MACHINE_TAG = "cerniq/machine"
"""The machine that a run was sent to; known before its process is."""

PROCESS_TAG = "cerniq/process"
"""The very process that a run is."""

HAS_A_PROCESS = [
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
UNFINISHED = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, *HAS_A_PROCESS]


def alone(job: str) -> dict[str, str]:
    """The tags of a job that runs once at a time, and before all shifts in the queue.

    A shift takes minutes and may wait; what plans, hears and settles must not wait behind twenty.
    """
    return {"cerniq/single": job, "dagster/priority": "10"}


# ── Going wrong ───────────────────────────────────────────────────────────────────────────────

_MAIL = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")


class WithoutWords(Exception):
    """An error as it may be kept: where it came up, and no word that a person may have written."""


def wordless(act: Callable[P, T]) -> Callable[P, T]:
    """Keep people's words out of the errors that Dagster stores with a run or a tick, for good."""
    if inspect.isgeneratorfunction(act):

        @wraps(act)
        def shown(*args: P.args, **kwargs: P.kwargs) -> Iterator[object]:
            try:
                yield from act(*args, **kwargs)
            except (dg.DagsterError, WithoutWords):
                raise
            except Exception as error:  # noqa: BLE001 - it is raised again
                kept = _without_words(error)
            else:
                return
            raise kept

        return cast(Callable[P, T], shown)

    @wraps(act)
    def acted(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return act(*args, **kwargs)
        except (dg.DagsterError, WithoutWords):
            raise
        except Exception as error:  # noqa: BLE001 - it is raised again
            kept = _without_words(error)
        raise kept  # not within the handler, which would keep the error as its context

    return acted


def _without_words(error: Exception) -> WithoutWords:
    return WithoutWords(_kept(error)).with_traceback(error.__traceback__)


def _kept(error: Exception) -> str:
    """What may be kept of an error's own words: those that we or a server chose."""
    from sqlalchemy.exc import DBAPIError

    if isinstance(error, CerniqError | DBAPIError):  # the engine took the values out
        return f"{named(error)}: {_MAIL.sub('*****@*****', mask(str(error)))}"
    if isinstance(error, OSError) and error.strerror:
        return f"{named(error)}: {error.strerror}"
    return f"{named(error)} (its words are left out: they may be a person's)"


# ── Sensors ───────────────────────────────────────────────────────────────────────────────────


def sensor(
    *, job: dg.JobDefinition, minimum_interval_seconds: int
) -> Callable[[Callable[..., Any]], dg.SensorDefinition]:
    """Dagster's sensor, on from the start, and with its docstring as its description in the UI.

    What goes wrong in a tick is stored without people's words.
    """

    def made(tick: Callable[..., Any]) -> dg.SensorDefinition:
        return dg.sensor(
            job=job,
            minimum_interval_seconds=minimum_interval_seconds,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description=inspect.getdoc(tick),
        )(wordless(tick))

    return made


# ── Being stopped ─────────────────────────────────────────────────────────────────────────────


class _Wish:
    """Whether somebody wants this process to end: who clicked Terminate, or the supervisor."""

    def __init__(self) -> None:
        self.is_known = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self.is_known:  # once: putting things away must not be interrupted again
            self.note(number, frame)
            raise Stopped

    def note(self, _number: int, _frame: FrameType | None) -> None:
        self.is_known = True


_WISH = _Wish()


def stoppable(act: Callable[P, T]) -> Callable[P, T | None]:
    """Let a wish to stop end an op early and well; the executor then cancels its run."""
    act = wordless(act)

    @wraps(act)
    def acted(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            with _signals_to(_WISH.interrupt):
                return act(*args, **kwargs)
        except Stopped:
            return None

    return acted


def finishing(act: Callable[P, T]) -> Callable[P, T]:
    """Let an asset or a check come to its end, which is near: it must have a result."""
    act = wordless(act)

    @wraps(act)
    def acted(*args: P.args, **kwargs: P.kwargs) -> T:
        with _signals_to(_WISH.note):
            return act(*args, **kwargs)

    return acted


@contextmanager
def _signals_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers; a run's ops are there
        return
    before = {each: signal.signal(each, handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, previous in before.items():
            signal.signal(each, previous)


# ── The executor ──────────────────────────────────────────────────────────────────────────────


class _InThisProcess(InProcessExecutor):
    """Dagster's executor, which also notes the process and takes a wish to stop for no fault."""

    def execute(
        self, plan_context: "PlanOrchestrationContext", execution_plan: "ExecutionPlan"
    ) -> Iterator[dg.DagsterEvent]:
        from cerniq_pipeline.services.leasing import this_process

        run, instance = plan_context.dagster_run, plan_context.instance
        me = this_process(run.run_id)
        instance.add_run_tags(run.run_id, {PROCESS_TAG: _as_tag(me)})
        try:
            yield from super().execute(plan_context, execution_plan)
            if _WISH.is_known:
                raise dg.DagsterExecutionInterruptedError
        except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
            # Said here and not by Dagster, which would call it a failure or show a stack trace.
            instance.report_run_canceled(run, "It was asked to stop, put things away, and ended.")
            raise


@dg.executor(name="in_process")
def in_this_process(_context: dg.InitExecutorContext) -> InProcessExecutor:
    """Every step in the run's own process: one more per step would cost seconds each."""
    return _InThisProcess(retries=RetryMode.DISABLED)


# ── Being dead ────────────────────────────────────────────────────────────────────────────────


def end_dead_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """End every run whose process is gone from this machine, and return them.

    Who is killed together with the code server can tell nobody, and Dagster would show the run as
    started for ever, in the place of the next one. What cannot be seen from here is left alone.
    """
    ended = []
    for run in instance.get_runs(dg.RunsFilter(statuses=HAS_A_PROCESS)):
        pid = _gone(instance, run)
        if pid is None:
            continue
        # A process writes how its run ended before it goes: what is unfinished now stays so.
        current = instance.get_run_by_id(run.run_id)
        if current is None or current.is_finished:
            continue
        why = f"Its process (pid {pid}) is gone from this machine."
        if current.status is dg.DagsterRunStatus.CANCELING:
            instance.report_run_canceled(current, why)
        else:
            instance.report_run_failed(current, why)
        ended.append(current)
    return ended


def _gone(instance: dg.DagsterInstance, run: dg.DagsterRun) -> int | None:
    """The pid of this run's process if that was on this machine and is no more."""
    from cerniq_pipeline.services.leasing import is_alive, is_here, is_in_use, machine

    if PROCESS_TAG in run.tags:
        process = _from_tag(run.tags[PROCESS_TAG], name=run.run_id)
        return process.pid if is_here(process) and not is_alive(process) else None
    if run.tags.get(MACHINE_TAG) != machine():
        return None
    # It had not come to its executor yet; Dagster noted its pid, and by that alone it is only
    # taken for dead when nobody at all has the pid.
    pid = _first_pid(instance, run)
    return pid if pid is not None and not is_in_use(pid) else None


def _first_pid(instance: dg.DagsterInstance, run: dg.DagsterRun) -> int | None:
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        data = entry.dagster_event and entry.dagster_event.event_specific_data
        noted = getattr(data, "metadata", {}).get("pid")
        if noted is not None:
            return int(noted.value)
    return None


def _as_tag(process: "Holder") -> str:
    return json.dumps({"pid": process.pid, "started": process.started, "machine": process.host})


def _from_tag(tag: str, *, name: str) -> "Holder":
    from cerniq_pipeline.store.leases import Holder

    told = json.loads(tag)
    return Holder(name=name, host=told["machine"], pid=told["pid"], started=told["started"])
