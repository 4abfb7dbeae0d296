"""Chats as providers show them: what of them is in the log, and how far they were read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.deliveries import ORDER
from cerniq_pipeline.domain.history import HistoryMessage, RecentChat
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


# ── How far the lists of chats were read ──────────────────────────────────────────────────────


@dataclass(frozen=True)
class List:
    """A list of chats that is being read: from when on, since when, and how many pages so far."""

    swept_to: datetime | None
    begun_at: datetime
    page: int


def swept_to(conn: Connection, name: str) -> datetime | None:
    """Up to when all chats were listed; None before the first complete list."""
    return conn.execute(
        text("SELECT swept_to FROM sweeps WHERE provider = :name"), {"name": name}
    ).scalar_one_or_none()


def read_to(conn: Connection, provider: str) -> datetime | None:
    """Up to when everything was read, but for chats that are known to be bad."""
    return conn.execute(
        text("""
            SELECT least(
              (SELECT coalesce(swept_to, begun_at) FROM sweeps WHERE provider = :provider),
              (SELECT min(due_at) FROM unread_chats WHERE provider = :provider AND failures = 0))
        """),
        {"provider": provider},
    ).scalar_one()


def begin_list(conn: Connection, name: str, *, now: datetime) -> List:
    """Begin a list, or go on with the one that was left."""
    row = conn.execute(
        text("""
            INSERT INTO sweeps AS s (provider, begun_at, page) VALUES (:name, :now, 0)
            ON CONFLICT (provider) DO UPDATE
            SET begun_at = coalesce(s.begun_at, excluded.begun_at), page = coalesce(s.page, 0)
            RETURNING swept_to, begun_at, page
        """),
        {"name": name, "now": now},
    ).one()
    return List(*row)


def note_page(conn: Connection, name: str, page: int, *, begun_at: datetime) -> None:
    """Remember how far a list was read; never back, and not for another list."""
    conn.execute(
        text("""
            UPDATE sweeps SET page = greatest(page, :page)
            WHERE provider = :name AND begun_at = :begun_at
        """),
        {"name": name, "page": page, "begun_at": begun_at},
    )


def finish_list(conn: Connection, name: str, *, to: datetime, now: datetime) -> None:
    """Move the watermark, never back, and forget a list that was begun by then."""
    conn.execute(
        text("""
            INSERT INTO sweeps AS s (provider, swept_to, swept_at) VALUES (:name, :to, :now)
            ON CONFLICT (provider) DO UPDATE
            SET swept_to = greatest(s.swept_to, excluded.swept_to), swept_at = excluded.swept_at,
                page = CASE WHEN s.begun_at > :to THEN s.page END,
                begun_at = CASE WHEN s.begun_at > :to THEN s.begun_at END
        """),
        {"name": name, "to": to, "now": now},
    )


def good_chat(conn: Connection, provider: str) -> str | None:
    """A chat that could be read the last time."""
    return conn.execute(
        text("SELECT good_chat FROM sweeps WHERE provider = :provider"), {"provider": provider}
    ).scalar_one_or_none()


def note_good(conn: Connection, provider: str, chat_id: str) -> None:
    """Remember a chat that could be read."""
    conn.execute(
        text("UPDATE sweeps SET good_chat = :chat WHERE provider = :provider"),
        {"provider": provider, "chat": chat_id},
    )


# ── Chats that are still to be read ───────────────────────────────────────────────────────────


@dataclass(frozen=True)
class UnreadChat:
    """A chat in which something was said that may not be in the inbox yet."""

    chat_id: str
    account: str
    contact: str
    last_at: datetime
    since: datetime
    noted_at: datetime
    failures: int


def note_chats(
    conn: Connection, provider: str, chats: Sequence[RecentChat], *, since: datetime, now: datetime
) -> None:
    """Note that these chats are to be read from this moment on.

    One that is noted already keeps its earlier moment, and rests if it is known to be bad.
    """
    conn.execute(
        text("""
            INSERT INTO unread_chats AS u
              (provider, chat_id, account, contact, last_at, since, noted_at, due_at)
            SELECT :provider, chat_id, account, contact, last_at, :since, :now, :now
            FROM unnest(CAST(:ids AS text[]), CAST(:accounts AS text[]), CAST(:contacts AS text[]),
                        CAST(:times AS timestamptz[])) AS n (chat_id, account, contact, last_at)
            ORDER BY chat_id
            ON CONFLICT (provider, chat_id) DO UPDATE
            SET account = excluded.account, contact = excluded.contact,
                last_at = greatest(u.last_at, excluded.last_at),
                since = least(u.since, excluded.since), noted_at = excluded.noted_at
        """),
        {
            "provider": provider,
            "since": since,
            "now": now,
            "ids": [chat.chat_id for chat in chats],
            "accounts": [chat.account for chat in chats],
            "contacts": [chat.contact for chat in chats],
            "times": [chat.last_at for chat in chats],
        },
    )


def next_unread(
    conn: Connection, provider: str, *, newest: bool, but: Sequence[str], now: datetime
) -> UnreadChat | None:
    """A chat that is due: the one with the newest message, or the one that waits for longest."""
    row = conn.execute(
        text("""
            SELECT chat_id, account, contact, last_at, since, noted_at, failures
            FROM unread_chats
            WHERE provider = :provider AND due_at <= :now AND chat_id <> ALL(:but)
            ORDER BY CASE WHEN :newest THEN last_at END DESC, due_at, last_at, chat_id
            LIMIT 1
        """),
        {"provider": provider, "newest": newest, "now": now, "but": list(but)},
    ).one_or_none()
    return UnreadChat(*row) if row else None


def was_read(conn: Connection, provider: str, chat: UnreadChat) -> None:
    """Forget a chat that was read to the end, unless it was noted again meanwhile."""
    named = {"provider": provider, "chat": chat.chat_id, "noted_at": chat.noted_at}
    conn.execute(
        text("""
            DELETE FROM unread_chats
            WHERE provider = :provider AND chat_id = :chat AND noted_at = :noted_at
        """),
        named,
    )
    conn.execute(
        text("""
            UPDATE unread_chats SET failures = 0, failing_since = NULL, error = NULL
            WHERE provider = :provider AND chat_id = :chat AND failures > 0
        """),
        named,
    )


def was_unreadable(
    conn: Connection,
    provider: str,
    chat: UnreadChat,
    *,
    failures: int,
    error: str,
    due_at: datetime,
    now: datetime,
) -> None:
    """Let a chat rest that could not be read by its own fault."""
    conn.execute(
        text("""
            UPDATE unread_chats
            SET failures = :failures, error = :error, due_at = :due_at,
                failing_since = coalesce(failing_since, :now)
            WHERE provider = :provider AND chat_id = :chat
        """),
        {
            "provider": provider,
            "chat": chat.chat_id,
            "failures": failures,
            "error": error,
            "due_at": due_at,
            "now": now,
        },
    )


@dataclass(frozen=True)
class Unreadable:
    """Chats that cannot be read: how many, and the one for which that is so for longest."""

    count: int
    chat_id: str
    since: datetime
    error: str


def unreadable(conn: Connection, provider: str, *, failures: int) -> Unreadable | None:
    """The chats that failed so often by their own fault; None when there are none."""
    row = conn.execute(
        text("""
            SELECT count(*) OVER (), chat_id, failing_since, error FROM unread_chats
            WHERE provider = :provider AND failures >= :failures
            ORDER BY failing_since, chat_id LIMIT 1
        """),
        {"provider": provider, "failures": failures},
    ).one_or_none()
    return Unreadable(*row) if row else None
