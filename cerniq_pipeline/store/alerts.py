"""Alerts: opened once, told, acknowledged, and closed when their cause is gone."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text


def open_once(
    conn: Connection, *, tenant_id: str, kind: str, subject: str, detail: str, now: datetime
) -> bool:
    """Open an alert; False when the same one is open already."""
    opened = conn.execute(
        text("""
            INSERT INTO alerts (tenant_id, kind, subject, detail, opened_at)
            VALUES (:tenant, :kind, :subject, :detail, :now)
            ON CONFLICT (tenant_id, kind, subject) WHERE closed_at IS NULL DO NOTHING
        """),
        {"tenant": tenant_id, "kind": kind, "subject": subject, "detail": detail, "now": now},
    )
    return opened.rowcount > 0


def close(conn: Connection, *, kinds: tuple[str, ...], subject: str, now: datetime) -> int:
    """Close the open alerts of these kinds about this subject; returns how many there were."""
    closed = conn.execute(
        text("""
            UPDATE alerts SET closed_at = :now
            WHERE kind = ANY(:kinds) AND subject = :subject AND closed_at IS NULL
        """),
        {"kinds": list(kinds), "subject": subject, "now": now},
    )
    return closed.rowcount
