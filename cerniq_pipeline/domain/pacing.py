"""When the next message may go: the human-like gap of a phone, and the retry of a deferred send."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Gap:
    """The pause between two sends of one phone: a floor plus a random spread."""

    least: timedelta = timedelta(seconds=30)
    spread: timedelta = timedelta(seconds=120)

    def draw(self, luck: float, *, speed: float = 1.0) -> timedelta:
        """The pause for one draw of luck in [0, 1); speed runs sandbox time faster than life."""
        return (self.least + self.spread * luck) / speed


@dataclass(frozen=True)
class RetryRule:
    """How often, and how far apart, a send that certainly did not happen is tried again."""

    retries: int
    first_delay: timedelta
    factor: int


RETRY_RULES: dict[str, RetryRule] = {
    "RATE_LIMITED": RetryRule(retries=5, first_delay=timedelta(seconds=60), factor=1),
    "UNREACHABLE": RetryRule(retries=3, first_delay=timedelta(seconds=30), factor=2),
    "TOO_LATE": RetryRule(retries=3, first_delay=timedelta(seconds=30), factor=2),
    "CHAT_UNKNOWN": RetryRule(retries=5, first_delay=timedelta(seconds=60), factor=2),
    "READS_USED_UP": RetryRule(retries=5, first_delay=timedelta(seconds=60), factor=2),
    "UPLOAD_FAILED": RetryRule(retries=3, first_delay=timedelta(seconds=30), factor=2),
    # At once, and then in the form that is allowed: see the hold on messages of that name.
    "WINDOW_CLOSED": RetryRule(retries=1, first_delay=timedelta(), factor=1),
    "MARKETING_LIMIT": RetryRule(retries=3, first_delay=timedelta(days=1), factor=1),
}
RETRIES_PER_MINUTE = 10
MEDIA_PER_MINUTE = 10
JITTER = 0.2
"""Two messages that failed together do not come back together."""


def retry_in(
    code: str, *, retries_so_far: int, asked: timedelta | None, luck: float = 0.0
) -> timedelta | None:
    """How long to wait before the next try, or None when the policy has no try left.

    A provider's own Retry-After is a floor: coming back sooner only earns another refusal.
    """
    rule = RETRY_RULES.get(code)
    if rule is None or retries_so_far >= rule.retries:
        return None
    delay = rule.first_delay * rule.factor**retries_so_far
    return max(delay, asked or delay) * (1 + JITTER * luck)
