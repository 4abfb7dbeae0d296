"""WhatsApp through TimelinesAI, in the vendor's public dialect or the documents' `v1` addresses.

The vendor has no idempotency key and answers before it sends, so one `send` is one request on a
connection of its own, never repeated here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import httpx

from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt, Sighting
from cerniq_pipeline.errors import (
    PhoneUnusable,
    ProviderUnreadable,
    SendDeferred,
    SendFailed,
    SendRejected,
    SendUnconfirmed,
)
from cerniq_pipeline.logs import mask

TIMEOUT = httpx.Timeout(15.0, connect=3.0)
CLOCK_SLACK = timedelta(minutes=2)
"""How far the vendor's clock may lag behind ours when a send is looked up."""

MOST_PAGES = 100
BANNED_WORDS = ("banned", "blocked")
OFFLINE_WORDS = ("not connected", "disconnected", "account not found", "account_inactive")

NOTHING_LEFT_THIS_MACHINE = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)


def open_client(base_url: str, token: str) -> httpx.Client:
    """A client for one account: no redirects, no proxies, and no connection used twice.

    A kept-alive connection that the vendor has just closed would turn a send that never left into
    one that nobody can be sure of; the vendor also refuses long-lived connections.
    """
    return httpx.Client(
        base_url=base_url,
        headers={"Authorization": f"Bearer {token}", "User-Agent": "cerniq"},
        timeout=TIMEOUT,
        limits=httpx.Limits(max_keepalive_connections=0),
        follow_redirects=False,
        trust_env=False,
    )


@dataclass(frozen=True)
class Entry:
    """One of our messages in a chat's history."""

    external_id: str
    sender: str
    text: str
    sent_at: datetime


class Dialect(Protocol):
    """Where a message goes, and how answers are read."""

    def request(self, message: OutboxMessage) -> tuple[str, dict[str, str]]: ...

    def receipt(self, body: Any) -> Receipt | None: ...

    def chats(self, client: httpx.Client, sender: str, recipient: str) -> Iterator[str]: ...

    def history(self, client: httpx.Client, chat_id: str, since: datetime) -> Iterator[Entry]: ...


class TimelinesAI:
    """A Channel over one TimelinesAI account."""

    def __init__(self, client: httpx.Client, dialect: Dialect) -> None:
        self._client = client
        self._dialect = dialect

    def send(self, message: OutboxMessage, *, attachment: str | None = None) -> Receipt:
        """Hand over one message and return the vendor's id for it."""
        path, body = self._dialect.request(message)
        try:
            answer = self._client.post(path, json=body)
        except NOTHING_LEFT_THIS_MACHINE as error:
            raise SendDeferred("UNREACHABLE", f"{type(error).__name__} before sending") from error
        except httpx.RequestError as error:
            raise SendUnconfirmed("SILENCE", f"{type(error).__name__} after sending") from error
        if answer.is_success:
            receipt = self._dialect.receipt(_json(answer))
            if receipt is None:
                raise SendUnconfirmed("ODD_ANSWER", f"{answer.status_code} without a message id")
            return receipt
        raise meaning(answer)

    def find_chat(self, message: OutboxMessage) -> str | None:
        """The chat between these two numbers."""
        with _odd_answers_are_unreadable():
            chats = self._dialect.chats(self._client, message.sender, message.to)
            return next(chats, None)

    def sightings(self, message: OutboxMessage) -> tuple[Sighting, ...]:
        """Messages in the history with this sender and exactly this text, since it was begun."""
        chat_id = message.chat_id or self.find_chat(message)
        if chat_id is None:
            return ()
        since = message.begun_at - CLOCK_SLACK
        with _odd_answers_are_unreadable():
            return tuple(
                Sighting(entry.external_id, chat_id, entry.sent_at)
                for entry in self._dialect.history(self._client, chat_id, since)
                if entry.sender == message.sender
                and entry.text.strip() == message.body.strip()
                and entry.sent_at >= since
            )


def meaning(answer: httpx.Response) -> SendFailed:
    """What a refusal says about the message: one answer, one meaning."""
    code, said = _complaint(answer)
    why = mask(f"{answer.status_code} {code or said}"[:200])
    words = f"{code} {said}".lower()
    match answer.status_code:
        case 429:
            return SendDeferred("RATE_LIMITED", why, retry_after=_retry_after(answer))
        case 400 | 401 | 403 | 409 if any(word in words for word in BANNED_WORDS):
            return PhoneUnusable("PHONE_BANNED", why, status="BANNED")
        case 400 | 409 if any(word in words for word in OFFLINE_WORDS):
            # The phone's fault, not the lead's: a rejection would use up its whole queue.
            return PhoneUnusable("PHONE_OFFLINE", why, status="OFFLINE")
        case 401 | 403:
            return PhoneUnusable("PHONE_AUTH_ERROR", why, status="OFFLINE")
        case 400 if "invalid" in words and "number" in words:
            return SendRejected("INVALID_RECIPIENT_NUMBER", why)
        case 400 | 404 | 405 | 409 | 413 | 422:
            return SendRejected("REFUSED", why)
        case _:
            return SendUnconfirmed("ODD_STATUS", why)


class PublicDialect:
    """The vendor's public API."""

    def request(self, message: OutboxMessage) -> tuple[str, dict[str, str]]:
        if message.chat_id is not None:
            return f"/chats/{message.chat_id}/messages", {"text": message.body}
        # Without a sender the vendor takes the most recently connected number: always name one.
        return "/messages", {
            "phone": message.to,
            "whatsapp_account_phone": message.sender,
            "text": message.body,
        }

    def receipt(self, body: Any) -> Receipt | None:
        data = _data(body)
        uid = data.get("message_uid") if isinstance(data, dict) else None
        return Receipt(external_id=str(uid)) if uid else None

    def chats(self, client: httpx.Client, sender: str, recipient: str) -> Iterator[str]:
        jid = f"{sender.lstrip('+')}@s.whatsapp.net"
        for data in _pages(client, "/chats", {"phone": recipient, "whatsapp_account_id": jid}):
            for chat in data["chats"]:
                if chat["whatsapp_account_id"] == jid and chat["phone"] == recipient:
                    yield str(chat["id"])

    def history(self, client: httpx.Client, chat_id: str, since: datetime) -> Iterator[Entry]:
        path = f"/chats/{chat_id}/messages"
        for data in _pages(client, path, {"from_me": "true", "after": since.isoformat()}):
            for sent in data["messages"]:
                if sent["from_me"] and sent["message_type"] == "whatsapp" and _alive(sent):
                    at = datetime.strptime(sent["timestamp"], "%Y-%m-%d %H:%M:%S %z")
                    text = sent["text"] or ""  # a picture has none
                    yield Entry(sent["uid"], sent["sender_phone"], text, at.astimezone(UTC))


class V1Dialect:
    """The addresses of the documents."""

    def request(self, message: OutboxMessage) -> tuple[str, dict[str, str]]:
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

    def chats(self, client: httpx.Client, sender: str, recipient: str) -> Iterator[str]:
        """This dialect has no way to ask; the first message's answer names the chat."""
        return iter(())

    def history(self, client: httpx.Client, chat_id: str, since: datetime) -> Iterator[Entry]:
        body = _read(client, f"/chats/{chat_id}/messages", {"limit": "100"})
        for sent in body["messages"]:
            if sent["from_me"] and _alive(sent):
                at = datetime.fromisoformat(sent["timestamp"]).astimezone(UTC)
                yield Entry(sent["message_id"], sent["phone"], sent["message"] or "", at)


DIALECTS: dict[str, type[Dialect]] = {"public": PublicDialect, "v1": V1Dialect}


def _pages(client: httpx.Client, path: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    for page in range(1, MOST_PAGES + 1):
        data = _data(_read(client, path, query | {"page": str(page)}))
        yield data
        if not data["has_more_pages"]:
            return
    raise ProviderUnreadable(f"timelinesai {path}: more than {MOST_PAGES} pages")


def _read(client: httpx.Client, path: str, query: dict[str, str]) -> Any:
    """A read either answers or raises: a failure must never look like an empty history."""
    try:
        answer = client.get(path, params=query)
    except httpx.RequestError as error:
        raise ProviderUnreadable(f"timelinesai {path}: {type(error).__name__}") from error
    body = _json(answer)
    if answer.status_code != 200 or not isinstance(body, dict) or body.get("status") == "error":
        raise ProviderUnreadable(f"timelinesai {path}: {answer.status_code}")
    return body


@contextmanager
def _odd_answers_are_unreadable() -> Iterator[None]:
    """Turn an answer whose form we do not know into the one thing it means: we could not read."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        form = f"timelinesai answered in an unknown form ({type(error).__name__})"
        raise ProviderUnreadable(form) from error


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _data(body: Any) -> Any:
    ok = isinstance(body, dict) and body.get("status") == "ok"
    return body.get("data") if ok else None


def _complaint(answer: httpx.Response) -> tuple[str, str]:
    body = _json(answer)
    if not isinstance(body, dict):
        return "", "an answer that is not JSON"
    said = str(body.get("message") or body.get("error") or "")
    # An error that quotes our request must not carry the token into a log.
    token = answer.request.headers.get("authorization", "").removeprefix("Bearer ")
    return str(body.get("error_code") or ""), said.replace(token, "***") if token else said


def _retry_after(answer: httpx.Response) -> timedelta | None:
    seconds = answer.headers.get("retry-after", "")
    if not (seconds.isascii() and seconds.isdigit()):
        return None
    return timedelta(seconds=min(int(seconds[:9]), 3600))


def _alive(sent: dict[str, Any]) -> bool:
    return str(sent.get("status", "")).lower() != "failed"
