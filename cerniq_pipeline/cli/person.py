"""`cerniq erase` and `cerniq export`: a person's data, gone or in one document."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cerniq_pipeline.cli.context import (
    AsJson,
    OfTenant,
    clock,
    complaints,
    console,
    engine,
    print_json,
    secret,
    settings,
)
from cerniq_pipeline.cli.letters import By

if TYPE_CHECKING:
    from cerniq_pipeline.services.person_data import Erased
    from cerniq_pipeline.store.person_data import Person

Subject = Annotated[
    str, typer.Argument(help="A lead's id, a CUI, a number or an address, in any spelling.")
]
SHOWN = 10
UNFINISHED = 3
"""The exit status of an erasure that must be repeated later."""


def erase(
    subject: Subject,
    *,
    by: By,
    tenant: OfTenant = None,
    reason: Annotated[
        str, typer.Option(help="Why; kept for good, so without names.")
    ] = "erased on request",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete all that is held about a person; only hashes stay, so that they never come back."""
    from cerniq_pipeline.readers import open_readers
    from cerniq_pipeline.services import person_data

    if as_json and not yes:
        raise typer.BadParameter("--json asks nobody: give --yes too")
    person = person_data.find(engine().begin, subject, tenant_id=tenant, secret=secret())
    if not yes:
        _say_who(person)
        typer.confirm("Erase all of this for good?", abort=True)
    erased = person_data.erase(
        engine().begin,
        person,
        readers=open_readers(settings()),
        secret=secret(),
        reason=reason,
        who=by,
        clock=clock(),
    )
    if as_json:
        print_json(_counts(erased))
    else:
        _say_what(erased)
    if not erased.is_complete:
        raise typer.Exit(UNFINISHED)


def export(
    subject: Subject,
    *,
    out: Annotated[
        Path | None, typer.Option(help="Where to write it; must not exist. Else it is printed.")
    ] = None,
    tenant: OfTenant = None,
) -> None:
    """Write all that is held about a person as one JSON document."""
    from cerniq_pipeline.readers import open_readers
    from cerniq_pipeline.services import person_data

    person = person_data.find(engine().begin, subject, tenant_id=tenant, secret=secret())
    document = person_data.export(
        engine().begin,
        person,
        readers=open_readers(settings()),
        secret=secret(),
        clock=clock(),
    )
    if out is None:
        print_json(document)
    else:
        _write(out, json.dumps(document, ensure_ascii=False, indent=2) + "\n")
        complaints.print(f"written, for its owner's eyes only: {out}", markup=False, soft_wrap=True)


def _write(path: Path, document: str) -> None:
    """Write a new file that only its owner may read; one that is there is never touched."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise typer.BadParameter(f"{path} is there already", param_hint="--out") from None
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--out") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(document)
    except BaseException:
        path.unlink(missing_ok=True)  # half a document would look like all there is
        raise


def _say_who(person: Person) -> None:
    """Who is meant, by company: several leads with one number or address are one person's."""
    lines = [f"tenant {person.tenant_id}: {len(person.lead_ids)} leads of one person"]
    lines += [f"  {name}" for name in person.companies[:SHOWN]]
    if len(person.companies) > SHOWN:
        lines.append(f"  … and {len(person.companies) - SHOWN} more")
    complaints.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _counts(erased: Erased) -> dict[str, object]:
    return {
        "tenant": erased.tenant_id,
        "leads": erased.leads,
        "conversations": erased.conversations,
        "logged_messages": erased.logged,
        "outbox_messages": erased.outbox,
        "cancelled": erased.cancelled,
        "events": erased.events,
        "in_flight": list(erased.in_flight),
        "left_events": erased.left_events,
        "complete": erased.is_complete,
    }


def _say_what(erased: Erased) -> None:
    console.print(
        f"erased at tenant {erased.tenant_id}: {erased.leads} leads, "
        f"{erased.conversations} conversations, {erased.logged} logged messages; emptied: "
        f"{erased.outbox} messages of the outbox, {erased.events} events; "
        f"{erased.cancelled} messages cancelled",
        markup=False,
        soft_wrap=True,
    )
    if erased.in_flight:
        ids = ", ".join(map(str, erased.in_flight))
        complaints.print(
            f"still being sent: {ids}; the same command finishes them later",
            markup=False,
            soft_wrap=True,
        )
    if erased.left_events:
        complaints.print(
            f"{erased.left_events} events are also about others and wait to be handled; "
            "the same command finishes them later",
            markup=False,
            soft_wrap=True,
        )
