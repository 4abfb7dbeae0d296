"""`cerniq dlq`: failed messages and unhandled events, to be tried again or dropped."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cerniq_pipeline.cli.context import (
    AsJson,
    OfTenant,
    clock,
    complaints,
    console,
    engine,
    listing,
    print_json,
    secret,
)
from cerniq_pipeline.logs import mask

if TYPE_CHECKING:
    from cerniq_pipeline.domain.replacements import Answer

dlq = typer.Typer(
    help="Failed messages and unhandled events: try them again, or drop them.",
    no_args_is_help=True,
)


def who() -> str:
    """The name of the person at this terminal, as the operating system has it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that nobody has
        return "cerniq"


By = Annotated[str, typer.Option(default_factory=who, help="Who decides; kept with it.")]
OfCode = Annotated[str | None, typer.Option("--code", help="Only letters with this code.")]
Letters = Annotated[list[int] | None, typer.Argument(help="Ids, as `cerniq dlq list` has them.")]
Everything = Annotated[bool, typer.Option("--all", help="Every open letter of --code.")]


@dlq.command("list")
def list_letters(tenant: OfTenant = None, code: OfCode = None, as_json: AsJson = False) -> None:
    """Show the letters that wait for a decision, oldest first."""
    from cerniq_pipeline.store import dead_letters

    with engine().begin() as conn:
        letters = dead_letters.open_letters(conn, tenant_id=tenant, code=code)
    if as_json:
        print_json(letters)
        return
    now = clock().now()
    table = listing("id", "code", rest="letter")
    for letter in letters:
        mark = "\n[yellow](review)[/]" if letter["review_required"] else ""
        tries = f", tries: {letter['attempts']}" if letter["attempts"] is not None else ""
        whom = masked(letter["contact"]) or "nobody"
        where = f" at {letter['phone_id']}" if letter["phone_id"] else ""
        table.add_row(
            str(letter["id"]),
            escape(letter["code"]) + mark,
            "\n".join(
                escape(line)
                for line in (
                    f"{letter['kind']} of {_about(letter)}, {age(letter['at'], now)} ago{tries}",
                    f"{whom}{where}",
                    letter["detail"],
                )
            ),
        )
    console.print(table if letters else "no dead letter waits")


def _about(letter: Mapping[str, Any]) -> str:
    """The company and the step of a message; the provider and its word for an event."""
    if letter["kind"] == "event":
        return f"{letter['provider'] or '(gone)'} {letter['event_type'] or ''}".strip()
    step = f", step {letter['step']}" if letter["step"] else ""
    return f"{letter['company'] or '(gone)'}{step}"


@dlq.command("retry")
def retry_letters(
    by: By,
    ids: Letters = None,
    everything: Everything = False,
    code: OfCode = None,
    tenant: OfTenant = None,
    reviewed: Annotated[
        bool, typer.Option("--reviewed", help="The cause was looked at, where a code needs that.")
    ] = False,
) -> None:
    """Try letters again: a message as a new one to the company's number, an event as it came.

    What became of an event is said by `cerniq inbox show`.
    """
    from cerniq_pipeline.services import dead_letters

    answers = dead_letters.retry(
        engine().begin,
        _chosen(ids, everything=everything, code=code, tenant=tenant),
        by=by,
        secret=secret(),
        now=clock().now(),
        reviewed=reviewed,
    )
    report("letter", answers)


@dlq.command("drop")
def drop_letters(
    by: By,
    ids: Annotated[list[int], typer.Argument(help="Ids, as `cerniq dlq list` has them.")],
    reason: Annotated[str, typer.Option(help="Why; kept with the letter.")],
) -> None:
    """Take letters off the list: a message's lead stays closed, an event counts as heard."""
    from cerniq_pipeline.services import dead_letters

    answers = dead_letters.drop(engine().begin, ids, by=by, reason=reason, now=clock().now())
    report("letter", answers)


def _chosen(
    ids: list[int] | None, *, everything: bool, code: str | None, tenant: str | None
) -> list[int]:
    from cerniq_pipeline.store import dead_letters

    if everything == bool(ids) or everything != bool(code):
        raise typer.BadParameter("give ids, or --all with --code")
    if ids:
        return ids
    with engine().begin() as conn:
        letters = dead_letters.open_letters(conn, tenant_id=tenant, code=code)
    if not letters:
        console.print(f"no dead letter with code {code} waits", markup=False)
    return [letter["id"] for letter in letters]


def report(what: str, answers: Sequence[Answer]) -> None:
    """Say what became of each; one that was refused makes the command fail."""
    for answer in answers:
        if answer.done:
            console.print(f"{what} {answer.id}: {escape(answer.said)}", highlight=False)
        else:
            said = f"{what} {answer.id} is left as it was: {escape(answer.said)}"
            complaints.print("[bold red]cerniq:[/]", said, highlight=False, soft_wrap=True)
    if not all(answer.done for answer in answers):
        raise typer.Exit(2)


def masked(contact: str | None) -> str:
    """A number with its middle hidden, or an address with its name hidden."""
    name, at, host = (contact or "").partition("@")
    if at and not name.lstrip("+").isdigit():
        return f"{name[:1]}***@{host}"
    return mask(contact or "")


def age(then: datetime, now: datetime) -> str:
    """How long ago that was, in the largest unit that fits."""
    passed = max(now - then, timedelta(0))
    for unit, name in ((timedelta(days=1), "d"), (timedelta(hours=1), "h")):
        if passed >= unit:
            return f"{passed // unit} {name}"
    return f"{passed // timedelta(minutes=1)} min"
