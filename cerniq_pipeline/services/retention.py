"""Forget what has served its time, in small steps, so that nobody at work waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from cerniq_pipeline.domain.clock import Clock
from cerniq_pipeline.domain.retention import Kind
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import retention
from cerniq_pipeline.store.database import Begin

AT_ONCE = 1000
LONGEST = timedelta(minutes=30)
"""What is not done by then is done the next night."""


@dataclass(frozen=True)
class Forgotten:
    """What became of one kind; of a dry run, what would become of it."""

    kept_for: timedelta
    rows: int
    is_complete: bool = True
    """Whether nothing else of it was old enough when we stopped."""


def purge(
    begin: Begin,
    keep: Mapping[Kind, timedelta],
    *,
    clock: Clock,
    dry_run: bool = False,
    longest: timedelta = LONGEST,
) -> dict[Kind, Forgotten]:
    """Forget every kind that is older than it is to be kept; returns how much that was.

    Ended at any point, it leaves whole batches behind it and nothing else; the next one goes on.
    """
    now = clock.now()
    until = now + longest
    done: dict[Kind, Forgotten] = {}
    for kind in retention.KINDS:
        before = now - keep[kind]
        if dry_run:
            with begin() as conn:
                done[kind] = Forgotten(keep[kind], retention.count(conn, kind, before=before))
            continue
        rows, last, is_complete = 0, retention.first_key(kind), False
        while clock.now() < until and not is_complete:
            with begin() as conn:
                some, last = retention.forget_some(
                    conn, kind, before=before, after=last, most=AT_ONCE
                )
            rows += some
            is_complete = some < AT_ONCE
        done[kind] = Forgotten(keep[kind], rows, is_complete)
    if not dry_run:
        gone = {kind: one.rows for kind, one in done.items() if one.rows}
        event("retention", "purged", rows=gone)
    return done
