"""How far a message has come after a provider took it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


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
