"""Reading one file from the public web, without being led anywhere else.

The name is resolved once, every address it has must be public, and the connection goes to one of
those very addresses: a second answer of the name server is never asked for. The certificate is
still checked against the name. A redirect is a refusal, and so is everything but a plain 200.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from email.message import Message
from typing import Any
from urllib.parse import unquote

import httpcore
import httpx

from cerniq_pipeline.domain import media
from cerniq_pipeline.domain.media import Fetched, IPAddress, WebAddress, megabytes
from cerniq_pipeline.errors import MediaRefused
from cerniq_pipeline.providers.deadlines import LimitedStream, Seconds, TimeLimit

DEADLINE = 10.0
"""Seconds for everything together: the name, the connection, and the last byte."""

Resolve = Callable[[str, int], Sequence[str]]
Rule = Callable[[IPAddress], str | None]


def ask_the_system(host: str, port: int) -> list[str]:
    """The addresses of a host, as this machine's name service has them; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class WebFetcher:
    """A Fetcher over HTTPS. `seconds` is a clock that nobody can set, for the deadline.

    `plain` and another `rule` are for a server on this machine; strangers' addresses get neither.
    """

    def __init__(
        self,
        *,
        seconds: Seconds,
        resolve: Resolve = ask_the_system,
        rule: Rule = media.refused_address,
        plain: bool = False,
        deadline: float = DEADLINE,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._seconds = seconds
        self._resolve = resolve
        self._rule = rule
        self._plain = plain
        self._deadline = deadline
        self._trust = trust

    def fetch(self, url: str) -> Fetched:
        """The file at this address, or MediaRefused with the reason."""
        address = media.web_address(url, plain=self._plain)
        limit = TimeLimit(self._seconds, self._seconds() + self._deadline)
        pinned = self._public_addresses(address)
        try:
            return self._read(address, _PinnedNetwork(pinned, limit))
        except httpcore.TimeoutException as error:
            raise MediaRefused(
                f"{address.host} took longer than {self._deadline:g} seconds; try again later"
            ) from error
        except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError) as error:
            raise MediaRefused(
                f"{address.host} could not be read to the end ({type(error).__name__}: {error})"
            ) from error

    def _public_addresses(self, address: WebAddress) -> list[str]:
        """Where the host lives; refused when any of its addresses is not public."""
        try:
            found = [address.host] if address.literal else self._resolve(address.host, address.port)
        except (OSError, UnicodeError) as error:
            raise MediaRefused(f"the name {address.host} has no address; check it") from error
        if not found:
            raise MediaRefused(f"the name {address.host} has no address; check it")
        for one in found:
            if reason := self._rule(ipaddress.ip_address(one)):
                leads = "is" if address.literal else f"leads to {one}, which is"
                raise MediaRefused(
                    f"{address.host} {leads} {reason}; only public addresses are read"
                )
        return list(found)

    def _read(self, address: WebAddress, network: _PinnedNetwork) -> Fetched:
        port = None if address.port == {"https": 443, "http": 80}[address.scheme] else address.port
        name = f"[{address.host}]" if ":" in address.host else address.host
        # Nothing that is packed: the size of what comes out of it could not be bounded by what
        # came in.
        headers = {
            "Host": name if port is None else f"{name}:{port}",
            "User-Agent": "cerniq",
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        url = httpcore.URL(
            scheme=address.scheme, host=address.host, port=address.port, target=address.target
        )
        with (
            httpcore.ConnectionPool(
                ssl_context=self._trust or httpx.create_ssl_context(trust_env=False),
                network_backend=network,
                max_keepalive_connections=0,
            ) as pool,
            pool.stream("GET", url, headers=list(headers.items())) as answer,
        ):
            told = Message()
            for key, value in answer.headers:
                told[key.decode("ascii")] = value.decode("utf-8", "replace")
            _check_answer(address, answer.status, told)
            declared = told.get("Content-Type")
            content = _read_body(
                address, answer.iter_stream(), told, most=media.size_limit(declared)
            )
        return Fetched(media.safe_name(_called(address, told), declared), declared, content)


def _check_answer(address: WebAddress, status: int, told: Message) -> None:
    if 300 <= status < 400:
        raise MediaRefused(
            f"{address.host} answers with a redirect ({status}), and redirects are not followed; "
            "use the address of the file itself"
        )
    if status != 200:
        raise MediaRefused(f"{address.host} answers {status} instead of the file")
    packed = told.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise MediaRefused(f"{address.host} sends the file packed ({packed[:20]}); it must not be")


def _read_body(address: WebAddress, chunks: Iterable[bytes], told: Message, *, most: int) -> bytes:
    """The whole body; refused as soon as it is known to be too large, whatever was announced."""
    too_large = f"the file at {address.host} has more than the {megabytes(most)} that are allowed"
    announced = told.get("Content-Length", "")
    if re.fullmatch(r"\d{1,18}", announced) and int(announced) > most:
        raise MediaRefused(too_large)
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > most:
            raise MediaRefused(too_large)
    return bytes(content)


def _called(address: WebAddress, told: Message) -> str:
    """What the server calls the file, else the end of the path."""
    return told.get_filename() or unquote(address.target.partition("?")[0])


class _PinnedNetwork(httpcore.NetworkBackend):
    """Connects to the given addresses only, whatever host is asked for."""

    def __init__(self, addresses: Sequence[str], limit: TimeLimit) -> None:
        self._addresses = addresses
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
        *others, last = self._addresses
        for behind, one in zip(range(len(others), 0, -1), others, strict=True):
            try:  # an address that is silent may not use up the time of those after it
                return self._connect(one, port, within=self._limit.left() / (behind + 1))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return self._connect(last, port, within=self._limit.left())

    def _connect(self, address: str, port: int, *, within: float) -> httpcore.NetworkStream:
        stream = self._network.connect_tcp(address, port, timeout=within)
        return LimitedStream(stream, self._limit)
