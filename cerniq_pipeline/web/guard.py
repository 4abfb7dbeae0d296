"""What uvicorn does not do: end a request that takes too long or too much, and make room.

Every connection has one deadline: for the whole request while it comes in, for its next one while
it rests. Somebody looks at all of them now and then; a timer for each would cost more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cerniq_pipeline.web.answers import Answer, as_bytes, plain
from cerniq_pipeline.web.limits import Limits

BAD_REQUEST = plain(HTTPStatus.BAD_REQUEST, close=True)
TOO_SLOW = plain(HTTPStatus.REQUEST_TIMEOUT, close=True)
TOO_LARGE = plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, close=True)
HEAD_TOO_LARGE = plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, close=True)


class _HeadTooLarge(Exception):
    """Ends the parser's work."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection, with limits."""

    limits: ClassVar[Limits] = Limits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a first request; close somebody else when there are too many."""
        super().connection_made(transport)
        self.is_answering = False
        self._in_head = True
        self._head_size = 0
        self._on_wire = 0
        self.deadline = self.loop.time() + self.limits.receive_seconds
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take some bytes of a request, if it may still have them."""
        if self._on_wire == 0 and not self.is_answering:
            self.deadline = self.loop.time() + self.limits.receive_seconds
        self._on_wire += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._on_wire > self.limits.head_bytes:
            self.end_with(HEAD_TOO_LARGE)
        elif self._on_wire > self.limits.wire_bytes:
            self.end_with(TOO_LARGE)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        self._head_size = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header, or one of those that may follow a body in pieces."""
        self._head_size += len(name) + len(value) + 4
        if self._head_size > self.limits.head_bytes:
            raise _HeadTooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request over."""
        self._in_head = False
        if len(self.url) > self.limits.head_bytes:
            raise _HeadTooLarge
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is here: from now on it is us who take time."""
        self.is_answering = True
        self._on_wire = 0
        self.deadline = self.loop.time() + self.limits.answer_seconds
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Rest until the next request; a request that was not read to its end has no next one."""
        if not self.is_answering:
            self.transport.close()
        self.is_answering = bool(self.pipeline)
        limits = self.limits
        allowed = limits.receive_seconds if self._on_wire else limits.idle_seconds
        self.deadline = self.loop.time() + allowed
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or has too much of it before it begins."""
        del msg
        most = self.limits.head_bytes
        too_large = self._head_size > most or len(getattr(self, "url", b"")) > most
        self.end_with(HEAD_TOO_LARGE if too_large else BAD_REQUEST)

    def end_with(self, answer: Answer) -> None:
        """Say this, unless something is being said already, and close."""
        cycle = self.cycle
        if cycle is None or not cycle.response_started or cycle.response_complete:
            self.transport.write(as_bytes(answer))
        self.transport.close()

    def end_if_late(self, now: float) -> bool:
        """Close when the deadline has passed; whoever has not said a word hears none."""
        if now <= self.deadline:
            return False
        if self._on_wire and not self.is_answering:
            self.end_with(TOO_SLOW)
        else:
            self.transport.close()
        return True

    def _make_room(self) -> None:
        others = (one for one in _guarded(self.connections) if one is not self)
        waiting = [one for one in others if not one.is_answering]
        slowest = min(waiting, key=lambda one: one.deadline, default=self)
        slowest.transport.abort()


def guarded(limits: Limits) -> type[GuardedProtocol]:
    """The protocol with these limits."""
    return type("GuardedProtocol", (GuardedProtocol,), {"limits": limits})


def close_late(connections: Iterable[Any], now: float) -> int:
    """Close every connection that has run out of time; returns how many."""
    return sum(one.end_if_late(now) for one in _guarded(connections))


def _guarded(connections: Iterable[Any]) -> list[GuardedProtocol]:
    return cast("list[GuardedProtocol]", list(connections))
