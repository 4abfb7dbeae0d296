"""What the sending core promises holds in every order of events, and each protection is needed.

`pytest -rP` shows the shortest trace of each mutant that fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields

import pytest

from cerniq_pipeline_tests.model.outbox_model import (
    MOVES,
    Faults,
    MessageState,
    Promise,
    Result,
    Rules,
    explore,
)

logger = logging.getLogger(__name__)

RecordProperty = Callable[[str, object], None]

# Transitions that only a mutant takes, or only a test with faults of its own.
MUTANT_MOVES = {"retry_call", "tell_gate", "sweep_overdue", "reply", "change_its_mind"}
EVERY_STATE: set[MessageState] = {
    "planned",
    "sending",
    "sent",
    "deferred",
    "unconfirmed",
    "parked",
    "cancelled",
    "failed",
}

# (rules, cap, the promise that breaks). Two messages and two workers are enough for each. Where
# two messages must be in the air at once, cap 1 would hide it: the first one stays counted.
FAILS = {
    "retry on timeout": (Rules(retry_on_timeout=True), 1, "DUPLICATE"),
    "rescue to ready, holder killed first": (Rules(rescue_to_ready=True), 1, "DUPLICATE"),
    "takeover without kill": (Rules(takeover_without_kill=True), 2, "TWO AT ONCE"),
    "takeover without kill or fence": (
        Rules(takeover_without_kill=True, no_fence=True),
        2,
        "TWO AT ONCE",
    ),
    "no lease": (Rules(no_lease=True), 2, "TWO AT ONCE"),
    "quota released on unknown": (Rules(release_quota_on_unknown=True), 1, "OVER QUOTA"),
    "Redis is truth": (Rules(redis_is_truth=True), 1, "OVER QUOTA"),
    "opt-out at enqueue only": (Rules(opt_out_at_enqueue_only=True), 1, "AFTER OPT-OUT"),
    "opt-out cancels, begin trusts that": (Rules(opt_out_cancels_only=True), 1, "AFTER OPT-OUT"),
    "absent requeues, history lags": (Rules(absent_requeues=True), 1, "DUPLICATE"),
    "no reaper": (Rules(no_reaper=True), 1, "STUCK"),
    "no gate sweep": (Rules(no_gate_sweep=True), 1, "STUCK"),
}

# (rules, cap). Each of these has another protection behind it. With cap 2 both messages may be in
# the air, with cap 1 they compete for quota: each row has the cap that is harder for it.
HOLDS = {
    "no fence, holder killed first": (Rules(no_fence=True), 2),
    "no unique index on sending": (Rules(no_sending_index=True), 2),
    "Redis gate not atomic, ledger kept": (Rules(redis_gate_not_atomic=True), 1),
    "absent requeues, history exact": (Rules(absent_requeues=True, exact_history=True), 1),
}


def note(result: Result, record_property: RecordProperty) -> None:
    """Put what was seen into the test report."""
    record_property("states", result.states)
    if result.violation:
        record_property("trace", str(result.violation))
        logger.info("%s", result.violation)


@pytest.mark.parametrize(("messages", "cap", "floor"), [(2, 1, 10_000), (3, 2, 100_000)])
def test_the_core_keeps_every_promise_in_every_order_of_events(
    messages: int, cap: int, floor: int, record_property: RecordProperty
) -> None:
    result = explore(Rules(), messages=messages, workers=2, cap=cap)
    note(result, record_property)
    assert result.violation is None, str(result.violation)
    assert result.states > floor  # far fewer would mean that some orders were never tried
    assert result.reached == EVERY_STATE
    assert result.taken == {move.__name__ for move, _ in MOVES} - MUTANT_MOVES


@pytest.mark.parametrize(("rules", "cap", "promise"), FAILS.values(), ids=FAILS)
def test_without_one_protection_a_promise_breaks(
    rules: Rules,
    cap: int,
    promise: Promise,
    record_property: RecordProperty,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    result = explore(rules, messages=2, workers=2, cap=cap)
    note(result, record_property)
    assert result.violation is not None
    assert result.violation.promise == promise, str(result.violation)


@pytest.mark.parametrize(("rules", "cap"), HOLDS.values(), ids=HOLDS)
def test_what_has_a_second_line_behind_it_holds(
    rules: Rules, cap: int, record_property: RecordProperty
) -> None:
    result = explore(rules, messages=2, workers=2, cap=cap)
    note(result, record_property)
    assert result.violation is None, str(result.violation)
    assert result.states > 10_000


def test_the_ledger_alone_keeps_the_quota_when_workers_race_through_the_gate(
    record_property: RecordProperty,
) -> None:
    """No lease, so that two workers really meet between looking at Redis and adding to it.

    Other promises break without a lease; here only the quota is watched. Fewer faults than
    elsewhere (one crash, no pause, no silence), because racing workers multiply the states.
    """
    result = explore(
        Rules(no_lease=True, redis_gate_not_atomic=True),
        messages=2,
        workers=2,
        cap=1,
        faults=Faults(crashes=1, pauses=0, silences=0),
        watched=frozenset({"OVER QUOTA"}),
    )
    note(result, record_property)
    assert result.violation is None, str(result.violation)
    assert "tell_gate" in result.taken
    assert result.states > 5_000


def test_the_same_race_breaks_the_quota_when_only_redis_limits(
    record_property: RecordProperty, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    result = explore(
        Rules(no_lease=True, redis_gate_not_atomic=True, redis_is_truth=True),
        messages=2,
        workers=2,
        cap=1,
        faults=Faults(crashes=0, pauses=0, flushes=0, silences=0, refusals=0),
        watched=frozenset({"OVER QUOTA"}),
    )
    note(result, record_property)
    assert result.violation is not None
    assert "Redis is flushed" not in result.violation.steps


ONE_PERSON = Faults(crashes=1, pauses=0, flushes=0, replies=1)
"""For messages to several leads of one person, who answers as one of them."""


def test_a_reply_ends_what_goes_to_every_lead_of_the_person(
    record_property: RecordProperty,
) -> None:
    result = explore(Rules(), messages=2, workers=2, cap=2, faults=ONE_PERSON)
    note(result, record_property)
    assert result.violation is None, str(result.violation)
    assert "reply" in result.taken
    assert result.states > 5_000


def test_a_reply_that_only_cancels_lets_a_copy_in_flight_go_on() -> None:
    rules = Rules(reply_cancels_only=True)
    result = explore(rules, messages=2, workers=2, cap=2, faults=ONE_PERSON)
    assert result.violation is not None
    assert result.violation.promise == "AFTER REPLY"
    assert result.violation.steps[-2:] == (
        "the person answers message 2",
        "worker A records message 1: sent",
    )


LATE_WORDS = Faults(crashes=1, pauses=0, flushes=1, late=3)
"""For a provider that says more of a message after it took it."""


def test_what_is_said_after_a_message_was_taken_frees_no_place(
    record_property: RecordProperty,
) -> None:
    result = explore(Rules(), messages=2, workers=2, cap=1, faults=LATE_WORDS)
    note(result, record_property)
    assert result.violation is None, str(result.violation)
    assert "change_its_mind" in result.taken
    assert result.states > 5_000


def test_a_place_that_a_late_failure_frees_is_given_away_twice() -> None:
    rules = Rules(release_quota_on_late_failure=True)
    result = explore(rules, messages=2, workers=2, cap=1, faults=LATE_WORDS)
    assert result.violation is not None
    assert result.violation.promise == "OVER QUOTA"
    assert "the provider says that message 1 has failed" in result.violation.steps


def test_a_violation_is_told_in_its_fewest_steps() -> None:
    result = explore(Rules(opt_out_at_enqueue_only=True), messages=2, workers=2, cap=1)
    assert str(result.violation).splitlines() == [
        "AFTER OPT-OUT in 4 steps",
        "  1. worker A claims the phone",
        "  2. worker A asks Redis about message 1: granted",
        "  3. the person of message 1 opts out",
        "  4. worker A begins message 1",
    ]


def test_every_switch_is_tried() -> None:
    tried = [rules for rules, _, _ in FAILS.values()] + [rules for rules, _ in HOLDS.values()]
    tried += [Rules(reply_cancels_only=True), Rules(release_quota_on_late_failure=True)]
    for switch in fields(Rules):
        assert any(getattr(rules, switch.name) for rules in tried), switch.name
