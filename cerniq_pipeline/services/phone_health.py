"""Look after the phones beyond their connection flag: silence, failures, unanswered messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cerniq_pipeline.domain.health import Score, chance_of_silence, score, suspiciously_silent
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import alerts, phone_health
from cerniq_pipeline.store.database import Begin

HISTORY = 14
"""From how many days of a phone's own past its reply rate is taken."""


@dataclass(frozen=True)
class PhoneHealth:
    """How one phone is."""

    phone_id: str
    silent: bool
    reply_rate: float | None
    sent_since_reply: int
    score: Score


def look_after_phones(begin: Begin, *, now: datetime) -> list[PhoneHealth]:
    """Judge every phone, open and close the alerts about silence, and count unanswered messages.

    A phone that is known to be gone is not said to be silent as well.
    """
    with begin() as conn:
        phone_health.add_up_days(conn, history=HISTORY, now=now)
    with begin() as conn:
        seen: list[PhoneHealth] = []
        for record in phone_health.records(conn, history=HISTORY, now=now):
            traffic = record.traffic
            silent = suspiciously_silent(traffic)
            if silent and record.active:
                chance = chance_of_silence(traffic) or 0.0
                opened = alerts.open_once(
                    conn,
                    tenant_id=record.tenant_id,
                    kind="phone_silent",
                    subject=record.phone_id,
                    detail=(
                        f"no reply to its last {traffic.sent_since} messages; by its own reply "
                        f"rate of {traffic.reply_rate:.1%} the chance of that is {chance:.2%}"
                    ),
                    now=now,
                )
                if opened:
                    event("health", "phone_silent", level="warning", phone=record.phone_id)
            seen.append(
                PhoneHealth(
                    phone_id=record.phone_id,
                    silent=silent,
                    reply_rate=traffic.reply_rate,
                    sent_since_reply=traffic.sent_since,
                    score=score(
                        connected=record.active,
                        attempts=record.attempts,
                        failed=record.failed,
                        traffic=traffic,
                    ),
                )
            )
        heard = [one.phone_id for one in seen if not one.silent]
        alerts.close(conn, kinds=("phone_silent",), subjects=heard, now=now)
        phone_health.count_unanswered(conn, now=now)
    return seen
