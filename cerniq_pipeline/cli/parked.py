"""`cerniq parked`: sends that may have gone out, after a person looked into the chat."""

from __future__ import annotations

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
    secret,
)
from cerniq_pipeline.cli.letters import By, age, report

parked = typer.Typer(
    help="Sends that may have gone out: look into the chat, then decide.", no_args_is_help=True
)

Messages = Annotated[list[int], typer.Argument(help="Ids, as `cerniq parked list` has them.")]


@parked.command("list")
def list_parked(tenant: OfTenant = None, as_json: AsJson = False) -> None:
    """Show parked sends, oldest first, with the number and the text to look for."""
    from cerniq_pipeline.store import parked as store

    with engine().begin() as conn:
        messages = store.parked(conn, tenant_id=tenant)
    if as_json:
        print_json(messages)
        return
    now = clock().now()
    table = listing("id", "to", "from", rest="message")
    for message in messages:
        step = f", step {message['step']}" if message["step"] else ""
        about = f"{message['company'] or '(gone)'}{step}, {age(message['begun_at'], now)} ago"
        table.add_row(
            str(message["id"]),
            message["recipient"],
            message["phone_id"],
            "\n".join(escape(line) for line in (about, message["reason"], message["body"]) if line),
        )
    console.print(table if messages else "no send is parked")


@parked.command("sent")
def mark_sent(by: By, ids: Messages) -> None:
    """It is in the chat: record it as sent; its sequence goes on."""
    from cerniq_pipeline.services import parked as service

    now = clock().now()
    report("message", [service.mark_sent(engine().begin, id, by=by, now=now) for id in ids])


@parked.command("resend")
def resend(by: By, ids: Messages) -> None:
    """It is not in the chat: send it again, as a new message."""
    from cerniq_pipeline.services import parked as service

    now = clock().now()
    answers = [service.resend(engine().begin, id, by=by, secret=secret(), now=now) for id in ids]
    report("message", answers)


@parked.command("drop")
def drop(
    by: By,
    ids: Messages,
    reason: Annotated[str, typer.Option(help="Why; kept with the message.")],
) -> None:
    """Leave it at that; nothing more is sent to its lead by itself."""
    from cerniq_pipeline.services import parked as service

    now = clock().now()
    answers = [service.drop(engine().begin, id, by=by, reason=reason, now=now) for id in ids]
    report("message", answers)
