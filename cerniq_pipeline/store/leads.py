"""Leads: what a send, an opt-out or a failure does to a lead's journey, and the log of messages."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from datetime import date, datetime
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.leads import Stage
from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt


def record_contact(
    conn: Connection,
    message: OutboxMessage,
    receipt: Receipt,
    *,
    stage: Stage,
    new_stage: Stage,
    quota_day: date | None,
    sent_at: datetime,
    who: str,
) -> None:
    """Write into the journey that a message went out, and audit the stage if it moved."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET engagement_stage = :new_stage,
                previous_stage = CASE WHEN :moved THEN :stage ELSE previous_stage END,
                stage_changed_at = CASE WHEN :moved THEN :at ELSE stage_changed_at END,
                is_new_contact = false, last_channel_used = :channel,
                first_contact_at = coalesce(first_contact_at, :at), last_contact_at = :at,
                quota_consumption_date = coalesce(:day, quota_consumption_date),
                sequence_step = coalesce(:step, sequence_step),
                assigned_phone_id = :phone, assigned_at = coalesce(assigned_at, :at),
                chat_id = coalesce(:chat, chat_id), hold_reason = NULL, updated_at = :at
            WHERE lead_id = :lead
        """),
        {
            "lead": message.lead_id,
            "stage": stage,
            "new_stage": new_stage,
            "moved": stage != new_stage,
            "at": sent_at,
            "channel": message.channel,
            "day": quota_day,
            "step": message.step,
            "phone": message.phone_id,
            "chat": receipt.chat_id,
        },
    )
    if stage != new_stage:
        record_stage_change(
            conn,
            tenant_id=message.tenant_id,
            lead_id=message.lead_id,
            stage=stage,
            new_stage=new_stage,
            who=who,
            why=f"{message.kind} message sent",
            now=sent_at,
        )


def record_stage_change(
    conn: Connection,
    *,
    tenant_id: str,
    lead_id: UUID,
    stage: Stage,
    new_stage: Stage,
    who: str,
    why: str,
    now: datetime,
) -> None:
    """One audit row for one move of a lead."""
    conn.execute(
        text("""
            INSERT INTO stage_changes (tenant_id, lead_id, from_stage, to_stage, at, who, why)
            VALUES (:tenant, :lead, :stage, :new_stage, :now, :who, :why)
        """),
        {
            "tenant": tenant_id,
            "lead": lead_id,
            "stage": stage,
            "new_stage": new_stage,
            "now": now,
            "who": who,
            "why": why,
        },
    )


def log_message(
    conn: Connection,
    message: OutboxMessage,
    receipt: Receipt,
    *,
    quota_cost: int,
    sent_at: datetime,
) -> None:
    """Write the sent message into the communication log, once."""
    conn.execute(
        text("""
            INSERT INTO gold_communication_log
              (tenant_id, lead_journey_id, channel, direction, template_id, content,
               content_rendered, external_message_id, thread_id, phone_id, phone_number, status,
               media_type, sent_at, quota_cost, sequence_id, sequence_step, job_id)
            SELECT :tenant, :lead, :channel, 'OUTBOUND', o.template_id, t.content, :body,
                   :external, :chat, :phone, :sender, 'SENT', :media, :at, :cost, :sequence, :step,
                   o.id
            FROM outbox_messages o LEFT JOIN templates t ON t.id = o.template_id
            WHERE o.id = :id
            ON CONFLICT DO NOTHING
        """),
        {
            "id": message.id,
            "tenant": message.tenant_id,
            "lead": message.lead_id,
            "channel": message.channel,
            "body": message.body,
            "external": receipt.external_id,
            "chat": receipt.chat_id or message.chat_id,
            "phone": message.phone_id,
            "sender": message.sender,
            "media": message.media.kind if message.media else None,
            "at": sent_at,
            "cost": quota_cost,
            "sequence": message.sequence_id,
            "step": message.step,
        },
    )


def after_message(
    conn: Connection,
    lead_id: UUID,
    *,
    open_message: bool,
    next_action_at: datetime | None,
    hold_reason: str | None,
    now: datetime,
) -> None:
    """Say whether the lead still has a message under way, and when selection looks at it again."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET open_message = :open, next_action_at = :next, hold_reason = :hold, updated_at = :now
            WHERE lead_id = :lead
        """),
        {
            "lead": lead_id,
            "open": open_message,
            "next": next_action_at,
            "hold": hold_reason,
            "now": now,
        },
    )


def end_sequence(conn: Connection, message_id: int, *, reason: str, now: datetime) -> None:
    """Close the lead of a message that goes no further; one outside a sequence closes nothing."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey j
            SET open_message = false, next_action_at = NULL, hold_reason = :reason,
                updated_at = :now
            FROM outbox_messages o
            WHERE o.id = :message AND o.lead_id = j.lead_id AND o.sequence_id IS NOT NULL
        """),
        {"message": message_id, "reason": reason, "now": now},
    )


def last_texts(conn: Connection, phone_id: str, *, since: datetime, limit: int) -> list[str]:
    """What this phone wrote lately, newest first."""
    rows = conn.execute(
        text("""
            SELECT content_rendered FROM gold_communication_log
            WHERE phone_id = :phone AND sent_at > :since AND direction = 'OUTBOUND'
              AND content_rendered IS NOT NULL
            ORDER BY sent_at DESC LIMIT :limit
        """),
        {"phone": phone_id, "since": since, "limit": limit},
    )
    return list(rows.scalars())


def has_been_written_to(conn: Connection, lead_id: UUID) -> bool:
    """Whether there is a conversation with this lead, on a phone that it knows."""
    return conn.execute(
        text("""
            SELECT EXISTS (SELECT 1 FROM gold_lead_journey WHERE lead_id = :lead
                           AND first_contact_at IS NOT NULL AND assigned_phone_id IS NOT NULL)
        """),
        {"lead": lead_id},
    ).scalar_one()


def close_window(conn: Connection, lead_id: UUID, *, now: datetime) -> None:
    """Note that the provider lets no free text through to this person now."""
    conn.execute(
        text("""
            UPDATE whatsapp_conversations
            SET window_expires_at = least(window_expires_at, :now), updated_at = :now
            WHERE lead_id = :lead
        """),
        {"lead": lead_id, "now": now},
    )


def standing(conn: Connection, lead_id: UUID) -> tuple[Stage, bool] | None:
    """The stage a lead is in, and whether it opted out; None when it is gone."""
    row = conn.execute(
        text("""
            SELECT engagement_stage, whatsapp_opted_out OR email_opted_out AS opted_out
            FROM gold_lead_journey WHERE lead_id = :lead
        """),
        {"lead": lead_id},
    ).one_or_none()
    return (Stage(row.engagement_stage), row.opted_out) if row else None


# ── Suppressions ──────────────────────────────────────────────────────────────────────────────


def suppression_key(secret: bytes, address: str) -> bytes:
    """A keyed hash of a number or address: enough to honour a "stop", useless to anyone else."""
    return hmac.new(secret, address.strip().lower().encode(), hashlib.sha256).digest()


def is_suppressed(conn: Connection, tenant_id: str, keys: Sequence[bytes]) -> bool:
    """Whether a person with one of these addresses asked this tenant to stop."""
    return conn.execute(
        text("""
            SELECT EXISTS (SELECT 1 FROM suppressions
                           WHERE tenant_id = :tenant AND key_hmac = ANY(:keys))
        """),
        {"tenant": tenant_id, "keys": list(keys)},
    ).scalar_one()


def lock_leads_of(conn: Connection, tenant_id: str, lead_id: UUID) -> list[dict[str, object]]:
    """Lock every lead that shares a number or an address with this one, in a fixed order."""
    rows = conn.execute(
        text("""
            SELECT j.lead_id, j.engagement_stage, c.telefon_principal, c.email_principal
            FROM gold_companies me
            JOIN gold_companies c ON c.tenant_id = me.tenant_id AND (c.id = me.id
              OR c.telefon_principal = me.telefon_principal
              OR lower(c.email_principal) = lower(me.email_principal))
            JOIN gold_lead_journey j ON j.lead_id = c.id
            WHERE me.id = :lead AND me.tenant_id = :tenant
            ORDER BY j.lead_id FOR UPDATE OF j
        """),
        {"tenant": tenant_id, "lead": lead_id},
    ).mappings()
    return [dict(row) for row in rows]


def suppress(
    conn: Connection,
    *,
    tenant_id: str,
    lead_ids: Sequence[UUID],
    keys: Sequence[bytes],
    reason: str,
    now: datetime,
) -> None:
    """Mark these leads as opted out on all channels and keep the hashes of their addresses."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET whatsapp_opted_out = true, email_opted_out = true,
                opted_out_at = coalesce(opted_out_at, :now), open_message = EXISTS (
                  SELECT 1 FROM outbox_messages o WHERE o.lead_id = gold_lead_journey.lead_id
                    AND o.state IN ('sending', 'unconfirmed', 'parked')),
                next_action_at = NULL, hold_reason = 'opted_out', updated_at = :now
            WHERE lead_id = ANY(:leads)
        """),
        {"leads": list(lead_ids), "now": now},
    )
    conn.execute(
        text("""
            INSERT INTO suppressions (tenant_id, key_hmac, reason, at)
            SELECT :tenant, key, :reason, :now FROM unnest(CAST(:keys AS bytea[])) key
            ON CONFLICT DO NOTHING
        """),
        {"tenant": tenant_id, "keys": list(keys), "reason": reason, "now": now},
    )
