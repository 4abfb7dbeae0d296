"""Notice what does not run: told by those parts of Dagster that do, or by the web service."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from cerniq_pipeline.domain.alerts import AUTOMATION_STOPPED, DAGSTER_SILENT, Messenger
from cerniq_pipeline.domain.automation import Standstill, standstill
from cerniq_pipeline.services.notify import tell
from cerniq_pipeline.store import alerts, automations
from cerniq_pipeline.store.database import Begin

DAGSTER = "Dagster"
PATIENCE = timedelta(minutes=1)
"""Switched off and on again is no news, nor is a daemon that has not beaten since its start."""

TELLER = "untold_alerts"
"""The sensor that tells alerts; while it does nothing, somebody else must."""


def note(begin: Begin, seen: Collection[tuple[str, str, bool]], *, now: datetime) -> list[str]:
    """Write down what runs and keep an alert open about what does not; returns who is stopped.

    Whoever does this is a sign of life.
    """
    with begin() as conn:
        automations.note(conn, seen, now=now)
        noted = automations.seen(conn)
        stopped = standstill(noted, now=now).stopped
        for_long = {each.name for each in noted if now - each.since >= PATIENCE}
        for name, without in stopped.items():
            if name not in for_long:
                continue
            alerts.open_once(
                conn,
                tenant_id=None,
                kind=AUTOMATION_STOPPED,
                subject=name,
                detail=without,
                now=now,
            )
        alerts.close_others(conn, kind=AUTOMATION_STOPPED, subjects=stopped, now=now)
        alerts.close(conn, kinds=(DAGSTER_SILENT,), subjects=(DAGSTER,), now=now)
    return sorted(stopped)


def what_stands_still(begin: Begin, *, now: datetime) -> Standstill:
    """What does not run, as far as somebody saw it."""
    with begin() as conn:
        return standstill(automations.seen(conn), now=now)


def speak_for_dagster(begin: Begin, messenger: Messenger | None, *, now: datetime) -> bool:
    """Tell that Dagster is silent, and the alerts that it cannot tell; returns whether it is.

    The next note of Dagster closes the alert.
    """
    found = what_stands_still(begin, now=now)
    if found.silent_since is not None:
        with begin() as conn:
            alerts.open_once(
                conn,
                tenant_id=None,
                kind=DAGSTER_SILENT,
                subject=DAGSTER,
                detail=f"since {found.silent_since:%F %R} UTC",
                now=now,
            )
    if messenger is not None and found.of(TELLER) is not None:
        tell(begin, messenger, now=now)
    return found.silent_since is not None
