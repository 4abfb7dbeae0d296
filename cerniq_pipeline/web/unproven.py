"""Bodies of strangers: who has proven nothing yet may keep little of our memory, not for long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(eq=False)
class Stranger:
    """Somebody whose body is coming in."""

    task: asyncio.Task[object]
    """Waits for the rest of it, and for nothing else."""
    size: int = 0
    is_dropped: bool = False


class Dropped(Exception):
    """This body had to make room for others."""


class UnprovenBodies:
    """All bodies that are not here yet, and whose senders the head alone does not prove.

    Anybody can begin one. When together they are too large, the one that began first goes: a
    provider sends its body in one go, and is never among those that linger. Not counted by the
    sender's address: behind a proxy all have the same.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._coming: dict[Stranger, None] = {}
        """The one that began first, first."""

    def grow(self, stranger: Stranger, by: int) -> None:
        """Count more bytes of a body that has not ended; raises Dropped when it is the slowest."""
        self._coming[stranger] = None
        stranger.size += by
        self._bytes += by
        while self._bytes > self._most_bytes:
            slowest = next(iter(self._coming))
            self.forget(slowest)
            slowest.is_dropped = True
            if slowest is stranger:
                raise Dropped
            slowest.task.cancel()

    def forget(self, stranger: Stranger) -> None:
        """Its body is here, or will not come."""
        if stranger in self._coming:
            del self._coming[stranger]
            self._bytes -= stranger.size
