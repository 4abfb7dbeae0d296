"""Resend's webhooks: signed as Svix does, one event about one mail in each."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from datetime import datetime

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.events import (
    Contact,
    Envelope,
    InboundEvent,
    InboundMedia,
    Kind,
    WebhookRequest,
)
from cerniq_pipeline.errors import SetupError
from cerniq_pipeline.providers import bodies, signing
from cerniq_pipeline.providers.bodies import Fields

PROVIDER = "resend"
SIGNATURES = re.compile(r"(?:.* )?v1,[0-9A-Za-z+/]{43}=(?: .*)?")
"""One of them is of the version that we know."""

KINDS = {
    "email.sent": Kind.STATUS,
    "email.delivered": Kind.STATUS,
    "email.delivery_delayed": Kind.STATUS,
    "email.failed": Kind.STATUS,
    "email.suppressed": Kind.STATUS,
    "email.bounced": Kind.BOUNCE,
    "email.complained": Kind.COMPLAINT,
    "email.opened": Kind.OPEN,
    "email.clicked": Kind.CLICK,
    "email.received": Kind.MESSAGE_RECEIVED,
}

STATUSES = {
    "email.sent": "sent",
    "email.delivered": "delivered",
    "email.delivery_delayed": "sent",
    "email.failed": "failed",
    "email.suppressed": "failed",
    "email.bounced": "failed",
}


class ResendWebhooks:
    """A WebhookReader for one team; a mail that comes in has no text here, and must be fetched."""

    provider = PROVIDER
    signed = True

    def __init__(self, signing_secrets: tuple[str, ...]) -> None:
        self._keys = tuple(map(_key_within, signing.usable(signing_secrets)))

    def screen(self, head: WebhookRequest, *, now: datetime) -> bool:
        """Refuse what has no id, no signature or is of another time; the body decides the rest."""
        if not head.headers.get("svix-id"):
            raise signing.refused(PROVIDER, "it has no svix-id")
        signatures = head.headers.get("svix-signature", "")
        signing.require_form(PROVIDER, signatures, SIGNATURES, "svix-signature")
        signing.require_fresh(PROVIDER, head.headers.get("svix-timestamp", ""), now=now)
        return False

    def verify(self, request: WebhookRequest, *, now: datetime) -> None:
        """Pass by when one of the Svix signatures fits the id, the time and the body."""
        uid = request.headers.get("svix-id", "")
        written = request.headers.get("svix-timestamp", "")
        if not uid:
            raise signing.refused(PROVIDER, "it has no svix-id")
        content = f"{uid}.{written}.".encode("utf-8", "surrogatepass") + request.body
        expected = [
            base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
            for key in self._keys
        ]
        offered = request.headers.get("svix-signature", "").split(" ")
        given = [one.removeprefix("v1,") for one in offered if one.startswith("v1,")]
        if not any(signing.matches_any(one, expected) for one in given):
            raise signing.refused(PROVIDER, "svix-signature does not fit the body")
        signing.require_fresh(PROVIDER, written, now=now)

    def envelope(self, body: bytes) -> Envelope:
        """The key under which to keep a body; raises UnreadableWebhook."""
        event_type, told = _opened(body)
        about = told.part("data").word("email_id")
        at = told.word("created_at")
        known = about is not None and at is not None
        key = bodies.key_of(event_type, *((about, at) if known else (bodies.fold(body),)))
        return bodies.envelope(key, event_type, (_event(event_type, told, bodies.NO_TIME),))

    def read(self, body: bytes, *, received_at: datetime) -> tuple[InboundEvent, ...]:
        """What a kept body says; `received_at` stands in where the vendor gives no time."""
        return (_event(*_opened(body), received_at),)


def _key_within(secret: str) -> bytes:
    try:
        return signing.svix_key(secret)
    except ValueError as error:
        raise SetupError(f"a webhook secret of resend cannot be used: {error}") from error


def _opened(body: bytes) -> tuple[str, Fields]:
    told = bodies.json_fields(PROVIDER, body)
    event_type = told.word("type")
    if event_type is None:
        raise bodies.unreadable(PROVIDER, "it has no type")
    return event_type, told


def _event(event_type: str, told: Fields, received_at: datetime) -> InboundEvent:
    data = told.part("data")
    kind = _kind(event_type, data)
    received = kind is Kind.MESSAGE_RECEIVED
    theirs, ours = ("from", "to") if received else ("to", "from")
    media = tuple(map(_media, data.parts("attachments"))) if received else ()
    clicked = bodies.iso_time(data.part("click").word("timestamp"))
    at = clicked or bodies.iso_time(told.word("created_at")) or received_at
    detail = _detail(event_type, data)
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="EMAIL",
        at=at,
        account=data.email(ours),
        contact=Contact(email=data.email(theirs) or data.email("email")),
        external_id=data.word("email_id"),
        message_type="email",
        media=media,
        delivery=_delivery(event_type, data, at, detail),
        detail=detail,
    )


def _kind(event_type: str, data: Fields) -> Kind:
    if event_type == "contact.updated" and data.is_true("unsubscribed"):
        return Kind.UNSUBSCRIBE
    kind = KINDS.get(event_type, Kind.UNKNOWN)
    # A status that names no mail tells nothing that could be applied.
    return Kind.UNKNOWN if kind is Kind.STATUS and data.word("email_id") is None else kind


def _delivery(event_type: str, data: Fields, at: datetime, title: str) -> Delivery | None:
    status, about = STATUSES.get(event_type), data.word("email_id")
    if status is None or about is None:
        return None
    failed = status == "failed"
    return Delivery(
        external_id=about,
        status=status,
        at=at,
        code=None,
        title=title if failed else "",
        meaning="REFUSED" if failed else None,
        callback=None,
    )


def _detail(event_type: str, data: Fields) -> str:
    """The few words beside the type that a person may want to see."""
    bounce, suppressed = data.part("bounce"), data.part("suppressed")
    told = {
        "email.bounced": (bounce.word("type"), bounce.word("subType"), bounce.text("message")),
        "email.clicked": (data.part("click").text("link"),),
        "email.failed": (data.part("failed").text("reason"),),
        "email.suppressed": (suppressed.word("type"), suppressed.text("message")),
        "email.received": (data.text("subject"),),
    }.get(event_type, (event_type,))
    return " ".join(filter(None, told))


def _media(attachment: Fields) -> InboundMedia:
    content_type = attachment.word("content_type")
    return InboundMedia(
        kind=bodies.media_kind(content_type),
        content_type=content_type,
        filename=attachment.text("filename"),
        provider_id=attachment.word("id"),
    )
