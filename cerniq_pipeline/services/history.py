"""Read what was said: a lead's chats into the log, and missed messages into the inbox."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.alerts import SWEEP_STUCK
from cerniq_pipeline.domain.deliveries import Delivery, Told
from cerniq_pipeline.domain.history import History, HistoryMessage, InboundCopy, RecentChat
from cerniq_pipeline.domain.outbox import OutboxMessage
from cerniq_pipeline.errors import CerniqError, ProviderUnreadable, QuotaUnknown
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.deliveries import note_failure, take_in
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import alerts, histories, inbox
from cerniq_pipeline.store.histories import LeadChat, Progress

READS_PER_MINUTE = 100
"""Per account, over everything that reads histories."""

OVERLAP = timedelta(minutes=15)
"""How late a history may show a message without its being missed."""

FAR_BACK = timedelta(hours=48)
"""Where the first sweep begins, and every full one."""

FULL_SWEEP_AT = time(1, 0)
"""UTC: when hardly anybody writes, and the reads disturb nobody."""

FULL_SLICE = timedelta(minutes=2)
"""How long a full sweep may keep the usual one waiting."""

STUCK_AFTER = timedelta(minutes=30)
"""A watermark that stands still for so long while the provider cannot be read is an alert."""

CLOCK_SLACK = timedelta(minutes=2)
"""How far the provider's clock may lag behind ours."""

WRITTEN_AT_ONCE = 500
FAILURES_IN_A_ROW = 3
"""One chat may be unreadable for ever; so many after each other, and the provider is down."""

Turn = Callable[[], None]


class OutOfTime(CerniqError):
    """The time for reading was up before everything was read."""


def turns(desk: Desk, provider: str, *, until: datetime | None = None) -> Turn:
    """A function that waits until one more read of this account is allowed.

    Raises OutOfTime when that is not before `until`, and QuotaUnknown when Redis cannot be asked:
    nobody reads uncounted.
    """

    def turn() -> None:
        while True:
            now = desk.clock.now()
            if until is not None and now >= until:
                raise OutOfTime("the time for reading was up")
            free_at = desk.gate.rate(
                f"history:{provider}",
                most=READS_PER_MINUTE,
                window=timedelta(minutes=1),
                now=now,
                token=uuid.uuid4().hex,
            )
            if free_at is None:
                return
            if until is not None and free_at >= until:
                raise OutOfTime(f"{READS_PER_MINUTE} reads a minute are out until after the end")
            desk.clock.sleep((free_at - now).total_seconds())

    return turn


# ── One lead's chats ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Fetched:
    """What fetching a lead's chats brought: messages read, new in the log, moved in status."""

    chats: int
    read: int
    new: int
    moved: int
    oldest: datetime | None
    newest: datetime | None


def fetch_chat(desk: Desk, lead_id: UUID) -> Fetched:
    """Bring every message of a lead's chats into the communication log, in both directions.

    What a person wrote goes into the log alone: a message of long ago must not stop or answer
    anything today, and what is recent and was missed reaches the inbox by the sweep. Raises
    ProviderUnreadable or QuotaUnknown when something could not be read; what was read is kept.
    """
    with desk.begin() as conn:
        chats = histories.chats_of(conn, lead_id)
    counts: Counter[str] = Counter()
    times: list[datetime] = []
    for chat in chats:
        history = desk.histories.get(chat.provider)
        if history is None:
            continue
        turn = turns(desk, chat.provider)
        chat_id = chat.chat_id or _find(desk, chat, turn)
        if chat_id is None:
            continue
        counts["chats"] += 1
        place = RecentChat(chat_id, chat.number, chat.contact, last_at=desk.clock.now())
        for batch in _batches(history.messages(place, since=None, turn=turn)):
            counts["moved"] += _note_failures(desk, batch) + _note_arrivals(desk, chat, batch)
            with desk.begin() as conn:
                logged = histories.log(conn, chat, batch, now=desk.clock.now())
            counts.update(read=len(batch), new=logged.new, moved=logged.moved)
            times += [message.at for message in batch]
    event("history", "chat_fetched", lead=str(lead_id), read=counts["read"], new=counts["new"])
    return Fetched(
        chats=counts["chats"],
        read=counts["read"],
        new=counts["new"],
        moved=counts["moved"],
        oldest=min(times, default=None),
        newest=max(times, default=None),
    )


def _note_arrivals(desk: Desk, chat: LeadChat, messages: Iterable[HistoryMessage]) -> int:
    """Let it be known which sends arrived though they were taken for failed; returns how many."""
    arrived = {
        one.external_id: one
        for one in messages
        if one.from_us and one.status in ("delivered", "read")
    }
    with desk.begin() as conn:
        now = desk.clock.now()
        mistaken = histories.standing_failed(conn, chat.tenant_id, arrived)
        told = [
            Told("WHATSAPP", _word(arrived[one], at=now, title="the history shows it"))
            for one in mistaken
        ]
        return take_in(conn, told, now=now)["moved"] if told else 0


def _word(
    message: HistoryMessage, *, at: datetime, title: str, meaning: str | None = None
) -> Delivery:
    return Delivery(
        external_id=message.external_id,
        status=message.status,
        at=at,
        code=None,
        title=title,
        meaning=meaning,
        callback=None,
    )


def _note_failures(desk: Desk, messages: Iterable[HistoryMessage]) -> int:
    """Let it be known which of our sends never reached their person; returns what was news."""
    shown = "the provider's history shows it as failed"
    failed = [one for one in messages if one.from_us and one.status == "failed"]
    words = [_word(one, at=one.at, title=shown, meaning="FAILED_LATER") for one in failed]
    return sum(note_failure(desk, word) not in ("unknown", "known") for word in words)


def _find(desk: Desk, chat: LeadChat, turn: Turn) -> str | None:
    """Ask the provider for the chat between this phone and this person."""
    turn()
    asked = OutboxMessage(
        id=0,
        tenant_id=chat.tenant_id,
        channel="WHATSAPP",
        provider=chat.provider,
        kind="history",
        lead_id=chat.lead_id,
        phone_id=chat.phone_id,
        sender=chat.number,
        account_id=chat.account_id,
        to=chat.contact,
        chat_id=None,
        body="",
        sequence_id=None,
        step=None,
        attempt=0,
        fence=0,
        begun_at=desk.clock.now(),
    )
    return desk.channels[chat.provider].find_chat(asked)


def _batches(messages: Iterable[HistoryMessage]) -> Iterator[list[HistoryMessage]]:
    batch: list[HistoryMessage] = []
    for message in messages:
        batch.append(message)
        if len(batch) >= WRITTEN_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


# ── Sweeps ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Swept:
    """What one sweep read; `unfinished` says why it did not come to the end."""

    chats: int
    read: int
    new: int
    unfinished: str | None = None
    out_of_time: bool = False


@dataclass
class _Basket:
    """What a sweep has read and not yet written down, and how far everything was read."""

    begun_at: datetime
    read_to: datetime | None
    copies: list[InboundCopy] = field(default_factory=list)
    chats: int = 0
    read: int = 0
    new: int = 0
    unreadable: str | None = None


def sweep(desk: Desk, provider: str, *, longest: timedelta, full: bool = False) -> Swept:
    """Put every message whose webhook may not have come into the inbox, as if it had.

    Reads all chats in which anything happened since the last sweep, with an overlap for histories
    that lag. The watermark moves to the start of the sweep, and only when everything was read to
    the end. Chats are read in the order of their last message, so a sweep that runs out of time
    goes on where it stopped: a chat that it has left behind and that gets a new message comes
    after that place again.
    """
    history = desk.histories[provider]
    now = desk.clock.now()
    turn = turns(desk, provider, until=now + longest)
    name = _full(provider) if full else provider
    with desk.begin() as conn:
        watermark = histories.swept_to(conn, provider)
        left_off = histories.progress(conn, name)
    basket = _Basket(
        begun_at=left_off.begun_at if left_off else now,
        read_to=left_off.read_to if left_off else None,
    )
    far_back = basket.begun_at - FAR_BACK
    if watermark is None and basket.read_to is None:
        # Before any chat that is listed: so it is remembered since when we try, also when nothing
        # at all can be read.
        basket.read_to = far_back - OVERLAP
    since = watermark - OVERLAP if watermark else far_back
    since = min(since, far_back) if full else since
    try:
        _read_all(desk, history, basket, since=since, turn=turn, also_ours=since <= far_back)
    except (ProviderUnreadable, QuotaUnknown, OutOfTime) as stopped:
        return _broke_off(desk, name, basket, stopped)
    if basket.unreadable:
        return _broke_off(desk, name, basket, ProviderUnreadable(basket.unreadable))
    _write(desk, basket)
    with desk.begin() as conn:
        finished = {"to": basket.begun_at, "now": desk.clock.now()}
        histories.finish(conn, name, **finished)
        if since <= far_back:
            histories.finish(conn, _full(provider), **finished)
        if not full:
            alerts.close(conn, kinds=(SWEEP_STUCK,), subjects=[provider], now=desk.clock.now())
    if basket.new:
        event("history", "messages_found", level="warning", provider=provider, new=basket.new)
    return Swept(basket.chats, basket.read, basket.new)


def sweep_all(desk: Desk, *, longest: timedelta) -> dict[str, Swept]:
    """Sweep every provider that shows its history, within this time for all of them."""
    until = desk.clock.now() + longest
    return {
        provider: sweep(desk, provider, longest=until - desk.clock.now())
        for provider in desk.listing
    }


def sweep_fully(desk: Desk, *, longest: timedelta) -> dict[str, Swept]:
    """Read the last two days of every provider again, in slices: new messages never wait for it."""
    until = desk.clock.now() + longest
    results = {}
    for provider in desk.listing:
        while True:
            left = until - desk.clock.now()
            part = sweep(desk, provider, longest=min(FULL_SLICE, left), full=True)
            before = results.get(provider, Swept(0, 0, 0))
            results[provider] = Swept(
                chats=before.chats + part.chats,
                read=before.read + part.read,
                new=before.new + part.new,
                unfinished=part.unfinished,
                out_of_time=part.out_of_time,
            )
            if not part.out_of_time or desk.clock.now() >= until:
                break
            sweep_all(desk, longest=until - desk.clock.now())
    return results


def full_sweep_due(desk: Desk) -> bool:
    """Whether a provider's last two days were not read again since the night's hour for it."""
    now = desk.clock.now()
    hour = datetime.combine(now.date(), FULL_SWEEP_AT, now.tzinfo)
    last_hour = hour if hour <= now else hour - timedelta(days=1)
    with desk.begin() as conn:
        done = [histories.swept_to(conn, _full(provider)) for provider in desk.listing]
    return any(at is None or at < last_hour for at in done)


def _full(provider: str) -> str:
    return f"{provider}/full"


def _read_all(
    desk: Desk,
    history: History,
    basket: _Basket,
    *,
    since: datetime,
    turn: Turn,
    also_ours: bool,
) -> None:
    in_a_row = 0
    for chat in _chats(desk, history, since=since, turn=turn):
        if chat.only_ours and not also_ours:
            # On a busy day most chats have only our first message; to read each of them would use
            # up the account's reads. Whole seconds can deceive, so a full sweep reads them too.
            continue
        if basket.read_to is not None and chat.last_at < basket.read_to:
            continue
        try:
            messages = list(history.messages(chat, since=since, turn=turn))
        except ProviderUnreadable as unreadable:
            in_a_row += 1
            if in_a_row == FAILURES_IN_A_ROW:
                raise
            basket.unreadable = basket.unreadable or str(unreadable)
            continue
        in_a_row = 0
        basket.chats += 1
        basket.read += len(messages)
        # In the order in which they were said: that is how they are handled.
        basket.copies += [message.event for message in reversed(messages) if _is_news(message)]
        if not basket.unreadable:
            basket.read_to = chat.last_at
        if len(basket.copies) >= WRITTEN_AT_ONCE:
            _write(desk, basket)


def _chats(desk: Desk, history: History, *, since: datetime, turn: Turn) -> list[RecentChat]:
    """Every chat with a message since then, the one that was quiet for longest first.

    A chat that gets a message while the pages of the list are read moves to the first page and
    shows on no other: so the newest are listed again until none is unknown.
    """
    known: dict[tuple[str, str], RecentChat] = {}
    looked_at = desk.clock.now()
    found = list(history.recent_chats(since=since, turn=turn))
    while found:
        known.update({(chat.account, chat.chat_id): chat for chat in found})
        again_from, looked_at = max(since, looked_at - CLOCK_SLACK), desk.clock.now()
        found = [
            chat
            for chat in history.recent_chats(since=again_from, turn=turn)
            if (chat.account, chat.chat_id) not in known
        ]
    return sorted(known.values(), key=lambda chat: chat.last_at)


def _is_news(message: HistoryMessage) -> bool:
    """What the person wrote, and what one of us typed on the handset; our own sends are known."""
    return not message.from_us or not message.by_api


def _write(desk: Desk, basket: _Basket) -> None:
    if not basket.copies:
        return
    with desk.begin() as conn:
        basket.new += inbox.keep(conn, basket.copies, source="sweep", now=desk.clock.now())
    basket.copies.clear()


def _broke_off(desk: Desk, name: str, basket: _Basket, why: CerniqError) -> Swept:
    """Keep what was read; the watermark stays, and the next sweep goes on from here."""
    _write(desk, basket)
    with desk.begin() as conn:
        if basket.read_to is not None:
            histories.note_progress(conn, name, Progress(basket.begun_at, basket.read_to))
        if isinstance(why, ProviderUnreadable) and name in desk.histories:
            _tell_if_stuck(conn, name, basket, why, now=desk.clock.now())
    event("history", "sweep_unfinished", level="warning", sweep=name, error=str(why))
    return Swept(
        chats=basket.chats,
        read=basket.read,
        new=basket.new,
        unfinished=str(why),
        out_of_time=isinstance(why, OutOfTime),
    )


def _tell_if_stuck(
    conn: Connection, provider: str, basket: _Basket, why: ProviderUnreadable, *, now: datetime
) -> None:
    """Open an alert when nothing newer was read to the end for long; a full sweep has none."""
    stands_since = histories.swept_to(conn, provider) or basket.begun_at
    if now - stands_since >= STUCK_AFTER:
        alerts.open_once(
            conn,
            tenant_id=None,
            kind=SWEEP_STUCK,
            subject=provider,
            detail=f"read to the end until {stands_since:%F %R} UTC; {why}",
            now=now,
        )
