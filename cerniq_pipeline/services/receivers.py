"""Say whose a number or an address is at which people write to us."""

from __future__ import annotations

from datetime import datetime

from cerniq_pipeline.domain.contacts import canonical_address
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.logs import event
from cerniq_pipeline.services import dead_letters
from cerniq_pipeline.store import phones, receivers, tenants
from cerniq_pipeline.store.database import Begin


def assign(begin: Begin, address: str, *, tenant_id: str | None, by: str, now: datetime) -> int:
    """Let a tenant hear what comes to this number or address, or nobody (None).

    Returns how many events that waited for this word are handled now.
    """
    with begin() as conn:
        if tenant_id is not None:
            tenants.get(conn, tenant_id)
        if phone := phones.by_number(conn, canonical_address(address)):
            raise NotFound(f"{address} is phone {phone[1]}, which hears for its tenant")
        receivers.note(conn, address, tenant_id=tenant_id, by=by, now=now)
    event("receivers", "receiver_assigned", tenant=tenant_id, by=by)
    total = 0
    while found := dead_letters.put_back_found(begin, now=now):
        total += found
    return total
