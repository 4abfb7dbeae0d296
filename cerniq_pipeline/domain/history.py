"""What was said in a chat, as a provider's history shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class RecentChat:
    """A chat in which something happened lately."""

    chat_id: str
    account: str
    """Our number."""
    contact: str
    last_at: datetime
    only_ours: bool = False
    """Whether a program of ours opened it, and nothing was said in it since."""


@dataclass(frozen=True)
class InboundCopy:
    """An event in the provider's own webhook form, ready to be kept in the inbox."""

    provider: str
    event_key: str
    event_type: str
    account: str
    contact: str
    body: bytes
    people: tuple[str, ...] = ()
    """The contact by every other name that the event has for it."""


@dataclass(frozen=True)
class HistoryMessage:
    """One message of a chat as the provider's history has it."""

    external_id: str
    chat_id: str
    from_us: bool
    account: str
    """Our number."""
    contact: str
    text: str
    at: datetime
    status: str
    """sending, sent, delivered, read or failed."""
    has_media: bool
    by_api: bool
    """Whether a program sent it; False for what a person typed on the handset."""
    event: InboundCopy
    """The same message as the webhook would have told it."""


class History(Protocol):
    """A provider that shows what was said. `turn` is called before every request, and may wait."""

    lists_chats: bool
    """Whether `recent_chats` can be asked; without it only a chat that is known can be read."""

    def recent_chats(self, *, since: datetime, turn: Callable[[], None]) -> Iterator[RecentChat]:
        """Chats with a message at or after `since`, newest first; raises ProviderUnreadable."""
        ...

    def shows(self, external_id: str, *, chat_id: str | None, from_us: bool) -> bool:
        """Whether the provider itself knows this message, going that way.

        For events that nobody signed. Raises ProviderUnreadable when it cannot be asked.
        """
        ...

    def messages(
        self, chat: RecentChat, *, since: datetime | None, turn: Callable[[], None]
    ) -> Iterator[HistoryMessage]:
        """The messages of one chat, newest first, to the last page; raises ProviderUnreadable."""
        ...
