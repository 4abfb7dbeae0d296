"""Shifts: one run per phone, opened when something is due, one at a time by tag."""

import os
from datetime import timedelta

import dagster as dg

from cerniq_pipeline.defs.resources import Database, Senders, settings
from cerniq_pipeline.defs.running import UNFINISHED, in_this_process, sensor, stoppable

PHONE_TAG = "cerniq/phone"
STARTING_AT_ONCE = max(2, 2 * (os.cpu_count() or 1))
"""Shifts that are asked for and not at work yet. A start takes seconds of a processor: twenty at
once would be started no sooner, and everything else would stand behind them."""

PHONES = dg.DynamicPartitionsDefinition(name="phones")


@dg.op
@stoppable
def work_phone(context: dg.OpExecutionContext, senders: Senders) -> None:
    """Send one phone's due messages, one at a time, until there is a reason to stop.

    - `ended`: that reason
    - `pacing_speed`: how many times shorter the pauses are than in earnest; 1 in live mode
    - one number per outcome of a message: `sent`, `deferred`, `failed`, `unconfirmed`, `cancelled`
    """
    from cerniq_pipeline.services.leasing import this_process
    from cerniq_pipeline.services.work_shift import work_shift

    longest = timedelta(minutes=settings().shift_minutes)
    me = this_process(context.run_id)
    shift = work_shift(senders.desk(), context.partition_key, me, longest=longest)
    context.add_output_metadata(
        {"ended": shift.ended, "pacing_speed": settings().speed, **shift.outcomes}
    )


@dg.job(
    partitions_def=PHONES,
    config=dg.PartitionedConfig(
        partitions_def=PHONES,
        run_config_for_partition_key_fn=lambda _: {},
        tags_for_partition_key_fn=lambda phone_id: {PHONE_TAG: phone_id},
    ),
    executor_def=in_this_process,
)
def phone_shift() -> None:
    """One phone's shift. Launch it for any phone, or backfill all: the lease keeps it safe."""
    work_phone()


@sensor(
    job=phone_shift,
    minimum_interval_seconds=10,
)
def open_shifts(
    context: dg.SensorEvaluationContext, database: Database
) -> dg.SensorResult | dg.SkipReason:
    """Open a shift for every phone that has something due and none under way, a few at a time.

    Takes work by state, not by a cursor. Asking twice would be harmless, only wasteful: the lease
    lets one shift work, so phones with an unfinished run are left alone.
    """
    from cerniq_pipeline.services.explain import phones_needing_a_shift
    from cerniq_pipeline.store import phones

    with database.begin() as conn:
        everyone = phones.ids(conn)
    known = set(context.instance.get_dynamic_partitions(PHONES.name or ""))
    new = [phone_id for phone_id in everyone if phone_id not in known]
    under_way = context.instance.get_runs(
        dg.RunsFilter(job_name=phone_shift.name, statuses=UNFINISHED)
    )
    busy = {run.tags.get(PHONE_TAG) for run in under_way}
    starting = sum(run.status is not dg.DagsterRunStatus.STARTED for run in under_way)
    needing = phones_needing_a_shift(
        database.begin, here=settings().installation, now=database.now()
    )
    wanted = [phone_id for phone_id in needing if phone_id not in busy]
    asked = wanted[: max(0, STARTING_AT_ONCE - starting)]
    if not asked and not new:
        waiting = f"{len(needing)} phones have work: {starting} shifts start, {len(wanted)} wait"
        return dg.SkipReason(waiting if needing else "nothing is due")
    return dg.SensorResult(
        run_requests=[dg.RunRequest(partition_key=phone_id) for phone_id in asked],
        # Partitions are only ever added: deleting one under a live run would lose that run's work.
        dynamic_partitions_requests=[PHONES.build_add_request(new)] if new else [],
    )


defs = dg.Definitions(jobs=[phone_shift], sensors=[open_shifts])
