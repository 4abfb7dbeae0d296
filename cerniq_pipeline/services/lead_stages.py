"""Move a lead by hand, and give one back to its sequence: what follows is done with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.leads import AUTOMATED, LEGAL_MOVES, Stage, known_stage, move
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.domain.replacements import refusal
from cerniq_pipeline.errors import IllegalMove, NotFound
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import (
    lead_stages,
    leads,
    outbox,
    overview,
    replacements,
    suppressions,
)
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.leads import Lead

WHY_CANCELLED = "stage change"


@dataclass(frozen=True)
class Moved:
    """A lead's move and what came of it.

    `goes_on_at` is when its sequence goes on; None: it does not, or nothing changed for it.
    """

    lead_id: UUID
    stage: Stage | None
    to: Stage
    cancelled: int = 0
    goes_on_at: datetime | None = None


@dataclass(frozen=True)
class HandedBack:
    """A lead that nobody holds any more; `goes_on_at` is None when nothing automatic may follow."""

    lead_id: UUID
    held_by: str | None
    held_since: datetime | None
    review: str | None
    """Why a person had to look, if one had to."""
    stage: Stage | None
    goes_on_at: datetime | None


@dataclass(frozen=True)
class Position:
    """Where a lead stands, where it may go, and how it came there, newest first."""

    lead_id: UUID
    company: str
    stage: Stage | None
    """None: it is in one that there is not."""
    opted_out: bool
    held_by: str | None
    held_since: datetime | None
    legal_moves: list[Stage]
    changes: list[dict[str, Any]]


def legal_moves(stage: Stage | None, *, opted_out: bool) -> list[Stage]:
    """The stages to which a lead may go; one that opted out never goes back to automation."""
    from_here = LEGAL_MOVES[stage] if stage else frozenset(Stage)
    legal = from_here - (AUTOMATED if opted_out else frozenset())
    return [each for each in Stage if each in legal]


def position(begin: Begin, lead_id: UUID, *, secret: bytes) -> Position:
    """Where a lead stands now."""
    with begin() as conn:
        lead = overview.lead(conn, lead_id)
        stage = known_stage(lead["engagement_stage"])
        addresses = (lead["telefon_principal"], lead["email_principal"])
        keys = suppressions.keys_of(secret, addresses=addresses, cui=lead["cui"])
        opted_out = (
            lead["whatsapp_opted_out"]
            or lead["email_opted_out"]
            or suppressions.is_suppressed(conn, lead["tenant_id"], keys)
        )
        return Position(
            lead_id=lead_id,
            company=lead["denumire"],
            stage=stage,
            opted_out=opted_out,
            held_by=lead["held_by"],
            held_since=lead["held_since"],
            legal_moves=legal_moves(stage, opted_out=opted_out),
            changes=lead_stages.changes(conn, lead_id),
        )


def change_stage(
    begin: Begin,
    *,
    tenant_id: str,
    lead_id: UUID,
    to: Stage,
    who: str,
    why: str,
    secret: bytes,
    now: datetime,
) -> Moved:
    """Move a lead as a person decided; raises IllegalMove with the legal moves named.

    To a stage in which people talk: what waits of its sequence is cancelled. Back to one in which a
    sequence writes: it goes on where it stopped. Two who move a lead at once come one after the
    other, and the second is judged by where the first has left it.
    """
    with begin() as conn:
        lead = _lock(conn, tenant_id, lead_id)
        if move(lead.stage, to) is lead.stage:
            return Moved(lead_id, lead.stage, to)
        opted_out = _asked_to_stop(conn, tenant_id, lead, secret)
        if opted_out and to in AUTOMATED:
            legal = ", ".join(legal_moves(lead.stage, opted_out=True))
            raise IllegalMove(
                f"this person asked not to be contacted, so the lead may not go to {to}; "
                f"legal: {legal}"
            )
        leads.change_stage(conn, lead, tenant_id=tenant_id, to=to, who=who, why=why, now=now)
        cancelled, goes_on_at = 0, None
        if to not in AUTOMATED:
            cancelled = outbox.cancel_pending(
                conn, [lead_id], why=WHY_CANCELLED, who=who, now=now, also_by_hand=False
            )
            reason = "opted_out" if opted_out else "conversation"
            leads.end_automation(conn, [lead_id], reason=reason, now=now)
        elif lead.stage not in AUTOMATED:
            lead_stages.let_go(conn, lead_id, now=now)
            goes_on_at = _go_on(conn, lead_id, secret=secret, who=who, now=now)
    event("lead_stages", "lead_moved", lead=str(lead_id), by=who, to=to, cancelled=cancelled)
    return Moved(lead_id, lead.stage, to, cancelled, goes_on_at)


def hand_back(
    begin: Begin,
    *,
    tenant_id: str,
    lead_id: UUID,
    who: str,
    why: str,
    secret: bytes,
    now: datetime,
) -> HandedBack:
    """Give a lead back that a person took over or had to look at; its sequence goes on if its
    stage has one.

    Also one whose sequence ended because the same person wrote to us as another lead.

    No stage changes, so the log alone says who did it and why.
    """
    with begin() as conn:
        lead = _lock(conn, tenant_id, lead_id)
        before = lead_stages.let_go(conn, lead_id, now=now)
        holder = before.holder
        if holder is None and before.review is None and not before.in_conversation:
            raise NotFound(f"nobody holds lead {lead_id} or must look at it; nothing to give back")
        goes_on_at = None
        if lead.stage in AUTOMATED and not _asked_to_stop(conn, tenant_id, lead, secret):
            goes_on_at = _go_on(conn, lead_id, secret=secret, who=who, now=now)
    held_by = holder.name if holder else None
    event("lead_stages", "lead_handed_back", lead=str(lead_id), held_by=held_by, by=who, why=why)
    since = holder.since if holder else None
    return HandedBack(lead_id, held_by, since, before.review, lead.stage, goes_on_at)


def _lock(conn: Connection, tenant_id: str, lead_id: UUID) -> Lead:
    found = leads.lock(conn, tenant_id, [lead_id])
    if not found:
        raise NotFound(f"no lead {lead_id} of tenant {tenant_id}")
    return found[0]


def _asked_to_stop(conn: Connection, tenant_id: str, lead: Lead, secret: bytes) -> bool:
    keys = suppressions.keys_of(secret, addresses=(lead.phone, lead.email), cui=lead.cui)
    return lead.opted_out or suppressions.is_suppressed(conn, tenant_id, keys)


def _go_on(conn: Connection, lead_id: UUID, *, secret: bytes, who: str, now: datetime) -> datetime:
    """Let a lead's sequence go on; returns when.

    A step that was planned once is never planned again, also when it was cancelled: so a new
    message takes its place, at the time at which the first was due.
    """
    looked_at = lead_stages.look_again(conn, lead_id, now=now)
    step = lead_stages.cancelled_step(conn, lead_id)
    if step is None:
        return looked_at
    original = replacements.lock_originals(conn, [step.message_id], secret=secret)
    if refusal(original[step.message_id], now=now):
        return looked_at
    made = replacements.replace(conn, [step.message_id], by=who, now=now)
    if not made:
        return looked_at
    if step.due_at <= now:
        return now
    outbox.move(
        conn,
        made[step.message_id],
        current=State.PLANNED,
        target=State.DEFERRED,
        why="its step is not due yet",
        who=who,
        now=now,
        due_at=step.due_at,
    )
    return step.due_at
