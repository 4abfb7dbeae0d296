"""The state of everything, in one reading."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from cerniq_pipeline.domain.holds import Installation
from cerniq_pipeline.services import explain
from cerniq_pipeline.store import inbox, overview, tenants
from cerniq_pipeline.store.database import Begin


def status(
    begin: Begin, *, tenant_id: str | None, here: Installation, now: datetime
) -> dict[str, Any]:
    """Leads, outbox, phones, and all that waits for a person. The keys are relied on by scripts.

    Of one tenant only what is its own is counted: an event of the inbox is, when it came to one of
    its phones. The alerts and the switches that hold every tenant up are shown with each of them.
    """
    with begin() as conn:
        if tenant_id is not None:
            tenants.get(conn, tenant_id)
        counts = overview.counts(conn, tenant_id=tenant_id)
        return {
            "leads": counts["leads"],
            "outbox": counts["outbox"],
            "phones": [
                phone | _next_send(conn, phone["id"], here=here, now=now)
                for phone in overview.phones(conn, tenant_id=tenant_id, now=now)
            ],
            "inbox": inbox.counts(conn, tenant_id=tenant_id),
            "inbox_waiting_since": overview.oldest_waiting(conn, tenant_id=tenant_id),
            "reviews": counts["reviews"],
            "dead_letters": counts["dead_letters"],
            "alerts": counts["alerts"],
            "switches_off": overview.switches(conn, tenant_id=tenant_id),
        }


def _next_send(
    conn: Connection, phone_id: str, *, here: Installation, now: datetime
) -> dict[str, Any]:
    hold, at = explain.next_send(conn, phone_id, here=here, now=now)
    return {"next_send_at": at, "rule": hold.rule}
