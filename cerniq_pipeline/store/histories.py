"""Chats as providers show them: what of them is in the log, and how far they were read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.deliveries import ORDER
from cerniq_pipeline.domain.history import HistoryMessage
from cerniq_pipeline.errors import NotFound


@dataclass(frozen=True)
class LeadChat:
    """A conversation of a lead with one of our phones; its id is None until it was looked up."""

    tenant_id: str
    lead_id: UUID
    phone_id: str
    number: str
    account_id: str
    provider: str
    contact: str
    chat_id: str | None


def chats_of(conn: Connection, lead_id: UUID) -> list[LeadChat]:
    """The lead's conversations: with the phone it is assigned to, and with those before it."""
    lead = (
        conn.execute(
            text("""
                SELECT j.tenant_id, j.assigned_phone_id, j.chat_id, c.telefon_principal AS contact
                FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
                WHERE j.lead_id = :lead
            """),
            {"lead": lead_id},
        )
        .mappings()
        .one_or_none()
    )
    if lead is None:
        raise NotFound(f"no lead {lead_id}; `cerniq why` finds one by its CUI or number")
    rows = conn.execute(
        text("""
            WITH known AS (
              SELECT CAST(:phone AS text) AS phone_id, CAST(:chat AS text) AS chat_id, 0 AS age
              UNION ALL
              SELECT DISTINCT phone_id, thread_id, 1 FROM gold_communication_log
              WHERE lead_journey_id = :lead AND channel = 'WHATSAPP' AND thread_id IS NOT NULL
            )
            SELECT DISTINCT ON (p.id) p.id, p.phone_number, p.provider, k.chat_id,
                   coalesce(p.meta_phone_number_id, p.timelinesai_account_id) AS account_id
            FROM known k JOIN wa_phone_numbers p ON p.id = k.phone_id
            WHERE p.tenant_id = :tenant
            ORDER BY p.id, k.chat_id IS NULL, k.age
        """),
        {
            "lead": lead_id,
            "tenant": lead["tenant_id"],
            "phone": lead["assigned_phone_id"],
            "chat": lead["chat_id"],
        },
    )
    return [
        LeadChat(
            tenant_id=lead["tenant_id"],
            lead_id=lead_id,
            phone_id=row.id,
            number=row.phone_number,
            account_id=row.account_id,
            provider=row.provider,
            contact=lead["contact"] or "",
            chat_id=row.chat_id,
        )
        for row in rows
    ]


@dataclass(frozen=True)
class Logged:
    """What one writing of the log changed."""

    new: int
    moved: int


def log(
    conn: Connection, chat: LeadChat, messages: Sequence[HistoryMessage], *, now: datetime
) -> Logged:
    """Bring these messages of one chat into the communication log, each once.

    A message that is there only moves its status forward. While a send to this person is unsettled
    nothing else of ours is added: it may be that send, which writes its own row when it is found.
    """
    if not messages:
        return Logged(0, 0)
    once = list({message.external_id: message for message in messages}.values())
    # Before the rows of the log, as everybody does: a new row takes this lock anyway.
    conn.execute(
        text("SELECT 1 FROM gold_lead_journey WHERE lead_id = :lead FOR KEY SHARE"),
        {"lead": chat.lead_id},
    )
    rows = conn.execute(
        text("""
            INSERT INTO gold_communication_log
              (tenant_id, lead_journey_id, channel, direction, content, content_rendered,
               external_message_id, thread_id, phone_id, phone_number, status, status_at,
               media_type, sent_at, contact, conversation_id)
            SELECT :tenant, :lead, 'WHATSAPP', m.direction,
                   CASE m.direction WHEN 'INBOUND' THEN m.body END, m.body,
                   m.external_id, m.chat_id, :phone, :number, m.status, :now, m.media, m.at,
                   :contact, (SELECT v.id FROM whatsapp_conversations v
                              WHERE v.tenant_id = :tenant AND v.customer_phone = :contact)
            FROM unnest(CAST(:ids AS text[]), CAST(:chats AS text[]), CAST(:directions AS text[]),
                        CAST(:bodies AS text[]), CAST(:statuses AS text[]),
                        CAST(:media AS text[]), CAST(:times AS timestamptz[]))
              AS m (external_id, chat_id, direction, body, status, media, at)
            WHERE m.direction = 'INBOUND'
              OR NOT EXISTS (
                SELECT 1 FROM outbox_messages o
                WHERE o.state IN ('sending', 'unconfirmed', 'parked')
                  AND o.recipient = :contact AND o.phone_id = :phone)
              OR EXISTS (SELECT 1 FROM gold_communication_log l
                         WHERE l.tenant_id = :tenant AND l.channel = 'WHATSAPP'
                           AND l.external_message_id = m.external_id)
            ORDER BY m.external_id
            ON CONFLICT (tenant_id, channel, external_message_id) DO UPDATE
            SET status = excluded.status, status_at = excluded.status_at, failed_at = NULL,
                error_code = NULL, error_title = NULL
            -- Forward only; a failure stands unless a delivery proves it wrong.
            WHERE array_position(CAST(:order AS text[]), gold_communication_log.status)
                < array_position(CAST(:order AS text[]), excluded.status)
            RETURNING xmax = 0 AS new
        """),
        {
            "tenant": chat.tenant_id,
            "lead": chat.lead_id,
            "phone": chat.phone_id,
            "number": chat.number,
            "contact": chat.contact,
            "now": now,
            "order": list(ORDER),
            "ids": [message.external_id for message in once],
            "chats": [message.chat_id for message in once],
            "directions": ["OUTBOUND" if message.from_us else "INBOUND" for message in once],
            # Postgres has no NUL in texts; a provider may.
            "bodies": [message.text.replace("\0", "") for message in once],
            "statuses": [
                message.status.upper() if message.from_us else "DELIVERED" for message in once
            ],
            "media": ["other" if message.has_media else None for message in once],
            "times": [message.at for message in once],
        },
    ).scalars()
    new = [bool(is_new) for is_new in rows]
    return Logged(new=sum(new), moved=len(new) - sum(new))


def standing_failed(conn: Connection, tenant_id: str, external_ids: Collection[str]) -> list[str]:
    """Those of these messages that the log has as failed."""
    return list(
        conn.execute(
            text("""
                SELECT external_message_id FROM gold_communication_log
                WHERE tenant_id = :tenant AND channel = 'WHATSAPP' AND status = 'FAILED'
                  AND external_message_id = ANY(:ids) ORDER BY external_message_id
            """),
            {"tenant": tenant_id, "ids": list(external_ids)},
        ).scalars()
    )


def conversation(conn: Connection, lead_id: UUID) -> list[dict[str, Any]]:
    """Everything that was said between us and a lead, as the log has it, oldest first."""
    rows = conn.execute(
        text("""
            SELECT direction, channel, phone_id, sent_at, status, media_type,
                   coalesce(content_rendered, content) AS text
            FROM gold_communication_log WHERE lead_journey_id = :lead
            ORDER BY sent_at, created_at, id
        """),
        {"lead": lead_id},
    ).mappings()
    return [dict(row) for row in rows]


# ── How far the histories were read ───────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Progress:
    """A sweep that ran out of time: when it began, and the last chat that it read to the end."""

    begun_at: datetime
    read_to: datetime


def swept_to(conn: Connection, name: str) -> datetime | None:
    """Up to when all messages are in the inbox; None before the first complete sweep."""
    return conn.execute(
        text("SELECT swept_to FROM sweeps WHERE provider = :name"), {"name": name}
    ).scalar_one_or_none()


def progress(conn: Connection, name: str) -> Progress | None:
    """Where the sweep of this name broke off, if it did."""
    row = conn.execute(
        text("SELECT swept_at, swept_to FROM sweeps WHERE provider = :name"),
        {"name": _unfinished(name)},
    ).one_or_none()
    return Progress(*row) if row else None


def note_progress(conn: Connection, name: str, so_far: Progress) -> None:
    """Remember how far an unfinished sweep came."""
    _write(conn, _unfinished(name), to=so_far.read_to, at=so_far.begun_at)


def finish(conn: Connection, name: str, *, to: datetime, now: datetime) -> None:
    """Move the watermark, never back, and forget the progress towards it."""
    _write(conn, name, to=to, at=now)
    conn.execute(
        text("DELETE FROM sweeps WHERE provider = :name AND swept_at <= :to"),
        {"name": _unfinished(name), "to": to},
    )


def _unfinished(name: str) -> str:
    return f"{name}/unfinished"


def _write(conn: Connection, name: str, *, to: datetime, at: datetime) -> None:
    conn.execute(
        text("""
            INSERT INTO sweeps (provider, swept_to, swept_at) VALUES (:name, :to, :at)
            ON CONFLICT (provider) DO UPDATE
            SET swept_to = greatest(sweeps.swept_to, excluded.swept_to),
                swept_at = excluded.swept_at
        """),
        {"name": name, "to": to, "at": at},
    )
