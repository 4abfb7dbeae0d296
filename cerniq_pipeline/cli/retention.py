"""`cerniq purge`: forget what has served its time, or only say how much that is."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from rich.table import Table

from cerniq_pipeline.cli.context import AsJson, clock, console, engine, print_json, settings


def purge(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how much would be forgotten.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Forget what is older than the settings keep it; the schedule does so every night."""
    from cerniq_pipeline.services.retention import purge as forget

    done = forget(engine().begin, settings().kept, clock=clock(), dry_run=dry_run)
    if as_json:
        print_json(
            {
                kind: {
                    "kept_days": one.kept_for // timedelta(days=1),
                    "rows": one.rows,
                    "complete": one.is_complete,
                }
                for kind, one in done.items()
            }
        )
        return
    table = Table("kind", "kept for", "would go" if dry_run else "forgotten", "")
    for kind, one in done.items():
        rest = "" if one.is_complete else "more is left for the next time"
        table.add_row(kind, f"{one.kept_for.days} days", f"{one.rows:,}", rest)
    console.print(table)
