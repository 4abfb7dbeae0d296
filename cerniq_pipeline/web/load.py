"""`python -m cerniq_pipeline.web.load`: posts webhooks over a few connections, and times each.

Reads what to do as JSON from standard input, writes what it saw as JSON to standard output. It
speaks to the socket itself: a client library would need more of the processor than the service
that is measured.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import cast

import uvloop

_PATIENCE_SECONDS = 600
_UID = "@uid@"
_BODY = {
    "event_type": "message:received:new",
    "chat": {
        "full_name": "Andrei Popescu",
        "chat_url": "https://app.timelines.example/chat/18273645/messages/",
        "chat_id": 18273645,
        "is_new_chat": False,
        "is_group": False,
        "phone": "+40721000123",
        "responsible_email": "echipa@firma.example",
    },
    "whatsapp_account": {
        "full_name": "Echipa de vânzări",
        "phone": "+40790000001",
        "email": "vanzari@firma.example",
    },
    "message": {
        "text": "Bună ziua! Mulțumesc pentru mesaj. Ne-ar interesa o discuție săptămâna viitoare, "
        "marți sau miercuri după ora 14. Puteți să îmi trimiteți și o ofertă de preț?",
        "direction": "received",
        "origin": "WhatsApp",
        "timestamp": "2026-11-18 10:00:00 +0200",
        "message_uid": _UID,
        "reply_to_uid": None,
        "sender": {"full_name": "Andrei Popescu", "phone": "+40721000123"},
        "recipient": {"full_name": "Echipa de vânzări", "phone": "+40790000001"},
        "attachments": [],
    },
}


@dataclass(frozen=True)
class Load:
    """What to post: `events` new ones, and each `again`-th of them a second time."""

    host: str
    port: int
    path: str
    connections: int
    events: int
    again: int
    name: str
    """Makes the events of this load differ from those of any other."""
    copies: int = 0
    """Instead: one event, so many times."""


@dataclass(frozen=True)
class Seen:
    """What came of it."""

    posts: int
    seconds: float
    p50_ms: float
    p99_ms: float
    slowest_ms: float


def a_body(uid: str) -> bytes:
    """An event about one message, of the size that real ones have."""
    return json.dumps(_BODY, ensure_ascii=False).replace(_UID, uid).encode()


def requests(load: Load) -> Callable[[], bytes | None]:
    """A function that gives the next request, or None when all were given."""
    before, after = a_body("|").split(b"|")
    width = 36
    length = len(before) + width + len(after)
    head = (
        f"POST {load.path} HTTP/1.1\r\nHost: {load.host}:{load.port}\r\n"
        "User-Agent: timelinesai-webhooks/1.0\r\nAccept: */*\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()
    numbers = iter(_numbers(load))

    def next_request() -> bytes | None:
        number = next(numbers, None)
        if number is None:
            return None
        uid = f"{load.name}-{number}".rjust(width, "0").encode()
        return head + before + uid + after

    return next_request


def _numbers(load: Load) -> list[int]:
    if load.copies:
        return [0] * load.copies
    numbers = []
    for number in range(1, load.events + 1):
        numbers += [number] * (2 if load.again and number % load.again == 0 else 1)
    return numbers


class _Poster(asyncio.Protocol):
    """One connection: posts, waits for the answer, posts the next one."""

    def __init__(self, next_request: Callable[[], bytes | None], took: list[float]) -> None:
        self._next = next_request
        self._took = took
        self._answer = b""
        self._began = 0.0
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._post()

    def _post(self) -> None:
        assert self._transport is not None
        request = self._next()
        if request is None:
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end or body != b"ok":
            if end and len(body) >= 2:
                self._fail(f"the service answered {head[9:12].decode()}")
            return
        self._took.append(time.perf_counter() - self._began)
        self._answer = b""
        self._post()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            if self._next() is None:
                self.ended.set_result(None)
            else:
                self._fail("the service closed a connection")

    def _fail(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(RuntimeError(why))


async def post(load: Load) -> Seen:
    """Post everything; raises when an answer is anything but a plain 200, or none comes."""
    took: list[float] = []
    next_request = requests(load)
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    posters = [
        (await loop.create_connection(lambda: _Poster(next_request, took), load.host, load.port))[1]
        for _ in range(load.connections)
    ]
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await asyncio.gather(*(poster.ended for poster in posters))
    seconds = time.perf_counter() - began
    parts = statistics.quantiles(took, n=100, method="inclusive")
    return Seen(
        posts=len(took),
        seconds=seconds,
        p50_ms=round(parts[49] * 1000, 2),
        p99_ms=round(parts[98] * 1000, 2),
        slowest_ms=round(max(took) * 1000, 2),
    )


def main() -> None:
    """Do what standard input says."""
    load = Load(**json.load(sys.stdin))
    sys.stdout.write(json.dumps(asdict(uvloop.run(post(load)))))


if __name__ == "__main__":
    main()
