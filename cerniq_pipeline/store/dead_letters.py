"""Dead letters: messages that failed for good, until a person or time has settled each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

REVIEW_REQUIRED = frozenset({"PHONE_BANNED", "ACCOUNT_SUSPENDED", "INVALID_LEAD"})
"""Codes of failures that come back unless a person has looked at their cause."""


@dataclass(frozen=True)
class Letter:
    """A dead letter; `settled` says how and by whom, or is None while it is open."""

    id: int
    message_id: int
    code: str
    review_required: bool
    settled: str | None


def bury(
    conn: Connection, *, message_id: int, tenant_id: str, code: str, detail: str, now: datetime
) -> None:
    """Put a failed message on the dead-letter list."""
    conn.execute(
        text("""
            INSERT INTO dead_letters (tenant_id, message_id, code, detail, review_required, at)
            VALUES (:tenant, :message, :code, :detail, :review, :now)
            ON CONFLICT (message_id) DO NOTHING
        """),
        {
            "tenant": tenant_id,
            "message": message_id,
            "code": code,
            "detail": detail,
            "review": code in REVIEW_REQUIRED,
            "now": now,
        },
    )


def open_letters(
    conn: Connection, *, tenant_id: str | None = None, code: str | None = None
) -> list[dict[str, Any]]:
    """The letters that wait for a person, oldest first, with what it takes to judge them."""
    rows = conn.execute(
        text("""
            SELECT d.id, d.tenant_id, d.code, d.detail, d.review_required, d.at, d.message_id,
                   c.denumire AS company, o.phone_id, o.step, o.attempts
            FROM dead_letters d
            JOIN outbox_messages o ON o.id = d.message_id
            LEFT JOIN gold_companies c ON c.id = o.lead_id
            WHERE d.resolved_at IS NULL
              AND (CAST(:tenant AS text) IS NULL OR d.tenant_id = :tenant)
              AND (CAST(:code AS text) IS NULL OR d.code = :code)
            ORDER BY d.at, d.id
        """),
        {"tenant": tenant_id, "code": code},
    ).mappings()
    return [dict(row) for row in rows]


def message_ids(conn: Connection, letter_ids: Sequence[int]) -> list[int]:
    """The messages that these letters are about."""
    return list(
        conn.execute(
            text("SELECT message_id FROM dead_letters WHERE id = ANY(:ids)"),
            {"ids": list(letter_ids)},
        ).scalars()
    )


def lock(conn: Connection, letter_ids: Sequence[int]) -> dict[int, Letter]:
    """Lock these letters; who needs their messages too locks those first."""
    rows = conn.execute(
        text("""
            SELECT id, message_id, code, review_required,
                   CASE WHEN resolved_at IS NOT NULL
                        THEN concat_ws(' by ', coalesce(resolution, 'settled'), resolved_by) END
                     AS settled
            FROM dead_letters WHERE id = ANY(:ids) ORDER BY id FOR UPDATE
        """),
        {"ids": list(letter_ids)},
    )
    return {row.id: Letter(*row) for row in rows}


def resolve(conn: Connection, resolutions: Mapping[int, str], *, by: str, now: datetime) -> None:
    """Take these letters off the list, each with what became of it; the caller has locked them."""
    conn.execute(
        text("""
            UPDATE dead_letters d
            SET resolved_at = :now, resolved_by = :by, resolution = r.resolution
            FROM unnest(CAST(:ids AS bigint[]), CAST(:said AS text[])) AS r (id, resolution)
            WHERE d.id = r.id AND d.resolved_at IS NULL
        """),
        {
            "ids": list(resolutions),
            "said": list(resolutions.values()),
            "by": by,
            "now": now,
        },
    )


def expire(conn: Connection, *, before: datetime, resolution: str, by: str, now: datetime) -> int:
    """Settle every open letter from before an instant; returns how many there were."""
    expired = conn.execute(
        text("""
            UPDATE dead_letters SET resolved_at = :now, resolved_by = :by, resolution = :said
            WHERE id IN (SELECT id FROM dead_letters WHERE resolved_at IS NULL AND at < :before
                         ORDER BY id FOR UPDATE)
        """),
        {"before": before, "said": resolution, "by": by, "now": now},
    )
    return expired.rowcount


def backlog(conn: Connection, *, above: int) -> dict[str, int]:
    """The tenants with more open letters than this, and how many they have."""
    rows = conn.execute(
        text("""
            SELECT tenant_id, count(*) FROM dead_letters WHERE resolved_at IS NULL
            GROUP BY tenant_id HAVING count(*) > :above
        """),
        {"above": above},
    )
    return {row[0]: row[1] for row in rows}
