"""A tiny web service that takes webhooks, keeps what came, and answers as a test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from cerniq_pipeline.domain.events import WebhookRequest

PATIENCE_SECONDS = 20


@dataclass(frozen=True)
class Call:
    """One request as it came, and the connection that brought it."""

    path: str
    headers: dict[str, str]
    body: bytes
    client_port: int

    @property
    def told(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def event_type(self) -> str:
        return self.told["event_type"]

    def as_request(self) -> WebhookRequest:
        """The call as our own web service would hand it to a reader."""
        url = f"http://127.0.0.1{self.path}"
        query = dict(parse_qsl(urlsplit(url).query))
        return WebhookRequest(url=url, headers=self.headers, query=query, body=self.body)


class Receiver:
    """Listens on a free port; `statuses` are the answers to come, 200 when they are used up."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.statuses: list[int] = []
        self.go_on = threading.Event()
        self.go_on.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = receiver._take(Call(self.path, headers, body, self.client_address[1]))
                try:
                    self.send_response(status)
                    self.send_header("content-length", "0")
                    self.end_headers()
                except OSError:
                    self.close_connection = True  # whoever called did not wait

            def log_message(self, format: str, *args: object) -> None:
                """Tests read `calls` instead."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def hang(self) -> None:
        """Take requests and answer none of them until `go_on` is set."""
        self.go_on.clear()

    def wait_for(self, count: int) -> list[Call]:
        """The calls, as soon as there are so many."""
        until(lambda: len(self.calls) >= count)
        return list(self.calls)

    def events(self, event_type: str) -> list[dict[str, Any]]:
        """What was told of one type, in the order it came."""
        return [call.told for call in list(self.calls) if call.event_type == event_type]

    def _take(self, call: Call) -> int:
        self.calls.append(call)
        status = self.statuses.pop(0) if self.statuses else 200
        self.go_on.wait(PATIENCE_SECONDS)
        return status


def until(condition: Callable[[], Any]) -> Any:
    """What the condition gives once it is true; a test that waits in vain fails."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)
    return found


def uids(told: Iterable[dict[str, Any]]) -> list[str]:
    return [one["message"]["message_uid"] for one in told]
