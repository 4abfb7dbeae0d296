"""The words of the vendor's webhooks, and how a message of the history reads in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cerniq_pipeline.domain.history import InboundCopy, RecentChat

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
