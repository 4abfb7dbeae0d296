"""From the body of a request to a message that could be sent, or to the reason why not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from cerniq_pipeline.sandbox.doors import Body, Dialect, SendForm, SendKind, invalid, not_found
from cerniq_pipeline.sandbox.numbers import account_phone, address_of, phone_number
from cerniq_pipeline.sandbox.room import Chat, Room

TEXT_LIMIT = 2000


@dataclass(frozen=True)
class Draft:
    """What a request seems to ask for, right or wrong; the journal shows it."""

    kind: SendKind
    sender: str | None
    asked_sender: str | None
    recipient: str | None
    chat_id: int | None
    text: str | None

    def described(self, dialect: Dialect, request_id: str) -> dict[str, Any]:
        """The fields that every line of the journal about this request has."""
        return {
            "request": request_id,
            "provider": "timelinesai",
            "dialect": dialect,
            "kind": self.kind,
            "sender": self.sender,
            "asked_sender": self.asked_sender,
            "recipient": self.recipient,
            "chat_id": self.chat_id,
            "text": self.text,
            "text_sha256": None if self.text is None else sha256_of(self.text),
            "message_uid": None,
        }


@dataclass(frozen=True)
class Sendable:
    """A message that nothing speaks against; `sender` is who would send it."""

    sender: str
    recipient: str
    text: str


def sha256_of(text: str) -> str:
    """The hash of a text's UTF-8 form, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def draft_of(form: SendForm, body: Body, room: Room) -> Draft:
    """What can be made out of a request without judging it."""
    chat = _chat(form, room)
    asked = _words(body, form.sender)
    asked_phone = None if asked is None else account_phone(asked) or asked
    recipient = _words(body, form.recipient)
    return Draft(
        kind=form.kind,
        sender=chat.account if chat else asked_phone or room.default_sender(),
        asked_sender=chat.account if chat else asked_phone,  # a chat asks for its own account
        recipient=chat.recipient
        if chat
        else recipient and (_address(form, recipient) or recipient),
        chat_id=_whole_number(form.chat_id),
        text=_words(body, form.text),
    )


def checked(form: SendForm, body: Body, room: Room) -> Sendable:
    """The message to send, or a Refusal worded as the vendor does."""
    _check_strings(body)
    sender, recipient = _ends(form, body, room)
    text = _text(form, body)
    account = room.account(sender)
    if account is not None and account.status != "active":
        raise invalid(f"WhatsApp account {sender} is not connected")
    return Sendable(sender, recipient, text)


def _check_strings(body: Body) -> None:
    for key, value in body.items():
        if not isinstance(value, str):
            continue
        if "\x00" in value:
            raise invalid("NUL characters are not allowed", field=key)
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise invalid("not valid UTF-8", field=key)
    if body.get("file_uid") is not None:
        raise invalid(f"Attachment {body['file_uid']} not found")


def _ends(form: SendForm, body: Body, room: Room) -> tuple[str, str]:
    """Who sends, and to whom."""
    if form.kind == "chat_message":
        chat = _chat(form, room)
        if chat is None:
            raise not_found(f"Whatsapp chat_id {form.chat_id} not found")
        return chat.account, chat.recipient
    return _sender(form, body, room), _recipient(form, body)


def _sender(form: SendForm, body: Body, room: Room) -> str:
    asked = body.get(form.sender) if form.sender else None
    if asked is None or asked == "":
        if form.sender_required:
            raise invalid("Missing data for required field", field=form.sender)
        # The vendor's trap: whoever forgets the sender sends from the newest phone.
        newest = room.default_sender()
        if newest is None:
            raise invalid("No connected WhatsApp account")
        return newest
    phone = account_phone(asked) if isinstance(asked, str) else None
    if phone is None:
        raise invalid("WhatsApp account not found", field=form.sender)
    return phone


def _recipient(form: SendForm, body: Body) -> str:
    written = body.get(form.recipient) if form.recipient else None
    if written is None:
        raise invalid("Missing data for required field", field=form.recipient)
    address = _address(form, written) if isinstance(written, str) else None
    if address is None:
        raise invalid("JID invalid" if form.recipient_is_jid else "Phone number invalid")
    return address


def _text(form: SendForm, body: Body) -> str:
    text = body.get(form.text)
    if text is None or text == "":
        raise invalid("Message must have a text or an attachment", field=form.text)
    if not isinstance(text, str):
        raise invalid("Not a valid string", field=form.text)
    if len(text) > TEXT_LIMIT:
        raise invalid(f"Longer than maximum length {TEXT_LIMIT}", field=form.text)
    return text


def _chat(form: SendForm, room: Room) -> Chat | None:
    chat_id = _whole_number(form.chat_id)
    return None if chat_id is None else room.chat(chat_id)


def _address(form: SendForm, written: str) -> str | None:
    return address_of(written) if form.recipient_is_jid else phone_number(written)


def _words(body: Body, key: str | None) -> str | None:
    value = body.get(key) if key else None
    return value if isinstance(value, str) else None


def _whole_number(value: object) -> int | None:
    """The number in an id that came as a number or as digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
