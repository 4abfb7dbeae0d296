"""One row of the matrix: a fault, and how the system came back from it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Recovery:
    """Real seconds from the end of a fault to the next send, or to rest with nothing in doubt.

    `moved` is how far the scenario moved its clock meanwhile.
    """

    seconds: float
    moved: timedelta = timedelta()
    note: str = ""


class Ground(Protocol):
    """What a scenario plays on."""

    def check(self) -> None:
        """Raise when a promise is broken."""
        ...

    def keep(self, folder: Path) -> None:
        """Put the evidence into a folder."""
        ...


@dataclass(frozen=True)
class Scenario:
    """A fault at a random moment. `run` injects it and lets the system come to rest.

    `ground` opens what it plays on; `repeats` is how often when nobody says; `brief` scenarios
    are over in seconds and belong to every test run.
    """

    row: int
    fault: str
    run: Callable[[Any, random.Random], Recovery]
    ground: Callable[[Any], AbstractContextManager[Ground]]
    repeats: int
    brief: bool = True


def chosen(scenarios: Sequence[Scenario], rows: str) -> list[Scenario]:
    """The scenarios of some rows, given as `1,8,15-19`; all of them for an empty text."""
    there = {scenario.row for scenario in scenarios}
    wanted: set[int] = set()
    for part in filter(None, rows.replace(" ", "").split(",")):
        first, _, last = part.partition("-")
        named = there & set(range(int(first), int(last or first) + 1))
        if not named:
            raise ValueError(f"no such row: {part}")
        wanted |= named
    return [scenario for scenario in scenarios if not rows or scenario.row in wanted]
