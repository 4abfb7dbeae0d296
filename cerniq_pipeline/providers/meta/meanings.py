"""What each of Meta's error codes says about a message: one table, for answers and statuses."""

from __future__ import annotations

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

MARKETING_REST = timedelta(hours=24)

Meaning = Callable[[str, timedelta | None], SendFailed]

ANY_CODE = None
"""Also none at all: then a proxy, or Meta's edge, has answered."""


@dataclass(frozen=True)
class Row:
    """Refusals with one of these codes, and one of these HTTP statuses, mean this."""

    codes: Container[int] | None
    means: Meaning
    statuses: Container[int] = range(400, 500)

    def fits(self, status: int, code: int | None) -> bool:
        """Whether the row is about such an answer."""
        right_code = self.codes is None or (code is not None and code in self.codes)
        return right_code and status in self.statuses


def _later(code: str, *, after: timedelta | None = None) -> Meaning:
    return lambda why, wait: SendDeferred(code, why, retry_after=after or wait)


def _never(code: str) -> Meaning:
    return lambda why, _: SendRejected(code, why)


def _stop_phone(code: str, status: Literal["OFFLINE", "BANNED"]) -> Meaning:
    return lambda why, _: PhoneUnusable(code, why, status=status)


def _stop_account(code: str) -> Meaning:
    return lambda why, _: AccountSuspended(code, why)


def _in_doubt(why: str, _: timedelta | None) -> SendFailed:
    return SendUnconfirmed("ODD_STATUS", why)


TABLE: tuple[Row, ...] = (
    Row((0, 3, 10, 190, *range(200, 300), 131005), _stop_account("ACCOUNT_AUTH")),
    Row((131042,), _stop_account("ACCOUNT_SUSPENDED")),
    Row((4, 80007, 130429, 131056), _later("RATE_LIMITED")),
    Row((131048, 368, 131031, 130497, 131064), _stop_phone("PHONE_BANNED", "BANNED")),
    # The number's own set-up, not the lead's fault: a rejection would use up its whole queue.
    Row((131037, 131045, 133010), _stop_phone("PHONE_OFFLINE", "OFFLINE")),
    Row((131026,), _never("INVALID_RECIPIENT_NUMBER")),
    Row((131047,), _later("WINDOW_CLOSED")),
    Row((131049,), _later("MARKETING_LIMIT", after=MARKETING_REST)),
    Row((131050,), _never("OPTED_OUT")),
    Row((131052, 131053), _later("UPLOAD_FAILED")),
    Row(range(132000, 133000), _never("TEMPLATE_REFUSED")),
    # The vendor would have these sent again; a message that may have gone out never is.
    Row((1, 2, 131000, 131016, 131057, 135000), _in_doubt),
    Row(
        (100, 130472, 131008, 131009, 131021, 131030, 131051, 131062, 131063, 137000),
        _never("REFUSED"),
    ),
    Row(ANY_CODE, _stop_account("ACCOUNT_AUTH"), statuses=(401,)),
    Row(ANY_CODE, _later("RATE_LIMITED"), statuses=(403, 429)),
    Row(ANY_CODE, _never("FILE_TOO_LARGE"), statuses=(413,)),
    Row(ANY_CODE, _in_doubt, statuses=(408, 425)),
    Row(ANY_CODE, _never("REFUSED")),
    # A 5xx or a redirect is doubt, whatever its code says.
    Row(ANY_CODE, _in_doubt, statuses=range(1000)),
)


def meaning(answer: httpx.Response, *, unsaid: str = "") -> SendFailed:
    """What a refusal says about the message: one answer, one meaning.

    The text that was sent is `unsaid`: an error that quotes it must not carry it into a log.
    """
    code, said = _complaint(answer, unsaid)
    why = mask(f"{answer.status_code} {said}"[:200])
    return _means(answer.status_code, code)(why, _retry_after(answer))


def code_of_failure(code: int) -> str:
    """Our code for one that comes later, in a status: by then the message certainly failed."""
    failure = _means(400, code)("", None)
    return "REFUSED" if isinstance(failure, SendUnconfirmed) else failure.code


def json_of(answer: httpx.Response) -> Any:
    """The body of an answer, or None when it is not JSON."""
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _means(status: int, code: int | None) -> Meaning:
    return next(row.means for row in TABLE if row.fits(status, code))


def _complaint(answer: httpx.Response, unsaid: str) -> tuple[int | None, str]:
    body = json_of(answer)
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("code"), int):
        return None, "an answer without an error code"
    said = f"code {error['code']} {error.get('message') or ''}"
    # An error that quotes our request must not carry the token into a log.
    token = answer.request.headers.get("authorization", "").removeprefix("Bearer ")
    for secret in filter(None, (token, unsaid)):
        said = said.replace(secret, "***")
    return error["code"], said


def _retry_after(answer: httpx.Response) -> timedelta | None:
    seconds = answer.headers.get("retry-after", "")
    if not (seconds.isascii() and seconds.isdigit()):
        return None
    return min(timedelta(seconds=int(seconds[:9])), LONGEST_WISH)
