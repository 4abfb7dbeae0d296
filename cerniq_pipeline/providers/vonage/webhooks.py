"""Vonage's webhooks: the older SMS ones with a `sig`, those of the Messages API with a JWT.

Both are taken as a POST, as a form or as JSON. A long SMS arrives in parts; each part is a message
here, and its detail says which part it is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from datetime import datetime, timedelta
from typing import Literal

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.events import (
    Contact,
    Envelope,
    InboundEvent,
    InboundMedia,
    Kind,
    WebhookRequest,
)
from cerniq_pipeline.errors import UnreadableWebhook
from cerniq_pipeline.providers import bodies, signing
from cerniq_pipeline.providers.bodies import Fields

PROVIDER = "vonage"
RETRIED_FOR = timedelta(hours=24, minutes=5)
"""A webhook is tried again for a day, perhaps with its first signature; an event is kept once."""

Algorithm = Literal["md5hash", "md5", "sha1", "sha256", "sha512"]

STATUSES = {
    "submitted": "sent",
    "accepted": "sent",
    "buffered": "sent",
    "delivered": "delivered",
    "read": "read",
    "expired": "failed",
    "failed": "failed",
    "rejected": "failed",
    "undeliverable": "failed",
}
CHANNELS = {"sms": "SMS", "mms": "SMS", "whatsapp": "WHATSAPP"}
FILES = {"image": "image", "video": "video", "audio": "audio", "file": "document"}
OPTED_OUT = 9


class VonageWebhooks:
    """A WebhookReader for one account; the algorithm is the one set on the account."""

    provider = PROVIDER
    signed = True

    def __init__(
        self, signature_secrets: tuple[str, ...], *, algorithm: Algorithm = "sha256"
    ) -> None:
        self._secrets = signing.usable(signature_secrets)
        self._algorithm: Algorithm = algorithm

    def screen(self, head: WebhookRequest, *, now: datetime) -> bool:
        """Refuse a JWT that is not ours or too old; the hash of the body, or its `sig`, is left."""
        if "authorization" in head.headers:
            signed_at = self._claims(head).word("iat")
            signing.require_fresh(PROVIDER, signed_at, now=now, past=RETRIED_FOR)
        return False

    def verify(self, request: WebhookRequest, *, now: datetime) -> None:
        """Pass by when its JWT, or without one its `sig`, fits the body and is not too old."""
        if "authorization" in request.headers:
            signed_at = self._verify_token(request)
        else:
            signed_at = self._verify_sig(request)
        signing.require_fresh(PROVIDER, signed_at, now=now, past=RETRIED_FOR)

    def _verify_sig(self, request: WebhookRequest) -> str | None:
        try:
            told = bodies.form_or_json_fields(PROVIDER, request.body)
        except UnreadableWebhook as error:
            raise signing.refused(PROVIDER, "it has neither a JWT nor a readable sig") from error
        content = _signed_content(told)
        expected = [_sig(one, content, self._algorithm) for one in self._secrets]
        if not signing.matches_any((told.word("sig") or "").lower(), expected):
            raise signing.refused(PROVIDER, "its sig does not fit its fields")
        return told.word("timestamp")

    def _verify_token(self, request: WebhookRequest) -> str | None:
        claims = self._claims(request)
        hashed = (claims.word("payload_hash") or "").lower()
        if not signing.matches_any(hashed, _hashes(request.body)):
            raise signing.refused(PROVIDER, "the payload_hash of its JWT does not fit the body")
        return claims.word("iat")

    def _claims(self, request: WebhookRequest) -> Fields:
        scheme, _, token = request.headers["authorization"].partition(" ")
        signed, _, signature = token.rpartition(".")
        expected = [_token_signature(one, signed) for one in self._secrets]
        if scheme.lower() != "bearer" or not signing.matches_any(signature, expected):
            raise signing.refused(PROVIDER, "its JWT is not signed with our secret")
        head, _, payload = signed.partition(".")
        if _decoded(head).word("alg") != "HS256":
            raise signing.refused(PROVIDER, "its JWT is not signed with HS256")
        return _decoded(payload)

    def envelope(self, body: bytes) -> Envelope:
        """The key under which to keep a body; raises UnreadableWebhook."""
        told = _opened(body)
        event = _event(told, bodies.NO_TIME)
        event_type = told.word("status") or told.word("message_type") or told.word("type")
        named = event_type or "unknown"
        about = event.external_id or bodies.fold(body)
        key = bodies.key_of(event.kind, about, named, told.word("concat-part"))
        return bodies.envelope(key, named, (event,))

    def read(self, body: bytes, *, received_at: datetime) -> tuple[InboundEvent, ...]:
        """What a kept body says; `received_at` stands in where the vendor gives no time."""
        return (_event(_opened(body), received_at),)


# ── Whom to believe ───────────────────────────────────────────────────────────────────────────


def _signed_content(told: Fields) -> bytes:
    if any(isinstance(value, dict | list) for value in told.values.values()):
        raise signing.refused(PROVIDER, "a sig covers plain fields only")
    cleaned = {
        name: str(value).translate({ord("&"): "_", ord("="): "_"})
        for name, value in told.values.items()
        if name != "sig"
    }
    joined = "".join(f"&{name}={cleaned[name]}" for name in sorted(cleaned))
    return joined.encode("utf-8", "surrogatepass")


def _sig(secret: str, content: bytes, algorithm: Algorithm) -> str:
    if algorithm == "md5hash":
        return hashlib.md5(content + secret.encode(), usedforsecurity=False).hexdigest()
    return signing.hmac_hex(secret, content, algorithm)


def _token_signature(secret: str, signed: str) -> str:
    content = signed.encode("utf-8", "surrogatepass")
    digest = hmac.digest(secret.encode(), content, "sha256")
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _decoded(part: str) -> Fields:
    try:
        padded = part + "=" * (-len(part) % 4)
        return bodies.json_fields(PROVIDER, base64.urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, UnreadableWebhook) as error:
        raise signing.refused(PROVIDER, "its JWT cannot be read") from error


def _hashes(body: bytes) -> list[str]:
    """The hash of the body as it came, and of the same JSON in its compact form."""
    try:
        compact = json.dumps(json.loads(body), separators=(",", ":"), ensure_ascii=False)
        return [bodies.fold(body), bodies.fold(compact.encode())]
    except (ValueError, RecursionError):
        return [bodies.fold(body)]


# ── What it says ──────────────────────────────────────────────────────────────────────────────


def _opened(body: bytes) -> Fields:
    told = bodies.form_or_json_fields(PROVIDER, body)
    if not any(name in told for name in ("message_uuid", "messageId", "msisdn", "from")):
        raise bodies.unreadable(PROVIDER, "it names no message and nobody")
    return told


def _event(told: Fields, received_at: datetime) -> InboundEvent:
    is_status = "status" in told
    older = "message_uuid" not in told and ("messageId" in told or "msisdn" in told)
    # In the older form msisdn is always the other side; in the newer one the sender comes first.
    theirs, ours = ("from", "to") if not is_status else ("to", "from")
    theirs, ours = ("msisdn", "to") if older else (theirs, ours)
    external_id = told.word("messageId" if older else "message_uuid")
    at = _time(told) or received_at
    kind, delivery = bodies.status_of(_delivery(told, external_id, at) if is_status else None)
    media = _media(told)
    says_something = bool(media) or told.text("text") is not None or "message_type" in told
    if not is_status and says_something:
        kind = Kind.MESSAGE_RECEIVED
    phone = told.phone(theirs)
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel=CHANNELS.get(told.word("channel") or "", "SMS"),
        at=at,
        account=told.phone(ours) or told.word(ours),
        contact=Contact(phone=phone, user_id=None if phone else told.word(theirs)),
        external_id=external_id,
        text=told.text("text") or _caption(told),
        message_type=media[0].kind if media else _message_type(told),
        media=media,
        delivery=delivery,
        detail=_detail(told, kind),
    )


def _time(told: Fields) -> datetime | None:
    written = told.word("message-timestamp") or told.word("timestamp")
    return bodies.unix_time(written) or bodies.iso_time(written)


def _delivery(told: Fields, external_id: str | None, at: datetime) -> Delivery:
    error = told.part("error")
    code = told.whole("err-code") or error.whole("title") or None
    opted_out = code == OPTED_OUT and "err-code" in told
    return Delivery(
        external_id=external_id or "",
        status=STATUSES.get(told.word("status") or "", "unknown"),
        at=at,
        code=code,
        title=error.text("detail") or "",
        meaning=None if code is None else "OPTED_OUT" if opted_out else "REFUSED",
        callback=told.word("client-ref") or told.word("client_ref"),
    )


def _media(told: Fields) -> tuple[InboundMedia, ...]:
    form = told.word("message_type") or ""
    file = told.part(form)
    if form not in FILES or not file:
        return ()
    return (InboundMedia(FILES[form], filename=file.text("name"), url=file.text("url")),)


def _caption(told: Fields) -> str | None:
    return told.part(told.word("message_type") or "").text("caption")


def _message_type(told: Fields) -> str:
    form = told.word("message_type") or "text"
    return form if form == "text" else "unsupported"


def _detail(told: Fields, kind: Kind) -> str:
    if told.word("concat-total"):
        part, total = told.word("concat-part"), told.word("concat-total")
        return f"part {part} of {total}, reference {told.word('concat-ref')}"
    if kind is Kind.MESSAGE_RECEIVED:
        return ""
    return told.word("status") or "neither a status nor a message"
