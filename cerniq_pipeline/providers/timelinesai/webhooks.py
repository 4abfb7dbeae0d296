"""The words of the vendor's webhooks: whom to believe, what they say, how history reads in them.

The vendor signs nothing: a long token in the address is all the proof there is. With a secret of
our own the body must also carry its HMAC, for a relay that signs on the way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.events import (
    Contact,
    Envelope,
    InboundEvent,
    InboundMedia,
    Kind,
    WebhookRequest,
)
from cerniq_pipeline.domain.history import InboundCopy, RecentChat
from cerniq_pipeline.providers import bodies, signing
from cerniq_pipeline.providers.bodies import Fields, e164
from cerniq_pipeline.providers.meta.meanings import code_of_failure
from cerniq_pipeline.providers.timelinesai.reading import moment

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
            sender=e164(message["sender"]["phone"]),
            recipient=e164(message["recipient"]["phone"]),
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
    event_type = SENT if told.from_us else RECEIVED
    body = {
        "event_type": event_type,
        "chat": {
            "full_name": contact_name,
            "chat_id": bodies.whole(chat.chat_id) or chat.chat_id,
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
    kept = bodies.envelope(
        event_key(body), event_type, (_event(event_type, Fields(body), bodies.NO_TIME),)
    )
    return InboundCopy(
        provider=PROVIDER,
        event_key=kept.event_key,
        event_type=event_type,
        account=chat.account,
        contact=chat.contact,
        people=kept.people,
        # In plain ASCII: halves of characters come through, and the reader of the inbox mends them.
        body=json.dumps(body).encode(),
    )


# ── Any webhook ───────────────────────────────────────────────────────────────────────────────

PROVIDER = "timelinesai"
BY_API = "public api"

KINDS = {
    RECEIVED: Kind.MESSAGE_RECEIVED,
    SENT: Kind.MESSAGE_SENT_ELSEWHERE,
    "message:reaction": Kind.REACTION,
    "call:incoming:missed": Kind.CALL,
    "call:incoming:ended": Kind.CALL,
    "call:outgoing:ended": Kind.CALL,
    "whatsapp:account:connected": Kind.ACCOUNT_CONNECTED,
    "whatsapp:account:resumed": Kind.ACCOUNT_CONNECTED,
    "whatsapp:account:disconnected": Kind.ACCOUNT_DISCONNECTED,
    "whatsapp:account:suspended": Kind.ACCOUNT_SUSPENDED,
    "waba:message:received": Kind.MESSAGE_RECEIVED,
    "waba:message:delivered": Kind.STATUS,
    "waba:message:read": Kind.STATUS,
    "waba:message:failed": Kind.STATUS,
}

DIRECTIONS = {"received": Kind.MESSAGE_RECEIVED, "sent": Kind.MESSAGE_SENT_ELSEWHERE}
"""What `message:new`, which is told for both sides, is about."""

STATUSES = {"sent": "sent", "delivered": "delivered", "read": "read", "failed": "failed"}


class TimelinesAIWebhooks:
    """A WebhookReader for one workspace."""

    provider = PROVIDER

    def __init__(self, tokens: tuple[str, ...], *, signing_secrets: tuple[str, ...] = ()) -> None:
        self._tokens = signing.usable(tokens)
        self._signing_secrets = signing.usable(signing_secrets)
        self.signed = bool(self._signing_secrets)

    def screen(self, head: WebhookRequest, *, now: datetime) -> bool:
        """Refuse what has no token of ours in the query or at the end of the path.

        Without a relay that signs, that is all; with one, the body decides the rest.
        """
        in_path = unquote(urlsplit(head.url).path.rpartition("/")[2])
        if not signing.matches_any(head.query.get("token", in_path), self._tokens):
            raise signing.refused(PROVIDER, "the token in its address is not ours")
        if not self._signing_secrets:
            return True
        signing.require_form(PROVIDER, _signature(head), _SIGNATURE, "X-Signature")
        return False

    def verify(self, request: WebhookRequest, *, now: datetime) -> None:
        """Pass by with a token of ours in the query or at the end of the path, and its HMAC."""
        if self.screen(request, now=now):
            return
        signature = _signature(request)
        expected = (signing.hmac_hex(one, request.body) for one in self._signing_secrets)
        if not signing.matches_any(signature, expected):
            raise signing.refused(PROVIDER, "X-Signature does not fit the body")

    def envelope(self, body: bytes) -> Envelope:
        """The key under which to keep a body; raises UnreadableWebhook."""
        event_type, told = _opened(body)
        event = _event(event_type, told, bodies.NO_TIME)
        return bodies.envelope(_key(event_type, told, body), event_type, (event,))

    def read(self, body: bytes, *, received_at: datetime) -> tuple[InboundEvent, ...]:
        """What a kept body says; `received_at` stands in where the vendor gives no time."""
        event_type, told = _opened(body)
        return (_event(event_type, told, received_at),)


_SIGNATURE = re.compile("[0-9a-f]{64}")


def _signature(request: WebhookRequest) -> str:
    return request.headers.get("x-signature", "").removeprefix("sha256=").lower()


def _opened(body: bytes) -> tuple[str, Fields]:
    outer = bodies.json_fields(PROVIDER, body)
    inner = outer.part("data")
    told = Fields({**inner.values, **outer.values})
    event_type = told.word("event_type")
    if event_type is None:
        raise bodies.unreadable(PROVIDER, "it has no event_type")
    return event_type, told


def _key(event_type: str, told: Fields, body: bytes) -> str:
    reaction = told.part("reaction")
    if uid := reaction.word("message_uid"):
        # The number as a hash: a key outlives the person's data.
        reactor = bodies.fold((reaction.part("reactor").word("phone") or "").encode())
        said = (reaction.word("action"), reaction.word("emoji"), reaction.word("timestamp"))
        return bodies.key_of(event_type, uid, reactor, *said)
    if uid := _uid(told):
        return bodies.key_of(event_type, uid)
    # An account that goes and comes has no id for it; its times make the bodies differ.
    return bodies.key_of(event_type, bodies.fold(body))


def _uid(told: Fields) -> str | None:
    return told.part("message").word("message_uid") or told.part("call_details").word("message_uid")


def _event(event_type: str, told: Fields, received_at: datetime) -> InboundEvent:
    kind = KINDS.get(event_type, Kind.UNKNOWN)
    if event_type == "message:new":
        kind = DIRECTIONS.get(told.part("message").word("direction") or "", Kind.UNKNOWN)
    return READERS.get(kind, _about_account)(kind, event_type, told, received_at)


def _message(kind: Kind, event_type: str, told: Fields, received_at: datetime) -> InboundEvent:
    message, chat = told.part("message"), told.part("chat")
    theirs = message.part("sender" if kind is Kind.MESSAGE_RECEIVED else "recipient")
    media = tuple(map(_media, _attachments(message)))
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="WHATSAPP",
        at=_time(message, "timestamp") or received_at,
        account=_account(told),
        contact=_contact(theirs, chat),
        external_id=message.word("message_uid"),
        chat_id=_chat_id(chat),
        text=message.text("text"),
        message_type=media[0].kind if media else "text",
        media=media,
        reply_to=message.word("reply_to_uid"),
        by_api=(message.word("origin") or "").lower() == BY_API,
        detail="in a group" if chat.is_true("is_group") else "",
    )


def _status(kind: Kind, event_type: str, told: Fields, received_at: datetime) -> InboundEvent:
    message, chat = told.part("message"), told.part("chat")
    uid = message.word("message_uid")
    failure = message.part("failure_reason")
    code, title = failure.whole("code"), failure.text("title") or ""
    at = _time(message, "timestamp") or received_at
    known, delivery = bodies.status_of(
        Delivery(
            external_id=uid or "",
            status=STATUSES.get(event_type.rpartition(":")[2], "unknown"),
            at=at,
            code=code,
            title=title,
            meaning=None if code is None else code_of_failure(code),
            callback=None,
        )
    )
    if known is Kind.UNKNOWN:
        return _about_account(known, event_type, told, received_at)
    return InboundEvent(
        kind=known,
        provider=PROVIDER,
        channel="WHATSAPP",
        at=at,
        account=_account(told),
        contact=_contact(message.part("recipient"), chat),
        external_id=uid,
        chat_id=_chat_id(chat),
        delivery=delivery,
        detail=title,
    )


def _reaction(kind: Kind, event_type: str, told: Fields, received_at: datetime) -> InboundEvent:
    reaction, chat = told.part("reaction"), told.part("chat")
    reactor = reaction.part("reactor")
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="WHATSAPP",
        at=_time(reaction, "timestamp") or received_at,
        account=_account(told),
        contact=_contact(reactor, chat),
        chat_id=_chat_id(chat),
        text=reaction.text("emoji"),
        message_type="reaction",
        reply_to=reaction.word("message_uid"),
        detail=reaction.word("action") or "",
    )


def _call(kind: Kind, event_type: str, told: Fields, received_at: datetime) -> InboundEvent:
    call, chat = told.part("call_details"), told.part("chat")
    theirs = call.part("recipient" if event_type.startswith("call:outgoing") else "caller")
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="WHATSAPP",
        at=_time(call, "timestamp") or received_at,
        account=_account(told),
        contact=_contact(theirs, chat),
        external_id=call.word("message_uid"),
        chat_id=_chat_id(chat),
        message_type="call",
        detail=event_type.removeprefix("call:"),
    )


def _about_account(
    kind: Kind, event_type: str, told: Fields, received_at: datetime
) -> InboundEvent:
    account, chat = told.part("whatsapp_account"), told.part("chat")
    # A number that comes back still tells when it went.
    gone = kind is Kind.ACCOUNT_DISCONNECTED and _time(account, "disconnected_on")
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="WHATSAPP",
        at=gone or received_at,
        account=_account(told),
        contact=_contact(chat, chat),
        external_id=_uid(told),
        chat_id=_chat_id(chat),
        text=told.part("message").text("text"),
        detail=event_type,
    )


READERS: dict[Kind, Callable[[Kind, str, Fields, datetime], InboundEvent]] = {
    Kind.MESSAGE_RECEIVED: _message,
    Kind.MESSAGE_SENT_ELSEWHERE: _message,
    Kind.STATUS: _status,
    Kind.REACTION: _reaction,
    Kind.CALL: _call,
}


def _contact(person: Fields, chat: Fields) -> Contact:
    """Who is at the other end: by number if it is shown, by the id of a hidden one if not."""
    hidden = (person.hidden_id("phone"), chat.hidden_id("phone"), chat.hidden_id("jid"))
    return Contact(
        phone=person.phone("phone") or chat.phone("phone") or chat.phone("jid"),
        user_id=next(filter(None, hidden), None),
        name=person.text("full_name") or chat.text("full_name"),
    )


def _account(told: Fields) -> str | None:
    ours = told.part("whatsapp_account") or told.part("account")
    return ours.phone("phone") or ours.phone("id") or ours.phone("whatsapp_account_wid")


def _chat_id(chat: Fields) -> str | None:
    return chat.word("chat_id") or chat.word("id")


def _attachments(message: Fields) -> tuple[Fields, ...]:
    one = message.part("attachment")
    return message.parts("attachments") or ((one,) if one else ())


def _media(attachment: Fields) -> InboundMedia:
    content_type = attachment.word("mimetype")
    return InboundMedia(
        kind=bodies.media_kind(content_type),
        content_type=content_type,
        filename=attachment.text("filename"),
        url=attachment.text("temporary_download_url"),
    )


def _time(part: Fields, name: str) -> datetime | None:
    try:
        return moment(part.word(name) or "")
    except (ValueError, OverflowError):
        return bodies.iso_time(part.word(name))
