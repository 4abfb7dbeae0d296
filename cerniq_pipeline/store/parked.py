"""Parked sends: messages of which nobody knows whether they went out."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text


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
