"""`cerniq status` and `why`, `cerniq stop`, and the kill switches `cerniq pause` and `resume`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cerniq_pipeline.cli.context import (
    AsJson,
    OfTenant,
    clock,
    console,
    engine,
    local_times,
    print_json,
    secret,
    settings,
)
from cerniq_pipeline.cli.letters import By, age

if TYPE_CHECKING:
    from cerniq_pipeline.cli.times import LocalTimes

_SCOPES = "global, tenant:ID, channel:WHATSAPP, account:PROVIDER or phone:ID"


def status(tenant: OfTenant = None, as_json: AsJson = False) -> None:
    """Leads by stage, messages by state, phones with their quota, and what waits for a person."""
    from cerniq_pipeline.services.status import status as read

    now = clock().now()
    seen = read(engine().begin, tenant_id=tenant, here=settings().installation, now=now)
    if as_json:
        print_json(seen)
        return
    _mark_sandbox()
    console.print(_counts("Leads", seen["leads"]), _counts("Outbox", seen["outbox"]))
    console.print(_inbox(seen["inbox"], seen["inbox_waiting_since"], now))
    console.print(_counts("Reviews", seen["reviews"]))
    times = local_times()
    console.print(_phones(seen["phones"], times, now))
    for switch in seen["switches_off"]:
        name = f"{switch['scope']} {switch['key']}".strip()
        console.print(
            f"[bold red]OFF[/] {name} since {times.at(switch['off_since'])}: "
            f"{escape(switch['reason'])}",
            soft_wrap=True,
        )
    for alert in seen["alerts"]:
        console.print(
            f"[bold yellow]ALERT[/] {alert['kind']} {alert['subject']}: {escape(alert['detail'])}",
            soft_wrap=True,
        )
    console.print(f"dead letters: {seen['dead_letters']}")


def why(
    subject: Annotated[
        str,
        typer.Argument(
            help="A phone's id or number; a lead's id or its beginning, a CUI, a number or an "
            "address."
        ),
    ],
    tenant: OfTenant = None,
    as_json: AsJson = False,
) -> None:
    """Say which rule binds a lead or a phone now, its numbers, and when that changes."""
    from cerniq_pipeline.services.explain import why as explain

    answer = explain(
        engine().begin,
        subject,
        tenant_id=tenant,
        secret=secret(),
        here=settings().installation,
        now=clock().now(),
    )
    if as_json:
        print_json(asdict(answer))
        return
    _mark_sandbox()
    times, whose = local_times(), answer.facts.get("tenant")
    changes = (
        times.at(answer.until, whose, seconds=True)
        if answer.until
        else "when a person or an event changes it"
    )
    console.print(f"[bold]{answer.subject}[/]: [bold]{answer.rule}[/]", highlight=False)
    console.print(f"  why      {escape(answer.detail)}", highlight=False)
    console.print(f"  changes  {changes}", highlight=False)
    for name, value in _flat(answer.facts):
        said = (
            times.at(value, whose, seconds=True)
            if isinstance(value, datetime)
            else escape(str(value))
        )
        console.print(f"  {name.replace('_', ' '):<20} {said}", highlight=False, style="dim")


def _flat(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{name}_")
        elif value is not None:
            yield prefix + name, value


def stop(
    subject: Annotated[
        str,
        typer.Argument(
            help="A number or an address, also of somebody unknown; a lead's id or its beginning; "
            "a CUI."
        ),
    ],
    tenant: OfTenant = None,
    reason: Annotated[str, typer.Option(help="What the person said.")] = "asked by hand",
    as_json: AsJson = False,
) -> None:
    """Never contact this person again, on any channel; what waits for them is cancelled."""
    from cerniq_pipeline.services.opt_out import block

    done = block(
        engine().begin,
        subject,
        tenant_id=tenant,
        secret=secret(),
        reason=reason,
        now=clock().now(),
    )
    if as_json:
        print_json([asdict(one) for one in done])
        return
    for one in done:
        whose = (
            f"{one.leads} leads; messages cancelled: {one.cancelled}"
            if one.leads
            else "nobody's lead yet, and out from the start if a file brings them in"
        )
        console.print(
            f"{escape(subject)} is never contacted again by {one.tenant_id}: {whose}",
            highlight=False,
            soft_wrap=True,
        )


def pause(
    by: By,
    scope: Annotated[str, typer.Argument(help=f"What to stop: {_SCOPES}.")] = "global",
    reason: Annotated[str, typer.Option(help="Why, for the others.")] = "stopped by hand",
) -> None:
    """Stop all sending in a scope; every shift notices before its next message."""
    from cerniq_pipeline.services import switches

    name = switches.pause(
        engine().begin,
        scope,
        accounts=settings().installation.providers,
        reason=reason,
        by=by,
        now=clock().now(),
    )
    console.print(f"[bold red]OFF[/] {escape(name)}: {escape(reason)}", highlight=False)


def resume(
    scope: Annotated[str, typer.Argument(help=f"What to let go on: {_SCOPES}.")] = "global",
) -> None:
    """Let sending go on in a scope that was paused."""
    from cerniq_pipeline.services import switches

    name = switches.resume(
        engine().begin, scope, accounts=settings().installation.providers, now=clock().now()
    )
    console.print(f"[bold green]ON[/] {escape(name)}", highlight=False)


def _mark_sandbox() -> None:
    if settings().mode == "sandbox":
        console.print(
            f"[black on yellow] SANDBOX [/] pacing runs {settings().speed:g}× faster; "
            "nothing leaves this machine"
        )


def _counts(title: str, counts: dict[str, int]) -> Table:
    table = Table("", "count", title=title, title_justify="left")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    return table


def _inbox(counts: dict[str, int], waiting_since: datetime | None, now: datetime) -> Table:
    table = Table("", "count", "oldest", title="Inbox", title_justify="left")
    for state, count in counts.items():
        oldest = waiting_since if state == "waiting" else None
        table.add_row(state, f"{count:,}", age(oldest, now) if oldest else "")
    return table


def _phones(rows: list[dict[str, Any]], times: LocalTimes, now: datetime) -> Table:
    table = Table("phone", "number", "status", "new today", "next send", title_justify="left")
    for row in rows:
        today = f"{row['sent_today']} / {row['quota_today']}"
        color = "green" if row["status"] == "ACTIVE" else "red"
        at = row["next_send_at"]
        # Who waits for somebody else has no time: then the rule says for what.
        due = "now" if at is not None and at <= now else times.at(at, row["tenant_id"])
        table.add_row(
            row["id"],
            row["number"],
            f"[{color}]{row['status']}[/]",
            today,
            due or row["rule"].replace("_", " "),
        )
    return table
