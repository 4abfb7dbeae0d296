"""What files say about leads, read as an operator would read it."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerniq_pipeline.domain.contacts import (
    CELL_LIMIT,
    CUSTOM_COLUMNS,
    CUSTOM_LIMIT,
    Basis,
    Contact,
    Field,
    Problem,
    basis_on,
    by_phonenumbers,
    canonical_address,
    canonical_cui,
    clean_text,
    is_landline,
    match_columns,
    normalise_cui,
    normalise_email,
    normalise_phone,
    phone_key,
    plain_romanian,
    read_day,
    read_row,
    same_number,
    why_not_cui,
    why_not_phone,
)
from cerniq_pipeline.domain.leads import LawfulBasis

TODAY = date(2026, 11, 18)
HEADER = ("Denumire", "CUI", "Telefon", "Email", "Temei legal", "Sursa temei", "Data temei")


def a_row(*, vouched: Basis | None = None, **cells: str) -> tuple[Contact | None, list[Problem]]:
    """Read one row under HEADER; a test names only the cells it is about."""
    values = {"Denumire": "Firma SRL", "Telefon": "0721234567"} | {
        name.replace("_", " "): value for name, value in cells.items()
    }
    layout = match_columns(HEADER)
    return read_row([values.get(name, "") for name in HEADER], layout, basis=vouched, today=TODAY)


# ── Telephone numbers ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "spelling",
    [
        "0721234567",
        "0721 234 567",
        "0721.234.567",
        "0721-234-567",
        "(0721) 234567",
        "0721/234567",
        "+40721234567",
        "+40 (0)721 234 567",
        "0040 721 234 567",
        "40721234567",
        "721234567",
        "721234567.0",
        "4.0721234567E+10",
        '="0721234567"',
        "'0721234567",
        "tel. 0721 234 567",
        "Mobil: 0721234567",
        "0721 234 567 int. 12",
        "\u202a+40 721 234 567\u202c",
        "\uff10\uff17\uff12\uff11\uff12\uff13\uff14\uff15\uff16\uff17",
        "021 310 12 34 / 0721 234 567",
        "0213101234; 0721234567",
        "0213101234 sau 0721234567",
    ],
)
def test_every_spelling_of_a_number_is_the_same_number(spelling: str):
    contact, problems = a_row(Telefon=spelling)
    assert contact is not None
    assert contact.telefon_principal == "+40721234567"
    assert problems == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0213101234/35", "+40213101234"),
        ("+36 30 123 4567", "+36301234567"),
        ("0040 21 310 12 34", "+40213101234"),
    ],
)
def test_landlines_and_foreign_numbers_are_read(text: str, number: str):
    assert normalise_phone(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "123",
        "07212345",
        "072123456789",
        "0721ABCDEF",
        "nu are",
        "+40 999 999 999",
        "-",
        "36301234567",
    ],
)
def test_what_is_no_number_is_not_made_into_one(text: str):
    assert normalise_phone(text) is None


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("+40213456789", True),
        ("+40313456789", True),
        ("+40372123456", True),
        ("+40800123456", True),
        ("+33142685300", True),
        ("+40721234567", False),
        ("+33612345678", False),
        ("+12025550123", False),  # a country that does not tell them apart
        ("not a number", False),
    ],
)
def test_a_number_that_is_certainly_no_mobile_is_a_landline(number: str, expected: bool):
    assert is_landline(number) is expected


def test_a_number_that_a_spreadsheet_rounded_is_reported_as_such():
    assert normalise_phone("4.0721E+10") is None
    assert "spreadsheet" in why_not_phone("4.0721E+10")


SEPARATORS = st.text(alphabet=" .-()/", max_size=2)
PREFIXES = st.sampled_from(["", "0", "40", "+40", "0040", "+400", "400", "00400", "+", "00", "000"])
NATIONAL = st.one_of(
    st.from_regex(r"[237][0-9]{8}", fullmatch=True), st.text("0123456789", min_size=5, max_size=11)
)


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """A number as somebody might type it: prefix, digits, and separators anywhere."""
    digits = draw(PREFIXES) + draw(NATIONAL)
    return "".join(draw(SEPARATORS) + digit for digit in digits) + draw(SEPARATORS)


@settings(max_examples=800, deadline=None)
@given(spellings())
def test_the_quick_way_never_differs_from_phonenumbers(text: str):
    quick = plain_romanian(text.strip())
    assert quick is None or quick == by_phonenumbers(text.strip())


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["0", "+40", "0040", "40", "", "+40 (0)"]),
    st.from_regex(r"(7[2-7]|2[13456]|3[13456])[0-9]{7}", fullmatch=True),
    st.sampled_from(["", " ", ".", "-", "/"]),
)
def test_the_quick_way_knows_every_plain_spelling(prefix: str, national: str, between: str):
    text = prefix + between.join([national[:3], national[3:6], national[6:]])
    assert plain_romanian(text) == by_phonenumbers(text) == f"+40{national}"


# ── CUI, email, text, dates ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "cui"),
    [
        ("RO18547290", "18547290"),
        ("ro 18547290", "18547290"),
        ("18547290", "18547290"),
        ("18547290.0", "18547290"),
        ("0018547290", "18547290"),
        ("CUI: RO18547290", "18547290"),
        ("18547291", None),
        ("J40/1234/2020", None),
        ("1", None),
        ("1850101123456", None),
    ],
)
def test_a_cui_is_its_digits_and_its_check_digit_must_be_right(text: str, cui: str | None):
    assert normalise_cui(text) == cui


@given(st.integers(1, 999_999_999))
def test_exactly_one_check_digit_fits(body: int):
    assert sum(normalise_cui(f"{body}{digit}") is not None for digit in range(10)) == 1


def test_a_mistyped_cui_costs_the_cui_and_not_the_row():
    contact, problems = a_row(CUI="18547291")
    assert contact is not None
    assert contact.cui is None
    assert problems == [Problem("CUI", "18547291", why_not_cui("18547291"))]


@pytest.mark.parametrize(
    ("text", "email"),
    [
        (" Office@Firma.RO ", "office@firma.ro"),
        ("mailto:a.b+c@firma.com.ro", "a.b+c@firma.com.ro"),
        ("Ion Pop <ion@firma.ro>", "ion@firma.ro"),
        ("a@firma.ro; b@firma.ro", "a@firma.ro"),
        ("office@firma", None),
        ("office@@firma.ro", None),
        ("office firma.ro", None),
        ("ofi țe@firmă.ro", None),
        ("a..b@firma.ro", None),
        ("x" * 65 + "@firma.ro", None),
        ("a@-firma.ro", None),
    ],
)
def test_an_address_is_well_formed_or_nothing(text: str, email: str | None):
    assert normalise_email(text) == email


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("  Ştefan   şi\u00a0Ţepeş\r\nSRL ", "Ștefan și Țepeș SRL"),
        ("S\u0327tefan", "Ștefan"),
        ("T\u0326epeș", "Țepeș"),
        ("a\x00b\x07c", "a b c"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("\u202eSRL", "SRL"),
        ("'; DROP TABLE tenants; --", "'; DROP TABLE tenants; --"),
    ],
)
def test_text_is_visible_and_romanian(text: str, clean: str):
    assert clean_text(text) == clean


@given(st.text())
def test_cleaning_twice_is_cleaning_once_and_fits_postgres(text: str):
    clean = clean_text(text)
    assert clean_text(clean) == clean
    assert "\x00" not in clean.encode().decode()


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-03-31", date(2026, 3, 31)),
        ("2026-03-31 14:00:00", date(2026, 3, 31)),
        ("31.03.2026", date(2026, 3, 31)),
        ("1/2/2026", date(2026, 2, 1)),
        ("31.02.2026", None),
        ("martie", None),
    ],
)
def test_days_are_read_day_first(text: str, day: date | None):
    assert read_day(text) == day


# ── One spelling for what a stop is remembered by ─────────────────────────────────────────────

MINE = (
    *("+40721234567", "0721234567", "0721 234 567", "0721.234.567", "0721-234-567"),
    *("(0721) 234567", "0721/234567", "40721234567", "0040721234567", "00 40 721 234 567"),
    *("+40 (0)721 234 567", "+400721234567", "721234567", " 0721234567\n", "tel: 0721 234 567"),
)


@pytest.mark.parametrize("spelling", MINE)
def test_every_spelling_of_a_number_is_one_person(spelling: str):
    assert canonical_address(spelling) == "+40721234567"
    assert phone_key(spelling) == "721234567"
    assert all(same_number(spelling, other) for other in MINE)
    assert not same_number(spelling, "+40721234568")


@pytest.mark.parametrize(
    "spelling",
    [
        "ana@firma.ro",
        "ANA@Firma.RO",
        " ana@firma.ro\t",
        "mailto:ana@firma.ro",
        "Ana <ana@firma.ro>",
    ],
)
def test_every_spelling_of_an_address_is_one_person(spelling: str):
    assert canonical_address(spelling) == "ana@firma.ro"


@pytest.mark.parametrize(
    "spelling",
    [
        "18547290",
        "RO18547290",
        "ro 18547290",
        "CUI: RO18547290",
        "18.547.290",
        "018547290",
        "18547290.0",
    ],
)
def test_every_spelling_of_a_cui_is_one_company(spelling: str):
    assert canonical_cui(spelling) == "18547290"


def test_a_cui_with_a_wrong_check_digit_is_still_one_company():
    assert canonical_cui("RO18547291") == canonical_cui("18547291") == "18547291"


@given(st.text(max_size=40))
def test_a_canonical_spelling_is_its_own(text: str):
    once = canonical_address(text)
    assert canonical_address(once) == once


def test_numbers_of_two_countries_with_the_same_last_digits_are_two_people():
    romanian, polish = "+40721234567", "+48721234567"
    assert phone_key(romanian) == phone_key(polish)
    assert normalise_phone(polish) is not None
    assert not same_number(romanian, polish)


@pytest.mark.parametrize("text", ["", "12", "wa.user_77", "abc"])
def test_what_has_too_few_digits_for_a_number_has_no_key(text: str):
    assert phone_key(text) is None


# ── Columns ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("DENUMIRE", Field.NAME),
        ("Nume firmă", Field.NAME),
        ("company_name", Field.NAME),
        ("companyName", Field.NAME),
        ("Cod fiscal", Field.CUI),
        ("C.U.I.", Field.CUI),
        ("CUI/CIF", Field.CUI),
        ("Nr. de telefon", Field.PHONE),
        ("telefon_principal", Field.PHONE),
        ("Telefon 2", Field.PHONE),
        ("E-mail", Field.EMAIL),
        ("Adresă de e-mail", Field.EMAIL),
        ("Persoană de contact", Field.CONTACT),
        ("contact_principal_nume", Field.CONTACT),
        ("Judeţ", Field.COUNTY),
        ("Județ", Field.COUNTY),
        ("Oraș", Field.CITY),
        ("Prioritate", Field.PRIORITY),
        ("Temei legal", Field.BASIS),
        ("lawful_basis_source", Field.BASIS_SOURCE),
        ("Data temeiului", Field.BASIS_DATE),
        ("Cifra de afaceri", None),
    ],
)
def test_columns_are_known_by_many_names(name: str, field: Field | None):
    layout = match_columns([name])
    assert list(layout.columns) == ([field] if field else [])
    assert layout.custom == (() if field else (0,))


def test_nume_is_the_company_unless_another_column_is():
    assert match_columns(["Nume", "Telefon"]).columns[Field.NAME] == (0,)
    assert match_columns(["Nume", "Firma", "Telefon"]).columns[Field.CONTACT] == (0,)


def test_a_layout_needs_a_name_and_a_way_to_reach_it():
    assert match_columns(["Firma", "Email"]).usable
    assert not match_columns(["Firma", "CUI"]).usable
    assert not match_columns(["Telefon", "Email"]).usable


def test_a_mobile_number_wins_whatever_its_column_is_called():
    layout = match_columns(("Firma", "Telefon", "Telefon contact"))
    contact, problems = read_row(
        ("A", "0213456789", "0721234567"), layout, basis=None, today=TODAY
    )  # fmt: skip
    assert contact is not None
    assert (contact.telefon_principal, problems) == ("+40721234567", [])
    assert contact.custom == {"Telefon": "0213456789"}


def test_the_mobile_column_wins_and_the_other_number_is_kept():
    layout = match_columns(["Firma", "Telefon", "Mobil"])
    row = ["Firma SRL", "0213101234", "0721234567"]
    contact, problems = read_row(row, layout, basis=None, today=TODAY)
    assert contact is not None
    assert contact.telefon_principal == "+40721234567"
    assert contact.custom == {"Telefon": "0213101234"}
    assert problems == []


def test_unknown_columns_are_kept_up_to_a_limit():
    names = [f"Extra {letter}{n}" for letter in "abcde" for n in range(10)]
    layout = match_columns(["Firma", "Telefon", *names, "", "Firma"])
    cells = ["Firma SRL", "0721234567", "x" * 600, *["y"] * 51]
    contact, _ = read_row(cells, layout, basis=None, today=TODAY)
    assert contact is not None
    assert len(contact.custom) == CUSTOM_COLUMNS
    assert contact.custom["Extra a0"] == "x" * CUSTOM_LIMIT
    assert len(layout.left_out) == 12
    assert layout.header[-2:] == ("column 53", "Firma (2)")


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────


def test_a_row_without_a_name_is_refused():
    contact, problems = a_row(Denumire=" - ")
    assert contact is None
    assert [(p.column, p.reason) for p in problems] == [("Denumire", "the company has no name")]


def test_a_row_that_reaches_nobody_is_refused_and_says_all_that_is_wrong():
    contact, problems = a_row(Telefon="123", Email="x@", CUI="18547291")
    assert contact is None
    assert [p.column for p in problems] == ["Telefon", "Email", "CUI", "Telefon"]
    assert problems[-1].fatal


def test_one_good_way_to_reach_a_lead_is_enough():
    contact, problems = a_row(Telefon="123", Email="office@firma.ro")
    assert contact is not None
    assert contact.telefon_principal is None
    assert [(p.column, p.fatal) for p in problems] == [("Telefon", False)]


@pytest.mark.parametrize(
    ("name", "why"),
    [("Br\ufffdila SRL", "lost"), ("x" * 301, "longer"), ("x" * (CELL_LIMIT + 1), "longer")],
)
def test_a_name_that_cannot_be_shown_to_anyone_refuses_the_row(name: str, why: str):
    contact, problems = a_row(Denumire=name)
    assert contact is None
    assert why in problems[0].reason


def test_a_row_with_more_cells_than_the_header_is_refused():
    layout = match_columns(["Firma", "Telefon"])
    contact, problems = read_row(["A", "B SRL", "0721234567"], layout, basis=None, today=TODAY)
    assert contact is None
    assert "3 cells" in problems[0].reason


CONSENT = basis_on(LawfulBasis.CONSENT, "form", date(2025, 1, 1))


def test_a_basis_with_source_and_past_date_counts():
    contact, problems = a_row(
        Temei_legal="Client existent", Sursa_temei="contract 12", Data_temei="01.02.2025"
    )
    assert contact is not None
    assert contact[8:11] == basis_on(LawfulBasis.EXISTING_CUSTOMER, "contract 12", date(2025, 2, 1))
    assert problems == []


@pytest.mark.parametrize(
    "cells",
    [
        {"Temei_legal": "nu"},
        {"Temei_legal": "consimțământ"},
        {"Temei_legal": "consimțământ", "Sursa_temei": "form"},
        {"Temei_legal": "consimțământ", "Data_temei": "01.02.2025"},
        {"Temei_legal": "consimțământ", "Sursa_temei": "form", "Data_temei": "19.11.2026"},
    ],
)
def test_a_basis_without_proof_is_none_whatever_the_operator_vouches_for(cells: dict[str, str]):
    contact, problems = a_row(vouched=CONSENT, **cells)
    assert contact is not None
    assert contact.lawful_basis is None
    assert [p.column for p in problems] == ["Temei legal"]


def test_the_operator_vouches_for_rows_that_name_no_basis():
    contact, _ = a_row(vouched=CONSENT)
    assert contact is not None
    assert contact[8:11] == CONSENT
