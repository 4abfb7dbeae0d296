"""A provider that drips its answer is given up at one deadline for the whole call."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from cerniq_pipeline.errors import SendUnconfirmed
from cerniq_pipeline.providers.calls import open_client, post
from cerniq_pipeline.store.database import DatabaseClock, connect

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n"


@pytest.fixture(params=[0, len(HEAD)], ids=["in the head", "in the body"])
def dripping(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that sends so much of its answer at once, and then a byte every now and then."""
    at_once: int = request.param
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            line, _ = server.accept()
            with line:
                line.recv(65536)
                line.sendall(HEAD[:at_once])
                for byte in HEAD[at_once:] + b" " * 4000:
                    if over.wait(0.02):
                        return
                    try:
                        line.sendall(bytes([byte]))
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


def test_a_dripping_answer_is_silence_once_the_deadline_is_over(dripping: str):
    with open_client(dripping, "token") as client:
        client.timeout = httpx.Timeout(0.3, connect=3.0)
        with pytest.raises(SendUnconfirmed, match="SILENCE: ReadTimeout"):
            post(client, "/messages", meaning=lambda _: SendUnconfirmed("X", "x"), json={})


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="a clock of Linux")
def test_time_goes_on_while_the_machine_sleeps(database_url: str, monkeypatch: pytest.MonkeyPatch):
    """As the kernel shows it: the clock since boot goes on, the monotonic one stood still."""
    engine = connect(database_url)
    clock, real, wall = DatabaseClock(engine), time.clock_gettime, time.time
    before = clock.now()
    asleep = 20.0
    monkeypatch.setattr(
        time, "clock_gettime", lambda one: real(one) + asleep * (one == time.CLOCK_BOOTTIME)
    )
    monkeypatch.setattr(time, "time", lambda: wall() + asleep)
    assert (clock.now() - before).total_seconds() >= asleep
    engine.dispose()
