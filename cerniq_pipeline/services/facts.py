"""Gather what decides about one message: read once, judged by `domain/holds.py`."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from cerniq_pipeline.domain import templates
from cerniq_pipeline.domain.conversations import BAD_DATA
from cerniq_pipeline.domain.holds import MessageFacts
from cerniq_pipeline.domain.leads import known_basis, known_stage, unreadable
from cerniq_pipeline.domain.outbox import WINDOWED
from cerniq_pipeline.domain.quotas import Standing, cost_of
from cerniq_pipeline.store import inbox, leads, outbox, quotas, suppressions
from cerniq_pipeline.store.outbox import Candidate
from cerniq_pipeline.store.phones import Phone


def message_facts(
    conn: Connection, phone: Phone, candidate: Candidate, *, secret: bytes, now: datetime
) -> MessageFacts:
    """Everything about a message and its lead that can hold it back."""
    tenant, lead = phone.tenant, candidate.lead
    keys = suppressions.keys_of(secret, addresses=candidate.addresses, cui=lead["cui"])
    person = leads.person_behind(
        conn, tenant.id, lead_ids=[lead["lead_id"]], numbers=[candidate.recipient]
    )
    fault = _fault(candidate)
    return MessageFacts(
        stage=known_stage(lead["engagement_stage"]),
        bad_data=unreadable(
            stage=lead["engagement_stage"], basis=lead["lawful_basis"], name=lead["denumire"]
        ),
        opted_out=lead["whatsapp_opted_out"] or lead["email_opted_out"],
        suppressed=suppressions.is_suppressed(conn, tenant.id, keys),
        # Who waits for somebody to mend its data goes on as soon as that is done.
        requires_human_review=lead["requires_human_review"]
        and lead["human_review_reason"] != BAD_DATA,
        review_reason=lead["human_review_reason"],
        held_by=lead["held_by"],
        in_conversation=lead["in_conversation"],
        unheard=inbox.has_unheard(conn, tenant.id, person),
        basis=known_basis(lead["lawful_basis"]),
        allowed_bases=tenant.basis_policy.get("WHATSAPP", frozenset()),
        automatic=candidate.sequence_id is not None,
        sequence_active=candidate.sequence_active,
        not_after=candidate.not_after,
        person=outbox.pressure_on_person(
            conn, tenant.id, candidate.recipient, limit=tenant.weekly_per_person, now=now
        ),
        company=outbox.pressure_on_company(
            conn, lead["lead_id"], limit=tenant.weekly_per_company, now=now
        ),
        standing=standing_of(conn, phone, now=now) if cost_of(candidate.kind) else None,
        template_fault=f"line {fault.line}: {fault.message}" if fault else None,
        window_open=phone.provider not in WINDOWED
        or (candidate.window_until is not None and candidate.window_until > now),
        has_approved_form=candidate.approved_name is not None,
    )


def _fault(candidate: Candidate) -> templates.Problem | None:
    """What keeps the message's template from being used; a text of its own needs none."""
    if candidate.content is not None:
        return None
    return templates.fault(candidate.template, first_message=candidate.opens_a_chat)


def standing_of(conn: Connection, phone: Phone, *, now: datetime) -> Standing:
    """Where a phone stands against today's limit, by the ledger."""
    calendar = phone.tenant.calendar
    day = calendar.day_of(now)
    return Standing(
        used=quotas.used(conn, phone.id, day),
        limit=phone.limit_on(day),
        resets_at=calendar.day_starts(day + timedelta(days=1)),
    )
