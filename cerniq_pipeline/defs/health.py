"""Keeping promises after failures: look-ups of unconfirmed sends, the quota day, dead runs."""

from datetime import timedelta

import dagster as dg

from cerniq_pipeline.defs.resources import Database, Senders, settings
from cerniq_pipeline.defs.running import (
    UNFINISHED,
    alone,
    end_dead_runs,
    in_this_process,
    sensor,
    stoppable,
)
from cerniq_pipeline.defs.watching import note_what_runs

SETTLE_RUN = timedelta(minutes=5)


@dg.op
@stoppable
def look_up_unconfirmed(context: dg.OpExecutionContext, senders: Senders) -> None:
    """Ask the providers about every send whose outcome nobody knows.

    One number per outcome: `sent` for those that were found, `parked` for those that a person must
    decide about.
    """
    from cerniq_pipeline.services.reconcile import settle_until_quiet

    counts = settle_until_quiet(
        senders.desk(),
        settle_time=timedelta(minutes=settings().settle_time_minutes),
        longest=SETTLE_RUN,
        who=context.run_id,
    )
    context.add_output_metadata(dict(counts))


@dg.job(executor_def=in_this_process, tags=alone("settle_unconfirmed"))
def settle_unconfirmed() -> None:
    """Found → sent; absent or ambiguous after the settle time → parked for a person."""
    look_up_unconfirmed()


@sensor(
    job=settle_unconfirmed,
    minimum_interval_seconds=20,
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
@stoppable
def close_days(context: dg.OpExecutionContext, senders: Senders) -> None:
    """Close ended days in the ledger, and open the new one in Redis.

    - `phones_closed`: phones with a day that ended
    """
    from cerniq_pipeline.services.reconcile import close_quota_days

    context.add_output_metadata({"phones_closed": close_quota_days(senders.desk())})


@dg.job(executor_def=in_this_process, tags=alone("close_quota_day"))
def close_quota_day() -> None:
    """The quota's midnight: figures of the ended day, then Redis equal to the ledger."""
    close_days()


quota_midnight = dg.ScheduleDefinition(
    name="quota_midnight",
    description="Close the quota day of Bucharest.",
    job=close_quota_day,
    cron_schedule="0 0 * * *",
    execution_timezone="Europe/Bucharest",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)


@sensor(
    minimum_interval_seconds=60,
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


@sensor(
    minimum_interval_seconds=15,
    job=settle_unconfirmed,
)
def dead_runs(context: dg.SensorEvaluationContext, database: Database) -> dg.SkipReason:
    """End runs of any job whose process is gone, and notice what of Dagster is stopped.

    A run names its process itself. One that lives, here or on another machine, is left alone.
    """
    ended = [f"{run.job_name} {run.run_id}" for run in end_dead_runs(context.instance)]
    note_what_runs(context, database)
    return dg.SkipReason(f"ended: {', '.join(ended)}" if ended else "every open run is alive")


defs = dg.Definitions(
    jobs=[settle_unconfirmed, close_quota_day],
    schedules=[quota_midnight],
    sensors=[unconfirmed_sends, quota_gate, dead_runs],
)
