"""What the sandbox was asked and what it accepted, on disk before anybody is answered."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

Event = Literal[
    "request",
    "accepted",
    "refused",
    "answered",
    "account",
    "inbound",
    "reaction",
    "call",
    "webhook",
    "upload",
    "deleted",
    "status",
    "slack",
]
Line = dict[str, Any]

FILE_NAME = "journal.jsonl"
EVENTS: tuple[Event, ...] = get_args(Event)

# `n`, `at` and `event` open every line, so a line's event is found without parsing the rest.
_OPENING = 120


class JournalBroken(Exception):
    """The journal cannot be read or written, so the sandbox may not answer anybody."""


class Journal:
    """An append-only file of JSON lines with group commit.

    `append` numbers a line at once, in the order of the calls; `durable` returns when every line
    appended so far is on disk. One thread writes whatever has piled up and syncs once for all of
    it, so that twenty phones do not wait for twenty syncs.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE_NAME
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._take_ownership()
        _sync_directory(directory)
        self._offsets = array("Q")
        self._first_n = 1
        self._size = 0
        self._written = 0
        self._last_at = datetime.min.replace(tzinfo=UTC)
        self._waiting: list[bytes] = []
        self._waiting_done: asyncio.Future[None] | None = None
        self._writing_done: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self.failure: JournalBroken | None = None
        self.failed = asyncio.Event()
        self.epoch = 0

    def replay(self) -> Iterator[Line]:
        """Every line on disk, oldest first; a torn last line is cut off.

        To be called once, before the first `append`: it also finds where numbering goes on.
        """
        size = os.fstat(self._file).st_size
        position = 0
        with self.path.open("rb") as content:
            for number, raw in enumerate(content, start=1):
                line = _parsed(raw)
                if line is None:
                    if position + len(raw) < size:
                        raise JournalBroken(f"{self.path}: line {number} is damaged")
                    break
                if not self._offsets:
                    self._first_n = line["n"]
                self._offsets.append(position)
                self._last_at = datetime.fromisoformat(line["at"])
                position += len(raw)
                yield line
        os.ftruncate(self._file, position)
        os.fsync(self._file)
        self._size = self._written = position

    @property
    def next_n(self) -> int:
        """The number that the next line will get."""
        return self._first_n + len(self._offsets)

    def append(self, event: Event, fields: Line) -> Line:
        """Number and queue one line; it is on disk once `durable` returns."""
        if self.failure is not None:
            raise self.failure
        # A clock that steps back must not make the journal contradict its own order.
        self._last_at = max(self._last_at, datetime.now(UTC))
        at = self._last_at.isoformat(timespec="microseconds")
        line: Line = {"n": self.next_n, "at": at, "event": event, **fields}
        raw = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self._offsets.append(self._size)
        self._size += len(raw)
        self._queue(raw)
        return line

    async def durable(self) -> None:
        """Return when every line appended so far is on disk."""
        done = self._waiting_done or self._writing_done
        if done is not None:
            await asyncio.shield(done)
        if self.failure is not None:
            raise self.failure

    async def read(self, *, after: int = 0, event: Event | None = None) -> list[bytes]:
        """The lines numbered above `after`, as stored, of one event or of all."""
        await self.durable()
        start = max(0, after + 1 - self._first_n)
        if start >= len(self._offsets) or self._offsets[start] >= self._written:
            return []
        begin, length = self._offsets[start], self._written - self._offsets[start]
        content = await asyncio.to_thread(os.pread, self._file, length, begin)
        lines = content.splitlines()
        if event is None:
            return lines
        wanted = f'"event":"{event}"'.encode()
        return [line for line in lines if wanted in line[:_OPENING]]

    async def clear(self) -> None:
        """Forget every line; numbering goes on, and lines of earlier requests are now foreign."""
        while self._waiting_done is not None or self._writing_done is not None:
            await self.durable()
        # Nothing is awaited from here on, so no line can slip in between.
        self._first_n, self._offsets = self.next_n, array("Q")
        os.ftruncate(self._file, 0)
        os.fsync(self._file)
        self._size = self._written = 0
        self.epoch += 1

    async def close(self) -> None:
        """Write what is queued and let go of the file."""
        with contextlib.suppress(JournalBroken):
            await self.durable()
        self._thread.shutdown()
        os.close(self._file)

    def _take_ownership(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalBroken(f"{self.path} belongs to another running sandbox") from error

    def _queue(self, raw: bytes) -> None:
        loop = asyncio.get_running_loop()
        if self._waiting_done is None:
            self._waiting_done = loop.create_future()
        self._waiting.append(raw)
        if self._writer is None:
            self._writer = loop.create_task(self._write_waiting())

    async def _write_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting_done is not None:
            batch, self._waiting = self._waiting, []
            self._writing_done, self._waiting_done = self._waiting_done, None
            content = b"".join(batch)
            try:
                await loop.run_in_executor(self._thread, self._write, content)
            except OSError as error:
                self._fail(error)
                return
            self._written += len(content)
            self._writing_done.set_result(None)
            self._writing_done = None
        self._writer = None

    def _write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(self._file, view) :]
        os.fsync(self._file)

    def _fail(self, error: OSError) -> None:
        """Stop for good: after a failed sync nobody can say what is on disk."""
        self.failure = JournalBroken(f"{self.path}: {error}")
        self.failed.set()
        for done in (self._writing_done, self._waiting_done):
            if done is not None:
                done.set_result(None)  # `durable` raises the failure
        self._writing_done = self._waiting_done = None


def _parsed(raw: bytes) -> Line | None:
    """The line, or None when it was only partly written."""
    if not raw.endswith(b"\n"):
        return None
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) and "n" in line and "at" in line else None


def _sync_directory(directory: Path) -> None:
    """Make the new file's name itself survive a crash."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
