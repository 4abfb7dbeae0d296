"""What a phone may still open today: daily quota, warm-up ramp, and the standing of both."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, datetime, timedelta

NEW_CONTACTS_PER_DAY = 200
WARM_UP_FIRST_DAY = 20
WARM_UP_STEP = 15
"""A young number that opens 200 chats on its first day is banned: start low, rise every day."""

DAY_END_MARGIN = timedelta(minutes=5)
"""A provider queues sends: one begun in the last minutes of a day could land on the next."""

OPENS_A_CHAT = frozenset({"initial", "handover"})
"""Kinds of message that open a conversation: the first to a lead, and the first from the phone
that took it over."""


@dataclass(frozen=True)
class Budget:
    """Messages without an answer that a phone may have in a month, and has so far."""

    monthly: int
    unanswered: int

    def on(self, day: date) -> int:
        """New contacts that fit on this day: without bound in the first half of the budget, then
        what is left shared out over the days that are left, so that it is never spent at once."""
        left = max(0, self.monthly - self.unanswered)
        if left > self.monthly // 2:
            return left
        days_left = monthrange(day.year, day.month)[1] - day.day + 1
        return -(-left // days_left)


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


def limit_on(
    day: date, *, quota: int, warm_up_from: date | None, budget: Budget | None = None
) -> int:
    """New contacts a phone may open on this day: the smallest of its quota, its warm-up ramp, and
    what its budget of unanswered messages still allows."""
    limits = [quota]
    if warm_up_from is not None:
        limits.append(WARM_UP_FIRST_DAY + WARM_UP_STEP * max(0, (day - warm_up_from).days))
    if budget is not None:
        limits.append(budget.on(day))
    return min(limits)


def cost_of(kind: str) -> int:
    """What a message costs: a new conversation 1, anything inside an existing one 0."""
    return 1 if kind in OPENS_A_CHAT else 0
