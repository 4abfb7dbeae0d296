"""Structured events: words and fields on one line, no telephone number, no broken line."""

from __future__ import annotations

import ast
import io
import json
import logging
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import cerniq_pipeline
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.errors import SendUnconfirmed
from cerniq_pipeline.logs import event, mask

LEAD = uuid.UUID("07210001-2345-4678-9012-345678901234")
"""An id that could be read as a number, if one wanted to."""


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What stands in the log after the test's events."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    root = logging.getLogger("cerniq")
    level = root.level
    root.addHandler(handler)
    root.setLevel("DEBUG")
    yield lines
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.parametrize(
    ("spelling", "shown"),
    [
        ("+40721000123", "+40*****123"),
        ("40721000123", "40*****123"),
        ("0040721000123", "00*****123"),
        ("0721000123", "07*****123"),
        ("721000123", "72*****123"),
        ("+40 721 000 123", "+40*****123"),
        ("+40-721-000-123", "+40*****123"),
        ("+40.721.000.123", "+40*****123"),
        ("+40 (721) 000 123", "+40*****123"),
        ("+(40) 721 000 123", "+40*****123"),
        ("0721 000 123", "07*****123"),
        ("0721/000.123", "07*****123"),
        ("(0721) 000-123", "07*****123"),
        ("0721\u00a0000\u00a0123", "07*****123"),
        ("0721–000–123", "07*****123"),
        ("%2B40721000123", "+40*****123"),
        ("40721000123@s.whatsapp.net", "40*****123@s.whatsapp.net"),
        ("https://wa.me/40721000123?text=x", "https://wa.me/40*****123?text=x"),
        ("tel:+40721000123.", "tel:+40*****123."),
        ("nr0721000123-Ion", "nr07*****123-Ion"),
        ("'phone': '+40721000123', 'to': '0722 000 456'",
         "'phone': '+40*****123', 'to': '07*****456'"),
        ("+4912345678901234567", "+49*****567"),  # too long for a number, hidden all the same
    ],
)  # fmt: skip
def test_a_number_is_masked_in_every_spelling(spelling: str, shown: str):
    assert mask(spelling) == shown


@pytest.mark.parametrize(
    "text",
    [
        str(LEAD),
        f"lead {LEAD} of acme",
        "2026-11-18 10:00:00.123456+00:00",
        "nothing is due before 2026-11-19 07:00 UTC",
        "open 09:00-18:00 Europe/Bucharest on days 12345",
        "200 of 200 new contacts today",
        "attempt 12345678",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "acme-01",
        "400 validation_error",
    ],
)
def test_what_is_no_number_stays_readable(text: str):
    assert mask(text) == text


def test_an_event_is_a_sentence_with_its_fields_and_leaves_empty_ones_out(log: io.StringIO):
    event(
        "send",
        "message_sent",
        message=17,
        lead=str(LEAD),
        phone="acme-01",
        reason="not due before 09:00",
        duration_ms=42,
        error=None,
    )
    assert log.getvalue() == (
        f"send: message sent (message=17, lead={LEAD}, phone=acme-01, "
        'reason="not due before 09:00", duration_ms=42)\n'
    )


def test_one_word_names_one_thing_in_every_event():
    """`job` was a run's id in one line and a message's in the next."""
    package = Path(cerniq_pipeline.__file__).parent
    told = [
        (path.name, node.lineno)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("event", "log_event")
        if any(field.arg == "job" for field in node.keywords)
    ]
    assert told == []


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_an_event_is_logged_at_its_level(level: str, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG, logger="cerniq"):
        event("shift", "shift_opened", level=level)  # pyright: ignore[reportArgumentType]
    (record,) = caplog.records
    assert record.name == "cerniq.shift"
    assert record.levelname == level.upper()


@pytest.mark.parametrize(
    "value",
    [
        "call +40 721 000 123 back",
        {"code": "REFUSED", "message": "number 0721-000-123 is wrong"},
        {"0721000123": "as a key"},
        ["+40721000123"],
        ("a", {"b": ["0721000123"]}),
        {"+40721000123"},
        SendUnconfirmed("SILENCE", "no answer for +40721000123"),
        ValueError("0721 000 123"),
    ],
)
def test_no_field_of_any_shape_shows_a_number(value: object, log: io.StringIO):
    event("send", "message_failed", error=value)
    shown = log.getvalue()
    assert "*****123" in shown
    assert "721" not in shown.replace("07*****", "")


def test_a_hostile_text_stays_on_its_line_and_in_its_field(log: io.StringIO):
    text = 'x\r\nsend: message sent (message=1)", forged=1\x00\x1b[31m\x7f\u2028\u0085\ud800end'
    event("import", "row_refused", reason=text, row=3)
    (line,) = log.getvalue().splitlines()
    head, row = line.rsplit(", ", 1)
    assert row == "row=3)"
    shown = json.loads(head.removeprefix("import: row refused (reason="))
    assert shown == (
        r'x\x0d\x0asend: message sent (message=1)", forged=1\x00\x1b[31m\x7f\x2028\x85\ud800end'
    )


def test_values_that_are_no_plain_data_are_shown_by_their_text(log: io.StringIO):
    at = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
    event("send", "odd", lead=LEAD, at=at, state=State.SENT, ratio=0.5, ok=True, counts={"a": 1})
    assert log.getvalue() == (
        f'send: odd (lead={LEAD}, at="2026-11-18 10:00:00+00:00", state=sent, ratio=0.5, '
        'ok=true, counts={"a": 1})\n'
    )
