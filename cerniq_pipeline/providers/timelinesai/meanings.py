"""What each refusal of the vendor says about a message: one table, the first row that fits wins."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Row:
    """Answers with one of these statuses and these words (a pattern; empty for any) mean this."""

    statuses: Container[int]
    says: str
    means: Meaning

    def fits(self, status: int, words: str) -> bool:
        """Whether the row is about such an answer."""
        return status in self.statuses and re.search(self.says, words) is not None


def _later(code: str) -> Meaning:
    return lambda why, wait: SendDeferred(code, why, retry_after=wait)


def _never(code: str) -> Meaning:
    return lambda why, _: SendRejected(code, why)


def _stop_phone(code: str, status: Literal["OFFLINE", "BANNED"]) -> Meaning:
    return lambda why, _: PhoneUnusable(code, why, status=status)


def _stop_account(code: str) -> Meaning:
    return lambda why, _: AccountSuspended(code, why)


def _in_doubt(why: str, _: timedelta | None) -> SendFailed:
    return SendUnconfirmed("ODD_STATUS", why)


TABLE: tuple[Row, ...] = (
    Row(range(400, 500), "banned|blocked", _stop_phone("PHONE_BANNED", "BANNED")),
    Row((403, 429), "quota[_ ]exceeded", _stop_account("ACCOUNT_QUOTA")),
    Row(
        (400, 401, 402, 403, 409),
        "suspended|billing|payment|subscription",
        _stop_account("ACCOUNT_SUSPENDED"),
    ),
    Row((429,), "", _later("RATE_LIMITED")),
    # One token serves all phones of the account.
    Row((401,), "", _stop_account("ACCOUNT_AUTH")),
    Row(
        (403,),
        "permission_denied|member_not_found|insufficient_scope|plan_feature_unavailable",
        _stop_account("ACCOUNT_AUTH"),
    ),
    # The phone's fault, not the lead's: a rejection would use up its whole queue.
    Row(
        (400, 403, 404, 409, 422),
        "not connected|no connected|disconnected|account_inactive|account .{0,40}not found",
        _stop_phone("PHONE_OFFLINE", "OFFLINE"),
    ),
    # The vendor's edge throttles with a page of its own, and says 403.
    Row((403,), "", _later("RATE_LIMITED")),
    Row((409,), "service_window_closed", _later("WINDOW_CLOSED")),
    Row((400, 422), "invalid.*number|number.*invalid", _never("INVALID_RECIPIENT_NUMBER")),
    Row((413,), "", _never("FILE_TOO_LARGE")),
    Row((400, 404, 405, 409, 422), "", _never("REFUSED")),
    Row(range(1000), "", _in_doubt),
)


def meaning(answer: httpx.Response, *, unsaid: str = "") -> SendFailed:
    """What a refusal says about the message: one answer, one meaning.

    The text that was sent is `unsaid`: an error that quotes it must not carry it into a log.
    """
    code, said = _complaint(answer, unsaid)
    why = mask(f"{answer.status_code} {code or said}"[:200])
    words = f"{code} {said}".lower()
    row = next(row for row in TABLE if row.fits(answer.status_code, words))
    return row.means(why, _retry_after(answer))


def json_of(answer: httpx.Response) -> Any:
    """The body of an answer, or None when it is not JSON."""
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _complaint(answer: httpx.Response, unsaid: str) -> tuple[str, str]:
    """The vendor's code, and its words: `error_code` in the envelope, `error` in other shapes."""
    body = json_of(answer)
    if not isinstance(body, dict):
        return "", "an answer that is not JSON"
    code = str(body.get("error_code") or body.get("error") or "")
    said = str(body.get("message") or "")
    # An error that quotes our request must not carry the token into a log.
    token = answer.request.headers.get("authorization", "").removeprefix("Bearer ")
    for secret in filter(None, (token, unsaid)):
        code, said = code.replace(secret, "***"), said.replace(secret, "***")
    return code, said


def _retry_after(answer: httpx.Response) -> timedelta | None:
    seconds = answer.headers.get("retry-after", "")
    if not (seconds.isascii() and seconds.isdigit()):
        return None
    return min(timedelta(seconds=int(seconds[:9])), LONGEST_WISH)
