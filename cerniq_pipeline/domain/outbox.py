"""A message on its way out: its states, its legal moves, and the channel that carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from cerniq_pipeline.domain.media import MediaFile
from cerniq_pipeline.domain.reads import Turn
from cerniq_pipeline.errors import Exchange, IllegalMove


class State(StrEnum):
    """Where a message stands; see `docs/architecture.md` for the picture."""

    PLANNED = "planned"
    SENDING = "sending"
    SENT = "sent"
    DEFERRED = "deferred"
    UNCONFIRMED = "unconfirmed"
    PARKED = "parked"
    FAILED = "failed"
    CANCELLED = "cancelled"


CLAIMABLE = (State.PLANNED, State.DEFERRED)
OPEN = (State.PLANNED, State.DEFERRED, State.SENDING, State.UNCONFIRMED, State.PARKED)
"""States in which a lead has a message under way, so that nothing else is planned for it."""

MAY_HAVE_GONE_OUT = (State.SENDING, State.SENT, State.UNCONFIRMED, State.PARKED)
"""What counts against contact pressure: when in doubt, it was sent."""

LEGAL_MOVES: dict[State, frozenset[State]] = {
    State.PLANNED: frozenset({State.SENDING, State.DEFERRED, State.FAILED, State.CANCELLED}),
    State.DEFERRED: frozenset({State.SENDING, State.DEFERRED, State.FAILED, State.CANCELLED}),
    # Back to deferred only when certainly not sent. Never back to planned: a rescue that
    # re-runs a send is how messages go out twice.
    State.SENDING: frozenset({State.SENT, State.DEFERRED, State.UNCONFIRMED, State.FAILED}),
    State.UNCONFIRMED: frozenset({State.SENT, State.PARKED}),
    State.PARKED: frozenset({State.SENT, State.CANCELLED}),
    State.SENT: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}


def check_move(current: State, target: State) -> None:
    """Refuse a move that the table does not have."""
    if target not in LEGAL_MOVES[current]:
        legal = ", ".join(sorted(LEGAL_MOVES[current])) or "none, it is final"
        raise IllegalMove(f"a message may not go from {current} to {target}; legal: {legal}")


WINDOWED = frozenset({"meta"})
"""Providers that let free text through only within a day of the person's last message."""

SIGNED_STATUSES = frozenset({"meta"})
"""Providers that sign what they say of a message after they took it."""


@dataclass(frozen=True)
class ApprovedText:
    """A text that the provider knows and approved; it fills the values in itself."""

    name: str
    language: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class OutboxMessage:
    """One claimed message, complete: all a channel needs to hand it over.

    `account_id` is the provider's own id of our phone. `body` is what the person reads: the whole
    text, or the caption of `media`. With `approved` the provider is told the text's name instead.
    """

    id: int
    tenant_id: str
    channel: str
    provider: str
    kind: str
    lead_id: UUID
    phone_id: str
    sender: str
    account_id: str
    to: str
    chat_id: str | None
    body: str
    sequence_id: int | None
    step: int | None
    attempt: int
    fence: int
    begun_at: datetime
    media: MediaFile | None = None
    approved: ApprovedText | None = None


@dataclass(frozen=True)
class Receipt:
    """A provider's word that it took the message."""

    external_id: str
    chat_id: str | None = None
    exchange: Exchange | None = field(default=None, compare=False, repr=False)
    """For the record; None when it was found out later."""


@dataclass(frozen=True)
class Sighting:
    """A message found in a provider's history."""

    external_id: str
    chat_id: str | None
    sent_at: datetime


@dataclass(frozen=True)
class Line:
    """One of our phones as a provider knows it."""

    phone_id: str
    number: str
    account_id: str


@dataclass(frozen=True)
class Connection:
    """What a provider says of one of our phones; `connected` is None when it could not be read."""

    connected: bool | None
    detail: str


class Channel(Protocol):
    """A way to reach a lead. `send` makes exactly one call: no retry anywhere below it.

    Who reads brings a `turn`, which is taken before every request.
    """

    def send(self, message: OutboxMessage, *, attachment: str | None = None) -> Receipt:
        """Hand over one message, or raise what we then know (`SendFailed` and its children).

        `attachment` is what `upload` gave for the message's media.
        """
        ...

    def upload(self, message: OutboxMessage, content: bytes) -> str:
        """Hand over the message's file before the message itself: nothing reaches the person yet.

        Raises `SendDeferred`, `SendRejected`, `PhoneUnusable` or `AccountSuspended`; never
        `SendUnconfirmed`, because nothing can have gone out.
        """
        ...

    def find_chat(self, message: OutboxMessage, *, turn: Turn) -> str | None:
        """The chat between this phone and this person; None when there certainly is none."""
        ...

    def sightings(self, message: OutboxMessage, *, turn: Turn) -> tuple[Sighting, ...]:
        """Every message in the history that can only be this one."""
        ...

    def recognise(self, message: OutboxMessage, events: Sequence[bytes]) -> tuple[Sighting, ...]:
        """What these stored webhook events say of this message: that it went out, and its id."""
        ...

    def sender_of(self, message: OutboxMessage, receipt: Receipt, *, turn: Turn) -> str | None:
        """The number that an accepted message really leaves from; None when nobody can tell."""
        ...

    def connections(self, lines: Sequence[Line], *, turn: Turn) -> Mapping[str, Connection]:
        """Whether each of these phones is linked, by phone id; raises ProviderUnreadable."""
        ...
