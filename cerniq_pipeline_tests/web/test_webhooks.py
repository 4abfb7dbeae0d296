"""Who is believed, what is kept of it, and what they hear."""

from __future__ import annotations

import hashlib
import json
import threading
from datetime import UTC, datetime
from urllib.parse import urlencode

import psycopg
import pytest
from sqlalchemy import Engine

from cerniq_pipeline_tests.builders import rows
from cerniq_pipeline_tests.providers import test_webhooks_timelinesai as timelinesai
from cerniq_pipeline_tests.providers import test_webhooks_vonage as vonage
from cerniq_pipeline_tests.providers.webhook_contract import GARBAGE
from cerniq_pipeline_tests.web.running import PUBLIC_URL, RunningWeb, everything_from
from cerniq_pipeline_tests.web.senders import (
    ALL_SECRETS,
    META,
    SENDERS,
    TIMELINESAI,
    VERIFY_TOKEN,
    Post,
    Sender,
    a_message,
)

EACH = pytest.mark.parametrize("sender", SENDERS, ids=lambda sender: sender.provider)
SOMEBODY_ELSES = "whsec_" + "c29tZWJvZHkgZWxzZSdzIHNlY3JldCEh" * 2
EVENTS = "SELECT * FROM webhook_events ORDER BY received_at, id"


def bodies(inbox: Engine) -> list[bytes]:
    return [bytes(row["body"]) for row in rows(inbox, EVENTS)]  # pyright: ignore


# ── Whom to believe ───────────────────────────────────────────────────────────────────────────


@EACH
def test_a_signed_event_is_kept_as_it_came_before_the_answer(
    web: RunningWeb, inbox: Engine, sender: Sender
):
    post = sender.post()
    answer = post.to(web.client)
    (kept,) = rows(inbox, EVENTS)
    assert answer.status_code == 200
    assert (kept["provider"], kept["source"], kept["state"]) == (
        sender.provider,
        "webhook",
        "waiting",
    )
    assert bytes(kept["body"]) == post.body  # pyright: ignore[reportArgumentType]
    assert kept["event_type"] not in ("", "unreadable")


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"X-Correlation-Id": "order-17.2026:a_b"}, "order-17.2026:a_b"),
        ({"Correlation-Id": "b-2"}, "b-2"),
        ({"X-Correlation-Id": "", "Correlation-Id": "b-2"}, "b-2"),
        ({}, None),
        ({"X-Correlation-Id": "x" * 129}, None),
        ({"X-Correlation-Id": "two words"}, None),
        ({"X-Correlation-Id": "ana@example.ro"}, None),
        ({"X-Correlation-Id": "wa-0722123456"}, None),
    ],
)
def test_an_event_keeps_its_callers_name_for_it_or_that_of_its_request(
    web: RunningWeb, inbox: Engine, told: dict[str, str], kept: str | None
):
    post = TIMELINESAI.post()
    answer = Post(post.path, post.body, post.headers | told).to(web.client)
    assert answer.status_code == 200
    (event,) = rows(inbox, EVENTS)
    assert event["correlation_id"] == (kept or answer.headers["x-request-id"])


@EACH
def test_without_its_proof_an_event_is_refused_and_not_kept(
    web: RunningWeb, inbox: Engine, sender: Sender
):
    good = sender.post()
    proofs = [name for name in good.headers if name not in ("content-type", "svix-id")]
    forged = [
        Post(sender.path, good.body),
        sender.post(secret=SOMEBODY_ELSES),
        *(Post(good.path, good.body, good.headers | {n: good.headers[n][:-1]}) for n in proofs),
        *(Post(good.path, good.body, good.headers | {n: ""}) for n in proofs),
    ]
    if sender is TIMELINESAI:
        forged += [Post(f"{sender.path}?token={sender.secret[:-1]}", good.body)]
        forged += [Post(f"{sender.path}/{sender.secret}x", good.body)]
        forged += [Post(f"{sender.path}?token=", good.body)]
    expected = 404 if sender is TIMELINESAI else 401
    for post in forged:
        answer = post.to(web.client)
        assert answer.status_code == expected
        assert answer.text in ("not found", "unauthorized")
    assert bodies(inbox) == []
    assert sender.post().to(web.client).status_code == 200


def test_the_token_may_stand_at_the_end_of_the_path(web: RunningWeb, inbox: Engine):
    path = f"/webhooks/timelinesai/{TIMELINESAI.secret}"
    assert web.client.post(path, content=TIMELINESAI.body).status_code == 200
    assert bodies(inbox) == [TIMELINESAI.body]
    assert web.client.post(f"{path}/more", content=TIMELINESAI.body).status_code == 404


def test_vonage_may_call_with_get_and_the_query_is_the_form(web: RunningWeb, inbox: Engine):
    sign = vonage.TestVonageWithASig()
    form = urlencode({"msisdn": "40722123456", "to": "40312345678", "messageId": "m1", "text": "ă"})
    signed = sign.signed(form.encode(), vonage.SECRET, datetime.now(UTC)).body
    answer = web.client.get(f"/webhooks/vonage?{signed.decode()}")
    assert answer.status_code == 200
    assert bodies(inbox) == [signed]
    assert web.client.get("/webhooks/vonage?msisdn=1&sig=00").status_code == 401
    assert web.client.get("/webhooks/vonage").status_code == 400


def test_twilio_hears_an_empty_answer_in_its_own_words(web: RunningWeb):
    (twilio,) = [one for one in SENDERS if one.provider == "twilio"]
    answer = twilio.post().to(web.client)
    assert (answer.text, answer.headers["content-type"]) == ("<Response></Response>", "text/xml")


def test_the_address_that_counts_is_the_public_one_whatever_the_host_says(web: RunningWeb):
    (twilio,) = [one for one in SENDERS if one.provider == "twilio"]
    post = twilio.post()
    elsewhere = {"host": "evil.test", "x-forwarded-host": "evil.test", "x-forwarded-proto": "http"}
    assert web.base_url != PUBLIC_URL
    answer = web.client.post(post.path, content=post.body, headers=post.headers | elsewhere)
    assert answer.status_code == 200
    assert (
        web.client.post(post.path + "1", content=post.body, headers=post.headers).status_code == 401
    )


def shake(web: RunningWeb, **said: str) -> tuple[int, str]:
    query = urlencode({f"hub.{name}": value for name, value in said.items()})
    answer = web.client.get(f"/webhooks/whatsapp?{query}")
    return answer.status_code, answer.text


def test_meta_gets_its_number_back_for_the_right_word_only(web: RunningWeb):
    good = {"mode": "subscribe", "verify_token": VERIFY_TOKEN, "challenge": "1158201444"}
    assert shake(web, **good) == (200, "1158201444")
    for wrong in ("", VERIFY_TOKEN[:-1], f"{VERIFY_TOKEN}x", "é"):
        assert shake(web, **good | {"verify_token": wrong}) == (403, "forbidden")
    assert shake(web, **good | {"mode": "unsubscribe"})[0] == 403
    assert shake(web)[0] == 403


def test_addresses_and_methods_that_nobody_was_given(web: RunningWeb):
    for path in ("/webhooks/", "/webhooks/nobody", "/webhooks/resend/x", "/webhooks/timelinesai/"):
        assert web.client.post(path, content=b"{}").status_code == 404
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert web.client.request(method, "/webhooks/resend").status_code == 405


def test_a_provider_without_a_secret_has_no_address_and_two_secrets_are_both_good(
    postgres, database_url: str, database: Engine, tmp_path
):
    both = f"{META.secret}, {META.next_secret}"
    with RunningWeb(tmp_path, database_url).tell(meta_app_secret=both) as web:
        for sender in SENDERS:
            if sender is not META:
                assert sender.post().to(web.client).status_code == 404
        assert web.client.get("/webhooks/whatsapp?hub.mode=subscribe").status_code == 404
        for secret in (META.secret, META.next_secret):
            assert META.post(secret=secret).to(web.client).status_code == 200
        assert META.post(secret="a-third-one").to(web.client).status_code == 401
    assert len(bodies(database)) == 1


def test_a_relay_that_signs_must_sign(database_url: str, tmp_path):
    signing = timelinesai.TestTimelinesAIWithASignature()
    secrets = {"timelinesai_webhook_token": timelinesai.TOKEN}
    web = RunningWeb(tmp_path, database_url)
    with web.tell(**secrets, timelinesai_webhook_secret=signing.secret):
        path = f"/webhooks/timelinesai?token={timelinesai.TOKEN}"
        good = dict(signing.signed(TIMELINESAI.body, signing.secret).headers)
        for headers, status in ((good, 200), ({}, 401), ({"x-signature": "00"}, 401)):
            answer = web.client.post(path, content=TIMELINESAI.body, headers=headers)
            assert answer.status_code == status
        answer = web.client.post(f"{path}x", content=TIMELINESAI.body, headers=good)
        assert answer.status_code == 404


# ── What is kept ──────────────────────────────────────────────────────────────────────────────


def test_an_event_is_kept_with_what_tells_who_it_is_about_and_without_any_secret(
    web: RunningWeb, inbox: Engine
):
    secret_headers = {
        "authorization": "Bearer hush",
        "cookie": "hush",
        "x-signature": "hush",
        "user-agent": "TimelinesAI/1.0 " + "x" * 500,
        "content-type": "application/json",
    }
    post = TIMELINESAI.post()
    assert Post(post.path, post.body, secret_headers).to(web.client).status_code == 200
    (kept,) = rows(inbox, EVENTS)
    said = timelinesai.TestTimelinesAIWithAToken().reader("x").envelope(TIMELINESAI.body)
    assert (kept["event_key"], kept["event_type"]) == (said.event_key, said.event_type)
    assert (kept["account"], kept["contact"]) == (said.account, said.contact)
    assert set(kept["headers"]) == {"content-type", "user-agent"}  # pyright: ignore
    everything = json.dumps(kept, default=str)
    assert "hush" not in everything
    assert TIMELINESAI.secret not in everything
    assert len(kept["headers"]["user-agent"]) == 200  # pyright: ignore


def test_the_time_of_arrival_is_the_databases_and_keeps_the_order(web: RunningWeb, inbox: Engine):
    for uid in ("c", "a", "b"):
        TIMELINESAI.post(a_message(uid)).to(web.client)
    kept = rows(inbox, EVENTS)
    assert [str(row["event_key"])[-1] for row in kept] == ["c", "a", "b"]
    (now,) = rows(inbox, "SELECT clock_timestamp() AS now")
    assert all(row["received_at"] <= now["now"] for row in kept)  # pyright: ignore


def test_the_same_event_is_kept_once_however_often_and_by_however_many_it_is_told(
    web: RunningWeb, inbox: Engine
):
    seen: list[int] = []

    def tell() -> None:
        seen.extend(TIMELINESAI.post().to(web.client).status_code for _ in range(25))

    tellers = [threading.Thread(target=tell) for _ in range(8)]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    assert seen == [200] * 200
    assert bodies(inbox) == [TIMELINESAI.body]


def test_whoever_listens_is_told_of_new_events_and_of_new_ones_only(web: RunningWeb, inbox: Engine):
    url = inbox.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN cerniq_inbox")
        TIMELINESAI.post().to(web.client)
        (told,) = listener.notifies(timeout=10, stop_after=1)
        assert told.channel == "cerniq_inbox"
        assert told.payload == ""
        TIMELINESAI.post().to(web.client)
        assert list(listener.notifies(timeout=0.3)) == []


# ── What nobody can read ──────────────────────────────────────────────────────────────────────

MORE_GARBAGE = {
    "a million keys": b"{" + b",".join(b'"%d":1' % n for n in range(90_000)) + b"}",
    "same key twice": b'{"event_type":"a","event_type":"b"}',
    "emoji and marks": '{"event_type":"😀\u202e\u200f"}'.encode(),
    "NaN": b'{"event_type":NaN}',
    "a bracket in a text": b'{"event_type":"' + b"[" * 200 + b'"}',
    "65 levels": b"[" * 65 + b"]" * 65,
}


@pytest.mark.parametrize("name", [*GARBAGE, *MORE_GARBAGE])
def test_garbage_of_a_believed_sender_is_kept_as_bytes_and_breaks_nothing(
    web: RunningWeb, inbox: Engine, name: str
):
    body = (GARBAGE | MORE_GARBAGE)[name]
    answer = TIMELINESAI.post(body).to(web.client)
    assert answer.status_code == (200 if body else 400)
    assert bodies(inbox) == ([body] if body else [])
    for row in rows(inbox, "SELECT * FROM webhook_events WHERE event_type = 'unreadable'"):
        assert row["event_key"] == hashlib.sha256(body).hexdigest()
        assert (row["account"], row["contact"]) == (None, None)
    assert META.post().to(web.client).status_code == 200


@pytest.mark.parametrize("name", ["deep list", "65 levels", "no JSON", "array", "cut off"])
def test_what_has_no_form_is_marked_for_a_person(web: RunningWeb, inbox: Engine, name: str):
    TIMELINESAI.post((GARBAGE | MORE_GARBAGE)[name]).to(web.client)
    (kept,) = rows(inbox, EVENTS)
    assert kept["event_type"] == "unreadable"


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_of_anybody_else_is_refused_everywhere(web: RunningWeb, inbox: Engine, name: str):
    for sender in SENDERS:
        answer = web.client.post(sender.path, content=GARBAGE[name])
        assert answer.status_code in (400, 401, 404)
    assert bodies(inbox) == []


def test_the_tokens_of_other_providers_do_not_help(web: RunningWeb):
    for secret in ALL_SECRETS.values():
        if secret != TIMELINESAI.secret:
            path = f"/webhooks/timelinesai?{urlencode({'token': secret})}"
            assert web.client.post(path, content=TIMELINESAI.body).status_code == 404


def test_bytes_that_are_no_http_are_refused_and_the_next_one_is_served(web: RunningWeb):
    strange = [
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"POST /webhooks/resend HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /webhooks/\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nX: a\0b\r\n\r\n",
    ]
    for one in strange:
        with web.socket() as connection:
            connection.sendall(one)
            said = everything_from(connection)
        assert said.startswith(b"HTTP/1.1 400 ")
        assert b"x-content-type-options: nosniff" in said
    assert TIMELINESAI.post().to(web.client).status_code == 200
