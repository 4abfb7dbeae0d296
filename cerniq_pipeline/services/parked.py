"""Settle parked sends: a person looked into the chat and knows what nobody else could."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt, State
from cerniq_pipeline.domain.replacements import STEP_TAKEN, Answer, refusal
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.recording import settle_sent
from cerniq_pipeline.store import leads, outbox, replacements
from cerniq_pipeline.store.database import Begin


def mark_sent(begin: Begin, message_id: int, *, by: str, now: datetime) -> Answer:
    """It is in the chat: all that follows from a send follows now, also the next step."""
    with begin() as conn:
        message, refused = _lock_parked(conn, message_id)
        if message is None:
            return Answer(message_id, False, refused)
        settle_sent(
            conn,
            message,
            Receipt(f"by-hand/{message_id}", message.chat_id),
            current=State.PARKED,
            sent_at=message.begun_at,
            now=now,
            who=by,
            why="found in the chat by hand",
        )
    event("parked", "message_sent_by_hand", message=message_id, phone=message.phone_id, by=by)
    return Answer(message_id, True, "recorded as sent")


def resend(begin: Begin, message_id: int, *, by: str, secret: bytes, now: datetime) -> Answer:
    """It is not in the chat: send it again, as a new message in its place.

    What the first attempt cost stays counted: a history that lags makes "absent" a lie.
    """
    with begin() as conn:
        original = replacements.lock_originals(conn, [message_id], secret=secret).get(message_id)
        if original is None:
            return Answer(message_id, False, "there is no such message")
        if original.state is not State.PARKED:
            return Answer(message_id, False, f"it is {original.state}, not parked")
        if why := refusal(original, now=now):
            return Answer(message_id, False, why)
        made = replacements.replace(conn, [message_id], by=by, now=now)
        if not made:
            return Answer(message_id, False, STEP_TAKEN)
        said = f"sent again as message {made[message_id]}"
        _cancel(conn, message_id, why=said, by=by, now=now)
    event("parked", "message_resent", message=message_id, by=by)
    return Answer(message_id, True, said)


def drop(begin: Begin, message_id: int, *, by: str, reason: str, now: datetime) -> Answer:
    """Leave it at that: nothing more is sent to this lead by itself."""
    with begin() as conn:
        message, refused = _lock_parked(conn, message_id)
        if message is None:
            return Answer(message_id, False, refused)
        _cancel(conn, message_id, why=f"dropped: {reason}", by=by, now=now)
        standing = leads.standing(conn, message.lead_id)
        leads.after_message(
            conn,
            message.lead_id,
            open_message=False,
            next_action_at=None,
            hold_reason="closed_by_hand" if standing and standing[1] else None,
            now=now,
        )
    event("parked", "message_dropped", message=message_id, phone=message.phone_id, by=by)
    return Answer(message_id, True, f"dropped: {reason}")


def _lock_parked(conn: Connection, message_id: int) -> tuple[OutboxMessage | None, str]:
    """The message and its lead, locked; or why it is not there to be settled."""
    message = outbox.begun(conn, message_id)
    if message is None:
        return None, "there is no such message, or it never left"
    state = outbox.lock_state(conn, message)
    if state is not State.PARKED:
        return None, f"it is {state}, not parked"
    return message, ""


def _cancel(conn: Connection, message_id: int, *, why: str, by: str, now: datetime) -> None:
    outbox.move(
        conn,
        message_id,
        current=State.PARKED,
        target=State.CANCELLED,
        why=why,
        who=by,
        now=now,
    )
