"""The service as a whole: health, headers, secrets that change, a good end."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from cerniq_pipeline.errors import SetupError
from cerniq_pipeline.settings import Settings
from cerniq_pipeline.web.answers import Message, Receive, Scope, Send
from cerniq_pipeline.web.limits import Limits
from cerniq_pipeline.web.pages import create_pages
from cerniq_pipeline.web.service import Application, serve
from cerniq_pipeline_tests.builders import rows
from cerniq_pipeline_tests.web.running import RunningWeb, everything_from, wait_until
from cerniq_pipeline_tests.web.senders import (
    ALL_SECRETS,
    META,
    SENDERS,
    TIMELINESAI,
    a_message,
)


def test_anybody_may_ask_for_its_health(web: RunningWeb):
    assert web.health() == {"status": "ok", "database": True, "spool_bytes": 0}


def test_every_answer_carries_the_headers_of_caution_and_none_says_what_we_are(web: RunningWeb):
    asked = {
        200: web.client.get("/health"),
        400: web.client.post("/webhooks/resend"),
        401: web.client.post("/webhooks/resend", content=b"{}"),
        403: web.client.get("/webhooks/whatsapp"),
        404: web.client.get("/docs"),
        405: web.client.get("/webhooks/resend"),
        413: web.client.post("/webhooks/resend", content=b"x" * 1_100_000),
        415: web.client.post("/webhooks/resend", headers={"content-encoding": "gzip"}),
        431: web.client.get("/health", headers={"x-long": "x" * 20_000}),
    }
    for status, answer in asked.items():
        assert answer.status_code == status
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert re.fullmatch(r"[0-9a-f]+", answer.headers["x-request-id"])
        assert "server" not in answer.headers
        assert "x-powered-by" not in answer.headers
    assert len({answer.headers["x-request-id"] for answer in asked.values()}) == len(asked)


def test_who_opens_the_bare_address_is_told_what_is_there_and_where_the_documents_are(
    web: RunningWeb,
):
    answer = web.client.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for named in ("/health", "/webhooks/", "/u/", "Dagster", "README.md", "docs/"):
        assert named in answer.text
    (link,) = re.findall('href="([^"]+)"', answer.text)
    assert web.client.get(link).status_code == 200


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/metrics", "/.env"])
def test_there_are_no_other_pages(web: RunningWeb, path: str):
    answer = web.client.get(path)
    assert (answer.status_code, answer.json()) == (404, {"error": "not found"})


@pytest.mark.parametrize(("path", "status"), [("/broken", 500), ("/asks/hush", 422)])
def test_a_page_that_breaks_or_is_asked_wrongly_says_nothing_about_it(path: str, status: int):
    pages = create_pages(None, None, None)  # pyright: ignore[reportArgumentType]

    @pages.get("/broken")
    async def broken() -> None:
        raise RuntimeError("hush")

    @pages.get("/asks/{number}")
    async def asks(number: int) -> None:
        raise AssertionError

    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    said: list[Message] = []

    async def send(message: Message) -> None:
        said.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }
    application = Application(never, pages, Limits())  # pyright: ignore[reportArgumentType]
    asyncio.run(application(scope, receive, send))
    assert said[0]["status"] == status
    assert dict(said[0]["headers"])[b"x-content-type-options"] == b"nosniff"
    assert "hush" not in str(said)


# ── Secrets ───────────────────────────────────────────────────────────────────────────────────


def test_a_secret_is_rotated_without_a_restart_and_without_losing_an_event(
    database_url: str, database: Engine, tmp_path: Path
):
    old, new = TIMELINESAI.secret, TIMELINESAI.next_secret
    web = RunningWeb(tmp_path, database_url).tell(timelinesai_webhook_token=old)

    def told(uid: str, token: str) -> int:
        return TIMELINESAI.post(a_message(uid), secret=token).to(web.client).status_code

    with web:
        assert (told("1", old), told("2", new)) == (200, 404)
        web.tell(timelinesai_webhook_token=f"{old},{new}")
        wait_until(lambda: told("3", new) == 200)
        assert told("4", old) == 200  # both, until the provider has the new one
        assert META.post().to(web.client).status_code == 404
        web.tell(timelinesai_webhook_token=new, meta_app_secret=META.secret)
        wait_until(lambda: told("again", old) == 404)
        assert told("5", new) == 200
        assert META.post().to(web.client).status_code == 200
        web.tell(resend_webhook_secret="whsec_")  # a slip of the pen shuts nobody out
        wait_until(lambda: "secrets unreadable" in web.log)
        assert "CERNIQ_RESEND_WEBHOOK_SECRET" in web.log
        assert told("6", new) == 200
    kept = {str(row["event_key"])[-1] for row in rows(database, "SELECT * FROM webhook_events")}
    assert {"1", "3", "4", "5", "6"} <= kept


def said_all(piece: bytes) -> bool:
    return piece.endswith(b"}")


# ── Its end ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_finishes_what_it_has_begun(
    database_url: str, database: Engine, tmp_path: Path, number: signal.Signals
):
    body = a_message("the-last-one")
    web = RunningWeb(tmp_path, database_url).tell(**ALL_SECRETS).start()
    with web.socket() as resting, web.socket() as sending:
        resting.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        while not said_all(resting.recv(65536)):
            pass
        path = f"/webhooks/timelinesai?token={TIMELINESAI.secret}"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        sending.sendall(head.encode() + body[:10])
        web.process.send_signal(number)
        assert everything_from(resting) == b""  # closed: it has stopped taking requests
        sending.sendall(body[10:])
        assert b" 200 " in everything_from(sending)
    assert web.stop(number) == 0
    assert len(rows(database, "SELECT 1 FROM webhook_events")) == 1


def test_a_port_that_is_taken_is_said_so(web: RunningWeb, database_url: str):
    settings = Settings(  # pyright: ignore[reportCallIssue]
        _env_file=None,  # pyright: ignore[reportCallIssue]
        database_url=database_url,
        redis_url="unix:///nowhere",
        secret_key="x",  # pyright: ignore[reportArgumentType]
    )
    with pytest.raises(SetupError, match=f"port {web.port}"):
        serve(
            settings,
            host="127.0.0.1",
            port=web.port,
            load=lambda: settings,
            ready=lambda address: None,
        )


def test_nothing_that_anybody_said_is_in_the_log(web: RunningWeb, inbox: Engine):
    text = "Parola mea de la cont este 'cireșe'"
    for sender in SENDERS:
        sender.post().to(web.client)
        web.client.post(
            sender.path, content=sender.body, headers={"x-signature": "semnătura".encode()}
        )
    TIMELINESAI.post(a_message("m1", text)).to(web.client)
    web.client.post(f"/webhooks/timelinesai/{TIMELINESAI.secret}x", content=b"{}")
    wait_until(lambda: "webhooks refused" in web.log)
    hidden = [*ALL_SECRETS.values(), "cireșe", "ciree", "40721", "40722", "semn", "+40"]
    assert [one for one in hidden if one in web.log] == []
