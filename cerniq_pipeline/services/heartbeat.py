"""Let our phones write to each other: a phone that is connected but dead is not heard.

A heartbeat is a real message, so it obeys every rule of its phone and is written down before a
byte leaves. It is never sent again, whatever happens: the next one is due soon enough.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count

from sqlalchemy import Connection

from cerniq_pipeline.domain.history import History, RecentChat
from cerniq_pipeline.domain.holds import Hold
from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt
from cerniq_pipeline.domain.reads import Turn
from cerniq_pipeline.errors import (
    AccountSuspended,
    LeaseLost,
    PhoneUnusable,
    ProviderUnreadable,
    QuotaUnknown,
    SendFailed,
    SendUnconfirmed,
    Stopped,
)
from cerniq_pipeline.logs import event
from cerniq_pipeline.services import breaking, checkpoints, leasing, recording, sending
from cerniq_pipeline.services.history import CLOCK_SLACK
from cerniq_pipeline.services.leasing import Holder, Lease
from cerniq_pipeline.services.reads import turns
from cerniq_pipeline.services.sending import CALL_DEADLINE, Desk
from cerniq_pipeline.services.work_shift import LINGER, NAP, uninterrupted
from cerniq_pipeline.store import alerts, leases, phone_health, phones
from cerniq_pipeline.store.phone_health import Heartbeat, Pair
from cerniq_pipeline.store.phones import Phone

HEARD_WITHIN = timedelta(minutes=5)
TRY_AGAIN = timedelta(seconds=5)
LOOK_AGAIN = timedelta(seconds=20)

NOBODY = uuid.UUID(int=0)
"""Whose lead a heartbeat is."""


@dataclass(frozen=True)
class Begun:
    """A heartbeat that is written down and may be sent, once."""

    id: int
    message: OutboxMessage


def work_to_do(desk: Desk) -> bool:
    """Whether a phone is due and may write now, or a heartbeat is to be looked for."""
    with desk.begin() as conn:
        now = desk.clock.now()
        if phone_health.open_heartbeats(conn):
            return True
        due = phone_health.due_heartbeats(conn, providers=desk.listing, now=now)
        holds = [desk.hold_on(phones.get(conn, pair.phone_id), now=now) for pair in due]
    return any(hold is None or hold.rule == "pacing" for hold in holds)


# ── Writing ───────────────────────────────────────────────────────────────────────────────────


def beat(desk: Desk, me: Holder, *, patience: timedelta) -> Counter[str]:
    """Let every phone that is due write once to another; returns what became of each.

    Waits for phones that are on shift, for so long as `patience` allows.
    """
    until = desk.clock.now() + patience
    counts: Counter[str] = Counter()
    finished: set[str] = set()
    while True:
        with desk.begin() as conn:
            now = desk.clock.now()
            due = phone_health.due_heartbeats(conn, providers=desk.listing, now=now)
        busy = 0
        for pair in due:
            if pair.phone_id in finished:
                continue
            if desk.clock.now() > until:
                break  # the gaps of the phones before it took all the time; it stays due
            result = _beat(desk, pair.phone_id, me)
            busy += result == "busy"
            if result != "busy":
                counts[result] += 1
                finished.add(pair.phone_id)
        if not busy or desk.clock.now() >= until:
            return counts + Counter(busy=busy)
        desk.clock.sleep(TRY_AGAIN.total_seconds())


def _beat(desk: Desk, phone_id: str, me: Holder) -> str:
    lease = leasing.acquire(desk.begin, phone_id, me, now=desk.clock.now())
    if lease is None:
        return "busy"
    try:
        result = _write(desk, lease)
    except LeaseLost:
        event("heartbeat", "replaced", level="warning", phone=phone_id, run=me.name)
        # This process lives on: a lease left behind would have it ended for overstaying.
        leasing.give_back(desk.begin, lease)
        return "replaced"
    except Stopped:
        leasing.give_back(desk.begin, lease)
        raise
    leasing.give_back(desk.begin, lease)
    event("heartbeat", f"heartbeat_{result}", phone=phone_id, run=me.name)
    return result


def _write(desk: Desk, lease: Lease) -> str:
    while True:
        with uninterrupted():
            begun = _begin(desk, lease)
            if isinstance(begun, Begun):
                return _send(desk, begun)
        if begun is None:
            return "not due"
        now = desk.clock.now()
        if begun.rule not in ("pacing", "rate_limit") or begun.until is None:
            return f"held: {begun.rule}"
        if begun.until - now > LINGER:
            return f"held: {begun.rule}"
        # The phone is kept meanwhile, or its next shift would always be there first.
        desk.clock.sleep(min(begun.until - now, NAP).total_seconds())
        leasing.confirm(desk.begin, lease, now=desk.clock.now())


def _begin(desk: Desk, lease: Lease) -> Begun | Hold | None:
    """Write the next heartbeat of this phone down, or say what holds it; None: it is not due."""
    try:
        with desk.begin() as conn:
            now = desk.clock.now()
            leasing.check(leases.lock(conn, lease.phone_id), lease, now=now)
            leases.extend(conn, lease.phone_id, until=now + leasing.LEASE)
            phone = phones.get(conn, lease.phone_id)
            providers = desk.listing
            pairs = phone_health.due_heartbeats(
                conn, providers=providers, now=now, phone_id=phone.id
            )
            if not pairs:
                return None
            hold = _hold(desk, phone, now=now)
            if hold is not None:
                return hold
            begun = _note(desk, conn, phone, pairs[0], lease, now=now)
            checkpoints.reach("claim_before_commit")
        checkpoints.reach("claim_committed")
    except QuotaUnknown as unknown:
        return Hold("quota_unknown", str(unknown), None)
    return begun


def _hold(desk: Desk, phone: Phone, *, now: datetime) -> Hold | None:
    """The rule that keeps this phone silent now, the account's rate among them."""
    hold = desk.hold_on(phone, now=now)
    if hold is None and phone.facts.breakers:
        hold = Hold("breaker_open", "a heartbeat is not what an open breaker is tried with", None)
    if hold is not None:
        return hold
    free_at = desk.gate.rate(
        f"send:{phone.provider}",
        most=max(1, round(desk.sends_per_minute * desk.speed)),
        window=timedelta(minutes=1),
        now=now,
        token=f"heartbeat:{uuid.uuid4().hex}",
    )
    if free_at is None:
        return None
    return Hold("rate_limit", f"{desk.sends_per_minute} sends a minute are out", free_at)


def _note(
    desk: Desk, conn: Connection, phone: Phone, pair: Pair, lease: Lease, *, now: datetime
) -> Begun:
    body = f"Test de linie {uuid.uuid4().hex[:12]}"
    heartbeat_id = phone_health.begin_heartbeat(
        conn, tenant_id=phone.tenant.id, pair=pair, body=body, now=now
    )
    message = OutboxMessage(
        id=0,
        tenant_id=phone.tenant.id,
        channel="WHATSAPP",
        provider=phone.provider,
        kind="initial",  # like a first message it needs no chat, and its sender is checked
        lead_id=NOBODY,
        phone_id=phone.id,
        sender=phone.number,
        account_id=phone.account_id,
        to=phones.get(conn, pair.to_phone_id).number,
        chat_id=None,
        body=body,
        sequence_id=None,
        step=None,
        attempt=1,
        fence=lease.fence,
        begun_at=now,
    )
    # If this process dies, the call may have gone out at any moment until its deadline.
    gap = sending.gap_after(desk, phone, message)
    phones.set_next_send(conn, phone.id, at=now + CALL_DEADLINE + gap)
    return Begun(heartbeat_id, message)


def _send(desk: Desk, begun: Begun) -> str:
    outcome = sending.call(desk, begun.message)
    message = begun.message
    checkpoints.reach("call_answered")
    with desk.begin() as conn:
        now = desk.clock.now()
        breaking.note(conn, message, outcome, now=now)
        if isinstance(outcome, SendFailed) and not isinstance(outcome, SendUnconfirmed):
            phone_health.settle_heartbeat(conn, begun.id, outcome="not_sent", now=now)
        match outcome:
            case PhoneUnusable():
                recording.stop_phone(conn, message, outcome, now=now)
            case AccountSuspended():
                recording.stop_account(conn, message, "account_suspended", str(outcome), now=now)
            case _:
                pass
        phone = phones.get(conn, message.phone_id)
        phones.set_next_send(conn, phone.id, at=now + sending.gap_after(desk, phone, message))
        checkpoints.reach("record_before_commit")
    checkpoints.reach("record_committed")
    if isinstance(outcome, Receipt):
        return "sent" if recording.check_sender(desk, message, outcome) else "wrong sender"
    return "unconfirmed" if isinstance(outcome, SendUnconfirmed) else "not sent"


# ── Listening ─────────────────────────────────────────────────────────────────────────────────


def settle_heartbeats(desk: Desk) -> Counter[str]:
    """Look for every open heartbeat at the phone that it was for.

    Shown there → seen. Not shown in time → lost, and the sender is said to be dead; but when not
    even the sender's own chat shows it, nothing ever left. What cannot be read stays open.
    """
    with desk.begin() as conn:
        waiting = phone_health.open_heartbeats(conn)
    counts: Counter[str] = Counter()
    ears = _Ears(desk, since=min((one.begun_at for one in waiting), default=desk.clock.now()))
    for heartbeat in waiting:
        asked_at = desk.clock.now()
        try:
            outcome = _look_for(ears, heartbeat, asked_at=asked_at)
        except ProviderUnreadable as error:
            event("heartbeat", "look_up_failed", level="warning", error=str(error))
            counts["unreadable"] += 1
            continue
        counts[outcome or "waiting"] += 1
        if outcome is not None:
            _settle(desk, heartbeat, outcome)
    return counts


def settle_until_quiet(desk: Desk, *, longest: timedelta) -> Counter[str]:
    """Look now and then every few seconds, until nothing is open or the time is up."""
    until = desk.clock.now() + longest
    total: Counter[str] = Counter()
    while True:
        counts = settle_heartbeats(desk)
        undecided = counts.pop("waiting", 0) + counts.pop("unreadable", 0)
        total += counts
        if not undecided or desk.clock.now() >= until:
            return total + Counter(undecided=undecided)
        desk.clock.sleep(LOOK_AGAIN.total_seconds())


class _Ears:
    """What the providers show of our phones' chats with each other, listed once for all."""

    def __init__(self, desk: Desk, *, since: datetime) -> None:
        self._desk = desk
        self._since = since - CLOCK_SLACK
        self._listed: dict[str, tuple[Turn, list[RecentChat]]] = {}

    def hears(self, provider: str, *, account: str, contact: str, text: str, sent: bool) -> bool:
        """Whether this account's chat with the other shows the text, as sent or as received."""
        turn, chats = self._chats(provider)
        history = self._desk.histories[provider]
        ours: Iterable[RecentChat] = (
            chat for chat in chats if (chat.account, chat.contact) == (account, contact)
        )
        return any(
            message.from_us == sent and message.text.strip() == text
            for chat in ours
            for message in history.messages(chat, since=self._since, turn=turn)
            if message is not None
        )

    def _chats(self, provider: str) -> tuple[Turn, list[RecentChat]]:
        if provider not in self._listed:
            history = self._desk.histories.get(provider)
            if history is None:
                raise ProviderUnreadable(f"{provider} shows no history")
            turn = turns(self._desk, provider)
            chats = list(_every_chat(history, since=self._since, turn=turn))
            self._listed[provider] = turn, chats
        return self._listed[provider]


def _every_chat(history: History, *, since: datetime, turn: Turn) -> Iterator[RecentChat]:
    for number in count(1):
        page = history.recent_chats(since=since, turn=turn, page=number)
        yield from page.chats
        if page.is_last:
            return


def _look_for(ears: _Ears, heartbeat: Heartbeat, *, asked_at: datetime) -> str | None:
    at_receiver = ears.hears(
        heartbeat.receiver_provider,
        account=heartbeat.receiver,
        contact=heartbeat.sender,
        text=heartbeat.body,
        sent=False,
    )
    if at_receiver:
        return "seen"
    if asked_at - heartbeat.begun_at < HEARD_WITHIN:
        return None
    left = ears.hears(
        heartbeat.sender_provider,
        account=heartbeat.sender,
        contact=heartbeat.receiver,
        text=heartbeat.body,
        sent=True,
    )
    return "lost" if left else "not_sent"


def _settle(desk: Desk, heartbeat: Heartbeat, outcome: str) -> None:
    with desk.begin() as conn:
        now = desk.clock.now()
        if not phone_health.settle_heartbeat(conn, heartbeat.id, outcome=outcome, now=now):
            return
        if outcome == "seen":
            alerts.close(conn, kinds=("phone_dead",), subjects=[heartbeat.phone_id], now=now)
        if outcome == "lost":
            minutes = HEARD_WITHIN // timedelta(minutes=1)
            alerts.open_once(
                conn,
                tenant_id=heartbeat.tenant_id,
                kind="phone_dead",
                subject=heartbeat.phone_id,
                detail=f"it is connected, but its message to our own phone was not heard "
                f"in {minutes} minutes",
                now=now,
            )
    event("heartbeat", f"heartbeat_{outcome}", phone=heartbeat.phone_id)
