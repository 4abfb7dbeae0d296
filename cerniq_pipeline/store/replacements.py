"""One message in the place of another, under the locks of its lead and of the message itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, text

from cerniq_pipeline.domain.leads import known_stage
from cerniq_pipeline.domain.outbox import OPEN, State
from cerniq_pipeline.domain.replacements import LeadNow, Original
from cerniq_pipeline.store import suppressions


def lock_originals(
    conn: Connection, message_ids: Sequence[int], *, secret: bytes
) -> dict[int, Original]:
    """Lock these messages after their leads, and say how both stand now."""
    chosen = {"ids": list(message_ids), "open": list(OPEN)}
    conn.execute(
        text("""
            SELECT 1 FROM gold_lead_journey
            WHERE lead_id IN (SELECT lead_id FROM outbox_messages WHERE id = ANY(:ids))
            ORDER BY lead_id FOR UPDATE
        """),
        chosen,
    )
    conn.execute(
        text("SELECT 1 FROM outbox_messages WHERE id = ANY(:ids) ORDER BY id FOR UPDATE"), chosen
    )
    # Read only now: what another transaction changed while we waited must be seen.
    rows = conn.execute(
        text("""
            SELECT o.id, o.lead_id, o.tenant_id, o.recipient, o.state, o.replaced_by, o.not_after,
                   j.engagement_stage, j.whatsapp_opted_out OR j.email_opted_out AS opted_out,
                   j.in_conversation OR j.held_by IS NOT NULL AS in_conversation,
                   c.telefon_principal, c.email_principal, c.cui,
                   (SELECT min(u.id) FROM outbox_messages u
                    WHERE u.lead_id = o.lead_id AND u.id <> o.id AND u.state = ANY(:open))
                     AS under_way,
                   EXISTS (SELECT 1 FROM outbox_messages s
                           WHERE s.recipient = c.telefon_principal AND s.id <> o.id
                             AND s.sequence_id = o.sequence_id AND s.step = o.step
                             AND s.replaced_by IS NULL) AS step_taken
            FROM outbox_messages o
            LEFT JOIN gold_lead_journey j ON j.lead_id = o.lead_id
            LEFT JOIN gold_companies c ON c.id = j.lead_id
            WHERE o.id = ANY(:ids) ORDER BY o.id
        """),
        chosen,
    )
    found = rows.mappings().all()
    suppressed = _suppressed(conn, found, secret)
    return {row["id"]: _original(row, suppressed=row["id"] in suppressed) for row in found}


def _suppressed(conn: Connection, rows: Sequence[RowMapping], secret: bytes) -> set[int]:
    """The messages to whose person this tenant may not write, at any address it knows."""
    keys = [
        (row["id"], row["tenant_id"], key)
        for row in rows
        for key in suppressions.keys_of(
            secret,
            addresses=(row["recipient"], row["telefon_principal"], row["email_principal"]),
            cui=row["cui"],
        )
    ]
    ids, tenants, hashes = zip(*keys, strict=True) if keys else ((), (), ())
    hits = conn.execute(
        text("""
            SELECT DISTINCT asked.id
            FROM unnest(CAST(:ids AS bigint[]), CAST(:tenants AS text[]), CAST(:keys AS bytea[]))
              AS asked (id, tenant_id, key_hmac)
            JOIN suppressions USING (tenant_id, key_hmac)
        """),
        {"ids": list(ids), "tenants": list(tenants), "keys": list(hashes)},
    )
    return set(hits.scalars())


def _original(row: RowMapping, *, suppressed: bool) -> Original:
    lead = None
    if row["engagement_stage"] is not None:
        lead = LeadNow(
            stage=known_stage(row["engagement_stage"]),
            opted_out=row["opted_out"] or suppressed,
            in_conversation=row["in_conversation"],
            under_way=row["under_way"],
            number=row["telefon_principal"],
            step_taken=row["step_taken"],
        )
    return Original(
        id=row["id"],
        lead_id=row["lead_id"],
        state=State(row["state"]),
        replaced_by=row["replaced_by"],
        not_after=row["not_after"],
        lead=lead,
    )


def replace(
    conn: Connection, message_ids: Sequence[int], *, by: str, now: datetime
) -> dict[int, int]:
    """Plan a new message for each of these, due now and to the company's number of today.

    The caller holds the locks and has asked `refusal`. Returns the new ids by the old ones; one is
    missing when its step was planned for that number in the meantime, through another lead: then
    nothing changed for it.
    """
    values: dict[str, Any] = {"ids": list(message_ids), "by": by, "now": now}
    # The old row goes first: as long as it is not replaced, it keeps its step for itself.
    conn.execute(
        text("""
            UPDATE outbox_messages
            SET replaced_by = nextval(pg_get_serial_sequence('outbox_messages', 'id')),
                updated_at = :now
            WHERE id = ANY(:ids)
        """),
        values,
    )
    made = conn.execute(
        text("""
            INSERT INTO outbox_messages
              (id, tenant_id, channel, kind, lead_id, phone_id, recipient, sequence_id, step,
               template_id, content, media_id, dedupe_key, reason, due_at, not_after, planned_by)
            OVERRIDING SYSTEM VALUE
            SELECT o.replaced_by, o.tenant_id, o.channel, o.kind, o.lead_id, o.phone_id,
                   c.telefon_principal, o.sequence_id, o.step, o.template_id, o.content,
                   o.media_id, CASE WHEN o.dedupe_key IS NOT NULL THEN 'in place of ' || o.id END,
                   'in place of message ' || o.id, :now, o.not_after, :by
            FROM outbox_messages o JOIN gold_companies c ON c.id = o.lead_id
            WHERE o.id = ANY(:ids) ORDER BY o.id
            ON CONFLICT DO NOTHING
            RETURNING id, lead_id
        """),
        values,
    ).all()
    conn.execute(
        text("""
            UPDATE outbox_messages SET replaced_by = NULL
            WHERE id = ANY(:ids) AND replaced_by <> ALL(CAST(:made AS bigint[]))
        """),
        {"ids": list(message_ids), "made": [row.id for row in made]},
    )
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET open_message = true, next_action_at = NULL, hold_reason = NULL, updated_at = :now
            WHERE lead_id = ANY(:leads)
        """),
        {"leads": [row.lead_id for row in made], "now": now},
    )
    pairs = conn.execute(
        text("""
            SELECT id, replaced_by FROM outbox_messages
            WHERE id = ANY(:ids) AND replaced_by IS NOT NULL
        """),
        values,
    )
    return {row.id: row.replaced_by for row in pairs}
