"""Breakers open after troubles in a row, let one probe through at a time, and close on success."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cerniq_pipeline.domain.breakers import (
    LONGEST_PAUSE,
    PROBE_EVERY,
    TROUBLES_TO_OPEN,
    Breaker,
    Scope,
    after_probe,
    after_success,
    after_trouble,
)
from cerniq_pipeline_tests.builders import NOON

S = timedelta(seconds=1)


def opened(scope: Scope = "provider") -> Breaker:
    breaker = Breaker(scope, "one")
    for _ in range(TROUBLES_TO_OPEN[scope]):
        breaker = after_trouble(breaker, "SILENCE", now=NOON)
    return breaker


@pytest.mark.parametrize("scope", ["provider", "phone"])
def test_it_opens_after_so_many_troubles_and_not_before(scope: Scope):
    breaker = Breaker(scope, "one")
    for _ in range(TROUBLES_TO_OPEN[scope] - 1):
        breaker = after_trouble(breaker, "SILENCE", now=NOON)
        assert (breaker.state, breaker.holds_until(NOON)) == ("closed", None)
    breaker = after_trouble(breaker, "ODD_STATUS", now=NOON)
    assert (breaker.state, breaker.last_code) == ("open", "ODD_STATUS")
    assert breaker.holds_until(NOON) == NOON + PROBE_EVERY


def test_one_answer_in_between_starts_the_count_again():
    breaker = replace(Breaker("phone", "one"), failures=2)
    breaker = after_trouble(after_success(breaker), "SILENCE", now=NOON)
    assert (breaker.state, breaker.failures) == ("closed", 1)


def test_an_open_one_holds_also_when_its_probe_is_due():
    breaker = opened()
    assert breaker.holds_until(NOON + 10 * PROBE_EVERY) == NOON + PROBE_EVERY


@pytest.mark.parametrize(
    ("answered", "state", "wait"), [(True, "half_open", 0 * S), (False, "open", PROBE_EVERY)]
)
def test_a_probe_lets_one_message_try_or_waits_for_the_next(
    answered: bool, state: str, wait: timedelta
):
    later = NOON + PROBE_EVERY
    breaker = after_probe(opened(), answered=answered, now=later)
    assert (breaker.state, breaker.probe_at) == (state, later + wait)
    assert (breaker.holds_until(later) is None) == answered


def test_a_half_open_one_holds_everybody_while_its_message_is_under_way():
    breaker = after_probe(opened(), answered=True, now=NOON)
    under_way = replace(breaker, probe_at=NOON + PROBE_EVERY)
    assert under_way.holds_until(NOON) == NOON + PROBE_EVERY
    assert under_way.holds_until(NOON + PROBE_EVERY) is None


def test_each_failed_try_doubles_the_pause_up_to_the_longest():
    pauses = []
    breaker = opened()
    for _ in range(8):
        half_open = after_probe(breaker, answered=True, now=NOON)
        breaker = after_trouble(half_open, "SILENCE", now=NOON)
        assert breaker.probe_at is not None
        pauses.append(breaker.probe_at - NOON)
    assert pauses == [60 * S, 120 * S, 240 * S, 480 * S, *[LONGEST_PAUSE] * 4]


def test_a_call_that_was_under_way_when_it_opened_changes_no_time():
    breaker = opened()
    late = after_trouble(breaker, "SILENCE", now=NOON + S)
    assert (late.state, late.probe_at, late.openings) == ("open", breaker.probe_at, 1)


def test_success_closes_it_and_forgets():
    assert after_success(opened()) == Breaker("provider", "one", last_code="SILENCE")


def test_a_probe_that_comes_too_late_changes_nothing():
    closed = after_success(opened())
    assert after_probe(closed, answered=False, now=NOON) == closed
