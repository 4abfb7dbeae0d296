"""One call that changes something at a vendor: made once, on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx

from cerniq_pipeline.domain.outbox import Receipt
from cerniq_pipeline.errors import SendDeferred, SendFailed, SendUnconfirmed
from cerniq_pipeline.providers.deadlines import OneDeadline
from cerniq_pipeline.providers.exchanges import exchange_of

TIMEOUT = httpx.Timeout(15.0, connect=3.0)
"""Of these the time to read is the deadline of the whole call: see `deadlines.py`."""

UPLOAD_TIMEOUT = httpx.Timeout(30.0, connect=3.0)

NOTHING_LEFT_THIS_MACHINE = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)


def open_client(base_url: str, token: str) -> httpx.Client:
    """A client for one account: no redirects, no proxies, and no connection used twice.

    A kept-alive connection that the vendor has just closed would turn a send that never left into
    one that nobody can be sure of; some vendors also refuse long-lived connections.
    """
    return httpx.Client(
        base_url=base_url,
        headers={"Authorization": f"Bearer {token}", "User-Agent": "cerniq"},
        timeout=TIMEOUT,
        transport=OneDeadline(),
        follow_redirects=False,
        trust_env=False,
    )


def post(
    client: httpx.Client,
    path: str,
    *,
    meaning: Callable[[httpx.Response], SendFailed],
    **content: Any,
) -> httpx.Response:
    """A good answer to one request, never repeated; anything else raises what it means."""
    try:
        answer = client.post(path, **content)
    except NOTHING_LEFT_THIS_MACHINE as error:
        raise SendDeferred("UNREACHABLE", f"{type(error).__name__} before sending") from error
    except httpx.RequestError as error:
        silence = SendUnconfirmed("SILENCE", f"{type(error).__name__} after sending")
        silence.exchange = exchange_of(error.request)
        raise silence from error
    if not answer.is_success:
        failure = meaning(answer)
        failure.exchange = exchange_of(answer.request, answer)
        raise failure
    return answer


def accepted(answer: httpx.Response, receipt: Receipt | None) -> Receipt:
    """The receipt that a good answer holds, with the record of the call; without one, a doubt."""
    exchange = exchange_of(answer.request, answer)
    if receipt is None:
        odd = SendUnconfirmed("ODD_ANSWER", f"{answer.status_code} without a message id")
        odd.exchange = exchange
        raise odd
    return replace(receipt, exchange=exchange)
