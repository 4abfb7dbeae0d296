"""Keeps webhooks: many in one commit, on the disk while Postgres is away, never in memory alone.

One task does all the writing. While a batch is being committed the next one gathers, so the busier
it gets the larger the batches are. Whoever waits for `keep` may answer 2xx when it returns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import psycopg
from psycopg import AsyncConnection
from sqlalchemy import make_url

from cerniq_pipeline import ticks
from cerniq_pipeline.logs import event
from cerniq_pipeline.store.inbox import Arrival, Kept, keep_webhooks
from cerniq_pipeline.web.limits import MIB
from cerniq_pipeline.web.spool import Spool

UNREADABLE = "unreadable"
"""The type of an event that nobody could read: kept as it came, for a person to look at."""

_BATCH = 500
_BATCH_BYTES = 8 * MIB
_LOOK_SECONDS = 10.0
_BAD_DATA = (psycopg.DataError, psycopg.IntegrityError, UnicodeError)


class NotKept(Exception):
    """Neither Postgres nor the disk took it: the sender must come again."""


@dataclass(frozen=True)
class Health:
    """How well the intake can do its work."""

    database: bool
    spool_bytes: int
    can_keep: bool


class Intake:
    """The way into the inbox for one process."""

    def __init__(
        self,
        database_url: str,
        spool: Spool,
        *,
        commit_seconds: float = 3.0,
        retry_seconds: float = 0.5,
    ) -> None:
        url = make_url(database_url).set(drivername="postgresql")
        self._url = url.render_as_string(hide_password=False)
        self._spool = spool
        self._commit_seconds = commit_seconds
        self._retry_seconds = retry_seconds
        self._waiting: deque[tuple[Arrival, asyncio.Future[None]]] = deque()
        self._looking: list[asyncio.Future[bool]] = []
        self._wake = asyncio.Event()
        self._connection: AsyncConnection[Any] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_away = False
        self._no_replay_before = 0.0
        self._looked_at = 0.0
        self._clock: tuple[float, datetime] | None = None
        self._spool_works = True
        self._is_stopping = False
        self._abandoned: set[asyncio.Task[Kept]] = set()
        self._worker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to work, with a connection if there is one to be had."""
        await self._connect()
        await self._look()
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Keep what still waits, and end."""
        self._is_stopping = True
        self._wake.set()
        if self._worker is not None:
            await self._worker
        for task in (*self._abandoned, self._connecting):
            if task is not None:
                task.cancel()
        await self._disconnect()
        self._spool.close()

    def keep(self, arrival: Arrival) -> asyncio.Future[None]:
        """Done when this event is on the disk, here or in Postgres; raises NotKept otherwise."""
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, kept))
        self._wake.set()
        return kept

    def now(self) -> datetime:
        """The database's time as of its last answer; this machine's before the first one."""
        return self._database_time() or datetime.now(UTC)

    async def health(self) -> Health:
        """Ask the database at once, and look at the spool."""
        looked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._looking.append(looked)
        self._wake.set()
        answered, _ = await asyncio.wait({looked}, timeout=1.0)
        database = bool(answered) and looked.result()
        waiting = await asyncio.to_thread(self._spool.bytes)
        return Health(database, waiting, can_keep=database or self._spool_works)

    # ── The one task that writes ─────────────────────────────────────────────────────────────

    async def _work(self) -> None:
        while not self._is_stopping or self._waiting:
            await self._sleep()
            batch = self._take()
            trouble: NotKept | None = None
            try:
                if batch:
                    await self._keep([arrival for arrival, _ in batch])
            except NotKept as error:
                trouble = error
            except Exception as error:  # noqa: BLE001 (whatever it is, the next batch must go on)
                event("web", "intake_broken", level="error", error=_words(error))
                trouble = NotKept()
            _settle(batch, trouble)
            try:
                await self._replay()
                if self._looking or ticks.seconds() - self._looked_at > _LOOK_SECONDS:
                    await self._look()
            except Exception as error:  # noqa: BLE001 (as above)
                event("web", "replay_broken", level="error", error=_words(error))
                self._no_replay_before = ticks.seconds() + self._retry_seconds

    async def _sleep(self) -> None:
        """Until there is something to do."""
        if self._connection is None and self._connecting is None and not self._is_stopping:
            self._connecting = asyncio.create_task(self._connect())
        if not self._waiting and not self._looking and not self._may_replay():
            alarm = asyncio.get_running_loop().call_later(self._retry_seconds, self._wake.set)
            await self._wake.wait()
            alarm.cancel()
        self._wake.clear()

    def _take(self) -> list[tuple[Arrival, asyncio.Future[None]]]:
        batch, size = [], 0
        while self._waiting and len(batch) < _BATCH and size < _BATCH_BYTES:
            batch.append(self._waiting.popleft())
            size += len(batch[-1][0].body)
        return batch

    async def _keep(self, arrivals: Sequence[Arrival]) -> None:
        # What came while the database was away goes first: newer events queue up behind it.
        if not self._spool.is_writing and await self._store(arrivals):
            return
        at = self._database_time()
        stamped = [
            replace(arrival, received_at=at and at + timedelta(microseconds=place))
            for place, arrival in enumerate(arrivals)
        ]
        try:
            await asyncio.to_thread(self._spool.append, stamped)
        except OSError as error:
            if self._spool_works:
                event("web", "spool_failed", level="error", error=_words(error))
            self._spool_works = False
            raise NotKept from error
        if not self._spool_works:
            event("web", "spool_works_again")
        self._spool_works = True

    async def _replay(self) -> None:
        if not self._may_replay():
            return
        chunk = await asyncio.to_thread(self._spool.next_chunk, most=_BATCH)
        if not chunk.arrivals or await self._store(chunk.arrivals):
            await asyncio.to_thread(self._spool.done, chunk)
            event("web", "spool_replayed", events=len(chunk.arrivals))

    def _may_replay(self) -> bool:
        return (
            self._connection is not None
            and self._spool.has_events
            and ticks.seconds() >= self._no_replay_before
        )

    # ── The database ─────────────────────────────────────────────────────────────────────────

    async def _store(self, arrivals: Sequence[Arrival]) -> bool:
        """Whether these are committed now; False: nobody knows, so they must go elsewhere too."""
        try:
            return await self._committed(arrivals)
        except _BAD_DATA as error:
            event("web", "batch_refused", level="error", error=_words(error), events=len(arrivals))
        for arrival in arrivals:  # one of them is to blame, and must not take the others along
            try:
                stored = await self._committed([arrival])
            except _BAD_DATA:
                stored = await self._committed([_as_unreadable(arrival)])
            if not stored:
                return False
        return True

    async def _committed(self, arrivals: Sequence[Arrival]) -> bool:
        connection = self._connection
        if connection is None:
            return False
        # Not `wait_for`: psycopg would spend seconds more on cancelling what does not answer.
        task = asyncio.create_task(keep_webhooks(connection, arrivals))
        done, _ = await asyncio.wait({task}, timeout=self._commit_seconds)
        if not done:
            self._abandon(task, connection)
            return False
        try:
            self._clock = ticks.seconds(), task.result().at
        except _BAD_DATA:
            raise
        except psycopg.Error as error:
            event("web", "commit_failed", level="error", error=_words(error), events=len(arrivals))
            self._no_replay_before = ticks.seconds() + self._retry_seconds
            if connection.closed or connection.broken:
                await self._disconnect()
            return False
        return True

    def _abandon(self, task: asyncio.Task[Kept], connection: AsyncConnection[Any]) -> None:
        event("web", "commit_timed_out", level="error")
        self._connection = None
        self._abandoned.add(task)

        def gone(ended: asyncio.Task[Kept]) -> None:
            self._abandoned.discard(ended)
            if not ended.cancelled():
                ended.exception()  # nobody waits for it any more
            connection.pgconn.finish()

        task.add_done_callback(gone)
        task.cancel()

    async def _look(self) -> None:
        """Ask the database for its time, and the folder for what dead processes left behind."""
        asked, self._looking = self._looking, []
        self._looked_at = ticks.seconds()
        well = await self._committed(())
        for looked in asked:
            if not looked.done():
                looked.set_result(well)
        if well and (files := await asyncio.to_thread(self._spool.adopt)):
            event("web", "spool_taken_over", files=files)

    def _database_time(self) -> datetime | None:
        if self._clock is None:
            return None
        ticked, then = self._clock
        return then + timedelta(seconds=ticks.seconds() - ticked)

    async def _connect(self) -> None:
        try:
            self._connection = await AsyncConnection.connect(
                self._url,
                autocommit=True,
                connect_timeout=2,
                application_name="cerniq web",
                options="-c timezone=UTC -c lock_timeout=2s",
            )
        except (psycopg.Error, OSError) as error:
            if not self._is_away:
                event("web", "database_away", level="error", error=_words(error))
            self._is_away = True
            if self._worker is not None:
                await asyncio.sleep(self._retry_seconds)
        else:
            if self._is_away:
                event("web", "database_back")
            self._is_away = False
        finally:
            self._connecting = None
            self._wake.set()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                await connection.close()


def _settle(batch: Sequence[tuple[Arrival, asyncio.Future[None]]], trouble: NotKept | None) -> None:
    for _, kept in batch:
        if kept.done():  # whoever waited has gone
            continue
        if trouble is None:
            kept.set_result(None)
        else:
            kept.set_exception(trouble)


def _as_unreadable(arrival: Arrival) -> Arrival:
    """The same event without anything of it that Postgres could refuse."""
    return Arrival(
        provider=arrival.provider,
        event_key=sha256(arrival.body).hexdigest(),
        event_type=UNREADABLE,
        account=None,
        contact=None,
        headers="{}",
        body=arrival.body,
        received_at=arrival.received_at,
        correlation_id=arrival.correlation_id,
    )


def _words(error: BaseException) -> str:
    """What kind of error; never its message, which may quote what somebody wrote."""
    code = getattr(error, "sqlstate", None) or getattr(error, "errno", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__
