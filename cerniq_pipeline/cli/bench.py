"""`cerniq bench`: figures measured on this machine, each beside the limit it can reach."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from cerniq_pipeline.cli.context import AsJson, complaints, console, print_json, settings

bench = typer.Typer(help="Measure this machine.", no_args_is_help=True)


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
    _show("dispatch", asdict(figures), as_json=as_json)


@bench.command()
def ingest(
    events: Annotated[int, typer.Option(min=100, help="How many new events to post.")] = 40_000,
    connections: Annotated[int, typer.Option(min=1, max=256, help="Over how many at once.")] = 32,
    as_json: AsJson = False,
) -> None:
    """Post webhooks to a web service of its own, with a database that is dropped afterwards."""
    from cerniq_pipeline.web.bench_ingest import bench_ingest

    with complaints.status("preparing a scratch database") as shown:
        figures = bench_ingest(
            settings().database_url,
            events=events,
            connections=connections,
            progress=shown.update,
        )
    _show("ingest", asdict(figures), as_json=as_json)


def _show(name: str, figures: dict[str, int | float], *, as_json: bool) -> None:
    if as_json:
        print_json(figures)
        return
    shown = Table("figure", "value", title=name)
    for figure, value in figures.items():
        shown.add_row(figure.replace("_", " "), f"{value:,}")
    console.print(shown)
