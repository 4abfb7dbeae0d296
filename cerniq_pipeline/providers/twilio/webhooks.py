"""Twilio's webhooks: signed over the public address and the form, one message or status each."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlsplit

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.events import (
    Contact,
    Envelope,
    InboundEvent,
    InboundMedia,
    Kind,
    WebhookRequest,
)
from cerniq_pipeline.providers import bodies, signing
from cerniq_pipeline.providers.bodies import Fields

PROVIDER = "twilio"
MOST_FILES = 10
SIGNATURE = re.compile("[0-9A-Za-z+/]{27}=|[0-9A-Za-z+/]{43}=")
"""With SHA-1, or with SHA-256."""
DEFAULT_PORTS = {"https": 443, "http": 80}

STATUSES = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "undelivered": "failed",
    "failed": "failed",
    "canceled": "failed",
}
"""Words for a message that still waits (accepted, queued …) say nothing about its way."""

MEANINGS = {
    21610: "OPTED_OUT",
    **dict.fromkeys((21211, 21604, 21614, 21635, 30005, 30006), "INVALID_RECIPIENT_NUMBER"),
    **dict.fromkeys((20429, 21611, 30001, 30022, 30023), "RATE_LIMITED"),
    20003: "ACCOUNT_AUTH",
    30002: "ACCOUNT_SUSPENDED",
}


class TwilioWebhooks:
    """A WebhookReader for one account; shared keys sign with SHA-256 instead of the token."""

    provider = PROVIDER
    signed = True

    def __init__(self, auth_tokens: tuple[str, ...], *, shared_keys: tuple[str, ...] = ()) -> None:
        self._secrets = {
            "HMAC_SHA1": ("sha1", signing.usable(auth_tokens)),
            "HMAC_SHA256": ("sha256", signing.usable(shared_keys)),
        }

    def screen(self, head: WebhookRequest, *, now: datetime) -> bool:
        """Refuse what is signed in no way that we have a key for; the body decides the rest."""
        if not self._secrets.get(_algorithm(head), ("", ()))[1]:
            raise signing.refused(PROVIDER, "it is signed in a way that we have no key for")
        given = head.headers.get("x-twilio-signature", "")
        signing.require_form(PROVIDER, given, SIGNATURE, "X-Twilio-Signature")
        return False

    def verify(self, request: WebhookRequest, *, now: datetime) -> None:
        """Pass by when X-Twilio-Signature fits the public address and what was posted to it."""
        algorithm, secrets = self._secrets.get(_algorithm(request), ("sha1", ()))
        posted = _posted(request)
        expected = [
            _signature(secret, f"{url}{posted}", algorithm)
            for secret in secrets
            for url in _spellings(request.url)
        ]
        if not signing.matches_any(request.headers.get("x-twilio-signature", ""), expected):
            raise signing.refused(PROVIDER, "X-Twilio-Signature does not fit the request")

    def envelope(self, body: bytes) -> Envelope:
        """The key under which to keep a body; raises UnreadableWebhook."""
        told = _opened(body)
        event = _event(told, bodies.NO_TIME)
        event_type = _event_type(told)
        about = event.external_id or bodies.fold(body)
        return bodies.envelope(bodies.key_of(event_type, about), event_type, (event,))

    def read(self, body: bytes, *, received_at: datetime) -> tuple[InboundEvent, ...]:
        """What a kept body says; the vendor gives no time, so it happened when it arrived."""
        return (_event(_opened(body), received_at),)


# ── Whom to believe ───────────────────────────────────────────────────────────────────────────


def _algorithm(request: WebhookRequest) -> str:
    settings = request.headers.get("x-twilio-webhooks-signature-settings")
    if settings is None:
        return "HMAC_SHA1"
    pairs = (pair.strip().partition("=") for pair in settings.split(","))
    return next((value for name, _, value in pairs if name == "algorithm"), "")


def _posted(request: WebhookRequest) -> str:
    """What is signed after the address: the form's fields, or nothing beside a body's own hash."""
    if (claimed := request.query.get("bodySHA256")) is not None:
        if not signing.matches_any(claimed.lower(), [bodies.fold(request.body)]):
            raise signing.refused(PROVIDER, "bodySHA256 does not fit the body")
        return ""
    try:
        pairs = bodies.form_pairs(request.body)
    except ValueError as error:
        raise signing.refused(PROVIDER, "it is a form of too many fields") from error
    return "".join(name + value for name, value in sorted(set(pairs)))


def _signature(secret: str, content: str, algorithm: str) -> str:
    signed = content.encode("utf-8", "replace")
    return base64.b64encode(hmac.digest(secret.encode(), signed, algorithm)).decode()


def _spellings(url: str) -> Iterator[str]:
    """The address with and without its port: the vendor signs the one or the other."""
    yield url
    parts = urlsplit(url)
    host, colon, port = parts.netloc.rpartition(":")
    if colon and port.isdigit():
        yield parts._replace(netloc=host).geturl()
    elif parts.scheme in DEFAULT_PORTS:
        yield parts._replace(netloc=f"{parts.netloc}:{DEFAULT_PORTS[parts.scheme]}").geturl()


# ── What it says ──────────────────────────────────────────────────────────────────────────────


def _opened(body: bytes) -> Fields:
    told = bodies.form_or_json_fields(PROVIDER, body)
    if not any(name in told for name in ("MessageSid", "SmsSid", "AccountSid", "From")):
        raise bodies.unreadable(PROVIDER, "it names no message and no account")
    return told


def _is_message(told: Fields) -> bool:
    came_in = told.word("MessageStatus") in (None, "received", "receiving")
    return came_in and ("Body" in told or "NumMedia" in told)


def _status_word(told: Fields) -> str | None:
    return told.word("MessageStatus") or told.word("SmsStatus")


def _event_type(told: Fields) -> str:
    if _is_message(told):
        return "received"
    return _status_word(told) or told.word("EventType") or "unknown"


def _event(told: Fields, received_at: datetime) -> InboundEvent:
    is_message = _is_message(told)
    sid = told.word("MessageSid") or told.word("SmsSid")
    theirs, ours = ("From", "To") if is_message else ("To", "From")
    status, delivery = bodies.status_of(None if is_message else _delivery(told, sid, received_at))
    media = tuple(_files(told)) if is_message else ()
    opt_out = (told.word("OptOutType") or "").upper()
    if is_message:
        kind = Kind.UNSUBSCRIBE if opt_out == "STOP" else Kind.MESSAGE_RECEIVED
    else:
        kind = status
    phone = told.phone(theirs)
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="SMS",
        at=received_at,
        account=told.phone(ours) or told.word(ours),
        contact=Contact(phone=phone, user_id=None if phone else told.word(theirs)),
        external_id=sid,
        text=told.text("Body"),
        message_type=media[0].kind if media else "text",
        media=media,
        delivery=delivery,
        detail=opt_out if is_message else _event_type(told),
    )


def _delivery(told: Fields, sid: str | None, at: datetime) -> Delivery | None:
    word = _status_word(told)
    if word is None:
        return None
    code = told.whole("ErrorCode") or None
    return Delivery(
        external_id=sid or "",
        status=STATUSES.get(word, "unknown"),
        at=at,
        code=code,
        title=told.text("ErrorMessage") or "",
        meaning=None if code is None else MEANINGS.get(code, "REFUSED"),
        callback=None,
    )


def _files(told: Fields) -> Iterator[InboundMedia]:
    for place in range(min(told.whole("NumMedia") or 0, MOST_FILES)):
        content_type = told.word(f"MediaContentType{place}")
        url = told.text(f"MediaUrl{place}")
        yield InboundMedia(bodies.media_kind(content_type), content_type, url=url)
