"""The two ways to speak to TimelinesAI: its public API, and the documents' `v1` addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from cerniq_pipeline.domain.outbox import Connection, Line, OutboxMessage, Receipt
from cerniq_pipeline.domain.reads import Turn
from cerniq_pipeline.errors import (
    ProviderUnreadable,
    ReadsUsedUp,
    SendDeferred,
    SendRejected,
    SendUnconfirmed,
)
from cerniq_pipeline.providers.bodies import e164
from cerniq_pipeline.providers.calls import UPLOAD_TIMEOUT, post
from cerniq_pipeline.providers.outcomes import json_of
from cerniq_pipeline.providers.timelinesai.meanings import meaning
from cerniq_pipeline.providers.timelinesai.reading import ODD_FORMS, data_of, moment, pages, read

SENDER_TIMEOUT = httpx.Timeout(5.0, connect=3.0)
"""A phone waits while the sender of its message is checked; a check that fails proves nothing."""


@dataclass(frozen=True)
class Entry:
    """One of our messages in a chat's history."""

    external_id: str
    sender: str
    text: str
    has_media: bool
    sent_at: datetime


class Dialect(Protocol):
    """Where a message goes, and how answers are read."""

    def request(
        self, message: OutboxMessage, attachment: str | None
    ) -> tuple[str, dict[str, str]]: ...

    def receipt(self, body: Any) -> Receipt | None: ...

    def upload(self, client: httpx.Client, message: OutboxMessage, content: bytes) -> str: ...

    def chats(
        self, client: httpx.Client, sender: str, recipient: str, turn: Turn
    ) -> Iterator[str]: ...

    def history(
        self, client: httpx.Client, chat_id: str, since: datetime, turn: Turn
    ) -> Iterator[Entry | None]:
        """Our messages in a chat; None stands for one of an unknown form."""
        ...

    def sender_of(
        self, client: httpx.Client, message: OutboxMessage, receipt: Receipt, turn: Turn
    ) -> str | None: ...

    def connections(
        self, client: httpx.Client, lines: Sequence[Line], turn: Turn
    ) -> Mapping[str, Connection]: ...


class PublicDialect:
    """The vendor's public API."""

    def request(self, message: OutboxMessage, attachment: str | None) -> tuple[str, dict[str, str]]:
        content = {"text": message.body} if message.body else {}
        content |= {"file_uid": attachment} if attachment else {}
        if message.chat_id is not None:
            return f"/chats/{message.chat_id}/messages", content
        # Without a sender the vendor takes the most recently connected number: always name one.
        ends = {"phone": message.to, "whatsapp_account_phone": message.sender}
        return "/messages", ends | content

    def receipt(self, body: Any) -> Receipt | None:
        data = data_of(body)
        uid = data.get("message_uid") if isinstance(data, dict) else None
        return Receipt(external_id=str(uid)) if uid else None

    def upload(self, client: httpx.Client, message: OutboxMessage, content: bytes) -> str:
        """The vendor's id of the file: the bytes that were checked are the bytes that are sent."""
        media = message.media
        assert media is not None, f"message {message.id} has no file"
        try:
            answer = post(
                client,
                "/files_upload",
                meaning=partial(meaning, unsaid=message.body),
                files={"file": (media.filename, content, media.content_type)},
                data={"filename": media.filename, "content_type": media.content_type},
                timeout=UPLOAD_TIMEOUT,
            )
        except SendUnconfirmed as doubt:  # a file alone reaches nobody
            raise SendDeferred("UPLOAD_FAILED", doubt.why) from doubt
        data = data_of(json_of(answer))
        uid = data.get("uid") if isinstance(data, dict) else None
        if not uid:
            raise SendDeferred("UPLOAD_FAILED", f"{answer.status_code} without a file id")
        return str(uid)

    def chats(self, client: httpx.Client, sender: str, recipient: str, turn: Turn) -> Iterator[str]:
        jid = f"{sender.lstrip('+')}@s.whatsapp.net"
        for data in pages(
            client,
            "/chats",
            {"phone": recipient, "whatsapp_account_id": jid},
            turn=partial(turn, "chats"),
        ):
            for chat in data["chats"]:
                if chat["whatsapp_account_id"] == jid and chat["phone"] == recipient:
                    yield str(chat["id"])

    def history(
        self, client: httpx.Client, chat_id: str, since: datetime, turn: Turn
    ) -> Iterator[Entry | None]:
        path = f"/chats/{chat_id}/messages"
        for data in pages(
            client,
            path,
            {"from_me": "true", "after": since.isoformat()},
            turn=partial(turn, "history"),
        ):
            yield from _entries(data["messages"], self._entry)

    def _entry(self, sent: dict[str, Any]) -> Entry | None:
        if not sent["from_me"] or sent["message_type"] != "whatsapp" or not _alive(sent):
            return None
        return Entry(
            external_id=str(sent["uid"]),
            sender=sent["sender_phone"],
            text=_text(sent["text"]),
            has_media=bool(sent.get("has_attachment")),
            sent_at=moment(sent["timestamp"]),
        )

    def sender_of(
        self, client: httpx.Client, message: OutboxMessage, receipt: Receipt, turn: Turn
    ) -> str | None:
        path = f"/messages/{quote(receipt.external_id, safe='')}"
        told = data_of(read(client, path, turn=partial(turn, "history"), timeout=SENDER_TIMEOUT))
        return e164(told["sender_phone"])

    def connections(
        self, client: httpx.Client, lines: Sequence[Line], turn: Turn
    ) -> Mapping[str, Connection]:
        listed = data_of(read(client, "/whatsapp_accounts", turn=partial(turn, "history")))[
            "whatsapp_accounts"
        ]
        statuses = {name: str(one["status"]).lower() for one in listed for name in _names(one)}
        found: dict[str, Connection] = {}
        for line in lines:
            status = statuses.get(line.account_id) or statuses.get(line.number) or "not listed"
            found[line.phone_id] = Connection(status == "active", status)
        return found


class V1Dialect:
    """The addresses of the documents."""

    def request(self, message: OutboxMessage, attachment: str | None) -> tuple[str, dict[str, str]]:
        if message.media is not None and attachment is not None:
            if message.chat_id is None:
                raise SendRejected("MEDIA_NEEDS_CHAT", "v1 sends a file only into a known chat")
            return "/messages/send-media", {
                "chat_id": message.chat_id,
                "media_type": message.media.kind,
                "media_url": attachment,
                "caption": message.body,
            }
        if message.chat_id is not None:
            return "/messages/send", {"chat_id": message.chat_id, "message": message.body}
        return "/messages/send", {
            "phone": message.account_id,
            "recipient": message.to,
            "message": message.body,
        }

    def receipt(self, body: Any) -> Receipt | None:
        if not isinstance(body, dict) or not body.get("message_id"):
            return None
        chat_id = body.get("chat_id")
        return Receipt(str(body["message_id"]), str(chat_id) if chat_id else None)

    def upload(self, client: httpx.Client, message: OutboxMessage, content: bytes) -> str:
        """The file's own address: the vendor fetches it from there."""
        media = message.media
        assert media is not None, f"message {message.id} has no file"
        if media.source_url is None:
            raise SendRejected("MEDIA_NEEDS_ADDRESS", "v1 takes only files that have an address")
        return media.source_url

    def chats(self, client: httpx.Client, sender: str, recipient: str, turn: Turn) -> Iterator[str]:
        """This dialect has no way to ask; the first message's answer names the chat."""
        return iter(())

    def history(
        self, client: httpx.Client, chat_id: str, since: datetime, turn: Turn
    ) -> Iterator[Entry | None]:
        body = read(
            client, f"/chats/{chat_id}/messages", {"limit": "100"}, turn=partial(turn, "history")
        )
        yield from _entries(body["messages"], self._entry)

    def sender_of(
        self, client: httpx.Client, message: OutboxMessage, receipt: Receipt, turn: Turn
    ) -> str | None:
        chat_id = receipt.chat_id or message.chat_id
        if chat_id is None:
            return None
        path = f"/chats/{chat_id}/messages"
        body = read(
            client, path, {"limit": "100"}, turn=partial(turn, "history"), timeout=SENDER_TIMEOUT
        )
        shown = _entries(body["messages"], self._entry)
        senders = {one.external_id: one.sender for one in shown if one is not None}
        return e164(senders.get(receipt.external_id))

    def connections(
        self, client: httpx.Client, lines: Sequence[Line], turn: Turn
    ) -> Mapping[str, Connection]:
        found = {line.phone_id: self._connection(client, line, turn) for line in lines}
        if lines and all(one.connected is None for one in found.values()):
            raise ProviderUnreadable("timelinesai tells the status of no phone")
        return found

    def _connection(self, client: httpx.Client, line: Line, turn: Turn) -> Connection:
        try:
            path = f"/accounts/{quote(line.account_id, safe='@')}/status"
            told = read(client, path, turn=partial(turn, "history"))
        except ReadsUsedUp:
            raise
        except ProviderUnreadable as unreadable:
            return Connection(None, str(unreadable))
        match told.get("connected"):
            case True:
                return Connection(True, "connected")
            case False:
                return Connection(False, "not connected")
            case _:
                return Connection(None, "timelinesai does not say")

    def _entry(self, sent: dict[str, Any]) -> Entry | None:
        if not sent["from_me"] or not _alive(sent):
            return None
        return Entry(
            external_id=str(sent["message_id"]),
            sender=sent["phone"],
            text=_text(sent["message"]),
            has_media=bool(sent.get("has_attachment")),
            sent_at=datetime.fromisoformat(sent["timestamp"]).astimezone(UTC),
        )


DIALECTS: dict[str, type[Dialect]] = {"public": PublicDialect, "v1": V1Dialect}


def _names(account: dict[str, Any]) -> tuple[str, ...]:
    """How an account may be called: by its JID, or by its number."""
    return tuple(str(account[key]) for key in ("id", "phone") if account.get(key))


def _entries(
    shown: list[dict[str, Any]], entry: Callable[[dict[str, Any]], Entry | None]
) -> Iterator[Entry | None]:
    """Those of these messages that are ours; None for each that nobody can read."""
    for one in shown:
        try:
            ours = entry(one)
        except ODD_FORMS:
            yield None
        else:
            if ours is not None:
                yield ours


def _text(written: str | None) -> str:
    text = written or ""
    if not isinstance(text, str):
        raise TypeError(f"a {type(text).__name__} for a text")
    return text


def _alive(sent: dict[str, Any]) -> bool:
    return str(sent.get("status", "")).lower() != "failed"
