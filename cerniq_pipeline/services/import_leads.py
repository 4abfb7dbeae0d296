"""Import a file of leads: CSV, XLSX or Parquet, row by row, resumable, all or nothing at the end.

Rows are read in chunks, and each chunk is committed with the count of rows read so far, so that the
same command continues after a crash. Then one transaction merges all of them into the leads. What
is already staged is read again on the way, without being written: the error file is made from the
whole file, and a row costs microseconds.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import math
import os
import re
import stat
import zipfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import IO, Any, NamedTuple, Self
from xml.etree import ElementTree
from xml.parsers import expat

from psycopg import errors as pg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from cerniq_pipeline.domain.contacts import (
    LOST,
    Basis,
    Contact,
    Layout,
    Problem,
    match_columns,
    read_row,
    what_is_expected,
)
from cerniq_pipeline.errors import ImportRefused
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import imports, tenants

CHUNK = 5_000
FILE_LIMIT = 1024**3
ROW_LIMIT = 2_000_000
RECORD_LIMIT = 16 * 1024**2
"""Characters of one row: enough to report a ten-megabyte cell, too few to fill the memory."""

HEADER_SEARCH = 10
"""Rows among which the header is looked for: exports begin with titles and empty lines."""

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
MERGE_ATTEMPTS = 3
_BLOCK = 1024**2
_SAMPLE = 64 * 1024

ShowProgress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class ImportOptions:
    """What the operator asked for; `basis` is vouched for on behalf of all rows that name none."""

    basis: Basis | None = None
    sheet: str | None = None
    errors: Path | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class ImportSummary:
    """What an import did: `good` rows are either a new lead or merged into one."""

    rows: int
    good: int
    bad: int
    new: int
    merged: int
    noted: int = 0
    """Good rows of which some value was dropped; the error file says which."""
    errors_file: Path | None = None
    format: str = ""
    resumed_after: int = 0
    already_imported: bool = False
    warnings: tuple[str, ...] = ()


def import_leads(
    engine: Engine,
    path: Path,
    *,
    tenant_id: str,
    options: ImportOptions,
    now: datetime,
    progress: ShowProgress,
) -> ImportSummary:
    """Bring the leads of a file into a tenant; a file that cannot be used changes nothing.

    `progress` gets the rows read and, when it is known, about how many there are.
    """
    errors_path = options.errors or path.with_name(f"{path.stem}.errors.csv")
    with (
        open_lead_file(path, options.sheet) as source,
        ErrorFile(errors_path) as error_file,
        engine.connect() as conn,
    ):
        today = tenants.get(conn, tenant_id).calendar.day_of(now)
        found = _open_import(conn, source, tenant_id, options, now)
        if found.done:
            return _already(found, source)
        staging = _Staging(conn, found, now, commit=not options.dry_run)
        try:
            for record in source.rows:
                contact, problems = _judge(record, source.layout, options.basis, today)
                error_file.add(record.line, problems)
                staging.add(record.line, contact, problems)
                if staging.read % 1000 == 0:
                    progress(staging.read, source.total)
            staging.finish()
            source.refuse_if_changed()
        except ImportRefused:
            staging.withdraw()
            raise
        progress(staging.read, staging.read)
        errors_file = error_file.finish()
        merged = _merge(conn, found.import_id, tenant_id, now)
        if options.dry_run:
            conn.rollback()
        else:
            conn.commit()
    summary = ImportSummary(
        rows=staging.read,
        good=staging.read - staging.bad,
        bad=staging.bad,
        new=merged.leads_new,
        merged=merged.rows_merged,
        noted=staging.noted,
        errors_file=errors_file,
        format=source.format,
        resumed_after=found.rows_read,
        warnings=source.warnings,
    )
    event(
        "import",
        "import_rehearsed" if options.dry_run else "import_finished",
        tenant=tenant_id,
        rows=summary.rows,
        bad=summary.bad,
        new=summary.new,
        merged=summary.merged,
    )
    return summary


def _open_import(
    conn: Connection, source: LeadFile, tenant_id: str, options: ImportOptions, now: datetime
) -> imports.Progress:
    basis = options.basis
    asked = {
        "tenant_id": tenant_id,
        "file_key": source.key,
        "file_name": source.name,
        "options": {"basis": [*basis[:2], basis.at.isoformat()] if basis else None},
        "now": now,
    }
    found = imports.open_import(conn, **asked)
    if options.dry_run and not found.done:
        imports.discard(conn, found.import_id, rows_read=found.rows_read)
        return imports.open_import(conn, **asked)
    if not options.dry_run:
        conn.commit()
    return found


def _already(found: imports.Progress, source: LeadFile) -> ImportSummary:
    return ImportSummary(
        rows=found.rows_read,
        good=found.rows_read - found.rows_bad,
        bad=found.rows_bad,
        new=found.leads_new,
        merged=found.leads_merged,
        format=source.format,
        already_imported=True,
    )


def _judge(
    record: Record, layout: Layout, basis: Basis | None, today: date
) -> tuple[Contact | None, list[Problem]]:
    if record.cut and len(record.cells) < len(layout.header):
        reason = "the file ends in the middle of this row: half-written?"
        return None, [Problem("", "", reason, fatal=True)]
    return read_row(record.cells, layout, basis=basis, today=today)


def _merge(conn: Connection, import_id: int, tenant_id: str, now: datetime) -> imports.Merged:
    """Merge, and again when somebody else wrote the same company or locked leads crosswise."""
    for attempt in range(1, MERGE_ATTEMPTS + 1):
        try:
            with conn.begin_nested():
                merged = imports.merge(conn, import_id, tenant_id=tenant_id, now=now)
        except DBAPIError as error:
            passing = isinstance(error.orig, pg.UniqueViolation | pg.DeadlockDetected)
            if not passing or attempt == MERGE_ATTEMPTS:
                raise
        else:
            if merged is None:
                raise ImportRefused("another run has just finished importing this file")
            return merged
    raise AssertionError("unreachable: the last attempt returns or raises")


class _Staging:
    """Rows on their way into `import_rows`, a chunk per transaction."""

    def __init__(
        self, conn: Connection, found: imports.Progress, now: datetime, *, commit: bool
    ) -> None:
        self.read = self.bad = self.noted = 0
        self._conn = conn
        self._import_id = found.import_id
        self._staged = found.rows_read
        self._now = now
        self._commit = commit
        self._waiting: list[tuple[int, Contact]] = []

    def add(self, line: int, contact: Contact | None, problems: Sequence[Problem]) -> None:
        """Count one row, and keep it when it is good and not yet staged."""
        self.read += 1
        if self.read > ROW_LIMIT:
            raise ImportRefused(f"more than {ROW_LIMIT:,} rows; split the file")
        if contact is None:
            self.bad += 1
        else:
            self.noted += bool(problems)
            if self.read > self._staged:
                self._waiting.append((line, contact))
        if self.read % CHUNK == 0:
            self._flush()

    def finish(self) -> None:
        """Stage what is left; refuses a file without a single row."""
        if self.read == 0:
            raise ImportRefused("the file has a header and no rows")
        self._flush()

    def withdraw(self) -> None:
        """Take back everything that was staged, unless another run has taken over."""
        self._conn.rollback()
        if self._commit:
            imports.discard(self._conn, self._import_id, rows_read=self._staged)
            self._conn.commit()

    def _flush(self) -> None:
        if self.read <= self._staged:
            return
        moved = imports.advance(
            self._conn,
            self._import_id,
            before=self._staged,
            read=self.read,
            bad=self.bad,
            now=self._now,
        )
        if not moved:
            raise ImportRefused("another run is importing this file right now")
        imports.add_rows(self._conn, self._import_id, self._waiting)
        if self._commit:
            self._conn.commit()
        self._staged = self.read
        self._waiting.clear()


# ── The error file ────────────────────────────────────────────────────────────────────────────

_ERROR_COLUMNS = ("line", "column", "value", "reason", "outcome")
_ACTIVE = ("=", "+", "-", "@", "\t", "\r", "\n")


class ErrorFile:
    """A CSV of everything wrong with a file, put in its place only when it is complete.

    It holds raw numbers, so only its owner may read it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._rows = 0

    def __enter__(self) -> Self:
        try:
            if self._path.exists() and not self._is_ours():
                raise ImportRefused(f"{self._path} is in the way; name another file with --errors")
            handle = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ImportRefused(
                f"cannot write {self._path}: {reason}; name another file with --errors"
            ) from error
        # With a byte order mark, because spreadsheets take a CSV without one for an old code page.
        self._stream = os.fdopen(handle, "w", encoding="utf-8-sig", newline="")
        self._writer = csv.writer(self._stream)
        self._writer.writerow(_ERROR_COLUMNS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._part.unlink(missing_ok=True)

    def add(self, line: int, problems: Iterable[Problem]) -> None:
        """Write down what is wrong with one row."""
        for problem in problems:
            outcome = "row refused" if problem.fatal else "kept without it"
            cells = (problem.column, _shortened(problem.value), problem.reason, outcome)
            self._writer.writerow((line, *map(inert, cells)))
            self._rows += 1

    def finish(self) -> Path | None:
        """Put the file in its place; without a single line there is no file, nor an old one."""
        self._stream.close()
        if not self._rows:
            self._path.unlink(missing_ok=True)
            return None
        self._part.replace(self._path)
        return self._path

    def _is_ours(self) -> bool:
        if not self._path.is_file():
            return False
        with self._path.open("rb") as stream:
            return stream.readline(200).strip() == codecs.BOM_UTF8 + b",".join(
                name.encode() for name in _ERROR_COLUMNS
            )


def inert(cell: str) -> str:
    """Return the cell so that no spreadsheet takes it for a formula."""
    cell = cell.replace("\0", "")
    return f"'{cell}" if cell.startswith(_ACTIVE) else cell


def _shortened(value: str) -> str:
    return value if len(value) <= 200 else f"{value[:200]}…"


# ── Files ─────────────────────────────────────────────────────────────────────────────────────


class Record(NamedTuple):
    """One row of a file; `cut` when the file ends without ending it."""

    line: int
    cells: Sequence[str]
    cut: bool = False


@dataclass(frozen=True)
class LeadFile:
    """A file whose columns are known and whose rows can be read once."""

    path: Path
    key: str
    """The same for the same content: its SHA-256, and the sheet of a workbook."""
    format: str
    layout: Layout
    rows: Iterator[Record]
    total: int | None
    opened: os.stat_result

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def warnings(self) -> tuple[str, ...]:
        left_out = self.layout.left_out
        return (f"columns left out, too many: {', '.join(left_out)}",) if left_out else ()

    def refuse_if_changed(self) -> None:
        """Refuse when somebody wrote to the file since it was opened."""
        if _identity(self.path.stat()) != _identity(self.opened):
            raise ImportRefused(f"{self.name} changed while it was being read; try again")


class _Content(NamedTuple):
    """What a reader finds in a file of its format."""

    records: Iterator[Record]
    format: str
    total: int | None
    sheet: str = ""


@contextmanager
def open_lead_file(path: Path, sheet: str | None = None) -> Iterator[LeadFile]:
    """Open a file by what is in it, whatever its name says; refuses what holds no leads."""
    opened = _checked(path)
    try:
        start = _start_of(path)
        if start.startswith(b"PAR1"):
            digest, content = _digest(path), _open_parquet(path)
        elif start.startswith(b"PK\x03\x04"):
            digest, content = _digest(path), _open_workbook(path, sheet)
        elif start.startswith(_OLE):
            raise ImportRefused(_what_is_ole(path))
        else:
            if sheet is not None:
                raise ImportRefused(f"{path.name} is no workbook, so it has no sheet {sheet!r}")
            survey = _survey(path)
            digest, content = survey.sha256, _open_text(path, survey)
    except OSError as error:
        raise ImportRefused(f"cannot read {path}: {error.strerror or error}") from error
    records = (record for record in content.records if any(map(str.strip, record.cells)))
    try:
        layout = _find_header(record.cells for record in records)
        if not layout.usable:
            raise ImportRefused(_no_columns(path, layout))
        yield LeadFile(
            path=path,
            key=f"{digest}#{content.sheet}" if content.sheet else digest,
            format=content.format,
            layout=layout,
            rows=records,
            total=content.total,
            opened=opened,
        )
    finally:
        records.close()
        if isinstance(content.records, _Closable):
            content.records.close()


def _checked(path: Path) -> os.stat_result:
    try:
        found = path.stat()
    except OSError as error:
        raise ImportRefused(f"cannot read {path}: {error.strerror or error}") from error
    if stat.S_ISDIR(found.st_mode):
        raise ImportRefused(f"{path} is a folder; name a file")
    if not stat.S_ISREG(found.st_mode):
        raise ImportRefused(f"{path} is not a regular file")
    if found.st_size == 0:
        raise ImportRefused(f"{path} is empty")
    if found.st_size > FILE_LIMIT:
        raise ImportRefused(f"{path} is larger than {FILE_LIMIT // 1024**3} GiB; split it")
    return found
