"""One sheet out of a workbook, from XML as spreadsheets write it and as they should not."""

from __future__ import annotations

import zipfile
from datetime import datetime
from pathlib import Path

import pytest

from cerniq_pipeline.errors import ImportRefused
from cerniq_pipeline.services.workbooks import UNCALCULATED, Sheet, open_sheet

MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STYLES = f"""<styleSheet {MAIN}>
  <numFmts><numFmt numFmtId="164" formatCode="dd\\.mm\\.yyyy"/></numFmts>
  <cellXfs><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="2"/></cellXfs>
</styleSheet>"""


def a_sheet(path: Path, rows: str, *, strings: str = "", book: str = "", before: str = "") -> Sheet:
    """Write a workbook around the XML of some rows, and open its only sheet."""
    parts = {
        "xl/workbook.xml": f'<workbook {MAIN} xmlns:r="{RELATIONS}">{book}'
        '<sheets><sheet name="Unu" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<Relationships><Relationship Id="r1"'
        ' Target="/xl/worksheets/sheet1.xml"/></Relationships>',
        "xl/styles.xml": STYLES,
        "xl/sharedStrings.xml": f"<sst {MAIN}>{strings}</sst>",
        "xl/worksheets/sheet1.xml": f"{before}<worksheet {MAIN}>"
        f'<dimension ref="A1:C7"/><sheetData>{rows}</sheetData></worksheet>',
    }
    with zipfile.ZipFile(path / "x.xlsx", "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return open_sheet(path / "x.xlsx", None)


def test_every_kind_of_cell_has_its_value(tmp_path: Path):
    sheet = a_sheet(
        tmp_path,
        '<row r="1"><c t="s"><v>1</v></c><c t="s"><v>0</v></c></row>'
        '<row r="2"><c t="inlineStr"><is><r><t>in</t></r><r><t>line</t></r></is></c>'
        '<c t="str"><f>A1</f><v>a_x0041_</v></c><c t="b"><v>1</v></c><c t="b"><v>0</v></c></row>'
        '<row r="3"><c><v>0721</v></c><c><v>1.5</v></c><c s="2"><v>7</v></c><c><v/></c></row>',
        strings="<si><t>Doi</t></si>"
        "<si><r><t>Unu</t></r><r><t> SRL</t></r><rPh><t>unu</t></rPh></si>",
    )
    assert (sheet.name, sheet.total) == ("Unu", 7)
    assert list(sheet.rows) == [
        (1, ["Unu SRL", "Doi"]),
        (2, ["inline", "aA", True, False]),
        (3, ["0721", 1.5, 7.0]),
    ]


def test_a_formula_without_a_value_is_told_from_one_that_is_empty(tmp_path: Path):
    rows = (
        '<row><c><f>A2</f></c><c><f>A2</f><v/></c><c t="str"><f>A2</f></c></row>'
        '<row><c t="str"><f>A1</f><v></v></c><c><f>A1</f><v>7</v></c><c/></row>'
    )
    assert list(a_sheet(tmp_path, rows).rows) == [
        (1, [UNCALCULATED] * 3),
        (2, ["", "7"]),
    ]


def test_cells_and_rows_stand_where_they_say(tmp_path: Path):
    rows = (
        '<row><c r="C1"><v>1</v></c><c><v>2</v></c></row><row/><row r="9"><c><v>3</v></c></row>'
        '<row><c r="AA10"><v>4</v></c></row>'
    )
    assert list(a_sheet(tmp_path, rows).rows) == [
        (1, ["", "", "1", "2"]),
        (2, []),
        (9, ["3"]),
        (10, [""] * 26 + ["4"]),
    ]


@pytest.mark.parametrize(
    ("book", "day"),
    [
        ("", datetime(2025, 3, 1)),  # noqa: DTZ001 - a spreadsheet knows no time zones
        ('<workbookPr date1904="1"/>', datetime(2029, 3, 2)),  # noqa: DTZ001
    ],
)
def test_a_number_with_the_style_of_a_date_is_a_date(tmp_path: Path, book: str, day: datetime):
    rows = '<row><c s="1"><v>45717</v></c><c s="1"><v>1e9</v></c><c s="2"><v>45717</v></c></row>'
    sheet = a_sheet(tmp_path, rows, book=book)
    assert list(sheet.rows) == [(1, [day, 1e9, 45717.0])]


@pytest.mark.parametrize(
    ("rows", "before", "message"),
    [
        ("<row/>", '<!DOCTYPE x [<!ENTITY a "b">]>', "document type"),
        ('<row r="1048577"/>', "", "no row 1048577"),
        ('<row><c r="XFE1"><v>1</v></c></row>', "", "no cell 'XFE1'"),
        (f"<row><c t='str'><v>{'x' * (17 * 1024**2)}</v></c></row>", "", "16 MiB"),
    ],
    ids=["document type", "row", "column", "long cell"],
)
def test_what_no_spreadsheet_writes_is_refused(
    tmp_path: Path, rows: str, before: str, message: str
):
    with pytest.raises(ImportRefused, match=message):
        list(a_sheet(tmp_path, rows, before=before).rows)


def test_the_wanted_sheet_is_opened_or_the_first_that_is_not_hidden(tmp_path: Path):
    from openpyxl import Workbook

    path = tmp_path / "x.xlsx"
    book = Workbook()
    for name in ("Ascunsă", "Unu", "Doi"):
        book.create_sheet(name).append([name])
    book.remove(book.worksheets[0])
    book["Ascunsă"].sheet_state = "hidden"
    book.active = 1
    book.save(path)
    for wanted, found in ((None, "Unu"), ("doi", "Doi"), ("ASCUNSĂ", "Ascunsă")):
        sheet = open_sheet(path, wanted)
        assert sheet.name == found
        assert list(sheet.rows) == [(1, [found])]
    with pytest.raises(ImportRefused, match="'Trei'; there are: Ascunsă, Unu, Doi"):
        open_sheet(path, "Trei")
