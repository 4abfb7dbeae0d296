"""How often a provider's account may be read, and who must leave room for whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

What = Literal["history", "chats"]
"""Messages, or statuses of phones; or a page of the list of chats."""

Turn = Callable[[What], None]
"""Announces one read, before it is made.

It may wait for its place, or raise ReadsUsedUp: then nobody is to be asked.
"""

WINDOW = timedelta(minutes=1)


@dataclass(frozen=True)
class Limit:
    """Reads of one kind that an account has in a minute."""

    most: int
    left_to_others: int
    """What a sweep leaves: a person's reply is not to wait behind two days of chats."""

    @property
    def of_sweeps(self) -> int:
        return self.most - self.left_to_others


LIMITS: Mapping[What, Limit] = {
    "history": Limit(most=100, left_to_others=30),
    "chats": Limit(most=20, left_to_others=5),
}
