"""Workbooks: one sheet of an XLSX file, row by row.

Read with expat, not with openpyxl, which keeps something of every row and every string: half a
gigabyte for a million rows. Its knowledge of dates is used.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from array import array
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, NamedTuple, Protocol
from xml.etree import ElementTree
from xml.parsers import expat

from cerniq_pipeline.errors import ImportRefused

_BLOCK = 64 * 1024
_PART_LIMIT = 64 * 1024**2
_STRINGS_LIMIT = 256 * 1024**2
_CELL_LIMIT = 16 * 1024**2
_LAST_COLUMN = 16_384
_LAST_ROW = 1_048_576
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")

_Shown = Callable[[str, float], object]


class _Uncalculated:
    """Stands for a formula whose value the workbook does not hold: it was never calculated."""

    def __repr__(self) -> str:
        return "UNCALCULATED"


UNCALCULATED = _Uncalculated()


class Sheet(NamedTuple):
    """One sheet of a workbook."""

    name: str
    total: int | None
    """How many rows the workbook says there are."""
    rows: Generator[tuple[int, list[object]], None, None]
    """The number of each row and its values: texts, numbers, truths and dates, and UNCALCULATED.

    Read it once.
    """


def open_sheet(path: Path, wanted: str | None) -> Sheet:
    """Open the wanted sheet, or the first that is not hidden.

    What is damaged raises whatever the archive or its XML stumbles over, here or between the rows.
    """
    archive = zipfile.ZipFile(path)
    if "xl/workbook.xml" not in archive.namelist():
        raise ImportRefused("this is an archive, but not an XLSX workbook")
    book = ElementTree.fromstring(_content(archive, "xl/workbook.xml"))
    name, part = _choose_sheet(archive, book, wanted)
    with archive.open(part) as stream:
        size = re.search(rb'<dimension ref="[A-Z]+\d+:[A-Z]+(\d+)"', stream.read(4096))
    cells = _Cells(_read_strings(archive), _date_reader(archive, book))
    return Sheet(name, int(size[1]) if size else None, _rows(archive, part, cells))


def _content(archive: zipfile.ZipFile, part: str) -> bytes:
    with archive.open(part) as stream:
        content = stream.read(_PART_LIMIT + 1)
    if len(content) > _PART_LIMIT:
        raise ImportRefused(f"the workbook's {part} is too large; save it as CSV")
    return content


def _choose_sheet(
    archive: zipfile.ZipFile, book: ElementTree.Element, wanted: str | None
) -> tuple[str, str]:
    """The name of a sheet, and the part of the archive it is in."""
    links = ElementTree.fromstring(_content(archive, "xl/_rels/workbook.xml.rels"))
    targets = {link.get("Id"): link.get("Target", "") for link in links}
    names: list[str] = []
    for sheet in book.iterfind(".//{*}sheet"):
        link = next((value for key, value in sheet.items() if key.endswith("}id")), None)
        part = posixpath.join("xl", targets.get(link, "")).lstrip("/")
        if part not in archive.namelist() or "chartsheets" in part:
            continue
        name = sheet.get("name", "")
        visible = sheet.get("state", "visible") == "visible"
        if visible if wanted is None else name.casefold() == wanted.casefold():
            return name, part
        names.append(name)
    if wanted is None:
        raise ImportRefused("no sheets")
    raise ImportRefused(f"no sheet {wanted!r}; there are: {', '.join(names) or 'none'}")


def _date_reader(archive: zipfile.ZipFile, book: ElementTree.Element) -> _Shown:
    """A function from style and number to what the cell shows: a date where the style says so."""
    from openpyxl.styles.numbers import BUILTIN_FORMATS, is_date_format
    from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH, from_excel

    properties = book.find("{*}workbookPr")
    since_1904 = properties is not None and properties.get("date1904") in {"1", "true"}
    epoch = MAC_EPOCH if since_1904 else WINDOWS_EPOCH
    dated: set[str] = set()
    if "xl/styles.xml" in archive.namelist():
        styles = ElementTree.fromstring(_content(archive, "xl/styles.xml"))
        formats = {str(number): code for number, code in BUILTIN_FORMATS.items()}
        for code in styles.iterfind("{*}numFmts/{*}numFmt"):
            formats[code.get("numFmtId", "")] = code.get("formatCode", "")
        for index, style in enumerate(styles.iterfind("{*}cellXfs/{*}xf")):
            if is_date_format(formats.get(style.get("numFmtId", "0"), "")):
                dated.add(str(index))

    def shown(style: str, number: float) -> object:
        if style not in dated:
            return number
        try:
            return from_excel(number, epoch)
        except (OverflowError, ValueError):
            return number

    return shown


def _read_strings(archive: zipfile.ZipFile) -> _Strings:
    strings = _Strings()
    if "xl/sharedStrings.xml" in archive.namelist():
        with archive.open("xl/sharedStrings.xml") as stream:
            for _ in _walk(stream, strings):
                pass
    return strings


def _rows(
    archive: zipfile.ZipFile, part: str, cells: _Cells
) -> Generator[tuple[int, list[object]], None, None]:
    with archive, archive.open(part) as stream:
        for _ in _walk(stream, cells):
            yield from cells.rows
            cells.rows.clear()


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
        if length > _CELL_LIMIT:
            raise ImportRefused(f"a cell is longer than {_CELL_LIMIT // 1024**2} MiB")
        pieces.append(text)

    def declaration(*_: object) -> None:
        raise ImportRefused("the workbook declares a document type, which no workbook needs")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = declaration
    while block := stream.read(_BLOCK):
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


class _Cells:
    """The cells of a sheet as they pass by, collected into rows."""

    def __init__(self, strings: _Strings, shown: _Shown) -> None:
        self.rows: list[tuple[int, list[object]]] = []
        self._strings = strings
        self._shown = shown
        self._line = self._column = 0
        self._values: list[object] = []
        self._kind = self._style = self._text = ""
        self._is_formula = self._has_value = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "c":
            at = attributes.get("r", "")
            self._column = _column_number(at) if at else self._column + 1
            self._kind = attributes.get("t", "n")
            self._style = attributes.get("s", "0")
            self._text = ""
            self._is_formula = self._has_value = False
            if not 0 < self._column <= _LAST_COLUMN:
                raise ImportRefused(f"the workbook is damaged: there is no cell {at!r}")
        elif tag == "row":
            self._line = int(attributes.get("r", self._line + 1))
            self._column = 0
            self._values = []
            if not 0 < self._line <= _LAST_ROW:
                raise ImportRefused(f"the workbook is damaged: there is no row {self._line}")

    def end(self, tag: str, text: str) -> None:
        if tag in {"v", "t"}:
            self._text += text
            self._has_value = True
        elif tag == "f":
            self._is_formula = True
        elif tag == "c" and (self._text or self._is_formula):
            self._values.extend([""] * (self._column - len(self._values)))
            self._values[self._column - 1] = self._value() if self._text else self._no_value()
        elif tag == "row":
            self.rows.append((self._line, self._values))

    def _no_value(self) -> object:
        """What a formula without a value shows: an empty text, if that is what it came to."""
        return "" if self._kind == "str" and self._has_value else UNCALCULATED

    def _value(self) -> object:
        text = self._text
        match self._kind:
            case "s":
                return _unescaped(self._strings[int(text)])
            case "n" if text.isdigit() and self._style == "0":
                return text
            case "n":
                return self._shown(self._style, float(text))
            case "b":
                return text == "1"
            case _:
                return _unescaped(text)


def _column_number(reference: str) -> int:
    number = 0
    for letter in reference.rstrip("0123456789"):
        number = number * 26 + ord(letter) - 64
    return number


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text) if "_x" in text else text
