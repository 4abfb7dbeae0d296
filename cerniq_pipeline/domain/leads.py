"""A lead's stages and legal moves, and the lawful basis on which it may be contacted."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, get_args

from cerniq_pipeline.errors import IllegalMove


class Stage(StrEnum):
    """How far the conversation with a lead has come."""

    COLD = "COLD"
    CONTACTED_WA = "CONTACTED_WA"
    CONTACTED_EMAIL = "CONTACTED_EMAIL"
    WARM_REPLY = "WARM_REPLY"
    NEGOTIATION = "NEGOTIATION"
    CONVERTED = "CONVERTED"
    DEAD = "DEAD"
    PAUSED = "PAUSED"


class LawfulBasis(StrEnum):
    """Why we may write to this lead at all."""

    CONSENT = "consent"
    EXISTING_CUSTOMER = "existing_customer"
    LEGITIMATE_INTEREST = "legitimate_interest"


def known_stage(written: str | None) -> Stage | None:
    """The stage of this name; None for a word that is none: others write them too."""
    return next((stage for stage in Stage if stage == written), None)


def known_basis(written: str | None) -> LawfulBasis | None:
    """The basis of this name; None for a word that is none."""
    return next((basis for basis in LawfulBasis if basis == written), None)


def unreadable(*, stage: str | None, basis: str | None, name: str | None) -> str | None:
    """What in a lead's rows keeps everybody from knowing what may be written to it, and where.

    Not what stands there: that may be anybody's words.
    """
    if known_stage(stage) is None:
        return "gold_lead_journey.engagement_stage is no stage that there is"
    if basis is not None and known_basis(basis) is None:
        return "gold_lead_journey.lawful_basis is no basis that there is"
    if name is None:
        return "gold_companies.denumire is null"
    return None


Priority = Literal["URGENT", "HIGH", "MEDIUM", "LOW"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
"""How soon a person must look, gravest first."""

ENDINGS = ("opted_out", "human_takeover", "reply", "failed")
"""Why a sequence ends, gravest first: whichever is told last, the graver one stays. Any other
reason takes the place of what stands there."""

ENDED_BY_PEOPLE = frozenset({"human_takeover", "reply"})
"""Those that a person may take back: the lead spoke with one of us, as this lead or as another."""

AUTOMATED = frozenset({Stage.COLD, Stage.CONTACTED_WA, Stage.CONTACTED_EMAIL})
"""Stages in which a sequence may write by itself; from WARM_REPLY on, people talk."""

_CONTACTED = frozenset({Stage.CONTACTED_WA, Stage.CONTACTED_EMAIL})
_TALKING = frozenset({Stage.WARM_REPLY, Stage.NEGOTIATION})
_CLOSED = frozenset({Stage.CONVERTED, Stage.DEAD})

_WARMED = AUTOMATED | {Stage.DEAD}
_ENDED_BY_A_STOP = AUTOMATED | {Stage.WARM_REPLY}

LEGAL_MOVES: dict[Stage, frozenset[Stage]] = {
    Stage.COLD: _CONTACTED | {Stage.WARM_REPLY, Stage.PAUSED, Stage.DEAD},
    Stage.CONTACTED_WA: _TALKING | _CLOSED | {Stage.CONTACTED_EMAIL, Stage.PAUSED},
    Stage.CONTACTED_EMAIL: _TALKING | _CLOSED | {Stage.CONTACTED_WA, Stage.PAUSED},
    Stage.WARM_REPLY: _CONTACTED | {Stage.NEGOTIATION, Stage.PAUSED} | _CLOSED,
    Stage.NEGOTIATION: _CLOSED | {Stage.WARM_REPLY, Stage.PAUSED},
    Stage.CONVERTED: frozenset({Stage.WARM_REPLY}),
    Stage.DEAD: frozenset({Stage.WARM_REPLY, Stage.COLD}),
    Stage.PAUSED: frozenset(Stage) - {Stage.PAUSED},
}


def move(current: Stage | None, target: Stage) -> Stage:
    """Return the new stage; staying put is always legal, and so is leaving an unknown one."""
    if current is not None and target is not current and target not in LEGAL_MOVES[current]:
        legal = ", ".join(sorted(LEGAL_MOVES[current]))
        raise IllegalMove(f"a lead may not go from {current} to {target}; legal: {legal}")
    return target


def stage_after_contact(current: Stage | None, channel: str) -> Stage | None:
    """Return the stage of a lead once an automatic message on this channel went out.

    Here and below: one that nobody knows (None) stays as it is.
    """
    if current not in AUTOMATED:
        return current
    return move(current, Stage.CONTACTED_WA if channel == "WHATSAPP" else Stage.CONTACTED_EMAIL)


def stage_after_reply(current: Stage | None, *, opted_out: bool) -> Stage | None:
    """Return the stage of a lead that wrote to us; who asked to stop is not warm."""
    if opted_out or current not in _WARMED:
        return current
    return move(current, Stage.WARM_REPLY)


def stage_after_stop(current: Stage | None) -> Stage | None:
    """Return the stage of a lead that asked to stop; what people made of it stays."""
    return move(current, Stage.DEAD) if current in _ENDED_BY_A_STOP else current
