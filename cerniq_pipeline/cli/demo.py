"""`cerniq demo`: the invented companies and phones that a sandbox begins with."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from cerniq_pipeline.cli.context import AsJson, clock, console, engine, print_json, settings
from cerniq_pipeline.cli.letters import By
from cerniq_pipeline.errors import SetupError

demo = typer.Typer(
    help="The invented companies and phones that a sandbox begins with.", no_args_is_help=True
)


@demo.command()
def remove(
    *,
    by: By,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the demo tenant with everything that is its own; no start brings it back."""
    from cerniq_pipeline.services import demo_data

    if as_json and not yes:
        raise typer.BadParameter("--json asks nobody: give --yes too")
    if not yes:
        typer.confirm("Delete the demo tenant with its companies, phones and messages?", abort=True)
    gone = demo_data.remove_demo(engine().begin, by=by, now=clock().now())
    if as_json:
        print_json(gone)
        return
    console.print(f"the demo is gone: {sum(gone.values()):,} rows", highlight=False)
    for table, count in gone.items():
        console.print(f"  {escape(table):<26} {count:>8,}", highlight=False, style="dim")


@demo.command()
def add() -> None:
    """Bring the demo tenant back, as a sandbox begins with it."""
    from cerniq_pipeline.services import demo_data

    if settings().mode != "sandbox":
        raise SetupError("the demo's people are invented: only sandbox mode may have it")
    added = demo_data.add_demo(engine())
    console.print("the demo is there again" if added else "the demo is there")
