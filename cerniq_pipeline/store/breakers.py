"""Circuit breakers in Postgres: all shifts of a provider share them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.breakers import PROBE_EVERY, Breaker, Scope

_COLUMNS = "scope, key, state, failures, openings, probe_at, last_code"


def not_closed(conn: Connection, *, provider: str, phone_id: str) -> list[Breaker]:
    """The breakers that a phone stands behind and that let nothing, or one message, through."""
    rows = conn.execute(
        text(f"""
            SELECT {_COLUMNS} FROM breakers
            WHERE (scope, key) IN (('provider', :provider), ('phone', :phone))
              AND state <> 'closed' ORDER BY scope DESC
        """),  # noqa: S608 - our own column names
        {"provider": provider, "phone": phone_id},
    )
    return [Breaker(*row) for row in rows]


def lock(conn: Connection, scope: Scope, key: str, *, now: datetime) -> Breaker:
    """One breaker, locked; made when it is its first trouble."""
    conn.execute(
        text("""
            INSERT INTO breakers (scope, key, changed_at) VALUES (:scope, :key, :now)
            ON CONFLICT DO NOTHING
        """),
        {"scope": scope, "key": key, "now": now},
    )
    row = conn.execute(
        text(f"SELECT {_COLUMNS} FROM breakers WHERE scope = :scope AND key = :key FOR UPDATE"),  # noqa: S608
        {"scope": scope, "key": key},
    ).one()
    return Breaker(*row)


def save(conn: Connection, breaker: Breaker, *, now: datetime) -> None:
    """Write a locked breaker back."""
    conn.execute(
        text("""
            UPDATE breakers SET state = :state, failures = :failures, openings = :openings,
                   probe_at = :probe_at, last_code = :last_code, changed_at = :now
            WHERE scope = :scope AND key = :key
        """),
        {**vars(breaker), "now": now},
    )


def heal(conn: Connection, *, provider: str, phone_id: str, now: datetime) -> int:
    """Close both breakers of a phone; writes nothing when they were in perfect order."""
    return conn.execute(
        text("""
            UPDATE breakers
            SET state = 'closed', failures = 0, openings = 0, probe_at = NULL, changed_at = :now
            WHERE (scope, key) IN (('provider', :provider), ('phone', :phone))
              AND (state <> 'closed' OR failures > 0)
        """),
        {"provider": provider, "phone": phone_id, "now": now},
    ).rowcount


def take_turn(conn: Connection, breaker: Breaker, *, now: datetime) -> bool:
    """Take the one turn that a breaker gives until its next probe; False when another has it."""
    taken = conn.execute(
        text("""
            UPDATE breakers SET probe_at = :next, changed_at = :now
            WHERE scope = :scope AND key = :key AND state = :state AND probe_at <= :now
        """),
        {
            "scope": breaker.scope,
            "key": breaker.key,
            "state": breaker.state,
            "now": now,
            "next": now + PROBE_EVERY,
        },
    )
    return taken.rowcount > 0
