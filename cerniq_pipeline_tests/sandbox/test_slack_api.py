"""Slack's incoming webhook: plain words, and a line for every note."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cerniq_pipeline_tests.sandbox.running import RunningSandbox


def note(sandbox: RunningSandbox, body: object) -> httpx.Response:
    return httpx.post(sandbox.slack_url, json=body, trust_env=False)


def test_a_note_is_taken_without_a_token_and_kept(sandbox: RunningSandbox):
    answer = note(sandbox, {"text": "Telefon oprit"})
    assert (answer.status_code, answer.text) == (200, "ok")
    assert answer.headers["content-type"].startswith("text/plain")
    (line,) = sandbox.slack()
    assert (line["provider"], line["text"], line["blocks"]) == ("slack", "Telefon oprit", None)
    assert sandbox.journal() == [line]


def test_blocks_alone_are_a_note(sandbox: RunningSandbox):
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "*Atenție*"}}]
    assert note(sandbox, {"blocks": blocks}).text == "ok"
    assert (sandbox.slack()[0]["text"], sandbox.slack()[0]["blocks"]) == ("", blocks)


@pytest.mark.parametrize(("body", "word"), [({}, "no_text"), ([], "invalid_payload")])
def test_a_bad_note_is_refused_in_one_word(sandbox: RunningSandbox, body: object, word: str):
    answer = note(sandbox, body)
    assert (answer.status_code, answer.text) == (400, word)
    assert sandbox.slack() == []


@pytest.mark.parametrize(
    ("fault", "status", "word"),
    [
        ({"kind": "server_error"}, 500, "rollup_error"),
        ({"kind": "rate_limited", "retry_after": 3}, 429, "rate_limited"),
        ({"kind": "refuse", "status": 404, "code": "no_service"}, 404, "no_service"),
        (
            {"kind": "refuse", "status": 410, "code": "channel_is_archived"},
            410,
            "channel_is_archived",
        ),
    ],
)
def test_slack_can_fail(sandbox: RunningSandbox, fault: dict[str, Any], status: int, word: str):
    sandbox.fault(operation="slack", times=1, **fault)
    answer = note(sandbox, {"text": "a"})
    assert (answer.status_code, answer.text) == (status, word)
    assert answer.headers.get("retry-after") == ("3" if status == 429 else None)
    assert sandbox.slack() == []
    assert note(sandbox, {"text": "a"}).text == "ok"


def test_a_vendor_that_fails_everywhere_leaves_slack_alone(sandbox: RunningSandbox):
    sandbox.fault("server_error", operation="any")
    assert note(sandbox, {"text": "a"}).text == "ok"
