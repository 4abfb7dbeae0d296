"""Stop: from the commit on, nothing more leaves for this person on any channel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.contacts import canonical_address, canonical_cui
from cerniq_pipeline.domain.leads import stage_after_stop
from cerniq_pipeline.domain.names import Name, read_name
from cerniq_pipeline.errors import NotFound, named
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.crossing import insist
from cerniq_pipeline.services.people import HOW, the_lead
from cerniq_pipeline.store import leads, outbox, overview, suppressions, tenants
from cerniq_pipeline.store.database import Begin, Unavailable
from cerniq_pipeline.store.leads import Lead


@dataclass(frozen=True)
class Stop:
    """A wish to hear no more from us: whose it is to honour, why, since when, and who says so."""

    tenant_id: str
    reason: str
    at: datetime
    who: str = "opt_out"


def opt_out(
    begin: Begin,
    *,
    tenant_id: str,
    lead_id: UUID,
    secret: bytes,
    reason: str,
    now: datetime,
    told_of: str | None = None,
) -> int:
    """Suppress a person on every lead that carries one of their addresses; returns what was
    cancelled.

    With `told_of` the stop was told of this very address: it counts, also when the lead has another
    one by now, or is gone.

    Takes the same locks as a claim: it falls before or after one, never between its check and its
    commit. When several leads cross with one that passes several over, Postgres may end either of
    them; a "stop" is too important to be the one that gives up.
    """
    stop = Stop(tenant_id, reason, at=now)
    addresses = [told_of] if told_of else []
    return insist(lambda: _opt_out(begin, stop, lead_id, addresses, secret, now), worker="opt_out")


@dataclass(frozen=True)
class Blocked:
    """What a stop by name did at one tenant."""

    tenant_id: str
    leads: int
    cancelled: int


def block(
    begin: Begin, subject: str, *, tenant_id: str | None, secret: bytes, reason: str, now: datetime
) -> list[Blocked]:
    """Stop whoever is called this, also somebody whom nobody knows yet.

    A stop is never asked back: several leads are one person, and it holds at every tenant that
    knows them. Of somebody whom nobody knows it cannot be said who wrote to them, so it holds at
    all tenants, unless one is named. Raises NotFound when this is no name of anybody: a number
    with a digit too few would be blocked in vain.
    """
    with begin() as conn:
        if tenant_id is not None:
            tenants.get(conn, tenant_id)
        name, known = overview.find_leads(conn, read_name(subject), tenant_id=tenant_id)
        if name.id_range is not None and len(known) > 1:
            the_lead(conn, name, tenant_id=tenant_id)  # different people: raises, and names them
        everywhere = [tenant_id] if tenant_id is not None else tenants.all_ids(conn)
    if not known and name.reaches is None and name.company is None:
        raise NotFound(
            f"nobody is called {subject!r}, and it is no valid number, address or CUI that could "
            f"be kept for later; {HOW}"
        )
    done = []
    for place in sorted(set(known.values())) or everywhere:
        stop = Stop(place, reason, at=now)
        theirs = [lead_id for lead_id, whose in known.items() if whose == place]
        done.append(
            insist(partial(_block, begin, stop, name, theirs, secret, now), worker="opt_out")
        )
    return done


def _block(
    begin: Begin, stop: Stop, name: Name, lead_ids: list[UUID], secret: bytes, now: datetime
) -> Blocked:
    with begin() as conn:
        copies = leads.lock_person(
            conn,
            stop.tenant_id,
            lead_ids=lead_ids,
            numbers=[name.number] if name.number else [],
            emails=[name.email] if name.email else [],
        )
        cancelled = honour(
            conn,
            stop,
            copies,
            addresses=[name.reaches] if name.reaches else [],
            cuis=[name.company] if name.company and not name.reaches else [],
            secret=secret,
            now=now,
        )
    event("opt_out", "person_suppressed", leads=len(copies), cancelled=cancelled)
    return Blocked(stop.tenant_id, len(copies), cancelled)


def _opt_out(
    begin: Begin,
    stop: Stop,
    lead_id: UUID,
    addresses: Collection[str],
    secret: bytes,
    now: datetime,
) -> int:
    mails = [address for address in addresses if "@" in address]
    with begin() as conn:
        copies = leads.lock_person(
            conn,
            stop.tenant_id,
            lead_ids=[lead_id],
            numbers=set(addresses) - set(mails),
            emails=mails,
        )
        if not copies and not addresses:
            raise NotFound(f"no lead {lead_id} of tenant {stop.tenant_id}")
        cancelled = honour(conn, stop, copies, addresses=addresses, secret=secret, now=now)
    event("opt_out", "person_suppressed", lead=str(lead_id), leads=len(copies), cancelled=cancelled)
    return cancelled


def honour(
    conn: Connection,
    stop: Stop,
    copies: Sequence[Lead],
    *,
    addresses: Collection[str] = (),
    cuis: Collection[str] = (),
    secret: bytes,
    now: datetime,
) -> int:
    """Carry a stop out on these locked leads of one person; returns what was cancelled.

    The person is remembered by every address of theirs, `addresses` included, and their company
    by its number, `cuis` included: also when the leads are erased and come back with the next file.
    """
    lead_ids = [lead.lead_id for lead in copies]
    cancelled = outbox.cancel_pending(conn, lead_ids, why=stop.reason, who=stop.who, now=now)
    written = {*addresses, *(one for lead in copies for one in (lead.phone, lead.email) if one)}
    companies = {*cuis, *(lead.cui for lead in copies if lead.cui)}
    for address in sorted(map(canonical_address, written)):
        outbox.lock_person(conn, stop.tenant_id, address)
    for cui in sorted(map(canonical_cui, companies)):
        outbox.lock_company(conn, stop.tenant_id, cui)
    suppressions.suppress(
        conn,
        tenant_id=stop.tenant_id,
        persons={suppressions.person_key(secret, address) for address in written},
        companies={suppressions.company_key(secret, cui) for cui in companies},
        reason=stop.reason,
        now=now,
    )
    for lead in copies:
        _mark(conn, stop, lead, now=now)
    return cancelled


def _mark(conn: Connection, stop: Stop, lead: Lead, *, now: datetime) -> None:
    """Write into a lead that its person said stop, unless something there is in the way.

    Others write these rows too. Their person is suppressed without it, and every claim asks that.
    """
    try:
        with conn.begin_nested():
            leads.opt_out(conn, [lead.lead_id], at=stop.at, now=now)
            leads.change_stage(
                conn,
                lead,
                tenant_id=stop.tenant_id,
                to=stage_after_stop(lead.stage),
                who=stop.who,
                why=stop.reason,
                now=now,
            )
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the stop counts
        event(
            "opt_out", "lead_not_marked", level="error", lead=str(lead.lead_id), error=named(error)
        )
