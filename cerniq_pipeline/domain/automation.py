"""What starts our work: Dagster's sensors, schedules and daemons, and what rests without each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

SILENT_AFTER = timedelta(minutes=3)
"""Two sensors look every 15 seconds; on a busy machine, not quite so often."""

WITHOUT = {
    "open_shifts": "no shift will start",
    "dispatch_every_5_minutes": "no lead is planned",
    "stored_webhooks": "no reply and no stop is heard until a drain is launched by hand",
    "unconfirmed_sends": "sends in doubt are not looked up",
    "quota_gate": "nobody compares Redis with the ledger",
    "quota_midnight": "the quota day is closed by the next comparison only",
    "dead_runs": "runs that died stay in the place of the next ones",
    "lost_phones": "the leads of lost phones wait",
    "phone_health": "no phone that fell silent is noticed",
    "phone_status_every_10_minutes": "phones that went offline, or came back, are not noticed",
    "missed_messages": "replies whose webhook was lost are not found",
    "heartbeats_due": "phones do not write to each other",
    "untold_alerts": "what piles up is not noticed, and Dagster tells no alerts",
    "dead_letters_daily": "old dead letters stay on the list",
    "retention_nightly": "nothing is forgotten when its time is over",
    "SENSOR": "nothing of the above starts by itself",
    "SCHEDULER": "no schedule starts anything",
    "QUEUED_RUN_COORDINATOR": "no run starts",
    "MONITORING": "runs that hang are not noticed",
}
"""What does not happen while something is stopped."""

NEEDED_FOR = {
    "ready": "open_shifts",
    "queued": "open_shifts",
    "next_dispatch": "dispatch_every_5_minutes",
    "unconfirmed": "unconfirmed_sends",
    "unheard_reply": "stored_webhooks",
}
"""What must run for a rule to lift by itself."""


@dataclass(frozen=True)
class Automation:
    """A sensor, schedule or daemon as it was last seen."""

    name: str
    kind: str
    is_running: bool
    since: datetime
    seen_at: datetime


@dataclass(frozen=True)
class Standstill:
    """What does not run, in words: the whole of Dagster, or some parts of it by name."""

    silent_since: datetime | None
    stopped: dict[str, str]

    def of(self, name: str) -> str | None:
        """Why this one does nothing now, in a sentence; None when it does."""
        if self.silent_since is not None:
            return (
                f"Dagster gave no sign of life since {self.silent_since:%F %R} UTC: "
                f"{WITHOUT.get(name, 'nothing starts')}"
            )
        return f"{name} is stopped: {self.stopped[name]}" if name in self.stopped else None


def standstill(seen: Iterable[Automation], *, now: datetime) -> Standstill:
    """What does not run now. Where Dagster never ran, nobody misses it."""
    seen = list(seen)
    last = max((each.seen_at for each in seen), default=None)
    return Standstill(
        silent_since=last if last is not None and now - last > SILENT_AFTER else None,
        stopped={
            each.name: WITHOUT.get(each.name, "what it starts does not happen")
            for each in seen
            if not each.is_running
        },
    )
