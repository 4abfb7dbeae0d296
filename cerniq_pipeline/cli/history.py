"""`cerniq history`: fetch a lead's whole conversation from the provider, and show it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from cerniq_pipeline.cli.context import (
    AsJson,
    OfTenant,
    console,
    desk,
    engine,
    harmless,
    listing,
    local_times,
    print_json,
)


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

    tenant_id, lead_id = find_lead(engine().begin, subject, tenant_id=tenant)
    fetched = fetch_chat(desk(), lead_id)
    with engine().begin() as conn:
        messages = histories.conversation(conn, lead_id)
    if as_json:
        print_json({"lead": lead_id, "fetched": asdict(fetched), "messages": messages})
        return
    times = local_times()
    table = listing("", "phone", rest="message")
    for one in messages:
        said = one["text"] or (f"({one['media_type']})" if one["media_type"] else "")
        table.add_row(
            "[green]←[/]" if one["direction"] == "INBOUND" else "→",
            one["phone_id"] or "",
            f"[dim]{times.at(one['sent_at'], tenant_id, seconds=True)} {one['status']}[/]\n"
            + escape(harmless(said)),
        )
    console.print(table)
    console.print(f"{fetched.read} messages read in {fetched.chats} chats, {fetched.new} new")
