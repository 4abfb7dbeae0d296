"""`cerniq alerts`: what a person must know, and who takes care of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from cerniq_pipeline.cli.context import (
    AsJson,
    OfTenant,
    clock,
    console,
    engine,
    listing,
    print_json,
)
from cerniq_pipeline.cli.letters import By, age
from cerniq_pipeline.errors import NotFound

alerts = typer.Typer(
    help="What a person must know, and who takes care of it.", no_args_is_help=True
)


@alerts.command("list")
def list_alerts(tenant: OfTenant = None, as_json: AsJson = False) -> None:
    """Show the alerts whose cause is not gone yet, oldest first."""
    from cerniq_pipeline.domain.alerts import sentence
    from cerniq_pipeline.store import alerts as store

    with engine().begin() as conn:
        found = store.open_alerts(conn, tenant_id=tenant)
    if as_json:
        print_json([asdict(alert) for alert in found])
        return
    now = clock().now()
    table = listing("id", "open for", rest="alert")
    for alert in found:
        told = f"told {age(alert.notified_at, now)} ago" if alert.notified_at else "not told yet"
        taken = f", taken by {alert.acknowledged_by}" if alert.acknowledged_by else ""
        table.add_row(
            str(alert.id),
            age(alert.opened_at, now),
            f"{escape(sentence(alert))}\n[dim]{escape(told + taken)}[/]",
        )
    console.print(table if found else "no alert is open")


@alerts.command("ack")
def acknowledge(
    by: By, ids: Annotated[list[int], typer.Argument(help="Ids, as `cerniq alerts list` has them.")]
) -> None:
    """Say that you take care of alerts; each closes by itself when its cause is gone."""
    from cerniq_pipeline.store import alerts as store

    for alert_id in ids:
        with engine().begin() as conn:
            taken_by = store.acknowledge(conn, alert_id, by=by, now=clock().now())
        if taken_by is None:
            raise NotFound(
                f"no alert {alert_id} is open; `cerniq alerts list` shows those that are"
            )
        console.print(f"alert {alert_id}: {escape(taken_by)} takes care of it", highlight=False)
