"""What a phone may still open today: daily quota, warm-up ramp, and the standing of both."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

NEW_CONTACTS_PER_DAY = 200
WARM_UP_FIRST_DAY = 20
WARM_UP_STEP = 15
"""A young number that opens 200 chats on its first day is banned: start low, rise every day."""

DAY_END_MARGIN = timedelta(minutes=5)
"""A provider queues sends: one begun in the last minutes of a day could land on the next."""


@dataclass(frozen=True)
class Standing:
    """Where a phone stands against its limit of new contacts."""

    used: int
    limit: int
    resets_at: datetime

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    @property
    def allowed(self) -> bool:
        """Whether one more new contact fits."""
        return self.used < self.limit


def limit_on(day: date, *, quota: int, warm_up_from: date | None) -> int:
    """New contacts a phone may open on this day: the smaller of its quota and its warm-up ramp."""
    if warm_up_from is None:
        return quota
    age = max(0, (day - warm_up_from).days)
    return min(quota, WARM_UP_FIRST_DAY + WARM_UP_STEP * age)


def cost_of(kind: str) -> int:
    """What a message costs: a new conversation 1, anything inside an existing one 0."""
    return 1 if kind == "initial" else 0
