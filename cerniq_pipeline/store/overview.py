"""Reads for people: counts, look-ups by name, and the message a lead waits for."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.leads import PRIORITIES
from cerniq_pipeline.domain.names import Name
from cerniq_pipeline.domain.quotas import Budget, limit_on
from cerniq_pipeline.store import leads, tenants
from cerniq_pipeline.store.outbox import QUEUE

MOST_CANDIDATES = 50
"""Leads whose id begins alike, of which a person may be meant to choose one."""


def counts(conn: Connection, *, tenant_id: str | None) -> dict[str, Any]:
    """Leads by stage, messages by state, and what waits for a person."""
    chosen = {"tenant": tenant_id}
    by_stage = conn.execute(
        text("""
            SELECT engagement_stage, count(*) FROM gold_lead_journey
            WHERE CAST(:tenant AS text) IS NULL OR tenant_id = :tenant GROUP BY 1 ORDER BY 1
        """),
        chosen,
    )
    by_state = conn.execute(
        text("""
            SELECT state, count(*) FROM outbox_messages
            WHERE CAST(:tenant AS text) IS NULL OR tenant_id = :tenant GROUP BY 1 ORDER BY 1
        """),
        chosen,
    )
    dead = conn.execute(
        text("""
            SELECT count(*) FROM dead_letters
            WHERE resolved_at IS NULL AND (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant)
        """),
        chosen,
    ).scalar_one()
    open_alerts = conn.execute(
        text("""
            SELECT kind, subject, detail, opened_at FROM alerts
            WHERE closed_at IS NULL
              AND (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant OR tenant_id IS NULL)
            ORDER BY opened_at
        """),
        chosen,
    ).mappings()
    by_priority = conn.execute(
        text("""
            SELECT coalesce(human_review_priority, 'MEDIUM') AS priority, count(*)
            FROM gold_lead_journey
            WHERE requires_human_review AND (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant)
            GROUP BY 1 ORDER BY array_position(CAST(:order AS text[]),
                                               coalesce(human_review_priority, 'MEDIUM'))
        """),
        {**chosen, "order": list(PRIORITIES)},
    )
    return {
        "leads": {row[0]: row[1] for row in by_stage},
        "outbox": {row[0]: row[1] for row in by_state},
        "reviews": {row[0]: row[1] for row in by_priority},
        "dead_letters": dead,
        "alerts": [dict(row) for row in open_alerts],
    }


def reviews(conn: Connection, *, tenant_id: str | None) -> list[dict[str, Any]]:
    """The leads that a person must look at, the gravest first, then who has waited longest."""
    rows = conn.execute(
        text("""
            SELECT j.lead_id, j.tenant_id, c.denumire AS company, j.engagement_stage AS stage,
                   coalesce(j.human_review_priority, 'MEDIUM') AS priority,
                   j.human_review_reason AS reason, j.last_reply_at,
                   c.telefon_principal AS number, c.email_principal AS email,
                   (SELECT coalesce(l.content_rendered, l.content,
                                    '(' || coalesce(l.media_type, l.message_type) || ')')
                    FROM gold_communication_log l
                    WHERE l.lead_journey_id = j.lead_id AND l.direction = 'INBOUND'
                    ORDER BY l.sent_at DESC NULLS LAST, l.id LIMIT 1) AS said
            FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
            WHERE j.requires_human_review
              AND (CAST(:tenant AS text) IS NULL OR j.tenant_id = :tenant)
            ORDER BY array_position(CAST(:order AS text[]),
                                    coalesce(j.human_review_priority, 'MEDIUM')),
                     j.last_reply_at NULLS LAST, j.lead_id
        """),
        {"tenant": tenant_id, "order": list(PRIORITIES)},
    ).mappings()
    return [dict(row) for row in rows]


def phones(conn: Connection, *, tenant_id: str | None, now: datetime) -> list[dict[str, Any]]:
    """Every phone with what it opened and may open on its tenant's day."""
    whose = {tenant.id: tenant for tenant in tenants.everyone(conn)}
    days = {name: tenant.calendar.day_of(now) for name, tenant in whose.items()}
    rows = conn.execute(
        text("""
            SELECT p.*, d.day,
                   (SELECT count(*) FROM quota_ledger q WHERE q.phone_id = p.id
                     AND q.day = d.day AND q.state <> 'released') AS sent_today
            FROM wa_phone_numbers p
            JOIN unnest(CAST(:tenants AS text[]), CAST(:days AS date[])) AS d (tenant_id, day)
              ON d.tenant_id = p.tenant_id
            WHERE CAST(:tenant AS text) IS NULL OR p.tenant_id = :tenant
            ORDER BY p.id
        """),
        {"tenants": list(days), "days": list(days.values()), "tenant": tenant_id},
    ).mappings()
    return [
        {
            "id": row["id"],
            "tenant_id": row["tenant_id"],
            "number": row["phone_number"],
            "status": row["status"] if row["is_enabled"] else "DISABLED",
            "sent_today": row["sent_today"],
            "quota_today": limit_on(
                row["day"],
                quota=row["daily_quota"],
                warm_up_from=row["warm_up_from"],
                budget=Budget(
                    whose[row["tenant_id"]].unanswered_per_month, row["unanswered_this_month"]
                ),
            ),
        }
        for row in rows
    ]


def switches(conn: Connection, *, tenant_id: str | None = None) -> list[dict[str, Any]]:
    """Every kill switch that is off, or every one that binds this tenant."""
    rows = conn.execute(
        text("""
            SELECT * FROM switches
            WHERE CAST(:tenant AS text) IS NULL OR scope IN ('global', 'channel')
               OR (scope, key) IN (
                 SELECT 'tenant', CAST(:tenant AS text)
                 UNION SELECT unnest(ARRAY['phone', 'account']), unnest(ARRAY[id, provider])
                 FROM wa_phone_numbers WHERE tenant_id = :tenant)
            ORDER BY scope, key
        """),
        {"tenant": tenant_id},
    ).mappings()
    return [dict(row) for row in rows]


def find_phone(conn: Connection, name: Name, *, tenant_id: str | None) -> str | None:
    """A phone of ours by its id or its number."""
    return conn.execute(
        text("""
            SELECT id FROM wa_phone_numbers
            WHERE (id = :typed OR phone_number = :number)
              AND (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant)
            ORDER BY id = :typed DESC LIMIT 1
        """),
        {"typed": name.typed, "number": name.number, "tenant": tenant_id},
    ).scalar_one_or_none()


def find_leads(
    conn: Connection, name: Name, *, tenant_id: str | None
) -> tuple[Name, dict[UUID, str]]:
    """The leads that are called this, each with its tenant, and the reading by which they are.

    The first reading that any lead has; the name as it is when none has one.
    """
    places = [tenant_id] if tenant_id is not None else tenants.all_ids(conn)
    for reading in name.readings():
        if ids := reading.id_range or (reading.lead_id and (reading.lead_id, reading.lead_id)):
            found = _leads_between(conn, *ids, tenant_id)
        else:
            found = {
                lead_id: place
                for place in places
                for lead_id in leads.ids_by_address(
                    conn,
                    place,
                    numbers=[reading.number] if reading.number else [],
                    emails=[reading.email] if reading.email else [],
                    companies=[reading.cui] if reading.cui else [],
                )
            }
        if found:
            return reading, found
    return name, {}


def _leads_between(
    conn: Connection, first: UUID, last: UUID, tenant_id: str | None
) -> dict[UUID, str]:
    rows = conn.execute(
        text("""
            SELECT id, tenant_id FROM gold_companies
            WHERE id BETWEEN :first AND :last
              AND (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant)
            ORDER BY id LIMIT :most
        """),
        {"first": first, "last": last, "tenant": tenant_id, "most": MOST_CANDIDATES},
    )
    return {row.id: row.tenant_id for row in rows}


def described(conn: Connection, lead_ids: Collection[UUID]) -> list[str]:
    """Each of these leads in a few words, so that a person can choose one."""
    rows = conn.execute(
        text("""
            SELECT id, denumire, tenant_id FROM gold_companies WHERE id = ANY(:ids)
            ORDER BY denumire, id
        """),
        {"ids": list(lead_ids)},
    )
    return [f"{row.id} ({row.denumire}, tenant {row.tenant_id})" for row in rows]


def lead(conn: Connection, lead_id: UUID) -> dict[str, Any]:
    """A lead's journey with its company's name, addresses and number."""
    row = (
        conn.execute(
            text("""
                SELECT j.*, c.denumire, c.telefon_principal, c.email_principal, c.cui
                FROM gold_lead_journey j
                JOIN gold_companies c ON c.id = j.lead_id WHERE j.lead_id = :lead
            """),
            {"lead": lead_id},
        )
        .mappings()
        .one()
    )
    return dict(row)


def last_message(conn: Connection, lead_id: UUID) -> dict[str, Any] | None:
    """The newest message of a lead, open ones first."""
    row = (
        conn.execute(
            text("""
                SELECT id, lead_id, phone_id, kind, step, state, reason, due_at, attempts, retries
                FROM outbox_messages WHERE lead_id = :lead
                ORDER BY state IN ('sent', 'failed', 'cancelled'), id DESC LIMIT 1
            """),
            {"lead": lead_id},
        )
        .mappings()
        .one_or_none()
    )
    return dict(row) if row else None


def message_of_step(conn: Connection, lead_id: UUID, step: int) -> dict[str, Any] | None:
    """The message of one step of a lead, in whatever state, with its text if it has one."""
    row = (
        conn.execute(
            text("""
                SELECT o.id, o.lead_id, o.phone_id, o.kind, o.step, o.state, o.reason, o.due_at,
                       o.begun_at, o.body, o.recipient, m.filename
                FROM outbox_messages o LEFT JOIN templates t ON t.id = o.template_id
                LEFT JOIN media_files m ON m.id = coalesce(o.media_id, t.media_id)
                WHERE o.lead_id = :lead AND o.step = :step AND o.replaced_by IS NULL
                ORDER BY o.id DESC LIMIT 1
            """),
            {"lead": lead_id, "step": step},
        )
        .mappings()
        .one_or_none()
    )
    return dict(row) if row else None


def ahead_of(conn: Connection, phone_id: str, message_id: int) -> int:
    """How many messages of this phone go before this one."""
    return conn.execute(
        text(f"""
            SELECT count(*) FROM outbox_messages
            WHERE phone_id = :phone AND state IN ('planned', 'deferred')
              AND ({QUEUE}) < (SELECT {QUEUE} FROM outbox_messages WHERE id = :id)
        """),  # noqa: S608 - a constant of the outbox
        {"phone": phone_id, "id": message_id},
    ).scalar_one()


def waiting(conn: Connection, phone_id: str) -> int:
    """How many messages wait for this phone."""
    return conn.execute(
        text("""
            SELECT count(*) FROM outbox_messages
            WHERE phone_id = :phone AND state IN ('planned', 'deferred')
        """),
        {"phone": phone_id},
    ).scalar_one()


def in_flight(conn: Connection, phone_id: str) -> int | None:
    """The message that this phone is sending right now."""
    return conn.execute(
        text("SELECT id FROM outbox_messages WHERE phone_id = :phone AND state = 'sending'"),
        {"phone": phone_id},
    ).scalar_one_or_none()


# ── The inbox ─────────────────────────────────────────────────────────────────────────────────

_EVENTS = """
    SELECT e.id, e.received_at, e.provider, e.event_type, e.event_key, e.source, e.account,
           p.id AS phone_id, p.tenant_id, e.contact, e.state, e.tries, e.next_try_at, e.handled_at,
           e.result, e.error, e.correlation_id
    FROM webhook_events e LEFT JOIN wa_phone_numbers p ON p.phone_number = e.account
"""


def events(conn: Connection, *, state: str | None, limit: int) -> list[dict[str, Any]]:
    """The last stored events, newest first, without their bodies."""
    chosen = "WHERE CAST(:state AS text) IS NULL OR e.state = :state ORDER BY e.id DESC LIMIT :most"
    rows = conn.execute(text(_EVENTS + chosen), {"state": state, "most": limit}).mappings()
    return [dict(row) for row in rows]


def event(conn: Connection, event_id: int) -> tuple[dict[str, Any], bytes] | None:
    """One stored event and its body."""
    chosen = {"id": event_id}
    found = conn.execute(text(_EVENTS + "WHERE e.id = :id"), chosen).mappings().one_or_none()
    if found is None:
        return None
    body = conn.execute(text("SELECT body FROM webhook_events WHERE id = :id"), chosen)
    return dict(found), bytes(body.scalar_one())


def oldest_waiting(conn: Connection, *, tenant_id: str | None = None) -> datetime | None:
    """When the oldest event came that nobody has handled yet, at all or at a tenant's phones."""
    return conn.execute(
        text("""
            SELECT min(received_at) FROM webhook_events
            WHERE state = 'waiting' AND (CAST(:tenant AS text) IS NULL OR account IN
              (SELECT phone_number FROM wa_phone_numbers WHERE tenant_id = :tenant))
        """),
        {"tenant": tenant_id},
    ).scalar_one()


def from_strangers(conn: Connection, *, limit: int) -> list[dict[str, Any]]:
    """The last messages from people who belong to no lead, newest first."""
    rows = conn.execute(
        text("""
            SELECT l.id, l.tenant_id, l.channel, coalesce(l.sent_at, l.created_at) AS at,
                   l.phone_id, l.phone_number, l.contact, v.customer_name, l.message_type,
                   l.media_type, l.external_message_id,
                   coalesce(l.content_rendered, l.content) AS text
            FROM gold_communication_log l
            LEFT JOIN whatsapp_conversations v ON v.id = l.conversation_id
            WHERE l.direction = 'INBOUND' AND l.lead_journey_id IS NULL
            ORDER BY 4 DESC, l.id LIMIT :limit
        """),
        {"limit": limit},
    ).mappings()
    return [dict(row) for row in rows]
