"""Too much and too slow: the sender is cut off, the memory stays flat, the next event is served."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine

from cerniq_pipeline_tests.builders import rows
from cerniq_pipeline_tests.web.running import RunningWeb, everything_from, wait_until
from cerniq_pipeline_tests.web.senders import ALL_SECRETS, META, SENDERS, TIMELINESAI, a_message

MIB = 1024 * 1024
TARGET = f"/webhooks/timelinesai?token={TIMELINESAI.secret}".encode()
POST = b"POST " + TARGET + b" HTTP/1.1\r\nHost: x\r\n"
SEEMS_SIGNED = {"X-Hub-Signature-256": f"sha256={'0' * 64}"}
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def _the_next_good_event_is_kept(web: RunningWeb, inbox: Engine) -> Iterator[None]:
    yield
    assert TIMELINESAI.post(a_message("after-all-that")).to(web.client).status_code == 200
    kept = rows(inbox, "SELECT event_key FROM webhook_events")
    assert [row["event_key"] for row in kept] == ["message:received:new:after-all-that"]


def poured(web: RunningWeb, begin: bytes, piece: bytes, *, most: int) -> tuple[int, bytes]:
    """How much of this the service takes before it hangs up, and what it says."""
    taken = 0
    with web.socket() as connection:
        try:
            connection.sendall(begin)
            while taken < most:
                connection.sendall(piece)
                taken += len(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        connection.settimeout(5)
        return taken, everything_from(connection)


ENDLESS = {
    "a body of 100 MB": (POST + b"Content-Length: 104857600\r\n\r\n", b"x" * 65536, b" 413 "),
    "a body without an end": (CHUNKED, b"10000\r\n" + b"x" * 65536 + b"\r\n", b" 413 "),
    "a body in single bytes": (CHUNKED, b"1\r\nx\r\n" * 8192, b" 413 "),
    "a head without an end": (POST + b"X-Long: ", b"x" * 65536, b" 431 "),
    "headers without an end": (POST, b"X-Many: x\r\n" * 4096, b" 431 "),
    "an address without an end": (b"GET /", b"x" * 65536, b" 431 "),
    "a trailer without an end": (CHUNKED + b"0\r\n", b"X-Many: x\r\n" * 4096, b""),
    "a trailer's value without an end": (CHUNKED + b"0\r\nX-Long: ", b"x" * 65536, b""),
    "nothing but new lines": (b"\r\n", b"\r\n" * 32768, b""),
    "a body for an address that is not there": (
        b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + b"x" * 65536 + b"\r\n",
        b" 404 ",
    ),
    "a body for a page": (
        b"GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + b"x" * 65536 + b"\r\n",
        b"",
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_has_no_end_is_cut_off_and_costs_no_memory(web: RunningWeb, name: str):
    begin, piece, says = ENDLESS[name]
    before = web.process.memory_info().rss
    taken, said = poured(web, begin, piece, most=100 * MIB)
    assert taken < 40 * MIB  # most of it never left this side, or was thrown away
    assert says in said[:20] or not said
    assert web.process.memory_info().rss - before < 15 * MIB


def test_a_body_that_is_too_large_hears_so(web: RunningWeb):
    answer = web.client.post(TARGET.decode(), content=b"x" * (MIB + 1))
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")

    def pieces() -> Iterator[bytes]:
        for _ in range(17):
            yield b"x" * 65536

    assert web.client.post(TARGET.decode(), content=pieces()).status_code == 413


def test_a_hundred_megabytes_leave_no_trace(web: RunningWeb):
    before = web.process.memory_info().rss
    for _ in range(100):
        with suppress(httpx.TransportError):  # it is not listened to, and may miss the answer
            web.client.post("/webhooks/timelinesai?token=wrong", content=b"x" * MIB)
    assert web.process.memory_info().rss - before < 15 * MIB


def test_the_largest_body_that_is_allowed_is_read_whole(web: RunningWeb):
    answer = web.client.post("/webhooks/whatsapp", content=b"x" * MIB, headers=SEEMS_SIGNED)
    assert answer.status_code == 401


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "identity, gzip"])
def test_packed_bodies_are_not_unpacked(web: RunningWeb, encoding: str):
    answer = web.client.post(
        TARGET.decode(), content=b"\x1f\x8b", headers={"content-encoding": encoding}
    )
    assert answer.status_code == 415


def test_more_bytes_than_were_announced_are_no_part_of_the_body(web: RunningWeb):
    with web.socket() as connection:
        head = b"POST /webhooks/resend HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
        connection.sendall(head + b"{}" + b"and a lot more" * 1000)
        said = everything_from(connection)
    assert b" 400 " in said
    assert said.count(b"HTTP/1.1 ") <= 2


def drip(piece: bytes) -> Callable[[socket.socket], None]:
    def send(connection: socket.socket) -> None:
        connection.settimeout(0.2)
        for _ in range(200):
            try:
                connection.sendall(piece)
                if not connection.recv(65536):
                    return
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                return
        pytest.fail("nobody hung up")

    return send


SLOW = {
    "says nothing": b"",
    "new lines": b"\r\n",
    "in the head": POST,
    "in a header": POST + b"X-Slow: ",
    "in the body": POST + b"Content-Length: 100\r\n\r\n",
    "between chunks": CHUNKED,
    "in the trailer": CHUNKED + b"0\r\n",
}


@pytest.mark.parametrize("name", SLOW)
def test_whoever_takes_too_long_is_hung_up_on(web: RunningWeb, name: str):
    begin = SLOW[name]
    pieces = {"says nothing": b"", "new lines": b"\r\n", "between chunks": b"1\r\nx\r\n"}
    with web.socket() as connection:
        connection.sendall(begin)
        drip(pieces.get(name, b"x"))(connection)


def test_slow_on_a_connection_that_was_good_before_is_slow_too(web: RunningWeb):
    with web.socket() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in connection.recv(65536)
        connection.sendall(POST)
        drip(b"x")(connection)


def test_two_requests_in_one_piece_get_two_answers(web: RunningWeb):
    with web.socket() as connection:
        ask = b"GET /health HTTP/1.1\r\nHost: x\r\n"
        connection.sendall(ask + b"\r\n" + ask + b"Connection: close\r\n\r\n")
        assert everything_from(connection).count(b"HTTP/1.1 200 ") == 2


def test_many_slow_senders_do_not_keep_a_real_one_out(
    web: RunningWeb, database_url: str, database: Engine, tmp_path: Path
):
    crowded = RunningWeb(tmp_path, database_url, limits={"connections": 20}).tell(**ALL_SECRETS)
    with crowded, ExitStack() as slow:
        for n in range(60):
            connection = slow.enter_context(crowded.socket())
            connection.sendall(POST if n % 2 else b"")
        for n in range(30):
            answer = TIMELINESAI.post(a_message(f"real-{n}")).to(crowded.client)
            assert answer.status_code == 200
            slow.enter_context(crowded.socket()).sendall(POST)
    assert len(rows(database, "SELECT 1 FROM webhook_events")) == 30


HEADLESS = {
    **{one.provider: (one.path, b"") for one in SENDERS if one.provider != "vonage"},
    # Without a JWT, Vonage's proof stands in its form.
    "vonage": ("/webhooks/vonage", b"Authorization: Bearer e30.e30.e30\r\n"),
    "old": ("/webhooks/resend", b"svix-id: 1\r\nsvix-timestamp: 1\r\nsvix-signature: v1,x\r\n"),
    "a proof without a form": ("/webhooks/whatsapp", b"X-Hub-Signature-256: sha256=12\r\n"),
    "handshake": ("/webhooks/timelinesai/a-wrong-token", b"Expect: 100-continue\r\n"),
}


@pytest.mark.parametrize("name", HEADLESS)
def test_whose_head_cannot_be_believed_is_refused_before_the_body(web: RunningWeb, name: str):
    path, headers = HEADLESS[name]
    with web.socket() as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n".encode() + headers
        connection.sendall(head + b"\r\n")
        wanted = b" 404 " if "timelinesai" in path else b" 401 "
        answer = everything_from(connection)
        assert wanted in answer.splitlines()[0]
        # Said, so that nobody sends the next request into a connection that is being closed.
        assert b"connection: close" in answer.lower()


def test_slow_bodies_of_anybody_give_way_to_one_another_and_to_every_provider(
    web: RunningWeb, database_url: str, database: Engine, tmp_path: Path
):
    narrow = RunningWeb(tmp_path, database_url, limits={"held_bytes": 800_000}).tell(**ALL_SECRETS)
    head = "".join(f"{name}: {value}\r\n" for name, value in SEEMS_SIGNED.items()).encode()
    slow_post = b"POST /webhooks/whatsapp HTTP/1.1\r\nHost: x\r\n" + head
    with narrow, ExitStack() as slow:
        senders = [slow.enter_context(narrow.socket()) for _ in range(12)]
        for sender in senders:
            sender.sendall(slow_post + b"Content-Length: 100000\r\n\r\n" + b"x" * 90_000)
        real = META.body + b" " * 90_000
        assert META.post(real).to(narrow.client).status_code == 200
        assert TIMELINESAI.post(a_message("x")).to(narrow.client).status_code == 200
        assert b" 503 " in everything_from(senders[0])  # who began first goes first
    assert len(rows(database, "SELECT 1 FROM webhook_events")) == 2


def test_bodies_that_are_held_have_a_limit_in_all(
    web: RunningWeb, database_url: str, tmp_path: Path
):
    narrow = RunningWeb(tmp_path, database_url, limits={"held_bytes": 100_000}).tell(**ALL_SECRETS)
    with narrow, narrow.socket() as one, narrow.socket() as other:
        for sender in (one, other):
            sender.sendall(POST + b"Content-Length: 100000\r\n\r\n" + b"x" * 60_000)
        (refused,), _, _ = select.select([one, other], [], [], 10)
        assert b" 503 " in everything_from(refused)
        one.close()
        other.close()
        wait_until(
            lambda: narrow.client.post(f"{TARGET.decode()}", content=b"x" * 90_000).is_success
        )
