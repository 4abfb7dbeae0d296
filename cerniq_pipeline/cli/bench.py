"""`cerniq bench`: figures measured on this machine, each beside the limit it can reach."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from cerniq_pipeline.cli.context import AsJson, complaints, console, print_json, settings

bench = typer.Typer(help="Measure this machine.", no_args_is_help=True)


@bench.callback()
def _group() -> None:
    """Keep `dispatch` a command of its own, although it is the only one so far."""


@bench.command()
def dispatch(
    leads: Annotated[int, typer.Option(min=1, help="How many leads to plan in one go.")] = 20_000,
    table: Annotated[
        int | None,
        typer.Option(min=1, help="How many leads the table has; default: twice as many."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often to measure.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Plan leads out of a scratch table, in a database of its own that is dropped afterwards."""
    from cerniq_pipeline.services.bench_dispatch import bench_dispatch

    with complaints.status("preparing a scratch database") as shown:
        figures = bench_dispatch(
            settings().database_url,
            leads=leads,
            table=max(table or 2 * leads, leads),
            rounds=rounds,
            progress=shown.update,
        )
    if as_json:
        print_json(asdict(figures))
        return
    shown_figures = Table("figure", "value", title="dispatch")
    for name, value in asdict(figures).items():
        shown_figures.add_row(name.replace("_", " "), f"{value:,}")
    console.print(shown_figures)
