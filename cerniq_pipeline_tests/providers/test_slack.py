"""Slack's incoming webhook: one meaning per answer, and an address that is shown nowhere."""

from __future__ import annotations

import logging
import socket
import traceback
from datetime import timedelta
from typing import Any

import pytest

from cerniq_pipeline.errors import SendDeferred, SendFailed, SendRejected, SendUnconfirmed
from cerniq_pipeline.providers.slack.webhook import LONGEST, SlackWebhook
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

HIDDEN = "T0SECRET/B0SECRET/XoXoXo"


def hook(sandbox: RunningSandbox) -> SlackWebhook:
    return SlackWebhook(f"{sandbox.base_url}/slack/services/{HIDDEN}")


def test_a_text_arrives_with_its_signs_escaped_and_at_a_bearable_length(sandbox: RunningSandbox):
    hook(sandbox).post("Telefonul <acme-01> & altele " + "x" * LONGEST)
    (line,) = sandbox.journal("slack")
    assert line["text"].startswith("Telefonul &lt;acme-01&gt; &amp; altele xxx")
    assert line["text"].count("x") == LONGEST - len("Telefonul <acme-01> & altele ")


@pytest.mark.parametrize(
    ("fault", "meaning"),
    [
        (("rate_limited", {"retry_after": 7}), SendDeferred),
        (("rate_limited", {}), SendDeferred),
        (("refuse", {"status": 400, "code": "invalid_payload"}), SendRejected),
        (("refuse", {"status": 403, "code": "action_prohibited"}), SendRejected),
        (("refuse", {"status": 404, "code": "no_service"}), SendRejected),
        (("refuse", {"status": 410, "code": "channel_is_archived"}), SendRejected),
        (("redirect", {}), SendRejected),
        (("server_error", {}), SendUnconfirmed),
        (("error_in_ok", {}), SendUnconfirmed),
        (("accept_then_cut", {}), SendUnconfirmed),
        (("cut_before_accept", {}), SendUnconfirmed),
    ],
)
def test_every_answer_has_one_meaning_and_none_shows_the_address(
    sandbox: RunningSandbox,
    caplog: pytest.LogCaptureFixture,
    fault: tuple[str, dict[str, Any]],
    meaning: type[SendFailed],
):
    caplog.set_level(logging.DEBUG)
    sandbox.fault(fault[0], operation="slack", **fault[1])
    with pytest.raises(SendFailed) as failed:
        hook(sandbox).post("Bună!")
    assert type(failed.value) is meaning
    assert fault[1].get("code", "") in str(failed.value)
    told = [*traceback.format_exception(failed.value), caplog.text, repr(hook(sandbox))]
    assert HIDDEN not in "".join(told)


def test_a_success_is_not_logged_with_the_address(
    sandbox: RunningSandbox, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    hook(sandbox).post("Bună!")
    assert len(sandbox.journal("slack")) == 1
    assert HIDDEN not in caplog.text


def test_it_says_how_long_to_wait(sandbox: RunningSandbox):
    sandbox.fault("rate_limited", operation="slack", retry_after=7)
    with pytest.raises(SendDeferred) as busy:
        hook(sandbox).post("Bună!")
    assert busy.value.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    "url", [f"ftp://127.0.0.1/{HIDDEN}", f"http://127.0.0.1:port/{HIDDEN}", HIDDEN, ""]
)
def test_an_address_that_cannot_be_one_is_refused_without_being_shown(url: str):
    with pytest.raises(SendRejected) as refused:
        SlackWebhook(url).post("Bună!")
    assert HIDDEN not in "".join(traceback.format_exception(refused.value))


def test_nobody_listening_is_certainly_not_told():
    with socket.create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]
    with pytest.raises(SendDeferred) as unreachable:
        SlackWebhook(f"http://127.0.0.1:{port}/{HIDDEN}").post("Bună!")
    assert HIDDEN not in "".join(traceback.format_exception(unreachable.value))
