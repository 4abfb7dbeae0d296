"""Parked sends: messages of which nobody knows whether they went out."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.outbox import OutboxMessage


def parked(conn: Connection, *, tenant_id: str | None = None) -> list[dict[str, Any]]:
    """Every parked send, oldest first, with what it takes to find it in the chat."""
    rows = conn.execute(
        text("""
            SELECT o.id, o.tenant_id, c.denumire AS company, o.phone_id, o.recipient, o.step,
                   o.begun_at, o.attempts, o.reason, o.body
            FROM outbox_messages o LEFT JOIN gold_companies c ON c.id = o.lead_id
            WHERE o.state = 'parked'
              AND (CAST(:tenant AS text) IS NULL OR o.tenant_id = :tenant)
            ORDER BY o.begun_at, o.id
        """),
        {"tenant": tenant_id},
    ).mappings()
    return [dict(row) for row in rows]


def begun(conn: Connection, message_id: int) -> OutboxMessage | None:
    """A message as it was last handed to its provider; None when it never was."""
    row = (
        conn.execute(
            text("""
                SELECT o.*, p.phone_number, p.provider, j.chat_id,
                       coalesce(p.meta_phone_number_id, p.timelinesai_account_id) AS account_id
                FROM outbox_messages o
                JOIN wa_phone_numbers p ON p.id = o.phone_id
                LEFT JOIN gold_lead_journey j ON j.lead_id = o.lead_id
                WHERE o.id = :id AND o.begun_at IS NOT NULL
            """),
            {"id": message_id},
        )
        .mappings()
        .one_or_none()
    )
    if row is None:
        return None
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
        chat_id=row["chat_id"],
        body=row["body"] or "",
        sequence_id=row["sequence_id"],
        step=row["step"],
        attempt=row["attempts"],
        fence=row["fence"],
        begun_at=row["begun_at"],
    )
