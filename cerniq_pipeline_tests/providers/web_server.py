"""A server on this machine that answers as a test tells it, byte by byte."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

Script = Callable[["Visit"], None]


class Visit:
    """One visitor: its request is read, and the script says what it gets."""

    def __init__(self, peer: socket.socket, head: str, over: threading.Event) -> None:
        self._peer = peer
        self.head = head
        self.over = over

    def say(self, data: bytes) -> None:
        self._peer.sendall(data)

    def wait(self, seconds: float) -> bool:
        """Do nothing for a while; True when the test is over."""
        return self.over.wait(seconds)


def answering(
    body: bytes = b"", *, status: str = "200 OK", length: int | None = None, **headers: str
) -> Script:
    """A script that gives one plain answer; `length` announces something else than it is."""
    told = {"Content-Length": str(len(body) if length is None else length), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in told.items())
    return lambda visit: visit.say(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body)


class WebServer:
    """Listens on a loopback port until the test is over, and remembers who came."""

    def __init__(self, script: Script, *, identity: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.heads: list[str] = []
        self._identity = identity
        self._came: list[int] = []
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._door = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._open, daemon=True)]

    @property
    def port(self) -> int:
        return self._door.getsockname()[1]

    def visitors(self) -> int:
        """How many connections there were before this question.

        The question is a connection itself: they come in order, so when it is there, all are.
        """
        with socket.create_connection(("127.0.0.1", self.port)) as question:
            mine = question.getsockname()[1]
            with self._changed:
                assert self._changed.wait_for(lambda: mine in self._came, timeout=10)
                self._came.remove(mine)
                return len(self._came)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for thread in self._threads:
            thread.join(timeout=10)

    def _open(self) -> None:
        while not self._over.is_set():
            try:
                peer, (_, port) = self._door.accept()
            except OSError:
                return
            with self._changed:
                self._came.append(port)
                self._changed.notify_all()
            thread = threading.Thread(target=self._serve, args=[peer], daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: socket.socket) -> None:
        with suppress(OSError):
            peer.settimeout(10)
            if self._identity:
                peer = self._identity.wrap_socket(peer, server_side=True)
            with peer:
                head = b""
                while b"\r\n\r\n" not in head:
                    if not (got := peer.recv(65536)):
                        return
                    head += got
                self.heads.append(head.decode("latin-1"))
                self.script(Visit(peer, self.heads[-1], self._over))
        peer.close()
