"""Webhooks on their way: what is told when, to whom, how often, and what became of it.

Nothing here makes an API answer wait. A vendor's webhooks stand in bounded queues, each with one
teller and one connection; what does not fit or is not told when the sandbox stops is never told.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import Literal

from cerniq_pipeline.sandbox.caller import Caller, NoAnswer
from cerniq_pipeline.sandbox.faults import Call, FaultBook, Plan
from cerniq_pipeline.sandbox.journal import Journal, Line
from cerniq_pipeline.sandbox.meta_events import Item, body_of
from cerniq_pipeline.sandbox.notices import Notice
from cerniq_pipeline.sandbox.room import Provider
from cerniq_pipeline.sandbox.subscriptions import Subscription, SubscriptionBook

Outcome = Literal["told", "again", "given_up", "dropped"]

QUEUE_LIMIT = 5_000
LANES = 4
BATCH_LIMIT = 50
QUEUE_FULL = "the queue is full"
_AT_ONCE = timedelta()


@dataclass(order=True)
class _Waiting:
    """A notice in the queue, to be told at `due` by the loop's clock."""

    due: float
    number: int
    notice: Notice = field(compare=False)
    since: float = field(compare=False)
    epoch: int = field(compare=False)
    faults: tuple[str, ...] = field(compare=False)
    attempt: int = field(default=1, compare=False)
    held: bool = field(default=False, compare=False)


class Hooks:
    """Tells subscribers what happens, as each vendor does."""

    def __init__(
        self,
        journal: Journal,
        faults: FaultBook,
        subscriptions: SubscriptionBook,
        *,
        record: Callable[[Line], None],
    ) -> None:
        self.subscriptions = subscriptions
        self._journal = journal
        self._faults = faults
        self._record = record
        self._numbers = itertools.count()
        # TimelinesAI has several tellers, and one for each chat; Meta gathers, so it has one.
        self._lanes: dict[Provider, list[_Lane]] = {
            "timelinesai": [_Lane(self, batch_limit=1) for _ in range(LANES)],
            "meta": [_Lane(self, batch_limit=BATCH_LIMIT)],
        }

    async def run(self) -> None:
        """Tell until cancelled."""
        async with asyncio.TaskGroup() as group:
            for lane in itertools.chain.from_iterable(self._lanes.values()):
                group.create_task(lane.work())

    def tell(self, notices: Iterable[Notice]) -> None:
        """Queue what a vendor has to tell, if anybody wants to hear it."""
        now = asyncio.get_running_loop().time()
        for notice in notices:
            subscription = self.subscriptions.to(notice.provider)
            if subscription is not None:
                self._queue(notice, subscription, now)

    def waiting(self) -> int:
        """How many webhooks are not told yet."""
        lanes = itertools.chain.from_iterable(self._lanes.values())
        return sum(lane.length for lane in lanes)

    def clear(self) -> None:
        """Forget what waits, and the addresses that were put."""
        self.subscriptions.forget()
        for lane in itertools.chain.from_iterable(self._lanes.values()):
            lane.clear()

    def _queue(self, notice: Notice, subscription: Subscription, now: float) -> None:
        call = Call("webhook", notice.account, notice.contact, notice.provider, notice.event_type)
        plan = self._faults.plan(call, Plan(telling=notice.telling))
        telling = plan.telling
        wait = notice.after + telling.after + (telling.held or _AT_ONCE)
        due = subscription.told_at(now + wait.total_seconds())
        lanes = self._lanes[notice.provider]
        lane = lanes[zlib.crc32(repr(notice.chat).encode()) % len(lanes)]
        for _ in range(telling.times):
            waiting = _Waiting(
                due,
                next(self._numbers),
                notice,
                since=now,
                epoch=self._journal.epoch,
                faults=plan.faults,
                held=telling.held is not None,
            )
            if not lane.put(waiting):
                self.note(waiting, "dropped", error=QUEUE_FULL)
        if not telling.times:
            epoch = self._journal.epoch
            never = _Waiting(due, 0, notice, since=now, epoch=epoch, faults=plan.faults)
            self.note(never, "dropped")

    async def attempt(self, caller: Caller, batch: list[_Waiting]) -> list[_Waiting]:
        """Tell these in one body, and return those that are to be told again later."""
        # Nobody hears of what the journal might yet forget.
        await self._journal.durable()
        subscription = self.subscriptions.to(batch[0].notice.provider)
        if subscription is None:
            for waiting in batch:
                self.note(waiting, "dropped", error="nobody is to be called any more")
            return []
        status, error = await _call(caller, subscription, batch)
        if status is not None and 200 <= status < 300:
            for waiting in batch:
                self.note(waiting, "told", status=status, items=len(batch))
            return []
        again: list[_Waiting] = []
        now = asyncio.get_running_loop().time()
        for waiting in batch:
            pause = subscription.pause_after(waiting.attempt, age_seconds=now - waiting.since)
            outcome: Outcome = "given_up" if pause is None else "again"
            self.note(waiting, outcome, status=status, error=error, items=len(batch))
            if pause is not None and waiting.epoch == self._journal.epoch:
                number, attempt = next(self._numbers), waiting.attempt + 1
                again.append(
                    replace(waiting, due=now + pause, number=number, attempt=attempt, held=False)
                )
        return again

    def note(
        self,
        waiting: _Waiting,
        outcome: Outcome,
        *,
        status: int | None = None,
        error: str | None = None,
        items: int = 0,
    ) -> None:
        """One line about one attempt, unless the journal has been reset since it was queued."""
        if waiting.epoch != self._journal.epoch:
            return
        notice = waiting.notice
        fields = {
            "provider": notice.provider,
            "event_type": notice.event_type,
            "account": notice.account,
            "contact": notice.contact,
            "message_uid": notice.message_uid,
            "attempt": waiting.attempt if items else 0,
            "status": status,
            "error": error,
            "outcome": outcome,
            "items": items,
            "faults": waiting.faults,
        }
        self._record(self._journal.append("webhook", fields))


class _Lane:
    """A queue with one teller: in the order of what is due, one call at a time."""

    def __init__(self, hooks: Hooks, *, batch_limit: int) -> None:
        self._hooks = hooks
        self._batch_limit = batch_limit
        self._queue: list[_Waiting] = []
        self._held: defaultdict[object, int] = defaultdict(int)
        self._changed = asyncio.Event()
        self._caller = Caller()

    @property
    def length(self) -> int:
        """How many wait here."""
        return len(self._queue)

    def put(self, waiting: _Waiting) -> bool:
        """Let one wait here; False when there is no room."""
        if len(self._queue) >= QUEUE_LIMIT:
            return False
        heappush(self._queue, waiting)
        if waiting.held:
            self._held[waiting.notice.chat] += 1
        self._changed.set()
        return True

    def clear(self) -> None:
        """Forget all that waits."""
        self._queue.clear()
        self._held.clear()

    async def work(self) -> None:
        """Tell one after the other until cancelled."""
        try:
            while True:
                batch = await self._next_batch()
                again = await self._hooks.attempt(self._caller, batch)
                for waiting in again:
                    if not self.put(waiting):
                        self._hooks.note(waiting, "dropped", error=QUEUE_FULL)
                if not again:
                    self._let_go(batch)
        finally:
            self._caller.hang_up()

    async def _next_batch(self) -> list[_Waiting]:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            wait = self._queue[0].due - loop.time() if self._queue else None
            if wait is not None and wait <= 0:
                return self._due(loop.time())
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _due(self, now: float) -> list[_Waiting]:
        batch: list[_Waiting] = []
        while self._queue and self._queue[0].due <= now and len(batch) < self._batch_limit:
            batch.append(heappop(self._queue))
        for waiting in batch:
            self._count_out(waiting)
        return batch

    def _count_out(self, waiting: _Waiting) -> None:
        if waiting.held:
            self._held[waiting.notice.chat] -= 1
            if not self._held[waiting.notice.chat]:
                del self._held[waiting.notice.chat]

    def _let_go(self, told: list[_Waiting]) -> None:
        """Now that a later one was told, those held back in the same chat may follow."""
        now = asyncio.get_running_loop().time()
        later = {one.notice.chat: one.number for one in told if not one.held}
        chats = [chat for chat in later if self._held.get(chat)]
        if not chats:
            return
        for waiting in self._queue:
            chat = waiting.notice.chat
            if waiting.held and chat in chats and waiting.number < later[chat]:
                self._count_out(waiting)
                waiting.held, waiting.due = False, now
        heapify(self._queue)


async def _call(
    caller: Caller, subscription: Subscription, batch: list[_Waiting]
) -> tuple[int | None, str | None]:
    """The status of the answer, or why there is none."""
    content = batch[0].notice.content
    if isinstance(content, bytes):
        body, header = content, "X-Signature"
    else:
        items = [one.notice.content for one in batch]
        body = body_of(item for item in items if isinstance(item, Item))
        header = "X-Hub-Signature-256"
    headers = {"user-agent": "sandbox-webhooks"}
    if subscription.secret is not None:
        digest = hmac.new(subscription.secret.encode(), body, hashlib.sha256).hexdigest()
        headers[header] = f"sha256={digest}"
    try:
        async with asyncio.timeout(subscription.answer_seconds):
            return await caller.post(subscription.address, headers, body), None
    except TimeoutError:
        return None, f"no answer within {subscription.answer_seconds:g} s"
    except NoAnswer as error:
        return None, str(error)
