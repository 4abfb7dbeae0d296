"""Alerts: opened once, told, acknowledged, and closed when their cause is gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.alerts import Alert

_ALERT = """
    SELECT id, tenant_id, kind, subject, detail, opened_at, notified_at, acknowledged_at,
           acknowledged_by
    FROM alerts WHERE closed_at IS NULL
"""


def open_once(
    conn: Connection, *, tenant_id: str | None, kind: str, subject: str, detail: str, now: datetime
) -> bool:
    """Open an alert of a tenant or the installation; False when the same one is open."""
    opened = conn.execute(
        text("""
            INSERT INTO alerts (tenant_id, kind, subject, detail, opened_at)
            VALUES (:tenant, :kind, :subject, :detail, :now)
            ON CONFLICT (coalesce(tenant_id, ''), kind, subject) WHERE closed_at IS NULL DO NOTHING
        """),
        {"tenant": tenant_id, "kind": kind, "subject": subject, "detail": detail, "now": now},
    )
    return opened.rowcount > 0


def keep_open(
    conn: Connection,
    told: Mapping[str, str],
    *,
    kind: str,
    of_tenants: bool = False,
    now: datetime,
) -> None:
    """Keep an alert of this kind open about each of these subjects, and about nobody else.

    `told` has the detail by subject. With `of_tenants` each subject is a tenant, whose alert it is.
    """
    for subject, detail in told.items():
        whose = subject if of_tenants else None
        open_once(conn, tenant_id=whose, kind=kind, subject=subject, detail=detail, now=now)
    close_others(conn, kind=kind, subjects=told, now=now)


def close(conn: Connection, *, kinds: Sequence[str], subjects: Sequence[str], now: datetime) -> int:
    """Close the open alerts of these kinds about these subjects; returns how many there were."""
    closed = conn.execute(
        text("""
            UPDATE alerts SET closed_at = :now
            WHERE kind = ANY(:kinds) AND subject = ANY(:subjects) AND closed_at IS NULL
        """),
        {"kinds": list(kinds), "subjects": list(subjects), "now": now},
    )
    return closed.rowcount


def close_others(conn: Connection, *, kind: str, subjects: Collection[str], now: datetime) -> None:
    """Close the alerts of a kind about whoever is not among these any more."""
    gone = {alert.subject for alert in open_alerts(conn, kind=kind)} - set(subjects)
    if gone:
        close(conn, kinds=(kind,), subjects=sorted(gone), now=now)


def open_alerts(
    conn: Connection, *, tenant_id: str | None = None, kind: str | None = None
) -> list[Alert]:
    """The alerts whose cause is not gone yet, oldest first."""
    rows = conn.execute(
        text(f"""
            {_ALERT} AND (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant
                   OR tenant_id IS NULL)
              AND (CAST(:kind AS text) IS NULL OR kind = :kind)
            ORDER BY opened_at, id
        """),
        {"tenant": tenant_id, "kind": kind},
    )
    return [Alert(*row) for row in rows]


def untold(conn: Connection, *, limit: int) -> list[Alert]:
    """Open alerts of which nobody knows yet, oldest first."""
    rows = conn.execute(
        text(f"""
            {_ALERT} AND notified_at IS NULL AND acknowledged_at IS NULL
            ORDER BY opened_at, id LIMIT :limit
        """),
        {"limit": limit},
    )
    return [Alert(*row) for row in rows]


def told(conn: Connection, alert_id: int, *, now: datetime) -> None:
    """Note that people were told."""
    conn.execute(
        text("UPDATE alerts SET notified_at = :now WHERE id = :id AND notified_at IS NULL"),
        {"id": alert_id, "now": now},
    )


def acknowledge(conn: Connection, alert_id: int, *, by: str, now: datetime) -> str | None:
    """Note who takes care of an open alert, and return who that is; None when it is not open.

    The first one keeps it.
    """
    return conn.execute(
        text("""
            UPDATE alerts SET acknowledged_at = coalesce(acknowledged_at, :now),
                              acknowledged_by = coalesce(acknowledged_by, :by)
            WHERE id = :id AND closed_at IS NULL RETURNING acknowledged_by
        """),
        {"id": alert_id, "by": by, "now": now},
    ).scalar_one_or_none()
