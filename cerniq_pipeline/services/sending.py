"""One message in three beats: claim (one transaction), call (none open), record (one transaction).

What is known after each beat is in the database before the next one begins, so a process may die
anywhere: an attempt that was begun and not recorded is never repeated, only looked up. This is the
second beat, and the desk at which all three are done; `claiming.py` and `recording.py` are the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cerniq_pipeline.domain.clock import Clock
from cerniq_pipeline.domain.history import History
from cerniq_pipeline.domain.holds import Hold, Installation, hold_on_phone
from cerniq_pipeline.domain.outbox import Channel, OutboxMessage, Receipt
from cerniq_pipeline.domain.quotas import OPENS_A_CHAT
from cerniq_pipeline.errors import (
    MediaRefused,
    NotFound,
    ProviderUnreadable,
    ReadsUsedUp,
    SendDeferred,
    SendFailed,
    SendRejected,
    SendUnconfirmed,
    named,
)
from cerniq_pipeline.services import checkpoints, leasing, media
from cerniq_pipeline.services.reads import at_once
from cerniq_pipeline.store.database import Begin, Unavailable
from cerniq_pipeline.store.phones import Phone
from cerniq_pipeline.store.quotas import QuotaGate

CALL_DEADLINE = leasing.LEASE - timedelta(seconds=25)
"""No first byte later than this after the claim: the call must be over before the lease is."""

CHAT_PATIENCE = timedelta(seconds=10)
"""How long a claimed message may wait for its turn to ask which chat it belongs into."""


@dataclass(frozen=True)
class Desk:
    """Everything a shift brings along: where to write, whom to call, how fast time runs."""

    begin: Begin
    gate: QuotaGate
    channels: Mapping[str, Channel]
    """By provider: a phone belongs to one."""
    histories: Mapping[str, History]
    """Of those providers that show one."""
    clock: Clock
    luck: Callable[[], float]
    secret: bytes
    live: bool = False
    speed: float = 1.0
    sends_per_minute: int = 50

    def hold_on(self, phone: Phone, *, now: datetime) -> Hold | None:
        """The rule that keeps this phone silent at this desk now, or None."""
        here = Installation(self.live, self.channels.keys())
        return hold_on_phone(phone.facts, here=here, now=now)

    @property
    def listing(self) -> list[str]:
        """The providers whose histories can be asked what happened lately."""
        return [name for name, history in self.histories.items() if history.lists_chats]


def call(desk: Desk, message: OutboxMessage) -> Receipt | SendFailed:
    """Hand one claimed message to the provider: one call, one of the known outcomes.

    A fault of ours on the way there is one of them: nobody knows how far the call came.
    """
    try:
        return _call(desk, message)
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it costs this message only
        return SendUnconfirmed("UNEXPECTED", named(error))


def _call(desk: Desk, message: OutboxMessage) -> Receipt | SendFailed:
    """Make the call, with all that must go before it.

    What belongs into an existing chat needs its id, which is looked up when it is not known yet;
    a file goes ahead of its message. Both may fail without anything having been sent.
    """
    channel = desk.channels[message.provider]
    if message.kind not in OPENS_A_CHAT and message.chat_id is None:
        try:
            turn = at_once(desk, message.provider, patience=CHAT_PATIENCE)
            chat_id = channel.find_chat(message, turn=turn)
        except ReadsUsedUp as used_up:
            return SendDeferred("READS_USED_UP", str(used_up))
        except ProviderUnreadable as unreadable:
            return SendDeferred("UNREACHABLE", str(unreadable))
        if chat_id is None:
            return SendDeferred("CHAT_UNKNOWN", "the provider shows no chat with this lead yet")
        message = replace(message, chat_id=chat_id)
        checkpoints.reach("chat_looked_up")
    attachment = None
    if message.media is not None:
        try:
            attachment = channel.upload(message, media.content_of(desk.begin, message.media.id))
        except (MediaRefused, NotFound) as unusable:
            return SendRejected("INVALID_MEDIA", str(unusable))
        except SendFailed as outcome:
            return outcome
    checkpoints.reach("call_before_first_byte")
    if desk.clock.now() - message.begun_at > CALL_DEADLINE:
        return SendDeferred("TOO_LATE", "this process stood still between claim and call")
    try:
        receipt = channel.send(message, attachment=attachment)
    except SendFailed as outcome:
        return outcome
    return receipt if receipt.chat_id else replace(receipt, chat_id=message.chat_id)


def gap_after(desk: Desk, phone: Phone, message: OutboxMessage) -> timedelta:
    """How long this phone rests after this message; a file takes a person less time to send."""
    gap = phone.tenant.media_gap if message.media else phone.tenant.gap
    return gap.draw(desk.luck(), speed=desk.speed)
