"""What any webhook becomes: one vocabulary for all providers, and who reads their words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from cerniq_pipeline.domain.deliveries import Delivery


class Kind(StrEnum):
    """What happened."""

    MESSAGE_RECEIVED = "message_received"
    MESSAGE_SENT_ELSEWHERE = "message_sent_elsewhere"
    """Left our number without us: a person typed it on the handset, or it is our own echo."""
    STATUS = "status"
    REACTION = "reaction"
    CALL = "call"
    ACCOUNT_CONNECTED = "account_connected"
    ACCOUNT_DISCONNECTED = "account_disconnected"
    ACCOUNT_SUSPENDED = "account_suspended"
    BOUNCE = "bounce"
    COMPLAINT = "complaint"
    UNSUBSCRIBE = "unsubscribe"
    OPEN = "open"
    CLICK = "click"
    AUTO_REPLY = "auto_reply"
    UNKNOWN = "unknown"
    """Kept and shown: a word that we do not have is no reason to lose what came with it."""


@dataclass(frozen=True)
class Contact:
    """The other side; a provider may tell any of these, and none of them is always there."""

    phone: str | None = None
    """In E.164."""
    email: str | None = None
    """In lower case."""
    user_id: str | None = None
    """The provider's own id of a person, who may hide the number behind it."""
    name: str | None = None

    @property
    def key(self) -> str | None:
        """What tells this person from others within one provider."""
        return self.user_id or self.phone or self.email


@dataclass(frozen=True)
class InboundMedia:
    """A file that came in; where it can be fetched for a while, if the provider says so."""

    kind: str
    """image, video, audio, document or sticker."""
    content_type: str | None = None
    filename: str | None = None
    url: str | None = None
    provider_id: str | None = None


@dataclass(frozen=True)
class InboundEvent:
    """One thing that a provider told us."""

    kind: Kind
    provider: str
    channel: str
    """WHATSAPP, EMAIL, SMS or VOICE."""
    at: datetime
    """When it happened, by the provider's clock."""
    account: str | None = None
    """Our side: a number in E.164, or an address."""
    contact: Contact = field(default_factory=Contact)
    external_id: str | None = None
    """The provider's id of the message that this is about."""
    chat_id: str | None = None
    text: str | None = None
    message_type: str = "text"
    """text, image, video, audio, document, sticker, location, contacts, button, unsupported …"""
    media: tuple[InboundMedia, ...] = ()
    reply_to: str | None = None
    """The message of ours that this one answers, if the provider says so."""
    by_api: bool = False
    """For a message that left our number: whether a program sent it."""
    delivery: Delivery | None = None
    """For a status."""
    detail: str = ""
    """In the provider's words: what a person may want to know of an unknown or a failed one."""
    correlation_id: str | None = None
    """Of the webhook that told it."""


@dataclass(frozen=True)
class WebhookRequest:
    """One request as it came, before anybody believed it."""

    url: str
    """The public address that the provider was given, with its query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Envelope:
    """What must be known of a body to keep it once, without understanding it."""

    event_key: str
    event_type: str
    account: str | None
    contact: str | None
    people: tuple[str, ...] = ()
    """Every number, address and id of everybody it is about: none of them is written to before it
    was read."""


class WebhookReader(Protocol):
    """A provider's webhooks: whom to believe, what makes two bodies the same, what they say."""

    provider: str
    signed: bool
    """Whether a request that passes proves that the provider wrote it; without, what it tells is
    asked for at the provider before much follows from it."""

    def screen(self, head: WebhookRequest, *, now: datetime) -> bool:
        """Whether a head, its body still to come, proves by itself all that `verify` would ask.

        Raises WebhookRefused when no body could make up for what it lacks: a token, a signature of
        some form, a time that is near. Nobody waits for the body of such a request.
        """
        ...

    def verify(self, request: WebhookRequest, *, now: datetime) -> None:
        """Pass by when this request comes from the provider; raises WebhookRefused otherwise.

        Compares in constant time, and takes any of several secrets while one is being rotated.
        """
        ...

    def envelope(self, body: bytes) -> Envelope:
        """The key under which to keep a body; raises UnreadableWebhook."""
        ...

    def read(self, body: bytes, *, received_at: datetime) -> tuple[InboundEvent, ...]:
        """Everything a kept body says, in its order; raises UnreadableWebhook.

        `received_at` stands in for a time that the provider does not tell.
        """
        ...
