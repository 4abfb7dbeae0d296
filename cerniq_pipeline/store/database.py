"""Connections to Postgres, and the one clock that all processes share: the database's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.errors import DataError
from psycopg.types.datetime import DateLoader, TimestamptzLoader
from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, text
from sqlalchemy.exc import InterfaceError, OperationalError

from cerniq_pipeline import ticks
from cerniq_pipeline.logs import cause, caused_by, mask

Unavailable = (OperationalError, InterfaceError)
"""The database cannot be asked now; what the last commit did may be unknown."""

LOCKED_OUT = "55P03"


def is_locked_out(error: Exception) -> bool:
    """Whether somebody kept a row locked for too long; the database itself is well."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) == LOCKED_OUT


Begin = Callable[[], AbstractContextManager[Connection]]
"""Opens a transaction: committed when the block ends well, rolled back when it raises."""

CLOCK_TRUST = 30.0
"""Seconds for which the offset to the database's clock is believed."""

JUMP = 1.0
"""Seconds between two clocks of this machine that say that one of them stood still or was set."""


FAR = {False: datetime(9000, 1, 1, tzinfo=UTC), True: datetime(1000, 1, 1, tzinfo=UTC)}
"""What stands for an instant that no calendar has, in the future and in the past."""


def connect(database_url: str, *, pool_size: int = 5) -> Engine:
    """An engine whose connections are checked before use: a restarted server is survived."""
    engine = open_engine(
        database_url,
        pool_size=pool_size,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5, "options": "-c timezone=UTC -c lock_timeout=30s"},
    )
    event.listen(engine, "connect", _read_every_instant)
    event.listen(engine, "begin", _name_known_cause)
    return engine


def open_engine(database_url: str | URL, **options: Any) -> Engine:
    """An engine whose errors hold nothing that a person wrote: they are kept, shown and logged."""
    engine = create_engine(database_url, hide_parameters=True, **options)
    event.listen(engine, "handle_error", _take_the_values_out)
    return engine


def _take_the_values_out(context: ExceptionContext) -> None:
    """Leave of an error what Postgres says of it, without the row and the values that it shows."""
    error, shown = context.original_exception, context.sqlalchemy_exception
    if isinstance(error, psycopg.Error):
        error.args = (_without_values(error),)
        if shown is not None:
            kind = f"{type(error).__module__}.{type(error).__name__}"
            shown.args = (f"({kind}) {error.args[0]}", *shown.args[1:])


def _without_values(error: psycopg.Error) -> str:
    if isinstance(error, DataError):
        return f"{error.sqlstate or 'refused'}: a value that cannot be"  # it would be quoted
    # Without DETAIL and CONTEXT, which show whole rows and statements.
    return mask(error.diag.message_primary or str(error))


def _read_every_instant(connection: psycopg.Connection[Any], _record: object) -> None:
    """Have `infinity` read, and years that Python does not know: others write instants too."""
    connection.adapters.register_loader("timestamptz", _AnyInstant)
    connection.adapters.register_loader("date", _AnyDay)


class _AnyInstant(TimestamptzLoader):
    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except DataError:
            return _far(data)


class _AnyDay(DateLoader):
    def load(self, data: Buffer) -> date:
        try:
            return super().load(data)
        except DataError:
            return _far(data).date()


def _far(data: Buffer) -> datetime:
    written = bytes(data)
    return FAR[written.startswith(b"-") or written.endswith(b"BC")]


def only_read(conn: Connection) -> None:
    """Let Postgres itself refuse every change in this transaction; to be said first."""
    conn.execute(text("SET TRANSACTION READ ONLY"))


# ── What a transaction is done for ────────────────────────────────────────────────────────────
#
# Rows say which event caused them by a default of their column, so that nobody has to hand its name
# down through every function, or can forget to. The name ends with the transaction.


def _name_known_cause(conn: Connection) -> None:
    if cause() is not None:
        _name_cause(conn)


def _name_cause(conn: Connection) -> None:
    conn.execute(
        text("SELECT set_config('cerniq.correlation_id', :name, true)"), {"name": cause() or ""}
    )


@contextmanager
def for_cause(conn: Connection, correlation_id: str | None) -> Iterator[None]:
    """Let a part of a transaction be done for one event of several; then for what it was before.

    An error within ends the transaction, and its name with it.
    """
    with caused_by(correlation_id):
        _name_cause(conn)
        yield
    _name_cause(conn)


class DatabaseClock:
    """Time as Postgres has it, so that a machine with a wrong clock cannot break hours or quotas.

    Between two readings it counts ticks, which nobody can set, and which go on while the machine
    sleeps. Where they do not, the machine's own clock jumps against them, and Postgres is asked.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._read = (float("-inf"), 0.0, datetime.min.replace(tzinfo=UTC))

    def now(self) -> datetime:
        """The database's time; raises when the database cannot be asked."""
        ticked, shown = ticks.seconds(), time.time()
        read_at, shown_then, then = self._read
        jumped = abs((shown - shown_then) - (ticked - read_at)) > JUMP
        if jumped or ticked - read_at > CLOCK_TRUST:
            with self._engine.connect() as conn:
                then = conn.execute(text("SELECT clock_timestamp()")).scalar_one()
            read_at = ticked = ticks.seconds()
            self._read = read_at, time.time(), then  # in one step: other threads use it
        return then + timedelta(seconds=ticked - read_at)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))
