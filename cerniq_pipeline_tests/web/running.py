"""A web service in its own process, and the questions that tests ask it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil

PROJECT = Path(__file__).parents[2]
PUBLIC_URL = "https://hooks.example.test"


class RunningWeb:
    """Starts, stops and kills a web service; its settings are the `.env` of its folder."""

    def __init__(
        self, folder: Path, database_url: str, *, limits: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = folder
        self.port = 0
        self._limits = json.dumps(limits or {})
        self._process: subprocess.Popen[str] | None = None
        self._client: httpx.Client | None = None
        self._settings = {
            "CERNIQ_DATABASE_URL": database_url,
            "CERNIQ_REDIS_URL": "unix:///nowhere",
            "CERNIQ_SECRET_KEY": "a key of the tests",
            "CERNIQ_DATA_DIR": str(folder / "data"),
            "CERNIQ_PUBLIC_URL": PUBLIC_URL,
        }
        folder.mkdir(parents=True, exist_ok=True)

    def tell(self, **settings: str) -> Self:
        """Write these settings into `.env`, beside those that are there."""
        self._settings |= {f"CERNIQ_{name.upper()}": value for name, value in settings.items()}
        lines = (f"{name}='{value}'\n" for name, value in self._settings.items())
        fresh = self.folder / ".env.new"
        fresh.write_text("".join(lines))
        fresh.replace(self.folder / ".env")
        return self

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spool(self) -> Path:
        return self.folder / "data" / "spool"

    @property
    def client(self) -> httpx.Client:
        if self._client is None:
            self._client = httpx.Client(base_url=self.base_url, timeout=10, trust_env=False)
        return self._client

    @property
    def process(self) -> psutil.Process:
        assert self._process is not None, "not running"
        return psutil.Process(self._process.pid)

    @property
    def log(self) -> str:
        return (self.folder / "web.log").read_text()

    def start(self) -> Self:
        """Start it and return when it takes requests."""
        assert self._process is None, "already running"
        self.tell()
        outside = {n: v for n, v in os.environ.items() if not n.startswith("CERNIQ_")}
        command = [sys.executable, "-m", "cerniq_pipeline_tests.web.serving"]
        with (self.folder / "web.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, self._limits, str(self.port)],
                cwd=self.folder,
                env={**outside, "PYTHONPATH": str(PROJECT)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        announced = self._process.stdout.readline().strip()
        if not announced:
            self._end(signal.SIGKILL)
            raise RuntimeError(self.log)
        self.port = int(announced.rpartition(":")[2])
        wait_until(self.answers)
        return self

    def answers(self) -> bool:
        """Whether it speaks to us, well or not."""
        try:
            return bool(self.client.get("/health").status_code)
        except httpx.TransportError:
            return False

    def health(self) -> dict[str, Any]:
        return self.client.get("/health").json()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop, and return its exit code."""
        return self._end(number)

    def kill(self) -> int:
        """End it without warning, as a crash would."""
        return self._end(signal.SIGKILL)

    def socket(self) -> socket.socket:
        """A connection on which a test can write anything."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, "not running"
        if self._client is not None:
            self._client.close()
            self._client = None
        process.send_signal(number)
        code = process.wait(timeout=15)
        if process.stdout is not None:
            process.stdout.close()
        return code


def wait_until(true: Callable[[], bool], *, seconds: float = 20) -> None:
    """Return as soon as this is true; fails when it does not become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def everything_from(connection: socket.socket) -> bytes:
    """All that the other side says until it closes."""
    said = b""
    try:
        while piece := connection.recv(65536):
            said += piece
    except ConnectionResetError:
        pass  # it closed while we were still sending
    return said
