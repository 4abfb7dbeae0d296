"""Files of every encoding and format, read as the person who made them meant them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cerniq_pipeline.errors import ImportRefused
from cerniq_pipeline.services import lead_files
from cerniq_pipeline.services.lead_files import open_lead_file
from cerniq_pipeline_tests.services.sample_files import (
    REFUSED,
    TYPED,
    a_parquet,
    a_workbook,
    write,
)

ROMANIAN = 'Denumire{0}Telefon{0}Județ\r\n"Țesături{0}\r\n""Ștefan"" SRL"{0}0721234567{0}Brăila\r\n'


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("cp1250", "cp1250"),
        ("iso-8859-2", "cp1250"),  # the same bytes for every Romanian letter
        ("iso-8859-16", "cp1250"),
    ],
)
def test_a_csv_is_read_in_any_common_encoding_and_delimiter(
    tmp_path: Path, delimiter: str, encoding: str, said: str
):
    content = ROMANIAN.format(delimiter)
    if encoding in {"cp1250", "iso-8859-2"}:
        content = content.translate(str.maketrans("șȘțȚ", "şŞţŢ"))
    path = tmp_path / "leads.txt"
    path.write_bytes(content.encode(encoding))
    with open_lead_file(path) as file:
        (row,) = file.rows
    assert file.format.endswith(said)
    assert file.layout.header == ("Denumire", "Telefon", "Județ")
    assert row.line == 2
    cedillas = str.maketrans("şŞţŢ", "șȘțȚ")
    assert [cell.translate(cedillas) for cell in row.cells] == [
        f'Țesături{delimiter}\r\n"Ștefan" SRL',
        "0721234567",
        "Brăila",
    ]


def test_western_letters_and_romanian_quotes_find_their_code_page(tmp_path: Path):
    path = tmp_path / "leads.csv"
    for encoding, name in (("cp1252", "Crêperie à la Française"), ("iso-8859-16", "„Brăila” SRL")):
        path.write_bytes(f"Firma,Telefon\n{name},0721234567\n".encode(encoding))
        with open_lead_file(path) as file:
            assert next(file.rows).cells[0] == name


def test_a_long_file_is_recognised_by_its_beginning(tmp_path: Path):
    path = tmp_path / "leads.csv"
    path.write_text("Firma,Telefon\n" + "A SRL,0721234567\n" * 100_000, encoding="utf-8-sig")
    with open_lead_file(path) as file:
        assert file.format == "CSV, comma, utf-8-sig"


def test_a_header_below_a_title_is_found(tmp_path: Path):
    path = tmp_path / "leads.csv"
    path.write_text("sep=;\nLista clienți;;\n;;\nFirma;Telefon;Oraș\nA SRL;0721234567;Iași\n")
    with open_lead_file(path) as file:
        assert [(row.line, row.cells[0]) for row in file.rows] == [(5, "A SRL")]


@pytest.mark.parametrize(("name", "make"), [("x.xlsx", a_workbook), ("x.parquet", a_parquet)])
def test_typed_cells_become_the_texts_a_person_would_type(
    tmp_path: Path, name: str, make: Callable[..., Path]
):
    with open_lead_file(make(tmp_path / name, TYPED)) as file:
        first, second = file.rows
    assert first.cells == [
        "Ștefan & Fiii",
        "721234567",
        "consent",
        "form",
        "2025-03-01",
        "12",
        "true",
        "0.5",
    ]
    assert [cell for cell in second.cells if cell] == ["Doi SRL", "40722234567"]


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "header only"])
def test_a_file_that_cannot_be_used_is_refused_with_its_reason(tmp_path: Path, name: str):
    make, message = REFUSED[name]
    path = make(tmp_path)
    with pytest.raises(ImportRefused) as refusal, open_lead_file(path) as file:
        list(file.rows)
    assert message in str(refusal.value)


def test_only_a_workbook_has_sheets(tmp_path: Path):
    path = write(tmp_path / "leads.csv", "A;;0721234567;")
    with pytest.raises(ImportRefused, match="no workbook"), open_lead_file(path, "Unu"):
        pass


def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [("Firma", "Telefon"), ("A", "0721234567"), ("B", "0722234567")]
    lines = [";".join(row) for row in rows[1:]]
    csv = write(tmp_path / "leads.csv", *lines, header=";".join(rows[0]))
    for path in (csv, a_parquet(tmp_path / "x.parquet", rows), a_workbook(tmp_path / "x", rows)):
        monkeypatch.setattr(lead_files, "ROW_LIMIT", 2)
        with open_lead_file(path) as file:
            assert len(list(file.rows)) == 2
        monkeypatch.setattr(lead_files, "ROW_LIMIT", 1)
        with pytest.raises(ImportRefused, match="more than 1 rows"), open_lead_file(path) as file:
            list(file.rows)
    # A Parquet file says how many there are before they are read.
    with pytest.raises(ImportRefused), open_lead_file(tmp_path / "x.parquet"):
        pass
