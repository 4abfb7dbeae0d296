"""What every command needs: settings, the database, the clock, and how answers are printed."""

from __future__ import annotations

import json
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from cerniq_pipeline.errors import SetupError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cerniq_pipeline.cli.times import LocalTimes
    from cerniq_pipeline.services.sending import Desk
    from cerniq_pipeline.settings import Settings
    from cerniq_pipeline.store.database import DatabaseClock

console = Console()
complaints = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def existing_tenant(context: typer.Context, tenant: str | None) -> str | None:
    """Refuse a tenant that nothing is of: an empty list would say that all is well."""
    if tenant is not None and not context.resilient_parsing:
        from cerniq_pipeline.store import tenants

        with engine().begin() as conn:
            tenants.get(conn, tenant)
    return tenant


OfTenant = Annotated[
    str | None, typer.Option("--tenant", help="Only this tenant.", callback=existing_tenant)
]


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings, or a message that says what is missing and how to get it."""
    from pydantic import ValidationError

    from cerniq_pipeline.settings import Settings, problems

    try:
        return Settings()  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        raise SetupError(
            "\n".join(
                [*problems(error), "`cerniq services up` writes what a local start needs into .env"]
            )
        ) from error


@lru_cache(maxsize=1)
def engine() -> Engine:
    """The database of this installation."""
    from cerniq_pipeline.store.database import connect

    return connect(settings().database_url)


@lru_cache(maxsize=1)
def clock() -> DatabaseClock:
    """The clock that all processes share."""
    from cerniq_pipeline.store.database import DatabaseClock

    return DatabaseClock(engine())


def desk() -> Desk:
    """All that sending and asking providers takes."""
    from cerniq_pipeline.desks import open_desk

    return open_desk(settings(), engine(), clock())


def secret() -> bytes:
    """The key of the suppression hashes."""
    return settings().secret


def listing(*keys: str, rest: str) -> Table:
    """A table whose keys are never cut, however narrow the terminal: they are typed elsewhere.

    Everything else stands in the last column, which wraps into what room is left.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for key in keys:
        table.add_column(key, no_wrap=True, overflow="fold")
    table.add_column(rest, overflow="fold")
    return table


def harmless(text: str) -> str:
    """A stranger's text without what would command the terminal or cannot be printed."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs")
        else f"\\u{ord(char):04x}"
        for char in text
    )


def local_times() -> LocalTimes:
    """The clocks of the tenants."""
    from cerniq_pipeline.cli.times import LocalTimes

    with engine().begin() as conn:
        return LocalTimes.of(conn)


def print_json(value: object) -> None:
    """One JSON document on standard output; instants as ISO 8601."""
    typer.echo(json.dumps(value, default=_plain, ensure_ascii=False, indent=2))


def _plain(value: object) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)  # pyright: ignore
