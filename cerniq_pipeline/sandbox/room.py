"""The one room behind both doors: accounts, chats and messages, rebuilt from the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from cerniq_pipeline.sandbox.journal import Line

AccountStatus = Literal["active", "disconnected"]

FIRST_CHAT_ID = 1_000_001

# How long after acceptance a message reaches each status.
STATUSES: tuple[tuple[timedelta, str], ...] = (
    (timedelta(), "Sending"),
    (timedelta(seconds=1), "Sent"),
    (timedelta(seconds=3), "Delivered"),
    (timedelta(seconds=10), "Read"),
)


@dataclass(frozen=True)
class Visibility:
    """When lists show a message (never, if None), and how many times."""

    shown_after: timedelta | None = timedelta()
    copies: int = 1


@dataclass(frozen=True)
class ViewRule:
    """A visibility forced on the messages of one phone, or of all phones."""

    phone: str | None
    visibility: Visibility


@dataclass(frozen=True)
class Account:
    """A phone that is, or was, linked to the workspace."""

    phone: str
    status: AccountStatus
    connected_on: datetime


@dataclass(frozen=True)
class Chat:
    """One account's conversation with one person or group."""

    id: int
    account: str
    recipient: str
    created_at: datetime


@dataclass(frozen=True)
class Message:
    """A message that was accepted; `sender` is the phone that it really leaves from."""

    uid: str
    chat_id: int
    sender: str
    recipient: str
    text: str
    accepted_at: datetime
    visibility: Visibility


def reached(message: Message, *, now: datetime) -> list[tuple[datetime, str]]:
    """The statuses that a message has gone through by now, oldest first."""
    age = now - message.accepted_at
    return [
        (message.accepted_at + after, status)
        for after, status in STATUSES
        if after <= max(age, timedelta())
    ]


def times_shown(message: Message, *, now: datetime, rules: Iterable[ViewRule] = ()) -> int:
    """How many times lists show a message at this moment; 0 when they hide it."""
    forced = [rule.visibility for rule in rules if rule.phone in (None, message.sender)]
    every = [message.visibility, *forced]
    age = now - message.accepted_at
    if any(one.shown_after is None or age < one.shown_after for one in every):
        return 0
    return max(one.copies for one in every)


@dataclass(frozen=True)
class View:
    """What a reader is shown: the messages of this moment, under the rules in force."""

    now: datetime
    rules: tuple[ViewRule, ...] = ()

    def of(self, messages: Iterable[Message]) -> list[Message]:
        """The messages in their order, hidden ones left out, doubled ones repeated."""
        return [
            message
            for message in messages
            for _ in range(times_shown(message, now=self.now, rules=self.rules))
        ]


class Room:
    """Everything the sandbox knows; changed only by lines of the journal."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._chats: dict[int, Chat] = {}
        self._chat_ids: dict[tuple[str, str], int] = {}
        self._by_chat: dict[int, list[Message]] = {}
        self._by_uid: dict[str, Message] = {}
        self._recent: list[Message] = []
        self._per_phone: Counter[str] = Counter()

    def apply(self, line: Line) -> None:
        """Take in one line of the journal; lines that change nothing here are passed over."""
        if line["event"] == "account":
            self._take_account(line)
        elif line["event"] == "accepted":
            self._take_message(line)

    def accounts(self) -> list[Account]:
        """All accounts, the most recently connected last."""
        return list(self._accounts.values())

    def account(self, phone: str) -> Account | None:
        """One account, if the phone was ever seen."""
        return self._accounts.get(phone)

    def default_sender(self) -> str | None:
        """The phone used when a caller names none: the most recently connected one."""
        for account in reversed(self._accounts.values()):
            if account.status == "active":
                return account.phone
        return None

    def chats(self) -> list[Chat]:
        """All chats, oldest first."""
        return list(self._chats.values())

    def chat(self, chat_id: int) -> Chat | None:
        """One chat, if there is such an id."""
        return self._chats.get(chat_id)

    def chat_id_for(self, account: str, recipient: str) -> int:
        """The id of their chat: the known one, or the one their first message will open."""
        known = self._chat_ids.get((account, recipient))
        return FIRST_CHAT_ID + len(self._chats) if known is None else known

    def history(self, chat_id: int) -> Sequence[Message]:
        """The messages of one chat, oldest first."""
        return self._by_chat.get(chat_id, ())

    def message(self, uid: str) -> Message | None:
        """One message, if there is such an id."""
        return self._by_uid.get(uid)

    def message_count(self) -> int:
        """How many messages were accepted."""
        return len(self._by_uid)

    def accepted_per_phone(self) -> dict[str, int]:
        """How many messages left from each phone."""
        return dict(self._per_phone)

    def latest(self, count: int) -> list[Message]:
        """The last accepted messages, newest first."""
        return self._recent[: -count - 1 : -1]

    def _take_account(self, line: Line) -> None:
        # A phone that connects moves to the end: the order of the table is the order of connecting.
        self._accounts.pop(line["phone"], None)
        self._accounts[line["phone"]] = Account(
            phone=line["phone"],
            status=line["status"],
            connected_on=datetime.fromisoformat(line["connected_on"]),
        )

    def _take_message(self, line: Line) -> None:
        shown_after_ms = line["shown_after_ms"]
        message = Message(
            uid=line["message_uid"],
            chat_id=line["chat_id"],
            sender=line["sender"],
            recipient=line["recipient"],
            text=line["text"],
            accepted_at=datetime.fromisoformat(line["at"]),
            visibility=Visibility(
                shown_after=None
                if shown_after_ms is None
                else timedelta(milliseconds=shown_after_ms),
                copies=line["copies"],
            ),
        )
        if message.chat_id not in self._chats:
            self._chats[message.chat_id] = Chat(
                id=message.chat_id,
                account=message.sender,
                recipient=message.recipient,
                created_at=message.accepted_at,
            )
            self._chat_ids[message.sender, message.recipient] = message.chat_id
        self._by_chat.setdefault(message.chat_id, []).append(message)
        self._by_uid[message.uid] = message
        self._recent.append(message)
        self._per_phone[message.sender] += 1
