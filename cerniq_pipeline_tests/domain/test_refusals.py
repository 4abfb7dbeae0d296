"""Whose fault a refusal is that speaks of the phone."""

from __future__ import annotations

import pytest

from cerniq_pipeline.domain.refusals import Refused, is_the_messages_fault

BY_THIS = Refused("acme-02", sent_since=False, still_stopped=False)
BY_ANOTHER = Refused("acme-01", sent_since=False, still_stopped=True)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], False),
        ([BY_THIS], False),  # nobody knows yet: it may be the phone
        ([Refused("acme-02", sent_since=True, still_stopped=False)], True),
        ([BY_ANOTHER], True),
        ([BY_THIS, BY_ANOTHER], True),
    ],
)
def test_a_message_stops_one_phone_and_no_second(before: list[Refused], expected: bool):
    assert is_the_messages_fault(before, phone_id="acme-02") is expected
