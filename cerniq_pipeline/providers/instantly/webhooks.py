"""Instantly's webhooks: unsigned, believed by a header of our own, one event of a lead in each."""

from __future__ import annotations

from datetime import datetime

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.events import Contact, Envelope, InboundEvent, Kind, WebhookRequest
from cerniq_pipeline.providers import bodies, signing
from cerniq_pipeline.providers.bodies import Fields

PROVIDER = "instantly"

KINDS = {
    "email_sent": Kind.STATUS,
    "email_opened": Kind.OPEN,
    "link_clicked": Kind.CLICK,
    "email_link_clicked": Kind.CLICK,
    "reply_received": Kind.MESSAGE_RECEIVED,
    "auto_reply_received": Kind.AUTO_REPLY,
    "email_bounced": Kind.BOUNCE,
    "lead_unsubscribed": Kind.UNSUBSCRIBE,
}
"""Labels that people put on a lead come as events too; they are kept as unknown ones."""


class InstantlyWebhooks:
    """A WebhookReader for one workspace, whose subscriptions carry our token as a header."""

    provider = PROVIDER
    signed = False

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._tokens = signing.usable(tokens)

    def screen(self, head: WebhookRequest, *, now: datetime) -> bool:
        """True when X-Outreach-Token is one of ours, and refused otherwise: nothing is signed."""
        if not signing.matches_any(head.headers.get("x-outreach-token", ""), self._tokens):
            raise signing.refused(PROVIDER, "X-Outreach-Token is not ours")
        return True

    def verify(self, request: WebhookRequest, *, now: datetime) -> None:
        """Pass by when X-Outreach-Token is one of ours."""
        self.screen(request, now=now)

    def envelope(self, body: bytes) -> Envelope:
        """The key under which to keep a body; raises UnreadableWebhook."""
        event_type, told = _opened(body)
        at, lead = told.word("timestamp"), told.email("lead_email")
        known = at is not None and lead is not None
        # The address as a hash: a key outlives the person's data.
        who = bodies.fold((lead or "").encode())
        said = (who, told.word("email_id"), at) if known else (bodies.fold(body),)
        event = _event(event_type, told, bodies.NO_TIME)
        return bodies.envelope(bodies.key_of(event_type, *said), event_type, (event,))

    def read(self, body: bytes, *, received_at: datetime) -> tuple[InboundEvent, ...]:
        """What a kept body says; `received_at` stands in where the vendor gives no time."""
        return (_event(*_opened(body), received_at),)


def _opened(body: bytes) -> tuple[str, Fields]:
    told = bodies.json_fields(PROVIDER, body)
    event_type = told.word("event_type")
    if event_type is None:
        raise bodies.unreadable(PROVIDER, "it has no event_type")
    return event_type, told


def _event(event_type: str, told: Fields, received_at: datetime) -> InboundEvent:
    kind = KINDS.get(event_type, Kind.UNKNOWN)
    at = bodies.iso_time(told.word("timestamp")) or received_at
    mail = told.word("email_id")
    delivery = _sent(mail, at) if kind is Kind.STATUS and mail else None
    if kind is Kind.STATUS and delivery is None:
        kind = Kind.UNKNOWN
    subject = told.text("reply_subject") or told.text("email_subject")
    return InboundEvent(
        kind=kind,
        provider=PROVIDER,
        channel="EMAIL",
        at=at,
        account=told.email("email_account"),
        contact=Contact(email=told.email("lead_email")),
        external_id=mail,
        text=told.text("reply_text") or told.text("reply_text_snippet"),
        message_type="email",
        delivery=delivery,
        detail=event_type if kind is Kind.UNKNOWN else subject or "",
    )


def _sent(mail: str, at: datetime) -> Delivery:
    return Delivery(
        external_id=mail, status="sent", at=at, code=None, title="", meaning=None, callback=None
    )
