"""Leads and tenants in whose rows stands what nobody can read: shown to a person while it is so."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain import alerts as kinds
from cerniq_pipeline.domain.conversations import BAD_DATA
from cerniq_pipeline.errors import named
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import alerts, leads, tenants
from cerniq_pipeline.store.database import Begin, Unavailable


def show(conn: Connection, lead_id: UUID, *, now: datetime) -> None:
    """Put a locked lead before a person, unless its rows let nobody write even that."""
    try:
        with conn.begin_nested():
            leads.ask_for_review(conn, lead_id, reason=BAD_DATA, priority="MEDIUM", now=now)
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - its message says it too
        event("send", "lead_not_flagged", level="error", lead=str(lead_id), error=named(error))


def mended(conn: Connection, lead_id: UUID, *, now: datetime) -> None:
    """Let a locked lead go that waited only for its data to be mended."""
    leads.end_review(conn, lead_id, reason=BAD_DATA, now=now)


def tell_of_bad_data(begin: Begin, *, now: datetime) -> None:
    """Keep an alert open per tenant with leads, or a row of its own, that cannot be read."""
    with begin() as conn:
        waiting = leads.waiting_for(conn, reason=BAD_DATA)
        told = {tenant_id: f"{count} leads" for tenant_id, count in waiting.items()}
        alerts.keep_open(conn, told, kind=kinds.BAD_DATA, of_tenants=True, now=now)
        faults = {one.id: one.fault for one in tenants.everyone(conn) if one.fault is not None}
        alerts.keep_open(conn, faults, kind=kinds.TENANT_UNREADABLE, of_tenants=True, now=now)
