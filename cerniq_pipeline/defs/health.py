"""Keeping promises after failures: look-ups of unconfirmed sends, the quota day, dead runs."""

import time
from datetime import timedelta

import dagster as dg

from cerniq_pipeline.defs.resources import Database, Senders, settings
from cerniq_pipeline.defs.sending import PHONE_TAG, UNFINISHED, phone_shift

SETTLE_RUN = timedelta(minutes=5)
RUN_MAY_START = timedelta(seconds=90)
"""How long a started run may go without its phone's lease before it is taken for dead."""


@dg.op
def look_up_unconfirmed(context: dg.OpExecutionContext, senders: Senders) -> None:
    """Ask the providers about every send whose outcome nobody knows."""
    from cerniq_pipeline.services.reconcile import settle_until_quiet

    counts = settle_until_quiet(
        senders.desk(),
        settle_time=timedelta(minutes=settings().settle_time_minutes),
        longest=SETTLE_RUN,
        who=context.run_id,
    )
    context.add_output_metadata(dict(counts))


@dg.job(executor_def=dg.in_process_executor, tags={"cerniq/single": "settle_unconfirmed"})
def settle_unconfirmed() -> None:
    """Found → sent; absent or ambiguous after the settle time → parked for a person."""
    look_up_unconfirmed()


@dg.sensor(
    job=settle_unconfirmed,
    minimum_interval_seconds=20,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def unconfirmed_sends(
    context: dg.SensorEvaluationContext, database: Database
) -> dg.RunRequest | dg.SkipReason:
    """Ask for a look-up while there are unconfirmed sends and none is under way."""
    from cerniq_pipeline.store import outbox

    with database.begin() as conn:
        waiting = len(outbox.unconfirmed(conn, limit=1000))
    if not waiting:
        return dg.SkipReason("no send is unconfirmed")
    if context.instance.get_runs(
        dg.RunsFilter(job_name=settle_unconfirmed.name, statuses=UNFINISHED), limit=1
    ):
        return dg.SkipReason(f"{waiting} unconfirmed, being looked up")
    return dg.RunRequest(tags={"cerniq/waiting": str(waiting)})


@dg.op
def close_days(context: dg.OpExecutionContext, senders: Senders) -> None:
    """Close ended days in the ledger, and open the new one in Redis."""
    from cerniq_pipeline.services.reconcile import close_quota_days

    context.add_output_metadata({"phones_closed": close_quota_days(senders.desk())})


@dg.job(executor_def=dg.in_process_executor, tags={"cerniq/single": "close_quota_day"})
def close_quota_day() -> None:
    """The quota's midnight: figures of the ended day, then Redis equal to the ledger."""
    close_days()


quota_midnight = dg.ScheduleDefinition(
    name="quota_midnight",
    job=close_quota_day,
    cron_schedule="0 0 * * *",
    execution_timezone="Europe/Bucharest",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)


@dg.sensor(
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    job=close_quota_day,
)
def quota_gate(senders: Senders) -> dg.SkipReason:
    """Compare Redis with the ledger once a minute and correct it.

    Done in the tick itself, which costs some 20 ms; a run would cost seconds of CPU to start.
    """
    from cerniq_pipeline.errors import QuotaUnknown
    from cerniq_pipeline.services.reconcile import compare_gate

    try:
        drift = compare_gate(senders.desk())
    except QuotaUnknown as unknown:
        return dg.SkipReason(f"no new contact is made: {unknown}")
    return dg.SkipReason(f"{drift} entries corrected" if drift else "Redis agrees with the ledger")


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    job=phone_shift,
)
def dead_runs(context: dg.SensorEvaluationContext, database: Database) -> dg.SkipReason:
    """End shift runs whose process is gone.

    A run that is killed together with its code server stays STARTED for good, and its tag would
    block the phone. The lease names the process, so that it can be asked for.
    """
    from cerniq_pipeline.services.leasing import is_alive, is_here
    from cerniq_pipeline.store import leases

    with database.begin() as conn:
        holders = dict(leases.held(conn))
    ended = 0
    for record in context.instance.get_run_records(
        dg.RunsFilter(job_name=phone_shift.name, statuses=[dg.DagsterRunStatus.STARTED])
    ):
        run = record.dagster_run
        holder = holders.get(run.tags.get(PHONE_TAG, ""))
        mine = holder is not None and holder.name == run.run_id
        age = time.time() - (record.start_time or time.time())
        if mine and holder is not None and (not is_here(holder) or is_alive(holder)):
            continue
        if mine or age > RUN_MAY_START.total_seconds():
            context.instance.report_run_failed(run, "the process of this run is gone")
            ended += 1
    return dg.SkipReason(f"{ended} dead runs ended" if ended else "every open run is alive")


defs = dg.Definitions(
    jobs=[settle_unconfirmed, close_quota_day],
    schedules=[quota_midnight],
    sensors=[unconfirmed_sends, quota_gate, dead_runs],
)
