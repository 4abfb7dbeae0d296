"""Slack, through an incoming webhook: its address is the secret, and is shown nowhere."""

from __future__ import annotations

import re
from datetime import timedelta

import httpx

from cerniq_pipeline.errors import SendDeferred, SendFailed, SendRejected, SendUnconfirmed
from cerniq_pipeline.providers.deadlines import OneDeadline

TIMEOUT = httpx.Timeout(5.0, connect=3.0)
LONGEST = 3000
"""Characters of one message, well below what Slack cuts off."""

_WORD = re.compile(r"[a-z_]{1,40}")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class SlackWebhook:
    """A Messenger over one incoming webhook."""

    def __init__(self, url: str) -> None:
        self._url = url

    def post(self, text: str) -> None:
        """Post one message as plain text; raises what we then know."""
        body = {"text": text[:LONGEST].translate(_ESCAPES), "unfurl_links": False}
        timeouts = {"timeout": TIMEOUT.as_dict()}
        try:
            request = httpx.Request("POST", self._url, json=body, extensions=timeouts)
            # The bare transport: httpx's client writes every address into its log.
            with OneDeadline() as transport:
                answer = transport.handle_request(request)
                answer.read()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            # Without the cause: the errors of httpx carry the request, and with it the address.
            raise SendDeferred("UNREACHABLE", f"{type(error).__name__} before posting") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise SendRejected(
                "BAD_ADDRESS", f"{type(error).__name__} in Slack's webhook"
            ) from None
        except httpx.RequestError as error:
            raise SendUnconfirmed("SILENCE", f"{type(error).__name__} after posting") from None
        if answer.status_code != httpx.codes.OK or answer.text.strip() != "ok":
            raise _meaning(answer)


def _meaning(answer: httpx.Response) -> SendFailed:
    word = answer.text.strip()
    # Slack's own words are like `no_service`; anything else may repeat what was sent to it.
    said = f"Slack answered {answer.status_code} {word if _WORD.fullmatch(word) else ''}".rstrip()
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        seconds = answer.headers.get("retry-after", "")
        wait = timedelta(seconds=int(seconds)) if seconds.isdecimal() else None
        return SendDeferred("RATE_LIMITED", said, retry_after=wait)
    if answer.is_server_error or answer.is_success:
        return SendUnconfirmed("ODD_ANSWER", said)
    return SendRejected("REFUSED", said)
