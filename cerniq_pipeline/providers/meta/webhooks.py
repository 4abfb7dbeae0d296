"""Meta's webhooks: whom to believe, and every message and status that one body may hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.events import (
    Contact,
    Envelope,
    InboundEvent,
    InboundMedia,
    Kind,
    WebhookRequest,
)
from cerniq_pipeline.errors import ProviderUnreadable
from cerniq_pipeline.providers import bodies, signing
from cerniq_pipeline.providers.bodies import Fields
from cerniq_pipeline.providers.meta.meanings import code_of_failure

STATUSES = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "played": "read",
    "failed": "failed",
}


ODD_FORMS = (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError)
"""What a status of an unknown form may raise; the last two come from impossible times."""


def read_statuses(body: bytes) -> tuple[Delivery, ...]:
    """Every status in a webhook's body, in its order; raises ProviderUnreadable for a bad form."""
    try:
        return tuple(_statuses(json.loads(body)))
    except (*ODD_FORMS, RecursionError) as error:
        form = f"meta's webhook has an unknown form ({type(error).__name__})"
        raise ProviderUnreadable(form) from error


def _statuses(body: dict[str, Any]) -> Iterator[Delivery]:
    for entry in body["entry"]:
        for change in entry["changes"]:
            for told in change["value"].get("statuses", ()):
                yield _status(told)


def _status(told: dict[str, Any]) -> Delivery:
    error = next(iter(told.get("errors") or ()), None)
    code = None if error is None else int(error["code"])
    title = "" if error is None else _said(error.get("title") or error.get("message") or "")
    callback = told.get("biz_opaque_callback_data")
    return Delivery(
        external_id=_said(told["id"]),
        status=STATUSES.get(told["status"], "unknown"),
        at=datetime.fromtimestamp(int(told["timestamp"]), UTC),
        code=code,
        title=title,
        meaning=None if code is None else code_of_failure(code),
        callback=None if callback is None else _said(callback),
    )


def _said(value: object) -> str:
    return bodies.storable(str(value))


# ── Any webhook ───────────────────────────────────────────────────────────────────────────────

PROVIDER = "meta"
FILES = frozenset({"image", "video", "audio", "document", "sticker"})
NO_MESSAGES = frozenset({"system", "revoke", "request_welcome"})
"""Told among the messages, though nobody has written anything."""


class MetaWebhooks:
    """A WebhookReader for one app."""

    provider = PROVIDER
    signed = True

    def __init__(self, app_secrets: tuple[str, ...]) -> None:
        self._secrets = signing.usable(app_secrets)

    def screen(self, head: WebhookRequest, *, now: datetime) -> bool:
        """Refuse what has no signature; the body decides the rest."""
        given = head.headers.get("x-hub-signature-256", "")
        signing.require_form(PROVIDER, given, signing.SHA256_HEX, "X-Hub-Signature-256")
        return False

    def verify(self, request: WebhookRequest, *, now: datetime) -> None:
        """Pass by when X-Hub-Signature-256 is the body's HMAC under one of the app's secrets."""
        given = request.headers.get("x-hub-signature-256", "")
        expected = (f"sha256={signing.hmac_hex(one, request.body)}" for one in self._secrets)
        if not signing.matches_any(given, expected):
            raise signing.refused(PROVIDER, "X-Hub-Signature-256 does not fit the body")

    def envelope(self, body: bytes) -> Envelope:
        """The key under which to keep a body; raises UnreadableWebhook."""
        changes = _changes(body)
        events = tuple(_events(changes, bodies.NO_TIME))
        fields = sorted({change.word("field") or "unknown" for change in changes})
        event_type = ",".join(fields) or "nothing"
        items = [key for change in changes for key in _item_keys(change)]
        # Where one item has no id, the others cannot stand for the whole body.
        known = sorted(filter(None, items))
        content = "\n".join(known).encode() if items and len(known) == len(items) else body
        key = bodies.key_of(event_type, bodies.fold(content))
        return bodies.envelope(key, event_type, events)

    def read(self, body: bytes, *, received_at: datetime) -> tuple[InboundEvent, ...]:
        """Everything a kept body says; `received_at` stands in where Meta gives no time."""
        return tuple(_events(_changes(body), received_at))


def _changes(body: bytes) -> tuple[Fields, ...]:
    whole = bodies.json_fields(PROVIDER, body)
    if not isinstance(whole.values.get("entry"), list):
        raise bodies.unreadable(PROVIDER, "it has no list of entries")
    return tuple(change for entry in whole.parts("entry") for change in entry.parts("changes"))


def _item_keys(change: Fields) -> Iterator[str | None]:
    """What tells each item from all others: a message by its id, a status also by its word."""
    value = change.part("value")
    messages, statuses = value.parts("messages"), value.parts("statuses")
    for message in messages:
        yield message.word("id")
    for told in statuses:
        uid, word = told.word("id"), told.word("status")
        yield f"{uid}:{word}" if uid and word else None
    if not messages and not statuses:
        yield None


def _events(changes: tuple[Fields, ...], received_at: datetime) -> Iterator[InboundEvent]:
    for change in changes:
        value = change.part("value")
        messages, statuses = value.parts("messages"), value.parts("statuses")
        for message in messages:
            yield _message(message, value, received_at)
        for told in statuses:
            yield _told_status(told, value, received_at)
        if not messages and not statuses:
            yield _unknown(change.word("field") or "a change without a field", value, received_at)


def _message(message: Fields, value: Fields, received_at: datetime) -> InboundEvent:
    kind_word = message.word("type") or "unknown"
    sender = _sender(message, value)
    if kind_word == "reaction":
        kind = Kind.REACTION
    else:
        kind = Kind.UNKNOWN if kind_word in NO_MESSAGES else Kind.MESSAGE_RECEIVED
    content = CONTENTS.get(kind_word, _unsupported)(message, kind_word)
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="WHATSAPP",
        at=bodies.unix_time(message.word("timestamp")) or received_at,
        account=_account(value),
        contact=sender,
        external_id=message.word("id"),
        chat_id=sender.phone.removeprefix("+") if sender.phone else sender.user_id,
        **{"reply_to": message.part("context").word("id"), **content},
    )


def _sender(message: Fields, value: Fields) -> Contact:
    """Who wrote: by number if it is shown, by the id that stands for a hidden one if not."""
    number, hidden = message.word("from"), message.word("from_user_id") or message.word("user_id")
    known = value.parts("contacts")
    fitting = [
        one
        for one in known
        if (number and one.word("wa_id") == number) or (hidden and one.word("user_id") == hidden)
    ]
    # Without a number only a contact that stands alone is surely the sender.
    alone = known if len(known) == 1 and not number and not hidden else ()
    person = next(iter([*fitting, *alone]), Fields({}))
    return Contact(
        phone=bodies.e164(number) or person.phone("wa_id"),
        user_id=person.word("user_id") or hidden,
        name=person.part("profile").text("name"),
    )


def _told_status(told: Fields, value: Fields, received_at: datetime) -> InboundEvent:
    try:
        read = _status({"id": "", **told.values})
    except ODD_FORMS:
        return _unknown("a status of an unknown form", value, received_at, told.word("id"))
    external_id = told.word("id")
    kind, delivery = bodies.status_of(read if external_id else replace(read, external_id=""))
    if kind is Kind.UNKNOWN:
        return _unknown("a status of no message", value, received_at)
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="WHATSAPP",
        at=read.at,
        account=_account(value),
        contact=Contact(
            phone=told.phone("recipient_id"),
            user_id=told.word("recipient_user_id") or told.word("user_id"),
        ),
        external_id=external_id,
        chat_id=told.word("recipient_id"),
        delivery=delivery,
        detail=read.title,
    )


def _unknown(
    what: str, value: Fields, received_at: datetime, external_id: str | None = None
) -> InboundEvent:
    errors = _complaints(value)
    return InboundEvent(
        kind=Kind.UNKNOWN,
        provider=PROVIDER,
        channel="WHATSAPP",
        at=received_at,
        account=_account(value),
        external_id=external_id,
        detail=f"{what}: {errors}" if errors else what,
    )


def _account(value: Fields) -> str | None:
    return value.part("metadata").phone("display_phone_number")


def _complaints(part: Fields) -> str:
    told = (f"{one.word('code')} {one.text('title') or ''}".strip() for one in part.parts("errors"))
    return "; ".join(told)


# ── What a message holds, by its type ─────────────────────────────────────────────────────────

Content = dict[str, Any]


def _text(message: Fields, word: str) -> Content:
    return {"text": message.part("text").text("body")}


def _file(message: Fields, word: str) -> Content:
    file = message.part(word)
    media = InboundMedia(
        kind=word,
        content_type=file.word("mime_type"),
        filename=file.text("filename"),
        url=file.text("url"),
        provider_id=file.word("id"),
    )
    return {"text": file.text("caption"), "message_type": word, "media": (media,)}


def _location(message: Fields, word: str) -> Content:
    place = message.part("location")
    where = (place.values.get("latitude"), place.values.get("longitude"))
    numbers = [str(one) for one in where if isinstance(one, int | float)]
    said = (place.text("name"), place.text("address"), ", ".join(numbers))
    return {"text": "; ".join(filter(None, said)) or None, "message_type": word}


def _contacts(message: Fields, word: str) -> Content:
    names = (one.part("name").text("formatted_name") for one in message.parts("contacts"))
    return {"text": "; ".join(filter(None, names)) or None, "message_type": word}


def _reaction(message: Fields, word: str) -> Content:
    reaction = message.part("reaction")
    emoji = reaction.text("emoji")
    return {
        "text": emoji,
        "message_type": word,
        "reply_to": reaction.word("message_id"),
        "detail": "set" if emoji else "removed",
    }


def _button(message: Fields, word: str) -> Content:
    button = message.part("button")
    payload = button.text("payload")
    return {
        "text": button.text("text") or payload,
        "message_type": "button",
        "detail": payload or "",
    }


def _interactive(message: Fields, word: str) -> Content:
    answer = message.part("interactive")
    form = answer.word("type") or ""
    chosen = answer.part(form)
    return {
        "text": chosen.text("title") or chosen.text("body"),
        "message_type": "button",
        "detail": chosen.text("id") or form,
    }


def _edit(message: Fields, word: str) -> Content:
    edit = message.part("edit")
    return {
        "text": edit.part("message").part("text").text("body"),
        "message_type": word,
        "detail": f"edit of {edit.word('original_message_id')}",
    }


def _system(message: Fields, word: str) -> Content:
    return {"text": message.part("system").text("body"), "message_type": word, "detail": word}


def _unsupported(message: Fields, word: str) -> Content:
    errors = _complaints(message)
    return {"message_type": "unsupported", "detail": f"{word}: {errors}" if errors else word}


CONTENTS: dict[str, Callable[[Fields, str], Content]] = {
    "text": _text,
    **dict.fromkeys(FILES, _file),
    "location": _location,
    "contacts": _contacts,
    "reaction": _reaction,
    "button": _button,
    "interactive": _interactive,
    "edit": _edit,
    **dict.fromkeys(NO_MESSAGES, _system),
}
