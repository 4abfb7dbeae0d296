"""Everything that lives in one sandbox, and how it is joined."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cerniq_pipeline.sandbox.desk import Desk, Latency
from cerniq_pipeline.sandbox.hooks import Hooks
from cerniq_pipeline.sandbox.journal import Journal, JournalBroken, Line
from cerniq_pipeline.sandbox.notices import notices_of
from cerniq_pipeline.sandbox.players import Players
from cerniq_pipeline.sandbox.subscriptions import SubscriptionBook


class House:
    """The desk that serves calls, the hooks that make calls, and the players who write."""

    def __init__(self, journal: Journal, latency: Latency, webhooks: Path | None = None) -> None:
        self.desk = Desk(journal, latency)
        self.hooks = Hooks(
            journal,
            self.desk.faults,
            SubscriptionBook(webhooks),
            record=lambda line: self.desk.room.apply(line),
        )
        self.players = Players(self.desk)
        self.desk.watchers += [self._tell, self.players.heed]

    async def run(self) -> None:
        """Call and play until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.hooks.run())
                group.create_task(self.players.run())
        except* JournalBroken:
            pass  # the server has seen it too, and stops

    async def reset(self) -> None:
        """Forget faults, state, journal, what waits to be told, and whom to tell but by file."""
        await self.desk.reset()
        self.hooks.clear()
        self.players.stop()

    def _tell(self, line: Line) -> None:
        self.hooks.tell(notices_of(self.desk.room, line))
