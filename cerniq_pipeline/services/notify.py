"""Tell people what they must know: every alert once, and again only when nobody heard it."""

from __future__ import annotations

from datetime import datetime

from cerniq_pipeline.domain.alerts import Messenger, sentence
from cerniq_pipeline.errors import SendFailed, SendRejected
from cerniq_pipeline.logs import event, mask
from cerniq_pipeline.store import alerts
from cerniq_pipeline.store.database import Begin

AT_ONCE = 5
"""Alerts told in one round: messengers take about one a second."""


def tell(begin: Begin, messenger: Messenger, *, now: datetime) -> int:
    """Post the oldest alerts that nobody was told yet; returns how many were posted.

    No transaction is open while the messenger is called. An alert that was perhaps posted is
    posted again: hearing it twice is better than not at all.
    """
    with begin() as conn:
        untold = alerts.untold(conn, limit=4 * AT_ONCE)
    told = 0
    for alert in untold:
        try:
            messenger.post(mask(sentence(alert)))
        except SendFailed as failed:
            event("notify", "alert_not_told", level="warning", alert=alert.id, error=str(failed))
            if isinstance(failed, SendRejected):
                continue  # perhaps only this one: those behind it must not wait for it
            break
        with begin() as conn:
            alerts.told(conn, alert.id, now=now)
        told += 1
        if told == AT_ONCE:
            break
    return told
