"""Import a file of leads: row by row, resumable, all or nothing at the end.

Rows are read in chunks, and each chunk is committed with the count of rows read so far, so that the
same command continues after a crash. Then one transaction merges all of them into the leads. What
is already staged is read again on the way, without being written: the error file is made from the
whole file, and a row costs microseconds.
"""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Self

from psycopg import errors as pg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from cerniq_pipeline.domain.contacts import (
    Basis,
    Contact,
    Layout,
    Problem,
    is_landline,
    read_row,
)
from cerniq_pipeline.errors import ImportRefused
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.lead_files import LeadFile, Record, open_lead_file
from cerniq_pipeline.store import imports, tenants

CHUNK = 5_000
MERGE_ATTEMPTS = 3

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
    """What this run did: every good row is a new lead or merged into one.

    Of a file that was imported before, the rows are told again, and nothing is new or merged.
    """

    rows: int
    bad: int
    new: int
    merged: int
    suppressed: int = 0
    """Leads of this file that came in opted out, or became so: their person or company asked."""
    without_basis: int = 0
    """Leads of this file that have no lawful basis: nothing is ever planned for them."""
    noted: int = 0
    """Good rows of which some value was dropped; the error file says which."""
    landlines: int = 0
    """Good rows whose number is a landline, which is not offered to WhatsApp."""
    errors_file: Path | None = None
    format: str = ""
    resumed_after: int = 0
    already_imported: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    """The columns that were recognised, and what each is taken for."""
    kept_columns: tuple[str, ...] = ()
    """Columns that are kept under their own names, for templates."""
    warnings: tuple[str, ...] = ()

    @property
    def good(self) -> int:
        return self.rows - self.bad


def import_leads(
    engine: Engine,
    path: Path,
    *,
    tenant_id: str,
    options: ImportOptions,
    secret: bytes,
    now: datetime,
    progress: ShowProgress,
) -> ImportSummary:
    """Bring the leads of a file into a tenant; a file that cannot be used changes nothing.

    `secret` is the key of the suppression hashes: who asked to stop comes in opted out. `progress`
    gets the rows read and, when it is known, about how many there are.
    """
    try:
        return _import(engine, path, tenant_id, options, secret, now, progress)
    except ImportRefused as refusal:
        raise ImportRefused(f"{path}: {refusal}") from refusal


def _import(
    engine: Engine,
    path: Path,
    tenant_id: str,
    options: ImportOptions,
    secret: bytes,
    now: datetime,
    progress: ShowProgress,
) -> ImportSummary:
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
        merged = _merge(conn, found.import_id, tenant_id, secret, now)
        if not options.dry_run:  # closing the connection takes back what was not committed
            conn.commit()
    summary = ImportSummary(
        rows=staging.read,
        bad=staging.bad,
        new=merged.leads_new,
        merged=merged.rows_merged,
        suppressed=merged.leads_suppressed,
        without_basis=merged.leads_without_basis,
        noted=staging.noted,
        landlines=staging.landlines,
        errors_file=errors_file,
        format=source.format,
        columns=source.layout.recognised,
        kept_columns=source.layout.kept,
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
        suppressed=summary.suppressed,
    )
    return summary


def _open_import(
    conn: Connection, source: LeadFile, tenant_id: str, options: ImportOptions, now: datetime
) -> imports.Progress:
    basis = options.basis
    found = imports.open_import(
        conn,
        tenant_id=tenant_id,
        file_key=source.key,
        file_name=source.path.name,
        options={"basis": [*basis[:2], basis.at.isoformat()] if basis else None},
        now=now,
    )
    if not options.dry_run:
        conn.commit()
    return found


def _already(found: imports.Progress, source: LeadFile) -> ImportSummary:
    return ImportSummary(
        rows=found.rows_read,
        bad=found.rows_bad,
        new=0,
        merged=0,
        format=source.format,
        columns=source.layout.recognised,
        kept_columns=source.layout.kept,
        already_imported=True,
    )


def _judge(
    record: Record, layout: Layout, basis: Basis | None, today: date
) -> tuple[Contact | None, list[Problem]]:
    if record.cut and len(record.cells) < len(layout.header):
        reason = "the file ends in the middle of this row: half-written?"
        return None, [Problem("", "", reason, fatal=True)]
    contact, problems = read_row(record.cells, layout, basis=basis, today=today)
    return contact, [*_uncalculated(record, layout), *problems]


def _uncalculated(record: Record, layout: Layout) -> Iterator[Problem]:
    reason = (
        "a formula whose value was never calculated: open the workbook in a spreadsheet program "
        "and save it"
    )
    for index in record.uncalculated:
        if index < len(layout.header):
            yield Problem(layout.header[index], "", reason)


def _merge(
    conn: Connection, import_id: int, tenant_id: str, secret: bytes, now: datetime
) -> imports.Merged:
    """Merge, and again when somebody else wrote the same company or locked leads crosswise."""
    attempt = 1
    while True:
        try:
            with conn.begin_nested():
                merged = imports.merge(conn, import_id, tenant_id=tenant_id, secret=secret, now=now)
            break
        except DBAPIError as error:
            passing = isinstance(error.orig, pg.UniqueViolation | pg.DeadlockDetected)
            if not passing or attempt == MERGE_ATTEMPTS:
                raise
            attempt += 1
    if merged is None:
        raise ImportRefused("another run has just finished importing this file")
    return merged


class _Staging:
    """Rows on their way into `import_rows`, a chunk per transaction."""

    def __init__(
        self, conn: Connection, found: imports.Progress, now: datetime, *, commit: bool
    ) -> None:
        self.read = self.bad = self.noted = self.landlines = 0
        self._conn = conn
        self._import_id = found.import_id
        self._staged = found.rows_read
        self._now = now
        self._commit = commit
        self._waiting: list[tuple[int, Contact]] = []

    def add(self, line: int, contact: Contact | None, problems: Sequence[Problem]) -> None:
        """Count one row, and keep it when it is good and not yet staged."""
        self.read += 1
        if contact is None:
            self.bad += 1
        else:
            self.noted += any(not problem.kept for problem in problems)
            phone = contact.telefon_principal
            self.landlines += phone is not None and is_landline(phone)
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
# With a byte order mark, because spreadsheets take a CSV without one for an old code page.
_ENCODING = "utf-8-sig"
_ACTIVE = tuple("=+-@\t\r\n\0\uff1d\uff0b\uff0d\uff20")
"""How a cell begins that may run; the last four are the wide forms of the first."""


class ErrorFile:
    """A CSV of everything wrong with a file, put in its place only when it is complete.

    It holds raw numbers, so only its owner may read it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = 0

    def __enter__(self) -> Self:
        if self._path.exists() and not self._is_ours():
            raise ImportRefused(f"{self._path} is in the way; name another file with --errors")
        if not os.access(self._path.parent, os.W_OK):
            raise ImportRefused(f"cannot write {self._path}; name another file with --errors")
        # Without a name: an import that is killed leaves nothing behind.
        self._draft = tempfile.TemporaryFile("w+", encoding="utf-8", newline="")
        self._writer = csv.writer(self._draft)
        self._writer.writerow(_ERROR_COLUMNS)
        return self

    def __exit__(self, *_: object) -> None:
        self._draft.close()

    def add(self, line: int, problems: Iterable[Problem]) -> None:
        """Write down what is wrong with one row."""
        for problem in problems:
            outcome = "kept" if problem.kept else "kept without it"
            outcome = "row refused" if problem.fatal else outcome
            cells = (problem.column, _shortened(problem.value), problem.reason, outcome)
            self._writer.writerow((line, *map(inert, cells)))
            self._rows += 1

    def finish(self) -> Path | None:
        """Put the file in its place; without a single line there is no file, nor an old one."""
        if not self._rows:
            self._path.unlink(missing_ok=True)
            return None
        self._draft.seek(0)
        try:
            with tempfile.NamedTemporaryFile(
                "w", encoding=_ENCODING, newline="", dir=self._path.parent, delete=False
            ) as part:
                shutil.copyfileobj(self._draft, part)
            Path(part.name).replace(self._path)
        except OSError as error:
            raise ImportRefused(f"cannot write {self._path}: {error.strerror}") from error
        return self._path

    def _is_ours(self) -> bool:
        if not self._path.is_file():
            return False
        with self._path.open("rb") as stream:
            return stream.readline(200).strip() == ",".join(_ERROR_COLUMNS).encode(_ENCODING)


def inert(cell: str) -> str:
    """Return the cell so that no spreadsheet takes it for a formula."""
    active = cell.startswith(_ACTIVE) or cell.lstrip().startswith(_ACTIVE)
    bare = cell.replace("\0", "")
    return f"'{bare}" if active else bare


def _shortened(value: str) -> str:
    return value if len(value) <= 200 else f"{value[:200]}…"
