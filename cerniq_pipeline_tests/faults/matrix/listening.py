"""The way in, for scenarios to break: the real web service, and a drain behind it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

import httpx

from cerniq_pipeline.domain.events import WebhookReader
from cerniq_pipeline.providers.timelinesai.channel import open_client
from cerniq_pipeline.providers.timelinesai.history import PublicHistory
from cerniq_pipeline.services.drain import drain, handle_waiting
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store.database import Unavailable
from cerniq_pipeline.store.inbox import Bell
from cerniq_pipeline_tests.faults.campaign import running, wait_for
from cerniq_pipeline_tests.faults.matrix.stage import Stage
from cerniq_pipeline_tests.faults.said import READERS, TOKEN
from cerniq_pipeline_tests.web.running import RunningWeb

RUN = timedelta(seconds=2)
LINGER = timedelta(seconds=0.5)
"""Runs of the drain are short here, so that a scenario need not wait for one to end."""

WAITING = "SELECT 1 FROM webhook_events WHERE state = 'waiting' LIMIT 1"


def hearing_desk(stage: Stage) -> Desk:
    """The stage's desk, with the provider's history at hand."""
    client = open_client(stage.sandbox.public_url, "sandbox-token")
    return replace(stage.crew.desk, histories={"timelinesai": PublicHistory(client)})


def hear_all(
    stage: Stage, desk: Desk, readers: Mapping[str, WebhookReader] = READERS
) -> dict[str, int]:
    """Handle what is stored until nothing waits; time passes for what was put off."""
    outcomes: dict[str, int] = {}
    for _ in range(50):
        handled = handle_waiting(desk, readers)
        for name, count in handled.items():
            outcomes[name] = outcomes.get(name, 0) + count
        if not stage.ask(WAITING):
            return outcomes
        if not handled:
            stage.move_time(timedelta(minutes=10))
    raise AssertionError(f"events are left: {outcomes}")


@contextmanager
def drains_open(stage: Stage, desk: Desk) -> Iterator[None]:
    """Have a drain under way at every moment, as the sensor sees to."""
    over = threading.Event()

    def keep_open() -> None:
        while not over.is_set():
            with suppress(*Unavailable):
                bell = Bell(stage.crew.engine)
                drain(desk, READERS, bell, who=uuid.uuid4().hex, longest=RUN, linger=LINGER)

    with running(keep_open, over):
        yield


@dataclass(frozen=True)
class Door:
    """The running web service, and how a provider knocks."""

    web: RunningWeb
    path: str

    @staticmethod
    def with_token(token: str) -> str:
        """The address that TimelinesAI is given."""
        return f"/webhooks/timelinesai?token={token}"

    def tell(self, body: bytes) -> httpx.Response:
        """Post one event as TimelinesAI does."""
        return self.web.client.post(self.path, content=body)

    def memory(self) -> int:
        """Bytes that the service holds."""
        return self.web.process.memory_info().rss


@contextmanager
def door_open(
    stage: Stage,
    settings: Mapping[str, str] | None = None,
    *,
    limits: Mapping[str, float] | None = None,
) -> Iterator[Door]:
    """The web service in front of the stage's inbox, with these secrets beside a token of ours."""
    folder = stage.house.folder / f"web-{uuid.uuid4().hex[:8]}"
    web = RunningWeb(folder, stage.database_url, limits=limits)
    stage.logs.append(folder / "web.log")
    told = {"timelinesai_webhook_token": TOKEN, **(settings or {})}
    with web.tell(**told):
        yield Door(web, Door.with_token(told["timelinesai_webhook_token"]))


def wait_until_heard(stage: Stage, *, seconds: float = 60.0) -> None:
    """Return when no stored event waits any more."""
    wait_for(lambda: not stage.ask(WAITING), seconds=seconds)
