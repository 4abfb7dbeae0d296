"""Tenants: who we send for, when they are open, and what their policies allow.

Other systems write these rows too. One that nobody can read becomes a Tenant all the same, with its
`fault` and harmless rules: whoever goes over all tenants need not think of it, and nothing is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, RowMapping, text

from cerniq_pipeline.domain.calendar import Calendar
from cerniq_pipeline.domain.names import no_such
from cerniq_pipeline.domain.pacing import Gap
from cerniq_pipeline.domain.tenants import unreadable
from cerniq_pipeline.errors import TenantUnreadable

MOST_NAMED = 20


@dataclass(frozen=True)
class Tenant:
    """A tenant's rules, as the decisions need them."""

    id: str
    active: bool
    sandbox_only: bool
    calendar: Calendar
    channels: frozenset[str]
    basis_policy: dict[str, frozenset[str]]
    gap: Gap
    media_gap: Gap
    introduction: str
    alike_texts: int
    unanswered_per_month: int
    weekly_per_person: int
    weekly_per_company: int
    default_sequence_id: int | None
    fault: str | None = None
    """What in its row nobody can read: its phones stand still, and these rules are not its own."""

    @classmethod
    def of(cls, row: RowMapping | dict[str, Any]) -> Tenant:
        """Read a row of `tenants`, whatever stands there."""
        fault = unreadable(row)
        if fault is not None:
            row = {**row, **_INSTEAD}
        return cls(
            id=row["id"],
            active=row["status"] == "active",
            sandbox_only=row["sandbox_only"],
            calendar=Calendar(
                time_zone=row["time_zone"],
                opens=row["opens"],
                closes=row["closes"],
                working_days=frozenset(row["working_days"]),
                country=row["holiday_country"],
            ),
            channels=frozenset(row["channels"]),
            basis_policy={k: frozenset(v) for k, v in row["basis_policy"].items()},
            gap=Gap(
                timedelta(seconds=row["gap_least_seconds"]),
                timedelta(seconds=row["gap_spread_seconds"]),
            ),
            media_gap=Gap(
                timedelta(seconds=row["media_gap_least_seconds"]),
                timedelta(seconds=row["media_gap_spread_seconds"]),
            ),
            introduction=row["introduction"],
            alike_texts=row["alike_texts"],
            unanswered_per_month=row["unanswered_per_month"],
            weekly_per_person=row["weekly_per_person"],
            weekly_per_company=row["weekly_per_company"],
            default_sequence_id=row["default_sequence_id"],
            fault=fault,
        )


_INSTEAD: dict[str, Any] = {
    "status": "paused",
    "sandbox_only": True,
    # As a tenant's hours usually are: the step after one that is on its way gets a due time.
    "time_zone": Calendar.time_zone,
    "opens": Calendar.opens,
    "closes": Calendar.closes,
    "working_days": [1, 2, 3, 4, 5],
    "holiday_country": None,
    "channels": [],
    "basis_policy": {},
    "gap_least_seconds": 30,
    "gap_spread_seconds": 120,
    "media_gap_least_seconds": 30,
    "media_gap_spread_seconds": 60,
    "introduction": "",
    "alike_texts": 0,
    "unanswered_per_month": 0,
    "weekly_per_person": 0,
    "weekly_per_company": 0,
}
"""What is read where nobody can read a row: nothing may be sent by it."""


def get(conn: Connection, tenant_id: str) -> Tenant:
    """One tenant; raises NotFound with the names that exist."""
    row = (
        conn.execute(text("SELECT * FROM tenants WHERE id = :id"), {"id": tenant_id})
        .mappings()
        .one_or_none()
    )
    if row is None:
        known = all_ids(conn)
        there = f"there are: {', '.join(known[:MOST_NAMED]) or 'none'}"
        raise no_such("tenant", tenant_id, known, see=there)
    return Tenant.of(row)


def readable(conn: Connection, tenant_id: str) -> Tenant:
    """The same for who cannot do anything without its rules; raises TenantUnreadable."""
    tenant = get(conn, tenant_id)
    if tenant.fault is not None:
        raise TenantUnreadable(tenant.fault)
    return tenant


def everyone(conn: Connection) -> list[Tenant]:
    """Every tenant, paused ones and those that cannot be read included."""
    rows = conn.execute(text("SELECT * FROM tenants ORDER BY id")).mappings()
    return [Tenant.of(row) for row in rows]


def all_ids(conn: Connection) -> list[str]:
    """Every tenant, paused ones included."""
    return list(conn.execute(text("SELECT id FROM tenants ORDER BY id")).scalars())


def time_zones(conn: Connection) -> dict[str, str]:
    """The time zone of every tenant; always one that there is."""
    return {tenant.id: tenant.calendar.time_zone for tenant in everyone(conn)}


def active_ids(conn: Connection) -> list[str]:
    """The tenants for which outreach runs."""
    rows = conn.execute(text("SELECT id FROM tenants WHERE status = 'active' ORDER BY id"))
    return list(rows.scalars())
