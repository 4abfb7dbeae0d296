"""What was said in a chat, as a provider's history shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from cerniq_pipeline.domain.reads import Turn

FIRST_PAUSE = timedelta(minutes=2)
LONGEST_PAUSE = timedelta(hours=6)


def try_again_in(failures: int) -> timedelta:
    """How long a chat that failed so often by its own fault rests before it is read again."""
    return min(FIRST_PAUSE * 2 ** min(failures - 1, 20), LONGEST_PAUSE)


@dataclass(frozen=True)
class RecentChat:
    """A chat in which something happened lately."""

    chat_id: str
    account: str
    """Our number; empty when the list tells it in no form that we know."""
    contact: str
    """Empty as well then: the messages tell both."""
    last_at: datetime
    only_ours: bool = False
    """Whether a program of ours opened it, and nothing was said in it since."""


@dataclass(frozen=True)
class ChatPage:
    """One page of the list of chats."""

    chats: tuple[RecentChat, ...]
    is_last: bool
    """Whether no later page has a chat that is young enough."""
    nameless: int = 0
    """Rows of which not even the id can be read: nobody can ask for their messages."""


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


@dataclass(frozen=True)
class Shown:
    """What a provider says of one message when it is asked for it."""

    from_us: bool
    text: str
    status: str
    """sending, sent, delivered, read or failed."""


class History(Protocol):
    """A provider that shows what was said. A `turn` is taken before every request."""

    lists_chats: bool
    """Whether `recent_chats` can be asked; without it only a chat that is known can be read."""

    def recent_chats(self, *, since: datetime, turn: Turn, page: int = 1) -> ChatPage:
        """One page of the chats with a message at or after `since`, newest first.

        A row that cannot be read costs no other its place. Raises ProviderUnreadable.
        """
        ...

    def shown(self, external_id: str, *, chat_id: str | None, turn: Turn) -> Shown | None:
        """What the provider itself says of this message; None when it does not know it.

        For events that nobody signed. Raises ProviderUnreadable when it cannot be asked.
        """
        ...

    def messages(
        self, chat: RecentChat, *, since: datetime | None, turn: Turn
    ) -> Iterator[HistoryMessage | None]:
        """The messages of one chat, newest first, to the last page; raises ProviderUnreadable.

        None stands for a message of an unknown form: the others are told all the same.
        """
        ...
