"""What each of Meta's error codes says about a message: one table, for answers and statuses."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from datetime import timedelta

import httpx

from cerniq_pipeline.errors import SendFailed, SendUnconfirmed
from cerniq_pipeline.logs import mask
from cerniq_pipeline.providers.outcomes import (
    Meaning,
    in_doubt,
    json_of,
    later,
    never,
    retry_after,
    stop_account,
    stop_phone,
    unquoted,
)

MARKETING_REST = timedelta(hours=24)

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


# A refusal is about the message unless its code clearly names the phone or the account: what one
# message meets must not silence others.
TABLE: tuple[Row, ...] = (
    # About the account: one token serves all its phones.
    Row((0, 3, 10, 190, *range(200, 300), 131005), stop_account("ACCOUNT_AUTH")),
    Row((131042,), stop_account("ACCOUNT_SUSPENDED")),
    # About the phone: too much spam, blocked for a violation, locked.
    Row((131048, 368, 131031), stop_phone("PHONE_BANNED", "BANNED")),
    # About the phone's own set-up: a rejection would use up its whole queue.
    Row((131037, 131045, 133010), stop_phone("PHONE_OFFLINE", "OFFLINE")),
    # About the recipient: not on WhatsApp, in a country where we may not write, opted out.
    Row((131026,), never("INVALID_RECIPIENT_NUMBER")),
    Row((130497,), never("RECIPIENT_REFUSED")),
    Row((131050,), never("OPTED_OUT")),
    Row((131047,), later("WINDOW_CLOSED")),
    Row((131049,), later("MARKETING_LIMIT", after=MARKETING_REST)),
    # About the text, its template or its file.
    Row((131064, *range(132000, 133000)), never("TEMPLATE_REFUSED")),
    Row((131052, 131053), later("UPLOAD_FAILED")),
    # About this moment.
    Row((4, 80007, 130429, 131056), later("RATE_LIMITED")),
    # The vendor would have these sent again; a message that may have gone out never is.
    Row((1, 2, 131000, 131016, 131057, 135000), in_doubt),
    # About the message, in ways that are told apart by the vendor's words only.
    Row(
        (100, 130472, 131008, 131009, 131021, 131030, 131051, 131062, 131063, 137000),
        never("REFUSED"),
    ),
    Row(ANY_CODE, stop_account("ACCOUNT_AUTH"), statuses=(401,)),
    Row(ANY_CODE, later("RATE_LIMITED"), statuses=(403, 429)),
    Row(ANY_CODE, never("FILE_TOO_LARGE"), statuses=(413,)),
    Row(ANY_CODE, in_doubt, statuses=(408, 425)),
    # Nobody knows what: about the message.
    Row(ANY_CODE, never("REFUSED")),
    # A 5xx or a redirect is doubt, whatever its code says.
    Row(ANY_CODE, in_doubt, statuses=range(1000)),
)


def meaning(answer: httpx.Response, *, unsaid: str = "") -> SendFailed:
    """What a refusal says about the message: one answer, one meaning.

    The text that was sent is `unsaid`: an error that quotes it must not carry it into a log.
    """
    code, said = _complaint(answer, unsaid)
    why = mask(f"{answer.status_code} {said}"[:200])
    return _means(answer.status_code, code)(why, retry_after(answer))


def code_of_failure(code: int) -> str:
    """Our code for one that comes later, in a status: by then the message certainly failed."""
    failure = _means(400, code)("", None)
    return "REFUSED" if isinstance(failure, SendUnconfirmed) else failure.code


def _means(status: int, code: int | None) -> Meaning:
    return next(row.means for row in TABLE if row.fits(status, code))


def _complaint(answer: httpx.Response, unsaid: str) -> tuple[int | None, str]:
    body = json_of(answer)
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("code"), int):
        return None, "an answer without an error code"
    said = f"code {error['code']} {error.get('message') or ''}"
    return error["code"], unquoted(answer, said, unsaid=unsaid)
