"""What a dialect is made of: routes, what a caller may ask there, and a way to say yes and no."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from cerniq_pipeline.sandbox.faults import Call, Failure
from cerniq_pipeline.sandbox.journal import Event
from cerniq_pipeline.sandbox.room import Attachment, Message, Provider, Room, View
from cerniq_pipeline.sandbox.wire import BODY_LIMIT, Answer, Request

Dialect = Literal["public", "v1", "meta", "slack"]
SendKind = Literal["message", "chat_message"]
Body = Mapping[str, Any]
Query = Mapping[str, str]


class Refusal(Exception):
    """A request that the sandbox, like the vendor, does not fulfil."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def invalid(message: str, *, field: str | None = None) -> Refusal:
    """A 400; with a field when the request does not have the documented form."""
    return Refusal(Failure(400, "validation_error", message, field=field))


def not_found(message: str) -> Refusal:
    """A 404 for an id that nobody knows."""
    return Refusal(Failure(404, "not_found", message))


@dataclass(frozen=True)
class Draft:
    """What a request seems to ask for, right or wrong; the journal shows it."""

    kind: SendKind
    sender: str | None
    asked_sender: str | None
    recipient: str | None
    chat_id: int | None
    text: str | None
    attachment: Attachment | None = None
    template: Mapping[str, Any] | None = None

    def described(self, door: Door, request_id: str) -> dict[str, Any]:
        """The fields that every line of the journal about this request has."""
        return {
            "request": request_id,
            "provider": door.provider,
            "dialect": door.dialect,
            "kind": self.kind,
            "sender": self.sender,
            "asked_sender": self.asked_sender,
            "recipient": self.recipient,
            "chat_id": self.chat_id,
            "text": self.text,
            "text_sha256": None if self.text is None else sha256_of(self.text),
            "message_uid": None,
            "attachment": self.attachment and self.attachment.described(),
            **({} if self.template is None else {"template": self.template}),
        }


@dataclass(frozen=True)
class Sendable:
    """A message that nothing speaks against; `sender` is who would send it.

    With `needs_window` it reaches only people who wrote to the sender in the last 24 hours. The
    `callback` comes back with whatever is told of the message.
    """

    sender: str
    recipient: str
    text: str
    attachment: Attachment | None = None
    needs_window: bool = False
    callback: str | None = None


def sha256_of(text: str) -> str:
    """The hash of a text's UTF-8 form, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class SendEndpoint:
    """An address that takes messages: what a body seems to ask for, and what may be sent.

    `check` raises a Refusal, worded as the vendor does.
    """

    draft: Callable[[Room, re.Match[str], Body], Draft]
    check: Callable[[Room, re.Match[str], Body], Sendable]


@dataclass(frozen=True)
class Read:
    """A question that can be answered: what it is about, and the answer for a given view."""

    call: Call
    answer: Callable[[View], Answer]


@dataclass(frozen=True)
class ReadEndpoint:
    """An address that tells something; `open` raises a Refusal for a bad question."""

    open: Callable[[Room, re.Match[str], Query], Read]


@dataclass(frozen=True)
class Act:
    """A change that is no message, such as a file left for later: its line, and its answer."""

    call: Call
    event: Event
    fields: Mapping[str, Any]
    answer: Answer


@dataclass(frozen=True)
class ActEndpoint:
    """An address that changes something; `open` raises a Refusal for what makes no sense."""

    open: Callable[[Room, re.Match[str], Request], Act]
    body_limit: int = BODY_LIMIT


Endpoint = SendEndpoint | ReadEndpoint | ActEndpoint


@dataclass(frozen=True)
class Route:
    """One method on one path of a door."""

    method: str
    path: re.Pattern[str]
    endpoint: Endpoint


def bearer(headers: Mapping[str, str]) -> None:
    """Let any bearer token in; a Refusal when there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        failure = Failure(
            401, "missing_credentials", "Authentication credentials were not provided"
        )
        raise Refusal(failure)


def new_uuid(_: str) -> str:
    """An id like most vendors make them, whoever the message is for."""
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Door:
    """One dialect: all doors lead into the same room."""

    dialect: Dialect
    provider: Provider
    prefix: str
    routes: tuple[Route, ...]
    failure: Callable[[Failure], Answer]
    accepted: Callable[[Message], Answer] = field(default=lambda _: Answer(200, b""))
    new_uid: Callable[[str], str] = new_uuid
    authorise: Callable[[Mapping[str, str]], None] = bearer

    def find(self, method: str, path: str) -> tuple[Endpoint, re.Match[str]]:
        """The endpoint behind a path; a Refusal when there is none."""
        known = False
        for route in self.routes:
            if match := route.path.fullmatch(path.removeprefix(self.prefix)):
                known = True
                if route.method == method:
                    return route.endpoint, match
        if known:
            raise Refusal(Failure(405, "not_supported", "Method not allowed"))
        # A trailing slash ends here too, as it does at the vendor.
        raise Refusal(Failure(404, "not_found", "Not Found", shape="html"))


def json_object(raw: bytes) -> dict[str, Any] | None:
    """The object in a body, or None when the body is no such thing."""
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_such_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_such_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def html_page(failure: Failure) -> str:
    """The kind of page that a proxy in front of an API answers with."""
    title = f"{failure.status} {failure.message}"
    return (
        f"<!DOCTYPE html>\n<html><head><title>{title}</title></head>"
        f"<body><center><h1>{title}</h1></center></body></html>\n"
    )
