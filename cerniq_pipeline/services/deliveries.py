"""What a provider says of a message after it took it: acceptance was no promise."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import dead_letters, deliveries, leads, outbox, quotas, replacements

WHO = "provider"


def note_failure(desk: Desk, delivery: Delivery) -> str:
    """Take in that an accepted message never reached its person; returns what became of it.

    A message that failed only because free text was not allowed any more is sent once more in its
    approved form. Any other failure is for a person. Told twice, nothing changes the second time.
    """
    with desk.begin() as conn:
        now = desk.clock.now()
        sent = deliveries.lock_sent(conn, delivery.external_id)
        if sent is None:
            return "unknown"
        if not deliveries.mark_failed(conn, sent, delivery, now=now):
            return "known"
        result = _consequence(conn, sent, delivery, now=now)
    event(
        "delivery",
        "message_failed_later",
        level="warning",
        job=sent.message_id,
        lead=str(sent.lead_id),
        error={"code": delivery.meaning, "message": delivery.title},
        result=result,
    )
    return result


def _consequence(
    conn: Connection, sent: deliveries.Sent, delivery: Delivery, *, now: datetime
) -> str:
    quotas.take_back(conn, sent.message_id, now=now)  # no conversation was opened
    if delivery.meaning == "WINDOW_CLOSED":
        leads.close_window(conn, sent.lead_id, now=now)
        if sent.has_approved_form and replacements.replace(
            conn, [sent.message_id], by=WHO, now=now
        ):
            return "sent again in its approved form"
    # The steps after it would speak of a message that nobody got.
    why = f"the message before it failed: {delivery.meaning}"
    outbox.cancel_pending(conn, [sent.lead_id], why=why, who=WHO, now=now)
    leads.end_sequence(conn, sent.message_id, reason="failed", now=now)
    dead_letters.bury(
        conn,
        message_id=sent.message_id,
        tenant_id=sent.tenant_id,
        code=delivery.meaning or "FAILED_LATER",
        detail=delivery.title if delivery.code is None else f"{delivery.code}: {delivery.title}",
        now=now,
    )
    return "dead letter"
