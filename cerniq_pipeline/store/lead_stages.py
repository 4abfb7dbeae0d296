"""What people do with a lead's stage: its history, who holds it, and how its sequence goes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text


@dataclass(frozen=True)
class Step:
    """A message that brings a step, and when it is due."""

    message_id: int
    due_at: datetime


@dataclass(frozen=True)
class Holder:
    """The person who talks to a lead by hand."""

    name: str
    since: datetime


def changes(conn: Connection, lead_id: UUID) -> list[dict[str, Any]]:
    """Every move of a lead, newest first."""
    rows = conn.execute(
        text("""
            SELECT at, from_stage, to_stage, who, why FROM stage_changes
            WHERE lead_id = :lead ORDER BY at DESC, id DESC
        """),
        {"lead": lead_id},
    ).mappings()
    return [dict(row) for row in rows]


@dataclass(frozen=True)
class Before:
    """Why nothing automatic was written to a lead."""

    holder: Holder | None
    review: str | None
    """Why a person had to look at it."""
    in_conversation: bool
    """Whether the person spoke with one of us, as this lead or as another."""


def let_go(conn: Connection, lead_id: UUID, *, now: datetime) -> Before:
    """Note that nobody talks to a locked lead or must look at it any more; returns how it was."""
    row = conn.execute(
        text("""
            UPDATE gold_lead_journey j
            SET held_by = NULL, held_since = NULL, in_conversation = false,
                requires_human_review = false, human_review_reason = NULL,
                human_review_priority = NULL, updated_at = :now
            FROM gold_lead_journey before
            WHERE j.lead_id = :lead AND before.lead_id = j.lead_id
            RETURNING before.held_by, before.held_since,
                      CASE WHEN before.requires_human_review
                           THEN coalesce(before.human_review_reason, 'a person') END,
                      before.in_conversation
        """),
        {"lead": lead_id, "now": now},
    ).one()
    return Before(Holder(row[0], row[1]) if row[0] else None, row[2], row[3])


def look_again(conn: Connection, lead_id: UUID, *, now: datetime) -> datetime:
    """Let selection look at a lead from now on, but not before its next step would be due."""
    return conn.execute(
        text("""
            UPDATE gold_lead_journey j
            SET hold_reason = NULL, updated_at = :now, next_action_at = greatest(
                  :now, j.last_contact_at + (
                    SELECT make_interval(mins => s.delay_minutes)
                    FROM tenants t JOIN sequence_steps s
                      ON s.sequence_id = coalesce(j.current_sequence_id, t.default_sequence_id)
                    WHERE t.id = j.tenant_id AND s.step = j.sequence_step + 1))
            WHERE j.lead_id = :lead RETURNING j.next_action_at
        """),
        {"lead": lead_id, "now": now},
    ).scalar_one()


def cancelled_step(conn: Connection, lead_id: UUID) -> Step | None:
    """The message of a lead's next step, if it was cancelled before it began.

    It keeps its step for itself: selection would find it planned before. One that was parked may
    have gone out, so it is not meant.
    """
    row = conn.execute(
        text("""
            SELECT o.id, o.due_at
            FROM gold_lead_journey j JOIN tenants t ON t.id = j.tenant_id
            JOIN outbox_messages o ON o.lead_id = j.lead_id AND o.step = j.sequence_step + 1
              AND o.sequence_id = coalesce(j.current_sequence_id, t.default_sequence_id)
            JOIN outbox_changes c ON c.message_id = o.id AND c.to_state = 'cancelled'
              AND c.from_state IN ('planned', 'deferred')
            WHERE j.lead_id = :lead AND o.state = 'cancelled' AND o.replaced_by IS NULL
        """),
        {"lead": lead_id},
    ).one_or_none()
    return Step(*row) if row else None
