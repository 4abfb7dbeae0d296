"""Numbers and addresses at which people write to us, beside the phones: whose each is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.contacts import canonical_address


@dataclass(frozen=True)
class Receiver:
    """Somebody's number or address; without a tenant what comes to it is nobody's business here."""

    tenant_id: str | None


def find(conn: Connection, address: str | None) -> Receiver | None:
    """Whose number or address this is; None: nobody has said."""
    row = conn.execute(
        text("SELECT tenant_id FROM receivers WHERE address = :address"),
        {"address": address and canonical_address(address)},
    ).one_or_none()
    return Receiver(row.tenant_id) if row else None


def note(conn: Connection, address: str, *, tenant_id: str | None, by: str, now: datetime) -> None:
    """Write down whose number or address this is; the last word counts."""
    conn.execute(
        text("""
            INSERT INTO receivers (address, tenant_id, noted_by, noted_at)
            VALUES (:address, :tenant, :by, :now)
            ON CONFLICT (address) DO UPDATE
            SET tenant_id = excluded.tenant_id, noted_by = excluded.noted_by,
                noted_at = excluded.noted_at
        """),
        {"address": canonical_address(address), "tenant": tenant_id, "by": by, "now": now},
    )


def listing(conn: Connection) -> list[dict[str, Any]]:
    """Every one that is known, and those of nobody with what waits for each."""
    rows = conn.execute(
        text("""
            SELECT coalesce(r.address, d.receiver) AS address, r.tenant_id,
                   r.address IS NOT NULL AS is_known, r.noted_by, r.noted_at,
                   coalesce(d.waiting, 0) AS waiting, d.since
            FROM receivers r FULL JOIN (
              SELECT receiver, count(*) AS waiting, min(at) AS since FROM dead_letters
              WHERE resolved_at IS NULL AND receiver IS NOT NULL GROUP BY receiver
            ) d ON d.receiver = r.address
            ORDER BY is_known, address
        """)
    ).mappings()
    return [dict(row) for row in rows]
