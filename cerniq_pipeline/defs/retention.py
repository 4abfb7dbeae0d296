"""Forgetting: every night, what is older than the settings keep it."""

import dagster as dg
from pydantic import Field

from cerniq_pipeline.defs.resources import Database, settings
from cerniq_pipeline.defs.running import alone, in_this_process, stoppable


class PurgeConfig(dg.Config):
    """What one purge is asked to do."""

    dry_run: bool = Field(False, description="Only count what would go.")


@dg.op
@stoppable
def forget(context: dg.OpExecutionContext, config: PurgeConfig, database: Database) -> None:
    """Forget each kind in small batches; its count is in the metadata under its name.

    - `webhook_bodies`, `webhook_keys`, `raw_calls`, `logged_raw_calls`, `attempts`, `changes`,
      `letters`, `alerts`, `heartbeats`, `early_deliveries`: rows that were forgotten, or would be
    - `dry_run`: whether they were only counted
    - `left_for_the_next_night`: kinds of which not all was forgotten in the time that there is
    """
    from cerniq_pipeline.services.retention import purge

    done = purge(database.begin, settings().kept, clock=database.clock(), dry_run=config.dry_run)
    counts = {kind: one.rows for kind, one in done.items()}
    left = ", ".join(kind for kind, one in done.items() if not one.is_complete)
    context.add_output_metadata(
        {**counts, "dry_run": config.dry_run, "left_for_the_next_night": left or "nothing"}
    )


@dg.job(executor_def=in_this_process, tags=alone("retention"))
def retention() -> None:
    """Forget what has served its time; suppressions, ledger and what was said are never touched."""
    forget()


retention_nightly = dg.ScheduleDefinition(
    name="retention_nightly",
    job=retention,
    description="Forget what has served its time, while little else happens.",
    cron_schedule="15 4 * * *",
    execution_timezone="Europe/Bucharest",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)


defs = dg.Definitions(jobs=[retention], schedules=[retention_nightly])
