"""Structured events: a few words and named fields on one line; no secret, no full number."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Level = Literal["debug", "info", "warning", "error"]

_SIGNS = r"[ \t\u00a0\u202f\u2010-\u2015().\-/]{0,3}"
# As people write them: +40 721 000 123, (0721) 000-123, 0040/721..., or nothing but digits. Ids
# come first in the pattern, so that their digits are not taken for a number.
_ID_OR_NUMBER = re.compile(
    r"(?P<id>\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)"
    rf"|(?:(?:\+|%2b)\(?|(?<![0-9a-f])\(?(?=0))\d(?:{_SIGNS}\d){{8,}}(?![0-9a-f])"
    r"|(?<![0-9a-f])\d{9,}(?![0-9a-f])",
    re.IGNORECASE,
)
_BREAKS = [*range(32), *range(127, 160), 0x2028, 0x2029]
_BROKEN = {code: f"\\x{code:02x}" for code in _BREAKS}
_PLAIN = re.compile(r"[^\s(),=\"'\[\]{}]+")


_cause: ContextVar[str | None] = ContextVar("cause", default=None)


@contextmanager
def caused_by(correlation_id: str | None) -> Iterator[None]:
    """Let everything that is done within be said to come from this event.

    Every line that is logged names it, and so does every row that is written in a transaction
    which begins within; see `store/database.py`.
    """
    before = _cause.set(correlation_id)
    try:
        yield
    finally:
        _cause.reset(before)


def cause() -> str | None:
    """The event that this is done for, by its caller's name for it; None: for none."""
    return _cause.get()


def event(worker: str, action: str, *, level: Level = "info", **fields: object) -> None:
    """Write one event: `send: message sent (message=17, phone=acme-01)`.

    One word per thing: `run` is a run's id, `message` one of the outbox, `event` one of the inbox,
    `lead`, `phone` and `tenant` are theirs; `correlation` is the event behind it. Further
    `channel`, `duration_ms`, `error` and counts. Fields that are None are left out; what is no
    plain word is written as JSON.
    """
    if (named := cause()) is not None:
        fields = {**fields, "correlation": named}
    told = ", ".join(
        f"{name}={_shown(_clean(value))}" for name, value in fields.items() if value is not None
    )
    line = f"{worker}: {action.replace('_', ' ')}" + (f" ({told})" if told else "")
    logging.getLogger(f"cerniq.{worker}").log(logging.getLevelNamesMapping()[level.upper()], line)


def mask(text: str) -> str:
    """The text with every telephone number in it reduced to prefix and last three digits."""
    return _ID_OR_NUMBER.sub(_masked, text)


def _masked(found: re.Match[str]) -> str:
    if found["id"]:
        return found[0]
    digits = [char for char in found[0].lower().removeprefix("%2b") if char.isdigit()]
    plus = "+" if found[0][0] in "+%" else ""
    return f"{plus}{''.join(digits[:2])}*****{''.join(digits[-3:])}"


def _clean(value: object) -> object:
    """The value as it may be written; whatever is not plain data is shown by its text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {_text(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(item) for item in value]
    return _text(value)


def _shown(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _text(value: object) -> str:
    # Half a character pair can stand in a text from outside, and cannot be written anywhere.
    whole = str(value).encode("utf-8", "backslashreplace").decode()
    return mask(whole).translate(_BROKEN)
