"""Who asked us to stop, as keyed hashes: enough to honour it, useless to anyone else."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable
from datetime import datetime

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.contacts import canonical_address, canonical_cui


def person_key(secret: bytes, address: str) -> bytes:
    """The hash of a number or address, the same for every spelling of it."""
    return _hash(secret, canonical_address(address))


def company_key(secret: bytes, cui: str) -> bytes:
    """The hash of a company's number."""
    return _hash(secret, f"cui {canonical_cui(cui)}")


def keys_of(secret: bytes, *, addresses: Iterable[str | None], cui: str | None) -> list[bytes]:
    """Every key under which a "stop" may hold for a lead with these addresses."""
    persons = {person_key(secret, address) for address in addresses if address}
    return sorted(persons | ({company_key(secret, cui)} if cui else set()))


def is_suppressed(conn: Connection, tenant_id: str, keys: Collection[bytes]) -> bool:
    """Whether one of these asked this tenant to stop."""
    return conn.execute(
        text("""
            SELECT EXISTS (SELECT 1 FROM suppressions
                           WHERE tenant_id = :tenant AND key_hmac = ANY(:keys))
        """),
        {"tenant": tenant_id, "keys": list(keys)},
    ).scalar_one()


def anybody(conn: Connection, tenant_id: str) -> bool:
    """Whether anybody at all asked this tenant to stop."""
    return conn.execute(
        text("SELECT EXISTS (SELECT 1 FROM suppressions WHERE tenant_id = :tenant)"),
        {"tenant": tenant_id},
    ).scalar_one()


def stopped_among(conn: Connection, tenant_id: str, keys: Collection[bytes]) -> frozenset[bytes]:
    """Those of these keys that asked this tenant to stop."""
    found = conn.execute(
        text("""
            SELECT key_hmac FROM suppressions WHERE tenant_id = :tenant AND key_hmac = ANY(:keys)
        """),
        {"tenant": tenant_id, "keys": list(keys)},
    )
    return frozenset(map(bytes, found.scalars()))


def suppress(
    conn: Connection,
    *,
    tenant_id: str,
    persons: Collection[bytes],
    companies: Collection[bytes],
    reason: str,
    now: datetime,
) -> None:
    """Keep these hashes for good; the first reason stays."""
    conn.execute(
        text("""
            INSERT INTO suppressions (tenant_id, key_hmac, scope, reason, at)
            SELECT :tenant, key, scope, :reason, :now
            FROM unnest(CAST(:keys AS bytea[]), CAST(:scopes AS text[])) AS s (key, scope)
            ORDER BY key
            ON CONFLICT DO NOTHING
        """),
        {
            "tenant": tenant_id,
            "keys": [*persons, *companies],
            "scopes": ["person"] * len(persons) + ["company"] * len(companies),
            "reason": reason,
            "now": now,
        },
    )


def _hash(secret: bytes, said: str) -> bytes:
    return hmac.new(secret, said.encode(), hashlib.sha256).digest()
