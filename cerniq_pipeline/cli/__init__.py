"""The `cerniq` command: thin, and quick to start; every command imports what it needs itself."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from cerniq_pipeline.cli import (
    alerts,
    bench,
    demo,
    dev,
    doctor,
    history,
    imports,
    inbox,
    letters,
    media,
    parked,
    person,
    phones,
    preview,
    retention,
    stages,
    status,
    templates,
    web,
)
from cerniq_pipeline.cli.context import complaints, console, print_json, settings
from cerniq_pipeline.cli.failures import UNREACHABLE, explained
from cerniq_pipeline.errors import CerniqError

app = typer.Typer(
    name="cerniq",
    help="Outreach on Dagster: one message at a time per phone, never twice.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("dev")(dev.dev)
app.add_typer(dev.services, name="services")
app.command("web")(web.web)
app.command("status")(status.status)
app.command("why")(status.why)
app.command("preview")(preview.preview)
app.command("pause")(status.pause)
app.command("resume")(status.resume)
app.command("stop")(status.stop)
app.command("stage")(stages.stage)
app.command("handback")(stages.handback)
app.command("reviews")(stages.reviews)
app.command("import")(imports.import_file)
app.command("erase")(person.erase)
app.command("export")(person.export)
app.command("templates")(templates.templates)
app.add_typer(media.media, name="media")
app.command("history")(history.history)
app.add_typer(inbox.inbox, name="inbox")
app.add_typer(letters.dlq, name="dlq")
app.add_typer(parked.parked, name="parked")
app.add_typer(alerts.alerts, name="alerts")
app.add_typer(phones.phone, name="phone")
app.command("purge")(retention.purge)
app.add_typer(demo.demo, name="demo")
app.command("doctor")(doctor.doctor)
app.add_typer(bench.bench, name="bench")


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"cerniq {version('cerniq-pipeline')}")
        raise typer.Exit


@app.callback()
def cerniq(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Say which release this is."
        ),
    ] = False,
) -> None:
    """Outreach on Dagster: one message at a time per phone, never twice."""


@app.command()
def migrate() -> None:
    """Bring the database to the schema of this release."""
    from cerniq_pipeline.store.migrations import upgrade

    upgrade(settings().database_url)
    console.print("the database is up to date")


def main() -> None:
    """Run the command; an error that was raised on purpose is a sentence, not a traceback.

    So is a server that cannot be asked. With --json the sentence is a document on standard output
    as well: whoever reads that never gets half of one, or none.
    """
    try:
        app()
    except CerniqError as error:
        _fail(str(error), {"error": str(error)}, status=2)
    except Exception as error:
        failure = explained(error)
        if failure is None:
            raise
        _fail(str(failure), {"error": failure.why, "do": failure.do}, status=UNREACHABLE)


def _fail(said: str, document: dict[str, str], *, status: int) -> NoReturn:
    complaints.print("[bold red]cerniq:[/]", escape(said), highlight=False, soft_wrap=True)
    if "--json" in sys.argv:
        print_json(document)
    sys.exit(status)
