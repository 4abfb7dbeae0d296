"""Dispatch in three verbs: select the leads that are due, plan them, fill the outbox.

Each verb is one transaction per tenant and stands on what the one before left in the batch; a batch
that is lost or repeated does no harm, because the outbox takes each step of a lead once. What is
wrong with a tenant costs that tenant, what is wrong with a lead that lead: both are told, and the
others go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from cerniq_pipeline.domain import templates
from cerniq_pipeline.domain.alerts import DISPATCH_STUCK, STEPS_REPEATED
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
from cerniq_pipeline.logs import event, mask
from cerniq_pipeline.store import alerts, phones, selection, sequences, tenants
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.selection import Batch

T = TypeVar("T")

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
        tenant = tenants.readable(conn, tenant_id)
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
    """Give every lead of a batch a channel and a phone, or the reason why not.

    A plan that was made before is made again, until it stands in the outbox.
    """
    with begin() as conn:
        batch = selection.lock_batch(conn, batch_id)
        if not batch.is_filled:
            selection.begin_plan(conn, batch_id, now=now)
            _plan(conn, batch, now=now)
        return result_of(conn, batch)


def _plan(conn: Connection, batch: Batch, *, now: datetime) -> None:
    tenant = tenants.readable(conn, batch.tenant_id)
    if phones.switches_off(conn, tenant.id, channel="WHATSAPP"):
        selection.pass_over_all(conn, batch.id, Skip.SWITCHED_OFF)
    elif not tenant.calendar.is_open(now):
        selection.pass_over_all(conn, batch.id, Skip.OUTSIDE_HOURS)
    else:
        desks = phones.desks(conn, tenant.id, day=tenant.calendar.day_of(now))
        _decide(conn, batch.id, Request(**batch.asked), tenant, desks)


def _decide(
    conn: Connection, batch_id: int, request: Request, tenant: tenants.Tenant, desks: list[Desk]
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
    conn: Connection, groups: Sequence[Group], tenant: tenants.Tenant, *, preference: Preference
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


def refusal_of(conn: Connection, lead_id: UUID, tenant: tenants.Tenant) -> Skip | None:
    """Why a dispatch would pass this lead over, whatever the hour and the phones."""
    group = selection.group_of(conn, lead_id, default_sequence_id=tenant.default_sequence_id)
    (verdict,) = judge_all(conn, [group], tenant, preference="AUTO")
    return verdict.skip


def _broken_templates(conn: Connection, known: sequences.Outlines) -> set[tuple[int, int]]:
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

    A dry run writes nothing, nor does a batch that was written before. Leads that were passed over
    are put off until their reason may have gone, except when the whole tenant waits.
    """
    with begin() as conn:
        batch = selection.lock_batch(conn, batch_id)
        if batch.asked["dry_run"] or batch.is_filled:
            return 0, 0
        tenant_id = batch.tenant_id
        selection.lock_dispatch(conn, tenant_id)
        calendar = tenants.readable(conn, tenant_id).calendar
        written, before = selection.fill_outbox(
            conn,
            batch_id,
            tenant_id=tenant_id,
            desks=phones.desks(conn, tenant_id, day=calendar.day_of(now)),
            by=by,
            now=now,
        )
        selection.put_off(conn, batch_id, _recheck_times(calendar, now), now=now)
        selection.note_filled(conn, batch_id, now=now)
        _close_alerts(conn, tenant_id, now=now)
    event("dispatch", "outbox_filled", run=by, tenant=tenant_id, written=written, before=before)
    return written, before


def _close_alerts(conn: Connection, tenant_id: str, *, now: datetime) -> None:
    """Close what was told of this tenant's dispatch, as far as it is over."""
    alerts.close(conn, kinds=(DISPATCH_STUCK,), subjects=(tenant_id,), now=now)
    told = {alert.subject for alert in alerts.open_alerts(conn, kind=STEPS_REPEATED)}
    if tenant_id in told and not selection.has_leads_held(conn, tenant_id, Skip.STEP_REPEATED):
        alerts.close(conn, kinds=(STEPS_REPEATED,), subjects=(tenant_id,), now=now)


def _recheck_times(calendar: Calendar, now: datetime) -> dict[str, datetime | None]:
    """When a lead that was passed over for a reason is worth another look; None: never again."""
    times: dict[str, datetime | None] = {
        skip: now + RECHECK for skip in Skip if skip not in WHOLE_TENANT
    }
    times[Skip.QUOTA_EXCEEDED] = calendar.next_working_day(now) or now + RECHECK
    for mended_soon in (Skip.PHONE_NOT_ACTIVE, Skip.SEQUENCE_PAUSED, Skip.TEMPLATE_BROKEN):
        times[mended_soon] = now + timedelta(hours=1)
    for for_good in (Skip.SEQUENCE_FINISHED, Skip.OPTED_OUT):
        times[for_good] = None
    return times


def result_of(conn: Connection, batch: Batch) -> Result:
    """Every count of the documents for one batch."""
    by_medium: dict[str, int] = {}
    skipped: dict[str, int] = {}
    waiting = 0
    for medium, skip, count in selection.counts(conn, batch.id):
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
        skipped_human_review=selection.awaiting_review(conn, batch.tenant_id),
        skipped=skipped,
        waiting_for_next_batch=waiting,
    )


def next_dispatch(now: datetime) -> datetime:
    """The next five-minute mark: when the schedule dispatches again."""
    seconds = EVERY.total_seconds()
    return datetime.fromtimestamp((now.timestamp() // seconds + 1) * seconds, tz=UTC)


# ── For all tenants, each on its own ──────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Selected:
    """The batches of one run, and which tenants it has none of."""

    batches: list[Batch]
    leads: dict[str, int]
    without_sequence: list[str]
    troubles: dict[str, str]
    """Tenants whose leads could not be read, and why."""


@dataclass(frozen=True)
class Planned:
    """What became of the leads of one run, by tenant."""

    batches: list[Batch]
    results: dict[str, Result]
    troubles: dict[str, str]

    @property
    def is_dry(self) -> bool:
        return any(batch.asked["dry_run"] for batch in self.batches)


@dataclass(frozen=True)
class Filled(Planned):
    """The same, with what was written into the outbox."""

    written: int = 0
    before: int = 0


def select_all(
    begin: Begin,
    request: Request,
    *,
    tenant_id: str | None,
    by: str,
    secret: bytes,
    now: datetime,
) -> Selected:
    """Open a batch for one tenant, or for each that is active."""
    with begin() as conn:
        chosen = tenants.active_ids(conn) if tenant_id is None else [tenant_id]
        without = [] if tenant_id else _without_sequence(conn, chosen, request.sequence_filter)
    if without and without == chosen:
        raise NotFound(f"no active tenant has a sequence {request.sequence_filter!r}")
    leads, troubles = _each(
        begin,
        {
            tenant: partial(select_leads, begin, tenant, request, by=by, secret=secret, now=now)
            for tenant in chosen
            if tenant not in without
        },
        is_only_one=tenant_id is not None,
        now=now,
    )
    with begin() as conn:
        batches = selection.batches_of(conn, by)
    counts = {tenant: count for tenant, (_, count) in leads.items()}
    return Selected(batches, counts, without, troubles)


def _without_sequence(conn: Connection, chosen: Sequence[str], name: str | None) -> list[str]:
    if name is None:
        return []
    return [each for each in chosen if selection.sequence_named(conn, each, name) is None]


def plan_all(begin: Begin, *, by: str, secret: bytes, now: datetime) -> Planned:
    """Plan the batches of this run.

    A run that selected nobody reads the due leads itself, as they were asked for the last time:
    batches of other runs are left to them, and old ones say what was true then.
    """
    with begin() as conn:
        last = [] if selection.batches_of(conn, by) else _of_last_run(conn)
    again = {
        batch.tenant_id: partial(
            select_leads,
            begin,
            batch.tenant_id,
            Request(**batch.asked),
            by=by,
            secret=secret,
            now=now,
        )
        for batch in last
    }
    _, unread = _each(begin, again, now=now)
    with begin() as conn:
        mine = selection.batches_of(conn, by)
    results, troubles = _each(
        begin,
        {batch.tenant_id: partial(plan_batch, begin, batch.id, now=now) for batch in mine},
        now=now,
    )
    planned = [batch for batch in mine if batch.tenant_id in results]
    return Planned(planned, results, unread | troubles)


def fill_all(begin: Begin, *, by: str, now: datetime) -> Filled:
    """Write the plans of this run into the outbox, or those of the run that planned last."""
    with begin() as conn:
        mine = _plans_for(conn, by)
    for rule in [] if any(batch.made_by == by for batch in mine) else Rule:
        leave_out(begin, rule, by=by, now=now)  # a plan of some time ago, whose checks are as old
    filled, troubles = _each(
        begin,
        {batch.tenant_id: partial(fill_outbox, begin, batch.id, by=by, now=now) for batch in mine},
        now=now,
    )
    done = [batch for batch in mine if batch.tenant_id in filled]
    with begin() as conn:
        results = {batch.tenant_id: result_of(conn, batch) for batch in done}
    return Filled(
        done,
        results,
        troubles,
        written=sum(written for written, _ in filled.values()),
        before=sum(before for _, before in filled.values()),
    )


def _plans_for(conn: Connection, by: str) -> list[Batch]:
    return selection.batches_of(conn, by, planned=True) or _of_last_run(conn, planned=True)


def _of_last_run(conn: Connection, *, planned: bool = False) -> list[Batch]:
    last = selection.last_run(conn, planned=planned)
    if last is None:
        return []
    active = tenants.active_ids(conn)
    batches = selection.batches_of(conn, last, planned=planned)
    return [batch for batch in batches if batch.tenant_id in active]


def _each(
    begin: Begin,
    work: Mapping[str, Callable[[], T]],
    *,
    now: datetime,
    is_only_one: bool = False,
) -> tuple[dict[str, T], dict[str, str]]:
    """Do the work of each tenant; whose work fails is told, and costs no other its turn.

    When nobody's could be done, the first error is raised: then it is nobody's own.
    """
    done: dict[str, T] = {}
    troubles: dict[str, str] = {}
    first: Exception | None = None
    for tenant_id, act in work.items():
        try:
            done[tenant_id] = act()
        except Exception as error:
            if is_only_one or _is_everybodys(error):
                raise
            first = first or error
            troubles[tenant_id] = _in_words(error)
    for tenant_id, why in troubles.items():
        event("dispatch", "tenant_failed", level="error", tenant=tenant_id, error=why)
        with begin() as conn:
            alerts.open_once(
                conn,
                tenant_id=tenant_id,
                kind=DISPATCH_STUCK,
                subject=tenant_id,
                detail=why,
                now=now,
            )
    if first is not None and not done:
        raise first
    return done, troubles


def _is_everybodys(error: Exception) -> bool:
    """Whether the database itself is away, and not something of one tenant wrong."""
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlstate", None)
    return code is None or code[:2] in ("08", "53", "57")


def _in_words(error: Exception) -> str:
    # What the database says quotes the row that it is about.
    said = "" if isinstance(error, SQLAlchemyError) else f": {mask(str(error))}"
    return f"{type(error).__name__}{said}"[:300]


# ── What must never be in a plan ──────────────────────────────────────────────────────────────


class Rule(StrEnum):
    """What no plan may break; who would is left out of it for this reason."""

    OPTED_OUT = Skip.OPTED_OUT
    BASIS = Skip.NO_LAWFUL_BASIS
    TWICE = Skip.STEP_REPEATED
    QUOTA = Skip.QUOTA_EXCEEDED


@dataclass(frozen=True)
class LeftOut:
    """Who would have broken a rule, by tenant, and who still would."""

    leads: dict[str, list[UUID]]
    still: int
    troubles: dict[str, str]


def leave_out(begin: Begin, rule: Rule, *, by: str, now: datetime) -> LeftOut:
    """Take whoever breaks a rule out of the plans of this run, or of the run that planned last."""
    with begin() as conn:
        mine = [batch for batch in _plans_for(conn, by) if not batch.is_filled]
    found, troubles = _each(
        begin,
        {batch.tenant_id: partial(_leave_out, begin, batch, rule, now=now) for batch in mine},
        now=now,
    )
    return LeftOut(
        {tenant: leads for tenant, (leads, _) in found.items() if leads},
        sum(still for _, still in found.values()),
        troubles,
    )


def _leave_out(begin: Begin, batch: Batch, rule: Rule, *, now: datetime) -> tuple[list[UUID], int]:
    with begin() as conn:
        selection.lock_batch(conn, batch.id)
        leads = _breaking(conn, batch, rule, now=now)
        if not leads:
            return [], 0
        selection.leave_out(conn, batch.id, leads, rule)
        if rule is Rule.TWICE and not batch.asked["dry_run"]:
            alerts.open_once(
                conn,
                tenant_id=batch.tenant_id,
                kind=STEPS_REPEATED,
                subject=batch.tenant_id,
                detail=f"{len(leads)} leads, the first is {leads[0]}",
                now=now,
            )
        return leads, len(_breaking(conn, batch, rule, now=now))


def _breaking(conn: Connection, batch: Batch, rule: Rule, *, now: datetime) -> list[UUID]:
    match rule:
        case Rule.OPTED_OUT:
            return selection.planned_though_opted_out(conn, batch.id)
        case Rule.BASIS:
            return selection.planned_without_basis(conn, batch.id)
        case Rule.TWICE:
            return selection.planned_twice(conn, batch.id)
        case Rule.QUOTA:
            day = tenants.get(conn, batch.tenant_id).calendar.day_of(now)
            return selection.planned_over_quota(conn, batch.id, tenant_id=batch.tenant_id, day=day)
