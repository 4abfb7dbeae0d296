"""What an answer can mean, for the tables of the vendors: one answer, one meaning."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import httpx

from cerniq_pipeline.errors import (
    AccountSuspended,
    PhoneUnusable,
    SendDeferred,
    SendFailed,
    SendRejected,
    SendUnconfirmed,
)
from cerniq_pipeline.logs import mask

LONGEST_WISH = timedelta(hours=1)
"""A vendor that asks us to wait longer than this is asked again after this."""

Meaning = Callable[[str, timedelta | None], SendFailed]
"""From the vendor's words, and its wish to wait, to what we then know."""


def later(code: str, *, after: timedelta | None = None) -> Meaning:
    """Certainly not sent; another attempt may succeed."""
    return lambda why, wait: SendDeferred(code, why, retry_after=after or wait)


def never(code: str) -> Meaning:
    """Certainly not sent, and never will be."""
    return lambda why, _: SendRejected(code, why)


def stop_phone(code: str, status: Literal["OFFLINE", "BANNED"]) -> Meaning:
    """Certainly not sent; this phone must stop."""
    return lambda why, _: PhoneUnusable(code, why, status=status)


def stop_account(code: str) -> Meaning:
    """Certainly not sent; every phone of the account must stop."""
    return lambda why, _: AccountSuspended(code, why)


def in_doubt(why: str, _: timedelta | None) -> SendFailed:
    """It may have gone out."""
    return SendUnconfirmed("ODD_STATUS", why)


def json_of(answer: httpx.Response) -> Any:
    """The body of an answer, or None when it is not JSON."""
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def unquoted(answer: httpx.Response, said: str, *, unsaid: str) -> str:
    """What a vendor said, without the token, the text of ours and the number that it may quote."""
    token = answer.request.headers.get("authorization", "").removeprefix("Bearer ")
    for secret in filter(None, (token, unsaid)):
        said = said.replace(secret, "***")
    return mask(said)


def retry_after(answer: httpx.Response) -> timedelta | None:
    """How long the vendor asks us to wait; None when it says nothing that can be read."""
    seconds = answer.headers.get("retry-after", "")
    if not (seconds.isascii() and seconds.isdigit()):
        return None
    return min(timedelta(seconds=int(seconds[:9])), LONGEST_WISH)
