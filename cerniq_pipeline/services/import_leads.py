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
import shutil
import stat
import tempfile
import zipfile
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, Self
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
    """What this run did: every good row is a new lead or merged into one.

    Of a file that was imported before, the rows are told again, and nothing is new or merged.
    """

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
    try:
        return _import(engine, path, tenant_id, options, now, progress)
    except ImportRefused as refusal:
        raise ImportRefused(f"{path}: {refusal}") from refusal


def _import(
    engine: Engine,
    path: Path,
    tenant_id: str,
    options: ImportOptions,
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
        "file_name": source.path.name,
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
        new=0,
        merged=0,
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
        self._rows = 0

    def __enter__(self) -> Self:
        if self._path.exists() and not self._is_ours():
            raise ImportRefused(f"{self._path} is in the way; name another file with --errors")
        if not os.access(self._path.parent, os.W_OK):
            raise ImportRefused(f"cannot write {self._path}; name another file with --errors")
        self._draft = tempfile.TemporaryFile()
        # With a byte order mark, because spreadsheets take a CSV without one for an old code page.
        self._text = io.TextIOWrapper(self._draft, encoding="utf-8-sig", newline="")
        self._writer = csv.writer(self._text)
        self._writer.writerow(_ERROR_COLUMNS)
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()

    def add(self, line: int, problems: Iterable[Problem]) -> None:
        """Write down what is wrong with one row."""
        for problem in problems:
            outcome = "row refused" if problem.fatal else "kept without it"
            cells = (problem.column, _shortened(problem.value), problem.reason, outcome)
            self._writer.writerow((line, *map(inert, cells)))
            self._rows += 1

    def finish(self) -> Path | None:
        """Put the file in its place; without a single line there is no file, nor an old one."""
        if not self._rows:
            self._path.unlink(missing_ok=True)
            return None
        self._text.flush()
        self._draft.seek(0)
        try:
            with tempfile.NamedTemporaryFile(dir=self._path.parent, delete=False) as part:
                shutil.copyfileobj(self._draft, part)
            Path(part.name).replace(self._path)
        except OSError as error:
            raise ImportRefused(f"cannot write {self._path}: {error.strerror}") from error
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


Records = Generator[Record, None, None]


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
    def warnings(self) -> tuple[str, ...]:
        left_out = self.layout.left_out
        return (f"columns left out, too many: {', '.join(left_out)}",) if left_out else ()

    def refuse_if_changed(self) -> None:
        """Refuse when somebody wrote to the file since it was opened."""
        if _identity(self.path.stat()) != _identity(self.opened):
            raise ImportRefused("the file changed while it was being read; try again")


class _Content(NamedTuple):
    """What a reader finds in a file of its format."""

    records: Records
    format: str
    total: int | None
    sheet: str = ""


@contextmanager
def open_lead_file(path: Path, sheet: str | None = None) -> Iterator[LeadFile]:
    """Open a file by what is in it, whatever its name says; refuses what holds no leads."""
    with _readable():
        opened = _checked(path)
        digest, content = _open_content(path, sheet)
    with closing(content.records):
        records = (record for record in content.records if _is_filled(record.cells))
        layout = _find_header(record.cells for record in records)
        if not layout.usable:
            found = ", ".join(layout.header[:20]) or "nothing"
            raise ImportRefused(f"no leads here; found: {found}; expected: {what_is_expected()}")
        yield LeadFile(
            path=path,
            key=f"{digest}#{content.sheet}" if content.sheet else digest,
            format=content.format,
            layout=layout,
            rows=records,
            total=content.total,
            opened=opened,
        )


def _open_content(path: Path, sheet: str | None) -> tuple[str, _Content]:
    start = _start_of(path)
    if start.startswith(b"PK\x03\x04"):
        return _survey(path).sha256, _open_workbook(path, sheet)
    if sheet is not None:
        raise ImportRefused(f"this is no workbook, so it has no sheet {sheet!r}")
    if start.startswith(b"PAR1"):
        return _survey(path).sha256, _open_parquet(path)
    if start.startswith(_OLE):
        raise ImportRefused(_what_is_ole(path))
    survey = _survey(path)
    return survey.sha256, _open_text(path, start, survey)


def _checked(path: Path) -> os.stat_result:
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise ImportRefused("this is a folder; name a file")
    if not stat.S_ISREG(found.st_mode):
        raise ImportRefused("this is not a regular file")
    if found.st_size == 0:
        raise ImportRefused("the file is empty")
    if found.st_size > FILE_LIMIT:
        raise ImportRefused(f"the file is larger than {FILE_LIMIT // 1024**3} GiB; split it")
    return found


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ImportRefused(f"cannot be read: {error.strerror or error}") from error


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _is_filled(cells: Sequence[str]) -> bool:
    return any(map(str.strip, cells))


def _find_header(rows: Iterable[Sequence[str]]) -> Layout:
    """The first usable header near the top; without one, the row that came closest."""
    best = match_columns(())
    for cells in islice(rows, HEADER_SEARCH):
        layout = match_columns(cells)
        if layout.usable:
            return layout
        best = max(best, layout, key=_likeness_to_header)
    return best


def _likeness_to_header(layout: Layout) -> tuple[bool, int, int]:
    return layout.usable, len(layout.columns), len(layout.header)


def _start_of(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(_SAMPLE)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            yield block


def _cell_text(value: object) -> str:
    """A typed value as a person would have typed it."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return str(value).lower()
        case float():
            if math.isnan(value):
                return ""
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case datetime():
            midnight = value.timetz().replace(tzinfo=None) == time()
            return value.date().isoformat() if midnight else value.isoformat(" ")
        case bytes():
            return value.decode(errors="replace")
        case _:
            return str(value)


# ── CSV ───────────────────────────────────────────────────────────────────────────────────────

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# In the order of preference: they agree on every Romanian letter and differ in the rest.
_CODE_PAGES = ("cp1250", "iso-8859-16", "iso-8859-2", "cp1252")
_ROMANIAN = frozenset("ăâîșțşţĂÂÎȘȚŞŢ")
_NEIGHBOURS = frozenset("áéíóöőúüűäßàçèêëïôûñÁÉÍÓÖŐÚÜŰÄÀÇÈÊËÏÔÛÑ")
_MARKS_OF_WRITERS = frozenset("„”“’‘«»–—…€©®°§·•№\u00a0")
_ASCII = bytes(range(128))


class _Survey(NamedTuple):
    sha256: str
    lines: int
    utf8: bool


def _survey(path: Path) -> _Survey:
    """One pass over the bytes: what they are, about how many lines, and whether UTF-8."""
    digest, lines, utf8 = hashlib.sha256(), 0, True
    decoder = codecs.getincrementaldecoder("utf-8")()
    for block in _blocks(path):
        digest.update(block)
        lines += block.count(b"\n")
        utf8 = utf8 and _decodes(decoder, block)
    utf8 = utf8 and _decodes(decoder, b"", final=True)
    return _Survey(digest.hexdigest(), lines, utf8)


def _decodes(decoder: codecs.IncrementalDecoder, block: bytes, *, final: bool = False) -> bool:
    try:
        decoder.decode(block, final)
    except UnicodeDecodeError:
        return False
    return True


def _open_text(path: Path, start: bytes, survey: _Survey) -> _Content:
    encoding = _encoding_of(path, start, survey)
    with path.open(encoding=encoding, errors="replace", newline="") as stream:
        sample = stream.read(_SAMPLE)
    unprintable = sum(mark < " " and mark not in "\t\r\n\f\v\x1a" for mark in sample)
    if unprintable > max(8, len(sample) // 50):
        raise ImportRefused("this is neither text, nor an XLSX workbook, nor a Parquet file")
    csv.field_size_limit(max(csv.field_size_limit(), RECORD_LIMIT))
    delimiter = max(DELIMITERS, key=lambda mark: _likeness_to_header(_sampled(sample, mark)))
    return _Content(
        records=_csv_records(path, encoding, delimiter),
        format=f"CSV, {DELIMITERS[delimiter]}, {encoding}",
        total=survey.lines or None,
    )


def _sampled(sample: str, delimiter: str) -> Layout:
    rows = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    return _find_header(filter(_is_filled, rows))


def _csv_records(path: Path, encoding: str, delimiter: str) -> Records:
    with _readable(), path.open(encoding=encoding, errors="replace", newline="") as stream:
        lines = _Lines(stream)
        reader = csv.reader(lines, delimiter=delimiter)
        while True:
            line = reader.line_num + 1
            lines.length = 0
            cells = next(reader, None)
            if cells is None:
                return
            if lines.ended:
                raise ImportRefused(
                    f"line {line}: a quote opens here and the file ends before it closes:"
                    " half-written?"
                )
            yield Record(line, cells, lines.cut)


class _Lines:
    """The lines of a text, as the CSV reader asks for them, with a limit on what one row takes."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.length = 0
        self.cut = False
        self.ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(RECORD_LIMIT)
        if not line:
            self.ended = True
            raise StopIteration
        self.length += len(line)
        if self.length >= RECORD_LIMIT:
            raise ImportRefused(f"a row is longer than {RECORD_LIMIT // 1024**2} MiB")
        self.cut = line[-1] not in "\r\n"
        return line


def _encoding_of(path: Path, start: bytes, survey: _Survey) -> str:
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    # Text in UTF-16 without a mark is every other byte zero.
    zeros = start[0::2].count(0), start[1::2].count(0)
    if max(zeros) > len(start) // 6 and min(zeros) < max(zeros) // 8:
        return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    return "utf-8" if survey.utf8 else _guess_encoding(path)


def _guess_encoding(path: Path) -> str:
    """UTF-8 when only a few bytes of it are broken, else the code page that reads best."""
    high: Counter[int] = Counter()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    read = lost = 0
    for block in _blocks(path):
        high.update(block.translate(None, _ASCII))
        text = decoder.decode(block)
        lost += text.count(LOST)
        read += len(text) - len(text.encode("ascii", "ignore"))
    if read - lost > lost:
        return "utf-8"
    return max(_CODE_PAGES, key=lambda page: _likeness_to_text(high, page))


def _likeness_to_text(high: Counter[int], page: str) -> int:
    total = 0
    for byte, times in high.items():
        letter = bytes([byte]).decode(page, "replace")
        if letter in _ROMANIAN:
            total += 3 * times
        elif letter in _NEIGHBOURS:
            total += times
        elif letter == LOST or not (letter.isprintable() or letter == "\u00a0"):
            total -= 10 * times
        elif letter not in _MARKS_OF_WRITERS:
            total -= 2 * times
    return total


# ── Parquet ───────────────────────────────────────────────────────────────────────────────────


def _open_parquet(path: Path) -> _Content:
    from pyarrow import parquet

    with _whole("Parquet file"):
        file = parquet.ParquetFile(path)
        rows = file.metadata.num_rows
    if rows > ROW_LIMIT:
        raise ImportRefused(f"more than {ROW_LIMIT:,} rows; split the file")
    return _Content(_parquet_records(file), "Parquet", rows)


def _parquet_records(file: Any) -> Records:
    with _whole("Parquet file"), file:
        yield Record(0, file.schema_arrow.names)
        line = 0
        for batch in file.iter_batches(batch_size=2000, use_threads=False):
            columns = [column.to_pylist() for column in batch.columns]
            for cells in zip(*columns, strict=True):
                line += 1
                yield Record(line, [_cell_text(cell) for cell in cells])


@contextmanager
def _whole(kind: str) -> Iterator[None]:
    """Turn whatever a reader stumbles over in a damaged file into a refusal."""
    try:
        yield
    except ImportRefused:
        raise
    except Exception as error:
        detail = " ".join(str(error).split())[:200]
        raise ImportRefused(f"the {kind} is damaged or cut short: {detail}") from error


# ── XLSX ──────────────────────────────────────────────────────────────────────────────────────
# Read with expat, not with openpyxl, which keeps something of every row and every string: half a
# gigabyte for a million rows. Its knowledge of dates is used.

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_PART_LIMIT = 64 * 1024**2
_STRINGS_LIMIT = 256 * 1024**2
_LAST_COLUMN = 16_384
_LAST_ROW = 1_048_576
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")


def _what_is_ole(path: Path) -> str:
    locked = "EncryptedPackage".encode("utf-16-le")
    if any(locked in block for block in _blocks(path)):
        return "the workbook is protected by a password; save it without one"
    return "this is an old Excel or Office file; save it as XLSX or CSV"


def _open_workbook(path: Path, sheet: str | None) -> _Content:
    with _whole("workbook"):
        archive = zipfile.ZipFile(path)
        if "xl/workbook.xml" not in archive.namelist():
            raise ImportRefused("this is an archive, but not an XLSX workbook")
        book = ElementTree.fromstring(_part(archive, "xl/workbook.xml"))
        name, part = _choose_sheet(archive, book, sheet)
        records = _sheet_records(archive, part, _read_strings(archive), _date_reader(archive, book))
        with archive.open(part) as stream:
            size = re.search(rb'<dimension ref="[A-Z]+\d+:[A-Z]+(\d+)"', stream.read(4096))
    return _Content(records, f"XLSX, sheet {name}", int(size[1]) if size else None, name)


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as stream:
        content = stream.read(_PART_LIMIT + 1)
    if len(content) > _PART_LIMIT:
        raise ImportRefused(f"the workbook's {name} is too large; save it as CSV")
    return content


def _choose_sheet(
    archive: zipfile.ZipFile, book: ElementTree.Element, wanted: str | None
) -> tuple[str, str]:
    """The wanted sheet, or the first that is not hidden, and the part of the archive it is in."""
    links = ElementTree.fromstring(_part(archive, "xl/_rels/workbook.xml.rels"))
    targets = {link.get("Id"): link.get("Target", "") for link in links}
    parts: dict[str, str] = {}
    hidden: set[str] = set()
    for sheet in book.iterfind(".//{*}sheet"):
        link = next((value for key, value in sheet.items() if key.endswith("}id")), None)
        target = targets.get(link, "")
        part = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
        if part in archive.namelist() and "chartsheets" not in part:
            parts[sheet.get("name", "")] = part
            hidden |= (
                {sheet.get("name", "")} if sheet.get("state", "visible") != "visible" else set()
            )
    if wanted is None:
        name = next((name for name in parts if name not in hidden), None)
    else:
        name = next((name for name in parts if name.casefold() == wanted.casefold()), None)
    if name is None:
        there = ", ".join(parts) or "none"
        raise ImportRefused(f"no sheet {wanted!r}; there are: {there}" if wanted else "no sheets")
    return name, parts[name]


def _date_reader(
    archive: zipfile.ZipFile, book: ElementTree.Element
) -> Callable[[str, float], object]:
    """A function from style and number to what the cell shows: a date where the style says so."""
    from openpyxl.styles.numbers import BUILTIN_FORMATS, is_date_format
    from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH, from_excel

    properties = book.find("{*}workbookPr")
    since_1904 = properties is not None and properties.get("date1904") in {"1", "true"}
    epoch = MAC_EPOCH if since_1904 else WINDOWS_EPOCH
    dated: set[str] = set()
    if "xl/styles.xml" in archive.namelist():
        styles = ElementTree.fromstring(_part(archive, "xl/styles.xml"))
        formats = {str(number): code for number, code in BUILTIN_FORMATS.items()}
        for code in styles.iterfind("{*}numFmts/{*}numFmt"):
            formats[code.get("numFmtId", "")] = code.get("formatCode", "")
        for index, style in enumerate(styles.iterfind("{*}cellXfs/{*}xf")):
            if is_date_format(formats.get(style.get("numFmtId", "0"), "")):
                dated.add(str(index))

    def read(style: str, number: float) -> object:
        if style not in dated:
            return number
        try:
            return from_excel(number, epoch)
        except (OverflowError, ValueError):
            return number

    return read


def _read_strings(archive: zipfile.ZipFile) -> _Strings:
    strings = _Strings()
    if "xl/sharedStrings.xml" in archive.namelist():
        with archive.open("xl/sharedStrings.xml") as stream:
            for _ in _walk(stream, strings):
                pass
    return strings


def _sheet_records(
    archive: zipfile.ZipFile,
    part: str,
    strings: _Strings,
    read_date: Callable[[str, float], object],
) -> Records:
    sheet = _Sheet(strings, read_date)
    with _whole("workbook"), archive, archive.open(part) as stream:
        for _ in _walk(stream, sheet):
            yield from sheet.rows
            sheet.rows.clear()


class _Listener(Protocol):
    def start(self, tag: str, attributes: dict[str, str]) -> None: ...

    def end(self, tag: str, text: str) -> None: ...


def _walk(stream: IO[bytes], listener: _Listener) -> Iterator[None]:
    """Tell the listener about tags as they pass by; yields now and then.

    A tag ends with the text that stood right before; how words are pronounced is left out.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    pieces: list[str] = []
    length = spoken = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal length, spoken
        tag = name.rpartition(" ")[2]
        spoken += tag == "rPh"
        pieces.clear()
        length = 0
        listener.start(tag, attributes)

    def end(name: str) -> None:
        nonlocal spoken
        tag = name.rpartition(" ")[2]
        spoken -= tag == "rPh"
        listener.end(tag, "" if spoken else "".join(pieces))
        pieces.clear()

    def characters(text: str) -> None:
        nonlocal length
        length += len(text)
        if length > RECORD_LIMIT:
            raise ImportRefused(f"a cell is longer than {RECORD_LIMIT // 1024**2} MiB")
        pieces.append(text)

    def declaration(*_: object) -> None:
        raise ImportRefused("the workbook declares a document type, which no workbook needs")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = declaration
    while block := stream.read(_SAMPLE):
        parser.Parse(block, False)
        yield
    parser.Parse(b"", True)
    yield


class _Strings:
    """The texts that the cells of a workbook point to, packed: Python's own cost three times it."""

    def __init__(self) -> None:
        self._packed = bytearray()
        self._ends = array("Q", [0])

    def __getitem__(self, index: int) -> str:
        return self._packed[self._ends[index] : self._ends[index + 1]].decode()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Nothing to do before a text ends."""

    def end(self, tag: str, text: str) -> None:
        if tag == "t":
            self._packed += text.encode()
        elif tag == "si":
            self._ends.append(len(self._packed))
            if len(self._packed) + 8 * len(self._ends) > _STRINGS_LIMIT:
                raise ImportRefused("the workbook holds too much text; save it as CSV")


class _Sheet:
    """The rows of a sheet as they pass by."""

    def __init__(self, strings: _Strings, read_date: Callable[[str, float], object]) -> None:
        self.rows: list[Record] = []
        self._strings = strings
        self._read_date = read_date
        self._line = self._column = 0
        self._cells: list[str] = []
        self._kind = self._style = self._text = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "c":
            at = attributes.get("r", "")
            self._column = _column_number(at) if at else self._column + 1
            self._kind = attributes.get("t", "n")
            self._style = attributes.get("s", "0")
            self._text = ""
            if not 0 < self._column <= _LAST_COLUMN:
                raise ImportRefused(f"the workbook is damaged: there is no cell {at!r}")
        elif tag == "row":
            self._line = int(attributes.get("r", self._line + 1))
            self._column = 0
            self._cells = []
            if not 0 < self._line <= _LAST_ROW:
                raise ImportRefused(f"the workbook is damaged: there is no row {self._line}")

    def end(self, tag: str, text: str) -> None:
        if tag in {"v", "t"}:
            self._text += text
        elif tag == "c" and self._text:
            self._cells.extend([""] * (self._column - len(self._cells)))
            self._cells[self._column - 1] = self._shown()
        elif tag == "row":
            self.rows.append(Record(self._line, self._cells))

    def _shown(self) -> str:
        match self._kind:
            case "s":
                return _unescaped(self._strings[int(self._text)])
            case "n":
                return self._number()
            case "b":
                return "true" if self._text == "1" else "false"
            case _:
                return _unescaped(self._text)

    def _number(self) -> str:
        if self._text.isdigit() and self._style == "0":
            return self._text
        return _cell_text(self._read_date(self._style, float(self._text)))


def _column_number(reference: str) -> int:
    number = 0
    for letter in reference.rstrip("0123456789"):
        number = number * 26 + ord(letter) - 64
    return number


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text) if "_x" in text else text
