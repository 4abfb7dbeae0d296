"""`cerniq history`: fetch a lead's whole conversation from the provider, and show it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cerniq_pipeline.cli.context import AsJson, OfTenant, console, desk, engine, print_json


def history(
    subject: Annotated[
        str, typer.Argument(help="A lead's id or its beginning, a CUI, a number or an address.")
    ],
    tenant: OfTenant = None,
    as_json: AsJson = False,
) -> None:
    """Fetch what was said between us and a lead, and show all that the log has of it."""
    from cerniq_pipeline.services.history import fetch_chat
    from cerniq_pipeline.services.people import find_lead
    from cerniq_pipeline.store import histories

    _, lead_id = find_lead(engine().begin, subject, tenant_id=tenant)
    fetched = fetch_chat(desk(), lead_id)
    with engine().begin() as conn:
        messages = histories.conversation(conn, lead_id)
    if as_json:
        print_json({"lead": lead_id, "fetched": asdict(fetched), "messages": messages})
        return
    table = Table("when (UTC)", "", "phone", "status", "text")
    for one in messages:
        table.add_row(
            f"{one['sent_at']:%Y-%m-%d %H:%M:%S}" if one["sent_at"] else "",
            "[green]←[/]" if one["direction"] == "INBOUND" else "→",
            one["phone_id"] or "",
            one["status"],
            escape(one["text"] or (f"({one['media_type']})" if one["media_type"] else "")),
        )
    console.print(table)
    console.print(f"{fetched.read} messages read in {fetched.chats} chats, {fetched.new} new")
