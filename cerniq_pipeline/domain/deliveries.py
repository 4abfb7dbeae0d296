"""How far a message has come after a provider took it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

ORDER = ("SENDING", "SENT", "FAILED", "DELIVERED", "READ")
"""How far a message has come, in the words of the log; it never goes back.

A failure stands above the acceptance, which was no promise, and below a delivery, which proves it
wrong.
"""

OPTED_OUT = "OPTED_OUT"
"""Our code for a failure that is a request to stop: the provider heard it before us."""

STOP = "stop"
"""As what such a request is kept while its message is not known: no word about how far it came."""

_WORDS = {"sent": "SENT", "delivered": "DELIVERED", "read": "READ", "failed": "FAILED"}


@dataclass(frozen=True)
class Delivery:
    """One word of a provider about one message; they arrive in any order, and some never do."""

    external_id: str
    status: str
    """sent, delivered, read, failed, or unknown for a word that we do not have."""
    at: datetime
    code: int | None
    """The provider's code of a failure."""
    title: str
    meaning: str | None
    """Our code for that failure."""
    callback: str | None
    """The outbox id that the send carried."""
    correlation_id: str | None = None
    """Of the event that told it."""

    @property
    def our_id(self) -> int | None:
        """The id of our message that the send carried; None for what others may have written."""
        written = self.callback or ""
        return (
            int(written) if written.isascii() and written.isdigit() and len(written) <= 18 else None
        )

    @property
    def word(self) -> str | None:
        """The status as the log has it; None for one that changes nothing."""
        return _WORDS.get(self.status)

    @property
    def failure(self) -> str:
        """Our code for this failure, also when the provider gave no reason."""
        return self.meaning or "FAILED_LATER"

    @property
    def error_code(self) -> str:
        """What the log says of this failure: the provider's code, or else ours."""
        return self.failure if self.code is None else str(self.code)


@dataclass(frozen=True)
class Told:
    """A word about a message of one channel; there, the provider's id is the message's own."""

    channel: str
    delivery: Delivery

    @property
    def key(self) -> tuple[str, str]:
        """What tells this message from all others."""
        return self.channel, self.delivery.external_id


@dataclass(frozen=True)
class Standing:
    """How a message stands in the log, and since when."""

    status: str
    status_at: datetime | None = None
    delivered_at: datetime | None = None
    read_at: datetime | None = None
    failed_at: datetime | None = None
    error_code: str | None = None
    error_title: str | None = None


def is_beyond(status: str, other: str) -> bool:
    """Whether a message with this status has come farther than one with the other."""
    return status in ORDER and other in ORDER and ORDER.index(status) > ORDER.index(other)


def as_shown(told: Delivery, status: str) -> Delivery | None:
    """What nobody signed, as its provider puts it when asked; None: it is not known there yet.

    The provider shows no code. That of the event is kept for people to read, and decides nothing,
    but for a request to stop.
    """
    own = replace(told, status=status)
    if own.word is None or is_beyond(told.word or "", own.word):
        return None
    if own.word != "FAILED":
        return replace(own, code=None, title="", meaning=None)
    return replace(own, meaning=told.meaning if told.meaning == OPTED_OUT else None)


def stands_after(before: Standing, told: Delivery) -> Standing:
    """How a message stands after one more word about it, the same in whatever order they come.

    The farthest status stands, with the earliest time that was told of it. Who read a message got
    it, so a message that was read has a time of delivery too.
    """
    if before.status not in ORDER:
        return before
    match told.word:
        case "SENT" if not is_beyond(before.status, "SENT"):
            since = before.status_at if before.status == "SENT" else None
            return replace(before, status="SENT", status_at=_earliest(since, told.at))
        case "FAILED" if not is_beyond(before.status, "FAILED"):
            return _failed(before, told)
        case "DELIVERED":
            return _arrived(replace(before, delivered_at=_earliest(before.delivered_at, told.at)))
        case "READ":
            return _arrived(
                replace(
                    before,
                    status="READ",
                    delivered_at=_earliest(before.delivered_at, told.at),
                    read_at=_earliest(before.read_at, told.at),
                )
            )
        case _:
            return before


def _failed(before: Standing, told: Delivery) -> Standing:
    if before.status == "FAILED":
        known_at = before.failed_at or before.status_at
        if _weight(before.error_code, known_at, before.error_title) <= weight_of(told):
            return replace(before, status_at=known_at, failed_at=known_at)
    return replace(
        before,
        status="FAILED",
        status_at=told.at,
        failed_at=told.at,
        error_code=told.error_code,
        error_title=told.title,
    )


Weight = tuple[bool, float, str, str]


def weight_of(told: Delivery) -> Weight:
    """How two words of one status compare; the least says most.

    That is the earliest, and among failures one with the provider's own code before any without.
    """
    return _weight(told.error_code, told.at, told.title)


def _weight(code: str | None, at: datetime | None, title: str | None) -> Weight:
    since = at.timestamp() if at else float("inf")
    return not (code or "").removeprefix("-").isdigit(), since, code or "", title or ""


def _arrived(after: Standing) -> Standing:
    status = "READ" if after.status == "READ" else "DELIVERED"
    return replace(
        after,
        status=status,
        status_at=(after.read_at if status == "READ" else after.delivered_at) or after.status_at,
        failed_at=None,
        error_code=None,
        error_title=None,
    )


def _earliest(known: datetime | None, told: datetime) -> datetime:
    return told if known is None else min(known, told)
