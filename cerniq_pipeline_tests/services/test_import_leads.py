"""Files of every kind into a real database: each lead once, all or nothing, and resumable."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from cerniq_pipeline.domain.contacts import basis_on
from cerniq_pipeline.domain.leads import LawfulBasis
from cerniq_pipeline.errors import ImportRefused, NotFound
from cerniq_pipeline.services import lead_files
from cerniq_pipeline.services.import_leads import (
    CHUNK,
    ImportOptions,
    ImportSummary,
    import_leads,
    inert,
)
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.store import imports
from cerniq_pipeline_tests.builders import SECRET
from cerniq_pipeline_tests.services.sample_files import (
    HEADER,
    REFUSED,
    TYPED,
    a_parquet,
    a_workbook,
    write,
)

NOW = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
CONSENT = basis_on(LawfulBasis.CONSENT, "form", date(2025, 1, 1))
CUI_A, CUI_B = "18547290", "1590082"


@pytest.fixture
def acme(database: Engine) -> Engine:
    """A database with a tenant."""
    a_tenant(database, "acme")
    return database


def bring(
    engine: Engine, path: Path, *, tenant_id: str = "acme", now: datetime = NOW, **options: Any
) -> ImportSummary:
    return import_leads(
        engine,
        path,
        tenant_id=tenant_id,
        options=ImportOptions(**options),
        secret=SECRET,
        now=now,
        progress=lambda done, total: None,
    )


def a_tenant(engine: Engine, name: str) -> str:
    ask(engine, "INSERT INTO tenants (id, name) VALUES (:t, :t)", t=name)
    return name


def ask(engine: Engine, sql: str, **values: object) -> list[tuple[Any, ...]]:
    with engine.begin() as conn:
        found = conn.execute(text(sql), values)
        return [tuple(row) for row in found] if found.returns_rows else []


def leads(engine: Engine, tenant_id: str = "acme") -> list[tuple[Any, ...]]:
    """Name, CUI, number and address of every lead, in the order of names."""
    return ask(
        engine,
        "SELECT denumire, cui, telefon_principal, email_principal FROM gold_companies"
        " WHERE tenant_id = :t ORDER BY denumire, telefon_principal",
        t=tenant_id,
    )


def traces(engine: Engine) -> list[tuple[Any, ...]]:
    """Everything an import could have left behind."""
    return ask(
        engine,
        "SELECT (SELECT count(*) FROM imports), (SELECT count(*) FROM import_rows),"
        " (SELECT count(*) FROM gold_companies)",
    )


def problems(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.reader(stream))[1:]


# ── Reading ───────────────────────────────────────────────────────────────────────────────────


def test_one_broken_byte_in_utf_8_costs_one_row(acme: Engine, tmp_path: Path):
    path = tmp_path / "leads.csv"
    good = "".join(f"Țesături {n};;072123456{n};\n" for n in range(5))
    path.write_bytes(f"{HEADER}\n{good}".encode() + b"Br\xe3ila;;0721234569;\n")
    summary = bring(acme, path)
    assert (summary.good, summary.bad) == (5, 1)
    assert leads(acme)[0][0] == "Țesături 0"


def test_the_summary_says_how_it_read_the_columns_and_who_has_no_basis(
    acme: Engine, tmp_path: Path
):
    path = tmp_path / "leads.csv"
    path.write_text(
        "Firma;Mobil;Temei legal;Sursa temei;Data temei;Culoare\n"
        "Unu;0721234561;consimțământ;formular;2025-01-01;roșu\nDoi;0721234562;;;;verde\n",
        encoding="utf-8",
    )
    summary = bring(acme, path, dry_run=True)
    assert (summary.new, summary.without_basis) == (2, 1)
    assert summary.columns["Firma"] == "company"
    assert summary.columns["Mobil"] == "telephone"
    assert summary.kept_columns == ("Culoare",)
    assert bring(acme, path, basis=CONSENT).without_basis == 0


@pytest.mark.parametrize(("name", "make"), [("x.xlsx", a_workbook), ("x.parquet", a_parquet)])
def test_typed_cells_read_as_they_were_meant(
    acme: Engine, tmp_path: Path, name: str, make: Callable[..., Path]
):
    summary = bring(acme, make(tmp_path / name, TYPED))
    assert (summary.rows, summary.new, summary.errors_file) == (2, 2, None)
    assert [lead[2] for lead in leads(acme)] == ["+40722234567", "+40721234567"]
    assert ask(
        acme,
        "SELECT custom, lawful_basis, lawful_basis_at FROM gold_companies c"
        " JOIN gold_lead_journey j ON j.lead_id = c.id ORDER BY denumire",
    ) == [
        ({}, None, None),
        (
            {"Angajați": "12", "Activ": "true", "Scor": "0.5"},
            "consent",
            datetime(2025, 3, 1, tzinfo=UTC),
        ),
    ]


def test_a_workbook_has_sheets_and_each_is_an_import_of_its_own(acme: Engine, tmp_path: Path):
    from openpyxl import Workbook

    book = Workbook()
    for name, phone in (("Unu", "0721234567"), ("Doi", "0722234567")):
        sheet = book.create_sheet(name)
        sheet.append(["Firma", None, "Telefon"])
        sheet.append([f"{name} _x0041_ SRL", None, phone])
    book.remove(book.worksheets[0])
    book.save(tmp_path / "x.xlsx")
    assert bring(acme, tmp_path / "x.xlsx").new == 1
    assert bring(acme, tmp_path / "x.xlsx", sheet="doi").new == 1
    assert bring(acme, tmp_path / "x.xlsx", sheet="Unu").already_imported
    assert [lead[0] for lead in leads(acme)] == ["Doi A SRL", "Unu A SRL"]
    with pytest.raises(ImportRefused, match="there are: Unu, Doi"):
        bring(acme, tmp_path / "x.xlsx", sheet="Trei")


# ── Files that are refused ────────────────────────────────────────────────────────────────────


def test_a_bad_file_gets_a_clear_message_and_changes_nothing(acme: Engine, tmp_path: Path):
    for n, (name, (make, message)) in enumerate(REFUSED.items()):
        folder = tmp_path / str(n)
        folder.mkdir()
        path = make(folder)
        before = set(folder.iterdir())
        with pytest.raises(ImportRefused) as refusal:
            bring(acme, path, errors=folder / "errors.csv")
        assert str(refusal.value).startswith(str(path)), name
        assert message in str(refusal.value), name
        assert set(folder.iterdir()) == before, name
    assert traces(acme) == [(0, 0, 0)]


def test_what_was_staged_of_a_file_that_turns_out_bad_is_taken_back(acme: Engine, tmp_path: Path):
    rows = [f"Firma {n};;07{21000000 + n};" for n in range(CHUNK + 10)]
    path = write(tmp_path / "leads.csv", *rows, '"half;;0722')
    with pytest.raises(ImportRefused, match=f"line {CHUNK + 12}: a quote"):
        bring(acme, path)
    assert traces(acme) == [(0, 0, 0)]


def test_too_many_rows_are_refused(acme: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lead_files, "ROW_LIMIT", 2)
    path = write(tmp_path / "leads.csv", *(f"F{n};;072123456{n};" for n in range(3)))
    with pytest.raises(ImportRefused, match="more than 2 rows"):
        bring(acme, path)
    assert traces(acme) == [(0, 0, 0)]


def test_a_file_that_grows_while_it_is_read_is_refused(acme: Engine, tmp_path: Path):
    path = write(tmp_path / "leads.csv", *(f"F{n};;07{21000000 + n};" for n in range(1000)))

    def upload_goes_on(done: int, total: int | None) -> None:
        with path.open("a") as stream:
            stream.write("Late;;0722234567;\n")

    with pytest.raises(ImportRefused, match="changed"):
        import_leads(
            acme,
            path,
            tenant_id="acme",
            options=ImportOptions(),
            secret=SECRET,
            now=NOW,
            progress=upload_goes_on,
        )
    assert traces(acme) == [(0, 0, 0)]


def test_an_unknown_tenant_is_named(acme: Engine, tmp_path: Path):
    with pytest.raises(NotFound, match="acme"):
        bring(acme, write(tmp_path / "leads.csv", "A;;0721234567;"), tenant_id="other")


# ── The error file ────────────────────────────────────────────────────────────────────────────


def test_every_problem_is_listed_with_its_line_and_cannot_run_in_a_spreadsheet(
    acme: Engine, tmp_path: Path
):
    path = write(
        tmp_path / "leads.csv",
        "A;;0721234567;",
        ';;"=HYPERLINK(""http://x"")";',
        "B;;12;@SUM(1)",
        '"C\nSRL";18547291;0722234567;',
        f'"{"x" * 10_000_000}";;0723234567;',
        "D;;0724234567;;extra",
    )
    with path.open("a") as stream:
        stream.write("E;;0725234567")
    summary = bring(acme, path)
    assert (summary.rows, summary.good, summary.bad, summary.noted) == (7, 2, 5, 1)
    errors = tmp_path / "leads.errors.csv"
    assert summary.errors_file == errors
    assert errors.stat().st_mode & 0o777 == 0o600
    listed = problems(errors)
    assert [(row[0], row[1], row[2][:10], row[4]) for row in listed] == [
        ("3", "Telefon", "'=HYPERLIN", "kept without it"),
        ("3", "Denumire", "", "row refused"),
        ("3", "Telefon", "", "row refused"),
        ("4", "Telefon", "12", "kept without it"),
        ("4", "Email", "'@SUM(1)", "kept without it"),
        ("4", "Telefon", "", "row refused"),
        ("5", "CUI", "18547291", "kept without it"),
        ("7", "Denumire", "xxxxxxxxxx", "row refused"),
        ("8", "", "", "row refused"),
        ("9", "", "", "row refused"),
    ]
    assert max(len(row[2]) for row in listed) < 210
    assert [lead[0] for lead in leads(acme)] == ["A", "C SRL"]


def test_formulas_whose_values_were_never_calculated_are_listed_with_their_lines(
    acme: Engine, tmp_path: Path
):
    path = a_workbook(
        tmp_path / "leads.xlsx",
        [
            ["Denumire", "CUI", "Telefon", "Email"],
            ["A", None, "0721234567", '=CONCATENATE("a","@x.ro")'],
            ["=B1", None, "=C1", "=D1"],
        ],
    )
    summary = bring(acme, path)
    assert (summary.rows, summary.good, summary.bad, summary.noted) == (2, 1, 1, 1)
    listed = problems(tmp_path / "leads.errors.csv")
    never = [(row[0], row[1], row[4]) for row in listed if "calculated" in row[3]]
    assert never == [
        ("2", "Email", "kept without it"),
        ("3", "Denumire", "kept without it"),
        ("3", "Telefon", "kept without it"),
        ("3", "Email", "kept without it"),
    ]
    assert [row[4] for row in listed if row not in listed[:4]] == ["row refused"] * 2


def test_a_landline_is_kept_and_said_to_be_one(acme: Engine, tmp_path: Path):
    path = write(tmp_path / "leads.csv", "A;;0213456789;", "B;;0213456780 / 0721234567;")
    summary = bring(acme, path)
    assert (summary.good, summary.noted, summary.landlines) == (2, 0, 1)
    ((line, column, value, reason, outcome),) = problems(tmp_path / "leads.errors.csv")
    assert (line, column, value, outcome) == ("2", "Telefon", "'+40213456789", "kept")
    assert "WhatsApp" in reason
    assert ask(acme, "SELECT telefon_principal FROM gold_companies ORDER BY denumire") == [
        ("+40213456789",),
        ("+40721234567",),
    ]


def test_a_name_that_begins_like_a_formula_is_kept_and_listed_so_that_it_cannot_run(
    acme: Engine, tmp_path: Path
):
    path = write(
        tmp_path / "leads.csv",
        '"=HYPERLINK(""http://x"")";;0721234567;',
        '"=""Firma SRL""";;0721234568;',
        "'=Alfa;;0721234569;",
    )
    summary = bring(acme, path)
    assert (summary.good, summary.noted) == (3, 0)
    names = ask(acme, "SELECT denumire FROM gold_companies ORDER BY telefon_principal")
    assert names == [('=HYPERLINK("http://x")',), ("Firma SRL",), ("=Alfa",)]
    listed = problems(tmp_path / "leads.errors.csv")
    assert [(row[0], row[2], row[4]) for row in listed] == [
        ("2", '\'=HYPERLINK("http://x")', "kept"),
        ("4", "'=Alfa", "kept"),
    ]


@pytest.mark.parametrize(
    "cell",
    ["=1+1", "+40721", "-1", "@x", "\t=1", "\r=1", "\n=1", "\0=1", "\0x", " =1", "\u00a0@x", "＝1"],
)
def test_no_cell_begins_like_a_formula(cell: str):
    assert inert(cell).startswith("'")


def test_only_an_error_file_of_ours_is_written_over(acme: Engine, tmp_path: Path):
    path = write(tmp_path / "leads.csv", "A;;12;")
    precious = tmp_path / "leads.errors.csv"
    precious.write_text("mine")
    with pytest.raises(ImportRefused, match="--errors"):
        bring(acme, path)
    assert precious.read_text() == "mine"
    assert traces(acme) == [(0, 0, 0)]
    precious.unlink()
    assert bring(acme, path).errors_file == precious
    path.write_text(path.read_text().replace("12", "0721234567"))
    assert bring(acme, path).errors_file is None
    assert not precious.exists()


# ── Merging ───────────────────────────────────────────────────────────────────────────────────

MERGES = {
    "the same CUI": ([f"A;{CUI_A};0721000001;", f"B;RO{CUI_A};0721000002;"], 1),
    "different CUIs with one number": ([f"A;{CUI_A};0721000001;", f"B;{CUI_B};0721000001;"], 2),
    "one number, CUI on one side": ([f"A;{CUI_A};0721000001;", "B;;+40 721 000 001;"], 1),
    "the CUI comes later": (["B;;+40 721 000 001;", f"A;{CUI_A};0721000001;"], 1),
    "one address, CUI on one side": ([f"A;{CUI_A};;x@y.ro", "B;;;X@Y.ro"], 1),
    "one number, no CUI": (["A;;0721000001;", "B;;0721000001;"], 1),
    "one address, no CUI": (["A;;0721000001;x@y.ro", "B;;0721000002;x@y.ro"], 1),
    "linked by a third row": (["A;;0721000001;", "B;;;x@y.ro", "C;;0721000001;x@y.ro"], 1),
    "nothing in common": (["A;;0721000001;", "A;;0721000002;"], 2),
    "a stranger between two CUIs joins one": (
        [f"A;{CUI_A};0721000001;", "B;;0721000001;", f"C;{CUI_B};0721000001;"],
        2,
    ),
}


def test_the_same_lead_is_there_once_in_one_file(acme: Engine, tmp_path: Path):
    for name, (rows, expected) in MERGES.items():
        tenant = a_tenant(acme, name)
        summary = bring(acme, write(tmp_path / "leads.csv", *rows), tenant_id=tenant)
        assert (summary.new, summary.merged) == (expected, len(rows) - expected), name


def test_the_same_lead_is_there_once_when_it_comes_in_several_files(acme: Engine, tmp_path: Path):
    for name, (rows, expected) in MERGES.items():
        tenant = a_tenant(acme, name)
        for row in rows:
            bring(acme, write(tmp_path / "leads.csv", row), tenant_id=tenant)
        # Known leads are never joined to each other: a late link finds two and fills one.
        late_link = name == "linked by a third row"
        assert len(leads(acme, tenant)) == (2 if late_link else expected), name


def test_the_first_value_wins_and_empty_ones_are_filled(acme: Engine, tmp_path: Path):
    header = f"{HEADER};Judet;Nota;Alta"
    bring(acme, write(tmp_path / "1.csv", f"Vechi;{CUI_A};0721000001;;;a;", header=header))
    summary = bring(
        acme,
        write(
            tmp_path / "2.csv",
            f"Nou;{CUI_A};0721000002;x@y.ro;;b;c",
            f"Altul;{CUI_A};;z@y.ro;Cluj;;d",
            header=header,
        ),
    )
    assert (summary.new, summary.merged) == (0, 2)
    assert leads(acme) == [("Vechi", CUI_A, "+40721000001", "x@y.ro")]
    assert ask(acme, "SELECT judet, custom FROM gold_companies") == [
        ("Cluj", {"Nota": "a", "Alta": "c"})
    ]


def test_two_companies_never_take_over_the_same_lead(acme: Engine, tmp_path: Path):
    bring(acme, write(tmp_path / "1.csv", "Fără CUI;;0721000001;"))
    rows = f"B;{CUI_B};0721000001;", f"A;{CUI_A};0721000001;"
    assert bring(acme, write(tmp_path / "2.csv", *rows)).new == 1
    assert [lead[:2] for lead in leads(acme)] == [("A", CUI_A), ("Fără CUI", CUI_B)]


def test_another_tenants_leads_are_not_seen(acme: Engine, tmp_path: Path):
    path = write(tmp_path / "leads.csv", f"A;{CUI_A};0721000001;x@y.ro")
    assert bring(acme, path, tenant_id=a_tenant(acme, "other")).new == 1
    assert bring(acme, path).new == 1


def test_a_long_chain_of_shared_numbers_and_addresses_is_one_lead(acme: Engine, tmp_path: Path):
    chain = [f"F{n};;07{21000000 + n // 2};a{(n + 1) // 2}@y.ro" for n in range(400)]
    random.Random(7).shuffle(chain)
    assert bring(acme, write(tmp_path / "leads.csv", *chain)).new == 1


def _groups(rows: Sequence[tuple[int, int]]) -> int:
    """How many leads rows of (number, address) are, found the slow and obvious way."""
    groups: list[set[str]] = []
    for number, address in rows:
        keys = {f"n{number}"} | ({f"a{address}"} if address else set())
        touching = [group for group in groups if group & keys]
        groups = [group for group in groups if not group & keys]
        groups.append(keys.union(*touching))
    return len(groups)


def test_random_rows_without_a_cui_make_the_leads_that_an_obvious_loop_makes(
    acme: Engine, tmp_path: Path
):
    for seed in range(12):
        luck = random.Random(seed)
        rows = [(luck.randrange(30), luck.randrange(25)) for _ in range(luck.randrange(5, 40))]
        lines = [f"F;;07210000{n:02d};{f'a{a}@y.ro' if a else ''}" for n, a in rows]
        tenant = a_tenant(acme, f"t{seed}")
        path = write(tmp_path / "leads.csv", *lines)
        assert bring(acme, path, tenant_id=tenant).new == _groups(rows), seed
        again = write(tmp_path / "again.csv", *lines, "")
        assert bring(acme, again, tenant_id=tenant, basis=CONSENT).new == 0, seed


def test_a_known_lead_keeps_its_journey(acme: Engine, tmp_path: Path):
    bring(acme, write(tmp_path / "1.csv", f"A;{CUI_A};0721000001;"), basis=CONSENT)
    ask(
        acme,
        "UPDATE gold_lead_journey SET engagement_stage = 'CONTACTED_WA', sequence_step = 2,"
        " whatsapp_opted_out = true, next_action_at = NULL, hold_reason = 'opted_out'",
    )
    journey = "SELECT to_jsonb(j) - 'updated_at' FROM gold_lead_journey j"
    before = ask(acme, journey)
    other = basis_on(LawfulBasis.EXISTING_CUSTOMER, "contract", date(2026, 1, 1))
    again = f"A;{CUI_A};0721000002;x@y.ro;HIGH"
    path = write(tmp_path / "2.csv", again, header=f"{HEADER};Prioritate")
    bring(acme, path, basis=other)
    assert ask(acme, journey) == before
    assert leads(acme)[0][3] == "x@y.ro"


LATER = NOW + timedelta(days=1)


def test_a_lead_that_was_passed_over_is_looked_at_again_when_it_gained_something(
    acme: Engine, tmp_path: Path
):
    held = NOW + timedelta(days=30)
    cases: list[tuple[str, dict[str, Any], datetime]] = [
        ("A;;0721000001;x@y.ro", {}, LATER),
        ("A;;0721000001;", {"basis": CONSENT}, LATER),
        ("A;;0721000001;", {}, held),
    ]
    for n, (second, options, expected) in enumerate(cases):
        tenant = a_tenant(acme, str(n))
        bring(acme, write(tmp_path / "1.csv", "A;;0721000001;"), tenant_id=tenant)
        ask(
            acme,
            "UPDATE gold_lead_journey SET hold_reason = 'no_lawful_basis', next_action_at = :held"
            " WHERE tenant_id = :t",
            held=held,
            t=tenant,
        )
        path = write(tmp_path / "2.csv", second, "")
        bring(acme, path, tenant_id=tenant, now=LATER, **options)
        found = ask(
            acme,
            "SELECT next_action_at, lawful_basis FROM gold_lead_journey WHERE tenant_id = :t",
            t=tenant,
        )
        assert found == [(expected, "consent" if options else None)], second


def test_a_new_lead_begins_with_its_priority_and_basis(acme: Engine, tmp_path: Path):
    path = write(
        tmp_path / "leads.csv",
        "A;;0721000001;;mare",
        "B;;0721000002;;",
        header=f"{HEADER};Prioritate",
    )
    bring(acme, path, basis=CONSENT)
    assert ask(
        acme,
        "SELECT priority, lawful_basis, lawful_basis_source, next_action_at, engagement_stage"
        " FROM gold_lead_journey ORDER BY priority",
    ) == [("HIGH", "consent", "form", NOW, "COLD"), ("NORMAL", "consent", "form", NOW, "COLD")]


# ── Again, interrupted, at once ───────────────────────────────────────────────────────────────


def test_a_finished_file_is_not_imported_twice(acme: Engine, tmp_path: Path):
    path = write(tmp_path / "leads.csv", "A;;0721000001;", "B;;12;")
    assert bring(acme, path).new == 1
    before = ask(acme, "SELECT * FROM imports")
    again = bring(acme, path)
    assert again.already_imported
    assert (again.rows, again.bad, again.new, again.merged) == (2, 1, 0, 0)
    assert ask(acme, "SELECT * FROM imports") == before
    vouched = bring(acme, path, basis=CONSENT)
    assert not vouched.already_imported
    assert ask(acme, "SELECT lawful_basis FROM gold_lead_journey") == [("consent",)]


def test_a_dry_run_tells_the_truth_and_changes_nothing(acme: Engine, tmp_path: Path):
    bring(acme, write(tmp_path / "1.csv", f"A;{CUI_A};0721000001;"))
    before = traces(acme)
    path = write(tmp_path / "2.csv", f"A;{CUI_A};;x@y.ro", "B;;0721000002;", "C;;12;")
    summary = bring(acme, path, dry_run=True)
    assert (summary.rows, summary.bad, summary.new, summary.merged) == (3, 1, 1, 1)
    assert summary.errors_file is not None
    assert traces(acme) == before
    assert leads(acme)[0][3] is None
    assert bring(acme, path).new == 1


KILLED = """
import os, signal, sys
from datetime import datetime
from pathlib import Path
from sqlalchemy import create_engine
from cerniq_pipeline.services.import_leads import ImportOptions, import_leads

def die(done, total):
    if done >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

import_leads(create_engine(sys.argv[1]), Path(sys.argv[2]), tenant_id="acme",
             options=ImportOptions(), secret=b"a secret of the tests",
             now=datetime.fromisoformat(sys.argv[4]), progress=die)
"""


def test_a_killed_import_continues_after_the_last_chunk(
    acme: Engine, database_url: str, tmp_path: Path
):
    rows = [
        f"F{n};;{'12' if n % 1000 == 7 else f'07{21000000 + n}'};" for n in range(2 * CHUNK + 500)
    ]
    path = write(tmp_path / "leads.csv", *rows)
    command = [sys.executable, "-c", KILLED, database_url, str(path), "7000", NOW.isoformat()]
    killed = subprocess.run(command, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert ask(acme, "SELECT state, rows_read FROM imports") == [("reading", CHUNK)]
    assert leads(acme) == []
    rehearsed = bring(acme, path, dry_run=True)
    assert (rehearsed.rows, rehearsed.bad, rehearsed.new) == (len(rows), 11, len(rows) - 11)
    summary = bring(acme, path)
    assert summary.resumed_after == CHUNK
    assert (summary.rows, summary.bad, summary.new) == (len(rows), 11, len(rows) - 11)
    assert len(leads(acme)) == len(rows) - 11
    assert summary.errors_file is not None
    refused = [row[0] for row in problems(summary.errors_file) if row[4] == "row refused"]
    assert refused == [str(n * 1000 + 9) for n in range(11)]
    assert sorted(os.listdir(tmp_path)) == ["leads.csv", "leads.errors.csv"]
    assert ask(acme, "SELECT count(*) FROM import_rows") == [(0,)]


def test_a_merge_that_fails_leaves_no_lead_and_can_be_run_again(acme: Engine, tmp_path: Path):
    path = write(tmp_path / "leads.csv", "A;;0721000001;", "B;;0721000002;")
    ask(acme, "ALTER TABLE gold_companies ADD CONSTRAINT no_b CHECK (denumire <> 'B')")
    with pytest.raises(Exception, match="no_b"):
        bring(acme, path)
    assert leads(acme) == []
    ask(acme, "ALTER TABLE gold_companies DROP CONSTRAINT no_b")
    assert bring(acme, path).new == 2


def test_the_same_file_at_once_is_imported_once(acme: Engine, tmp_path: Path):
    rows = [f"F{n};;07{21000000 + n};" for n in range(300)]
    path = write(tmp_path / "leads.csv", *rows, "Bad;;12;")

    def run(_: int) -> ImportSummary | ImportRefused:
        try:
            return bring(acme, path)
        except ImportRefused as refusal:
            return refusal

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, range(4)))
    assert sum(isinstance(r, ImportSummary) and r.new == 300 for r in results) == 1, results
    assert len(leads(acme)) == 300
    assert traces(acme) == [(1, 0, 300)]


def test_files_that_share_companies_can_be_imported_at_once(acme: Engine, tmp_path: Path):
    paths = [
        write(tmp_path / f"{n}.csv", *(f"F{m};;07{21000000 + m};" for m in range(n, n + 200)))
        for n in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        new = sum(summary.new for summary in pool.map(lambda path: bring(acme, path), paths))
    assert new == len(leads(acme)) == 203


def test_a_company_written_meanwhile_is_merged_and_not_a_crash(
    acme: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = imports.merge
    insert = "INSERT INTO gold_companies (tenant_id, denumire, cui) VALUES ('acme', 'Rival', :cui)"
    attempts: list[int] = []

    def merge_too_late(conn: Connection, *args: Any, **kwargs: Any) -> object:
        attempts.append(1)
        if len(attempts) == 1:
            # As if the rival had committed between our look at the table and our insert.
            ask(acme, insert, cui=CUI_A)
            conn.execute(text(insert), {"cui": CUI_A})
        return real(conn, *args, **kwargs)

    monkeypatch.setattr(imports, "merge", merge_too_late)
    summary = bring(acme, write(tmp_path / "leads.csv", f"A;{CUI_A};0721000001;"))
    assert len(attempts) == 2
    assert (summary.new, summary.merged) == (0, 1)
    assert leads(acme) == [("Rival", CUI_A, "+40721000001", None)]


# ── The command ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def cerniq(
    acme: Engine, database_url: str, tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command in a folder of its own."""
    environment = os.environ | {
        "CERNIQ_DATABASE_URL": database_url,
        "CERNIQ_REDIS_URL": "redis://127.0.0.1:1/2",
        "CERNIQ_SECRET_KEY": "a secret of the tests",
    }

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        start = "from cerniq_pipeline.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", start, "import", *map(str, arguments)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


def test_the_command_prints_json_only_and_refuses_with_status_2(
    cerniq: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
):
    path = write(tmp_path / "leads.csv", "A;;0721000001;", "B;;12;")
    basis = ["--basis", "consent", "--basis-source", "form", "--basis-date", "2025-01-01"]
    done = cerniq(path, "--tenant", "acme", "--json", *basis)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert list(printed) == [
        "rows",
        "good",
        "bad",
        "new",
        "merged",
        "suppressed",
        "without_basis",
        "columns",
        "kept_columns",
        "errors_file",
        "seconds",
    ]
    assert [printed[key] for key in ("rows", "good", "bad", "new", "merged")] == [2, 1, 1, 1, 0]
    refused = cerniq(tmp_path / "none.csv", "--tenant", "acme")
    assert refused.returncode == 2
    assert "No such file" in " ".join(refused.stderr.split())
    assert refused.stdout == ""


# ── Who asked to stop ─────────────────────────────────────────────────────────────────────────


def stop(engine: Engine, name: str, tenant_id: str = "acme") -> None:
    ((lead_id,),) = ask(
        engine,
        "SELECT id FROM gold_companies WHERE denumire = :n AND tenant_id = :t",
        n=name,
        t=tenant_id,
    )
    opt_out(
        engine.begin, tenant_id=tenant_id, lead_id=lead_id, secret=SECRET, reason="STOP", now=NOW
    )


def stopped(engine: Engine, tenant_id: str = "acme") -> list[str]:
    """The companies whose lead is out on every channel, and that nothing looks at again."""
    found = ask(
        engine,
        """
        SELECT denumire FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
        WHERE whatsapp_opted_out AND email_opted_out AND opted_out_at IS NOT NULL
          AND next_action_at IS NULL AND hold_reason = 'opted_out' AND j.tenant_id = :t
        ORDER BY 1
        """,
        t=tenant_id,
    )
    return [row[0] for row in found]


def forget(engine: Engine) -> None:
    """All leads are gone; what is left of them are hashes."""
    ask(engine, "DELETE FROM gold_companies")


@pytest.mark.parametrize(
    "row",
    [
        f"Nou;{CUI_B};0721 234 567;",  # the number
        "Nou;;+40 721.234.567;",
        "Nou;;0040721234567;nou@firma.ro",
        "Nou;;0722000000;ANA@Firma.ro",  # the address
        f"Nou;RO {CUI_A};0722000000;nou@firma.ro",  # the company
        f"Nou;RO{CUI_A};;nou@firma.ro",
    ],
)
def test_a_lead_that_asked_to_stop_and_was_erased_comes_back_opted_out(
    acme: Engine, tmp_path: Path, row: str
):
    bring(acme, write(tmp_path / "old.csv", f"Vechi;{CUI_A};0721234567;ana@firma.ro"))
    stop(acme, "Vechi")
    forget(acme)
    summary = bring(acme, write(tmp_path / "new.csv", row, "Altul;;0733000000;"), basis=CONSENT)
    assert (summary.new, summary.suppressed) == (2, 1)
    assert stopped(acme) == ["Nou"]


def test_a_known_lead_that_gains_a_suppressed_number_is_opted_out_and_its_messages_go(
    acme: Engine, tmp_path: Path
):
    bring(acme, write(tmp_path / "old.csv", "Vechi;;0721234567;"))
    stop(acme, "Vechi")
    forget(acme)
    bring(acme, write(tmp_path / "known.csv", f"Cunoscut;{CUI_A};;office@firma.ro"))
    assert stopped(acme) == []
    ask(
        acme,
        """
        INSERT INTO outbox_messages
          (tenant_id, channel, kind, lead_id, recipient, due_at, planned_by)
        SELECT 'acme', 'EMAIL', 'initial', id, email_principal, :now, 'test' FROM gold_companies
        """,
        now=NOW,
    )
    summary = bring(acme, write(tmp_path / "again.csv", f"Cunoscut;{CUI_A};0721234567;"))
    assert (summary.new, summary.merged, summary.suppressed) == (0, 1, 1)
    assert stopped(acme) == ["Cunoscut"]
    assert ask(acme, "SELECT state, reason FROM outbox_messages") == [
        ("cancelled", "asked to stop before")
    ]


def test_a_stop_counts_for_its_own_tenant_only(acme: Engine, tmp_path: Path):
    a_tenant(acme, "beta")
    row = f"Firma;{CUI_A};0721234567;ana@firma.ro"
    bring(acme, write(tmp_path / "a.csv", row))
    stop(acme, "Firma")
    assert bring(acme, write(tmp_path / "b.csv", row), tenant_id="beta").suppressed == 0
    assert stopped(acme, "beta") == []


def test_who_is_opted_out_already_is_not_counted_again(acme: Engine, tmp_path: Path):
    bring(acme, write(tmp_path / "a.csv", f"Firma;{CUI_A};0721234567;"))
    stop(acme, "Firma")
    again = bring(acme, write(tmp_path / "b.csv", f"Firma;{CUI_A};0721234567;x@y.ro"))
    assert (again.merged, again.suppressed) == (1, 0)
    assert stopped(acme) == ["Firma"]


def test_trying_an_import_out_says_who_asked_to_stop_and_changes_nothing(
    acme: Engine, tmp_path: Path
):
    bring(acme, write(tmp_path / "a.csv", "Firma;;0721234567;"))
    stop(acme, "Firma")
    forget(acme)
    tried = bring(acme, write(tmp_path / "b.csv", "Firma;;0721234567;x@y.ro"), dry_run=True)
    assert tried.suppressed == 1
    assert leads(acme) == []


def test_more_suppressed_leads_than_are_marked_at_a_time(
    acme: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(imports, "AT_ONCE", 7)
    rows = [f"F{n:02d};;07{21000000 + n};" for n in range(20)]
    bring(acme, write(tmp_path / "a.csv", *rows))
    for n in range(20):
        stop(acme, f"F{n:02d}")
    forget(acme)
    assert bring(acme, write(tmp_path / "b.csv", *rows, "Altul;;0733000000;")).suppressed == 20
    assert len(stopped(acme)) == 20
