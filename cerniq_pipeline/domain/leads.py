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


def move(current: Stage, target: Stage) -> Stage:
    """Return the new stage; staying put is always legal."""
    if target is not current and target not in LEGAL_MOVES[current]:
        legal = ", ".join(sorted(LEGAL_MOVES[current]))
        raise IllegalMove(f"a lead may not go from {current} to {target}; legal: {legal}")
    return target


def stage_after_contact(current: Stage, channel: str) -> Stage:
    """Return the stage of a lead once an automatic message on this channel went out."""
    if current not in AUTOMATED:
        return current
    return move(current, Stage.CONTACTED_WA if channel == "WHATSAPP" else Stage.CONTACTED_EMAIL)


def stage_after_reply(current: Stage, *, opted_out: bool) -> Stage:
    """Return the stage of a lead that wrote to us; who asked to stop is not warm."""
    if opted_out or current not in _WARMED:
        return current
    return move(current, Stage.WARM_REPLY)


def stage_after_stop(current: Stage) -> Stage:
    """Return the stage of a lead that asked to stop; what people made of it stays."""
    return move(current, Stage.DEAD) if current in _ENDED_BY_A_STOP else current
