"""A phone that is connected but dead is told from one that merely had a slow day."""

from __future__ import annotations

import pytest

from cerniq_pipeline.domain.health import Traffic, chance_of_silence, score, suspiciously_silent


@pytest.mark.parametrize(
    ("sent_before", "replies_before", "sent_since", "silent"),
    [
        (100, 20, 20, False),  # 0.8^20 is 1.15 %
        (100, 20, 21, True),  # 0.8^21 is 0.92 %
        (100, 50, 19, False),  # unlikely, but too few to speak of
        (100, 50, 20, True),
        (49, 40, 100, False),  # its own rate is not known yet
        (50, 40, 20, True),
        (1000, 0, 500, False),  # nobody ever answers: silence says nothing
        (100, 2, 100, False),  # 0.98^100 is 13 %
        (100, 2, 228, True),
        (60, 90, 20, True),  # people who answer twice are one at most
    ],
)
def test_silence_is_measured_against_the_phones_own_history(
    sent_before: int, replies_before: int, sent_since: int, silent: bool
):
    assert suspiciously_silent(Traffic(sent_before, replies_before, sent_since)) is silent


def test_the_chance_of_silence_is_unknown_without_a_history():
    assert chance_of_silence(Traffic(10, 5, 50)) is None
    assert chance_of_silence(Traffic(100, 50, 2)) == pytest.approx(0.25)


WELL = Traffic(sent_before=100, replies_before=10, sent_since=3)
DEAD = Traffic(sent_before=100, replies_before=30, sent_since=40)


@pytest.mark.parametrize(
    ("connected", "attempts", "failed", "traffic", "parts"),
    [
        (True, 0, 0, Traffic(0, 0, 0), (40, 30, 15, 15)),  # new, so nothing is against it
        (True, 100, 0, WELL, (40, 30, 15, 15)),
        (False, 100, 0, WELL, (0, 30, 15, 15)),
        (True, 100, 10, WELL, (40, 15, 15, 15)),
        (True, 100, 20, WELL, (40, 0, 15, 15)),
        (True, 10, 10, WELL, (40, 0, 15, 15)),
        (True, 100, 0, Traffic(100, 2, 3), (40, 30, 3, 15)),
        (True, 100, 0, DEAD, (40, 30, 15, 0)),
    ],
)
def test_a_score_is_the_sum_of_parts_that_explain_it(
    connected: bool, attempts: int, failed: int, traffic: Traffic, parts: tuple[int, ...]
):
    got = score(connected=connected, attempts=attempts, failed=failed, traffic=traffic)
    assert (got.connection, got.failures, got.replies, got.silence) == parts
    assert got.total == sum(parts)
