"""Named points at which a process may die. In production they do nothing; fault tests set `reach`
to kill the process there, so that every gap between two effects is really tried."""

from __future__ import annotations

from collections.abc import Callable

NAMES = (
    "lease_before_commit",
    "lease_committed",
    "quota_reserved_in_redis",
    "claim_before_commit",
    "claim_committed",
    "call_before_first_byte",
    "call_answered",
    "record_before_commit",
    "record_committed",
    "quota_settled_in_redis",
    "chat_looked_up",
    "lease_released",
)


def _nothing(name: str) -> None:
    """Pass by."""


reach: Callable[[str], None] = _nothing
