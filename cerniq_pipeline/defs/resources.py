"""What runs and sensors need from outside, opened on first use and never at import.

Imports of everything heavy stand inside the functions: the code location is loaded for every run,
and most loads use only a part of it.
"""

from contextlib import AbstractContextManager
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from cerniq_pipeline.services.sending import Desk
    from cerniq_pipeline.settings import Settings
    from cerniq_pipeline.store.database import DatabaseClock
    from cerniq_pipeline.store.inbox import Bell


@lru_cache(maxsize=1)
def settings() -> "Settings":
    """The settings of this process."""
    from cerniq_pipeline.settings import Settings

    return Settings()  # pyright: ignore[reportCallIssue]


@lru_cache(maxsize=1)
def _engine() -> "Engine":
    from cerniq_pipeline.store.database import connect

    return connect(settings().database_url)


@lru_cache(maxsize=1)
def _clock() -> "DatabaseClock":
    from cerniq_pipeline.store.database import DatabaseClock

    return DatabaseClock(_engine())


class Database(dg.ConfigurableResource):
    """Postgres: transactions, and the time that everybody shares."""

    def begin(self) -> "AbstractContextManager[Connection]":
        """Open a transaction."""
        return _engine().begin()

    def now(self) -> datetime:
        """The database's time."""
        return _clock().now()

    def secret(self) -> bytes:
        """The key of the hashes in it."""
        return settings().secret

    def clock(self) -> "DatabaseClock":
        """The same, for who watches the time while working."""
        return _clock()


class Senders(dg.ConfigurableResource):
    """Everything a shift brings along."""

    def desk(self) -> "Desk":
        """A desk for this process, pointed at the sandbox or at the providers by the settings."""
        from cerniq_pipeline.desks import open_desk

        return open_desk(settings(), _engine(), _clock())

    def bell(self) -> "Bell":
        """What rings when an event is stored."""
        from cerniq_pipeline.store.inbox import Bell

        return Bell(_engine())


defs = dg.Definitions(resources={"database": Database(), "senders": Senders()})
