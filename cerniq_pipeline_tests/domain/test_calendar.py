"""Business hours in Bucharest: working days, public holidays, and both changes of the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cerniq_pipeline.domain.calendar import Calendar

OFFICE = Calendar()
EVERY_DAY = Calendar(working_days=frozenset(range(1, 8)), country=None)
AROUND_THE_CLOCK = Calendar(
    opens=0, closes=24 * 60, working_days=frozenset(range(1, 8)), country=None
)
NEVER = Calendar(working_days=frozenset())

CLOCKS_GO_BACK = date(2026, 10, 25)
CLOCKS_GO_FORWARD = date(2027, 3, 28)


def bucharest(written: str) -> datetime:
    """The instant that a clock on a wall in Bucharest shows like this."""
    local = datetime.fromisoformat(written).replace(tzinfo=ZoneInfo("Europe/Bucharest"))
    return local.astimezone(UTC)


@pytest.mark.parametrize(
    ("wall_clock", "open_then"),
    [
        ("2026-11-18 08:59:59", False),
        ("2026-11-18 09:00:00", True),
        ("2026-11-18 17:59:59.999999", True),
        ("2026-11-18 18:00:00", False),  # the closing minute is outside
        ("2026-11-18 23:59:59", False),
        ("2026-11-20 17:59:59", True),  # Friday
        ("2026-11-21 12:00:00", False),  # Saturday
        ("2026-11-22 12:00:00", False),  # Sunday
        ("2026-11-23 12:00:00", True),  # Monday
    ],
)
def test_the_office_is_open_from_nine_to_six_on_weekdays(wall_clock: str, open_then: bool):
    assert OFFICE.is_open(bucharest(wall_clock)) is open_then


@pytest.mark.parametrize(
    ("day", "working"),
    [
        (date(2026, 1, 1), False),
        (date(2026, 1, 6), False),  # Epiphany
        (date(2026, 4, 6), True),  # the western Easter Monday is a working day
        (date(2026, 4, 10), False),  # Orthodox Good Friday
        (date(2026, 4, 13), False),  # Orthodox Easter Monday
        (date(2026, 4, 14), True),
        (date(2026, 5, 1), False),
        (date(2026, 6, 1), False),  # Pentecost Monday and Children's Day at once
        (date(2026, 11, 30), False),  # Saint Andrew
        (date(2026, 12, 1), False),  # the National Day
        (date(2026, 12, 2), True),
        (date(2026, 12, 25), False),
        (date(2027, 5, 3), False),  # Orthodox Easter Monday, three weeks later than the year before
        (date(2027, 12, 1), False),
    ],
)
def test_romanian_public_holidays_are_off(day: date, working: bool):
    assert OFFICE.is_working_day(day) is working
    assert OFFICE.is_open(bucharest(f"{day} 12:00")) is working


@pytest.mark.parametrize(
    ("country", "working"),
    [("RO", False), ("DE", True), (None, True)],
)
def test_holidays_are_those_of_the_tenants_country(country: str | None, working: bool):
    assert Calendar(country=country).is_working_day(date(2026, 12, 1)) is working


@pytest.mark.parametrize(
    ("wall_clock", "opening"),
    [
        ("2026-11-18 12:00", "2026-11-18 12:00"),  # open now
        ("2026-11-18 00:00", "2026-11-18 09:00"),
        ("2026-11-18 18:00", "2026-11-19 09:00"),
        ("2026-11-20 18:00", "2026-11-23 09:00"),  # over the weekend
        ("2026-11-27 18:00", "2026-12-02 09:00"),  # weekend, Saint Andrew, National Day
        ("2026-04-09 18:00", "2026-04-14 09:00"),  # Good Friday to Easter Monday
        ("2026-10-23 18:00", "2026-10-26 09:00"),  # over the night in which clocks go back
        ("2027-03-26 18:00", "2027-03-29 09:00"),  # and over the one in which they go forward
        ("2026-12-31 18:00", "2027-01-04 09:00"),  # into a year with holidays of its own
    ],
)
def test_the_next_opening_skips_nights_weekends_and_holidays(wall_clock: str, opening: str):
    assert OFFICE.next_open(bucharest(wall_clock)) == bucharest(opening)


@pytest.mark.parametrize(
    ("wall_clock", "opening"),
    [
        ("2026-11-18 00:01", "2026-11-19 09:00"),  # before today's hours: still tomorrow
        ("2026-11-18 12:00", "2026-11-19 09:00"),
        ("2026-11-18 23:59", "2026-11-19 09:00"),
        ("2026-11-20 12:00", "2026-11-23 09:00"),
        ("2026-11-21 12:00", "2026-11-23 09:00"),
        ("2026-11-27 12:00", "2026-12-02 09:00"),
    ],
)
def test_a_spent_quota_waits_for_the_next_working_day(wall_clock: str, opening: str):
    assert OFFICE.next_working_day(bucharest(wall_clock)) == bucharest(opening)


@pytest.mark.parametrize(
    ("day", "opens_utc", "hours_long"),
    [
        (CLOCKS_GO_BACK - timedelta(days=1), 6, 24),
        (CLOCKS_GO_BACK, 7, 25),
        (CLOCKS_GO_BACK + timedelta(days=1), 7, 24),
        (CLOCKS_GO_FORWARD - timedelta(days=1), 7, 24),
        (CLOCKS_GO_FORWARD, 6, 23),
        (CLOCKS_GO_FORWARD + timedelta(days=1), 6, 24),
    ],
)
def test_nine_stays_nine_when_the_clock_changes(day: date, opens_utc: int, hours_long: int):
    opening, closing = EVERY_DAY.hours_of(day)
    assert opening == datetime(day.year, day.month, day.day, opens_utc, tzinfo=UTC)
    assert closing - opening == timedelta(hours=9)
    midnight, next_midnight = (EVERY_DAY.day_starts(day + timedelta(days=n)) for n in (0, 1))
    assert next_midnight - midnight == timedelta(hours=hours_long)


@pytest.mark.parametrize("day", [CLOCKS_GO_BACK, CLOCKS_GO_FORWARD])
def test_a_tenant_around_the_clock_has_no_gap_and_no_overlap_when_the_clock_changes(day: date):
    start = AROUND_THE_CLOCK.day_starts(day - timedelta(days=1))
    for half_hour in range(3 * 48 + 2):
        instant = start + timedelta(minutes=30 * half_hour)
        assert AROUND_THE_CLOCK.is_open(instant)
        assert AROUND_THE_CLOCK.next_open(instant) == instant
        closing = AROUND_THE_CLOCK.closes_at(instant)
        assert closing == AROUND_THE_CLOCK.day_starts(
            AROUND_THE_CLOCK.day_of(instant) + timedelta(days=1)
        )


def test_the_hour_that_happens_twice_belongs_to_one_day():
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # 03:30 in summer time
    assert {OFFICE.day_of(first), OFFICE.day_of(first + timedelta(hours=1))} == {CLOCKS_GO_BACK}


@pytest.mark.parametrize(
    ("instant", "day"),
    [
        (datetime(2026, 11, 17, 21, 59, 59, tzinfo=UTC), date(2026, 11, 17)),
        (datetime(2026, 11, 17, 22, 0, tzinfo=UTC), date(2026, 11, 18)),  # midnight in winter
        (datetime(2026, 7, 17, 20, 59, 59, tzinfo=UTC), date(2026, 7, 17)),
        (datetime(2026, 7, 17, 21, 0, tzinfo=UTC), date(2026, 7, 18)),  # midnight in summer
    ],
)
def test_today_is_bucharests_day_and_not_utcs(instant: datetime, day: date):
    assert OFFICE.day_of(instant) == day


def test_closing_is_known_while_open_and_unknown_while_closed():
    assert OFFICE.closes_at(bucharest("2026-11-18 12:00")) == bucharest("2026-11-18 18:00")
    assert OFFICE.closes_at(bucharest("2026-11-18 18:00")) is None
    assert OFFICE.closes_at(bucharest("2026-11-21 12:00")) is None


@pytest.mark.parametrize("calendar", [NEVER, Calendar(opens=600, closes=600)])
def test_a_calendar_that_never_opens_says_so(calendar: Calendar):
    assert calendar.next_open(bucharest("2026-11-18 12:00")) is None
    assert calendar.next_working_day(bucharest("2026-11-18 12:00")) is None
    assert not calendar.is_open(bucharest("2026-11-18 10:00"))


def test_another_time_zone_has_its_own_hours():
    london = Calendar(time_zone="Europe/London", country="GB")
    assert not london.is_open(datetime(2026, 11, 18, 8, 59, tzinfo=UTC))
    assert london.is_open(datetime(2026, 11, 18, 9, 0, tzinfo=UTC))
