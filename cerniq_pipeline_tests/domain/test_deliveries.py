"""What is told of a message: whose word it is, and what it may decide."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cerniq_pipeline.domain.deliveries import Delivery, as_shown


def told(status: str, **changes: object) -> Delivery:
    values: dict[str, object] = {
        "external_id": "m1",
        "status": status,
        "at": datetime(2026, 11, 18, tzinfo=UTC),
        "code": None,
        "title": "",
        "meaning": None,
        "callback": None,
    }
    return Delivery(**(values | changes))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("word", "shown", "believed"),
    [
        ("delivered", "sending", None),
        ("delivered", "sent", None),
        ("delivered", "failed", None),
        ("delivered", "delivered", "delivered"),
        ("delivered", "read", "read"),
        ("read", "delivered", None),
        ("failed", "sent", None),
        ("failed", "failed", "failed"),
        ("failed", "delivered", "delivered"),
    ],
)
def test_of_what_nobody_signed_only_what_the_provider_shows_is_believed(
    word: str, shown: str, believed: str | None
):
    own = as_shown(told(word), shown)
    assert (own and own.status) == believed


@pytest.mark.parametrize(
    ("meaning", "kept"), [("WINDOW_CLOSED", None), ("PHONE_BANNED", None), ("OPTED_OUT",) * 2]
)
def test_a_code_that_nobody_signed_is_read_by_people_and_decides_only_a_stop(
    meaning: str, kept: str | None
):
    own = as_shown(told("failed", code=131047, title="No", meaning=meaning), "failed")
    assert own is not None
    assert (own.code, own.title, own.meaning) == (131047, "No", kept)


@pytest.mark.parametrize(
    ("callback", "ours"),
    [(None, None), ("42", 42), ("", None), ("lead-42", None), ("-1", None), ("9" * 19, None)],
)
def test_a_reference_of_ours_is_a_number_and_others_write_what_they_like(
    callback: str | None, ours: int | None
):
    assert told("sent", callback=callback).our_id == ours
