"""The lease of a phone: one holder, and a fence that grows with every change of hands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True)
class Holder:
    """A process that holds a phone, told apart from a later one with the same pid."""

    name: str
    host: str
    pid: int
    started: float


@dataclass(frozen=True)
class LeaseRow:
    """A phone's lease as it stands in the database."""

    fence: int
    holder: Holder | None
    until: datetime | None


def lock(conn: Connection, phone_id: str) -> LeaseRow:
    """Read a phone's lease and keep everyone else from changing it until the commit."""
    row = (
        conn.execute(
            text("SELECT * FROM phone_leases WHERE phone_id = :id FOR UPDATE"), {"id": phone_id}
        )
        .mappings()
        .one()
    )
    holder = None
    if row["holder"] is not None:
        holder = Holder(row["holder"], row["host"], row["pid"], row["pid_started"])
    return LeaseRow(fence=row["fence"], holder=holder, until=row["lease_until"])


def grant(conn: Connection, phone_id: str, *, to: Holder, fence: int, until: datetime) -> None:
    """Give the phone to this holder under this fence."""
    conn.execute(
        text("""
            UPDATE phone_leases
            SET fence = :fence, holder = :name, host = :host, pid = :pid, pid_started = :started,
                lease_until = :until
            WHERE phone_id = :id
        """),
        {"id": phone_id, "fence": fence, "until": until, **vars(to)},
    )


def extend(conn: Connection, phone_id: str, *, until: datetime) -> None:
    """Push the end of the lease out; the caller has locked it and checked its fence."""
    conn.execute(
        text("UPDATE phone_leases SET lease_until = :until WHERE phone_id = :id"),
        {"id": phone_id, "until": until},
    )


def release(conn: Connection, phone_id: str, *, fence: int) -> None:
    """Give the phone back, unless somebody else holds it by now."""
    conn.execute(
        text("""
            UPDATE phone_leases SET holder = NULL, host = NULL, pid = NULL, pid_started = NULL,
                   lease_until = NULL
            WHERE phone_id = :id AND fence = :fence
        """),
        {"id": phone_id, "fence": fence},
    )


def held(conn: Connection) -> list[tuple[str, Holder]]:
    """Every phone that somebody holds."""
    rows = conn.execute(
        text("""
            SELECT phone_id, holder, host, pid, pid_started FROM phone_leases
            WHERE holder IS NOT NULL ORDER BY phone_id
        """)
    )
    return [(row[0], Holder(*row[1:])) for row in rows]
