"""The other way round: POST after POST to whoever takes webhooks, on one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

_READ_SIZE = 64 * 1024
_ANSWER_LIMIT = 1024 * 1024


class NoAnswer(Exception):
    """The call ended without a whole answer; whether it was heard, nobody knows."""


@dataclass(frozen=True)
class _Connection:
    where: tuple[str, int]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection


class Caller:
    """Posts bodies one after the other and tells the status of each answer."""

    def __init__(self) -> None:
        self._open: _Connection | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer; NoAnswer when there is none. Cancelling it hangs up."""
        target = urlsplit(url)
        path = target.path or "/"
        request = h11.Request(
            method="POST",
            target=f"{path}?{target.query}" if target.query else path,
            headers=[
                ("host", target.netloc),
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                *headers.items(),
            ],
        )
        try:
            connection = await self._connection(target.hostname or "", target.port or 80)
            status = await _exchange(connection, request, body)
        except (OSError, h11.ProtocolError) as error:
            self.hang_up()
            raise NoAnswer(type(error).__name__) from error
        except BaseException:
            self.hang_up()
            raise
        if connection.http.our_state is h11.DONE and connection.http.their_state is h11.DONE:
            connection.http.start_next_cycle()
        else:
            self.hang_up()
        return status

    def hang_up(self) -> None:
        """Let the connection go at once."""
        if self._open is not None:
            self._open.writer.transport.abort()
            self._open = None

    async def _connection(self, host: str, port: int) -> _Connection:
        """The connection of the last call, if it leads there and still stands, or a new one."""
        kept = self._open
        if kept is not None and kept.where == (host, port) and not kept.reader.at_eof():
            return kept
        self.hang_up()
        reader, writer = await asyncio.open_connection(host, port)
        self._open = _Connection((host, port), reader, writer, h11.Connection(h11.CLIENT))
        return self._open


async def _exchange(connection: _Connection, request: h11.Request, body: bytes) -> int:
    """Say it, and read the answer to its end."""
    http, writer = connection.http, connection.writer
    parts = (http.send(request), http.send(h11.Data(body)), http.send(h11.EndOfMessage()))
    writer.write(b"".join(part for part in parts if part))
    await writer.drain()
    status, size = 0, 0
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await connection.reader.read(_READ_SIZE))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size > _ANSWER_LIMIT:
                raise NoAnswer("the answer has no end")
        elif isinstance(event, h11.EndOfMessage):
            return status
        elif not isinstance(event, h11.InformationalResponse):
            raise NoAnswer("closed")
