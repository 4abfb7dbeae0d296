"""Leads as they stand in files: columns recognised, values brought to one spelling each.

What one row teaches is a `Contact`, or nothing, and `Problem`s for the person who made the file. A
value that cannot be used is dropped and noted; only a row without a name, or that reaches nobody,
is refused. A CUI whose check digit is wrong is dropped too: the CUI is what leads are merged by, so
a mistyped one would put a stranger's number into another company, while the contact itself is good.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import cache, lru_cache
from typing import NamedTuple

import phonenumbers

from cerniq_pipeline.domain.leads import LawfulBasis

REGION = "RO"
CELL_LIMIT = 32 * 1024
NAME_LIMIT = 300
CUSTOM_COLUMNS = 40
CUSTOM_LIMIT = 500
LOST = "\ufffd"
"""What a decoder leaves where it could not read a byte."""


# ── Text ──────────────────────────────────────────────────────────────────────────────────────

# Old code pages and keyboards write ş and ţ with a cedilla; Romanian has a comma below.
_COMMA_BELOW = str.maketrans("şŞţŢ", "șȘțȚ")


def clean_text(text: str) -> str:
    """Return the text in NFC, with Romanian commas, single spaces and nothing invisible."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(_COMMA_BELOW)
    if not text.isprintable():
        text = "".join(map(_visible, text))
    return " ".join(text.split())


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    blank = character.isspace() or unicodedata.category(character) == "Cc"
    return " " if blank else ""


def fold(text: str) -> str:
    """Return lower-case words without diacritics or punctuation, for comparing names."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    plain = "".join(
        letter
        for letter in unicodedata.normalize("NFKD", spaced)
        if not unicodedata.combining(letter)
    )
    return " ".join(re.findall(r"[a-z]+|[0-9]+", plain.lower()))


# ── Telephone numbers ─────────────────────────────────────────────────────────────────────────

_SEPARATORS = str.maketrans("", "", " .-()/")
_ROMANIAN = re.compile(r"(?:(?:\+|00)?40)?0?([237][0-9]{8})", re.ASCII)
_FLOATED = re.compile(r"([0-9]{9,})\.0+")
_SCIENTIFIC = re.compile(r"([0-9])(?:[.,]([0-9]+))?[eE]\+?([0-9]{1,2})")
_LABEL = re.compile(r"^\W*(?:telefon|tel|mobil|mob|fax|gsm|whatsapp|phone)\b[.:\s]*", re.IGNORECASE)
_EXTENSION = re.compile(
    r"[\s,;]*\b(?:interior|int|extension|ext)\b[.:\s]*[0-9]{1,6}$", re.IGNORECASE
)
_SEVERAL = re.compile(r"[,;|\r\n]|\b(?:sau|si|și|or|and)\b")
_LETTER = re.compile(r"[^\W\d_]")


def normalise_phone(text: str) -> str | None:
    """Return the number in E.164, or None when no valid number can be read out of the text.

    Of several numbers in one cell a mobile one wins, because that is where messages go.
    """
    text = text.strip()
    if exact := plain_romanian(text):
        return exact
    if scientific := _SCIENTIFIC.fullmatch(text):
        text = _written_out(scientific) or ""
    elif floated := _FLOATED.fullmatch(text):
        text = floated[1]
    found = [number for piece in _SEVERAL.split(text) for number in _numbers_in(piece)]
    return _rather_mobile(found)


def _rather_mobile(numbers: Sequence[str]) -> str | None:
    """The first that is no landline, or else the first."""
    mobile = (number for number in numbers if not is_landline(number))
    return next(mobile, numbers[0] if numbers else None)


def why_not_phone(text: str) -> str:
    """Say why `normalise_phone` gave nothing for this text."""
    if _SCIENTIFIC.fullmatch(text.strip()):
        return "a spreadsheet rounded this number; format the column as text and export again"
    return "not a valid telephone number"


def plain_romanian(text: str) -> str | None:
    """Return a plainly written Romanian number in E.164; None: ask phonenumbers.

    Fifty times faster than phonenumbers, whose own patterns decide here too; a test holds the two
    together over generated spellings.
    """
    spelled = _ROMANIAN.fullmatch(text.translate(_SEPARATORS))
    if spelled is None or not _romanian_lines().fullmatch(spelled[1]):
        return None
    return f"+40{spelled[1]}"


def by_phonenumbers(text: str) -> str | None:
    """Return what phonenumbers makes of one number, without its keypad letters.

    `0721 FIRMA X` would dial for phonenumbers; in a list of companies it is a typing error.
    """
    bare = _EXTENSION.sub("", _LABEL.sub("", text))
    if not bare or len(bare) > 60 or _LETTER.search(bare):
        return None
    try:
        number = phonenumbers.parse(bare, REGION)
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_valid_number(number):
        return None
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


_WITHOUT_WHATSAPP = frozenset(
    {
        phonenumbers.PhoneNumberType.FIXED_LINE,
        phonenumbers.PhoneNumberType.TOLL_FREE,
        phonenumbers.PhoneNumberType.PREMIUM_RATE,
        phonenumbers.PhoneNumberType.SHARED_COST,
        phonenumbers.PhoneNumberType.UAN,
        phonenumbers.PhoneNumberType.VOICEMAIL,
        phonenumbers.PhoneNumberType.PAGER,
    }
)


@lru_cache(maxsize=50_000)
def is_landline(number: str) -> bool:
    """Whether this number in E.164 is one to which WhatsApp is not offered: no mobile certainly.

    Countries that do not tell mobile numbers from others get the benefit of the doubt.
    """
    if number.startswith("+407"):
        return False
    try:
        return phonenumbers.number_type(phonenumbers.parse(number)) in _WITHOUT_WHATSAPP
    except phonenumbers.NumberParseException:
        return False


def _numbers_in(text: str) -> list[str]:
    # A slash stands inside one number as often as between two.
    whole = by_phonenumbers(text)
    pieces = [whole] if whole else map(by_phonenumbers, text.split("/"))
    return [number for number in pieces if number]


@cache
def _romanian_lines() -> re.Pattern[str]:
    metadata = phonenumbers.PhoneMetadata.metadata_for_region(REGION)
    kinds = (metadata.mobile, metadata.fixed_line) if metadata else ()
    patterns = [kind.national_number_pattern for kind in kinds if kind]
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns if pattern) or "(?!)")


def _written_out(scientific: re.Match[str]) -> str | None:
    """The whole number, or None when the file does not hold all its digits."""
    decimals, exponent = scientific[2] or "", int(scientific[3])
    if len(decimals) < exponent or decimals[exponent:].strip("0"):
        return None
    return scientific[1] + decimals[:exponent]


# ── Addresses and company numbers ─────────────────────────────────────────────────────────────

_EMAIL = re.compile(
    r"(?=.{6,254}\Z)(?=[^@]{1,64}@)"
    r"[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}"
)
_BETWEEN_EMAILS = re.compile(r"[\s;,<>()\"]+")


def normalise_email(text: str) -> str | None:
    """Return the first well-formed address in lower case, or None."""
    lowered = text.strip().lower()
    if _EMAIL.fullmatch(lowered):
        return lowered
    pieces = _BETWEEN_EMAILS.split(lowered)
    found = (piece.removeprefix("mailto:").strip(".'") for piece in pieces)
    return next((piece for piece in found if _EMAIL.fullmatch(piece)), None)


def canonical_address(text: str) -> str:
    """One spelling for every way to write the same number or address; a stranger's stays his."""
    bare = text.strip().lower()
    return (normalise_email(bare) if "@" in bare else normalise_phone(bare)) or bare


def phone_key(number: str) -> str | None:
    """What all spellings of a number share, as `gold_companies.phone_key` has it; None: too few.

    Numbers of two countries may share it, so who finds one by it compares with `same_number`.
    """
    digits = re.sub(r"[^0-9]", "", number)
    return digits[-9:] if len(digits) >= 9 else None


def same_number(one: str, other: str) -> bool:
    """Whether two spellings may mean the same number: an unreadable one is not told apart."""
    read = normalise_phone(one), normalise_phone(other)
    return read[0] == read[1] if all(read) else phone_key(one) == phone_key(other)


_CUI = re.compile(r"(?:CUI|CIF)?:?(?:RO)?([0-9]{2,10})")
_CUI_WEIGHTS = (7, 5, 3, 2, 1, 7, 5, 3, 2)


def normalise_cui(text: str) -> str | None:
    """Return the digits of a CUI whose check digit is right, or None."""
    digits = _cui_digits(text)
    return digits if digits and _check_digit(digits[:-1]) == int(digits[-1]) else None


def cui_key(text: str) -> str:
    """What all spellings of a CUI share, as an index of `gold_companies` has it; empty: nothing.

    Who finds a company by it compares with `canonical_cui`.
    """
    return re.sub(r"[^0-9]", "", re.sub(r"\.0+$", "", text.strip())).lstrip("0")


def canonical_cui(text: str) -> str:
    """One spelling for every way to write the same CUI, also of one with a wrong check digit."""
    return _cui_digits(text) or text.strip().upper()


def why_not_cui(text: str) -> str:
    """Say why `normalise_cui` gave nothing for this text."""
    digits = _cui_digits(text)
    if digits is None:
        return "not a CUI: 2 to 10 digits, with or without RO"
    return f"the check digit of this CUI is wrong: {_check_digit(digits[:-1])} was expected"


def _cui_digits(text: str) -> str | None:
    squeezed = re.sub(r"[\s.\-]", "", re.sub(r"\.0+$", "", text.strip())).upper()
    spelled = _CUI.fullmatch(squeezed)
    digits = spelled[1].lstrip("0") if spelled else ""
    return digits if len(digits) >= 2 else None


def _check_digit(body: str) -> int:
    total = sum(int(d) * weight for d, weight in zip(body.zfill(9), _CUI_WEIGHTS, strict=True))
    return total * 10 % 11 % 10


# ── Words for priority, lawful basis and dates ────────────────────────────────────────────────

_PRIORITIES = {
    "HIGH": "high mare ridicata ridicat inalta urgent urgenta 1",
    "NORMAL": "normal normala medie mediu medium 2",
    "LOW": "low mica mic scazuta scazut joasa 3",
}
PRIORITIES = {word: name for name, words in _PRIORITIES.items() for word in words.split()}

_BASES = {
    LawfulBasis.CONSENT: "consent, consimtamant, acord, consimtamantul persoanei",
    LawfulBasis.EXISTING_CUSTOMER: (
        "existing customer, client existent, client, contract, relatie contractuala"
    ),
    LawfulBasis.LEGITIMATE_INTEREST: "legitimate interest, interes legitim",
}
BASES = {word: basis for basis, words in _BASES.items() for word in words.split(", ")}

_DAYS = (
    re.compile(r"(?P<y>[0-9]{4})-(?P<m>[0-9]{1,2})-(?P<d>[0-9]{1,2})(?:[T ].*)?"),
    re.compile(r"(?P<d>[0-9]{1,2})[./-](?P<m>[0-9]{1,2})[./-](?P<y>[0-9]{4})(?: .*)?"),
)


def read_day(text: str) -> date | None:
    """Return the day written as 2026-03-31 or, day first, as 31.03.2026; None for anything else."""
    for pattern in _DAYS:
        if written := pattern.fullmatch(text.strip()):
            try:
                return date(int(written["y"]), int(written["m"]), int(written["d"]))
            except ValueError:
                return None
    return None


class Basis(NamedTuple):
    """A lawful basis with its proof."""

    basis: LawfulBasis
    source: str
    at: datetime


def basis_on(basis: LawfulBasis, source: str, day: date) -> Basis:
    """Return a basis proven on that day."""
    return Basis(basis, source, datetime(day.year, day.month, day.day, tzinfo=UTC))


# ── Columns ───────────────────────────────────────────────────────────────────────────────────


class Field(StrEnum):
    """What a column of a file can tell about a lead; named as in the tables."""

    NAME = "denumire"
    CUI = "cui"
    PHONE = "telefon_principal"
    EMAIL = "email_principal"
    CONTACT = "contact_principal_nume"
    COUNTY = "judet"
    CITY = "localitate"
    PRIORITY = "priority"
    BASIS = "lawful_basis"
    BASIS_SOURCE = "lawful_basis_source"
    BASIS_DATE = "lawful_basis_at"


_IN_WORDS = {
    Field.NAME: "company",
    Field.CUI: "CUI",
    Field.PHONE: "telephone",
    Field.EMAIL: "e-mail",
    Field.CONTACT: "contact person",
    Field.COUNTY: "county",
    Field.CITY: "city",
    Field.PRIORITY: "priority",
    Field.BASIS: "lawful basis",
    Field.BASIS_SOURCE: "source of the basis",
    Field.BASIS_DATE: "date of the basis",
}

_SYNONYMS = {
    Field.NAME: (
        "denumire, denumirea, denumire firma, denumirea firmei, denumire companie,"
        " denumire societate, firma, nume firma, numele firmei, companie, compania, nume companie,"
        " societate, nume societate, agent economic, company, company name,"
        " organization, organisation, business, business name, client, nume client, account name"
    ),
    Field.CUI: (
        "cui, cif, cui cif, cod fiscal, cod unic, cod unic inregistrare, cod identificare fiscala,"
        " tax id, vat, vat id, vat code, fiscal code, registration code"
    ),
    Field.PHONE: (
        "telefon, telefonul, tel, telefon contact, telefon firma, telefon mobil, telefon fix, fix,"
        " mobil, mobile, mobile phone, gsm, celular, whatsapp, telefon whatsapp, phone, telephone,"
        " contact phone, cell, cell phone"
    ),
    Field.EMAIL: (
        "email, mail, adresa email, adresa mail, email address, email contact, contact email,"
        " email firma, posta electronica"
    ),
    Field.CONTACT: (
        "contact, persoana contact, nume contact, nume persoana contact, nume persoana,"
        " contact nume, contact name, contact person, full name, reprezentant,"
        " reprezentant legal, administrator"
    ),
    Field.COUNTY: "judet, judetul, jud, county",
    Field.CITY: (
        "localitate, localitatea, loc, oras, orasul, municipiu, comuna, city, town, locality"
    ),
    Field.PRIORITY: "prioritate, prioritatea, priority",
    Field.BASIS: "temei, temei legal, temeiul legal, baza legala, lawful basis, legal basis",
    Field.BASIS_SOURCE: (
        "sursa temei, sursa temei legal, sursa temeiului, sursa consimtamant, basis source,"
        " lawful basis source, legal basis source"
    ),
    Field.BASIS_DATE: (
        "data temei, data temei legal, data temeiului, data consimtamant, basis date,"
        " lawful basis date, lawful basis at, legal basis date"
    ),
}
_KNOWN = {word: field for field, words in _SYNONYMS.items() for word in words.split(", ")}
_FILLERS = frozenset(
    {"nr", "numar", "numarul", "no", "number", "de", "al", "a", "of", "the"}
    | {"principal", "principala", "primary"}
)
# "Nume" alone is the company in one file and the person in the next.
_EITHER = frozenset({"nume", "name"})
_WHERE_MESSAGES_GO = frozenset({"mobil", "mobile", "gsm", "whatsapp", "celular", "cell"})
_SEVERAL_COLUMNS = frozenset({Field.PHONE, Field.EMAIL})


@dataclass(frozen=True)
class Layout:
    """Which column of a file tells what."""

    header: tuple[str, ...]
    columns: Mapping[Field, tuple[int, ...]]
    custom: tuple[int, ...]
    left_out: tuple[str, ...]
    """Unknown columns beyond the number that is kept."""

    @property
    def recognised(self) -> dict[str, str]:
        """The columns that tell something known, in their order, and what that is."""
        meant = {index: field for field, indexes in self.columns.items() for index in indexes}
        return {self.header[index]: _IN_WORDS[meant[index]] for index in sorted(meant)}

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that are kept under their own names."""
        return tuple(self.header[index] for index in self.custom)

    @property
    def usable(self) -> bool:
        """Whether leads can be read: there is a name, and a way to reach it."""
        return Field.NAME in self.columns and not self.columns.keys().isdisjoint(_SEVERAL_COLUMNS)


def match_columns(header: Sequence[str]) -> Layout:
    """Recognise the columns of a file by their names; the others are kept under their own."""
    names = _distinct_names(header)
    claims: dict[Field, list[int]] = {}
    either: list[int] = []
    for index, name in enumerate(names):
        key = _column_key(name)
        if key in _EITHER:
            either.append(index)
        elif field := _KNOWN.get(key):
            claims.setdefault(field, []).append(index)
    for index in either:
        field = Field.CONTACT if Field.NAME in claims else Field.NAME
        claims.setdefault(field, []).append(index)
    columns = {
        field: tuple(indexes if field in _SEVERAL_COLUMNS else indexes[:1])
        for field, indexes in claims.items()
    }
    if phones := columns.get(Field.PHONE):
        columns[Field.PHONE] = tuple(
            sorted(phones, key=lambda index: _names_a_landline(names[index]))
        )
    taken = {index for indexes in columns.values() for index in indexes}
    rest = [index for index in range(len(names)) if index not in taken]
    left_out = tuple(names[index] for index in rest[CUSTOM_COLUMNS:])
    return Layout(names, columns, tuple(rest[:CUSTOM_COLUMNS]), left_out)


def what_is_expected() -> str:
    """Name the columns that a file needs, for a person."""
    return (
        "a column with the company's name (denumire, firma, companie, company name …) and one with"
        " a telephone number (telefon, mobil, phone …) or an address (email …)"
    )


def _column_key(name: str) -> str:
    # "E-mail" and "C.U.I." fall into letters.
    words = re.sub(r"\b(\w) (?=\w\b|mail\b)", r"\1", fold(name)).split()
    meant = [word for word in words if word not in _FILLERS and not word.isdigit()]
    return " ".join(meant)


def _names_a_landline(name: str) -> bool:
    return _WHERE_MESSAGES_GO.isdisjoint(fold(name).split())


def _distinct_names(header: Sequence[str]) -> tuple[str, ...]:
    names: list[str] = []
    seen: dict[str, int] = {}
    for position, raw in enumerate(header, start=1):
        name = clean_text(raw)[:100] or f"column {position}"
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(names)


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────


class Contact(NamedTuple):
    """One good row, in the order of the table that rows wait in."""

    denumire: str
    cui: str | None
    telefon_principal: str | None
    email_principal: str | None
    contact_principal_nume: str | None
    judet: str | None
    localitate: str | None
    priority: str | None
    lawful_basis: str | None
    lawful_basis_source: str | None
    lawful_basis_at: datetime | None
    custom: dict[str, str]


class Problem(NamedTuple):
    """What is wrong with one cell of a file.

    `fatal` when the whole row is refused for it; `kept` when the value is used all the same.
    """

    column: str
    value: str
    reason: str
    fatal: bool = False
    kept: bool = False


def read_row(
    cells: Sequence[str], layout: Layout, *, basis: Basis | None, today: date
) -> tuple[Contact | None, list[Problem]]:
    """Return the contact in a row, or None when it is refused, and everything wrong with it.

    `basis` is what the operator vouches for: it fills an empty basis cell and never one that says
    something else.
    """
    problems = list(_shape_problems(cells, layout))
    if problems:
        return None, problems
    row = _Row(cells, layout, problems)
    name = row.text(Field.NAME, fatal=True)
    phone = row.first(Field.PHONE, normalise_phone, why_not_phone, rather=_rather_mobile)
    email = row.first(Field.EMAIL, normalise_email, _why_not_email)
    proven = row.basis(basis, today)
    contact = Contact(
        denumire=name or "",
        cui=row.first(Field.CUI, normalise_cui, why_not_cui),
        telefon_principal=phone,
        email_principal=email,
        contact_principal_nume=row.text(Field.CONTACT),
        judet=row.text(Field.COUNTY),
        localitate=row.text(Field.CITY),
        priority=row.word(Field.PRIORITY, PRIORITIES),
        lawful_basis=proven.basis if proven else None,
        lawful_basis_source=proven.source if proven else None,
        lawful_basis_at=proven.at if proven else None,
        custom=row.custom(phone, email),
    )
    if name and name.startswith("="):
        row.remark(Field.NAME, name, "it begins like a formula; it is used as it is written")
    if phone and is_landline(phone):
        row.remark(Field.PHONE, phone, "a landline: it is not offered to WhatsApp")
    if name is None and not row.filled(Field.NAME):
        row.refuse(Field.NAME, "the company has no name")
    if phone is None and email is None:
        row.refuse(Field.PHONE, "no usable telephone number or email address")
    return (None if any(problem.fatal for problem in problems) else contact), problems


def _shape_problems(cells: Sequence[str], layout: Layout) -> Iterator[Problem]:
    width = len(layout.header)
    if len(cells) > width and any(extra.strip() for extra in cells[width:]):
        reason = (
            f"the row has {len(cells)} cells but the header {width}: a separator without quotes?"
        )
        yield Problem("", "", reason, fatal=True)
    for name, cell in zip(layout.header, cells, strict=False):
        if len(cell) > CELL_LIMIT:
            reason = f"longer than {CELL_LIMIT} characters: a quote that is never closed?"
            yield Problem(name, cell, reason, fatal=True)


def _why_not_email(_text: str) -> str:
    return "not a well-formed email address"


_BLANKS = frozenset({"", "-", "--", ".", "n/a", "#n/a", "null", "none", "nan"})
_FORMULA = re.compile(r"""\s*=\s*"([^"]*)"\s*""")


def _is_blank(cell: str) -> bool:
    return (len(cell) < 8 and cell.strip().lower() in _BLANKS) or cell.isspace()


def _out_of_formula(cell: str) -> str:
    """The text in `="0721…"` and `'0721…`, which keep spreadsheets from rounding numbers."""
    formula = _FORMULA.fullmatch(cell) if "=" in cell else None
    return formula[1] if formula else cell.lstrip("'")


def _as_typed(cell: str) -> str:
    """The text in `="Firma"`, and in `'=Firma`, as a cell is written that must not run."""
    if cell[:1] == "'" and cell[1:2] in tuple("=+-@"):
        return cell[1:]
    formula = _FORMULA.fullmatch(cell) if "=" in cell else None
    return formula[1] if formula else cell


_Normalise = Callable[[str], str | None]
_WhyNot = Callable[[str], str]


class _Row:
    """One row under a layout; what it cannot use it notes."""

    def __init__(self, cells: Sequence[str], layout: Layout, problems: list[Problem]) -> None:
        self._cells = cells
        self._layout = layout
        self._problems = problems

    def filled(self, field: Field) -> list[tuple[int, str]]:
        """The columns of this field that hold something."""
        cells = self._cells
        columns = self._layout.columns.get(field, ())
        return [(i, cells[i]) for i in columns if i < len(cells) and not _is_blank(cells[i])]

    def first(
        self,
        field: Field,
        normalise: _Normalise,
        why_not: _WhyNot,
        *,
        rather: Callable[[Sequence[str]], str | None] | None = None,
    ) -> str | None:
        """The first usable value, or whichever of them is rather wanted.

        When there is none, every filled cell is noted.
        """
        filled = self.filled(field)
        read = (normalise(_out_of_formula(cell)) for _, cell in filled)
        usable = (value for value in read if value is not None)
        found = next(usable, None) if rather is None else rather(list(usable))
        if found is not None:
            return found
        for index, cell in filled:
            self._note(index, cell, why_not(_out_of_formula(cell)))
        return None

    def text(self, field: Field, *, fatal: bool = False) -> str | None:
        for index, cell in self.filled(field):
            value = clean_text(_as_typed(cell))
            if LOST in value:
                self._note(
                    index,
                    cell,
                    "a letter was lost in an earlier conversion",
                    fatal=fatal,
                )
            elif len(value) > NAME_LIMIT:
                self._note(index, cell, f"longer than {NAME_LIMIT} characters", fatal=fatal)
            else:
                return value or None
        return None

    def word(self, field: Field, words: Mapping[str, str]) -> str | None:
        for index, cell in self.filled(field):
            if value := words.get(fold(cell)):
                return value
            known = ", ".join(sorted(set(words.values())))
            self._note(index, cell, f"unknown word; known are {known}")
        return None

    def basis(self, vouched: Basis | None, today: date) -> Basis | None:
        if not self.filled(Field.BASIS):
            return vouched
        basis = self.word(Field.BASIS, BASES)
        if basis is None:
            return None
        source = self.text(Field.BASIS_SOURCE)
        written = next((cell for _, cell in self.filled(Field.BASIS_DATE)), "")
        day = read_day(written)
        if source is None or day is None or day > today:
            index = self._layout.columns[Field.BASIS][0]
            reason = "a lawful basis counts only with its source and a past date"
            self._note(
                index,
                f"{basis}, {source or 'no source'}, {written or 'no date'}",
                reason,
            )
            return None
        return basis_on(LawfulBasis(basis), source, day)

    def custom(self, phone: str | None, email: str | None) -> dict[str, str]:
        """Cells of unknown columns, and numbers and addresses that were not chosen."""
        cells, header = self._cells, self._layout.header
        kept: dict[str, str] = {}
        for index in self._layout.custom:
            if index < len(cells) and (value := clean_text(cells[index])):
                kept[header[index]] = value[:CUSTOM_LIMIT]
        for field, chosen, normalise in (
            (Field.PHONE, phone, normalise_phone),
            (Field.EMAIL, email, normalise_email),
        ):
            if len(self._layout.columns.get(field, ())) > 1:
                for index, cell in self.filled(field):
                    if normalise(_out_of_formula(cell)) != chosen:
                        kept[header[index]] = clean_text(cell)[:CUSTOM_LIMIT]
        return kept

    def refuse(self, field: Field, reason: str) -> None:
        self._problems.append(Problem(self._named(field), "", reason, fatal=True))

    def remark(self, field: Field, value: str, reason: str) -> None:
        """Tell of a value that is used all the same."""
        self._problems.append(Problem(self._named(field), value, reason, kept=True))

    def _named(self, field: Field) -> str:
        columns = self._layout.columns.get(field)
        return self._layout.header[columns[0]] if columns else ""

    def _note(self, index: int, cell: str, reason: str, *, fatal: bool = False) -> None:
        self._problems.append(Problem(self._layout.header[index], cell, reason, fatal))
