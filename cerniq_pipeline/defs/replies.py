"""Replies: stored webhooks become facts, by a run that stays while people are talking."""

from datetime import timedelta

import dagster as dg

from cerniq_pipeline.defs.resources import Database, Senders, settings
from cerniq_pipeline.defs.running import UNFINISHED, alone, in_this_process, sensor, stoppable

IN_A_TICK = timedelta(seconds=10)


@dg.op
@stoppable
def hear_events(context: dg.OpExecutionContext, senders: Senders) -> None:
    """Handle every stored event, then wait for more until nothing comes for a while.

    - `ended`: why it stopped
    - one number per outcome of an event: `done`, `dead` for those nobody can read or handle,
      `put off` for those that are tried again, `handled elsewhere`
    """
    from cerniq_pipeline.readers import open_readers
    from cerniq_pipeline.services.drain import drain

    drained = drain(
        senders.desk(),
        open_readers(settings()),
        senders.bell(),
        who=context.run_id,
        longest=timedelta(minutes=settings().shift_minutes),
    )
    context.add_output_metadata({"ended": drained.ended, **drained.outcomes})


@dg.job(executor_def=in_this_process, tags=alone("drain_inbox"))
def drain_inbox() -> None:
    """Replies, deliveries and everything else that providers told us. Launch it at any time."""
    hear_events()


@sensor(
    job=drain_inbox,
    minimum_interval_seconds=5,
)
def stored_webhooks(
    context: dg.SensorEvaluationContext, database: Database, senders: Senders
) -> dg.RunRequest | dg.SkipReason:
    """Hear what waits while no drain is at work, and ask for one.

    Selects by state, not by a cursor over ids: ids commit out of order, and a cursor would step
    over a late one for good. A run takes seconds to start, and longer behind twenty shifts: what
    waits until then is heard in the tick itself, so that a "stop" never waits for a process.

    The lease lets one of them work at a time.
    """
    from cerniq_pipeline.readers import open_readers
    from cerniq_pipeline.services.drain import LEASE, drain
    from cerniq_pipeline.store import inbox, run_leases

    heard = ""
    with database.begin() as conn:
        now = database.now()
        waiting = inbox.is_waiting(conn, now=now)
        drainer = run_leases.holder(conn, LEASE, now=now)
    if not waiting:
        return dg.SkipReason("no event waits")
    if drainer is None:
        drained = drain(
            senders.desk(),
            open_readers(settings()),
            senders.bell(),
            who="the sensor",
            longest=IN_A_TICK,
            linger=timedelta(),
        )
        heard = ", ".join(f"{count} {name}" for name, count in drained.outcomes.items())
    if context.instance.get_runs(
        dg.RunsFilter(job_name=drain_inbox.name, statuses=UNFINISHED), limit=1
    ):
        return dg.SkipReason(f"a drain is under way; {heard or 'it hears everything'}")
    return dg.RunRequest()


defs = dg.Definitions(jobs=[drain_inbox], sensors=[stored_webhooks])
