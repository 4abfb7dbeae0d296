"""The one room behind all doors: accounts, chats, messages and files, rebuilt from the journal."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal

from cerniq_pipeline.sandbox.journal import Line

AccountStatus = Literal["active", "disconnected"]
Provider = Literal["timelinesai", "meta", "slack"]
Origin = Literal["Public API", "WhatsApp"]
Form = Literal["text", "image", "video", "audio", "document", "sticker", "location", "call"]

FIRST_CHAT_ID = 1_000_001
WINDOW = timedelta(hours=24)

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
    """A phone that is, or was, linked to one vendor or to several."""

    phone: str
    status: AccountStatus
    connected_on: datetime
    providers: tuple[Provider, ...] = ("timelinesai",)

    @property
    def home(self) -> Provider:
        """The vendor through which the phone hears what people write to it."""
        return "timelinesai" if "timelinesai" in self.providers else self.providers[0]


@dataclass(frozen=True)
class Chat:
    """One account's conversation with one person or group, as one vendor has it."""

    id: int
    account: str
    recipient: str
    created_at: datetime
    provider: Provider = "timelinesai"


@dataclass(frozen=True)
class Attachment:
    """A file that goes with a message; its content is not kept, only what identifies it.

    A file that a vendor fetches from a link is not fetched here: nothing leaves this machine. It
    has a `source_url` but no hash, and a size of 0.
    """

    uid: str
    filename: str
    mimetype: str
    size: int
    sha256: str | None
    source_url: str | None = None

    def described(self) -> dict[str, Any]:
        """The file as the journal shows it; `source_url` only where there is one."""
        fields = asdict(self)
        if self.source_url is None:
            del fields["source_url"]
        return fields


@dataclass(frozen=True)
class Message:
    """A message that was accepted or received; `sender` is who it really comes from."""

    uid: str
    chat_id: int
    sender: str
    recipient: str
    text: str
    at: datetime
    visibility: Visibility
    from_me: bool = True
    origin: Origin = "Public API"
    provider: Provider = "timelinesai"
    attachment: Attachment | None = None
    arrived_at: datetime | None = None
    """When the vendor heard of it, if that is not the moment it was written."""
    delivered: bool = True
    """False for a message that a dead phone keeps to itself."""
    failed_at: datetime | None = None
    read: bool = True
    """False for a message to somebody who does not open it, or does not let us know."""
    form: Form = "text"
    place: Mapping[str, Any] | None = None
    number_hidden: bool = False
    """Whether the person shows Meta's id of a user and no number."""
    callback: str | None = None
    """What the sender wants back with each status."""
    persona: str | None = None
    """What kind of person wrote it, when a player did."""

    @property
    def account(self) -> str:
        """Our end."""
        return self.sender if self.from_me else self.recipient

    @property
    def contact(self) -> str:
        """The other end."""
        return self.recipient if self.from_me else self.sender

    @property
    def known_at(self) -> datetime:
        """When the vendor could first show it."""
        return self.arrived_at or self.at


def stages(message: Message) -> list[tuple[datetime, str]]:
    """The statuses that a message goes through when all is well, and when."""
    steps = STATUSES if message.read else STATUSES[:-1]
    return [(message.at + after, status) for after, status in steps]


def reached(message: Message, *, now: datetime) -> list[tuple[datetime, str]]:
    """The statuses that a message has gone through by now, oldest first."""
    if not message.from_me:
        return [(message.at, "Read")]
    if not message.delivered:
        return [(message.at, "Sending")]
    age = max(now - message.at, timedelta())
    steps = [(at, status) for at, status in stages(message) if at - message.at <= age]
    if message.failed_at is not None:
        return [steps[0], (message.failed_at, "Failed")]
    return steps


def times_shown(message: Message, *, now: datetime, rules: Iterable[ViewRule] = ()) -> int:
    """How many times lists show a message at this moment; 0 when they hide it."""
    forced = [rule.visibility for rule in rules if rule.phone in (None, message.account)]
    every = [message.visibility, *forced]
    age = now - message.known_at
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


@dataclass(frozen=True)
class Note:
    """A text that was posted to Slack."""

    at: datetime
    text: str


class Room:
    """Everything the sandbox knows; changed only by lines of the journal."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._chats: dict[int, Chat] = {}
        self._chat_ids: dict[tuple[Provider, str, str], int] = {}
        self._by_chat: dict[int, list[Message]] = {}
        self._by_uid: dict[str, Message] = {}
        self._order: list[str] = []
        self._accepted: Counter[tuple[Provider, str]] = Counter()
        self._received: Counter[str] = Counter()
        self._heard: dict[tuple[str, str], datetime] = {}
        self._files: dict[tuple[Provider, str], Attachment] = {}
        self._notes: list[Note] = []
        self._talks: dict[int, None] = {}
        self._told: dict[str, str] = {}
        self._reactions: dict[str, str] = {}

    def apply(self, line: Line) -> None:
        """Take in one line of the journal; lines that change nothing here are passed over."""
        match line["event"]:
            case "account":
                self._take_account(line)
            case "accepted":
                self._take_accepted(line)
            case "inbound":
                self._take_inbound(line)
            case "call":
                self._keep(_heard_message(line))
            case "reaction":
                self._take_reaction(line)
            case "webhook":
                if line["message_uid"] is not None:
                    self._told[line["message_uid"]] = line["outcome"]
            case "status":
                self._take_status(line)
            case "upload":
                file = Attachment(**line["attachment"])
                self._files[line["provider"], file.uid] = file
            case "deleted":
                self._files.pop((line["provider"], line["uid"]), None)
            case "slack":
                self._notes.append(Note(datetime.fromisoformat(line["at"]), line["text"]))
            case _:
                pass

    def accounts(self) -> list[Account]:
        """All accounts, the most recently connected last."""
        return list(self._accounts.values())

    def account(self, phone: str) -> Account | None:
        """One account, if the phone was ever seen."""
        return self._accounts.get(phone)

    def default_sender(self, provider: Provider = "timelinesai") -> str | None:
        """The phone used when a caller names none: the most recently connected one."""
        for account in reversed(self._accounts.values()):
            if account.status == "active" and provider in account.providers:
                return account.phone
        return None

    def chats(self, provider: Provider = "timelinesai") -> list[Chat]:
        """All chats that a vendor has, oldest first."""
        return [chat for chat in self._chats.values() if chat.provider == provider]

    def chat(self, chat_id: int, provider: Provider = "timelinesai") -> Chat | None:
        """One chat, if the vendor knows such an id."""
        chat = self._chats.get(chat_id)
        return chat if chat is not None and chat.provider == provider else None

    def chat_id_for(self, account: str, contact: str, provider: Provider = "timelinesai") -> int:
        """The id of their chat: the known one, or the one their first message will open."""
        known = self._chat_ids.get((provider, account, contact))
        return FIRST_CHAT_ID + len(self._chats) if known is None else known

    def history(self, chat_id: int) -> Sequence[Message]:
        """The messages of one chat, oldest first."""
        return self._by_chat.get(chat_id, ())

    def message(self, uid: str) -> Message | None:
        """One message, if there is such an id."""
        return self._by_uid.get(uid)

    def file(self, uid: str, provider: Provider) -> Attachment | None:
        """One file that was left with a vendor, if it has such an id."""
        return self._files.get((provider, uid))

    def window_open(self, account: str, contact: str, *, now: datetime) -> bool:
        """Whether this person wrote to this account in the last 24 hours."""
        heard = self._heard.get((account, contact))
        return heard is not None and now - heard < WINDOW

    def message_count(self, provider: Provider | None = None) -> int:
        """How many messages were accepted, by one vendor or by all."""
        counts = self._accepted.items()
        return sum(count for (who, _), count in counts if provider in (None, who))

    def accepted_per_phone(self) -> dict[str, int]:
        """How many messages left from each phone."""
        counts: Counter[str] = Counter()
        for (_, phone), count in self._accepted.items():
            counts[phone] += count
        return counts

    def received_per_phone(self) -> dict[str, int]:
        """How many messages people wrote to each phone."""
        return dict(self._received)

    def latest(self, count: int) -> list[Message]:
        """The last messages, accepted or received, newest first."""
        return [self._by_uid[uid] for uid in self._order[: -count - 1 : -1]]

    def talks(self, count: int) -> list[Chat]:
        """The chats in which somebody answered or wrote first, the last to move first."""
        return [self._chats[chat_id] for chat_id in islice(reversed(self._talks), count)]

    def told(self, uid: str) -> str | None:
        """What became of the webhook about a message, None when nobody was to be called."""
        return self._told.get(uid)

    def reaction_to(self, uid: str) -> str | None:
        """The emoji that a person put on a message."""
        return self._reactions.get(uid)

    def notes(self, count: int) -> list[Note]:
        """The last notes to Slack, newest first."""
        return self._notes[: -count - 1 : -1]

    def _take_account(self, line: Line) -> None:
        phone = line["phone"]
        known = self._accounts.get(phone)
        seen = known.providers if known else ()
        account = Account(
            phone=phone,
            status=line["status"],
            connected_on=datetime.fromisoformat(line["connected_on"]),
            providers=tuple(dict.fromkeys((*seen, line["provider"]))),
        )
        if known is None or known.status != account.status:
            # A phone that connects moves to the end: the table is in the order of connecting.
            self._accounts.pop(phone, None)
        self._accounts[phone] = account

    def _take_accepted(self, line: Line) -> None:
        # Lines of older journals lack what the sandbox has learned since.
        shown_after_ms = line["shown_after_ms"]
        message = Message(
            uid=line["message_uid"],
            chat_id=line["chat_id"],
            sender=line["sender"],
            recipient=line["recipient"],
            text=line["text"],
            at=datetime.fromisoformat(line["at"]),
            visibility=Visibility(
                shown_after=None
                if shown_after_ms is None
                else timedelta(milliseconds=shown_after_ms),
                copies=line["copies"],
            ),
            provider=line["provider"],
            attachment=_attachment(line),
            delivered=line.get("delivered", True),
            read=line.get("read", True),
            callback=line.get("callback"),
        )
        self._accepted[message.provider, message.sender] += 1
        self._keep(message)

    def _take_inbound(self, line: Line) -> None:
        message = _heard_message(line)
        if not message.from_me:
            self._received[message.account] += 1
            pair = message.account, message.contact
            self._heard[pair] = max(message.at, self._heard.get(pair, message.at))
        if message.attachment is not None and message.provider == "meta":
            # Meta's webhook names a file by an id under which it can be asked for.
            self._files[message.provider, message.attachment.uid] = message.attachment
        self._keep(message)

    def _take_reaction(self, line: Line) -> None:
        self._reactions[line["reacts_to"]] = line["emoji"]
        self._talk(line["chat_id"])

    def _take_status(self, line: Line) -> None:
        known = self._by_uid[line["message_uid"]]
        failed = replace(known, failed_at=datetime.fromisoformat(line["at"]))
        history = self._by_chat[known.chat_id]
        history[history.index(known)] = failed
        self._by_uid[known.uid] = failed

    def _keep(self, message: Message) -> None:
        if message.chat_id not in self._chats:
            self._chats[message.chat_id] = Chat(
                id=message.chat_id,
                account=message.account,
                recipient=message.contact,
                created_at=message.at,
                provider=message.provider,
            )
            key = message.provider, message.account, message.contact
            self._chat_ids[key] = message.chat_id
        # A message that was told late still stands where it was written.
        insort(self._by_chat.setdefault(message.chat_id, []), message, key=lambda one: one.at)
        self._by_uid[message.uid] = message
        self._order.append(message.uid)
        if not message.from_me or message.chat_id in self._talks:
            self._talk(message.chat_id)

    def _talk(self, chat_id: int) -> None:
        """A chat in which the other side was heard goes to the end whenever something happens."""
        self._talks.pop(chat_id, None)
        self._talks[chat_id] = None


def _heard_message(line: Line) -> Message:
    return Message(
        uid=line["message_uid"],
        chat_id=line["chat_id"],
        sender=line["sender"],
        recipient=line["recipient"],
        text=line["text"],
        at=datetime.fromisoformat(line["message_at"]),
        visibility=Visibility(),
        from_me=line["from_me"],
        origin="WhatsApp",
        provider=line["provider"],
        attachment=_attachment(line),
        arrived_at=datetime.fromisoformat(line["at"]),
        form=line.get("type", "text"),
        place=line.get("place"),
        number_hidden=line.get("number_hidden", False),
        persona=line.get("persona"),
    )


def _attachment(line: Line) -> Attachment | None:
    described = line.get("attachment")
    return None if described is None else Attachment(**described)
