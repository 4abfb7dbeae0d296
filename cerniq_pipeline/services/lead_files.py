"""Files of leads: recognised by their content, the header found, every row as texts.

Workbooks have a module of their own; the other formats are read here. A file that cannot be used is
refused with a sentence for the person who made it.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import math
import os
import stat
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, time
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from cerniq_pipeline.domain.contacts import LOST, Layout, match_columns, what_is_expected
from cerniq_pipeline.errors import ImportRefused
from cerniq_pipeline.services import workbooks
from cerniq_pipeline.services.workbooks import UNCALCULATED

FILE_LIMIT = 1024**3
ROW_LIMIT = 2_000_000
RECORD_LIMIT = 16 * 1024**2
"""Characters of one row: enough to report a ten-megabyte cell, too few to fill the memory."""

HEADER_SEARCH = 10
"""Rows among which the header is looked for: exports begin with titles and empty lines."""

_BLOCK = 1024**2
_SAMPLE = 64 * 1024


class Record(NamedTuple):
    """One row of a file; `cut` when the file ends without ending it.

    `uncalculated` are the positions of formulas whose values the file does not hold.
    """

    line: int
    cells: Sequence[str]
    cut: bool = False
    uncalculated: tuple[int, ...] = ()


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
        survey = _survey(path)
        content = _open_content(path, survey, sheet)
    with closing(content.records):
        filled = (
            record for record in content.records if record.uncalculated or _is_filled(record.cells)
        )
        layout = _find_header(record.cells for record in filled)
        if not layout.usable:
            found = ", ".join(layout.header[:20]) or "nothing"
            raise ImportRefused(f"no leads here; found: {found}; expected: {what_is_expected()}")
        yield LeadFile(
            path=path,
            key=f"{survey.sha256}#{content.sheet}" if content.sheet else survey.sha256,
            format=content.format,
            layout=layout,
            rows=_counted(filled),
            total=content.total,
            opened=opened,
        )


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


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


class _Survey(NamedTuple):
    start: bytes
    sha256: str
    lines: int
    utf8: bool


def _survey(path: Path) -> _Survey:
    """One pass over the bytes: what they are, about how many lines, and whether UTF-8."""
    start, digest, lines, utf8 = b"", hashlib.sha256(), 0, True
    decoder = codecs.getincrementaldecoder("utf-8")()
    for block in _blocks(path):
        start = start or block[:_SAMPLE]
        digest.update(block)
        lines += block.count(b"\n")
        utf8 = utf8 and _decodes(decoder, block)
    utf8 = utf8 and _decodes(decoder, b"", final=True)
    return _Survey(start, digest.hexdigest(), lines, utf8)


def _decodes(decoder: codecs.IncrementalDecoder, block: bytes, *, final: bool = False) -> bool:
    try:
        decoder.decode(block, final)
    except UnicodeDecodeError:
        return False
    return True


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            yield block


_ZIP = b"PK\x03\x04"
_PARQUET = b"PAR1"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def _open_content(path: Path, survey: _Survey, sheet: str | None) -> _Content:
    if survey.start.startswith(_ZIP):
        return _open_workbook(path, sheet)
    if sheet is not None:
        raise ImportRefused(f"this is no workbook, so it has no sheet {sheet!r}")
    if survey.start.startswith(_PARQUET):
        return _open_parquet(path)
    if survey.start.startswith(_OLE):
        raise ImportRefused(_what_is_ole(path))
    return _open_text(path, survey)


def _what_is_ole(path: Path) -> str:
    locked = "EncryptedPackage".encode("utf-16-le")
    if any(locked in block for block in _blocks(path)):
        return "the workbook is protected by a password; save it without one"
    return "this is an old Excel or Office file; save it as XLSX or CSV"


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ImportRefused(f"cannot be read: {error.strerror or error}") from error


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


# ── Headers and rows ──────────────────────────────────────────────────────────────────────────


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


def _counted(records: Iterator[Record]) -> Iterator[Record]:
    for count, record in enumerate(records, start=1):
        _refuse_too_many(count)
        yield record


def _refuse_too_many(rows: int) -> None:
    if rows > ROW_LIMIT:
        raise ImportRefused(f"more than {ROW_LIMIT:,} rows; split the file")


# ── Workbooks and Parquet: typed cells ────────────────────────────────────────────────────────

_TypedRows = Generator[tuple[int, Sequence[object]], None, None]


def _open_workbook(path: Path, wanted: str | None) -> _Content:
    with _whole("workbook"):
        sheet = workbooks.open_sheet(path, wanted)
    records = _as_texts(sheet.rows, "workbook")
    return _Content(records, f"XLSX, sheet {sheet.name}", sheet.total, sheet.name)


def _open_parquet(path: Path) -> _Content:
    from pyarrow import parquet

    with _whole("Parquet file"):
        file = parquet.ParquetFile(path)
        total = file.metadata.num_rows
    _refuse_too_many(total)
    return _Content(_as_texts(_parquet_rows(file), "Parquet file"), "Parquet", total)


def _parquet_rows(file: Any) -> _TypedRows:
    with file:
        batches = file.iter_batches(batch_size=2000, use_threads=False)
        columns = ([column.to_pylist() for column in batch.columns] for batch in batches)
        rows = chain.from_iterable(zip(*values, strict=True) for values in columns)
        yield from enumerate(chain([file.schema_arrow.names], rows))


def _as_texts(rows: _TypedRows, kind: str) -> Records:
    with closing(rows), _whole(kind):
        for line, values in rows:
            yield Record(
                line,
                [_cell_text(value) for value in values],
                uncalculated=_positions(values) if UNCALCULATED in values else (),
            )


def _positions(values: Sequence[object]) -> tuple[int, ...]:
    return tuple(index for index, value in enumerate(values) if value is UNCALCULATED)


def _cell_text(value: object) -> str:
    """A typed value as a person would have typed it."""
    match value:
        case None:
            return ""
        case _ if value is UNCALCULATED:
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
            midnight = value.time() == time()
            return value.date().isoformat() if midnight else value.isoformat(" ")
        case bytes():
            return value.decode(errors="replace")
        case _:
            return str(value)


# ── CSV ───────────────────────────────────────────────────────────────────────────────────────

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
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


def _open_text(path: Path, survey: _Survey) -> _Content:
    encoding = _encoding_of(path, survey)
    with path.open(encoding=encoding, errors="replace", newline="") as stream:
        sample = stream.read(_SAMPLE)
    unprintable = sum(mark < " " and mark not in "\t\r\n\f\v\x1a" for mark in sample)
    if unprintable > max(8, len(sample) // 50):
        raise ImportRefused("this is neither text, nor an XLSX workbook, nor a Parquet file")
    csv.field_size_limit(max(csv.field_size_limit(), RECORD_LIMIT))
    delimiter = max(_DELIMITERS, key=lambda mark: _likeness_to_header(_sampled(sample, mark)))
    return _Content(
        records=_csv_records(path, encoding, delimiter),
        format=f"CSV, {_DELIMITERS[delimiter]}, {encoding}",
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


def _encoding_of(path: Path, survey: _Survey) -> str:
    start = survey.start
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
    beyond_ascii = lost = 0
    for block in _blocks(path):
        high.update(block.translate(None, _ASCII))
        text = decoder.decode(block)
        lost += text.count(LOST)
        beyond_ascii += len(text) - len(text.encode("ascii", "ignore"))
    if beyond_ascii - lost > lost:
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
