"""Sequences: which step comes next, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cerniq_pipeline.domain.calendar import Calendar


@dataclass(frozen=True)
class Step:
    """One message of a sequence; `delay` counts from the moment the step before really went out."""

    step: int
    channel: str
    template_id: int
    delay: timedelta


def next_step(
    steps: Mapping[int, Step], *, done: int, sent_at: datetime, calendar: Calendar
) -> tuple[Step, datetime] | None:
    """The step after `done` and its due time inside business hours; None at the end."""
    step = steps.get(done + 1)
    if step is None:
        return None
    due = sent_at + step.delay
    return step, calendar.next_open(due) or due
