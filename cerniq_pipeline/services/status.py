"""The state of everything, in one reading."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cerniq_pipeline.store import inbox, overview, tenants
from cerniq_pipeline.store.database import Begin


def status(begin: Begin, *, tenant_id: str | None, now: datetime) -> dict[str, Any]:
    """Leads, outbox, phones, and all that waits for a person. The keys are relied on by scripts.

    The inbox is always that of the whole installation: an event belongs to a tenant only once it
    was read. So are the alerts about the installation: they hold every tenant up.
    """
    with begin() as conn:
        if tenant_id is not None:
            tenants.get(conn, tenant_id)
        days = {
            name: tenants.get(conn, name).calendar.day_of(now) for name in tenants.all_ids(conn)
        }
        counts = overview.counts(conn, tenant_id=tenant_id)
        return {
            "leads": counts["leads"],
            "outbox": counts["outbox"],
            "phones": overview.phones(conn, days=days, tenant_id=tenant_id),
            "inbox": inbox.counts(conn),
            "inbox_waiting_since": overview.oldest_waiting(conn),
            "reviews": counts["reviews"],
            "dead_letters": counts["dead_letters"],
            "alerts": counts["alerts"],
            "switches_off": overview.switches(conn),
        }
