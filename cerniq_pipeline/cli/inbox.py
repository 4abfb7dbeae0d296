"""`cerniq inbox`: what providers told us, as it came, and what became of it."""

from __future__ import annotations

import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cerniq_pipeline.cli.context import (
    AsJson,
    clock,
    console,
    engine,
    harmless,
    listing,
    local_times,
    print_json,
)
from cerniq_pipeline.cli.letters import By, masked
from cerniq_pipeline.errors import NotFound

inbox = typer.Typer(
    help="What providers told us, as it came, and what became of it.", no_args_is_help=True
)


class State(StrEnum):
    """Where an event stands."""

    WAITING = "waiting"
    DONE = "done"
    DEAD = "dead"


OfState = Annotated[State | None, typer.Option("--state", help="Only events in this state.")]
Unknown = Annotated[
    bool, typer.Option("--unknown", help="Messages of people who belong to no lead, instead.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many, newest first.")]


@inbox.command("list")
def list_events(
    state: OfState = None, unknown: Unknown = False, limit: Limit = 50, as_json: AsJson = False
) -> None:
    """Show the last stored events, or the last messages that no lead sent."""
    from cerniq_pipeline.store import dead_letters, overview

    if unknown and state is not None:
        raise typer.BadParameter("--unknown shows messages, which have no --state")
    with engine().begin() as conn:
        found = (
            overview.from_strangers(conn, limit=limit)
            if unknown
            else overview.events(conn, state=state, limit=limit)
        )
        aside = dead_letters.unknown_receivers(conn) if unknown else {}
    if as_json:
        print_json(found)
        return
    if not found:
        console.print("nobody unknown wrote" if unknown else "no event is stored")
    else:
        console.print(_strangers(found) if unknown else _events(found))
    if aside:
        console.print(
            f"{sum(aside.values())} more came to a number or an address of which nobody has said "
            "whose it is: cerniq inbox receivers",
            soft_wrap=True,
        )


@inbox.command("show")
def show_event(
    event_id: Annotated[int, typer.Argument(metavar="ID", help="As `cerniq inbox list` has it.")],
    as_json: AsJson = False,
) -> None:
    """Show one event with its body, its tries and what became of it."""
    from cerniq_pipeline.store import overview

    with engine().begin() as conn:
        found = overview.event(conn, event_id)
    if found is None:
        raise NotFound(f"no event {event_id}; `cerniq inbox list` shows those that came last")
    event, body = found[0], found[1].decode(errors="backslashreplace")
    if as_json:
        print_json({**event, "body": body})
        return
    times = local_times()
    for name, value in event.items():
        if value is not None:
            said = (
                times.at(value, event["tenant_id"], seconds=True)
                if isinstance(value, datetime)
                else harmless(str(value))
            )
            console.print(f"[dim]{name.replace('_', ' '):<12}[/] {escape(said)}", highlight=False)
    console.print(harmless(_pretty(body)), markup=False, highlight=False, soft_wrap=True)


@inbox.command("receivers")
def list_receivers(as_json: AsJson = False) -> None:
    """Show the numbers and addresses that people write to, beside the phones, and whose each is."""
    from cerniq_pipeline.store import receivers

    with engine().begin() as conn:
        found = receivers.listing(conn)
    if as_json:
        print_json(found)
        return
    times = local_times()
    table = listing("number or address", rest="whose")
    for one in found:
        whose = one["tenant_id"] or ("nobody's" if one["is_known"] else "[yellow]unknown[/]")
        since = times.at(one["since"], one["tenant_id"]) if one["since"] else ""
        waiting = f", events that wait: {one['waiting']} since {since}" if one["waiting"] else ""
        table.add_row(escape(harmless(one["address"])), f"{whose}{waiting}")
    console.print(table if found else "everything came to phones of ours")


@inbox.command("assign")
def assign(
    address: Annotated[
        str, typer.Argument(help="A number or an address, as `cerniq inbox receivers` has it.")
    ],
    *,
    by: By,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="The tenant that hears it.")
    ] = None,
    nobody: Annotated[
        bool, typer.Option("--nobody", help="No tenant here: what comes to it is passed over.")
    ] = False,
) -> None:
    """Say whose a number or an address is; what waits for that word is handled at once."""
    from cerniq_pipeline.services import receivers

    if (tenant is None) != nobody:
        raise typer.BadParameter("give either --tenant or --nobody")
    found = receivers.assign(engine().begin, address, tenant_id=tenant, by=by, now=clock().now())
    whose = f"tenant {tenant}" if tenant else "nobody here"
    console.print(
        f"{address} belongs to {whose}; events put back into the inbox: {found}",
        markup=False,
        soft_wrap=True,
    )


def _events(found: list[dict[str, Any]]) -> Table:
    times = local_times()
    table = listing("id", "state", rest="event")
    colors = {"dead": "red", "waiting": "yellow", "done": "green"}
    for event in found:
        tries = f" (tries: {event['tries']})" if event["tries"] else ""
        ours = event["phone_id"] or masked(event["account"]) or "nobody"
        whom = f"{masked(event['contact']) or 'nobody'} at {ours}"
        result = event["result"] or event["error"]
        became = f": {result}{tries}" if result else tries
        table.add_row(
            str(event["id"]),
            f"[{colors[event['state']]}]{event['state']}[/]",
            f"{times.at(event['received_at'], event['tenant_id'], seconds=True)}  "
            + escape(harmless(whom))
            + "\n"
            + escape(harmless(f"{event['provider']} {event['event_type']}{became}")),
        )
    return table


def _strangers(found: list[dict[str, Any]]) -> Table:
    times = local_times()
    table = listing("sender", "phone", rest="message")
    for message in found:
        kind = message["media_type"] or message["message_type"]
        table.add_row(
            escape(harmless(masked(message["contact"]))),
            escape(message["phone_id"] or message["channel"]),
            f"[dim]{times.at(message['at'], message['tenant_id'])}[/]\n"
            + escape(harmless(message["text"] or f"({kind})")),
        )
    return table


def _pretty(body: str) -> str:
    try:
        return json.dumps(json.loads(body), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return body
