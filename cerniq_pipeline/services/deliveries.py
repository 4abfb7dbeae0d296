"""What a provider says of a message after it took it: acceptance was no promise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.deliveries import (
    STOP,
    Delivery,
    Standing,
    Told,
    is_beyond,
    stands_after,
    weight_of,
)
from cerniq_pipeline.domain.outbox import SIGNED_STATUSES, State
from cerniq_pipeline.domain.refusals import STOPS_A_PHONE
from cerniq_pipeline.logs import cause, caused_by, event
from cerniq_pipeline.services.opt_out import Stop, honour
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import (
    alerts,
    dead_letters,
    deliveries,
    leads,
    outbox,
    phones,
    replacements,
)
from cerniq_pipeline.store.database import for_cause
from cerniq_pipeline.store.deliveries import Key, Logged, Sent

WHO = "provider"

Words = Mapping[Key, Sequence[Delivery]]
"""What was said of each message."""


def take_in(conn: Connection, told: Sequence[Told], *, now: datetime) -> Counter[str]:
    """Move every message of a batch as far as its provider says; returns what became of the words.

    Each of them counts once: `moved` and `failed` brought their message forward, `stale` told
    nothing that stands, `early` is kept until the log has its message, `unknown` is no word of
    ours. Told twice or in another order, the messages end up the same.

    A caller hands over all it has in one call per transaction and holds no lock on leads, but for
    those of messages that it settles itself: leads are locked here, by id.
    """
    return _take_in(conn, told, now=now).counts


def note_failure(desk: Desk, delivery: Delivery, *, channel: str = "WHATSAPP") -> str:
    """Take in that an accepted message never reached its person; returns what became of it.

    A message that failed only because free text was not allowed any more is sent once more in its
    approved form. Any other failure is for a person. Told twice, nothing changes the second time.
    """
    with desk.begin() as conn:
        taken = _take_in(conn, [Told(channel, delivery)], now=desk.clock.now())
    if taken.counts["failed"]:
        return next((failure.result for failure in taken.failures), "noted")
    return "known" if taken.counts["stale"] else "unknown"


def apply_early(
    conn: Connection, channel: str, external_id: str, *, secret: bytes, now: datetime
) -> None:
    """Let a message that the log has just got hear what was said of it before.

    The caller has written it in this transaction, and holds the locks of its lead and of itself.
    Whoever brings a word meanwhile waits here, and then finds the message in the log. A stop locks
    all leads of its person on top; where that crosses somebody else, the caller tries again.
    """
    key = (channel, external_id)
    deliveries.lock_words(conn, [key])
    told = deliveries.take_early(conn, key)
    take_in(conn, [one for one in told if one.delivery.status != STOP], now=now)
    for one in told:
        if one.delivery.status != STOP:
            continue
        with for_cause(conn, one.delivery.correlation_id):
            for tenant_id, lead_id in deliveries.whose(conn, key):
                stop = stop_of(tenant_id, one.delivery, now=now)
                copies = leads.lock_person(conn, tenant_id, lead_ids=[lead_id])
                honour(conn, stop, copies, secret=secret, now=now)


def keep_stop(conn: Connection, told: Told, *, now: datetime) -> bool:
    """Keep a request to stop until its message is known; False when its lead is by now."""
    deliveries.lock_words(conn, [told.key])
    if deliveries.whose(conn, told.key):
        return False
    stop = replace(told.delivery, status=STOP, at=min(told.delivery.at, now))
    deliveries.keep_early(conn, [replace(told, delivery=stop)], now=now)
    return True


def stop_of(tenant_id: str, told: Delivery, *, now: datetime) -> Stop:
    """The wish of a person to hear no more, as their provider tells it of a message."""
    why = told.title or "the provider says: opted out"
    return Stop(tenant_id, why, at=min(told.at, now), who=WHO)


@dataclass(frozen=True)
class _Failure:
    """A message of the outbox that failed, and what followed from it."""

    sent: Sent
    told: Delivery
    result: str


@dataclass(frozen=True)
class _Taken:
    """What became of a batch."""

    counts: Counter[str]
    failures: list[_Failure] = field(default_factory=list)
    arrived: list[Sent] = field(default_factory=list)
    """Messages whose failure turned out to be none."""


def _take_in(conn: Connection, told: Sequence[Told], *, now: datetime) -> _Taken:
    words: defaultdict[Key, list[Delivery]] = defaultdict(list)
    unknown: Counter[str] = Counter()
    for one in told:
        if one.delivery.word is None:
            unknown["unknown"] += 1
        else:
            # A clock that is ahead of ours knows nothing of the future.
            at = min(one.delivery.at, now)
            words[one.key].append(replace(one.delivery, at=at))
    while words:
        with conn.begin_nested() as attempt:
            taken = _try(conn, words, now=now)
            if taken is not None:
                _report(taken)
                return replace(taken, counts=taken.counts + unknown)
            attempt.rollback()
    return _Taken(unknown)


def _try(conn: Connection, words: Words, *, now: datetime) -> _Taken | None:
    """Take these words in; None when somebody else was faster, and it must be looked at again.

    Locks go in their order only if it is known beforehand which leads a word concerns. It is read
    without locks, and read again under them. What others do in between brings messages forward,
    so there is an end to it.
    """
    seen = deliveries.find(conn, words)
    grave = {one.log_id for one in seen if one.sent and _turns(one.standing, _after(one, words))}
    if grave:
        deliveries.lock_consequences(conn, _sent(one for one in seen if one.log_id in grave))
    standings = deliveries.lock_standings(conn, [one.log_id for one in seen]) if seen else {}
    found = [
        replace(one, standing=standings[one.log_id]) for one in seen if one.log_id in standings
    ]
    after = {one.log_id: _after(one, words) for one in found}
    turned = [one for one in found if one.sent and _turns(one.standing, after[one.log_id])]
    if any(one.log_id not in grave for one in turned):
        return None
    changed = {one.log_id: after[one.log_id] for one in found if one.standing != after[one.log_id]}
    if changed:
        deliveries.write(conn, changed)
    failures = [
        _fail(conn, one.sent, words[one.key], now=now)
        for one in turned
        if one.sent and after[one.log_id].status == "FAILED"
    ]
    mistaken = [one for one in turned if one.standing.status == "FAILED"]
    arrived = _sent(mistaken)
    told_by = {word.correlation_id for one in mistaken for word in words[one.key]}
    if arrived:
        with for_cause(conn, told_by.pop() if len(told_by) == 1 else cause()):
            _undo(conn, arrived, now=now)
    _stop_phones(conn, failures, now=now)
    counts = _count(found, after, words)
    early = {key: words[key] for key in words.keys() - {one.key for one in found}}
    if early:
        deliveries.lock_words(conn, early)
        if deliveries.find(conn, early):
            return None
        deliveries.keep_early(conn, _distinct(early), now=now)
        counts["early"] = sum(map(len, early.values()))
    return _Taken(counts, failures, arrived)


def _after(message: Logged, words: Words) -> Standing:
    return reduce(stands_after, words[message.key], message.standing)


def _turns(before: Standing, after: Standing) -> bool:
    """Whether a message fails now, or its failure turns out to be none."""
    return before.status != after.status and "FAILED" in (before.status, after.status)


def _sent(messages: Iterable[Logged]) -> list[Sent]:
    return [one.sent for one in messages if one.sent]


def _count(found: Collection[Logged], after: Mapping[UUID, Standing], words: Words) -> Counter[str]:
    """What became of the words about messages that the log has; of several, one brings it on."""
    forward: dict[Key, str] = {}
    for one in found:
        standing = after[one.log_id]
        if is_beyond(standing.status, one.standing.status):
            forward[one.key] = "failed" if standing.status == "FAILED" else "moved"
    told = sum(len(words[key]) for key in {one.key for one in found})
    return Counter(forward.values()) + Counter(stale=told - len(forward))


def _distinct(words: Words) -> list[Told]:
    """One word per message and status."""
    kept: dict[tuple[Key, str], Told] = {}
    for (channel, external_id), said in words.items():
        for word in sorted(said, key=weight_of, reverse=True):
            kept[(channel, external_id), word.status] = Told(channel, word)
    return list(kept.values())


# ── What follows from a failure ───────────────────────────────────────────────────────────────


def _fail(conn: Connection, sent: Sent, words: Sequence[Delivery], *, now: datetime) -> _Failure:
    told = min((word for word in words if word.word == "FAILED"), key=weight_of)
    with for_cause(conn, told.correlation_id or cause()):
        return _Failure(sent, told, _consequence(conn, sent, told, now=now))


def _consequence(conn: Connection, sent: Sent, delivery: Delivery, *, now: datetime) -> str:
    if delivery.meaning == "WINDOW_CLOSED":
        leads.close_window(conn, sent.lead_id, now=now)
        if sent.has_approved_form and replacements.replace(
            conn, [sent.message_id], by=WHO, now=now
        ):
            return "sent again in its approved form"
    # The steps after it would speak of a message that nobody got.
    why = f"the message before it failed: {delivery.failure}"
    outbox.cancel_pending(conn, [sent.lead_id], why=why, who=WHO, now=now)
    leads.end_sequence(conn, sent.message_id, reason="failed", now=now)
    dead_letters.bury(
        conn,
        message_id=sent.message_id,
        tenant_id=sent.tenant_id,
        code=delivery.failure,
        detail=delivery.title if delivery.code is None else f"{delivery.code}: {delivery.title}",
        now=now,
    )
    return "dead letter"


def _stop_phones(conn: Connection, failures: Sequence[_Failure], *, now: datetime) -> None:
    """Keep the phones silent whose provider says with a failure that they are banned or offline.

    Only where it signs its words, or anybody could silence a phone. A phone that changed since the
    failure is left alone: that is newer.
    """
    told = {
        one.sent.message_id: one for one in failures if (one.told.meaning or "") in STOPS_A_PHONE
    }
    senders = phones.senders(conn, told, providers=SIGNED_STATUSES) if told else []
    for message_id, phone_id in senders:
        failure = told[message_id]
        status = STOPS_A_PHONE[failure.told.failure]
        why = f"{failure.told.code}: {failure.told.title}"
        if phones.set_status_since(
            conn, phone_id, status=status, reason=why, at=failure.told.at, now=now
        ):
            alerts.open_once(
                conn,
                tenant_id=failure.sent.tenant_id,
                kind=f"phone_{status.lower()}",
                subject=phone_id,
                detail=why,
                now=now,
            )
            event("status", f"phone_{status.lower()}", level="warning", phone=phone_id)


def _undo(conn: Connection, messages: Collection[Sent], *, now: datetime) -> None:
    """Take back what followed from failures that were none, as far as it can be taken back.

    What goes out in the place of a message that arrived would be that message twice. Steps that
    were cancelled stay so: a person may have gone on with the lead.
    """
    if not messages:
        return
    ids = [message.message_id for message in messages]
    letters = dict.fromkeys(deliveries.open_letters(conn, ids), "delivered after all")
    dead_letters.resolve(conn, letters, by=WHO, now=now)
    for waiting in deliveries.waiting_replacements(conn, ids):
        outbox.move(
            conn,
            waiting.message_id,
            current=waiting.state,
            target=State.CANCELLED,
            why="the message before it was delivered after all",
            who=WHO,
            now=now,
        )
        leads.after_message(
            conn,
            waiting.lead_id,
            open_message=waiting.has_others,
            next_action_at=None,
            now=now,
        )


def _report(taken: _Taken) -> None:
    for failure in taken.failures:
        with caused_by(failure.told.correlation_id or cause()):
            event(
                "delivery",
                "message_failed_later",
                level="warning",
                message=failure.sent.message_id,
                lead=str(failure.sent.lead_id),
                error={"code": failure.told.failure, "message": failure.told.title},
                result=failure.result,
            )
    for sent in taken.arrived:
        event(
            "delivery",
            "message_delivered_after_all",
            level="warning",
            message=sent.message_id,
            lead=str(sent.lead_id),
        )
