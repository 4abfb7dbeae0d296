"""Read what was said: a lead's chats into the log, and missed messages into the inbox."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.alerts import CHAT_UNREADABLE, SWEEP_STUCK
from cerniq_pipeline.domain.deliveries import Delivery, Told
from cerniq_pipeline.domain.history import HistoryMessage, RecentChat, try_again_in
from cerniq_pipeline.domain.outbox import OutboxMessage
from cerniq_pipeline.domain.reads import Turn
from cerniq_pipeline.errors import CerniqError, ProviderUnreadable, ReadsUsedUp
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.crossing import insist
from cerniq_pipeline.services.dead_letters import confirm
from cerniq_pipeline.services.deliveries import note_failure, take_in
from cerniq_pipeline.services.reads import at_once, turns
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import alerts, histories, inbox
from cerniq_pipeline.store.database import Unavailable
from cerniq_pipeline.store.histories import LeadChat, UnreadChat

OVERLAP = timedelta(minutes=15)
"""How late a history may show a message without its being missed."""

FAR_BACK = timedelta(hours=48)
"""Where the first sweep begins, and every full one."""

FULL_SWEEP_AT = time(1, 0)
"""UTC: when hardly anybody writes, and the reads disturb nobody."""

FULL_SLICE = timedelta(minutes=2)
"""How long a full sweep may keep the usual one waiting."""

STUCK_AFTER = timedelta(minutes=30)
"""What was said so long ago and may not be read yet, while the provider fails, is an alert."""

CLOCK_SLACK = timedelta(minutes=2)
"""How far the provider's clock may lag behind ours."""

WRITTEN_AT_ONCE = 500
FAILURES_IN_A_ROW = 3
"""A few chats may be bad; after so many in a row one is asked that is known to be good."""

ALERT_AFTER = 3
"""A chat that failed so often by its own fault is an alert: minutes after the first time."""

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
    ProviderUnreadable when something could not be read; what was read is kept.
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
        shown = _Shown(history.messages(place, since=None, turn=turn))
        for batch in _batches(shown):
            counts["moved"] += _note_failures(desk, batch) + _note_arrivals(desk, chat, batch)
            with desk.begin() as conn:
                logged = histories.log(conn, chat, batch, now=desk.clock.now())
            counts.update(read=len(batch), new=logged.new, moved=logged.moved)
            times += [message.at for message in batch]
        counts["odd"] += shown.odd
    event("history", "chat_fetched", lead=str(lead_id), read=counts["read"], new=counts["new"])
    if counts["odd"]:
        raise ProviderUnreadable(f"{counts['odd']} messages have an unknown form")
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
    return desk.channels[chat.provider].find_chat(asked, turn=turn)


class _Shown:
    """The messages that can be read, and how many there were that cannot."""

    def __init__(self, messages: Iterable[HistoryMessage | None]) -> None:
        self._messages = messages
        self.odd = 0

    def __iter__(self) -> Iterator[HistoryMessage]:
        for message in self._messages:
            if message is None:
                self.odd += 1
            else:
                yield message


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


def sweep(desk: Desk, provider: str, *, longest: timedelta, full: bool = False) -> Swept:
    """Put every message whose webhook may not have come into the inbox, as if it had.

    The list of chats is read page by page, and who said something since the last sweep, with an
    overlap for histories that lag, is noted in the transaction that notes the page. The chats that
    are noted, now or by earlier sweeps, are read one by one; a note goes when its chat was read to
    the end. So both go on where they stopped, whatever stops them, and a chat that cannot be read
    costs no other its turn.
    """
    return _Sweep(desk, provider, until=desk.clock.now() + longest, full=full).run()


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
    """Whether a provider's last two days were not listed again since the night's hour for it."""
    now = desk.clock.now()
    hour = datetime.combine(now.date(), FULL_SWEEP_AT, now.tzinfo)
    last_hour = hour if hour <= now else hour - timedelta(days=1)
    with desk.begin() as conn:
        done = [histories.swept_to(conn, _full(provider)) for provider in desk.listing]
    return any(at is None or at < last_hour for at in done)


def _full(provider: str) -> str:
    return f"{provider}/full"


class _OutOfTime(CerniqError):
    """The time for reading was up before everything was read."""


class _Sweep:
    """One sweep under way: the list that it reads, and the noted chats."""

    def __init__(self, desk: Desk, provider: str, *, until: datetime, full: bool) -> None:
        self._desk = desk
        self._provider = provider
        self._history = desk.histories[provider]
        self._until = until
        self._full = full
        self._turn = turns(desk, provider, until=until, sweeping=True)
        self._list = _List(desk, provider, full=full)
        self._counts: Counter[str] = Counter()
        self._suspects: dict[str, tuple[UnreadChat, str]] = {}
        self._good: UnreadChat | None = None

    def run(self) -> Swept:
        """Sweep until all is read or the time is up."""
        stopped: CerniqError | None = None
        try:
            while self._go_on():
                pass
            self._judge()
        except (ProviderUnreadable, _OutOfTime) as why:
            stopped = why
        stopped = stopped or self._list.failure
        self._conclude(stopped)
        counts = self._counts
        used_up = isinstance(stopped, ReadsUsedUp) and stopped.free_at is not None
        return Swept(
            chats=counts["chats"],
            read=counts["read"],
            new=counts["new"],
            unfinished=None if stopped is None else str(stopped),
            out_of_time=used_up or isinstance(stopped, _OutOfTime),
        )

    def _go_on(self) -> bool:
        """Read one page of the list, or else one chat; False when nothing is left.

        The list has fewer reads than the chats. It is waited for only when no chat is left.
        """
        if self._desk.clock.now() >= self._until:
            raise _OutOfTime("the time for reading was up")
        if self._list.is_open:
            try:
                self._list.read_page(at_once(self._desk, self._provider, sweeping=True))
            except ReadsUsedUp:
                pass
            else:
                return True
        if chat := self._next_chat():
            self._read(chat)
            return True
        if self._list.is_open:
            self._list.read_page(self._turn)
            return True
        return False

    # One chat after the other

    def _next_chat(self) -> UnreadChat | None:
        """The newest and the one that waits for longest, by turns: all come to be read, soon."""
        with self._desk.begin() as conn:
            return histories.next_unread(
                conn,
                self._provider,
                newest=self._counts["asked"] % 2 == 0,
                but=list(self._suspects),
                now=self._desk.clock.now(),
            )

    def _read(self, chat: UnreadChat) -> None:
        """Put what was said in a chat into the inbox; what cannot be read costs this chat alone."""
        self._counts["asked"] += 1
        try:
            odd = self._bring_in(chat)
        except (*Unavailable, ReadsUsedUp):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must not wait for it
            known = isinstance(error, ProviderUnreadable)
            # The words of any other may be what a person wrote.
            self._suspects[chat.chat_id] = chat, str(error) if known else type(error).__name__
            if len(self._suspects) >= FAILURES_IN_A_ROW:
                self._judge()
            return
        if odd:
            self._blame(chat, f"{odd} of its messages have an unknown form")
        else:
            self._good = chat
            with self._desk.begin() as conn:
                histories.was_read(conn, self._provider, chat)
        self._blame_suspects()

    def _bring_in(self, chat: UnreadChat) -> int:
        """Keep what is news, in the order in which it was said; returns what nobody can read."""
        place = RecentChat(chat.chat_id, chat.account, chat.contact, chat.last_at)
        shown = _Shown(self._history.messages(place, since=chat.since, turn=self._turn))
        messages = list(shown)
        copies = [message.event for message in reversed(messages) if _is_news(message)]
        if copies:
            with self._desk.begin() as conn:
                now = self._desk.clock.now()
                self._counts["new"] += inbox.keep(conn, copies, source="sweep", now=now)
            insist(lambda: confirm(self._desk.begin, copies, now=now), worker="history")
        self._counts.update(chats=1, read=len(messages))
        return shown.odd

    # Whose fault it is

    def _judge(self) -> None:
        """Find out whether these chats are bad or the provider has a bad day; raises then."""
        if not self._suspects:
            return
        if not self._is_well():
            raise ProviderUnreadable(next(iter(self._suspects.values()))[1])
        self._blame_suspects()

    def _is_well(self) -> bool:
        """Whether a chat can be read that could be read before."""
        with self._desk.begin() as conn:
            good = self._good.chat_id if self._good else histories.good_chat(conn, self._provider)
        if good is None or good in self._suspects:
            return False
        now = self._desk.clock.now()
        try:
            known = RecentChat(good, "known", "known", now)
            next(iter(self._history.messages(known, since=now, turn=self._turn)), None)
        except ReadsUsedUp:
            raise
        except ProviderUnreadable:
            return False
        return True

    def _blame_suspects(self) -> None:
        for chat, why in self._suspects.values():
            self._blame(chat, why)
        self._suspects.clear()

    def _blame(self, chat: UnreadChat, why: str) -> None:
        failures = chat.failures + 1
        with self._desk.begin() as conn:
            now = self._desk.clock.now()
            due_at = now + try_again_in(failures)
            histories.was_unreadable(
                conn, self._provider, chat, failures=failures, error=why, due_at=due_at, now=now
            )
        event("history", "chat_unreadable", level="warning", chat=chat.chat_id, error=why)

    # The end

    def _conclude(self, stopped: CerniqError | None) -> None:
        with self._desk.begin() as conn:
            now = self._desk.clock.now()
            if self._good is not None:
                histories.note_good(conn, self._provider, self._good.chat_id)
            self._tell_of_bad_chats(conn, now=now)
            if stopped is None:
                if not self._full:
                    alerts.close(conn, kinds=(SWEEP_STUCK,), subjects=[self._provider], now=now)
            elif isinstance(stopped, ProviderUnreadable) and not isinstance(stopped, ReadsUsedUp):
                self._tell_if_stuck(conn, stopped, now=now)
        if stopped is not None:
            event(
                "history",
                "sweep_unfinished",
                level="warning",
                sweep=self._list.name,
                error=str(stopped),
            )
        if new := self._counts["new"]:
            event("history", "messages_found", level="warning", provider=self._provider, new=new)

    def _tell_of_bad_chats(self, conn: Connection, *, now: datetime) -> None:
        """Keep an alert open while chats cannot be read though others can."""
        bad = histories.unreadable(conn, self._provider, failures=ALERT_AFTER)
        if bad is None and not self._list.nameless:
            alerts.close(conn, kinds=(CHAT_UNREADABLE,), subjects=[self._provider], now=now)
            return
        if bad is None:
            detail = f"{self._list.nameless} chats are listed without an id"
        else:
            detail = (
                f"{bad.count} chats, one of them {bad.chat_id} "
                f"since {bad.since:%F %R} UTC: {bad.error}"
            )
        alerts.open_once(
            conn,
            tenant_id=None,
            kind=CHAT_UNREADABLE,
            subject=self._provider,
            detail=detail,
            now=now,
        )

    def _tell_if_stuck(self, conn: Connection, why: ProviderUnreadable, *, now: datetime) -> None:
        """Open an alert when what was said long ago may not have been read yet."""
        stands_since = histories.read_to(conn, self._provider)
        if stands_since is not None and now - stands_since >= STUCK_AFTER:
            alerts.open_once(
                conn,
                tenant_id=None,
                kind=SWEEP_STUCK,
                subject=self._provider,
                detail=f"read to the end until {stands_since:%F %R} UTC; {why}",
                now=now,
            )


class _List:
    """The list of chats, newest first, as far as this sweep has to read it.

    Chats that get a message meanwhile move up, past pages that were read already, and all others
    move down. So a list that was left goes on later from the page it had come to, after a look at
    the first one. And what changed while the pages were read is listed again, until no chat in it
    is unknown.
    """

    def __init__(self, desk: Desk, provider: str, *, full: bool) -> None:
        self.name = _full(provider) if full else provider
        self.is_open = True
        self.failure: ProviderUnreadable | None = None
        self.nameless = 0
        self._desk = desk
        self._provider = provider
        with desk.begin() as conn:
            started = histories.begin_list(conn, self.name, now=desk.clock.now())
            watermark = histories.swept_to(conn, provider)
        self._begun_at = started.begun_at
        far_back = started.begun_at - FAR_BACK
        since = watermark - OVERLAP if watermark else far_back
        self._since = min(since, far_back) if full else since
        self._is_full = self._since <= far_back
        self._goes_on_at = started.page
        self._page = 1
        self._listed_since = self._since
        self._looked_at = started.begun_at
        self._again = False
        self._known: set[str] = set()
        self._unknown = 0

    def read_page(self, turn: Turn) -> None:
        """Note the chats of the next page; raises ReadsUsedUp and leaves it for later."""
        history = self._desk.histories[self._provider]
        try:
            page = history.recent_chats(since=self._listed_since, turn=turn, page=self._page)
        except ReadsUsedUp:
            raise
        except ProviderUnreadable as unreadable:
            self.failure, self.is_open = unreadable, False
            return
        self.nameless += page.nameless
        # On a busy day most chats have only our first message; to read each of them would use up
        # the account's reads. Whole seconds can deceive, so a full sweep reads them too.
        chats = [chat for chat in page.chats if self._is_full or not chat.only_ours]
        shown = {chat.chat_id for chat in page.chats}
        self._unknown += len(shown - self._known)
        self._known |= shown
        # In one answer nothing moves.
        done = page.is_last and (self._page == 1 or not self._unknown)
        with self._desk.begin() as conn:
            now = self._desk.clock.now()
            histories.note_chats(conn, self._provider, chats, since=self._since, now=now)
            if done:
                self._finish(conn, now=now)
            elif not self._again and self._page >= self._goes_on_at:
                histories.note_page(conn, self.name, self._page, begun_at=self._begun_at)
        self.is_open = not done
        if page.is_last:
            self._list_again(since=max(self._since, self._looked_at - CLOCK_SLACK))
        else:
            self._page = max(self._page + 1, self._goes_on_at)

    def _list_again(self, *, since: datetime) -> None:
        self._again = True
        self._unknown = 0
        self._listed_since = since
        self._looked_at = self._desk.clock.now()
        self._page, self._goes_on_at = 1, 0

    def _finish(self, conn: Connection, *, now: datetime) -> None:
        histories.finish_list(conn, self.name, to=self._begun_at, now=now)
        if self._is_full:
            histories.finish_list(conn, _full(self._provider), to=self._begun_at, now=now)


def _is_news(message: HistoryMessage) -> bool:
    """What the person wrote, and what one of us typed on the handset; our own sends are known."""
    return not message.from_us or not message.by_api
