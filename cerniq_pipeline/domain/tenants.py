"""What a tenant's row must hold for anybody to know when, how and to whom it may write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from cerniq_pipeline.domain.calendar import DAY_MINUTES, Calendar, public_holidays

RULES_FOR_LOST_PHONES = ("wait", "hand_over", "switch_channel")


def unreadable(row: Mapping[Any, Any]) -> str | None:
    """What in a row of `tenants` keeps everybody from knowing its rules, and where.

    Not what stands there: that may be anybody's words.
    """
    for column, (is_good, what) in _COLUMNS.items():
        if not is_good(row[column]):
            return f"tenants.{column} is {what}"
    opens, closes = row["opens"], row["closes"]
    if not (isinstance(opens, int) and isinstance(closes, int)):
        return "tenants.opens and tenants.closes are no minutes of a day"
    if not 0 <= opens < closes <= DAY_MINUTES:
        return "tenants.opens and tenants.closes are no hours of one day"
    return None


def _is_time_zone(value: object) -> bool:
    try:
        ZoneInfo(str(value))
    # Any text may stand there: a folder's name, a path, one that is too long for a file.
    except (LookupError, ValueError, OSError):
        return False
    return True


def _is_country(value: object) -> bool:
    # Nobody need ask about the usual one: that costs 0.3 s in a process that has not asked before.
    if value is None or value == Calendar.country:
        return True
    try:
        public_holidays(str(value), 2000)
    except NotImplementedError:
        return False
    return True


def _are_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_days(value: object) -> bool:
    return isinstance(value, list) and all(one in range(1, 8) for one in value)


def _is_policy(value: object) -> bool:
    return isinstance(value, dict) and all(_are_words(bases) for bases in value.values())


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


_COUNT = (_is_count, "no count")

_COLUMNS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "status": (lambda value: value in ("active", "paused"), "no status that there is"),
    "time_zone": (_is_time_zone, "no time zone that there is"),
    "working_days": (_are_days, "no list of days of the week (1-7)"),
    "holiday_country": (_is_country, "no country whose holidays are known"),
    "channels": (_are_words, "no list of channels"),
    "basis_policy": (_is_policy, "no object with a list of bases for each channel"),
    "introduction": (_is_text, "no text"),
    "failover": (lambda value: value in RULES_FOR_LOST_PHONES, "no rule that there is"),
    "failover_after_minutes": _COUNT,
    "gap_least_seconds": _COUNT,
    "gap_spread_seconds": _COUNT,
    "media_gap_least_seconds": _COUNT,
    "media_gap_spread_seconds": _COUNT,
    "weekly_per_person": _COUNT,
    "weekly_per_company": _COUNT,
    "unanswered_per_month": _COUNT,
    "alike_texts": _COUNT,
    "heartbeat_minutes": _COUNT,
    "sandbox_only": (lambda value: isinstance(value, bool), "neither true nor false"),
}
