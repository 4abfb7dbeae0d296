"""The one source of time: passed in, so that tests and the simulator can replace it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """What the time is, and how to wait. All instants are aware UTC."""

    def now(self) -> datetime: ...

    def sleep(self, seconds: float) -> None: ...
