"""`make faults`: plays the matrix and prints its table; exit code 1 when a promise was broken."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from cerniq_pipeline.dev.supervisor import signals_as_interrupts
from cerniq_pipeline_tests.faults.matrix.runner import play_all, shown
from cerniq_pipeline_tests.faults.matrix.scenario import chosen
from cerniq_pipeline_tests.faults.matrix.stage import House, Scale
from cerniq_pipeline_tests.faults.matrix.table import SCENARIOS

MOST_SEED = 10**6


def main(arguments: list[str]) -> int:
    """Play what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--rows", default="", help="which rows, as 1,8,15-19; all when left out")
    parser.add_argument("--repeats", type=int, help="how often each; every row knows its own")
    parser.add_argument("--seed", type=int, help="the seed of the first repeat; else at random")
    parser.add_argument("--sends", type=int, default=Scale.most_sends, help="sends in row 18")
    parser.add_argument("--brief", action="store_true", help="as small as in `make test`")
    parser.add_argument("--keep", type=Path, default=Path(".cerniq/faults"), help="for evidence")
    asked = parser.parse_args(arguments)
    try:
        scenarios = chosen(SCENARIOS, asked.rows)
    except ValueError as error:
        parser.error(str(error))
    seed = random.SystemRandom().randrange(MOST_SEED) if asked.seed is None else asked.seed
    console = Console()
    console.print(f"seed {seed}", highlight=False)
    with (
        signals_as_interrupts(),
        tempfile.TemporaryDirectory(prefix="cerniq-faults-") as folder,
        House(Path(folder), Scale(asked.brief, asked.sends)) as house,
    ):
        rows = play_all(
            scenarios,
            house,
            seed=seed,
            repeats=asked.repeats,
            keep_in=asked.keep.absolute(),
            say=lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True),
        )
    console.print(shown(rows))
    return 1 if any(row.violations for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
