"""Connections to Postgres, and the one clock that all processes share: the database's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import InterfaceError, OperationalError

Unavailable = (OperationalError, InterfaceError)
"""The database cannot be asked now; what the last commit did may be unknown."""

Begin = Callable[[], AbstractContextManager[Connection]]
"""Opens a transaction: committed when the block ends well, rolled back when it raises."""

CLOCK_TRUST = 30.0
"""Seconds for which the offset to the database's clock is believed."""


def connect(database_url: str, *, pool_size: int = 5) -> Engine:
    """An engine whose connections are checked before use: a restarted server is survived."""
    return create_engine(
        database_url,
        pool_size=pool_size,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5, "options": "-c timezone=UTC -c lock_timeout=30s"},
    )


def only_read(conn: Connection) -> None:
    """Let Postgres itself refuse every change in this transaction; to be said first."""
    conn.execute(text("SET TRANSACTION READ ONLY"))


class DatabaseClock:
    """Time as Postgres has it, so that a machine with a wrong clock cannot break hours or quotas.

    Between two readings it runs on the monotonic clock, which nobody can set.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._read = (float("-inf"), datetime.min.replace(tzinfo=UTC))

    def now(self) -> datetime:
        """The database's time; raises when the database cannot be asked."""
        ticked = time.monotonic()
        read_at, then = self._read
        if ticked - read_at > CLOCK_TRUST:
            with self._engine.connect() as conn:
                then = conn.execute(text("SELECT clock_timestamp()")).scalar_one()
            read_at = ticked = time.monotonic()
            self._read = read_at, then  # in one step: other threads use the pair
        return then + timedelta(seconds=ticked - read_at)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))
