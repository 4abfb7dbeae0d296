"""WhatsApp through Meta's own Cloud API: texts, approved templates and files.

Meta has no idempotency key and shows no history. One `send` is one request on a connection of its
own, and carries our id: a later status with that id tells what became of a send in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.outbox import (
    ApprovedText,
    Connection,
    Line,
    OutboxMessage,
    Receipt,
    Sighting,
)
from cerniq_pipeline.domain.reads import Turn
from cerniq_pipeline.errors import ProviderUnreadable, SendDeferred, SendUnconfirmed
from cerniq_pipeline.providers.calls import UPLOAD_TIMEOUT, accepted, open_client, post
from cerniq_pipeline.providers.meta.meanings import meaning
from cerniq_pipeline.providers.meta.webhooks import read_statuses
from cerniq_pipeline.providers.outcomes import json_of

__all__ = ["MetaCloud", "open_client"]

WENT_OUT = frozenset({"sent", "delivered", "read"})

LINKED = {
    "connected": True,
    "flagged": True,
    "restricted": True,  # it may still answer
    "rate_limited": True,
    "disconnected": False,
    "banned": False,
    "deleted": False,
    "migrated": False,
    "pending": False,
}
"""Whether a number with this status is ours to send from; other words say nothing."""


class MetaCloud:
    """A Channel over one WhatsApp business account; a phone is known by its phone-number-id."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def send(self, message: OutboxMessage, *, attachment: str | None = None) -> Receipt:
        """Hand over one message and return Meta's id for it."""
        if message.media is not None and attachment is None:
            raise SendDeferred("UPLOAD_FAILED", "the file was not handed over before its message")
        body = {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": _bare(message.to),
            "biz_opaque_callback_data": str(message.id),
            **_content(message, attachment),
        }
        answer = self._post(message, "messages", json=body)
        external_id = _first_id(json_of(answer))
        receipt = Receipt(external_id, _bare(message.to)) if external_id else None
        return accepted(answer, receipt)

    def upload(self, message: OutboxMessage, content: bytes) -> str:
        """Meta's id of the file: the bytes that were checked are the bytes that are sent."""
        media = message.media
        assert media is not None, f"message {message.id} has no file"
        try:
            answer = self._post(
                message,
                "media",
                files={"file": (media.filename, content, media.content_type)},
                data={"messaging_product": "whatsapp", "type": media.content_type},
                timeout=UPLOAD_TIMEOUT,
            )
        except SendUnconfirmed as doubt:  # a file alone reaches nobody
            raise SendDeferred("UPLOAD_FAILED", doubt.why) from doubt
        body = json_of(answer)
        if not isinstance(body, dict) or not body.get("id"):
            raise SendDeferred("UPLOAD_FAILED", f"{answer.status_code} without a file id")
        return str(body["id"])

    def find_chat(self, message: OutboxMessage, *, turn: Turn) -> str | None:
        """The person's WhatsApp id: Meta has no chats, all that is said to one person is one."""
        return _bare(message.to)

    def sightings(self, message: OutboxMessage, *, turn: Turn) -> tuple[Sighting, ...]:
        """Nothing: Meta shows no history, and its statuses resolve a doubt."""
        return ()

    def recognise(self, message: OutboxMessage, events: Sequence[bytes]) -> tuple[Sighting, ...]:
        """A status that carries our id, other than a failure, says that the message went out."""
        told = [status for event in events for status in _statuses_in(event)]
        gone_out = {
            status.external_id: Sighting(status.external_id, _bare(message.to), status.at)
            for status in told
            if status.callback == str(message.id) and status.status in WENT_OUT
        }
        return tuple(gone_out.values())

    def sender_of(self, message: OutboxMessage, receipt: Receipt, *, turn: Turn) -> str | None:
        """Nobody can tell, and nobody need: the number is in the address of the request."""
        return None

    def connections(self, lines: Sequence[Line], *, turn: Turn) -> Mapping[str, Connection]:
        """What Meta says of each number; one that cannot be read is unknown, not unlinked."""
        found = {line.phone_id: self._connection(line, turn) for line in lines}
        unread = [one.detail for one in found.values() if one.connected is None]
        if lines and len(unread) == len(found):
            raise ProviderUnreadable(f"meta tells the status of no phone: {unread[0]}")
        return found

    def _post(self, message: OutboxMessage, what: str, **content: Any) -> httpx.Response:
        return post(
            self._client,
            f"/{quote(message.account_id, safe='')}/{what}",
            meaning=partial(meaning, unsaid=message.body),
            **content,
        )

    def _connection(self, line: Line, turn: Turn) -> Connection:
        turn("history")
        path = f"/{quote(line.account_id, safe='')}"
        try:
            answer = self._client.get(path, params={"fields": "status"})
        except httpx.RequestError as error:
            return Connection(None, type(error).__name__)
        body = json_of(answer)
        if answer.status_code != 200 or not isinstance(body, dict) or not body.get("status"):
            return Connection(None, f"{answer.status_code} without a status")
        status = str(body["status"]).lower()
        return Connection(LINKED.get(status), status)


def _statuses_in(event: bytes) -> tuple[Delivery, ...]:
    """What an event says of messages; nothing when it has no form that we know."""
    try:
        return read_statuses(event)
    except ProviderUnreadable:
        return ()


def _content(message: OutboxMessage, attachment: str | None) -> dict[str, Any]:
    """The part of a message that depends on what is sent: a template, a file or a text."""
    file: dict[str, Any] | None = None
    if message.media is not None:
        file = {"id": attachment}
        if message.media.kind == "document":
            file["filename"] = message.media.filename
    if message.approved is not None:
        header = (
            None
            if message.media is None
            else {"type": message.media.kind, message.media.kind: file}
        )
        return {"type": "template", "template": _template(message.approved, header)}
    if message.media is not None and file is not None:
        caption = {"caption": message.body} if message.body else {}
        return {"type": message.media.kind, message.media.kind: file | caption}
    return {"type": "text", "text": {"body": message.body, "preview_url": False}}


def _template(approved: ApprovedText, header: dict[str, Any] | None) -> dict[str, Any]:
    components: list[dict[str, Any]] = []
    if header is not None:
        components.append({"type": "header", "parameters": [header]})
    if approved.values:
        values = [{"type": "text", "text": value} for value in approved.values]
        components.append({"type": "body", "parameters": values})
    named = {"name": approved.name, "language": {"code": approved.language}}
    return named | ({"components": components} if components else {})


def _first_id(body: Any) -> str | None:
    """The message id in an acceptance; None when the answer has another form."""
    try:
        external_id = body["messages"][0]["id"]
    except (LookupError, TypeError):
        return None
    return str(external_id) if external_id else None


def _bare(number: str) -> str:
    """A number as Meta writes it: without the plus."""
    return number.removeprefix("+")
