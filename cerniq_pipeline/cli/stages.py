"""`cerniq stage`, `reviews` and `handback`: a lead moved by hand, looked at, and given back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer
from rich.markup import escape
from rich.table import Table

from cerniq_pipeline.cli.context import (
    AsJson,
    OfTenant,
    clock,
    console,
    engine,
    print_json,
    secret,
)
from cerniq_pipeline.cli.letters import By
from cerniq_pipeline.domain.leads import Stage

OfLead = Annotated[
    str,
    typer.Argument(
        metavar="LEAD", help="A lead's id or its beginning, a CUI, a number or an address."
    ),
]


def stage(
    by: By,
    lead: OfLead,
    to: Annotated[
        Stage | None,
        typer.Argument(metavar="[STAGE]", case_sensitive=False, help="Where it is to go."),
    ] = None,
    why: Annotated[str | None, typer.Option(help="Why; kept with the move.")] = None,
    tenant: OfTenant = None,
    as_json: AsJson = False,
) -> None:
    """Move a lead; without a stage, show where it stands, where it may go and how it came there."""
    from cerniq_pipeline.services.lead_stages import change_stage
    from cerniq_pipeline.services.people import find_lead

    if to is not None and not (why or "").strip():
        raise typer.BadParameter("say --why; it is kept with the move")
    tenant_id, lead_id = find_lead(engine().begin, lead, tenant_id=tenant)
    if to is None or why is None:
        _show(lead_id, as_json=as_json)
        return
    moved = change_stage(
        engine().begin,
        tenant_id=tenant_id,
        lead_id=lead_id,
        to=to,
        who=by,
        why=why,
        secret=secret(),
        now=clock().now(),
    )
    if as_json:
        print_json(asdict(moved))
        return
    if moved.stage is moved.to:
        said = f"it is in {moved.to} already"
    elif moved.goes_on_at is not None:
        said = f"from {moved.stage} to {moved.to}; its sequence goes on {_at(moved.goes_on_at)}"
    else:
        said = f"from {moved.stage} to {moved.to}; messages cancelled: {moved.cancelled}"
    console.print(f"lead {lead_id}: {said}", highlight=False, soft_wrap=True)


def handback(
    by: By,
    lead: OfLead,
    why: Annotated[str, typer.Option(help="Why; written into the log.")],
    tenant: OfTenant = None,
    as_json: AsJson = False,
) -> None:
    """Give a lead back to its sequence that a person took over or had to look at."""
    from cerniq_pipeline.services.lead_stages import hand_back
    from cerniq_pipeline.services.people import find_lead

    tenant_id, lead_id = find_lead(engine().begin, lead, tenant_id=tenant)
    given = hand_back(
        engine().begin,
        tenant_id=tenant_id,
        lead_id=lead_id,
        who=by,
        why=why,
        secret=secret(),
        now=clock().now(),
    )
    if as_json:
        print_json(asdict(given))
        return
    then = (
        f"its sequence goes on {_at(given.goes_on_at)}"
        if given.goes_on_at is not None
        else f"it is in {given.stage}: nothing automatic follows"
    )
    over = [f"{escape(given.held_by)} does not hold it any more"] if given.held_by else []
    over += [f"looked at ({escape(given.review)})"] if given.review else []
    console.print(f"lead {lead_id}: {'; '.join([*over, then])}", highlight=False, soft_wrap=True)


def reviews(tenant: OfTenant = None, as_json: AsJson = False) -> None:
    """Show the leads that a person must look at, the gravest first; `cerniq handback` ends it."""
    from cerniq_pipeline.store import overview

    with engine().begin() as conn:
        found = overview.reviews(conn, tenant_id=tenant)
    if as_json:
        print_json(found)
        return
    table = Table("priority", "reason", "company", "stage", "last reply (UTC)", "lead")
    for one in found:
        replied = one["last_reply_at"]
        table.add_row(
            one["priority"],
            escape(one["reason"] or ""),
            escape(one["company"]),
            one["stage"],
            f"{replied:%Y-%m-%d %H:%M}" if replied else "",
            str(one["lead_id"]),
        )
    console.print(table if found else "nobody waits for a person")


def _show(lead_id: UUID, *, as_json: bool) -> None:
    from cerniq_pipeline.services.lead_stages import position

    stands = position(engine().begin, lead_id, secret=secret())
    if as_json:
        print_json(asdict(stands))
        return
    console.print(f"[bold]{escape(stands.company)}[/]: [bold]{stands.stage}[/]", highlight=False)
    console.print(f"  may go to  {', '.join(stands.legal_moves)}", highlight=False)
    if stands.opted_out:
        console.print("  this person asked not to be contacted", highlight=False)
    if stands.held_by is not None and stands.held_since is not None:
        held = f"{escape(stands.held_by)} since {_at(stands.held_since)}"
        console.print(f"  held by    {held}", highlight=False)
    table = Table("when (UTC)", "from", "to", "who", "why")
    for change in stands.changes:
        table.add_row(
            f"{change['at']:%Y-%m-%d %H:%M:%S}",
            change["from_stage"],
            change["to_stage"],
            escape(change["who"]),
            escape(change["why"]),
        )
    console.print(table if stands.changes else "  it never changed its stage")


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"
