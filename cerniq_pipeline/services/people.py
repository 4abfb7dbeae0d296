"""Whom a command means: one reading of a name for all of them.

It stands apart from what explains and sends: a stop must not wait until all of that is loaded.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.names import Name, read_name
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.store import overview
from cerniq_pipeline.store.database import Begin

HOW = "give a lead's id or its beginning, a CUI, a number or an address"
SHOWN = 5


def find_lead(begin: Begin, subject: str, *, tenant_id: str | None) -> tuple[str, UUID]:
    """The one lead that is called this, with its tenant; raises when none or several are."""
    with begin() as conn:
        return the_lead(conn, read_name(subject), tenant_id=tenant_id)


def the_lead(conn: Connection, name: Name, *, tenant_id: str | None) -> tuple[str, UUID]:
    """The same inside of a transaction."""
    _, found = overview.find_leads(conn, name, tenant_id=tenant_id)
    if not found:
        where = f" at tenant {tenant_id}" if tenant_id else ""
        raise NotFound(f"no lead{where} is called {name.typed!r}; {HOW}")
    if len(found) > 1:
        some = sorted(found)[:SHOWN]
        candidates = "; ".join(overview.described(conn, some))
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise NotFound(
            f"{len(found)} leads are called {name.typed!r}: {candidates}{more}; give one id"
        )
    ((lead_id, tenant),) = found.items()
    return tenant, lead_id
