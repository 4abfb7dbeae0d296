"""Which step comes next, and when: from the real send time, inside business hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cerniq_pipeline.domain.calendar import Calendar
from cerniq_pipeline.domain.sequences import Step, next_step

OFFICE = Calendar()
STEPS = {
    1: Step(1, "WHATSAPP", 11, timedelta()),
    2: Step(2, "WHATSAPP", 12, timedelta(days=2)),
    3: Step(3, "EMAIL", 13, timedelta(hours=1)),
}


@pytest.mark.parametrize(
    ("done", "sent_at", "step", "due_at"),
    [
        # Wednesday 12:00 in Bucharest, two days later is Friday 12:00.
        (1, datetime(2026, 11, 18, 10, tzinfo=UTC), 2, datetime(2026, 11, 20, 10, tzinfo=UTC)),
        # Thursday: two days later is a Saturday, so Monday at nine.
        (1, datetime(2026, 11, 19, 10, tzinfo=UTC), 2, datetime(2026, 11, 23, 7, tzinfo=UTC)),
        # Two days later is Sunday 29 November; then come Saint Andrew and the National Day.
        (1, datetime(2026, 11, 27, 10, tzinfo=UTC), 2, datetime(2026, 12, 2, 7, tzinfo=UTC)),
        # An hour later the office has closed.
        (2, datetime(2026, 11, 18, 15, 30, tzinfo=UTC), 3, datetime(2026, 11, 19, 7, tzinfo=UTC)),
        # Two days later the clock has gone back: the due time moves to nine on the wall.
        (1, datetime(2026, 10, 23, 10, tzinfo=UTC), 2, datetime(2026, 10, 26, 7, tzinfo=UTC)),
    ],
)
def test_the_next_step_is_due_after_its_delay_and_inside_business_hours(
    done: int, sent_at: datetime, step: int, due_at: datetime
):
    following = next_step(STEPS, done=done, sent_at=sent_at, calendar=OFFICE)
    assert following == (STEPS[step], due_at)


@pytest.mark.parametrize("done", [3, 4, 100])
def test_after_the_last_step_the_sequence_ends(done: int):
    now = datetime(2026, 11, 18, 10, tzinfo=UTC)
    assert next_step(STEPS, done=done, sent_at=now, calendar=OFFICE) is None


def test_a_tenant_that_never_opens_still_gets_a_due_time():
    now = datetime(2026, 11, 18, 10, tzinfo=UTC)
    closed = Calendar(working_days=frozenset())
    assert next_step(STEPS, done=1, sent_at=now, calendar=closed) == (
        STEPS[2],
        now + timedelta(days=2),
    )
