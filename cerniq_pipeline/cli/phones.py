"""`cerniq phone`: take a phone into use again, or out of it for good."""

from __future__ import annotations

from typing import Annotated

import typer

from cerniq_pipeline.cli.context import clock, console, engine
from cerniq_pipeline.cli.letters import By

phone = typer.Typer(help="Take a phone into use again, or out of it.", no_args_is_help=True)

Which = Annotated[
    str, typer.Argument(help="The phone's id or number, as `cerniq status` shows it.")
]


@phone.command()
def activate(phone_id: Which, by: By) -> None:
    """Let a phone send again that was offline, banned or retired; its alerts are closed.

    Leads that were handed over in the meantime stay with their new phone.
    """
    from cerniq_pipeline.domain.alerts import PHONE_ALERTS
    from cerniq_pipeline.services.switches import the_phone
    from cerniq_pipeline.store import alerts, phones

    with engine().begin() as conn:
        now = clock().now()
        phone_id = the_phone(conn, phone_id)
        phones.set_status(conn, phone_id, status="ACTIVE", reason=f"by {by}", now=now)
        phones.set_enabled(conn, phone_id, enabled=True, now=now)
        alerts.close(conn, kinds=PHONE_ALERTS, subjects=[phone_id], now=now)
    console.print(f"[bold green]ACTIVE[/] {phone_id}", highlight=False)


@phone.command()
def retire(phone_id: Which, by: By) -> None:
    """Take a phone out of use: it sends nothing, and its leads follow the tenant's rule."""
    from cerniq_pipeline.domain.alerts import PHONE_ALERTS
    from cerniq_pipeline.logs import event
    from cerniq_pipeline.services.switches import the_phone
    from cerniq_pipeline.store import alerts, phones

    with engine().begin() as conn:
        now = clock().now()
        phone_id = the_phone(conn, phone_id)
        phones.set_enabled(conn, phone_id, enabled=False, now=now)
        alerts.close(conn, kinds=PHONE_ALERTS, subjects=[phone_id], now=now)
    event("phone", "phone_retired", phone=phone_id, by=by)
    console.print(f"[bold red]RETIRED[/] {phone_id}", highlight=False)
