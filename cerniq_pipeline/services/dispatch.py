"""Dispatch in three verbs: select the leads that are due, plan them, fill the outbox.

Each verb is one transaction and stands on what the one before left in the batch; a batch that is
lost or repeated does no harm, because the outbox takes each step of a lead once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cerniq_pipeline.domain import templates
from cerniq_pipeline.domain.calendar import Calendar
from cerniq_pipeline.domain.selection import (
    Desk,
    Group,
    Medium,
    Preference,
    Skip,
    Verdict,
    deal,
    judge,
    route,
)
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import phones, selection, sequences, tenants
from cerniq_pipeline.store.database import Begin

EVERY = timedelta(minutes=5)
CONSIDERED_PER_PLANNED = 5
MOST_EXTRA = 1000
"""More leads are looked at than planned: those that cannot be contacted are put off at once, so
that many of them at the head of the line do not block everybody behind."""

RECHECK = timedelta(days=1)
WHOLE_TENANT = (Skip.OUTSIDE_HOURS, Skip.SWITCHED_OFF)


@dataclass(frozen=True)
class Request:
    """What a dispatch is asked to do; the run configuration."""

    batch_size: int = 100
    channel_preference: Preference = "AUTO"
    priority_filter: str | None = None
    sequence_filter: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Result:
    """What a dispatch did, in the words of the documents."""

    total_eligible_leads: int = 0
    dispatched_to_whatsapp: int = 0
    dispatched_to_email: int = 0
    skipped_quota_exceeded: int = 0
    skipped_outside_hours: int = 0
    skipped_no_channel: int = 0
    skipped_human_review: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    waiting_for_next_batch: int = 0


def select_leads(
    begin: Begin, tenant_id: str, request: Request, *, by: str, secret: bytes, now: datetime
) -> tuple[int, int]:
    """Read the due leads of one tenant into a new batch: (batch, how many)."""
    with begin() as conn:
        tenant = tenants.get(conn, tenant_id)
        sequence_id = None
        if request.sequence_filter:
            sequence_id = selection.sequence_named(conn, tenant_id, request.sequence_filter)
            if sequence_id is None:
                raise NotFound(f"tenant {tenant_id} has no sequence {request.sequence_filter!r}")
        batch_id = selection.open_batch(conn, tenant_id=tenant_id, asked=asdict(request), by=by)
        count = selection.select_due(
            conn,
            batch_id,
            tenant_id=tenant_id,
            considered=_considered(request.batch_size),
            priority=request.priority_filter,
            sequence_id=sequence_id,
            default_sequence_id=tenant.default_sequence_id,
            now=now,
        )
        selection.mark_stopped(conn, batch_id, tenant_id, secret=secret)
    return batch_id, count


def _considered(batch_size: int) -> int:
    return max(batch_size, min(CONSIDERED_PER_PLANNED * batch_size, MOST_EXTRA))


def plan_batch(begin: Begin, batch_id: int, *, now: datetime) -> Result:
    """Give every lead of a batch a channel and a phone, or the reason why not."""
    with begin() as conn:
        tenant_id, asked = selection.batch(conn, batch_id)
        request = Request(**asked)
        tenant = tenants.get(conn, tenant_id)
        off = phones.switches_off(conn, tenant_id, channel="WHATSAPP")
        if off:
            selection.pass_over_all(conn, batch_id, Skip.SWITCHED_OFF)
        elif not tenant.calendar.is_open(now):
            selection.pass_over_all(conn, batch_id, Skip.OUTSIDE_HOURS)
        else:
            desks = phones.desks(conn, tenant_id, day=tenant.calendar.day_of(now))
            _decide(conn, batch_id, request, tenant, desks)
        return result_of(conn, batch_id)


def _decide(
    conn: Any, batch_id: int, request: Request, tenant: tenants.Tenant, desks: list[Desk]
) -> None:
    groups = selection.groups(conn, batch_id)
    verdicts = judge_all(conn, groups, tenant, preference=request.channel_preference)
    # Leads that know their phone come first: its room is theirs before it is dealt to strangers.
    may_be_planned = {verdict.group for verdict in verdicts if verdict.skip is None}
    known: Counter[str] = Counter()
    for phone_id, group, count in selection.known_phones(conn, batch_id):
        if group in may_be_planned:
            known[phone_id] += count
    left = [
        replace(desk, used=desk.used + min(known[desk.phone_id], desk.remaining)) for desk in desks
    ]
    selection.write_plan(
        conn,
        batch_id,
        batch_size=request.batch_size,
        verdicts=verdicts,
        hand=deal(left, request.batch_size),
        desks=desks,
        # A follow-up asks of its phone only whether it is active; room is counted per lead.
        refusals={
            desk.phone_id: answer for desk in desks if isinstance(answer := route(2, desk), Skip)
        },
        nobody_left=Skip.QUOTA_EXCEEDED
        if any(desk.active for desk in desks)
        else Skip.PHONE_NOT_ACTIVE,
    )


def judge_all(
    conn: Any, groups: Sequence[Group], tenant: tenants.Tenant, *, preference: Preference
) -> list[Verdict]:
    """What happens to each of these groups of a tenant's leads: a medium and a text, or why not."""
    known_sequences = sequences.outlines(conn, {group.sequence_id for group in groups})
    broken = _broken_templates(conn, known_sequences)
    verdicts = []
    for group in groups:
        active, steps = known_sequences.get(group.sequence_id, (False, None))
        verdicts.append(
            judge(
                group,
                steps,
                active=active,
                preference=preference,
                enabled=tenant.channels,
                basis_policy=tenant.basis_policy,
                broken=broken,
            )
        )
    return verdicts


def _broken_templates(conn: Any, known: sequences.Outlines) -> set[tuple[int, int]]:
    """Templates of these sequences that cannot be used where they stand: (template, step)."""
    uses = {
        (template_id, step)
        for _, steps in known.values()
        for step, (_, template_id) in steps.items()
    }
    texts = sequences.texts(conn, {template_id for template_id, _ in uses})
    return {
        (template_id, step)
        for template_id, step in uses
        if templates.fault(texts.get(template_id), first_message=step == 1)
    }


def fill_outbox(begin: Begin, batch_id: int, *, by: str, now: datetime) -> tuple[int, int]:
    """Write a planned batch into the outbox: (messages written, planned before by another).

    A dry run writes nothing. Leads that were passed over are put off until their reason may have
    gone, except when the whole tenant waits.
    """
    with begin() as conn:
        tenant_id, asked = selection.batch(conn, batch_id)
        if asked["dry_run"]:
            return 0, 0
        selection.lock_dispatch(conn, tenant_id)
        calendar = tenants.get(conn, tenant_id).calendar
        written, before = selection.fill_outbox(
            conn,
            batch_id,
            tenant_id=tenant_id,
            desks=phones.desks(conn, tenant_id, day=calendar.day_of(now)),
            by=by,
            now=now,
        )
        selection.put_off(conn, batch_id, _recheck_times(calendar, now), now=now)
    event("dispatch", "outbox_filled", run=by, tenant=tenant_id, written=written, before=before)
    return written, before


def _recheck_times(calendar: Calendar, now: datetime) -> dict[str, datetime | None]:
    """When a lead that was passed over for a reason is worth another look; None: never again."""
    times: dict[str, datetime | None] = {
        skip: now + RECHECK for skip in Skip if skip not in WHOLE_TENANT
    }
    times[Skip.QUOTA_EXCEEDED] = calendar.next_working_day(now) or now + RECHECK
    for mended_soon in (Skip.PHONE_NOT_ACTIVE, Skip.SEQUENCE_PAUSED, Skip.TEMPLATE_BROKEN):
        times[mended_soon] = now + timedelta(hours=1)
    times[Skip.SEQUENCE_FINISHED] = None
    return times


def result_of(conn: Any, batch_id: int) -> Result:
    """Every count of the documents for one batch."""
    tenant_id, _ = selection.batch(conn, batch_id)
    by_medium: dict[str, int] = {}
    skipped: dict[str, int] = {}
    waiting = 0
    for medium, skip, count in selection.counts(conn, batch_id):
        if skip:
            skipped[skip] = skipped.get(skip, 0) + count
        elif medium:
            by_medium[medium] = by_medium.get(medium, 0) + count
        else:
            waiting += count
    mail = by_medium.get(Medium.EMAIL_COLD, 0) + by_medium.get(Medium.EMAIL_WARM, 0)
    return Result(
        total_eligible_leads=sum(by_medium.values()) + sum(skipped.values()) + waiting,
        dispatched_to_whatsapp=by_medium.get(Medium.WHATSAPP, 0),
        dispatched_to_email=mail,
        skipped_quota_exceeded=skipped.get(Skip.QUOTA_EXCEEDED, 0),
        skipped_outside_hours=skipped.get(Skip.OUTSIDE_HOURS, 0),
        skipped_no_channel=skipped.get(Skip.NO_CHANNEL, 0),
        skipped_human_review=selection.awaiting_review(conn, tenant_id),
        skipped=skipped,
        waiting_for_next_batch=waiting,
    )


def next_dispatch(now: datetime) -> datetime:
    """The next five-minute mark: when the schedule dispatches again."""
    seconds = EVERY.total_seconds()
    return datetime.fromtimestamp((now.timestamp() // seconds + 1) * seconds, tz=UTC)
