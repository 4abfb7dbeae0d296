"""Stop: from the commit on, nothing more leaves for this person on any channel."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import leads, outbox
from cerniq_pipeline.store.database import Begin


def opt_out(
    begin: Begin, *, tenant_id: str, lead_id: UUID, secret: bytes, reason: str, now: datetime
) -> int:
    """Suppress a person on every lead that carries one of their addresses; returns what was
    cancelled.

    Takes the same locks as a claim, in the same order: it falls before or after one, never
    between its check and its commit.
    """
    with begin() as conn:
        copies = leads.lock_leads_of(conn, tenant_id, lead_id)
        if not copies:
            raise NotFound(f"no lead {lead_id} of tenant {tenant_id}")
        addresses = sorted(
            {
                str(address)
                for copy in copies
                for address in (copy["telefon_principal"], copy["email_principal"])
                if address
            }
        )
        lead_ids = [UUID(str(copy["lead_id"])) for copy in copies]
        cancelled = outbox.cancel_pending(conn, lead_ids, why=reason, who="opt_out", now=now)
        for address in addresses:
            outbox.lock_person(conn, tenant_id, address)
        leads.suppress(
            conn,
            tenant_id=tenant_id,
            lead_ids=lead_ids,
            keys=[leads.suppression_key(secret, address) for address in addresses],
            reason=reason,
            now=now,
        )
    event("opt_out", "person_suppressed", lead=str(lead_id), leads=len(copies), cancelled=cancelled)
    return cancelled
