"""Phones that are lost, and the waiting messages that leave them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.selection import Failover, lost
from cerniq_pipeline.store import tenants

_FOLLOW_THEIR_LEAD = ["initial", "followup", "handover", "media"]
"""What goes along when a lead leaves a phone; a file that a person planned as well."""


@dataclass(frozen=True)
class LostPhone:
    """A phone whose leads follow their tenant's rule."""

    id: str
    tenant_id: str
    why: str
    rule: Failover


def lost_phones(conn: Connection, *, now: datetime) -> list[LostPhone]:
    """Every phone that is given up, of tenants whose leads do not simply wait."""
    return _lost(conn, now=now)


def lost_phone(conn: Connection, phone_id: str, *, now: datetime) -> LostPhone | None:
    """This phone, when it is given up and its tenant's leads do not simply wait."""
    found = _lost(conn, phone_id=phone_id, now=now)
    return found[0] if found else None


def handing_over(conn: Connection, tenant_id: str, *, now: datetime) -> list[str]:
    """The lost phones of a tenant whose leads go to its other phones."""
    found = _lost(conn, tenant_id=tenant_id, now=now)
    return [phone.id for phone in found if phone.rule == "hand_over"]


def _lost(
    conn: Connection,
    *,
    now: datetime,
    phone_id: str | None = None,
    tenant_id: str | None = None,
) -> list[LostPhone]:
    rows = conn.execute(
        text("""
            SELECT p.id, p.tenant_id, p.status, p.status_changed_at, p.is_enabled, t.failover,
                   t.failover_after_minutes
            FROM wa_phone_numbers p JOIN tenants t ON t.id = p.tenant_id
            WHERE (p.status <> 'ACTIVE' OR NOT p.is_enabled) AND t.failover <> 'wait'
              AND p.id = coalesce(:phone, p.id) AND p.tenant_id = coalesce(:tenant, p.tenant_id)
            ORDER BY p.id
        """),
        {"phone": phone_id, "tenant": tenant_id},
    )
    return [
        LostPhone(
            id=row.id,
            tenant_id=row.tenant_id,
            why=row.status.lower() if row.is_enabled else "disabled",
            rule=row.failover,
        )
        for row in rows
        if tenants.get(conn, row.tenant_id).fault is None
        and lost(
            row.status,
            since=row.status_changed_at,
            enabled=row.is_enabled,
            now=now,
            grace=timedelta(minutes=row.failover_after_minutes),
        )
    ]


def strangers(conn: Connection, lead_ids: Collection[UUID]) -> set[UUID]:
    """Those of these leads that know no WhatsApp number of ours.

    Nothing went out to them, nothing may have gone out, and nothing came in. Of messages that a
    person has replaced only the ledger tells; the others are found through an index.
    """
    rows = conn.execute(
        text("""
            SELECT j.lead_id FROM gold_lead_journey j
            WHERE j.lead_id = ANY(:leads) AND j.chat_id IS NULL
              AND NOT EXISTS (SELECT 1 FROM gold_communication_log said
                              WHERE said.lead_journey_id = j.lead_id
                                AND said.channel = 'WHATSAPP')
              AND NOT EXISTS (SELECT 1 FROM quota_ledger opened
                              WHERE opened.phone_id = j.assigned_phone_id
                                AND opened.lead_id = j.lead_id AND opened.state <> 'released')
              AND NOT EXISTS (SELECT 1 FROM outbox_messages tried
                              JOIN send_attempts a ON a.message_id = tried.id
                              WHERE tried.lead_id = j.lead_id AND tried.replaced_by IS NULL
                                AND (a.outcome IS NULL OR a.outcome IN ('sent', 'unconfirmed')))
        """),
        {"leads": list(lead_ids)},
    )
    return set(rows.scalars())


def movable(
    conn: Connection,
    phone: LostPhone,
    *,
    until: datetime,
    most: int,
    among: Collection[UUID] | None = None,
) -> dict[UUID, list[int]]:
    """The leads that may leave this phone, with their messages that are due by `until`.

    The first are those that have been due longest. Nobody in doubt is among them, and nobody who
    opted out. Who has replied or waits for a person is among them only for what a person planned:
    it would wait on a lost phone for good. With mail as the way out, it must be lawful for them,
    and no other message of that step may stand in the outbox for their address.
    """
    rows = conn.execute(
        text("""
            SELECT o.lead_id, array_agg(o.id ORDER BY o.id)
            FROM outbox_messages o
            JOIN gold_lead_journey j ON j.lead_id = o.lead_id
            JOIN gold_companies c ON c.id = o.lead_id
            JOIN tenants t ON t.id = o.tenant_id
            WHERE o.phone_id = :phone AND o.state IN ('planned', 'deferred')
              AND o.kind = ANY(:kinds) AND o.due_at < :until
              AND (CAST(:among AS uuid[]) IS NULL OR o.lead_id = ANY(CAST(:among AS uuid[])))
              AND (o.sequence_id IS NULL
                   OR j.engagement_stage IN ('COLD', 'CONTACTED_WA', 'CONTACTED_EMAIL')
                   AND NOT j.requires_human_review AND NOT j.in_conversation)
              AND NOT j.whatsapp_opted_out AND NOT j.email_opted_out
              AND NOT EXISTS (SELECT 1 FROM outbox_messages doubt
                              WHERE doubt.lead_id = o.lead_id AND doubt.replaced_by IS NULL
                                AND doubt.state IN ('sending', 'unconfirmed', 'parked'))
              AND (NOT :by_mail OR (
                'EMAIL' = ANY(t.channels)
                AND c.email_status = 'valid' AND c.email_principal IS NOT NULL
                AND coalesce((t.basis_policy -> 'EMAIL') ? j.lawful_basis, false)
                AND NOT EXISTS (SELECT 1 FROM outbox_messages same
                                WHERE same.recipient = c.email_principal
                                  AND same.replaced_by IS NULL
                                  AND same.sequence_id = o.sequence_id AND same.step = o.step)))
            GROUP BY o.lead_id ORDER BY min(o.due_at), min(o.id) LIMIT :most
        """),
        {
            "phone": phone.id,
            "kinds": _FOLLOW_THEIR_LEAD,
            "until": until,
            "by_mail": phone.rule == "switch_channel",
            "among": None if among is None else list(among),
            "most": most,
        },
    )
    return {row[0]: row[1] for row in rows}


def lock_leads(conn: Connection, lead_ids: Collection[UUID]) -> None:
    """Lock these leads in the order in which everybody locks leads."""
    conn.execute(
        text("""
            SELECT 1 FROM gold_lead_journey WHERE lead_id = ANY(:leads)
            ORDER BY lead_id FOR UPDATE
        """),
        {"leads": list(lead_ids)},
    )


def waiting(conn: Connection, phone_id: str, *, until: datetime) -> int:
    """Leads with a message that waits on this phone and is due by then."""
    return conn.execute(
        text("""
            SELECT count(DISTINCT lead_id) FROM outbox_messages
            WHERE phone_id = :phone AND state IN ('planned', 'deferred') AND due_at < :until
        """),
        {"phone": phone_id, "until": until},
    ).scalar_one()


def hand_over(
    conn: Connection,
    phone: LostPhone,
    dealt: Mapping[UUID, str],
    *,
    strangers: Collection[UUID],
    who: str,
    now: datetime,
) -> dict[str, int]:
    """Give these locked leads, and all that waits for them on the lost phone, their new phones.

    Returns the opening messages by kind. A lead's first message there opens a conversation, also
    when it is a file: it stays `initial` for strangers, and becomes `handover` for who knows one of
    our numbers. The
    attempts keep counting, because they are numbered; the retries begin anew, because it was the
    lost phone's trouble that used them up.
    """
    rows = conn.execute(
        text("""
            WITH dealt AS (
              SELECT * FROM unnest(CAST(:leads AS uuid[]), CAST(:phones AS text[]))
                AS d (lead_id, phone_id)
            ), locked AS (
              SELECT o.id, o.lead_id, o.kind, o.due_at FROM outbox_messages o
              WHERE o.phone_id = :phone AND o.state IN ('planned', 'deferred')
                AND o.kind = ANY(:kinds) AND o.lead_id = ANY(:leads)
              ORDER BY o.id FOR UPDATE
            ), lined AS (
              SELECT w.id, d.phone_id,
                     row_number() OVER (PARTITION BY w.lead_id ORDER BY w.due_at, w.id) AS turn,
                     CASE WHEN w.kind = 'initial' AND w.lead_id = ANY(CAST(:strangers AS uuid[]))
                          THEN 'initial' ELSE 'handover' END AS opening
              FROM locked w JOIN dealt d ON d.lead_id = w.lead_id
            ), moved AS (
              UPDATE outbox_messages o
              SET phone_id = w.phone_id, retries = 0, updated_at = :now,
                  kind = CASE WHEN w.turn = 1 THEN w.opening
                              WHEN o.kind = 'media' THEN o.kind ELSE 'followup' END,
                  reason = format('handed over from %s to %s: %s', CAST(:phone AS text),
                                  w.phone_id, CAST(:why AS text))
              FROM lined w WHERE o.id = w.id
              RETURNING o.id, o.lead_id, o.phone_id, o.state, o.kind, o.reason, w.turn
            ), led AS (
              UPDATE gold_lead_journey j
              SET assigned_phone_id = m.phone_id, assigned_at = :now, chat_id = NULL,
                  updated_at = :now
              FROM moved m WHERE j.lead_id = m.lead_id AND m.turn = 1
            ), traced AS (
              INSERT INTO outbox_changes (message_id, from_state, to_state, at, who, why)
              SELECT id, state, state, :now, :who, reason FROM moved
            )
            SELECT kind, count(*) FROM moved WHERE turn = 1 GROUP BY kind
        """),
        {
            "phone": phone.id,
            "kinds": _FOLLOW_THEIR_LEAD,
            "why": phone.why,
            "leads": list(dealt),
            "phones": list(dealt.values()),
            "strangers": list(strangers),
            "who": who,
            "now": now,
        },
    )
    return {row[0]: row[1] for row in rows}


def switch_to_mail(
    conn: Connection, phone: LostPhone, message_ids: Collection[int], *, who: str, now: datetime
) -> int:
    """Let these messages of locked leads go by mail instead; returns how many do.

    Of leads that share an address one gets the step: the others keep waiting. What a person planned
    is no step, and goes in any case.
    """
    return conn.execute(
        text("""
            WITH locked AS (
              SELECT o.id, o.sequence_id, o.step, o.due_at, c.email_principal AS address,
                     CASE WHEN o.sequence_id IS NULL THEN o.id END AS by_hand
              FROM outbox_messages o JOIN gold_companies c ON c.id = o.lead_id
              WHERE o.id = ANY(:ids) AND o.state IN ('planned', 'deferred')
              ORDER BY o.id FOR UPDATE OF o
            ), chosen AS (
              SELECT DISTINCT ON (address, sequence_id, step, by_hand) id, address FROM locked
              ORDER BY address, sequence_id, step, by_hand, due_at, id
            ), moved AS (
              UPDATE outbox_messages o
              SET channel = 'EMAIL', phone_id = NULL, recipient = w.address, retries = 0,
                  reason = format('by mail instead of from %s: %s', CAST(:phone AS text),
                                  CAST(:why AS text)),
                  updated_at = :now
              FROM chosen w WHERE o.id = w.id RETURNING o.id, o.state, o.reason
            ), traced AS (
              INSERT INTO outbox_changes (message_id, from_state, to_state, at, who, why)
              SELECT id, state, state, :now, :who, reason FROM moved
            )
            SELECT count(*) FROM moved
        """),
        {
            "phone": phone.id,
            "why": phone.why,
            "ids": list(message_ids),
            "who": who,
            "now": now,
        },
    ).scalar_one()
