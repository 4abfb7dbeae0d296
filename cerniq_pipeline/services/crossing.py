"""When two transactions cross, Postgres ends one of them; some are too important to give up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cerniq_pipeline.logs import event
from cerniq_pipeline.store.database import Unavailable, is_locked_out

T = TypeVar("T")

TRIES = 5


def insist(act: Callable[[], T], *, worker: str, when_locked_out: bool = True) -> T:
    """Do it, and do it again when it was ended for the sake of another; raises the last time.

    `act` is one whole transaction, so what was ended left nothing behind. Each time Postgres first
    waits a second before it ends somebody, which is pause enough. Who finds a row locked for long
    gives up at once without `when_locked_out`: others wait behind it.
    """
    for _ in range(TRIES - 1):
        try:
            return act()
        except Unavailable as crossed:
            if is_locked_out(crossed) and not when_locked_out:
                raise
            event(worker, "tried_again", level="warning", error=type(crossed).__name__)
    return act()
