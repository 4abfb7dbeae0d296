"""What the web service says: a status, few words, and the headers that every answer carries."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

PLAIN = b"text/plain; charset=utf-8"

SECURITY: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (
        b"content-security-policy",
        b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

_PROCESS = os.urandom(6).hex()
_numbers = itertools.count(1)


def new_request_id() -> bytes:
    """A name for one request that says nothing about it."""
    return f"{_PROCESS}{next(_numbers):x}".encode()


@dataclass(frozen=True)
class Answer:
    """One answer, ready to be sent any number of times."""

    status: int
    body: bytes
    content_type: bytes = PLAIN
    close: bool = False
    """Whether the connection ends with it: for requests that were not read to their end."""
    headers: Headers = field(init=False)

    def __post_init__(self) -> None:
        headers = [
            (b"content-type", self.content_type),
            (b"content-length", str(len(self.body)).encode()),
            *SECURITY,
            *([(b"connection", b"close")] if self.close else []),
        ]
        object.__setattr__(self, "headers", headers)


def plain(status: HTTPStatus, *, close: bool = False) -> Answer:
    """A status in its own words: an error tells nobody why."""
    return Answer(status, status.phrase.lower().encode(), close=close)


async def reply(send: Send, answer: Answer, request_id: bytes) -> None:
    """Send an answer."""
    headers = [*answer.headers, (b"x-request-id", request_id)]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def as_bytes(answer: Answer) -> bytes:
    """The same answer for a connection whose request has no form; it is then closed."""
    phrase = HTTPStatus(answer.status).phrase
    headers = [*answer.headers, (b"x-request-id", new_request_id())]
    lines = [f"HTTP/1.1 {answer.status} {phrase}".encode(), *(b": ".join(one) for one in headers)]
    return b"\r\n".join([*lines, b"", answer.body])
