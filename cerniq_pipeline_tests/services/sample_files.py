"""Files of leads as people send them: good ones, and ones that must be refused."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

HEADER = "Denumire;CUI;Telefon;Email"


def write(path: Path, *lines: str, header: str = HEADER) -> Path:
    """Write a CSV."""
    path.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    return path


def a_workbook(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    """Write a workbook whose first sheet is hidden and whose second holds the rows."""
    from openpyxl import Workbook

    book = Workbook()
    book.active.title = "Notițe"  # pyright: ignore[reportOptionalMemberAccess]
    book.active.sheet_state = "hidden"  # pyright: ignore[reportOptionalMemberAccess]
    sheet = book.create_sheet("Clienți")
    for row in rows:
        sheet.append(row)
    book.save(path)
    return path


def a_parquet(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    """Write a Parquet file; the first row names its columns."""
    import pyarrow as pa
    from pyarrow import parquet

    names, *values = rows
    columns = zip(*values, strict=True)
    parquet.write_table(pa.table([pa.array(c) for c in columns], names=list(map(str, names))), path)
    return path


TYPED = [
    ["Firma", "Telefon", "Temei legal", "Sursa temei", "Data temei", "Angajați", "Activ", "Scor"],
    ["Ștefan & Fiii", 721234567, "consent", "form", date(2025, 3, 1), 12.0, True, 0.5],
    ["Doi SRL", 40722234567, None, None, None, None, None, None],
]


def _truncated(path: Path) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    return path


def _raw(content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "bad.csv").write_bytes(content)
        return folder / "bad.csv"

    return make


def _archive(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "bad.xlsx", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
    return folder / "bad.xlsx"


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)
REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda folder: folder / "none.csv", "No such file"),
    "folder": (lambda folder: folder, "folder"),
    "device": (lambda folder: Path("/dev/zero"), "regular"),
    "empty": (_raw(b""), "empty"),
    "blank": (_raw(b"\n\n  \n"), "found: nothing"),
    "garbage": (_raw(random.Random(1).randbytes(5000)), "neither text"),
    "header only": (_raw(b"Firma,Telefon\n"), "no rows"),
    "no name": (_raw(b"Telefon,Email\n0721234567,a@b.ro\n"), "found: Telefon, Email; expected"),
    "nothing to reach": (_raw(b"Firma,CUI\nA SRL,1590082\n"), "expected: a column"),
    "open quote": (_raw(b'Firma,Telefon\nA,0721234567\n"B,0722234567\nC,0\n'), "line 3: a quote"),
    "endless row": (_raw(b"Firma,Telefon\n" + b"x" * (17 * 1024**2)), "16 MiB"),
    "password": (_raw(OLE + "EncryptedPackage".encode("utf-16-le")), "password"),
    "old excel": (_raw(OLE), "old Excel"),
    "archive": (_archive, "not an XLSX"),
    "half a workbook": (
        lambda folder: _truncated(a_workbook(folder / "x.xlsx", TYPED)),
        "workbook is damaged",
    ),
    "half a parquet": (
        lambda folder: _truncated(a_parquet(folder / "x.parquet", TYPED)),
        "Parquet file is damaged",
    ),
}
