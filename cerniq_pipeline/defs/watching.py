"""Which sensors, schedules and daemons run: seen by two sensors, so that one can miss the other."""

import time

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorStatus

from cerniq_pipeline.defs.resources import Database

DAEMON_SILENT_AFTER = 180.0
"""Seconds; a daemon beats every 30."""


def note_what_runs(context: dg.SensorEvaluationContext, database: Database) -> list[str]:
    """Write down what of Dagster runs, where everybody can read it; returns who is stopped."""
    from cerniq_pipeline.services.automation import note

    return note(database.begin, _what_runs(context), now=database.now())


def _what_runs(context: dg.SensorEvaluationContext) -> list[tuple[str, str, bool]]:
    repository = context.repository_def
    assert repository is not None  # the daemon always brings it
    # What nobody ever switched has no state, or one that says so: all of ours are on by default.
    states = context.instance.all_instigator_state()
    stopped = {s.instigator_name for s in states if s.status is InstigatorStatus.STOPPED}
    stopped -= {s.instigator_name for s in states if s.status is not InstigatorStatus.STOPPED}
    beats = context.instance.get_daemon_heartbeats()
    oldest = time.time() - DAEMON_SILENT_AFTER
    return [
        *((each.name, "sensor", each.name not in stopped) for each in repository.sensor_defs),
        *((each.name, "schedule", each.name not in stopped) for each in repository.schedule_defs),
        *(
            (daemon, "daemon", beats[daemon].timestamp >= oldest)
            for daemon in context.instance.get_required_daemon_types()
            if daemon in beats
        ),
    ]
