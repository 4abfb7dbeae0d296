"""`cerniq templates`: can every text be used, and where is it wrong."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from cerniq_pipeline.cli.context import AsJson, OfTenant, console, engine, print_json

FewestVariants = Annotated[
    int, typer.Option(help="Fewest distinct texts a template of a sequence must have.")
]


def templates(
    tenant: OfTenant = None, fewest: FewestVariants = 20, as_json: AsJson = False
) -> None:
    """Check every template: syntax, variables, addresses in first messages, length, variety."""
    from cerniq_pipeline.store import sequences

    with engine().begin() as conn:
        uses = sequences.all_texts(conn, tenant)
    checked = [_checked(use, fewest) for use in uses]
    if as_json:
        print_json(checked)
    else:
        table = Table("tenant", "template", "step", "texts", "problems")
        for row in checked:
            wrong = "\n".join(f"line {p['line']}: {p['message']}" for p in row["problems"])
            step = str(row["step"] or "unused")
            texts = f"{row['variants']:,}" if row["variants"] is not None else ""
            table.add_row(row["tenant"], row["name"], step, texts, wrong or "[green]none[/]")
        console.print(table)
    if any(row["problems"] for row in checked):
        raise typer.Exit(1)


def _checked(use: Any, fewest: int) -> dict[str, Any]:
    from cerniq_pipeline.domain.address import KNOWN_VARIABLES
    from cerniq_pipeline.domain.templates import parse, problems

    found = problems(
        use.content,
        known=KNOWN_VARIABLES,
        first_message=use.step == 1,
        min_variants=fewest if use.step else 1,
    )
    broken = any(problem.code == "syntax" for problem in found)
    return {
        "tenant": use.tenant_id,
        "name": use.name,
        "step": use.step,
        "variants": None if broken else parse(use.content).variants,
        "problems": [asdict(problem) for problem in found],
    }
