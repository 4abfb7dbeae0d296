"""Drop Cowboy's webhooks: signed over the time and the body, one voicemail's result in each."""

from __future__ import annotations

from datetime import datetime

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.events import Contact, Envelope, InboundEvent, WebhookRequest
from cerniq_pipeline.providers import bodies, signing
from cerniq_pipeline.providers.bodies import Fields

PROVIDER = "dropcowboy"

STATUS = "contact.rvm.status"

MEANINGS = {
    3000: "ACCOUNT_SUSPENDED",
    3007: "ACCOUNT_AUTH",
    4001: "INVALID_RECIPIENT_NUMBER",
    **dict.fromkeys((4016, 4017, 6005, 6011), "OPTED_OUT"),
}


class DropCowboyWebhooks:
    """A WebhookReader for one team; the callback beside the webhook is unsigned and not taken."""

    provider = PROVIDER
    signed = True

    def __init__(self, signing_secrets: tuple[str, ...]) -> None:
        self._secrets = signing.usable(signing_secrets)

    def screen(self, head: WebhookRequest, *, now: datetime) -> bool:
        """Refuse what has no signature or is of another time; the body decides the rest."""
        given = head.headers.get("x-signature", "")
        signing.require_form(PROVIDER, given, signing.SHA256_HEX, "X-Signature")
        signing.require_fresh(PROVIDER, head.headers.get("x-timestamp", ""), now=now)
        return False

    def verify(self, request: WebhookRequest, *, now: datetime) -> None:
        """Pass by when X-Signature fits X-Timestamp and the body, and that time is near."""
        written = request.headers.get("x-timestamp", "")
        content = f"{written}.".encode("utf-8", "surrogatepass") + request.body
        expected = [f"sha256={signing.hmac_hex(one, content)}" for one in self._secrets]
        if not signing.matches_any(request.headers.get("x-signature", ""), expected):
            raise signing.refused(PROVIDER, "X-Signature does not fit the body")
        signing.require_fresh(PROVIDER, written, now=now)

    def envelope(self, body: bytes) -> Envelope:
        """The key under which to keep a body; raises UnreadableWebhook."""
        event_type, told = _opened(body)
        key = told.word("event_id") or bodies.fold(body)
        return bodies.envelope(key, event_type, (_event(event_type, told, bodies.NO_TIME),))

    def read(self, body: bytes, *, received_at: datetime) -> tuple[InboundEvent, ...]:
        """What a kept body says; `received_at` stands in where the vendor gives no time."""
        return (_event(*_opened(body), received_at),)


def _opened(body: bytes) -> tuple[str, Fields]:
    told = bodies.json_fields(PROVIDER, body)
    event_type = told.word("event")
    if event_type is None:
        raise bodies.unreadable(PROVIDER, "it has no event")
    return event_type, told


def _event(event_type: str, told: Fields, received_at: datetime) -> InboundEvent:
    data = told.part("data")
    at = bodies.unix_time(told.word("event_at"), per_second=1000) or received_at
    about = data.word("drop_id") or data.word("contact_id")
    kind, delivery = bodies.status_of(_delivery(data, about, at) if event_type == STATUS else None)
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="VOICE",
        at=at,
        account=data.phone("from"),
        contact=Contact(phone=data.phone("to")),
        external_id=about,
        message_type="voicemail",
        delivery=delivery,
        detail=data.text("reason") or event_type,
    )


def _delivery(data: Fields, about: str | None, at: datetime) -> Delivery:
    code = data.whole("reason_code") or None
    success = data.word("status") == "success" and code is None
    failed = code is not None
    return Delivery(
        external_id=about or "",
        status="delivered" if success else "failed" if failed else "unknown",
        at=at,
        code=code,
        title=data.text("reason") or "",
        meaning=None if code is None else MEANINGS.get(code, "REFUSED"),
        callback=None,
    )
