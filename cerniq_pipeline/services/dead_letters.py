"""Settle dead letters: send one again as a new message, drop it, or let time do it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from cerniq_pipeline.domain.alerts import BACKLOG
from cerniq_pipeline.domain.replacements import STEP_TAKEN, Answer, Original, refusal
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import alerts, dead_letters, replacements
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.dead_letters import Letter

KEPT = timedelta(days=7)
MOST_OPEN = 100
"""More open letters of a tenant than this are an alert."""


def retry(
    begin: Begin,
    letter_ids: Sequence[int],
    *,
    by: str,
    secret: bytes,
    now: datetime,
    reviewed: bool = False,
) -> list[Answer]:
    """Send these letters again, each as a new message in the place of the failed one.

    Says for each what became of it; a refused one is left as it was. `reviewed` is a person's word
    that the cause was looked at, for the codes that need it.
    """
    wanted = list(dict.fromkeys(letter_ids))
    with begin() as conn:
        messages = dead_letters.message_ids(conn, wanted)
        originals = replacements.lock_originals(conn, messages, secret=secret)
        letters = dead_letters.lock(conn, wanted)
        refused = _refusals(wanted, letters, originals, reviewed=reviewed, now=now)
        chosen = {letters[id].message_id: id for id in wanted if id not in refused}
        made = replacements.replace(conn, sorted(chosen), by=by, now=now) if chosen else {}
        for message_id, letter_id in chosen.items():
            if message_id not in made:
                refused[letter_id] = STEP_TAKEN
        retried = {chosen[old]: f"retried as message {new}" for old, new in made.items()}
        dead_letters.resolve(conn, retried, by=by, now=now)
    if retried:
        event("dead_letters", "letters_retried", by=by, count=len(retried))
    return [Answer(id, id in retried, retried.get(id) or refused[id]) for id in wanted]


def _refusals(
    wanted: Sequence[int],
    letters: dict[int, Letter],
    originals: dict[int, Original],
    *,
    reviewed: bool,
    now: datetime,
) -> dict[int, str]:
    """Why these letters may not be retried, for those that may not."""
    refused: dict[int, str] = {}
    served: set[UUID] = set()
    for letter_id in wanted:
        letter = letters.get(letter_id)
        if letter is None:
            refused[letter_id] = "there is no such dead letter"
        elif letter.settled is not None:
            refused[letter_id] = f"it is off the list: {letter.settled}"
        elif letter.review_required and not reviewed:
            refused[letter_id] = f"{letter.code} must be looked at first; then say that it was"
        elif why := refusal(originals[letter.message_id], now=now):
            refused[letter_id] = why
        elif originals[letter.message_id].lead_id in served:
            refused[letter_id] = "another letter of this lead is being retried; one at a time"
        else:
            served.add(originals[letter.message_id].lead_id)
    return refused


def drop(
    begin: Begin, letter_ids: Sequence[int], *, by: str, reason: str, now: datetime
) -> list[Answer]:
    """Take these letters off the list for good; their leads stay closed."""
    wanted = list(dict.fromkeys(letter_ids))
    with begin() as conn:
        letters = dead_letters.lock(conn, wanted)
        dropped = [id for id, letter in letters.items() if letter.settled is None]
        dead_letters.resolve(conn, dict.fromkeys(dropped, f"dropped: {reason}"), by=by, now=now)
    if dropped:
        event("dead_letters", "letters_dropped", by=by, count=len(dropped))
    settled = {id: f"it is off the list: {letter.settled}" for id, letter in letters.items()}
    return [
        Answer(id, True, f"dropped: {reason}")
        if id in dropped
        else Answer(id, False, settled.get(id, "there is no such dead letter"))
        for id in wanted
    ]


def expire(begin: Begin, *, now: datetime) -> int:
    """Take letters that nobody settled for a week off the list; returns how many."""
    with begin() as conn:
        expired = dead_letters.expire(
            conn,
            before=now - KEPT,
            resolution=f"expired after {KEPT.days} days",
            by="dead_letter_upkeep",
            now=now,
        )
    if expired:
        event("dead_letters", "letters_expired", level="warning", count=expired)
    return expired


def check_backlog(begin: Begin, *, now: datetime) -> dict[str, int]:
    """Keep one alert open per tenant with too many letters; returns those tenants."""
    with begin() as conn:
        many = dead_letters.backlog(conn, above=MOST_OPEN)
        told = {alert.subject for alert in alerts.open_alerts(conn, kind=BACKLOG)}
        for tenant_id in many.keys() - told:
            alerts.open_once(
                conn,
                tenant_id=tenant_id,
                kind=BACKLOG,
                subject=tenant_id,
                detail=f"{many[tenant_id]} dead letters wait, more than {MOST_OPEN}",
                now=now,
            )
        for tenant_id in told - many.keys():
            alerts.close(conn, kinds=(BACKLOG,), subjects=[tenant_id], now=now)
    return many
