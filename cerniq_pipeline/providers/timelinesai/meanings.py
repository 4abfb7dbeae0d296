"""What each refusal of the vendor says about a message: one table, the first row that fits wins."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

import httpx

from cerniq_pipeline.errors import SendFailed
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


@dataclass(frozen=True)
class Row:
    """Answers with one of these statuses and these words (a pattern; empty for any) mean this."""

    statuses: Container[int]
    says: str
    means: Meaning

    def fits(self, status: int, words: str) -> bool:
        """Whether the row is about such an answer."""
        return status in self.statuses and re.search(self.says, words) is not None


_AMISS = "blocked|banned|suspended|restricted|inactive|disconnected|not connected|not found"
_RECIPIENT = (
    rf"(recipient|customer|contact(?! (support|us)))[^.:;]{{0,40}}({_AMISS})"
    r"|(blocked|banned) by (the |this |your )?(user|recipient|customer|contact)"
    r"|user (has )?blocked|blocked (you|us|your)\b"
)
_OURS = r"(account|number|phone|device)[^.:;]{0,40}"
_THIS_MESSAGE = (400, 403, 404, 405, 409, 410, 422)

# A refusal is about the message unless its words clearly name the phone or the account: what one
# message meets must not silence others.
TABLE: tuple[Row, ...] = (
    # About the recipient.
    Row(_THIS_MESSAGE, _RECIPIENT, never("RECIPIENT_REFUSED")),
    # About the phone.
    Row(range(400, 500), rf"{_OURS}(banned|blocked)", stop_phone("PHONE_BANNED", "BANNED")),
    # About the account: one token serves all its phones.
    Row((403, 429), "quota[_ ]exceeded", stop_account("ACCOUNT_QUOTA")),
    Row(
        (400, 401, 402, 403, 409),
        "suspended|billing|payment|subscription",
        stop_account("ACCOUNT_SUSPENDED"),
    ),
    Row((401,), "", stop_account("ACCOUNT_AUTH")),
    Row(
        (403,),
        "permission_denied|member_not_found|insufficient_scope|plan_feature_unavailable",
        stop_account("ACCOUNT_AUTH"),
    ),
    # About this moment.
    Row((429,), "", later("RATE_LIMITED")),
    # About the phone: a rejection would use up its whole queue.
    Row(
        (400, 403, 404, 409, 422),
        "not connected|no connected|disconnected|account_inactive|account .{0,40}not found",
        stop_phone("PHONE_OFFLINE", "OFFLINE"),
    ),
    # About the text, or nobody knows what: about the message.
    Row(_THIS_MESSAGE, "blocked|banned", never("REFUSED")),
    # The vendor's edge throttles with a page of its own, and says 403.
    Row((403,), "", later("RATE_LIMITED")),
    Row((409,), "service_window_closed", later("WINDOW_CLOSED")),
    Row((400, 422), "invalid.*number|number.*invalid", never("INVALID_RECIPIENT_NUMBER")),
    Row((413,), "", never("FILE_TOO_LARGE")),
    Row((400, 404, 405, 409, 422), "", never("REFUSED")),
    # Nobody knows whether it went out.
    Row(range(1000), "", in_doubt),
)


def meaning(answer: httpx.Response, *, unsaid: str = "") -> SendFailed:
    """What a refusal says about the message: one answer, one meaning.

    The text that was sent is `unsaid`: an error that quotes it must not carry it into a log.
    """
    code, said = _complaint(answer, unsaid)
    why = mask(f"{answer.status_code} {code} {said}"[:200])
    words = f"{code} {said}".lower()
    row = next(row for row in TABLE if row.fits(answer.status_code, words))
    return row.means(why, retry_after(answer))


def _complaint(answer: httpx.Response, unsaid: str) -> tuple[str, str]:
    """The vendor's code, and its words: `error_code` in the envelope, `error` in other shapes."""
    body = json_of(answer)
    if not isinstance(body, dict):
        return "", "an answer that is not JSON"
    code = str(body.get("error_code") or body.get("error") or "")
    said = str(body.get("message") or "")
    return unquoted(answer, code, unsaid=unsaid), unquoted(answer, said, unsaid=unsaid)
