"""Conversations: who writes to us, until when we may answer freely, and what was said."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.contacts import canonical_address
from cerniq_pipeline.domain.conversations import WINDOW
from cerniq_pipeline.domain.events import Contact, InboundEvent
from cerniq_pipeline.store import leads, tenants


def leads_behind(
    conn: Connection, tenant_id: str, contact: Contact, *, chat_id: str | None, phone_id: str | None
) -> list[UUID]:
    """The leads that this person may be, the likeliest first: by chat, conversation, address."""
    by_chat = conn.execute(
        text("""
            SELECT DISTINCT lead_journey_id FROM gold_communication_log
            WHERE thread_id = :chat AND phone_id = :phone AND tenant_id = :tenant
              AND lead_journey_id IS NOT NULL
        """),
        {"tenant": tenant_id, "chat": chat_id, "phone": phone_id},
    ).scalars()
    by_conversation = conn.execute(
        text("""
            SELECT lead_id FROM whatsapp_conversations
            WHERE tenant_id = :tenant AND lead_id IS NOT NULL
              AND (customer_phone = :phone OR customer_user_id = :user)
            ORDER BY created_at, id
        """),
        {"tenant": tenant_id, "phone": contact.phone, "user": contact.user_id},
    ).scalars()
    known = list(dict.fromkeys([*by_chat, *by_conversation]))
    by_address = leads.ids_by_address(
        conn,
        tenant_id,
        numbers=[contact.phone] if contact.phone else [],
        emails=[contact.email] if contact.email else [],
    )
    rest = conn.execute(
        text("""
            SELECT lead_id FROM gold_lead_journey WHERE lead_id = ANY(:leads)
            ORDER BY last_contact_at DESC NULLS LAST, lead_id
        """),
        {"leads": by_address},
    ).scalars()
    return list(dict.fromkeys([*known, *rest]))


def tenants_that_wrote(conn: Connection, external_id: str | None) -> list[str]:
    """The tenants that wrote the message an event is about."""
    writers = conn.execute(
        text("SELECT DISTINCT tenant_id FROM outbox_messages WHERE external_id = :id"),
        {"id": external_id},
    )
    return sorted(writers.scalars())


def tenants_knowing(conn: Connection, contact: Contact) -> list[str]:
    """The tenants that know this person, as a lead or from a conversation."""
    return [
        tenant
        for tenant in tenants.all_ids(conn)
        if leads_behind(conn, tenant, contact, chat_id=None, phone_id=None)
    ]


def open_conversation(
    conn: Connection,
    *,
    tenant_id: str,
    lead_id: UUID | None,
    contact: Contact,
    phone_id: str | None,
    chat_id: str | None,
    now: datetime,
) -> UUID | None:
    """The conversation with this person, made when there is none; None: they have no name at all.

    A person who was known by number and by the provider's id apart becomes one when both are told
    together. The caller holds the person's lock.
    """
    if contact.phone is None and contact.user_id is None:
        return None
    who = {"tenant": tenant_id, "phone": contact.phone, "user": contact.user_id}
    found = list(
        conn.execute(
            text("""
                SELECT id FROM whatsapp_conversations
                WHERE tenant_id = :tenant AND (customer_phone = :phone OR customer_user_id = :user)
                ORDER BY created_at, id FOR UPDATE
            """),
            who,
        ).scalars()
    )
    if not found:
        return conn.execute(
            text("""
                INSERT INTO whatsapp_conversations
                  (tenant_id, lead_id, customer_phone, customer_user_id, customer_name, phone_id,
                   chat_id, created_at, updated_at)
                VALUES (:tenant, :lead, :phone, :user, :name, :ours, :chat, :now, :now)
                RETURNING id
            """),
            {
                **who,
                "lead": lead_id,
                "name": contact.name,
                "ours": phone_id,
                "chat": chat_id,
                "now": now,
            },
        ).scalar_one()
    for other in found[1:]:
        _merge(conn, other, into=found[0])
    conn.execute(
        text("""
            UPDATE whatsapp_conversations
            SET lead_id = coalesce(lead_id, :lead),
                customer_phone = coalesce(customer_phone, :phone),
                customer_user_id = coalesce(customer_user_id, :user),
                customer_name = coalesce(:name, customer_name),
                phone_id = coalesce(phone_id, :ours), chat_id = coalesce(chat_id, :chat),
                updated_at = :now
            WHERE id = :id
        """),
        {
            "id": found[0],
            "lead": lead_id,
            "phone": contact.phone,
            "user": contact.user_id,
            "name": contact.name,
            "ours": phone_id,
            "chat": chat_id,
            "now": now,
        },
    )
    return found[0]


def _merge(conn: Connection, other: UUID, *, into: UUID) -> None:
    """Let one conversation take up another: they turned out to be with the same person."""
    both = {"other": other, "into": into}
    conn.execute(
        text("""
            UPDATE gold_communication_log SET conversation_id = :into
            WHERE conversation_id = :other
        """),
        both,
    )
    conn.execute(
        text("""
            WITH gone AS (DELETE FROM whatsapp_conversations WHERE id = :other RETURNING *)
            UPDATE whatsapp_conversations v
            SET lead_id = coalesce(v.lead_id, gone.lead_id),
                phone_id = CASE WHEN gone.window_opened_at > v.window_opened_at
                                  OR v.window_opened_at IS NULL
                                THEN coalesce(gone.phone_id, v.phone_id) ELSE v.phone_id END,
                window_opened_at = greatest(v.window_opened_at, gone.window_opened_at),
                window_expires_at = greatest(v.window_expires_at, gone.window_expires_at)
            FROM gone WHERE v.id = :into
        """),
        both,
    )


def open_window(
    conn: Connection,
    conversation_id: UUID,
    *,
    at: datetime,
    phone_id: str | None,
    chat_id: str | None,
) -> None:
    """Let free text through for a day after this message; an older one never shortens it."""
    conn.execute(
        text("""
            UPDATE whatsapp_conversations
            SET phone_id = CASE WHEN window_opened_at > :at THEN phone_id ELSE :phone END,
                chat_id = CASE WHEN window_opened_at > :at THEN chat_id
                               ELSE coalesce(:chat, chat_id) END,
                window_opened_at = greatest(window_opened_at, :at),
                window_expires_at = greatest(window_expires_at, :until)
            WHERE id = :id
        """),
        {
            "id": conversation_id,
            "at": at,
            "until": at + WINDOW,
            "phone": phone_id,
            "chat": chat_id,
        },
    )


def recount(conn: Connection, conversation_id: UUID) -> None:
    """Make the conversation show how much was said, and when last, both ways."""
    conn.execute(
        text("""
            UPDATE whatsapp_conversations v
            SET message_count = l.messages, last_message_at = l.last
            FROM (SELECT count(*) AS messages, max(sent_at) AS last
                  FROM gold_communication_log WHERE conversation_id = :id) l
            WHERE v.id = :id
        """),
        {"id": conversation_id},
    )


# ── What was said ─────────────────────────────────────────────────────────────────────────────


def was_heard(conn: Connection, tenant_id: str, channel: str, external_id: str | None) -> bool:
    """Whether this message has had its effects already."""
    return conn.execute(
        text("""
            SELECT EXISTS (SELECT 1 FROM gold_communication_log
                           WHERE tenant_id = :tenant AND channel = :channel
                             AND external_message_id = :id AND heard_at IS NOT NULL)
        """),
        {"tenant": tenant_id, "channel": channel, "id": external_id},
    ).scalar_one()


def is_ours(conn: Connection, event: InboundEvent, phone_id: str) -> bool:
    """Whether a message that left our number is one that we sent through the provider.

    Also while nobody knows its id yet: then by its exact words to that person.
    """
    return conn.execute(
        text("""
            SELECT EXISTS (SELECT 1 FROM outbox_messages
                           WHERE external_id = :id AND phone_id = :phone)
                OR EXISTS (SELECT 1 FROM outbox_messages
                           WHERE phone_id = :phone AND recipient = :to AND body = :body
                             AND state IN ('sending', 'unconfirmed', 'parked'))
        """),
        {
            "id": event.external_id,
            "phone": phone_id,
            "to": event.contact.phone,
            "body": event.text,
        },
    ).scalar_one()


def log(
    conn: Connection,
    event: InboundEvent,
    *,
    tenant_id: str,
    direction: str,
    lead_id: UUID | None,
    conversation_id: UUID | None,
    phone_id: str | None,
    now: datetime,
) -> None:
    """Write what was said into the communication log, once, as one that had its effects.

    A fetched history may have brought it before; then it only learns whose it is.
    """
    first = event.media[0] if event.media else None
    words = _text(event.text)
    conn.execute(
        text("""
            INSERT INTO gold_communication_log AS l
              (tenant_id, lead_journey_id, channel, direction, conversation_id, contact,
               message_type, content, content_rendered, external_message_id, thread_id, phone_id,
               phone_number, status, status_at, media_type, media_id, media, sent_at, heard_at)
            VALUES (:tenant, :lead, :channel, :direction, :conversation, :contact, :type,
                    CASE :direction WHEN 'INBOUND' THEN :words END, :words, :external, :chat,
                    :phone, :account, :status, :at, :media_type, :media_id, CAST(:media AS jsonb),
                    :at, :now)
            ON CONFLICT (tenant_id, channel, external_message_id) DO UPDATE
            SET lead_journey_id = coalesce(l.lead_journey_id, excluded.lead_journey_id),
                conversation_id = excluded.conversation_id, contact = excluded.contact,
                message_type = excluded.message_type, media_type = excluded.media_type,
                media_id = excluded.media_id, media = excluded.media, heard_at = :now
        """),
        {
            "tenant": tenant_id,
            "lead": lead_id,
            "channel": event.channel,
            "direction": direction,
            "conversation": conversation_id,
            "contact": event.contact.key and canonical_address(event.contact.key),
            "type": event.message_type,
            "words": words,
            "external": event.external_id,
            "chat": event.chat_id,
            "phone": phone_id,
            "account": event.account,
            "status": "DELIVERED" if direction == "INBOUND" else "SENT",
            "media_type": first.kind if first else None,
            "media_id": first.provider_id if first else None,
            "media": json.dumps([_plain(asdict(one)) for one in event.media])
            if event.media
            else None,
            "at": min(event.at, now),
            "now": now,
        },
    )


def _text(words: str | None) -> str | None:
    """What Postgres can keep: neither NUL nor halves of characters; the raw event has it all."""
    if words is None:
        return None
    return words.replace("\0", "").encode("utf-8", "replace").decode()


def _plain(described: dict[str, str | None]) -> dict[str, str | None]:
    return {name: _text(value) for name, value in described.items()}
