"""What was said, as TimelinesAI shows it: recent chats, and both sides of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx

from cerniq_pipeline.domain.history import History, HistoryMessage, RecentChat
from cerniq_pipeline.errors import ProviderUnreadable
from cerniq_pipeline.providers.bodies import e164, hidden_id
from cerniq_pipeline.providers.timelinesai.reading import (
    NotThere,
    data_of,
    moment,
    odd_answers_are_unreadable,
    pages,
    read,
)
from cerniq_pipeline.providers.timelinesai.webhooks import Told, message_event

MOST_PAGES_OF_CHATS = 1000
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

NAMELESS_FILE: dict[str, Any] = {"temporary_download_url": None, "filename": None}
"""`v1` tells that there is a file, and no more."""


class PublicHistory:
    """A History over the vendor's public API."""

    lists_chats = True

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def recent_chats(self, *, since: datetime, turn: Callable[[], None]) -> Iterator[RecentChat]:
        """Chats with a person, newest first; the list ends at the first page that is too old."""
        since = _whole_second(since)
        query = {"with_msg": "true"}
        shown: set[str] = set()
        for page in pages(self._client, "/chats", query, turn=turn, most=MOST_PAGES_OF_CHATS):
            with odd_answers_are_unreadable():
                young = [chat for chat in page["chats"] if _last_at(chat) >= since]
                chats = [chat for chat in map(_recent_chat, young) if chat is not None]
            for chat in chats:
                # A message that comes in while we read moves chats on to the next page.
                if chat.chat_id not in shown:
                    shown.add(chat.chat_id)
                    yield chat
            if not young:
                return

    def shows(self, external_id: str, *, chat_id: str | None, from_us: bool) -> bool:
        """Whether the vendor knows a message by this id, going that way."""
        try:
            with odd_answers_are_unreadable():
                path = f"/messages/{quote(external_id, safe='')}"
                told = data_of(read(self._client, path, timeout=ASKED_FOR_WITHIN))
                return bool(told["from_me"]) == from_us
        except NotThere:
            return False

    def messages(
        self, chat: RecentChat, *, since: datetime | None, turn: Callable[[], None]
    ) -> Iterator[HistoryMessage]:
        """Every WhatsApp message of the chat, both ways; notes, calls and summaries are none."""
        query = {} if since is None else {"after": _whole_second(since).isoformat()}
        path = f"/chats/{chat.chat_id}/messages"
        for page in pages(self._client, path, query, turn=turn):
            with odd_answers_are_unreadable():
                told = [_told_in_public(one) for one in page["messages"] if _is_whatsapp(one)]
                messages = [_message(one, chat) for one in told]
            yield from messages


class V1History:
    """A History over the documents' addresses: one chat's last 100 messages, and no list."""

    lists_chats = False

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def recent_chats(self, *, since: datetime, turn: Callable[[], None]) -> Iterator[RecentChat]:
        """Always unreadable: the dialect has no list of chats."""
        raise ProviderUnreadable("timelinesai v1 cannot list chats; use the public dialect")

    def shows(self, external_id: str, *, chat_id: str | None, from_us: bool) -> bool:
        """Whether the chat's last 100 messages have one by this id, going that way."""
        if chat_id is None:
            return False
        try:
            path = f"/chats/{quote(chat_id, safe='')}/messages"
            body = read(self._client, path, {"limit": "100"}, timeout=ASKED_FOR_WITHIN)
        except NotThere:
            return False
        with odd_answers_are_unreadable():
            return any(
                str(one["message_id"]) == external_id and one["from_me"] == from_us
                for one in body["messages"]
            )

    def messages(
        self, chat: RecentChat, *, since: datetime | None, turn: Callable[[], None]
    ) -> Iterator[HistoryMessage]:
        """The last 100 messages of the chat, both ways; the dialect has no second page."""
        turn()
        body = read(self._client, f"/chats/{chat.chat_id}/messages", {"limit": "100"})
        with odd_answers_are_unreadable():
            messages = [_message(_told_in_v1(one), chat) for one in body["messages"]]
        yield from (one for one in messages if since is None or one.at >= _whole_second(since))


HISTORIES: dict[str, Callable[[httpx.Client], History]] = {
    "public": PublicHistory,
    "v1": V1History,
}


def _whole_second(since: datetime) -> datetime:
    """The vendor's times have no fractions: what was said in the same second is recent too."""
    return since.replace(microsecond=0)


def _last_at(chat: dict[str, Any]) -> datetime:
    """When something was last said in a chat; long ago when nothing ever was."""
    written = chat["last_message_timestamp"]
    return moment(written) if written else datetime.min.replace(tzinfo=UTC)


def _has_only_our_first(chat: dict[str, Any]) -> bool:
    """Whether a chat was opened by our own program and nothing was said in it since."""
    last = chat.get("last_message") or {}
    ours = bool(last.get("from_me")) and _by_api(last.get("origin"))
    return ours and chat.get("created_timestamp") == chat["last_message_timestamp"]


def _by_api(origin: Any) -> bool:
    return str(origin or "").lower() == "public api"


def _recent_chat(chat: dict[str, Any]) -> RecentChat | None:
    """A chat with a person; None for a group, or when it does not say with whom."""
    account, contact = e164(chat["whatsapp_account_id"]), _person(chat["phone"], chat.get("jid"))
    if chat["is_group"] or account is None or contact is None:
        return None
    only_ours = _has_only_our_first(chat)
    return RecentChat(str(chat["id"]), account, contact, _last_at(chat), only_ours=only_ours)


def _person(*names: Any) -> str | None:
    """A person's number, or else the id that stands for a hidden one."""
    found = [*map(e164, names), *map(hidden_id, names)]
    return next(filter(None, found), None)


def _is_whatsapp(told: dict[str, Any]) -> bool:
    return told["message_type"] == "whatsapp"


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


def _message(told: Told, chat: RecentChat) -> HistoryMessage:
    ours, theirs = (told.sender, told.recipient) if told.from_us else (told.recipient, told.sender)
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
