"""`make faults`: plays the matrix and prints its table; exit code 1 when a promise was broken."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from rich.console import Console

from cerniq_pipeline_tests.faults.matrix.runner import play_all, shown
from cerniq_pipeline_tests.faults.matrix.scenario import chosen
from cerniq_pipeline_tests.faults.matrix.stage import House, Scale
from cerniq_pipeline_tests.faults.matrix.table import SCENARIOS

MOST_SEED = 10**6
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    _stop_at_first_signal()
    with (
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


def _stop_at_first_signal() -> None:
    """The first stop signal raises KeyboardInterrupt; a second one must not stop the tidying."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)
        raise KeyboardInterrupt

    for number in STOP_SIGNALS:
        signal.signal(number, stop)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("stopped; nothing is left running")
