"""One deadline for a whole call: the connection, the request, and the last byte of the answer.

A client's timeouts are one per read, so a server that sends a byte now and then could hold us for
ever. Here each step gets what is left of the whole.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from cerniq_pipeline import ticks

Seconds = Callable[[], float]


@dataclass(frozen=True)
class TimeLimit:
    """The end of a call, by a clock that nobody can set."""

    seconds: Seconds
    ends: float

    def left(self) -> float:
        """What is left for the next step; raises when nothing is."""
        left = self.ends - self.seconds()
        if left <= 0:
            raise httpcore.ReadTimeout("the deadline has passed")
        return left


class LimitedStream(httpcore.NetworkStream):
    """A connection on which every step must end within the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, limit: TimeLimit) -> None:
        self._stream = stream
        self._limit = limit

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout=self._limit.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout=self._limit.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self._limit.left()
        secured = self._stream.start_tls(ssl_context, server_hostname, timeout=left)
        return LimitedStream(secured, self._limit)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _LimitedNetwork(httpcore.NetworkBackend):
    def __init__(self, limit: TimeLimit) -> None:
        self._limit = limit
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._limit.left()
        within = left if timeout is None else min(timeout, left)
        return LimitedStream(self._network.connect_tcp(host, port, timeout=within), self._limit)


class OneDeadline(httpx.BaseTransport):
    """A transport that ends a request `read` seconds after it began, whatever the server sends.

    Each request has a connection of its own.
    """

    def __init__(self, seconds: Seconds = ticks.seconds) -> None:
        self._seconds = seconds
        self._trust = httpx.create_ssl_context(trust_env=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer to one request, its body still to be read."""
        whole = request.extensions.get("timeout", {}).get("read")
        ends = float("inf") if whole is None else self._seconds() + whole
        pool = httpcore.ConnectionPool(
            ssl_context=self._trust,
            network_backend=_LimitedNetwork(TimeLimit(self._seconds, ends)),
            max_keepalive_connections=0,
        )
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        asked = httpcore.Request(
            request.method,
            url,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            with _in_the_words_of_httpx(request):
                answer = pool.handle_request(asked)
        except BaseException:
            pool.close()
            raise
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer, pool, request),
            extensions=answer.extensions,
        )


class _Body(httpx.SyncByteStream):
    def __init__(
        self, answer: httpcore.Response, pool: httpcore.ConnectionPool, request: httpx.Request
    ) -> None:
        self._answer = answer
        self._pool = pool
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        with _in_the_words_of_httpx(self._request):
            yield from self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()
        self._pool.close()


@contextmanager
def _in_the_words_of_httpx(request: httpx.Request) -> Iterator[None]:
    """Its errors have the names of those that it stands on."""
    try:
        yield
    except (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.UnsupportedProtocol,
    ) as error:
        kind = getattr(httpx, type(error).__name__, httpx.TransportError)
        raise kind(str(error), request=request) from error
