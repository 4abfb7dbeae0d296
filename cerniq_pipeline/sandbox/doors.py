"""What a dialect is made of: routes, words for sending, and a way to say yes and no."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from cerniq_pipeline.sandbox.faults import Call, Failure
from cerniq_pipeline.sandbox.room import Message, Room, View
from cerniq_pipeline.sandbox.wire import Answer, Request

Dialect = Literal["public", "v1"]
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
class SendForm:
    """Which words of a body say who sends what to whom.

    Either `chat_id` names a chat, which fixes both ends, or `recipient` and `sender` are words.
    """

    kind: SendKind
    text: str
    recipient: str | None = None
    recipient_is_jid: bool = False
    sender: str | None = None
    sender_required: bool = False
    chat_id: object = None


@dataclass(frozen=True)
class SendEndpoint:
    """An address that takes messages; `form` is chosen by path and body."""

    form: Callable[[re.Match[str], Body], SendForm]


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
class Route:
    """One method on one path of a door."""

    method: str
    path: re.Pattern[str]
    endpoint: SendEndpoint | ReadEndpoint


@dataclass(frozen=True)
class Door:
    """One dialect: both doors lead into the same room."""

    dialect: Dialect
    prefix: str
    routes: tuple[Route, ...]
    failure: Callable[[Failure], Answer]
    accepted: Callable[[Message], Answer]

    def find(self, request: Request) -> tuple[SendEndpoint | ReadEndpoint, re.Match[str]]:
        """The endpoint behind a path; a Refusal when there is none."""
        path = request.path.removeprefix(self.prefix)
        known = False
        for route in self.routes:
            if match := route.path.fullmatch(path):
                known = True
                if route.method == request.method:
                    return route.endpoint, match
        if known:
            raise Refusal(Failure(405, "not_supported", "Method not allowed"))
        # A trailing slash ends here too, as it does at the vendor.
        raise Refusal(Failure(404, "not_found", "Not Found", shape="html"))


def authorise(headers: Mapping[str, str]) -> None:
    """Let any bearer token in; a Refusal when there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        failure = Failure(
            401, "missing_credentials", "Authentication credentials were not provided"
        )
        raise Refusal(failure)


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
