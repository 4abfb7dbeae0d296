"""From the body of a request to TimelinesAI to a message that could be sent, or why it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from cerniq_pipeline.sandbox.doors import (
    Body,
    Draft,
    Sendable,
    SendEndpoint,
    SendKind,
    invalid,
    not_found,
)
from cerniq_pipeline.sandbox.files import linked_file
from cerniq_pipeline.sandbox.numbers import account_phone, address_of, phone_number
from cerniq_pipeline.sandbox.room import Attachment, Chat, Room

TEXT_LIMIT = 2000


@dataclass(frozen=True)
class SendForm:
    """Which words of a body say who sends what to whom.

    Either `chat_id` names a chat, which fixes both ends, or `recipient` and `sender` are words.
    A file is named by the id it was left under, or by a `link` to it, which then must be there.
    """

    kind: SendKind
    text: str
    recipient: str | None = None
    recipient_is_jid: bool = False
    sender: str | None = None
    sender_required: bool = False
    chat_id: object = None
    file_uid: str | None = None
    link: str | None = None


def by_form(form: Callable[[re.Match[str], Body], SendForm]) -> SendEndpoint:
    """An address that takes messages in a form chosen by path and body."""
    return SendEndpoint(
        draft=lambda room, path, body: draft_of(form(path, body), body, room),
        check=lambda room, path, body: checked(form(path, body), body, room),
    )


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
        attachment=_attachment(form, body, room),
    )


def checked(form: SendForm, body: Body, room: Room) -> Sendable:
    """The message to send, or a Refusal worded as the vendor does."""
    _check_strings(body)
    sender, recipient = _ends(form, body, room)
    attachment = _attachment(form, body, room)
    if form.file_uid and attachment is None and body.get(form.file_uid) is not None:
        raise invalid(f"Attachment {body[form.file_uid]} not found")
    if form.link and attachment is None:
        raise invalid("Missing data for required field", field=form.link)
    text = _text(form, body, required=attachment is None)
    account = room.account(sender)
    if account is not None and account.status != "active":
        raise invalid(f"WhatsApp account {sender} is not connected")
    return Sendable(sender, recipient, text, attachment)


def _check_strings(body: Body) -> None:
    for key, value in body.items():
        if not isinstance(value, str):
            continue
        if "\x00" in value:
            raise invalid("NUL characters are not allowed", field=key)
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise invalid("not valid UTF-8", field=key)


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


def _attachment(form: SendForm, body: Body, room: Room) -> Attachment | None:
    if uid := _words(body, form.file_uid):
        return room.file(uid, "timelinesai")
    link = _words(body, form.link)
    return linked_file(link) if link else None


def _text(form: SendForm, body: Body, *, required: bool) -> str:
    text = body.get(form.text)
    if text is None or text == "":
        if not required:
            return ""
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
