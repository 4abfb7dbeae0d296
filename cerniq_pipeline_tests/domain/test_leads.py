"""The stages of a lead: every pair of stages is either a legal move or a refused one."""

from __future__ import annotations

from itertools import product

import pytest

from cerniq_pipeline.domain.leads import AUTOMATED, LEGAL_MOVES, Stage, move, stage_after_contact
from cerniq_pipeline.errors import IllegalMove

# Written out in full and on purpose not derived from the code: one row per stage.
LEGAL = {
    "COLD": "CONTACTED_WA CONTACTED_EMAIL WARM_REPLY PAUSED DEAD",
    "CONTACTED_WA": "CONTACTED_EMAIL WARM_REPLY NEGOTIATION CONVERTED DEAD PAUSED",
    "CONTACTED_EMAIL": "CONTACTED_WA WARM_REPLY NEGOTIATION CONVERTED DEAD PAUSED",
    "WARM_REPLY": "CONTACTED_WA CONTACTED_EMAIL NEGOTIATION CONVERTED DEAD PAUSED",
    "NEGOTIATION": "WARM_REPLY CONVERTED DEAD PAUSED",
    "CONVERTED": "WARM_REPLY",
    "DEAD": "WARM_REPLY COLD",
    "PAUSED": "COLD CONTACTED_WA CONTACTED_EMAIL WARM_REPLY NEGOTIATION CONVERTED DEAD",
}


@pytest.mark.parametrize(("current", "target"), list(product(Stage, Stage)))
def test_every_pair_of_stages_is_legal_or_refused(current: Stage, target: Stage):
    if target is current or target in LEGAL[current].split():
        assert move(current, target) is target
    else:
        with pytest.raises(IllegalMove) as refused:
            move(current, target)
        for legal in LEGAL[current].split():
            assert legal in str(refused.value)


def test_every_stage_has_its_row():
    assert set(LEGAL_MOVES) == set(Stage)


@pytest.mark.parametrize(
    ("current", "channel", "expected"),
    [
        (Stage.COLD, "WHATSAPP", Stage.CONTACTED_WA),
        (Stage.COLD, "EMAIL", Stage.CONTACTED_EMAIL),
        (Stage.CONTACTED_WA, "WHATSAPP", Stage.CONTACTED_WA),
        (Stage.CONTACTED_EMAIL, "WHATSAPP", Stage.CONTACTED_WA),
        (Stage.CONTACTED_WA, "EMAIL", Stage.CONTACTED_EMAIL),
    ],
)
def test_a_message_moves_a_lead_to_the_stage_of_its_channel(
    current: Stage, channel: str, expected: Stage
):
    assert stage_after_contact(current, channel) is expected


@pytest.mark.parametrize("stage", sorted(set(Stage) - AUTOMATED))
def test_a_message_that_was_in_flight_does_not_pull_a_conversation_back(stage: Stage):
    assert stage_after_contact(stage, "WHATSAPP") is stage
