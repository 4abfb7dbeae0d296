"""What became of messages that went out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.deliveries import Delivery


@dataclass(frozen=True)
class Sent:
    """A message that a provider took, locked together with its lead."""

    message_id: int
    tenant_id: str
    lead_id: UUID
    has_approved_form: bool


def lock_sent(conn: Connection, external_id: str) -> Sent | None:
    """The message that the provider knows by this id; None when it is none of ours."""
    lead_id = conn.execute(
        text("SELECT lead_id FROM outbox_messages WHERE external_id = :id AND state = 'sent'"),
        {"id": external_id},
    ).scalar_one_or_none()
    if lead_id is None:
        return None
    conn.execute(
        text("SELECT 1 FROM gold_lead_journey WHERE lead_id = :lead FOR UPDATE"),
        {"lead": lead_id},
    )
    row = conn.execute(
        text("""
            SELECT o.id, o.tenant_id, o.lead_id, t.approved_name IS NOT NULL AS approved
            FROM outbox_messages o LEFT JOIN templates t ON t.id = o.template_id
            WHERE o.external_id = :id AND o.state = 'sent' FOR UPDATE OF o
        """),
        {"id": external_id},
    ).one()
    return Sent(row.id, row.tenant_id, row.lead_id, row.approved)


def mark_failed(conn: Connection, sent: Sent, delivery: Delivery, *, now: datetime) -> bool:
    """Write the failure into the log; False when it stands there, or the message was delivered."""
    marked = conn.execute(
        text("""
            UPDATE gold_communication_log
            SET status = 'FAILED', status_at = :at, error_code = :code, error_title = :title
            WHERE job_id = :message AND status NOT IN ('FAILED', 'DELIVERED', 'READ')
        """),
        {
            "message": sent.message_id,
            "at": min(delivery.at, now),
            "code": str(delivery.code) if delivery.code is not None else delivery.meaning,
            "title": delivery.title,
        },
    )
    return marked.rowcount > 0
