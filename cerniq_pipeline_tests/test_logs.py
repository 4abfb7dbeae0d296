"""Structured events: one JSON object a line, no telephone number, no broken line."""

from __future__ import annotations

import io
import json
import logging
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

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


def written(log: io.StringIO) -> dict[str, object]:
    """The one event in the log."""
    (line,) = log.getvalue().splitlines()
    return json.loads(line)


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


def test_an_event_has_its_fields_and_leaves_empty_ones_out(log: io.StringIO):
    event(
        "send",
        "message_sent",
        job=17,
        lead=str(LEAD),
        phone="acme-01",
        channel="WHATSAPP",
        duration_ms=42,
        error=None,
    )
    assert written(log) == {
        "level": "info",
        "worker": "send",
        "action": "message_sent",
        "job": 17,
        "lead": str(LEAD),
        "phone": "acme-01",
        "channel": "WHATSAPP",
        "duration_ms": 42,
    }


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_an_event_is_logged_at_its_level(level: str, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG, logger="cerniq"):
        event("shift", "shift_opened", level=level)  # pyright: ignore[reportArgumentType]
    (record,) = caplog.records
    assert record.name == "cerniq.shift"
    assert record.levelname == level.upper()
    assert json.loads(record.getMessage())["level"] == level


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
    text = 'x\r\n{"level":"error","action":"forged"}\x00\x1b[31m\x7f\u2028\u0085end'
    event("import", "row_refused", reason=text)
    assert len(log.getvalue().splitlines()) == 1
    record = written(log)
    assert record["action"] == "row_refused"
    reason = str(record["reason"])
    assert reason.startswith("x\\x0d\\x0a{")
    assert "\\x00\\x1b[31m\\x7f" in reason
    assert not any(ord(char) < 32 or ord(char) == 127 for char in reason)


def test_values_that_are_no_json_are_shown_by_their_text(log: io.StringIO):
    at = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
    event("send", "odd", lead=LEAD, at=at, state=State.SENT, ratio=0.5, ok=True)
    record = written(log)
    assert record["lead"] == str(LEAD)
    assert record["at"] == "2026-11-18 10:00:00+00:00"
    assert (record["state"], record["ratio"], record["ok"]) == ("sent", 0.5, True)
