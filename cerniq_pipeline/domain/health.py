"""Whether a phone is well, judged by more than its connection flag."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_HISTORY = 50
"""Messages after which a phone's own reply rate is believed."""

LEAST_UNANSWERED = 20
UNLIKELY = 0.01

CONNECTION_POINTS = 40
FAILURE_POINTS = 30
REPLY_POINTS = 15
SILENCE_POINTS = 15

WORST_FAILURES = 0.20
"""The share of failed sends at which no failure point is left."""

GOOD_REPLIES = 0.10
"""The reply rate at which every reply point is given."""


@dataclass(frozen=True)
class Traffic:
    """What a phone sent and heard: in the days before its last reply, and since then."""

    sent_before: int
    replies_before: int
    sent_since: int

    @property
    def reply_rate(self) -> float | None:
        """The share of its messages that brought a reply; None when too few were sent to tell."""
        if self.sent_before < LEAST_HISTORY:
            return None
        return min(1.0, self.replies_before / self.sent_before)


def chance_of_silence(traffic: Traffic) -> float | None:
    """How likely a healthy phone hears nothing for so long; None when its rate is not known."""
    rate = traffic.reply_rate
    return None if rate is None else (1.0 - rate) ** traffic.sent_since


def suspiciously_silent(traffic: Traffic) -> bool:
    """Whether the phone may be dead although it is connected: its own history says otherwise."""
    chance = chance_of_silence(traffic)
    return traffic.sent_since >= LEAST_UNANSWERED and chance is not None and chance < UNLIKELY


@dataclass(frozen=True)
class Score:
    """How well a phone is, as points; each part can be pointed at."""

    connection: int
    failures: int
    replies: int
    silence: int

    @property
    def total(self) -> int:
        """0 to 100."""
        return self.connection + self.failures + self.replies + self.silence


def score(*, connected: bool, attempts: int, failed: int, traffic: Traffic) -> Score:
    """Points for the connection, the last day's attempts, the reply rate, and no odd silence.

    What is not known yet costs nothing: a new phone is a healthy phone.
    """
    share = failed / attempts if attempts else 0.0
    rate = GOOD_REPLIES if traffic.reply_rate is None else traffic.reply_rate
    return Score(
        connection=CONNECTION_POINTS if connected else 0,
        failures=round(FAILURE_POINTS * max(0.0, 1 - share / WORST_FAILURES)),
        replies=round(REPLY_POINTS * min(1.0, rate / GOOD_REPLIES)),
        silence=0 if suspiciously_silent(traffic) else SILENCE_POINTS,
    )
