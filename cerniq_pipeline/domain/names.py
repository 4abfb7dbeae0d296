"""What people call things at a terminal: persons in any spelling, names that are nearly right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple
from uuid import UUID

from cerniq_pipeline.domain.contacts import (
    canonical_cui,
    normalise_cui,
    normalise_email,
    normalise_phone,
)
from cerniq_pipeline.errors import NotFound

_NUMBER = re.compile(r"[+(]*[0-9][0-9\s().\-/]*")
_BEGINNING = re.compile(r"[0-9a-f-]{4,35}")
_SHAPE = "00000000-0000-0000-0000-000000000000"

FEWEST, MOST = 9, 17
"""Digits of one number: more are two numbers, and only one of them would be stopped."""

SHORT = 8
"""So many characters of an id are shown where there is little room; they can be typed back."""

MOST_OFFERED = 3
ALIKE = 0.6
"""How much of a name must stand in another one for it to be offered, as difflib counts."""


class Name(NamedTuple):
    """Whom somebody may mean by what they typed: every reading that it allows, the surest first."""

    typed: str
    lead_id: UUID | None = None
    email: str | None = None
    number: str | None = None
    """In E.164 where it can be read, else as it was typed."""
    cui: str | None = None
    id_range: tuple[UUID, UUID] | None = None
    """The ids that begin like this."""

    def readings(self) -> Iterator[Name]:
        """Each reading by itself, the surest first."""
        for field in ("lead_id", "email", "number", "cui", "id_range"):
            if (value := getattr(self, field)) is not None:
                yield Name(self.typed, **{field: value})

    @property
    def reaches(self) -> str | None:
        """The one number or address that it certainly is, also of somebody whom nobody knows."""
        return self.email or (normalise_phone(self.number) if self.number else None)

    @property
    def company(self) -> str | None:
        """The CUI that it certainly is: its check digit is right, and it begins with no zero.

        A number with a digit too few is no company.
        """
        return normalise_cui(self.cui) if self.cui and not self.typed.startswith("0") else None


def read_name(typed: str) -> Name:
    """Read what a person is called: an id or its beginning, an address, a number, or a CUI."""
    text = typed.strip()
    if (lead_id := _id(text)) is not None:
        return Name(text, lead_id=lead_id)
    if "@" in text:
        return Name(text, email=normalise_email(text))
    digits = sum(char.isdigit() for char in text)
    is_number = _NUMBER.fullmatch(text) is not None and FEWEST <= digits <= MOST
    cui = canonical_cui(text)
    return Name(
        text,
        number=(normalise_phone(text) or text) if is_number else None,
        cui=cui if cui.isdigit() else None,
        id_range=_ids_beginning(text.lower()),
    )


def short_id(lead_id: UUID | str) -> str:
    """The beginning of an id that `read_name` takes for one: digits alone would be a CUI."""
    text = str(lead_id)
    return text[:SHORT] if not text[:SHORT].isdigit() else text[: SHORT + 1]


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _ids_beginning(text: str) -> tuple[UUID, UUID] | None:
    """The first and the last id that begin like this; None when it cannot be a beginning.

    Digits alone are a number or a CUI: nobody is to be stopped because their id looks like one.
    """
    if not _BEGINNING.fullmatch(text) or text.isdigit():
        return None
    if any((typed == "-") != (shape == "-") for typed, shape in zip(text, _SHAPE, strict=False)):
        return None
    rest = _SHAPE[len(text) :]
    return UUID(text + rest), UUID(text + rest.replace("0", "f"))


def nearest(wanted: str, known: Collection[str]) -> list[str]:
    """The names that somebody may have meant who typed this one, the likeliest first."""
    matcher = difflib.SequenceMatcher(b=wanted.lower())
    alike = []
    for name in known:
        matcher.set_seq1(name.lower())
        alike.append((-matcher.ratio(), name))
    return [name for unlike, name in sorted(alike)[:MOST_OFFERED] if -unlike >= ALIKE]


def no_such(what: str, wanted: str, known: Collection[str], *, see: str) -> NotFound:
    """The refusal of a name that nothing has, with what may have been meant or where to look."""
    meant = nearest(wanted, known)
    hint = f"did you mean {' or '.join(meant)}?" if meant else see
    return NotFound(f"no {what} {wanted!r}; {hint}")
