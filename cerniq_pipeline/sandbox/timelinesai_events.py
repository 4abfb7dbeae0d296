"""What TimelinesAI tells of by webhook, in its words: one event to a body."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cerniq_pipeline.sandbox.files import download_url
from cerniq_pipeline.sandbox.numbers import is_group, jid_of
from cerniq_pipeline.sandbox.public_api import account_info, chat_url, vendor_time
from cerniq_pipeline.sandbox.room import Account, Chat, Message

OWNER_NAME = "Sandbox"
OWNER_EMAIL = "sandbox@example.test"

Body = dict[str, Any]


def message_event(message: Message, chat: Chat) -> Body:
    """A message that came in, or that left one of our numbers, from the API or by hand."""
    file = message.attachment
    return {
        "event_type": "message:sent:new" if message.from_me else "message:received:new",
        "chat": {
            "full_name": chat.recipient,
            "chat_url": chat_url(chat.id),
            "chat_id": chat.id,
            "is_group": is_group(chat.recipient),
            "phone": "" if is_group(chat.recipient) else chat.recipient,
            "responsible_name": OWNER_NAME,
            "responsible_email": OWNER_EMAIL,
        },
        "whatsapp_account": {
            "full_name": chat.account,
            "email": OWNER_EMAIL,
            "phone": chat.account,
        },
        "message": {
            "text": message.text,
            "direction": "sent" if message.from_me else "received",
            "origin": message.origin,
            "timestamp": vendor_time(message.at),
            "received_timestamp": vendor_time(message.known_at),
            "message_uid": message.uid,
            "reply_to_uid": None,
            "sender": {"full_name": message.sender, "phone": message.sender},
            "recipient": {"full_name": message.recipient, "phone": message.recipient},
            "attachments": [
                {
                    "temporary_download_url": download_url(one),
                    "filename": one.filename,
                    "size": one.size,
                    "mimetype": one.mimetype,
                }
                for one in ([] if file is None else [file])
            ],
        },
    }


def chat_event(message: Message, chat: Chat, account: Account) -> Body:
    """A chat that this message, its first, has opened."""
    group = is_group(chat.recipient)
    return {
        "event_type": "chat:outgoing:new" if message.from_me else "chat:incoming:new",
        "chat": {
            "id": chat.id,
            "name": chat.recipient,
            "phone": None if group else chat.recipient,
            "jid": jid_of(chat.recipient),
            "is_group": group,
            "closed": False,
            "read": message.from_me,
            "labels": [],
            "unattended_customer": False,
            "chatgpt_autoresponse_enabled": False,
            "whatsapp_account_id": jid_of(chat.account),
            "chat_url": chat_url(chat.id),
            "created_timestamp": vendor_time(chat.created_at),
        },
        "whatsapp_account": account_info(account),
    }


def account_event(account: Account, *, at: datetime) -> Body:
    """A number that was linked, or that is linked no more."""
    gone = account.status == "disconnected"
    return {
        "event_type": f"whatsapp:account:{'disconnected' if gone else 'connected'}",
        "whatsapp_account": {
            **account_info(account),
            **({"disconnected_on": vendor_time(at)} if gone else {}),
        },
    }


def reaction_event(chat: Chat, *, message_uid: str, emoji: str, at: datetime) -> Body:
    """An emoji that the person put on a message."""
    return {
        "event_type": "message:reaction",
        "chat": _chat_without_plus(chat),
        "whatsapp_account": _account_with_id(chat.account),
        "reaction": {
            "message_uid": message_uid,
            "action": "set",
            "emoji": emoji,
            "reactor": {"full_name": chat.recipient, "phone": chat.recipient},
            "timestamp": vendor_time(at),
            "reactions": {emoji: 1},
        },
    }


def missed_call_event(call: Message, chat: Chat) -> Body:
    """A call that nobody took."""
    return {
        "event_type": "call:incoming:missed",
        "chat": _chat_without_plus(chat),
        "whatsapp_account": _account_with_id(chat.account),
        "call_details": {
            "duration": None,
            "direction": "incoming",
            "is_video": False,
            "status": "Missed",
            "timestamp": vendor_time(call.at),
            "message_uid": call.uid,
            "caller": {"full_name": chat.recipient, "phone": chat.recipient},
            "recipient": {"full_name": chat.account, "phone": chat.account},
        },
    }


def _chat_without_plus(chat: Chat) -> Body:
    """A chat as reactions and calls show it: the vendor leaves the plus out there."""
    return {
        "full_name": chat.recipient,
        "chat_url": chat_url(chat.id),
        "chat_id": chat.id,
        "chat_type": "group" if is_group(chat.recipient) else "direct",
        "platform": "whatsapp",
        "phone": chat.recipient.removeprefix("+"),
    }


def _account_with_id(phone: str) -> Body:
    return {
        "full_name": phone,
        "email": OWNER_EMAIL,
        "phone": phone,
        "whatsapp_account_wid": jid_of(phone),
    }
