"""The web service looks whether Dagster lives: it does not depend on it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from sqlalchemy import Engine

from cerniq_pipeline.logs import event
from cerniq_pipeline.providers.slack.webhook import SlackWebhook
from cerniq_pipeline.services.automation import speak_for_dagster, what_stands_still
from cerniq_pipeline.settings import Settings
from cerniq_pipeline.store.database import DatabaseClock

LOOK_EVERY = timedelta(minutes=1)


async def watch_dagster(
    settings: Settings, engine: Engine, *, every: timedelta = LOOK_EVERY
) -> None:
    """Look once in a while until cancelled, and speak up when Dagster is silent twice in a row.

    Once is not enough: Dagster starts after us, and wakes up later when the machine slept.
    """
    watch = _Watch(settings, engine)
    while True:
        await asyncio.sleep(every.total_seconds())
        try:
            await asyncio.to_thread(watch.look)
        except Exception as error:  # noqa: BLE001 (whatever it is, look again)
            event("web", "watch_failed", level="warning", error=type(error).__name__)


class _Watch:
    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._begin = engine.begin
        self._clock = DatabaseClock(engine)
        self._messenger = SlackWebhook(settings.slack_url) if settings.slack_url else None
        self._since: datetime | None = None

    def look(self) -> None:
        now = self._clock.now()
        found = what_stands_still(self._begin, now=now)
        is_news = found.silent_since is not None and found.silent_since != self._since
        self._since = found.silent_since
        if not is_news:
            speak_for_dagster(self._begin, self._messenger, now=now)
