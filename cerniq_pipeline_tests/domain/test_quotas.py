"""What a phone may open in a day: its quota, its warm-up ramp, and the standing of both."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from cerniq_pipeline.domain.quotas import (
    NEW_CONTACTS_PER_DAY,
    WARM_UP_FIRST_DAY,
    Standing,
    cost_of,
    limit_on,
)

START = date(2026, 11, 18)
MIDNIGHT = datetime(2026, 11, 18, 22, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age_days", "quota", "expected"),
    [
        (0, 200, 20),
        (1, 200, 35),
        (2, 200, 50),
        (11, 200, 185),
        (12, 200, 200),  # the ramp ends where the quota binds
        (400, 200, 200),
        (0, 10, 10),  # a quota below the ramp binds from the first day
        (-3, 200, 20),  # a ramp that begins later is not below its first day
        (5, 0, 0),
    ],
)
def test_a_young_phone_climbs_to_its_quota(age_days: int, quota: int, expected: int):
    day = START + timedelta(days=age_days)
    assert limit_on(day, quota=quota, warm_up_from=START) == expected


def test_an_old_phone_has_its_quota_at_once():
    assert limit_on(START, quota=NEW_CONTACTS_PER_DAY, warm_up_from=None) == 200
    assert WARM_UP_FIRST_DAY < NEW_CONTACTS_PER_DAY


def test_the_ramp_never_falls():
    limits = [limit_on(START + timedelta(days=n), quota=200, warm_up_from=START) for n in range(60)]
    assert limits == sorted(limits)


@pytest.mark.parametrize(
    ("used", "limit", "allowed", "remaining"),
    [
        (0, 200, True, 200),
        (199, 200, True, 1),
        (200, 200, False, 0),
        (201, 200, False, 0),  # a limit that was lowered during the day
        (0, 0, False, 0),
    ],
)
def test_one_more_contact_fits_only_below_the_limit(
    used: int, limit: int, allowed: bool, remaining: int
):
    standing = Standing(used=used, limit=limit, resets_at=MIDNIGHT)
    assert (standing.allowed, standing.remaining) == (allowed, remaining)


@pytest.mark.parametrize(
    ("kind", "cost"),
    [("initial", 1), ("handover", 1), ("followup", 0), ("reply", 0), ("media", 0)],
)
def test_only_a_new_conversation_costs_quota(kind: str, cost: int):
    assert cost_of(kind) == cost
