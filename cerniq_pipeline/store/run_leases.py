"""Who does the work that one run at a time should do: safe without, only wasteful."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text


def take(conn: Connection, name: str, *, holder: str, until: datetime, now: datetime) -> bool:
    """Take or extend a lease; False when somebody else holds it."""
    taken = conn.execute(
        text("""
            INSERT INTO run_leases AS l (name, holder, until) VALUES (:name, :holder, :until)
            ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
            WHERE l.holder = excluded.holder OR l.until <= :now
        """),
        {"name": name, "holder": holder, "until": until, "now": now},
    )
    return taken.rowcount > 0


def give_back(conn: Connection, name: str, *, holder: str) -> None:
    """Let the next one take it at once."""
    conn.execute(
        text("DELETE FROM run_leases WHERE name = :name AND holder = :holder"),
        {"name": name, "holder": holder},
    )


def holder(conn: Connection, name: str, *, now: datetime) -> str | None:
    """Who holds it now."""
    return conn.execute(
        text("SELECT holder FROM run_leases WHERE name = :name AND until > :now"),
        {"name": name, "now": now},
    ).scalar_one_or_none()
