"""What was said, as TimelinesAI shows it: recent chats, and both sides of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from cerniq_pipeline.domain.history import ChatPage, History, HistoryMessage, RecentChat, Shown
from cerniq_pipeline.domain.reads import Turn
from cerniq_pipeline.errors import ProviderUnreadable
from cerniq_pipeline.providers.bodies import e164, hidden_id, word
from cerniq_pipeline.providers.timelinesai.reading import (
    ODD_FORMS,
    NotThere,
    data_of,
    moment,
    odd_answers_are_unreadable,
    one_page,
    pages,
    read,
)
from cerniq_pipeline.providers.timelinesai.webhooks import Told, message_event

MOST_PAGES_OF_CHATS = 10_000
ASKED_FOR_WITHIN = httpx.Timeout(3.0)
"""A reply waits for this answer, and others wait behind it."""

VENDOR_TIME = "%Y-%m-%d %H:%M:%S %z"
STATUSES = {
    "pending": "sending",
    "queued": "sending",
    "sending": "sending",
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "failed": "failed",
}
"""The vendor's words in lower case; one that is not here has at least left, or it was not shown."""

Row = TypeVar("Row")

NAMELESS_FILE: dict[str, Any] = {"temporary_download_url": None, "filename": None}
"""`v1` tells that there is a file, and no more."""


class PublicHistory:
    """A History over the vendor's public API."""

    lists_chats = True

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def recent_chats(self, *, since: datetime, turn: Turn, page: int = 1) -> ChatPage:
        """One page of chats with a person, newest first; the last is the first with an old one."""
        since = _whole_second(since)
        told = one_page(
            self._client,
            "/chats",
            {"with_msg": "true"},
            turn=partial(turn, "chats"),
            page=page,
            most=MOST_PAGES_OF_CHATS,
        )
        rows = _each(told.data, "chats", partial(_row, since=since))
        found = {row.chat.chat_id: row.chat for row in rows if row and row.chat}
        dated = [row.young for row in rows if row is not None and row.young is not None]
        return ChatPage(
            tuple(found.values()),
            is_last=not told.more or dated[-1:] == [False],
            nameless=rows.count(None),
        )

    def shown(self, external_id: str, *, chat_id: str | None, turn: Turn) -> Shown | None:
        """The message that the vendor has under this id."""
        take = partial(turn, "history")
        try:
            with odd_answers_are_unreadable():
                path = f"/messages/{quote(external_id, safe='')}"
                told = data_of(read(self._client, path, turn=take, timeout=ASKED_FOR_WITHIN))
                return _shown(_told_in_public(told))
        except NotThere:
            return None

    def messages(
        self, chat: RecentChat, *, since: datetime | None, turn: Turn
    ) -> Iterator[HistoryMessage | None]:
        """Every WhatsApp message of the chat, both ways; notes, calls and summaries are none."""
        query = {} if since is None else {"after": _whole_second(since).isoformat()}
        path = f"/chats/{quote(chat.chat_id, safe='')}/messages"
        for page in pages(self._client, path, query, turn=partial(turn, "history")):
            for told in _each(page, "messages", partial(_messages, chat=chat)):
                yield from (None,) if told is None else told


class V1History:
    """A History over the documents' addresses: one chat's last 100 messages, and no list."""

    lists_chats = False

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def recent_chats(self, *, since: datetime, turn: Turn, page: int = 1) -> ChatPage:
        """Always unreadable: the dialect has no list of chats."""
        raise ProviderUnreadable("timelinesai v1 cannot list chats; use the public dialect")

    def shown(self, external_id: str, *, chat_id: str | None, turn: Turn) -> Shown | None:
        """The message that has this id among the chat's last 100."""
        if chat_id is None:
            return None
        try:
            path = f"/chats/{quote(chat_id, safe='')}/messages"
            take = partial(turn, "history")
            body = read(self._client, path, {"limit": "100"}, turn=take, timeout=ASKED_FOR_WITHIN)
        except NotThere:
            return None
        with odd_answers_are_unreadable():
            found = (one for one in body["messages"] if str(one["message_id"]) == external_id)
            return next((_shown(_told_in_v1(one)) for one in found), None)

    def messages(
        self, chat: RecentChat, *, since: datetime | None, turn: Turn
    ) -> Iterator[HistoryMessage | None]:
        """The last 100 messages of the chat, both ways; the dialect has no second page."""
        path = f"/chats/{quote(chat.chat_id, safe='')}/messages"
        body = read(self._client, path, {"limit": "100"}, turn=partial(turn, "history"))
        for told in _each(body, "messages", lambda one: _message(_told_in_v1(one), chat)):
            if told is None or since is None or told.at >= _whole_second(since):
                yield told


HISTORIES: dict[str, Callable[[httpx.Client], History]] = {
    "public": PublicHistory,
    "v1": V1History,
}


@dataclass(frozen=True)
class _Row:
    """A row of the list of chats; the chat is None when nobody is at its other end."""

    young: bool | None
    """None: nobody said anything in it, or nobody knows when."""
    chat: RecentChat | None = None


def _each(body: Any, key: str, read_one: Callable[[Any], Row]) -> list[Row | None]:
    """What each row of a list says; None for one of an unknown form, which costs no other.

    A list of nothing but such rows has an unknown form itself.
    """
    with odd_answers_are_unreadable():
        rows = list(body[key])
    told: list[Row | None] = []
    for row in rows:
        try:
            told.append(read_one(row))
        except ODD_FORMS:
            told.append(None)
    if told and all(one is None for one in told):
        raise ProviderUnreadable(f"timelinesai lists {key} in an unknown form")
    return told


def _whole_second(since: datetime) -> datetime:
    """The vendor's times have no fractions: what was said in the same second is recent too."""
    return since.replace(microsecond=0)


def _last_at(chat: dict[str, Any]) -> datetime | None:
    """When something was last said in a chat; None when nothing ever was."""
    written = chat["last_message_timestamp"]
    return moment(written) if written else None


def _has_only_our_first(chat: dict[str, Any]) -> bool:
    """Whether a chat was opened by our own program and nothing was said in it since."""
    last = chat.get("last_message") or {}
    ours = bool(last.get("from_me")) and _by_api(last.get("origin"))
    return ours and chat.get("created_timestamp") == chat["last_message_timestamp"]


def _by_api(origin: Any) -> bool:
    return str(origin or "").lower() == "public api"


def _row(chat: dict[str, Any], *, since: datetime) -> _Row:
    """A chat with a person; none for a group, or when it does not say with whom.

    Where only the id can be read the messages must tell the rest.
    """
    chat_id = word(chat["id"])
    if chat_id is None:
        raise LookupError("a chat without an id")
    try:
        last_at = _last_at(chat)
        if last_at is None or last_at < since:
            return _Row(young=None if last_at is None else False)
        ours, theirs = e164(chat["whatsapp_account_id"]), _person(chat["phone"], chat.get("jid"))
        if chat["is_group"] or ours is None or theirs is None:
            return _Row(young=True)
        only_ours = _has_only_our_first(chat)
        return _Row(True, RecentChat(chat_id, ours, theirs, last_at, only_ours=only_ours))
    except ODD_FORMS:
        return _Row(None, RecentChat(chat_id, "", "", last_at=since))


def _person(*names: Any) -> str | None:
    """A person's number, or else the id that stands for a hidden one."""
    found = [*map(e164, names), *map(hidden_id, names)]
    return next(filter(None, found), None)


def _is_whatsapp(told: dict[str, Any]) -> bool:
    return told["message_type"] == "whatsapp"


def _messages(told: dict[str, Any], *, chat: RecentChat) -> tuple[HistoryMessage, ...]:
    """The message; nothing for a note, a call or a summary."""
    return (_message(_told_in_public(told), chat),) if _is_whatsapp(told) else ()


def _told_in_public(told: dict[str, Any]) -> Told:
    file = {
        "temporary_download_url": told.get("attachment_url"),
        "filename": told.get("attachment_filename"),
    }
    return Told(
        uid=str(told["uid"]),
        from_us=told["from_me"],
        text=told["text"] or "",
        status=str(told["status"]),
        origin=str(told.get("origin") or ""),
        sender=told["sender_phone"] or "",
        sender_name=told.get("sender_name") or "",
        recipient=told["recipient_phone"] or "",
        recipient_name=told.get("recipient_name") or "",
        timestamp=told["timestamp"],
        received_timestamp=told.get("received_timestamp") or told["timestamp"],
        attachments=(file,) if told.get("has_attachment") else (),
    )


def _told_in_v1(told: dict[str, Any]) -> Told:
    at = datetime.fromisoformat(told["timestamp"]).strftime(VENDOR_TIME)
    return Told(
        uid=str(told["message_id"]),
        from_us=told["from_me"],
        text=told["message"] or "",
        status=str(told["status"]),
        origin=str(told.get("origin") or ""),
        sender=told["phone"] or "",
        sender_name="",
        recipient=told["recipient"] or "",
        recipient_name="",
        timestamp=at,
        received_timestamp=at,
        attachments=(NAMELESS_FILE,) if told.get("has_attachment") else (),
    )


def _shown(told: Told) -> Shown:
    return Shown(bool(told.from_us), told.text, STATUSES.get(told.status.lower(), "sent"))


def _message(told: Told, chat: RecentChat) -> HistoryMessage:
    ours, theirs = (told.sender, told.recipient) if told.from_us else (told.recipient, told.sender)
    if not chat.account or not chat.contact:
        account, contact = e164(ours), _person(theirs)
        if account is None or contact is None:
            raise LookupError("neither the list nor the message says who speaks with whom")
        chat = replace(chat, account=account, contact=contact)
    return HistoryMessage(
        external_id=told.uid,
        chat_id=chat.chat_id,
        from_us=told.from_us,
        account=e164(ours) or chat.account,
        contact=e164(theirs) or chat.contact,
        text=told.text,
        at=moment(told.timestamp),
        status=STATUSES.get(told.status.lower(), "sent"),
        has_media=bool(told.attachments),
        by_api=told.from_us and _by_api(told.origin),
        event=message_event(told, chat),
    )
