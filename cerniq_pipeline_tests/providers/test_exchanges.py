"""What is kept of a call: no secret, no endless body, nothing that the store cannot hold."""

from __future__ import annotations

import json

import httpx
import pytest

from cerniq_pipeline.errors import SendUnconfirmed
from cerniq_pipeline.providers.calls import open_client, post
from cerniq_pipeline.providers.exchanges import LONGEST, exchange_of

TOKEN = "very-secret-token-of-ours"
HIDDEN = {"apiKey": "***", "of": [{"Password": "***"}]}


def a_request(**content: object) -> httpx.Request:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = "https://acme.test/v1/messages?access_token=hidden"
    return httpx.Request("POST", url, headers=headers, **content)  # pyright: ignore


@pytest.mark.parametrize(
    ("answered", "kept"),
    [
        (b'{"data": {"uid": "u-1"}}', {"data": {"uid": "u-1"}}),
        (f'{{"error": "bad {TOKEN}"}}'.encode(), {"error": "bad ***"}),
        (
            b'{"apiKey": "k", "in": [{"Password": "p"}]}',
            {"apiKey": "***", "in": [{"Password": "***"}]},
        ),
        (b"<html>502</html>", {"text": "<html>502</html>"}),
        (b'{"nul": "a\\u0000b", "half": "\\ud800"}', {"nul": "ab", "half": "?"}),
        (b'{"n": NaN, "far": 1e999}', {"n": "nan", "far": "inf"}),
        (b"", {"text": ""}),
        (b"[" * 5000 + b"]" * 5000, {"text": "[" * 5000 + "]" * (LONGEST - 5000)}),
        (
            json.dumps({"long": "x" * 9000}).encode(),
            {"text": ('{"long": "' + "x" * 9000)[:LONGEST], "cut": True},
        ),
    ],
)
def test_an_answer_is_kept_without_secrets_and_as_the_store_can_hold_it(
    answered: bytes, kept: object
):
    request = a_request(json={"recipient": "+40721", "message": f"Bună {TOKEN}"})
    exchange = exchange_of(request, httpx.Response(200, content=answered))
    assert exchange.request == {
        "method": "POST",
        "path": "/v1/messages",
        "body": {"recipient": "+40721", "message": "Bună ***"},
    }
    assert exchange.response == {"status": 200, "body": kept}
    assert TOKEN not in repr(exchange)
    assert "hidden" not in repr(exchange)
    json.dumps([exchange.request, exchange.response], allow_nan=False)


def test_a_file_is_kept_as_its_size():
    exchange = exchange_of(a_request(files={"file": b"x" * 100}))
    assert exchange.request["body"]["content_type"] == "multipart/form-data"
    assert int(exchange.request["body"]["bytes"]) > 100
    assert exchange.response is None


def test_silence_is_kept_as_what_was_said():
    def cut(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow", request=request)

    client = open_client("https://acme.test", TOKEN)
    client._transport = httpx.MockTransport(cut)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SendUnconfirmed) as silence:
        post(client, "/messages", meaning=lambda _: SendUnconfirmed("X", ""), json={"a": 1})
    assert silence.value.exchange is not None
    assert silence.value.exchange.request["body"] == {"a": 1}
    assert silence.value.exchange.response is None
