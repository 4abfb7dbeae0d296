"""The words of the vendor's webhooks, and how a message of the history reads in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cerniq_pipeline.domain.history import InboundCopy, RecentChat
from cerniq_pipeline.providers.timelinesai.reading import moment, number

RECEIVED = "message:received:new"
SENT = "message:sent:new"


@dataclass(frozen=True)
class Told:
    """One message of a chat in no dialect's words; times are written as the vendor does."""

    uid: str
    from_us: bool
    text: str
    status: str
    origin: str
    sender: str
    sender_name: str
    recipient: str
    recipient_name: str
    timestamp: str
    received_timestamp: str
    attachments: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class SentEvent:
    """A message of ours in the vendor's own telling."""

    external_id: str
    chat_id: str
    sender: str | None
    recipient: str | None
    text: str
    has_media: bool
    at: datetime


def read_sent(raw: bytes) -> SentEvent | None:
    """What an event says of a message that left; None when it is about something else."""
    try:
        body = json.loads(raw)
        if body["event_type"] != SENT:
            return None
        message = body["message"]
        return SentEvent(
            external_id=str(message["message_uid"]),
            chat_id=str(body["chat"]["chat_id"]),
            sender=number(message["sender"]["phone"]),
            recipient=number(message["recipient"]["phone"]),
            text=message["text"] or "",
            has_media=bool(message.get("attachments")),
            at=moment(message["timestamp"]),
        )
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return None  # whoever reads the inbox says what is wrong with it


def event_key(body: dict[str, Any]) -> str:
    """What makes two events about a message the same one, however often they are told."""
    return f"{body['event_type']}:{body['message']['message_uid']}"


def message_event(told: Told, chat: RecentChat) -> InboundCopy:
    """The event by which the vendor's webhook would have told of this message."""
    account_name = told.sender_name if told.from_us else told.recipient_name
    contact_name = told.recipient_name if told.from_us else told.sender_name
    body = {
        "event_type": SENT if told.from_us else RECEIVED,
        "chat": {
            "full_name": contact_name,
            "chat_id": int(chat.chat_id),
            "is_group": False,
            "phone": chat.contact,
        },
        "whatsapp_account": {"full_name": account_name, "phone": chat.account},
        "message": {
            "text": told.text,
            "direction": "sent" if told.from_us else "received",
            "origin": told.origin,
            "timestamp": told.timestamp,
            "received_timestamp": told.received_timestamp,
            "message_uid": told.uid,
            "reply_to_uid": None,
            "sender": {"full_name": told.sender_name, "phone": told.sender},
            "recipient": {"full_name": told.recipient_name, "phone": told.recipient},
            "attachments": list(told.attachments),
        },
    }
    return InboundCopy(
        provider="timelinesai",
        event_key=event_key(body),
        event_type=body["event_type"],
        account=chat.account,
        contact=chat.contact,
        body=json.dumps(body, ensure_ascii=False).encode(),
    )
