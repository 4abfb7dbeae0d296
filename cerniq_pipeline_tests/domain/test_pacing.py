"""The gap between two sends, and the retry of a send that certainly did not happen."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cerniq_pipeline.domain.pacing import RETRY_RULES, Gap, retry_in

S = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("gap", "luck", "speed", "expected"),
    [
        (Gap(), 0.0, 1.0, 30 * S),
        (Gap(), 0.5, 1.0, 90 * S),
        (Gap(), 0.999999, 1.0, 149.99988 * S),  # never the full spread
        (Gap(), 0.5, 20.0, 4.5 * S),  # the sandbox's time runs faster
        (Gap(least=30 * S, spread=60 * S), 0.5, 1.0, 60 * S),
        (Gap(least=timedelta(), spread=timedelta()), 0.7, 1.0, timedelta()),
    ],
)
def test_a_gap_is_a_floor_plus_a_lucky_part_of_its_spread(
    gap: Gap, luck: float, speed: float, expected: timedelta
):
    assert gap.draw(luck, speed=speed) == expected


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        ("RATE_LIMITED", [60, 60, 60, 60, 60, None]),
        ("UNREACHABLE", [30, 60, 120, None]),
        ("TOO_LATE", [30, 60, 120, None]),
        ("CHAT_UNKNOWN", [60, 120, 240, 480, 960, None]),
        ("NOBODY_KNOWS_THIS_CODE", [None]),
    ],
)
def test_each_reason_is_retried_as_often_as_its_rule_says(code: str, waits: list[int | None]):
    given = [retry_in(code, retries_so_far=n, asked=None) for n in range(len(waits))]
    assert given == [None if seconds is None else seconds * S for seconds in waits]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, 60 * S),
        (timedelta(), 60 * S),
        (10 * S, 60 * S),  # sooner than the policy: the policy binds
        (600 * S, 600 * S),  # later: the provider's word binds
    ],
)
def test_a_providers_retry_after_is_a_floor(asked: timedelta | None, expected: timedelta):
    assert retry_in("RATE_LIMITED", retries_so_far=0, asked=asked) == expected


def test_a_providers_retry_after_does_not_add_a_try():
    spent = RETRY_RULES["RATE_LIMITED"].retries
    assert retry_in("RATE_LIMITED", retries_so_far=spent, asked=5 * S) is None
