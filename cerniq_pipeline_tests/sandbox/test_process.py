"""The sandbox as a process: its journal outlives crashes, its connections follow the rules."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PHONE = "+40731000001"
LEAD = "+40722123456"
API = "/integrations/api"
MEBIBYTE = 1024 * 1024


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[RunningSandbox]:
    """A sandbox of the test's own, to be killed and started again."""
    with RunningSandbox(tmp_path / "journal") as running:
        yield running


def body(text: str = "Bună", *, phone: str = PHONE, to: str = LEAD) -> dict[str, str]:
    return {"phone": to, "whatsapp_account_phone": phone, "text": text}


def post(sandbox: RunningSandbox, text: str = "Bună", *, phone: str = PHONE) -> str:
    answer = sandbox.client.post(f"{API}/messages", json=body(text, phone=phone))
    return answer.raise_for_status().json()["data"]["message_uid"]


def history(sandbox: RunningSandbox, chat_id: int = 1000001) -> list[str]:
    answer = sandbox.client.get(f"{API}/chats/{chat_id}/messages")
    return [message["text"] for message in answer.raise_for_status().json()["data"]["messages"]]


# --- the journal ---------------------------------------------------------------------------------


def test_what_was_answered_survives_a_kill_in_the_middle_of_traffic(fragile: RunningSandbox):
    answered: list[str] = []
    first_answers = threading.Event()

    def keep_sending(phone: str) -> None:
        client = httpx.Client(headers={"authorization": "Bearer x"}, trust_env=False)
        with client:
            for number in range(10_000):
                message = body(f"mesaj {number}", phone=phone)
                try:
                    answer = client.post(f"{fragile.public_url}/messages", json=message)
                except httpx.TransportError:
                    return
                answered.append(answer.json()["data"]["message_uid"])
                if len(answered) >= 40:
                    first_answers.set()

    with ThreadPoolExecutor(4) as pool:
        for number in range(4):
            pool.submit(keep_sending, f"+4073100000{number}")
        assert first_answers.wait(10)
        fragile.kill()
    on_disk = {line["message_uid"] for line in fragile.accepted()}
    assert len(answered) >= 40
    assert set(answered) <= on_disk
    fragile.start()
    known = [fragile.client.get(f"{API}/messages/{uid}").status_code for uid in answered]
    assert set(known) == {200}


def test_a_restart_keeps_accounts_chats_and_history(fragile: RunningSandbox):
    uid = post(fragile, "unu")
    fragile.set_accounts(**{"+40731000009": "disconnected"})
    before = fragile.journal()
    accounts = fragile.client.get("/_sandbox/accounts").json()
    chats = fragile.client.get(f"{API}/chats").json()
    assert fragile.stop() == 0
    fragile.start()
    assert fragile.journal() == before
    assert fragile.client.get("/_sandbox/accounts").json() == accounts
    assert fragile.client.get(f"{API}/chats").json() == chats
    assert fragile.client.get(f"{API}/messages/{uid}").json()["data"]["text"] == "unu"
    post(fragile, "doi")
    assert history(fragile) == ["doi", "unu"]
    numbers = [line["n"] for line in fragile.journal()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_restart_keeps_replies_files_failures_and_the_window(fragile: RunningSandbox):
    fragile.set_accounts(**{PHONE: "active", "+40731000002": "active"})
    meta = {"messaging_product": "whatsapp", "to": "40722123456"}
    free = {**meta, "type": "text", "text": {"body": "Bună"}}
    url = f"{fragile.meta_url}/140731000001/messages"
    fragile.client.post(url, json=free).raise_for_status()
    fragile.client.post(f"{API}/messages", json=body(to="+40731000002")).raise_for_status()
    heard = fragile.inbound(PHONE, LEAD, "Da", kind="image")
    upload = fragile.client.post(f"{API}/files_upload", files={"file": ("a.pdf", b"oferta")})
    kept = [
        fragile.client.post(
            f"{fragile.meta_url}/140731000001/media",
            data={"messaging_product": "whatsapp"},
            files={"file": ("a.jpg", b"poza")},
        ).json()["id"]
        for _ in range(2)
    ]
    fragile.client.delete(f"{fragile.meta_url}/{kept[0]}").raise_for_status()
    fragile.client.post(fragile.slack_url, json={"text": "alarmă"}).raise_for_status()
    seen = [
        f"{API}/chats?with_msg=true",
        f"{API}/messages/{heard['message_uid']}",
        "/",
        f"/v23.0/{kept[0]}",
        f"/v23.0/{kept[1]}",
    ]

    def told() -> list[str]:
        answers = [fragile.client.get(path).text for path in seen]
        return [re.sub(r'"(status|fbtrace_id)": "\w+"', "", answer) for answer in answers]

    before = told()
    fragile.stop()
    fragile.start()
    assert told() == before
    assert "does not exist" in before[3]
    file_uid = upload.json()["data"]["uid"]
    with_file = {**body(), "file_uid": file_uid}
    assert fragile.client.post(f"{API}/messages", json=with_file).status_code == 200
    fragile.client.post(url, json=free).raise_for_status()
    assert len(fragile.statuses()) == 1  # the reply from before the restart keeps the window open


def test_a_journal_from_before_files_and_replies_is_still_read(fragile: RunningSandbox):
    post(fragile, "unu")
    fragile.stop()
    path = fragile.journal_dir / "journal.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        line.pop("attachment", None)
        line.pop("delivered", None)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    fragile.start()
    assert history(fragile) == ["unu"]


def test_a_message_hidden_at_sending_stays_hidden_after_a_restart(fragile: RunningSandbox):
    fragile.fault("history_hidden", operation="send", times=1)
    post(fragile)
    fragile.stop()
    fragile.start()
    assert fragile.faults() == []
    assert history(fragile) == []


def test_a_torn_last_line_is_cut_off(fragile: RunningSandbox):
    post(fragile, "unu")
    fragile.kill()
    path = fragile.journal_dir / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n":99,"at":"2026-01-')
    fragile.start()
    post(fragile, "doi")
    assert path.read_bytes().startswith(whole)
    assert [json.loads(line)["n"] for line in path.read_bytes().splitlines()][-1] < 99
    assert history(fragile) == ["doi", "unu"]


def test_a_damaged_line_in_the_middle_is_not_passed_over(fragile: RunningSandbox):
    post(fragile)
    fragile.kill()
    path = fragile.journal_dir / "journal.jsonl"
    path.write_bytes(b"garbage\n" + path.read_bytes())
    with pytest.raises(RuntimeError, match="line 1 is damaged"):
        fragile.start()


def test_a_request_open_at_a_kill_is_closed_at_the_next_start(fragile: RunningSandbox):
    fragile.fault("late", delay_ms=60_000)
    with pytest.raises(httpx.ReadTimeout):
        fragile.client.post(f"{API}/messages", json=body(), timeout=0.2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fragile.client.post, f"{API}/messages", json=body("doi"))
        while len(fragile.accepted()) < 2:
            time.sleep(0.01)
        fragile.kill()
        assert isinstance(waiting.exception(), httpx.TransportError)
    fragile.start()
    post(fragile, "trei")
    assert [line["how"] for line in fragile.journal("answered")] == [
        "client_gone",
        "cut",
        "answered",
    ]
    assert fragile.overlaps() == []


def test_when_the_journal_takes_no_more_nobody_is_answered(fragile: RunningSandbox):
    post(fragile)
    assert len(fragile.journal("answered")) == 1  # so nothing more is on its way to the disk
    size = (fragile.journal_dir / "journal.jsonl").stat().st_size
    resource.prlimit(fragile.pid, resource.RLIMIT_FSIZE, (size + 10, size + 10))
    with pytest.raises(httpx.TransportError):
        post(fragile, "doi")
    assert fragile.wait() == 1
    assert "File too large" in (fragile.journal_dir / "sandbox.log").read_text()
    assert [line["text"] for line in fragile.accepted()] == ["Bună"]
    fragile.start()
    assert history(fragile) == ["Bună"]


def test_two_sandboxes_cannot_share_a_journal(fragile: RunningSandbox):
    with pytest.raises(RuntimeError, match="belongs to another running sandbox"):
        RunningSandbox(fragile.journal_dir).start()


def test_a_busy_port_is_named(fragile: RunningSandbox, tmp_path: Path):
    second = RunningSandbox(tmp_path / "second")
    second.port = fragile.port
    with pytest.raises(RuntimeError, match=str(fragile.port)):
        second.start()


# --- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_though_clients_wait(fragile: RunningSandbox, number: signal.Signals):
    fragile.fault("late", delay_ms=600_000)
    with (
        socket.create_connection(("127.0.0.1", fragile.port)),
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(fragile.client.post, f"{API}/messages", json=body())
        while not fragile.accepted():
            time.sleep(0.01)
        assert fragile.stop(number) == 0
        assert isinstance(waiting.exception(), httpx.TransportError)
    assert fragile.journal()[-1]["how"] == "cut"
    assert (fragile.journal_dir / "sandbox.log").read_text() == ""


def test_answers_take_the_latency_that_was_asked_for(tmp_path: Path):
    with RunningSandbox(tmp_path, latency_ms="40-60") as slow:
        post(slow)
        accepted, answered = slow.journal("accepted")[0], slow.journal("answered")[0]
    waited = datetime.fromisoformat(answered["at"]) - datetime.fromisoformat(accepted["at"])
    assert waited >= timedelta(milliseconds=39)


# --- connections ---------------------------------------------------------------------------------


def test_twenty_phones_at_once_are_all_served_and_recorded(sandbox: RunningSandbox):
    with ThreadPoolExecutor(20) as pool:
        uids = list(
            pool.map(
                lambda number: post(sandbox, str(number), phone=f"+407310000{number % 20:02}"),
                range(200),
            )
        )
    assert sorted(uids) == sorted(line["message_uid"] for line in sandbox.accepted())
    assert sandbox.duplicates() == []
    assert [line["how"] for line in sandbox.journal("answered")] == ["answered"] * 200


def test_twenty_phones_that_each_wait_for_their_answer_never_overlap(sandbox: RunningSandbox):
    def one_shift(number: int) -> None:
        with httpx.Client(headers={"authorization": "Bearer x"}, trust_env=False) as client:
            for step in range(10):
                message = body(f"{number}/{step}", phone=f"+407310000{number:02}")
                client.post(f"{sandbox.public_url}/messages", json=message).raise_for_status()

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(one_shift, range(20)))
    assert len(sandbox.accepted()) == 200
    assert sandbox.overlaps() == []


def exchange(sandbox: RunningSandbox, *parts: bytes) -> bytes:
    """Send raw bytes and return all that comes back until the sandbox closes."""
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=5) as plain:
        for part in parts:
            plain.sendall(part)
        received = b""
        while chunk := plain.recv(65536):
            received += chunk
        return received


def test_requests_sent_ahead_are_answered_in_order(sandbox: RunningSandbox):
    ask = b"GET /_sandbox/health HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /_sandbox/nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    received = exchange(sandbox, ask + ask + last)
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.index(b"HTTP/1.1 404") > received.rindex(b"HTTP/1.1 200")


def test_a_body_in_chunks_is_understood(sandbox: RunningSandbox):
    whole = json.dumps(body()).encode()
    answer = sandbox.client.post(f"{API}/messages", content=iter([whole[:7], whole[7:]]))
    assert answer.status_code == 200


def test_a_client_that_asks_before_sending_its_body_is_told_to_go_on(sandbox: RunningSandbox):
    content = json.dumps(body()).encode()
    head = (
        f"POST {API}/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer x\r\n"
        f"expect: 100-continue\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=5) as plain:
        plain.sendall(head.encode())
        assert plain.recv(1024).startswith(b"HTTP/1.1 100")
        plain.sendall(content)
        assert b"HTTP/1.1 200 OK" in plain.recv(1024)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused(sandbox: RunningSandbox, chunked: bool):
    size = 32 * MEBIBYTE + 1
    content = (b" " * MEBIBYTE for _ in range(33)) if chunked else b" " * size
    answer = httpx.post(f"{sandbox.public_url}/messages", content=content, trust_env=False)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


def test_garbage_is_answered_with_400_and_closed(sandbox: RunningSandbox):
    assert exchange(sandbox, b"\x16\x03\x01 hello\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert sandbox.client.get("/_sandbox/health").status_code == 200


def test_a_head_request_gets_no_body(sandbox: RunningSandbox):
    answer = sandbox.client.head("/_sandbox/health")
    assert answer.status_code == 200
    assert answer.content == b""
    assert sandbox.client.get("/_sandbox/health").status_code == 200


def test_a_client_that_leaves_in_mid_request_is_no_send(sandbox: RunningSandbox):
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=5) as plain:
        head = f"POST {API}/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n"
        plain.sendall(head.encode() + b'{"phone":')
    assert sandbox.client.get("/_sandbox/health").status_code == 200
    assert sandbox.journal() == []
