"""What Meta tells of by webhook: messages and statuses, many of them in one body."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from cerniq_pipeline.sandbox.room import Attachment, Message

Fields = dict[str, Any]

_HREF = "https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/"


@dataclass(frozen=True)
class Item:
    """One message or one status: whose phone it is about, and who it comes from."""

    account: str
    part: Literal["messages", "statuses"]
    content: Fields
    contact: Fields | None = None

    @property
    def stands_alone(self) -> bool:
        """Whether only a list with no other contact says who wrote it."""
        return self.contact is not None and "wa_id" not in self.contact


def user_id(phone: str) -> str:
    """The id by which Meta knows a person, whatever number they show."""
    digest = hashlib.sha256(f"user:{phone}".encode()).digest()
    return f"RO.{int.from_bytes(digest[:8]):020}"


def message_item(message: Message) -> Item:
    """What a person wrote or sent."""
    digits = message.sender.removeprefix("+")
    who = {} if message.number_hidden else {"from": digits}
    return Item(
        message.account,
        "messages",
        {
            **who,
            "id": message.uid,
            "timestamp": _seconds(message.at),
            "type": message.form,
            message.form: _content(message),
        },
        _contact(message.sender, hidden=message.number_hidden),
    )


def reaction_item(
    *, account: str, contact: str, uid: str, reacts_to: str, emoji: str, at: datetime
) -> Item:
    """An emoji that a person put on a message."""
    content = {
        "from": contact.removeprefix("+"),
        "id": uid,
        "timestamp": _seconds(at),
        "type": "reaction",
        "reaction": {"message_id": reacts_to, "emoji": emoji},
    }
    return Item(account, "messages", content, _contact(contact, hidden=False))


def status_item(
    message: Message, status: str, at: datetime, *, error: tuple[int, str] | None = None
) -> Item:
    """What became of a message of ours."""
    content: Fields = {
        "id": message.uid,
        "status": status,
        "timestamp": _seconds(at),
        "recipient_id": message.recipient.removeprefix("+"),
    }
    if error is not None:
        code, title = error
        details = {"details": f"{title}."}
        content["errors"] = [
            {"code": code, "title": title, "message": title, "error_data": details, "href": _HREF}
        ]
    elif status != "read":
        category = "marketing" if message.text.startswith("[template ") else "service"
        ends = str(int(message.at.timestamp()) + 24 * 3600)
        content["conversation"] = {
            "id": hashlib.sha256(str(message.chat_id).encode()).hexdigest()[:32],
            "origin": {"type": category},
            "expiration_timestamp": ends,
        }
        content["pricing"] = {"billable": True, "pricing_model": "PMP", "category": category}
    if message.callback is not None:
        content["biz_opaque_callback_data"] = message.callback
    return Item(message.account, "statuses", content)


def body_of(items: Iterable[Item]) -> bytes:
    """One body for all of them: an entry for each phone, in it changes with one or more items."""
    entries: dict[str, list[Fields]] = {}
    for item in items:
        changes = entries.setdefault(item.account, [])
        if not changes or not _fits(changes[-1]["value"], item):
            changes.append(_change(item.account))
        value = changes[-1]["value"]
        if item.contact is not None and item.contact not in value.setdefault("contacts", []):
            value["contacts"].append(item.contact)
        value.setdefault(item.part, []).append(item.content)
    content = {
        "object": "whatsapp_business_account",
        "entry": [
            {"id": _business_id(account), "changes": changes}
            for account, changes in entries.items()
        ],
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


def _fits(value: Mapping[str, Any], item: Item) -> bool:
    if item.part not in value:
        return False
    hidden_before = any("wa_id" not in contact for contact in value.get("contacts", ()))
    return not item.stands_alone and not hidden_before


def _change(account: str) -> Fields:
    digits = account.removeprefix("+")
    metadata = {"display_phone_number": digits, "phone_number_id": f"1{digits}"}
    return {"field": "messages", "value": {"messaging_product": "whatsapp", "metadata": metadata}}


def _business_id(account: str) -> str:
    return f"2{account.removeprefix('+')}"


def _contact(phone: str, *, hidden: bool) -> Fields:
    digits = phone.removeprefix("+")
    name = {"name": f"Client {digits[-4:]}"}
    if hidden:
        username = {"username": f"client.{user_id(phone)[-6:]}"}
        return {"profile": {**name, **username}, "user_id": user_id(phone)}
    return {"profile": name, "wa_id": digits, "user_id": user_id(phone)}


def _content(message: Message) -> Fields:
    """The part of a message that is named after its type."""
    if message.form == "location":
        return dict(message.place or {})
    if message.attachment is None:
        return {"body": message.text}
    file = _file(message.attachment)
    if message.form == "audio":
        return {**file, "voice": True}
    if message.form == "sticker":
        return {**file, "animated": False}
    if message.form == "document":
        file["filename"] = message.attachment.filename
    return {**file, "caption": message.text} if message.text else file


def _file(file: Attachment) -> Fields:
    digest = base64.b64encode(bytes.fromhex(file.sha256 or "")).decode()
    return {"id": file.uid, "mime_type": file.mimetype, "sha256": digest}


def _seconds(at: datetime) -> str:
    return str(int(at.timestamp()))
