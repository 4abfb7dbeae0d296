"""Circuit breakers: after several troubles in a row nothing is sent until a probe succeeds.

One per provider, and one per phone: a provider that is down must not use up every message's tries,
and a phone that alone gets odd answers must not go on as if nothing had happened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

Scope = Literal["provider", "phone"]

PROBE_EVERY = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(minutes=10)
TROUBLES_TO_OPEN: dict[Scope, int] = {"provider": 5, "phone": 3}

TROUBLE: dict[Scope, frozenset[str]] = {
    "provider": frozenset(
        {"UNREACHABLE", "RATE_LIMITED", "SILENCE", "ODD_STATUS", "ODD_ANSWER", "UPLOAD_FAILED"}
    ),
    # A provider that cannot be reached, or is too busy, says nothing about the phone.
    "phone": frozenset({"SILENCE", "ODD_STATUS", "ODD_ANSWER"}),
}
"""What counts as trouble. Any other answer, also a refusal, shows that somebody is there."""

ASKED_NOBODY = frozenset(
    {"TOO_LATE", "READS_USED_UP", "INVALID_MEDIA", "MEDIA_NEEDS_ADDRESS", "MEDIA_NEEDS_CHAT"}
)
"""Outcomes that we made up our own mind about: they say nothing about the provider."""


@dataclass(frozen=True)
class Breaker:
    """Where a breaker stands. Open: nothing goes. Half open: one message, and its fate decides."""

    scope: Scope
    key: str
    state: Literal["closed", "open", "half_open"] = "closed"
    failures: int = 0
    openings: int = 0
    probe_at: datetime | None = None
    last_code: str | None = None

    def holds_until(self, now: datetime) -> datetime | None:
        """Until when nothing may go through; None when something may.

        An open breaker whose probe is due still holds: only a probe that succeeds lets it go.
        """
        if self.state == "closed" or self.probe_at is None:
            return None
        if self.state == "half_open" and now >= self.probe_at:
            return None
        return self.probe_at


def after_trouble(breaker: Breaker, code: str, *, now: datetime) -> Breaker:
    """The breaker after one more trouble."""
    failures = breaker.failures + 1
    counted = replace(breaker, failures=failures, last_code=code)
    if breaker.state == "open":
        return counted  # a call that was under way when it opened
    if breaker.state == "closed" and failures < TROUBLES_TO_OPEN[breaker.scope]:
        return counted
    openings = breaker.openings + 1
    pause = min(PROBE_EVERY * 2 ** min(openings - 1, 10), LONGEST_PAUSE)
    return replace(counted, state="open", openings=openings, probe_at=now + pause)


def after_probe(breaker: Breaker, *, answered: bool, now: datetime) -> Breaker:
    """The breaker after a harmless read: an answer lets one message try."""
    if breaker.state != "open":
        return breaker
    if answered:
        return replace(breaker, state="half_open", probe_at=now)
    return replace(breaker, probe_at=now + PROBE_EVERY)


def after_success(breaker: Breaker) -> Breaker:
    """The breaker after an answer that is no trouble."""
    return replace(breaker, state="closed", failures=0, openings=0, probe_at=None)
