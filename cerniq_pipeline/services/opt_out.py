"""Stop: from the commit on, nothing more leaves for this person on any channel."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import leads, outbox
from cerniq_pipeline.store.database import Begin, Unavailable

TRIES = 5


def opt_out(
    begin: Begin, *, tenant_id: str, lead_id: UUID, secret: bytes, reason: str, now: datetime
) -> int:
    """Suppress a person on every lead that carries one of their addresses; returns what was
    cancelled.

    Takes the same locks as a claim: it falls before or after one, never between its check and its
    commit. When several leads cross with one that passes several over, Postgres may end either of
    them; a "stop" is too important to be the one that gives up.
    """
    for _ in range(TRIES - 1):
        try:
            return _opt_out(begin, tenant_id, lead_id, secret, reason, now)
        except Unavailable as crossed:
            event("opt_out", "tried_again", level="warning", error=type(crossed).__name__)
    return _opt_out(begin, tenant_id, lead_id, secret, reason, now)


def _opt_out(
    begin: Begin, tenant_id: str, lead_id: UUID, secret: bytes, reason: str, now: datetime
) -> int:
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
