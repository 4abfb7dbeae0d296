"""Leads: what a send, an opt-out or a failure does to a lead's journey, and the log of messages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.contacts import (
    canonical_address,
    canonical_cui,
    cui_key,
    phone_key,
    same_number,
)
from cerniq_pipeline.domain.conversations import REVIEWS
from cerniq_pipeline.domain.leads import (
    AUTOMATED,
    ENDED_BY_PEOPLE,
    ENDINGS,
    PRIORITIES,
    Priority,
    Stage,
    known_stage,
    move,
)
from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt
from cerniq_pipeline.store.schema import CUI_KEY


def record_contact(
    conn: Connection,
    message: OutboxMessage,
    receipt: Receipt,
    *,
    stage: Stage | None,
    new_stage: Stage | None,
    quota_day: date | None,
    goes_on: bool,
    sent_at: datetime,
    who: str,
) -> None:
    """Write into the journey that a message went out, and audit the stage if it moved."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET engagement_stage = CASE WHEN :moved THEN :new_stage ELSE engagement_stage END,
                previous_stage = CASE WHEN :moved THEN :stage ELSE previous_stage END,
                stage_changed_at = CASE WHEN :moved THEN :at ELSE stage_changed_at END,
                is_new_contact = false, last_channel_used = :channel,
                first_contact_at = coalesce(first_contact_at, :at), last_contact_at = :at,
                quota_consumption_date = coalesce(:day, quota_consumption_date),
                sequence_step = coalesce(:step, sequence_step),
                assigned_phone_id = :phone, assigned_at = coalesce(assigned_at, :at),
                chat_id = coalesce(:chat, chat_id),
                hold_reason = CASE WHEN :goes_on THEN NULL ELSE hold_reason END, updated_at = :at
            WHERE lead_id = :lead
        """),
        {
            "lead": message.lead_id,
            "goes_on": goes_on,
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
    if stage is not None and new_stage is not None and stage is not new_stage:
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
    stage: str,
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
    conversation_id: UUID | None,
    quota_cost: int,
    sent_at: datetime,
) -> None:
    """Write the sent message into the communication log, once."""
    conn.execute(
        text("""
            INSERT INTO gold_communication_log
              (tenant_id, lead_journey_id, channel, direction, template_id, content,
               content_rendered, external_message_id, thread_id, phone_id, phone_number, status,
               media_type, sent_at, quota_cost, sequence_id, sequence_step, job_id, contact,
               conversation_id, message_type, raw_request, raw_response)
            SELECT :tenant, :lead, :channel, 'OUTBOUND', o.template_id, t.content, :body,
                   :external, :chat, :phone, :sender, 'SENT', :media, :at, :cost, :sequence, :step,
                   o.id, o.recipient, :conversation, coalesce(:media, 'text'),
                   a.raw_request, a.raw_response
            FROM outbox_messages o LEFT JOIN templates t ON t.id = o.template_id
            LEFT JOIN send_attempts a ON a.message_id = o.id AND a.n = :attempt
            WHERE o.id = :id
            ON CONFLICT DO NOTHING
        """),
        {
            "id": message.id,
            "attempt": message.attempt,
            "tenant": message.tenant_id,
            "lead": message.lead_id,
            "channel": message.channel,
            "body": message.body,
            "external": receipt.external_id,
            "conversation": conversation_id,
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
    now: datetime,
    hold_reason: str | None = None,
) -> None:
    """Say whether the lead still has a message under way, and when selection looks at it again.

    Without a reason the one that stands there stays.
    """
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET open_message = :open, next_action_at = :next,
                hold_reason = coalesce(:hold, hold_reason), updated_at = :now
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
            SET open_message = false, next_action_at = NULL, updated_at = :now,
                hold_reason = CASE WHEN array_position(CAST(:endings AS text[]), j.hold_reason)
                                      < array_position(CAST(:endings AS text[]), :reason)
                                   THEN j.hold_reason ELSE :reason END
            FROM outbox_messages o
            WHERE o.id = :message AND o.lead_id = j.lead_id AND o.sequence_id IS NOT NULL
        """),
        {"message": message_id, "reason": reason, "endings": list(ENDINGS), "now": now},
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


def standing(conn: Connection, lead_id: UUID) -> tuple[Stage | None, bool] | None:
    """The stage a lead is in, and whether its sequence may go on; None when it is gone.

    Others write stages too: one that there is not is None, and ends its sequence.
    """
    row = conn.execute(
        text("""
            SELECT engagement_stage,
                   NOT whatsapp_opted_out AND NOT email_opted_out AND held_by IS NULL
                     AND NOT in_conversation AS free
            FROM gold_lead_journey WHERE lead_id = :lead
        """),
        {"lead": lead_id},
    ).one_or_none()
    if row is None:
        return None
    stage = known_stage(row.engagement_stage)
    return stage, row.free and stage in AUTOMATED


# ── A person's leads ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Lead:
    """A lead as it stands, locked."""

    lead_id: UUID
    stage: Stage | None
    """None: it is in one that there is not."""
    opted_out: bool
    opted_out_at: datetime | None
    last_reply_at: datetime | None
    phone: str | None
    email: str | None
    cui: str | None
    assigned_phone_id: str | None
    chat_id: str | None


def ids_by_address(
    conn: Connection,
    tenant_id: str,
    *,
    numbers: Collection[str],
    emails: Collection[str],
    companies: Collection[str] = (),
) -> list[UUID]:
    """The leads with one of these numbers, addresses or CUIs, however they are spelt."""
    wanted = {email.strip().lower() for email in emails}
    found = conn.execute(
        text(f"""
            SELECT id, telefon_principal, email_principal, cui FROM gold_companies
            WHERE tenant_id = :tenant
              AND (phone_key = ANY(:keys) OR lower(email_principal) = ANY(:emails)
                   OR {CUI_KEY} = ANY(:companies))
        """),  # noqa: S608 - a constant of the schema
        {
            "tenant": tenant_id,
            "keys": [key for key in map(phone_key, numbers) if key],
            "emails": list(wanted),
            "companies": [key for key in map(cui_key, companies) if key],
        },
    )
    known = set(map(canonical_cui, companies))
    return [
        row.id
        for row in found
        if (row.email_principal or "").lower() in wanted
        or any(same_number(row.telefon_principal or "", number) for number in numbers)
        or canonical_cui(row.cui or "") in known
    ]


def lock(conn: Connection, tenant_id: str, lead_ids: Collection[UUID]) -> list[Lead]:
    """Lock these leads in a fixed order; those that are gone are left out."""
    rows = conn.execute(
        text("""
            SELECT j.lead_id, j.engagement_stage,
                   j.whatsapp_opted_out OR j.email_opted_out AS opted_out, j.opted_out_at,
                   j.last_reply_at, c.telefon_principal, c.email_principal, c.cui,
                   j.assigned_phone_id, j.chat_id
            FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
            WHERE j.lead_id = ANY(:leads) AND j.tenant_id = :tenant
            ORDER BY j.lead_id FOR UPDATE OF j
        """),
        {"tenant": tenant_id, "leads": list(lead_ids)},
    )
    return [Lead(row[0], known_stage(row[1]), *row[2:]) for row in rows]


@dataclass(frozen=True)
class Person:
    """All leads of one person at a tenant, and by what they are known there, in one spelling."""

    lead_ids: frozenset[UUID]
    names: frozenset[str]
    """Numbers and e-mail addresses."""


def person_behind(
    conn: Connection,
    tenant_id: str,
    *,
    lead_ids: Collection[UUID] = (),
    numbers: Collection[str] = (),
    emails: Collection[str] = (),
) -> Person:
    """The person behind these leads and addresses.

    Whoever shares a number, an address or a company's number is the same, and so is whoever shares
    another one with them.
    """
    person = set(lead_ids)
    while True:
        known = conn.execute(
            text("""
                SELECT telefon_principal, email_principal, cui FROM gold_companies
                WHERE tenant_id = :tenant AND id = ANY(:leads)
            """),
            {"tenant": tenant_id, "leads": list(person)},
        ).all()
        theirs = {*numbers, *(row[0] for row in known if row[0])}
        written = {*emails, *(row[1] for row in known if row[1])}
        copies = ids_by_address(
            conn,
            tenant_id,
            numbers=theirs,
            emails=written,
            companies={row[2] for row in known if row[2]},
        )
        if person.issuperset(copies):
            names = frozenset(map(canonical_address, theirs | written))
            return Person(frozenset(person), names)
        person.update(copies)


def lock_person(
    conn: Connection,
    tenant_id: str,
    *,
    lead_ids: Collection[UUID] = (),
    numbers: Collection[str] = (),
    emails: Collection[str] = (),
) -> list[Lead]:
    """Lock every lead of the person behind these leads and addresses."""
    person = person_behind(conn, tenant_id, lead_ids=lead_ids, numbers=numbers, emails=emails)
    return lock(conn, tenant_id, person.lead_ids)


def opt_out(conn: Connection, lead_ids: Collection[UUID], *, at: datetime, now: datetime) -> None:
    """Mark these leads as opted out on all channels since they first said so."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET whatsapp_opted_out = true, email_opted_out = true,
                opted_out_at = least(opted_out_at, :at), updated_at = :now
            WHERE lead_id = ANY(:leads)
        """),
        {"leads": list(lead_ids), "at": at, "now": now},
    )
    end_automation(conn, lead_ids, reason="opted_out", now=now)


def mark_bounced(conn: Connection, lead_ids: Collection[UUID], *, now: datetime) -> None:
    """Note that the e-mail addresses of these leads take nothing in."""
    conn.execute(
        text("""
            UPDATE gold_companies SET email_status = 'bounced', updated_at = :now
            WHERE id = ANY(:leads)
        """),
        {"leads": list(lead_ids), "now": now},
    )


def end_automation(
    conn: Connection, lead_ids: Collection[UUID], *, reason: str, now: datetime
) -> None:
    """Let selection pass these leads over from now on; a message in flight is still theirs.

    Who speaks with people stays so whatever becomes of that message: only a person lets its
    sequence go on.
    """
    conn.execute(
        text("""
            UPDATE gold_lead_journey j
            SET in_conversation = in_conversation OR :reason = ANY(:by_people),
                open_message = EXISTS (
                  SELECT 1 FROM outbox_messages o WHERE o.lead_id = j.lead_id
                    AND o.state IN ('sending', 'unconfirmed', 'parked')),
                next_action_at = NULL, updated_at = :now,
                hold_reason = CASE WHEN array_position(CAST(:endings AS text[]), hold_reason)
                                      < array_position(CAST(:endings AS text[]), :reason)
                                   THEN hold_reason ELSE :reason END
            WHERE lead_id = ANY(:leads)
        """),
        {
            "leads": list(lead_ids),
            "reason": reason,
            "by_people": list(ENDED_BY_PEOPLE),
            "endings": list(ENDINGS),
            "now": now,
        },
    )


def change_stage(
    conn: Connection,
    lead: Lead,
    *,
    tenant_id: str,
    to: Stage | None,
    who: str,
    why: str,
    now: datetime,
) -> bool:
    """Move a locked lead and audit it; False when it is there already, or is to stay."""
    if to is None or move(lead.stage, to) is lead.stage:
        return False
    before = conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET engagement_stage = :to, previous_stage = engagement_stage, stage_changed_at = :now,
                updated_at = :now
            WHERE lead_id = :lead RETURNING previous_stage
        """),
        {"lead": lead.lead_id, "to": to, "now": now},
    ).scalar_one()
    record_stage_change(
        conn,
        tenant_id=tenant_id,
        lead_id=lead.lead_id,
        stage=before,
        new_stage=to,
        who=who,
        why=why,
        now=now,
    )
    return True


def note_reply(
    conn: Connection, lead_id: UUID, *, at: datetime, chat_id: str | None, now: datetime
) -> None:
    """Count one reply of a lead, and keep the chat it came through when none was known."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET reply_count = reply_count + 1, last_reply_at = greatest(last_reply_at, :at),
                chat_id = coalesce(chat_id, :chat), updated_at = :now
            WHERE lead_id = :lead
        """),
        {"lead": lead_id, "at": at, "chat": chat_id, "now": now},
    )


def ask_for_review(
    conn: Connection, lead_id: UUID, *, reason: str, priority: Priority, now: datetime
) -> None:
    """Put a lead before a person; one that waits already keeps what is graver."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey j
            SET human_review_priority = CASE WHEN known.stays THEN human_review_priority
                                             ELSE :priority END,
                human_review_reason = CASE WHEN known.stays THEN human_review_reason
                                           ELSE :reason END,
                human_review_correlation_id =
                  CASE WHEN known.stays THEN human_review_correlation_id
                       ELSE nullif(current_setting('cerniq.correlation_id', true), '') END,
                requires_human_review = true, updated_at = :now
            FROM (
              SELECT requires_human_review AND
                (array_position(CAST(:order AS text[]), human_review_priority),
                 coalesce(array_position(CAST(:reasons AS text[]), human_review_reason), 0))
                <= (array_position(CAST(:order AS text[]), :priority),
                    array_position(CAST(:reasons AS text[]), :reason)) AS stays
              FROM gold_lead_journey WHERE lead_id = :lead
            ) known
            WHERE lead_id = :lead
        """),
        {
            "lead": lead_id,
            "reason": reason,
            "priority": priority,
            "order": list(PRIORITIES),
            "reasons": list(REVIEWS),
            "now": now,
        },
    )


def end_review(conn: Connection, lead_id: UUID, *, reason: str, now: datetime) -> None:
    """Take a lead off the list of those that wait for a person, if it waits for this."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET requires_human_review = false, human_review_reason = NULL,
                human_review_priority = NULL, updated_at = :now
            WHERE lead_id = :lead AND human_review_reason = :reason
        """),
        {"lead": lead_id, "reason": reason, "now": now},
    )


def waiting_for(conn: Connection, *, reason: str) -> dict[str, int]:
    """How many leads of each tenant wait for a person for this reason."""
    rows = conn.execute(
        text("""
            SELECT tenant_id, count(*) FROM gold_lead_journey
            WHERE requires_human_review AND human_review_reason = :reason
            GROUP BY tenant_id ORDER BY tenant_id
        """),
        {"reason": reason},
    )
    return {row[0]: row[1] for row in rows}


def hand_to(conn: Connection, lead_id: UUID, *, holder: str, at: datetime, now: datetime) -> None:
    """Note which person talks to the lead; the first one keeps it."""
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET held_by = coalesce(held_by, :holder),
                held_since = CASE WHEN held_by IS NULL THEN :at
                                  WHEN held_by = :holder THEN least(held_since, :at)
                                  ELSE held_since END,
                updated_at = :now
            WHERE lead_id = :lead
        """),
        {"lead": lead_id, "holder": holder, "at": at, "now": now},
    )
