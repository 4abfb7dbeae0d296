"""`cerniq media`: files that are sent with messages, checked when they are added."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cerniq_pipeline import ticks
from cerniq_pipeline.cli.context import (
    AsJson,
    OfTenant,
    clock,
    console,
    engine,
    listing,
    print_json,
    settings,
)
from cerniq_pipeline.cli.letters import By
from cerniq_pipeline.errors import MediaRefused

if TYPE_CHECKING:
    from cerniq_pipeline.domain.media import Fetcher

media = typer.Typer(help="Images, documents and videos that are sent.", no_args_is_help=True)

Whose = Annotated[str, typer.Option(help="Whose file this is.")]

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


@media.command()
def add(
    source: Annotated[
        str, typer.Argument(metavar="FILE_OR_URL", help="A file, or its https address.")
    ],
    *,
    tenant: Whose = "demo",
    name: Annotated[
        str | None, typer.Option(help="What to call it; the name of the file if not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a file and keep it; from then on its bytes never change.

    A file is refused when it is too large, or when its content is not what its name says.
    """
    from cerniq_pipeline.domain.media import megabytes
    from cerniq_pipeline.services.media import add_address, add_file

    if _ADDRESS.match(source):
        if settings().mode == "sandbox":
            raise MediaRefused(
                "sandbox mode reaches no outside host; download the file yourself and add it from "
                "disk, or set CERNIQ_MODE=live"
            )
        kept = add_address(engine().begin, _fetcher(), source, tenant_id=tenant, name=name)
    else:
        kept = add_file(engine().begin, Path(source), tenant_id=tenant, name=name)
    if as_json:
        print_json(asdict(kept))
        return
    called = name or kept.filename
    console.print(
        f"kept as [bold]{escape(called)}[/]: {kept.kind}, {megabytes(kept.size)}, "
        f"{kept.content_type}",
        highlight=False,
    )
    console.print(
        f"`cerniq media use '{escape(called)}' --template …` sends it with a text", highlight=False
    )


@media.command("list")
def list_files(tenant: OfTenant = None, as_json: AsJson = False) -> None:
    """Show every file, and the templates that bring it along."""
    from cerniq_pipeline.domain.media import megabytes
    from cerniq_pipeline.store import media as store

    with engine().begin() as conn:
        files = store.every(conn, tenant)
    if as_json:
        print_json(
            [
                {
                    "tenant": file.tenant_id,
                    "name": file.name,
                    **asdict(file.media),
                    "templates": list(file.templates),
                }
                for file in files
            ]
        )
        return
    if not files:
        console.print("no media yet; `cerniq media add FILE` brings some in")
        return
    table = listing("name", "tenant", rest="file")
    for file in files:
        used = ", ".join(file.templates) or "unused"
        table.add_row(
            escape(file.name),
            file.tenant_id,
            f"{file.media.kind}, {megabytes(file.media.size)}, {file.media.content_type}\n"
            + escape(used),
        )
    console.print(table)


@media.command()
def use(
    name: Annotated[str, typer.Argument(help="The file, by the name it was kept as.")],
    *,
    template: Annotated[str, typer.Option(help="The template that brings it along.")],
    tenant: Whose = "demo",
) -> None:
    """Send a file with every message of a template; the text becomes its caption."""
    from cerniq_pipeline.services.media import use_in_template

    use_in_template(engine().begin, tenant_id=tenant, name=name, template=template)
    console.print(
        f"[bold]{escape(template)}[/] now brings [bold]{escape(name)}[/] along", highlight=False
    )


@media.command()
def send(
    name: Annotated[str, typer.Argument(help="The file, by the name it was kept as.")],
    lead: Annotated[
        str, typer.Argument(help="A lead's id or its beginning, a CUI, a number or an address.")
    ],
    by: By,
    *,
    caption: Annotated[str, typer.Option(help="What to write below it.")] = "",
    tenant: OfTenant = None,
) -> None:
    """Send a file to one lead, into the chat that there is with it; at most once."""
    from cerniq_pipeline.services.media import plan_file
    from cerniq_pipeline.services.people import find_lead

    tenant_id, lead_id = find_lead(engine().begin, lead, tenant_id=tenant)
    message_id = plan_file(
        engine().begin,
        tenant_id=tenant_id,
        lead_id=lead_id,
        name=name,
        caption=caption,
        by=by,
        now=clock().now(),
    )
    console.print(f"planned as message {message_id}; `cerniq why` says when it goes")


def _fetcher() -> Fetcher:

    from cerniq_pipeline.providers.web.fetching import WebFetcher

    return WebFetcher(seconds=ticks.seconds)
