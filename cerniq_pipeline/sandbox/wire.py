"""HTTP at the socket: what arrives, what goes back, and at which byte a connection is cut."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

How = Literal["answered", "cut", "client_gone"]
CutPoint = Literal["nothing", "headers", "half"]

BodyLimit = Callable[[str, str], int]
"""How long a body may be, by method and path."""

BODY_LIMIT = 32 * 1024 * 1024
_HEAD_LIMIT = 64 * 1024
_READ_SIZE = 64 * 1024
_LINGER = timedelta(seconds=2)
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True)
class Request:
    """One request, read to its end."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """A complete HTTP answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cut:
    """Where an answer stops: after no byte, after the headers, in mid-body, or at a byte count."""

    at: CutPoint | int
    reset: bool = False


def _nobody_asks(_: How) -> None:
    """For replies whose end nobody records."""


@dataclass(frozen=True)
class Reply:
    """An answer with the way it travels; `ended` is told, exactly once, how it went."""

    answer: Answer
    delay: timedelta = timedelta()
    cut: Cut | None = None
    ended: Callable[[How], None] = _nobody_asks


class UnreadableRequest(Exception):
    """What arrived is not a request that can be taken; `answer` says so to the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answer = json_answer(status, {"status": "error", "message": message})


def json_answer(
    status: int, content: object, *, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """An answer with a JSON body, letters unescaped; a lone surrogate stays an escape."""
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Answer(status, body, headers=headers)


def html_answer(status: int, page: str, *, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """An answer with an HTML page."""
    return Answer(status, page.encode(), "text/html; charset=utf-8", headers)


class Connection:
    """One client's connection, one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_LIMIT)
        self._method = ""

    async def next_request(self, body_limit: BodyLimit) -> Request | None:
        """The next request, or None when the client has no more."""
        try:
            head = await self._next_event()
            if not isinstance(head, h11.Request):
                return None
            self._method = head.method.decode()
            headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
            target = urlsplit(head.target.decode("latin-1"))
            path = unquote(target.path)
            body = await self._read_body(headers, limit=body_limit(self._method, path))
        except h11.RemoteProtocolError as error:
            raise UnreadableRequest(error.error_status_hint, f"not HTTP: {error}") from error
        except ConnectionError:
            return None
        if body is None:
            return None
        return Request(
            method=self._method,
            path=path,
            query=dict(parse_qsl(target.query, keep_blank_values=True)),
            headers=headers,
            body=body,
        )

    async def deliver(self, reply: Reply, *, ready: Callable[[], Awaitable[None]]) -> bool:
        """Answer as the reply says, not before `ready`; True when another request may follow."""
        try:
            await ready()
            left = await self._client_leaves_within(reply.delay)
        except asyncio.CancelledError:
            reply.ended("cut")
            raise
        if left:
            reply.ended("client_gone")
            return False
        if reply.cut is not None:
            self._write_and_cut(reply.answer, reply.cut)
            reply.ended("cut")
            return False
        self._writer.write(b"".join(self._rendered(reply.answer)))
        # Recorded in the same step as the write: the client cannot have reacted to the answer yet,
        # so its next request always stands behind this record.
        reply.ended("answered")
        return await self._ready_for_more()

    async def refuse(self, answer: Answer) -> None:
        """Answer something unreadable, and read on for a moment so that the answer arrives.

        Closing with unread bytes would reset the connection and take the answer with it.
        """
        last = replace(answer, headers=(*answer.headers, ("connection", "close")))
        self._writer.write(b"".join(self._rendered(last)))
        self._writer.write_eof()
        try:
            async with asyncio.timeout(_LINGER.total_seconds()):
                while await self._reader.read(_READ_SIZE):
                    pass
        except (TimeoutError, ConnectionError):
            pass

    def close(self) -> None:
        """Let the connection go at once."""
        self._writer.close()

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event  # pyright: ignore[reportReturnType]
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._http.send(go_on) or b"")
            self._http.receive_data(await self._reader.read(_READ_SIZE))

    async def _read_body(self, headers: dict[str, str], *, limit: int) -> bytes | None:
        if int(headers.get("content-length", "0")) > limit:
            raise UnreadableRequest(413, "Payload is too large")
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self._next_event()
            if isinstance(event, h11.EndOfMessage):
                return b"".join(parts)
            if not isinstance(event, h11.Data):
                return None
            size += len(event.data)
            if size > limit:
                raise UnreadableRequest(413, "Payload is too large")
            parts.append(bytes(event.data))

    async def _client_leaves_within(self, delay: timedelta) -> bool:
        """Wait out the delay; True at once when the client closes its side."""
        try:
            async with asyncio.timeout(delay.total_seconds()):
                while data := await self._reader.read(_READ_SIZE):
                    self._http.receive_data(data)  # a pipelined request; it waits its turn
        except TimeoutError:
            return self._reader.at_eof() or self._writer.is_closing()
        except ConnectionError:
            return True
        return True

    def _rendered(self, answer: Answer) -> tuple[bytes, bytes]:
        headers = [
            ("content-type", answer.content_type),
            ("content-length", str(len(answer.body))),
            *answer.headers,
        ]
        response = h11.Response(
            status_code=answer.status, reason=_PHRASES.get(answer.status, ""), headers=headers
        )
        head = self._http.send(response) or b""
        body = b""
        if self._method != "HEAD":
            body = self._http.send(h11.Data(data=answer.body)) or b""
        return head, body + (self._http.send(h11.EndOfMessage()) or b"")

    def _write_and_cut(self, answer: Answer, cut: Cut) -> None:
        head, body = self._rendered(answer)
        self._writer.write((head + body)[: _cut_length(cut.at, head=head, body=body)])
        if cut.reset:
            _reset_on_close(self._writer)
        self._writer.close()

    async def _ready_for_more(self) -> bool:
        try:
            await self._writer.drain()
        except ConnectionError:
            return False
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True


def _cut_length(at: CutPoint | int, *, head: bytes, body: bytes) -> int:
    """How many bytes of the answer still travel."""
    if isinstance(at, int):
        return at
    return {"nothing": 0, "headers": len(head), "half": len(head) + len(body) // 2}[at]


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Make the coming close a reset: the client sees an error instead of an orderly end."""
    plain: socket.socket = writer.get_extra_info("socket")
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
