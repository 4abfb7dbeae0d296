"""What people must be told or asked: alerts to Slack, and dead letters that grow old or many."""

import dagster as dg

from cerniq_pipeline.defs.resources import Database, settings
from cerniq_pipeline.defs.running import alone, in_this_process, sensor, stoppable
from cerniq_pipeline.defs.watching import note_what_runs


@dg.op
@stoppable
def expire_dead_letters(context: dg.OpExecutionContext, database: Database) -> None:
    """Take dead letters that nobody settled for a week off the list.

    - `expired`: how many
    """
    from cerniq_pipeline.services.dead_letters import expire

    context.add_output_metadata({"expired": expire(database.begin, now=database.now())})


@dg.job(executor_def=in_this_process, tags=alone("dead_letter_upkeep"))
def dead_letter_upkeep() -> None:
    """Once a day: what time itself settles."""
    expire_dead_letters()


dead_letters_daily = dg.ScheduleDefinition(
    name="dead_letters_daily",
    description="Settle what time itself settles, at night.",
    job=dead_letter_upkeep,
    cron_schedule="30 3 * * *",
    execution_timezone="Europe/Bucharest",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)


@sensor(
    minimum_interval_seconds=15,
    job=dead_letter_upkeep,
)
def untold_alerts(context: dg.SensorEvaluationContext, database: Database) -> dg.SkipReason:
    """Notice what piles up and what is stopped, and tell people the alerts they do not know yet.

    Done in the tick itself: a few short reads, and a call only when there is something to tell.
    """
    from cerniq_pipeline.services.bad_data import tell_of_bad_data
    from cerniq_pipeline.services.dead_letters import check_backlog, check_inbox
    from cerniq_pipeline.services.reconcile import tell_of_doubts

    note_what_runs(context, database)
    now = database.now()
    check_backlog(database.begin, now=now)
    check_inbox(database.begin, now=now)
    tell_of_doubts(database.begin, now=now)
    tell_of_bad_data(database.begin, now=now)
    address = settings().slack_url
    if not address:
        return dg.SkipReason("CERNIQ_SLACK_WEBHOOK_URL is not set; `cerniq alerts list` shows them")

    from cerniq_pipeline.providers.slack.webhook import SlackWebhook
    from cerniq_pipeline.services.notify import tell

    told = tell(database.begin, SlackWebhook(address), now=now)
    return dg.SkipReason(f"{told} alerts told" if told else "nobody waits for an alert")


defs = dg.Definitions(
    jobs=[dead_letter_upkeep], schedules=[dead_letters_daily], sensors=[untold_alerts]
)
