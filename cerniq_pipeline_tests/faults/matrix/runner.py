"""Plays scenarios, again and again, and says what happened; it knows nothing about rows."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.table import Table

from cerniq_pipeline_tests.faults.matrix.scenario import Recovery, Scenario


@dataclass(frozen=True)
class Violation:
    """What broke in one repeat, and where the evidence is."""

    seed: int
    what: str
    folder: Path


@dataclass
class Row:
    """All repeats of one scenario."""

    scenario: Scenario
    seed: int
    recoveries: list[Recovery] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    @property
    def repeats(self) -> int:
        return len(self.recoveries) + len(self.violations)


def play(scenario: Scenario, house: Any, *, seed: int, keep_in: Path) -> Recovery | Violation:
    """One repeat: the same seed draws the same faults."""
    with scenario.ground(house) as ground:
        try:
            recovery = scenario.run(ground, random.Random(seed))
            ground.check()
        # Whatever it is: a promise, a wait that never ends, our own code that chokes on a fault.
        except Exception as failure:  # noqa: BLE001
            folder = keep_in / f"row-{scenario.row}-seed-{seed}"
            ground.keep(folder)
            (folder / "violation.txt").write_text(
                f"row {scenario.row}: {scenario.fault}\nseed {seed}\n\n{traceback.format_exc()}"
            )
            return Violation(seed, _in_short(failure), folder)
    return recovery


def play_all(
    scenarios: Iterable[Scenario],
    house: Any,
    *,
    seed: int,
    repeats: int | None,
    keep_in: Path,
    say: Callable[[str], None],
) -> list[Row]:
    """Every scenario so many times; repeat n of each has the seed `seed + n`."""
    rows = []
    for scenario in scenarios:
        row = Row(scenario, seed)
        rows.append(row)
        for n in range(repeats or scenario.repeats):
            played = play(scenario, house, seed=seed + n, keep_in=keep_in)
            if isinstance(played, Violation):
                row.violations.append(played)
                say(f"row {scenario.row}, seed {played.seed}: {played.what}")
                say(f"  kept in {played.folder}")
            else:
                row.recoveries.append(played)
        say(f"row {scenario.row}: {row.repeats} repeats, {len(row.violations)} violations")
    return rows


def shown(rows: Sequence[Row]) -> Table:
    """The table of a run."""
    table = Table("row", "fault", "repeats", "violations", "recovery", "seed", "note")
    for row in rows:
        table.add_row(
            str(row.scenario.row),
            row.scenario.fault,
            str(row.repeats),
            str(len(row.violations)),
            _time_to_recover(row.recoveries),
            ", ".join(str(each.seed) for each in row.violations) or str(row.seed),
            row.recoveries[-1].note if row.recoveries else "",
        )
    return table


def _time_to_recover(recoveries: Sequence[Recovery]) -> str:
    """The longest one."""
    if not recoveries:
        return ""
    longest = max(recoveries, key=lambda each: each.seconds)
    moved = timedelta(seconds=round(max(each.moved for each in recoveries).total_seconds()))
    return f"{longest.seconds:.1f} s" + (f", clock moved {moved}" if moved else "")


def _in_short(failure: BaseException) -> str:
    said = str(failure).strip().partition("\n")[0]
    return f"{type(failure).__name__}: {said[:300]}"
