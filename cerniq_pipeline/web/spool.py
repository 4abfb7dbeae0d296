"""Where webhooks are kept while Postgres is away: files that survive a crash at any point.

One event a line, each with its checksum. Whoever gets a 2xx has its line on the disk. Every process
writes a file of its own and holds a lock on it as long as it lives, so that a file without a lock
is one that a dead process left behind: the next one takes it over.
"""

from __future__ import annotations

import base64
import binascii
import errno
import fcntl
import json
import os
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from cerniq_pipeline.logs import event
from cerniq_pipeline.store.inbox import Arrival
from cerniq_pipeline.web.limits import MIB

SUFFIX = ".spool"
_CHUNK_BYTES = 4 * MIB


@dataclass
class _File:
    path: Path
    descriptor: int
    size: int
    """Bytes that are surely on the disk."""
    replayed: int = 0


@dataclass(frozen=True)
class Chunk:
    """Some events of one file, and where the next ones begin."""

    arrivals: tuple[Arrival, ...]
    end: int


class Spool:
    """The files of one folder; not for two threads at once."""

    def __init__(self, folder: Path, *, most_bytes: int = 256 * MIB) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._own: _File | None = None
        self._left: list[_File] = []

    @property
    def is_writing(self) -> bool:
        """Whether events of this process wait here: newer ones must queue up behind them."""
        return self._own is not None

    @property
    def has_events(self) -> bool:
        """Whether there is anything to replay."""
        return bool(self._left or self._own)

    def bytes(self) -> int:
        """How much waits in the folder, that of other processes included."""
        sizes = 0
        for path in self._folder.glob(f"*{SUFFIX}"):
            with suppress(FileNotFoundError):
                sizes += path.stat().st_size
        return sizes

    def append(self, arrivals: Sequence[Arrival]) -> None:
        """Have these events on the disk when this returns; raises OSError when they may not be."""
        lines = b"".join(map(_line, arrivals))
        if self.bytes() + len(lines) > self._most_bytes:
            raise OSError(errno.ENOSPC, "the spool is full")
        own = self._own or self._create()
        try:
            # At its place and not at the end: what a failed write left there is written over.
            written = 0
            while written < len(lines):
                written += os.pwrite(own.descriptor, lines[written:], own.size + written)
            os.fsync(own.descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(own.descriptor, own.size)
            if own.size == 0:
                self._remove(own)
            raise
        own.size += len(lines)

    def adopt(self) -> int:
        """Take over the files of processes that are gone; returns how many."""
        ours = {file.path for file in (*self._left, self._own) if file}
        adopted = 0
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if path not in ours and (file := _locked(path)) is not None:
                self._left.append(file)
                adopted += 1
        return adopted

    def next_chunk(self, *, most: int) -> Chunk:
        """The oldest events that were not replayed yet; none at the end of a file."""
        file = self._oldest()
        arrivals: list[Arrival] = []
        place, damaged = file.replayed, 0
        with file.path.open("rb") as lines:
            lines.seek(place)
            while place < file.size and len(arrivals) < most:
                line = lines.readline()
                if not line:
                    place = file.size  # somebody cut it off
                    break
                if place > file.replayed and place + len(line) - file.replayed > _CHUNK_BYTES:
                    break
                place += len(line)
                arrival = _read(line)
                if arrival is None:
                    damaged += 1
                else:
                    arrivals.append(arrival)
        if damaged:
            # A line that was being written when its process died; nobody got a 2xx for it.
            event("web", "spool_lines_unreadable", level="warning", lines=damaged)
        return Chunk(tuple(arrivals), place)

    def done(self, chunk: Chunk) -> None:
        """Forget a chunk that is in Postgres now; a file without any other is removed."""
        file = self._oldest()
        file.replayed = chunk.end
        if file.replayed >= file.size:
            self._remove(file)

    def close(self) -> None:
        """Give the files up; what is in them is for the next process."""
        for file in (*self._left, self._own):
            if file is not None:
                os.close(file.descriptor)
        self._left, self._own = [], None

    def _oldest(self) -> _File:
        file = self._left[0] if self._left else self._own
        assert file is not None
        return file

    def _create(self) -> _File:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # people's words are in it
        while True:
            path = self._folder / f"{time.time_ns()}-{os.getpid()}{SUFFIX}"
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            # Between the two lines somebody may have taken the empty file for one that was left.
            if (file := _locked(path)) is not None:
                break
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # or the file's name may be gone after a power cut
        finally:
            os.close(folder)
        self._own = file
        return file

    def _remove(self, file: _File) -> None:
        file.path.unlink(missing_ok=True)
        os.close(file.descriptor)
        if file is self._own:
            self._own = None
        else:
            self._left.remove(file)


def _locked(path: Path) -> _File | None:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(descriptor)
        if found.st_nlink:  # otherwise it was replayed and removed while we opened it
            return _File(path, descriptor, found.st_size)
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None


def _line(arrival: Arrival) -> bytes:
    at = arrival.received_at
    fields = asdict(arrival) | {
        "body": base64.b64encode(arrival.body).decode(),
        "received_at": None if at is None else at.isoformat(),
    }
    written = json.dumps(fields).encode()
    return b"%08x %b\n" % (zlib.crc32(written), written)


def _read(line: bytes) -> Arrival | None:
    checksum, _, written = line.removesuffix(b"\n").partition(b" ")
    try:
        if not line.endswith(b"\n") or int(checksum, 16) != zlib.crc32(written):
            return None
        arrival = Arrival(**json.loads(written))
        at = arrival.received_at
        return replace(
            arrival,
            body=base64.b64decode(arrival.body),
            people=tuple(arrival.people),
            received_at=None if at is None else datetime.fromisoformat(str(at)),
        )
    except (ValueError, TypeError, binascii.Error):
        return None
