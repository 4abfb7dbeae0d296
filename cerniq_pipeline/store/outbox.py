"""The outbox: every SQL statement that moves a message; docs/architecture.md has the lock order."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, RowMapping, func, select, text, update

from cerniq_pipeline.domain.contacts import canonical_address, canonical_cui
from cerniq_pipeline.domain.holds import PRESSURE_WINDOW, Pressure
from cerniq_pipeline.domain.media import MediaFile
from cerniq_pipeline.domain.outbox import (
    MAY_HAVE_GONE_OUT,
    OutboxMessage,
    State,
    check_move,
)
from cerniq_pipeline.domain.quotas import OPENS_A_CHAT
from cerniq_pipeline.domain.refusals import STOPS_A_PHONE, Refused
from cerniq_pipeline.errors import Exchange
from cerniq_pipeline.store.schema import outbox_messages

QUEUE = "due_at, (kind <> 'initial'), id"
"""The order in which a phone's messages go, as their index has it: of those that are due at the
same time a new contact comes first."""


@dataclass(frozen=True)
class Due:
    """A message whose time has come, before anything about it was checked."""

    id: int
    lead_id: UUID


@dataclass(frozen=True)
class Candidate:
    """A message and its lead, both locked, with all that the last checks need."""

    id: int
    state: State
    kind: str
    recipient: str
    sequence_id: int | None
    step: int | None
    attempts: int
    retries: int
    not_after: datetime | None
    template: str | None
    content: str | None
    """Its text, when somebody wrote it for this one message."""
    approved_name: str | None
    approved_language: str
    approved_parameters: tuple[str, ...]
    media: MediaFile | None
    window_until: datetime | None
    """Until when this phone may write free text to this lead."""
    sequence_active: bool
    lead: dict[str, Any]

    @property
    def opens_a_chat(self) -> bool:
        """Whether the person gets it from a number that never wrote to them."""
        return self.kind in OPENS_A_CHAT

    @property
    def addresses(self) -> set[str]:
        """Where the person can be reached; a "stop" may have been said for any of these."""
        written = (self.recipient, self.lead["telefon_principal"], self.lead["email_principal"])
        return {address for address in written if address}


def next_due(conn: Connection, phone_id: str, *, now: datetime) -> Due | None:
    """The phone's next due message. Not locked: the holder of the lease is the only claimer."""
    row = conn.execute(
        text(f"""
            SELECT id, lead_id FROM outbox_messages
            WHERE phone_id = :phone AND state IN ('planned', 'deferred') AND due_at <= :now
            ORDER BY {QUEUE} LIMIT 1
        """),  # noqa: S608 - a constant of ours
        {"phone": phone_id, "now": now},
    ).one_or_none()
    return Due(*row) if row else None


def next_due_at(conn: Connection, phone_id: str) -> datetime | None:
    """When this phone's next message is due; None when nothing waits."""
    return conn.execute(
        text("""
            SELECT min(due_at) FROM outbox_messages
            WHERE phone_id = :phone AND state IN ('planned', 'deferred')
        """),
        {"phone": phone_id},
    ).scalar_one()


_LEAD = """
    SELECT j.lead_id, j.tenant_id, j.engagement_stage, j.whatsapp_opted_out, j.email_opted_out,
           j.requires_human_review, j.human_review_reason, j.held_by, j.in_conversation,
           j.lawful_basis, j.chat_id, c.denumire, c.contact_principal_nume, c.judet, c.localitate,
           c.custom, c.telefon_principal, c.email_principal, c.cui
    FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
    WHERE j.lead_id = :lead
"""
_MESSAGE = """
    SELECT o.*, t.content AS template, coalesce(s.status = 'active', true) AS running,
           t.approved_name, t.approved_language, t.approved_parameters,
           m.id AS file_id, m.kind AS file_kind, m.filename, m.content_type, m.size, m.source_url,
           (SELECT max(v.window_expires_at) FROM whatsapp_conversations v
            WHERE v.lead_id = o.lead_id AND v.phone_id = o.phone_id) AS window_until
    FROM outbox_messages o
    LEFT JOIN templates t ON t.id = o.template_id
    LEFT JOIN sequences s ON s.id = o.sequence_id
    LEFT JOIN media_files m ON m.id = coalesce(o.media_id, t.media_id)
    WHERE o.id = :id AND o.state IN ('planned', 'deferred')
"""


def lock_candidate(conn: Connection, due: Due) -> Candidate | None:
    """Lock the lead, then the message; None when either is gone in the meantime."""
    lead = conn.execute(text(_LEAD + "FOR UPDATE OF j"), {"lead": due.lead_id})
    message = conn.execute(text(_MESSAGE + "FOR UPDATE OF o"), {"id": due.id})
    candidate = _candidate(message.mappings().one_or_none(), lead.mappings().one_or_none())
    if candidate is not None:
        # The person's own locks: an opt-out of one of these addresses waits for us, or we for it.
        for address in sorted(map(canonical_address, candidate.addresses)):
            lock_person(conn, candidate.lead["tenant_id"], address)
        if candidate.lead["cui"]:
            lock_company(conn, candidate.lead["tenant_id"], candidate.lead["cui"])
    return candidate


def cancel_orphan(conn: Connection, due: Due, *, who: str, now: datetime) -> None:
    """Cancel a message whose lead was erased: left alone, it would stand before all others."""
    gone = conn.execute(
        text("""
            SELECT o.state FROM outbox_messages o
            WHERE o.id = :id AND o.state IN ('planned', 'deferred')
              AND NOT EXISTS (SELECT 1 FROM gold_lead_journey j WHERE j.lead_id = o.lead_id)
            FOR UPDATE
        """),
        {"id": due.id},
    ).scalar_one_or_none()
    if gone is not None:
        why = "its lead is gone"
        move(conn, due.id, current=State(gone), target=State.CANCELLED, why=why, who=who, now=now)


def see_candidate(conn: Connection, due: Due) -> Candidate | None:
    """The same without locks, for who only wants to explain."""
    lead = conn.execute(text(_LEAD), {"lead": due.lead_id}).mappings().one_or_none()
    message = conn.execute(text(_MESSAGE), {"id": due.id}).mappings().one_or_none()
    return _candidate(message, lead)


def imagine_candidate(
    conn: Connection,
    lead_id: UUID,
    *,
    template_id: int,
    sequence_id: int,
    step: int,
    kind: str,
    phone_id: str | None,
) -> Candidate | None:
    """The message that a dispatch would write for this lead; nothing is written."""
    lead = conn.execute(text(_LEAD), {"lead": lead_id}).mappings().one_or_none()
    message = conn.execute(
        text("""
            SELECT 0 AS id, 'planned' AS state, CAST(:kind AS text) AS kind,
                   c.telefon_principal AS recipient, CAST(:sequence AS bigint) AS sequence_id,
                   CAST(:step AS int) AS step, 0 AS attempts, 0 AS retries,
                   CAST(NULL AS timestamptz) AS not_after, CAST(NULL AS text) AS content,
                   t.content AS template, coalesce(s.status = 'active', true) AS running,
                   t.approved_name, t.approved_language, t.approved_parameters,
                   m.id AS file_id, m.kind AS file_kind, m.filename, m.content_type, m.size,
                   m.source_url,
                   (SELECT max(v.window_expires_at) FROM whatsapp_conversations v
                    WHERE v.lead_id = c.id AND v.phone_id = :phone) AS window_until
            FROM gold_companies c CROSS JOIN templates t
            LEFT JOIN sequences s ON s.id = :sequence
            LEFT JOIN media_files m ON m.id = t.media_id
            WHERE c.id = :lead AND t.id = :template
        """),
        {
            "lead": lead_id,
            "template": template_id,
            "sequence": sequence_id,
            "step": step,
            "kind": kind,
            "phone": phone_id,
        },
    )
    return _candidate(message.mappings().one_or_none(), lead)


def _candidate(row: RowMapping | None, lead: RowMapping | None) -> Candidate | None:
    if row is None or lead is None:
        return None
    return Candidate(
        id=row["id"],
        state=State(row["state"]),
        kind=row["kind"],
        recipient=row["recipient"],
        sequence_id=row["sequence_id"],
        step=row["step"],
        attempts=row["attempts"],
        retries=row["retries"],
        not_after=row["not_after"],
        template=row["template"],
        content=row["content"],
        approved_name=row["approved_name"],
        approved_language=row["approved_language"] or "",
        approved_parameters=tuple(row["approved_parameters"] or ()),
        media=_file(row),
        window_until=row["window_until"],
        sequence_active=row["running"],
        lead=dict(lead),
    )


def _file(row: RowMapping) -> MediaFile | None:
    if row["file_id"] is None:
        return None
    return MediaFile(
        id=row["file_id"],
        kind=row["file_kind"],
        filename=row["filename"],
        content_type=row["content_type"],
        size=row["size"],
        source_url=row["source_url"],
    )


def lock_person(conn: Connection, tenant_id: str, address: str) -> None:
    """Serialise everything that decides whether this person may be written to."""
    _lock_name(conn, f"{tenant_id} {canonical_address(address)}")


def lock_company(conn: Connection, tenant_id: str, cui: str) -> None:
    """The same for a company; whoever needs both takes the person's lock first."""
    _lock_name(conn, f"{tenant_id} cui {canonical_cui(cui)}")


def _lock_name(conn: Connection, name: str) -> None:
    conn.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})


def pressure_on_person(
    conn: Connection, tenant_id: str, recipient: str, *, limit: int, now: datetime
) -> Pressure:
    """A tenant's automatic messages of the last week to one number, whoever's lead it is."""
    ours = outbox_messages.c.tenant_id == tenant_id
    return _pressure(conn, ours & (outbox_messages.c.recipient == recipient), limit=limit, now=now)


def pressure_on_company(conn: Connection, lead_id: UUID, *, limit: int, now: datetime) -> Pressure:
    """Automatic messages of the last week to one company, on all its addresses."""
    return _pressure(conn, outbox_messages.c.lead_id == lead_id, limit=limit, now=now)


def _pressure(
    conn: Connection, whom: ColumnElement[bool], *, limit: int, now: datetime
) -> Pressure:
    table = outbox_messages.c
    count, oldest = conn.execute(
        select(func.count(), func.min(table.begun_at)).where(
            whom,
            table.begun_at > now - PRESSURE_WINDOW,
            table.state.in_(MAY_HAVE_GONE_OUT),
            table.sequence_id.is_not(None),
        )
    ).one()
    return Pressure(count=count, limit=limit, oldest_at=oldest)


def move(
    conn: Connection,
    message_id: int,
    *,
    current: State,
    target: State,
    why: str,
    who: str,
    now: datetime,
    under_fence: int | None = None,
    **changes: object,
) -> bool:
    """Move one message and leave a trace; False when it is no longer where the caller saw it.

    With `under_fence` the attempt must have begun under that fence: a shift that was replaced in
    the meantime changes nothing.
    """
    check_move(current, target)
    where = [outbox_messages.c.id == message_id, outbox_messages.c.state == current]
    if under_fence is not None:
        where.append(outbox_messages.c.fence == under_fence)
    moved = conn.execute(
        update(outbox_messages)
        .where(*where)
        .values(state=target, reason=why, updated_at=now, **changes)
    )
    if moved.rowcount == 0:
        return False
    trace(conn, [message_id], current=current, target=target, why=why, who=who, now=now)
    return True


def trace(
    conn: Connection,
    message_ids: Sequence[int],
    *,
    current: State,
    target: State,
    why: str,
    who: str,
    now: datetime,
) -> None:
    """Write down who moved these messages, when and why."""
    conn.execute(
        text("""
            INSERT INTO outbox_changes (message_id, from_state, to_state, at, who, why)
            SELECT id, :current, :target, :now, :who, :why FROM unnest(CAST(:ids AS bigint[])) id
        """),
        {
            "ids": list(message_ids),
            "current": current,
            "target": target,
            "now": now,
            "who": who,
            "why": why,
        },
    )


def begin_attempt(conn: Connection, message: OutboxMessage) -> None:
    """Write down the attempt; only when this is committed may a byte leave."""
    conn.execute(
        text("""
            INSERT INTO send_attempts (message_id, n, phone_id, fence, begun_at)
            VALUES (:id, :n, :phone, :fence, :at)
        """),
        {
            "id": message.id,
            "n": message.attempt,
            "phone": message.phone_id,
            "fence": message.fence,
            "at": message.begun_at,
        },
    )


def finish_attempt(
    conn: Connection,
    *,
    message_id: int,
    n: int,
    outcome: str,
    now: datetime,
    code: str | None = None,
    detail: str | None = None,
    external_id: str | None = None,
    exchange: Exchange | None = None,
    late: bool = False,
) -> None:
    """Write down what an attempt taught us; a late word counts only where nobody was sure.

    A shift that did not hear its own commit says everything twice: the second time is no news.
    """
    conn.execute(
        text("""
            UPDATE send_attempts
            SET outcome = :outcome, finished_at = :now, code = :code, detail = :detail,
                external_id = coalesce(:external_id, external_id), late = :late,
                raw_request = coalesce(CAST(:request AS jsonb), raw_request),
                raw_response = coalesce(CAST(:response AS jsonb), raw_response)
            WHERE message_id = :id AND n = :n
              AND (NOT :late OR outcome IS NULL OR outcome = 'unconfirmed')
        """),
        {
            "id": message_id,
            "n": n,
            "outcome": outcome,
            "now": now,
            "code": code,
            "detail": detail,
            "external_id": external_id,
            "late": late,
            "request": json.dumps(exchange.request) if exchange else None,
            "response": json.dumps(exchange.response) if exchange and exchange.response else None,
        },
    )


def abandoned(conn: Connection, phone_id: str, *, below_fence: int) -> list[tuple[int, int]]:
    """Messages left in flight by a holder that is gone: (message, attempt)."""
    return [(row.id, row.attempts) for row in _sending(conn, phone_id) if row.fence < below_fence]


def in_flight(conn: Connection, phone_id: str, *, fence: int) -> list[tuple[int, int]]:
    """Messages in flight under this very fence: (message, attempt)."""
    return [(row.id, row.attempts) for row in _sending(conn, phone_id) if row.fence == fence]


def _sending(conn: Connection, phone_id: str) -> Sequence[Row[Any]]:
    return conn.execute(
        text("""
            SELECT id, attempts, fence FROM outbox_messages
            WHERE phone_id = :phone AND state = 'sending' FOR UPDATE
        """),
        {"phone": phone_id},
    ).all()


_BEGUN = """
    SELECT o.*, p.phone_number, p.provider, j.chat_id,
           coalesce(p.meta_phone_number_id, p.timelinesai_account_id) AS account_id,
           m.id AS file_id, m.kind AS file_kind, m.filename, m.content_type, m.size, m.source_url
    FROM outbox_messages o
    JOIN wa_phone_numbers p ON p.id = o.phone_id
    LEFT JOIN gold_lead_journey j ON j.lead_id = o.lead_id
    LEFT JOIN templates t ON t.id = o.template_id
    LEFT JOIN media_files m ON m.id = coalesce(o.media_id, t.media_id)
"""


def unconfirmed(
    conn: Connection,
    *,
    to: Collection[str] | None = None,
    ids: Collection[int] = (),
    limit: int = 100,
) -> list[OutboxMessage]:
    """Sends whose outcome nobody knows, complete enough to be looked up.

    All of them, or those to certain people and with certain ids. Those that were looked up least
    lately come first, so that one which cannot be looked up stands before no other for long.
    """
    rows = conn.execute(
        text(f"""
            {_BEGUN} WHERE o.state = 'unconfirmed'
              AND (CAST(:to AS text[]) IS NULL OR o.recipient = ANY(:to) OR o.id = ANY(:ids))
            ORDER BY o.looked_up_at NULLS FIRST, o.begun_at LIMIT :limit
        """),
        {"to": None if to is None else list(to), "ids": list(ids), "limit": limit},
    )
    return [_begun(row) for row in rows.mappings()]


def note_look_up(conn: Connection, message_id: int, *, now: datetime) -> None:
    """Note that this message's provider is asked about it now."""
    conn.execute(
        text("UPDATE outbox_messages SET looked_up_at = :now WHERE id = :id"),
        {"id": message_id, "now": now},
    )


def long_in_doubt(conn: Connection, state: State, *, before: datetime) -> dict[str, int]:
    """How many sends of each tenant are in this state though they were begun before then."""
    rows = conn.execute(
        text("""
            SELECT tenant_id, count(*) FROM outbox_messages
            WHERE state IN ('sending', 'unconfirmed', 'parked') AND state = :state
              AND begun_at < :before
            GROUP BY tenant_id ORDER BY tenant_id
        """),
        {"state": state, "before": before},
    )
    return {row[0]: row[1] for row in rows}


def begun(conn: Connection, message_id: int) -> OutboxMessage | None:
    """A message as it was last handed to its provider; None when it never was."""
    row = conn.execute(
        text(_BEGUN + "WHERE o.id = :id AND o.begun_at IS NOT NULL"), {"id": message_id}
    )
    found = row.mappings().one_or_none()
    return _begun(found) if found else None


def _begun(row: RowMapping) -> OutboxMessage:
    return OutboxMessage(
        id=row["id"],
        tenant_id=row["tenant_id"],
        channel=row["channel"],
        provider=row["provider"],
        kind=row["kind"],
        lead_id=row["lead_id"],
        phone_id=row["phone_id"],
        sender=row["phone_number"],
        account_id=row["account_id"],
        to=row["recipient"],
        chat_id=None if row["kind"] in OPENS_A_CHAT else row["chat_id"],
        body=row["body"] or "",
        sequence_id=row["sequence_id"],
        step=row["step"],
        attempt=row["attempts"],
        fence=row["fence"],
        begun_at=row["begun_at"],
        media=_file(row),
    )


def lock_state(conn: Connection, message: OutboxMessage | Due) -> State:
    """Lock the lead and the message, in that order, and say where the message stands."""
    conn.execute(
        text("SELECT 1 FROM gold_lead_journey WHERE lead_id = :lead FOR UPDATE"),
        {"lead": message.lead_id},
    )
    state = conn.execute(
        text("SELECT state FROM outbox_messages WHERE id = :id FOR UPDATE"), {"id": message.id}
    ).scalar_one()
    return State(state)


def retries_of(conn: Connection, message_id: int) -> int:
    """How often this message was put off after an attempt."""
    return conn.execute(
        text("SELECT retries FROM outbox_messages WHERE id = :id"), {"id": message_id}
    ).scalar_one()


def refused_by_phones(conn: Connection, message: OutboxMessage) -> list[Refused]:
    """The phones that have refused this message in words about themselves.

    A message that a person sends again is the same message: what the first one met counts.
    """
    rows = conn.execute(
        text("""
            WITH RECURSIVE same AS (
              SELECT CAST(:id AS bigint) AS id
              UNION ALL
              SELECT o.id FROM same JOIN outbox_messages o
                ON o.replaced_by = same.id AND o.lead_id = :lead
            ), refused AS (
              SELECT a.phone_id, max(a.begun_at) AS at, max(a.finished_at) AS known_at
              FROM same JOIN send_attempts a ON a.message_id = same.id
              WHERE a.code = ANY(:codes) GROUP BY a.phone_id
            )
            SELECT r.phone_id,
                   EXISTS (SELECT 1 FROM send_attempts s
                           WHERE s.phone_id = r.phone_id AND s.begun_at > r.at
                             AND s.outcome = 'sent'),
                   p.status <> 'ACTIVE' AND p.status_changed_at = r.known_at
            FROM refused r JOIN wa_phone_numbers p ON p.id = r.phone_id ORDER BY r.at
        """),
        {"id": message.id, "lead": message.lead_id, "codes": list(STOPS_A_PHONE)},
    )
    return [Refused(*row) for row in rows]


def plan_step(
    conn: Connection,
    *,
    after: OutboxMessage,
    step: int,
    template_id: int,
    due_at: datetime,
    by: str,
) -> bool:
    """Plan the next step of a sequence in the same chat; False when it is planned already."""
    planned = conn.execute(
        text("""
            INSERT INTO outbox_messages
              (tenant_id, channel, kind, lead_id, phone_id, recipient, sequence_id, step,
               template_id, due_at, planned_by)
            VALUES (:tenant, :channel, 'followup', :lead, :phone, :recipient, :sequence, :step,
                    :template, :due, :by)
            ON CONFLICT DO NOTHING
        """),
        {
            "tenant": after.tenant_id,
            "channel": after.channel,
            "lead": after.lead_id,
            "phone": after.phone_id,
            "recipient": after.to,
            "sequence": after.sequence_id,
            "step": step,
            "template": template_id,
            "due": due_at,
            "by": by,
        },
    )
    return planned.rowcount > 0


def plan_file(
    conn: Connection, lead_id: UUID, *, media_id: int, caption: str, by: str, now: datetime
) -> int | None:
    """Plan a file into a lead's chat, once per file; None when it is planned or sent already.

    The lead must have a phone that it knows: a file never opens a conversation.
    """
    return conn.execute(
        text("""
            INSERT INTO outbox_messages
              (tenant_id, channel, kind, lead_id, phone_id, recipient, content, media_id,
               dedupe_key, due_at, planned_by)
            SELECT j.tenant_id, 'WHATSAPP', 'media', j.lead_id, j.assigned_phone_id,
                   c.telefon_principal, :caption, :media,
                   format('file %s to %s', CAST(:media AS bigint), j.lead_id), :now, :by
            FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
            WHERE j.lead_id = :lead
            ON CONFLICT DO NOTHING RETURNING id
        """),
        {"lead": lead_id, "media": media_id, "caption": caption, "by": by, "now": now},
    ).scalar_one_or_none()


def cancel_pending(
    conn: Connection,
    lead_ids: Collection[UUID],
    *,
    why: str,
    who: str,
    now: datetime,
    channel: str | None = None,
    also_by_hand: bool = True,
) -> int:
    """Cancel every message to these leads that has not begun, on one channel or on all.

    Without `also_by_hand` what a person planned stays: only sequences end.
    """
    cancelled = conn.execute(
        text("""
            WITH pending AS (
              SELECT id, state FROM outbox_messages
              WHERE lead_id = ANY(:leads) AND state IN ('planned', 'deferred')
                AND (:by_hand OR sequence_id IS NOT NULL)
                AND (CAST(:channel AS text) IS NULL OR channel = :channel)
              ORDER BY id FOR UPDATE
            ), moved AS (
              UPDATE outbox_messages o SET state = 'cancelled', reason = :why, updated_at = :now
              FROM pending p WHERE o.id = p.id RETURNING o.id, p.state
            ), traced AS (
              INSERT INTO outbox_changes (message_id, from_state, to_state, at, who, why)
              SELECT id, state, 'cancelled', :now, :who, :why FROM moved RETURNING message_id
            )
            SELECT count(*) FROM traced
        """),
        {
            "leads": list(lead_ids),
            "why": why,
            "who": who,
            "now": now,
            "channel": channel,
            "by_hand": also_by_hand,
        },
    )
    return cancelled.scalar_one()
