"""Settle dead letters: try one again, drop it, or let time do it; and tell people of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.alerts import BACKLOG, INBOX_DEAD, INBOX_STUCK, RECEIVER_UNKNOWN
from cerniq_pipeline.domain.deliveries import OPTED_OUT
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.domain.replacements import STEP_TAKEN, Answer, Original, refusal
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import alerts, dead_letters, inbox, replacements
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.dead_letters import EventCode, Letter

KEPT = timedelta(days=7)
MOST_OPEN = 100
"""More open letters of a tenant than this are an alert."""

NO_TENANT = "no tenant"
"""Whose the letters are that belong to nobody."""

WAITS_TOO_LONG = timedelta(minutes=5)
"""An event is handled within seconds; one that waits for so long is an alert."""

PUT_BACK = "put back into the inbox"
CONFIRMED = "the provider shows it"
FOUND_AT_ONCE = 1000


def bury_event(
    conn: Connection,
    *,
    event_id: int,
    tenant_id: str | None,
    code: EventCode,
    detail: str,
    receiver: str | None = None,
    now: datetime,
) -> None:
    """Put an event that cannot be handled on the dead-letter list, and open its alert.

    Until a person settles it, nothing automatic is written to whom it is about: it may be the
    reply, or the "stop", that nobody has read.
    """
    dead_letters.bury_event(
        conn,
        event_id=event_id,
        tenant_id=tenant_id,
        code=code,
        detail=detail,
        receiver=receiver,
        now=now,
    )
    _tell_of_dead_events(conn, now=now)


def confirm(begin: Begin, copies: Sequence[InboundCopy], *, now: datetime) -> int:
    """Let what the provider itself shows be heard, where its event waits or lies dead for that.

    Returns how many there were.
    """
    with begin() as conn:
        confirmed = inbox.confirm(conn, copies)
        letters = dead_letters.about_events(conn, confirmed)
        if letters:
            dead_letters.resolve(conn, dict.fromkeys(letters, CONFIRMED), by="sweep", now=now)
            _tell_of_dead_events(conn, now=now)
    if confirmed:
        event("dead_letters", "events_confirmed", count=len(confirmed), letters=len(letters))
    return len(confirmed)


def retry(
    begin: Begin,
    letter_ids: Sequence[int],
    *,
    by: str,
    secret: bytes,
    now: datetime,
    reviewed: bool = False,
) -> list[Answer]:
    """Try these letters again: a failed message as a new one in its place, an event as it came.

    Says for each what became of it; a refused one is left as it was. `reviewed` is a person's word
    that the cause was looked at, for the codes that need it.
    """
    wanted = list(dict.fromkeys(letter_ids))
    with begin() as conn:
        events = dead_letters.lock_events(conn, wanted)
        messages = dead_letters.message_ids(conn, wanted)
        originals = replacements.lock_originals(conn, messages, secret=secret)
        letters = dead_letters.lock(conn, wanted)
        refused = _refusals(wanted, letters, originals, events, reviewed=reviewed, now=now)
        chosen = [letters[id] for id in wanted if id not in refused]
        made = _send_again(conn, chosen, by=by, now=now)
        retried = {
            letter.id: f"retried as message {made[letter.message_id]}"
            for letter in chosen
            if letter.message_id in made
        } | {letter.id: PUT_BACK for letter in chosen if letter.event_id is not None}
        refused |= {letter.id: STEP_TAKEN for letter in chosen if letter.id not in retried}
        dead_letters.resolve(conn, retried, by=by, now=now)
        _put_back(conn, chosen, now=now)
    if retried:
        event("dead_letters", "letters_retried", by=by, count=len(retried))
    return [Answer(id, id in retried, retried.get(id) or refused[id]) for id in wanted]


def _send_again(
    conn: Connection, chosen: Sequence[Letter], *, by: str, now: datetime
) -> dict[int, int]:
    """The new messages in the place of those that these letters are about, by the old ones."""
    ids = sorted(letter.message_id for letter in chosen if letter.message_id is not None)
    return replacements.replace(conn, ids, by=by, now=now) if ids else {}


def _put_back(conn: Connection, chosen: Sequence[Letter], *, now: datetime) -> None:
    ids = [letter.event_id for letter in chosen if letter.event_id is not None]
    if ids:
        dead_letters.put_back(conn, ids)
        _tell_of_dead_events(conn, now=now)


def put_back_found(begin: Begin, *, now: datetime) -> int:
    """Let the events be handled whose receiver is known by now; returns how many.

    A phone was added to which people had written before, or somebody said whose an address is.
    """
    with begin() as conn:
        found = dead_letters.of_known_receivers(conn, limit=FOUND_AT_ONCE)
        states = dead_letters.lock_events(conn, found)
        open_ = [one for one in dead_letters.lock(conn, found).values() if one.settled is None]
        chosen = [one for one in open_ if states.get(one.event_id or 0) == "dead"]
        said = dict.fromkeys((one.id for one in chosen), PUT_BACK)
        dead_letters.resolve(conn, said, by="inbox", now=now)
        _put_back(conn, chosen, now=now)
    if chosen:
        event("dead_letters", "receiver_found", count=len(chosen))
    return len(chosen)


def _refusals(
    wanted: Sequence[int],
    letters: Mapping[int, Letter],
    originals: Mapping[int, Original],
    events: Mapping[int, str],
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
        elif letter.code == OPTED_OUT:
            refused[letter_id] = "this person asked their provider to hear no more from us; drop it"
        elif letter.review_required and not reviewed:
            refused[letter_id] = f"{letter.code} must be looked at first; then say that it was"
        elif letter.message_id is None:
            if why := _refusal_of_event(events.get(letter.event_id or 0)):
                refused[letter_id] = why
        elif why := refusal(originals[letter.message_id], now=now):
            refused[letter_id] = why
        elif originals[letter.message_id].lead_id in served:
            refused[letter_id] = "another letter of this lead is being retried; one at a time"
        else:
            served.add(originals[letter.message_id].lead_id)
    return refused


def _refusal_of_event(state: str | None) -> str | None:
    """Why an event in this state may not be handled again; one that is gone has none."""
    if state is None:
        return "its event is gone; drop it"
    if state != "dead":
        return f"its event is {state}, not dead; drop it"
    return None


def drop(
    begin: Begin, letter_ids: Sequence[int], *, by: str, reason: str, now: datetime
) -> list[Answer]:
    """Take these letters off the list for good.

    The lead of a message stays closed. An event counts as heard, so that it holds nobody back.
    """
    wanted = list(dict.fromkeys(letter_ids))
    with begin() as conn:
        events = dead_letters.lock_events(conn, wanted)
        letters = dead_letters.lock(conn, wanted)
        dropped = [id for id, letter in letters.items() if letter.settled is None]
        dead_letters.resolve(conn, dict.fromkeys(dropped, f"dropped: {reason}"), by=by, now=now)
        unheard = [
            event_id
            for event_id in (letters[id].event_id for id in dropped)
            if event_id is not None and events.get(event_id, "done") != "done"
        ]
        inbox.finish(conn, dict.fromkeys(unheard, f"dropped by {by}: {reason}"), now=now)
        _tell_of_dead_events(conn, now=now)
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
    """Take failed messages that nobody settled for a week off the list; returns how many.

    Events stay: time must not decide that a reply is never read.
    """
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


# ── Alerts ────────────────────────────────────────────────────────────────────────────────────


def check_backlog(begin: Begin, *, now: datetime) -> dict[str | None, int]:
    """Keep one alert open per tenant with too many letters; returns those tenants.

    Letters that belong to no tenant are counted together, under None.
    """
    with begin() as conn:
        many = dead_letters.backlog(conn, above=MOST_OPEN)
        for tenant_id, count in many.items():
            alerts.open_once(
                conn,
                tenant_id=tenant_id,
                kind=BACKLOG,
                subject=tenant_id or NO_TENANT,
                detail=f"{count} dead letters wait, more than {MOST_OPEN}",
                now=now,
            )
        alerts.close_others(
            conn, kind=BACKLOG, subjects={tenant_id or NO_TENANT for tenant_id in many}, now=now
        )
    return many


def check_inbox(begin: Begin, *, now: datetime) -> dict[str, timedelta]:
    """Keep one alert open per provider whose events wait for too long or died; returns the former.

    Those whose receiver was found in the meantime are put back first.

    Those of dead events are opened and closed where that happens. Here they are only compared with
    the list: of two who bury and settle at once, neither sees what the other did.
    """
    put_back_found(begin, now=now)
    with begin() as conn:
        waits = {name: now - since for name, since in dead_letters.waiting_since(conn).items()}
        stuck = {name: waited for name, waited in waits.items() if waited > WAITS_TOO_LONG}
        told = {
            provider: f"the oldest event waits for {waited // timedelta(minutes=1)} minutes"
            for provider, waited in stuck.items()
        }
        alerts.keep_open(conn, told, kind=INBOX_STUCK, now=now)
        _tell_of_dead_events(conn, now=now)
    return stuck


def _tell_of_dead_events(conn: Connection, *, now: datetime) -> None:
    """Keep one alert open per provider with events on the list, and per receiver of nobody."""
    for kind, waiting in (
        (INBOX_DEAD, dead_letters.dead_events(conn)),
        (RECEIVER_UNKNOWN, dead_letters.unknown_receivers(conn)),
    ):
        told = {subject: f"{count} on the dead-letter list" for subject, count in waiting.items()}
        alerts.keep_open(conn, told, kind=kind, now=now)
