"""The states of a message: no arrow leads back to a second send of what may have gone out."""

from __future__ import annotations

from itertools import product

import pytest

from cerniq_pipeline.domain.outbox import (
    CLAIMABLE,
    LEGAL_MOVES,
    MAY_HAVE_GONE_OUT,
    OPEN,
    State,
    check_move,
)
from cerniq_pipeline.errors import IllegalMove

# Written out in full and on purpose not derived from the code: one row per state.
LEGAL = {
    "planned": "sending deferred failed cancelled",
    "deferred": "sending deferred failed cancelled",
    "sending": "sent deferred unconfirmed failed",
    "unconfirmed": "sent parked",
    "parked": "sent cancelled",
    "sent": "",
    "failed": "",
    "cancelled": "",
}


@pytest.mark.parametrize(("current", "target"), list(product(State, State)))
def test_every_pair_of_states_is_legal_or_refused(current: State, target: State):
    legal = LEGAL[current].split()
    if target in legal:
        check_move(current, target)
    else:
        with pytest.raises(IllegalMove) as refused:
            check_move(current, target)
        said = str(refused.value)
        assert all(name in said for name in legal)
        assert ("final" in said) is (not legal)


def reachable(start: State) -> set[State]:
    """Every state that some chain of legal moves leads to."""
    found: set[State] = set()
    edge = {start}
    while edge:
        found |= edge
        edge = {target for state in edge for target in LEGAL_MOVES[state]} - found
    return found


@pytest.mark.parametrize("doubtful", [State.UNCONFIRMED, State.PARKED])
def test_what_may_have_gone_out_is_never_claimed_again(doubtful: State):
    assert State.SENDING not in reachable(doubtful)
    assert not reachable(doubtful) & set(CLAIMABLE)


def test_what_went_out_stays_gone_out():
    assert reachable(State.SENT) == {State.SENT}


def test_every_state_can_come_to_an_end():
    final = {state for state in State if not LEGAL_MOVES[state]}
    assert final == {State.SENT, State.FAILED, State.CANCELLED}
    assert all(reachable(state) & final for state in State)


def test_when_in_doubt_a_message_counts_as_sent():
    assert {*MAY_HAVE_GONE_OUT} == {State.SENDING, State.SENT, State.UNCONFIRMED, State.PARKED}
    assert {*OPEN} == {*State} - {State.SENT, State.FAILED, State.CANCELLED}
