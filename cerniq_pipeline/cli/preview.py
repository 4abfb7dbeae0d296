"""`cerniq preview`: what a lead would be sent, before it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

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


def preview(
    lead: Annotated[
        str, typer.Argument(help="A lead's id or its beginning, a CUI, a number or an address.")
    ],
    step: Annotated[
        int | None,
        typer.Option(min=1, help="Which step of its sequence; the next one if not given."),
    ] = None,
    tenant: OfTenant = None,
    as_json: AsJson = False,
) -> None:
    """Show the very text, phone, file and time of a message, or why none goes; send nothing."""
    from cerniq_pipeline.services.preview import preview as look

    seen = look(
        engine().begin,
        lead,
        step=step,
        tenant_id=tenant,
        secret=secret(),
        here=settings().installation,
        now=clock().now(),
    )
    if as_json:
        print_json(asdict(seen))
        return
    at = local_times().at(seen.goes_at, seen.tenant_id)
    gone = seen.rule in ("sent", "failed", "cancelled")
    lines = [
        ("lead", f"{seen.company} ({seen.lead_id})"),
        ("step", f"{seen.step or 'none'}{f', {seen.kind}' if seen.kind else ''}"),
        ("rule", f"{seen.rule}: {seen.detail}" if seen.detail else seen.rule),
        ("went" if gone else "goes", at if gone else f"not before {at}" if at else "not by itself"),
        ("from", f"{seen.phone_id} ({seen.sender})" if seen.phone_id else "no phone"),
        ("to", seen.to or ""),
        ("file", seen.file or ""),
        ("form", _form(seen.approved)),
    ]
    for name, value in lines:
        if value:
            console.print(Text(f"{name:<6}{value}"), soft_wrap=True)
    if seen.text is not None:
        console.print(Padding(Text(seen.text), (1, 2)))


def _form(approved: dict[str, object] | None) -> str:
    return f"approved as {approved['name']} ({approved['language']})" if approved else ""
