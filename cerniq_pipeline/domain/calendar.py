"""Business hours: open or closed at an instant, and when that changes. Safe across DST."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

DAY_MINUTES = 24 * 60
LONGEST_CLOSURE = timedelta(days=370)
"""A calendar that stays shut for longer has no opening at all."""


def local(instant: datetime, time_zone: str, *, seconds: bool = True) -> str:
    """An instant as a clock on the wall there shows it, with its offset from UTC."""
    wall = instant.astimezone(ZoneInfo(time_zone))
    return wall.isoformat(sep=" ", timespec="seconds" if seconds else "minutes")


@dataclass(frozen=True)
class Calendar:
    """When a tenant's automatic outreach may run; minutes count from local midnight."""

    time_zone: str = "Europe/Bucharest"
    opens: int = 9 * 60
    closes: int = 18 * 60
    working_days: frozenset[int] = frozenset({1, 2, 3, 4, 5})
    country: str | None = "RO"

    def day_of(self, instant: datetime) -> date:
        """The tenant's calendar day at this instant: what "today" means for a quota."""
        return instant.astimezone(ZoneInfo(self.time_zone)).date()

    def day_starts(self, day: date) -> datetime:
        """The first instant of the tenant's day, in UTC."""
        return datetime.combine(day, time(), ZoneInfo(self.time_zone)).astimezone(UTC)

    def is_working_day(self, day: date) -> bool:
        """Whether outreach runs at all on this day."""
        if day.isoweekday() not in self.working_days:
            return False
        return self.country is None or day not in public_holidays(self.country, day.year)

    def hours_of(self, day: date) -> tuple[datetime, datetime]:
        """Opening and closing of one working day, in UTC.

        Wall-clock minutes are laid on the date before the zone is applied: 09:00 stays 09:00
        on the days on which the clock changes.
        """
        return self._at(day, self.opens), self._at(day, self.closes)

    def is_open(self, instant: datetime) -> bool:
        """Whether automatic outreach may run at this instant; the closing minute is outside."""
        day = self.day_of(instant)
        if not self.is_working_day(day):
            return False
        opening, closing = self.hours_of(day)
        return opening <= instant < closing

    def next_open(self, instant: datetime) -> datetime | None:
        """The first open instant at or after this one; None when there is none within a year."""
        if self.opens >= self.closes:
            return None
        day = self.day_of(instant)
        last = day + LONGEST_CLOSURE
        while day <= last:
            if self.is_working_day(day):
                opening, closing = self.hours_of(day)
                if instant < closing:
                    return max(opening, instant)
            day += timedelta(days=1)
        return None

    def next_working_day(self, instant: datetime) -> datetime | None:
        """The opening of the first working day after today: where a spent quota waits."""
        return self.next_open(self.day_starts(self.day_of(instant) + timedelta(days=1)))

    def closes_at(self, instant: datetime) -> datetime | None:
        """When the hours that are open now end; None while closed."""
        return self.hours_of(self.day_of(instant))[1] if self.is_open(instant) else None

    def _at(self, day: date, minutes: int) -> datetime:
        days, minute = divmod(minutes, DAY_MINUTES)
        wall = time(minute // 60, minute % 60)
        local = datetime.combine(day + timedelta(days=days), wall, ZoneInfo(self.time_zone))
        return local.astimezone(UTC)


@lru_cache(maxsize=64)
def public_holidays(country: str, year: int) -> frozenset[date]:
    """The public holidays of one country and year."""
    import holidays  # costs 0.2 s, and most processes never ask

    return frozenset(holidays.country_holidays(country, years=year))
