"""`cerniq stage`, `reviews` and `handback`: a lead moved by hand, looked at, and given back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer
from rich.markup import escape

from cerniq_pipeline.cli.context import (
    AsJson,
    OfTenant,
    clock,
    console,
    engine,
    harmless,
    listing,
    local_times,
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
        _show(lead_id, tenant_id, as_json=as_json)
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
        then = f"its sequence goes on {local_times().at(moved.goes_on_at, tenant_id)}"
        said = f"from {_named(moved.stage)} to {moved.to}; {then}"
    else:
        said = f"from {_named(moved.stage)} to {moved.to}; messages cancelled: {moved.cancelled}"
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
        f"its sequence goes on {local_times().at(given.goes_on_at, tenant_id)}"
        if given.goes_on_at is not None
        else f"it is in {_named(given.stage)}: nothing automatic follows"
    )
    over = [f"{escape(given.held_by)} does not hold it any more"] if given.held_by else []
    over += [f"looked at ({escape(given.review)})"] if given.review else []
    console.print(f"lead {lead_id}: {'; '.join([*over, then])}", highlight=False, soft_wrap=True)


def reviews(tenant: OfTenant = None, as_json: AsJson = False) -> None:
    """Show the leads that a person must look at, the gravest first; `cerniq handback` ends it."""
    from cerniq_pipeline.domain.names import short_id
    from cerniq_pipeline.store import overview

    with engine().begin() as conn:
        found = overview.reviews(conn, tenant_id=tenant)
    if as_json:
        print_json(found)
        return
    times = local_times()
    table = listing("lead", "priority", rest="why, and what they said")
    for one in found:
        replied = times.at(one["last_reply_at"], one["tenant_id"])
        table.add_row(
            short_id(one["lead_id"]),
            one["priority"],
            "\n".join(
                escape(line)
                for line in (
                    f"{one['company']}, {one['number'] or one['email'] or 'no address'}",
                    f"{one['stage']}: {one['reason'] or 'no reason given'}",
                    f"{replied}  “{harmless(one['said'])}”" if one["said"] else replied,
                )
                if line
            ),
        )
    console.print(table if found else "nobody waits for a person")


def _show(lead_id: UUID, tenant_id: str, *, as_json: bool) -> None:
    from cerniq_pipeline.services.lead_stages import position

    stands = position(engine().begin, lead_id, secret=secret())
    if as_json:
        print_json(asdict(stands))
        return
    times = local_times()
    console.print(
        f"[bold]{escape(stands.company)}[/]: [bold]{_named(stands.stage)}[/]", highlight=False
    )
    console.print(f"  may go to  {', '.join(stands.legal_moves)}", highlight=False)
    if stands.opted_out:
        console.print("  this person asked not to be contacted", highlight=False)
    if stands.held_by is not None and stands.held_since is not None:
        held = f"{escape(stands.held_by)} since {times.at(stands.held_since, tenant_id)}"
        console.print(f"  held by    {held}", highlight=False)
    table = listing("when", rest="move")
    for change in stands.changes:
        table.add_row(
            times.at(change["at"], tenant_id, seconds=True),
            f"{change['from_stage']} → {change['to_stage']}, {escape(change['who'])}: "
            f"{escape(change['why'])}",
        )
    console.print(table if stands.changes else "  it never changed its stage")


def _named(stage: Stage | None) -> str:
    return stage or "a stage that there is not"
