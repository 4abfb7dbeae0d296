"""Why nothing is being sent now: every rule that can hold a phone or a message, in order.

The claim asks these functions under its locks, and `cerniq why` asks the same ones later, so an
explanation can never differ from what really happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from cerniq_pipeline.domain.breakers import Breaker
from cerniq_pipeline.domain.calendar import Calendar, local
from cerniq_pipeline.domain.leads import AUTOMATED, LawfulBasis, Stage
from cerniq_pipeline.domain.quotas import DAY_END_MARGIN, Standing

PRESSURE_WINDOW = timedelta(days=7)
HUMAN_RECHECK = timedelta(hours=1)
WINDOW_RECHECK = timedelta(days=1)
BASIS_RECHECK = timedelta(days=1)
UNHEARD_RECHECK = timedelta(seconds=30)
"""Replies are read within seconds; while they are not, somebody is being told."""


@dataclass(frozen=True)
class Hold:
    """The rule that binds now, its numbers in words, and when that changes.

    `until` is None when only a person or an event can lift it. `then` says what becomes of the
    message: it waits in place, is put off until `until`, or is cancelled for good.
    """

    rule: str
    detail: str
    until: datetime | None
    then: Literal["wait", "defer", "cancel"] = "wait"


@dataclass(frozen=True)
class Switch:
    """A kill switch that is off: global, or one tenant's, channel's, account's or phone's."""

    scope: str
    key: str
    reason: str


@dataclass(frozen=True)
class PhoneFacts:
    """All that decides whether a phone may send at all."""

    phone_id: str
    status: str
    status_reason: str | None
    enabled: bool
    tenant_active: bool
    sandbox_only: bool
    switches: Sequence[Switch]
    calendar: Calendar
    next_send_at: datetime | None
    provider: str = "timelinesai"
    breakers: Sequence[Breaker] = ()
    """Those of the phone and of its provider that are not closed."""
    tenant_fault: str | None = None
    """What in its tenant's row nobody can read."""


@dataclass(frozen=True)
class Pressure:
    """Automatic messages of the last week to one person or company."""

    count: int
    limit: int
    oldest_at: datetime | None


@dataclass(frozen=True)
class MessageFacts:
    """All that decides whether one message may go to its lead."""

    stage: Stage | None
    opted_out: bool
    suppressed: bool
    requires_human_review: bool
    held_by: str | None
    """The person who talks to the lead, if somebody does."""
    in_conversation: bool
    """Whether the person spoke with one of us, as this lead or as another."""
    unheard: bool
    """Whether the lead wrote something that nobody has read yet."""
    basis: LawfulBasis | None
    allowed_bases: frozenset[str]
    automatic: bool
    """Whether a sequence sends it; what a person sends may go into a conversation."""
    sequence_active: bool
    not_after: datetime | None
    person: Pressure
    company: Pressure
    standing: Standing | None
    """The phone's quota, for messages that cost some; None for those that cost nothing."""
    review_reason: str | None = None
    bad_data: str | None = None
    """What in its lead's rows nobody can read."""
    template_fault: str | None = None
    """What keeps its template from being used for anybody."""
    window_open: bool = True
    """Whether the provider lets free text through to this person now."""
    has_approved_form: bool = False
    """Whether its text has a form that the provider approved."""


@dataclass(frozen=True)
class Installation:
    """What this installation can do: write to real people, and through which providers."""

    live: bool
    providers: Collection[str]


def hold_on_phone(facts: PhoneFacts, *, here: Installation, now: datetime) -> Hold | None:
    """The first rule that keeps this phone silent now, or None."""
    return next(_phone_holds(facts, here, now), None)


def hold_on_message(facts: MessageFacts, *, calendar: Calendar, now: datetime) -> Hold | None:
    """The first rule that keeps this message back now, or None."""
    return next(_message_holds(facts, calendar, now), None)


def _phone_holds(facts: PhoneFacts, here: Installation, now: datetime) -> Iterator[Hold]:
    if facts.tenant_fault is not None:
        yield Hold("bad_data", facts.tenant_fault, None)
    if here.live and facts.sandbox_only:
        yield Hold("sandbox_only", "its leads are invented; it never sends in live mode", None)
    if facts.provider not in here.providers:
        yield Hold("no_key", f"there is no key for {facts.provider}", None)
    for switch in facts.switches:
        name = f"{switch.scope} {switch.key}".strip()
        yield Hold("switched_off", f"the {name} switch is off: {switch.reason}", None)
    if not facts.tenant_active:
        yield Hold("tenant_paused", "the tenant is paused", None)
    if not facts.enabled:
        yield Hold("phone_disabled", f"{facts.phone_id} is disabled", None)
    if facts.status != "ACTIVE":
        why = f": {facts.status_reason}" if facts.status_reason else ""
        yield Hold("phone_not_active", f"{facts.phone_id} is {facts.status}{why}", None)
    for breaker in facts.breakers:
        until = breaker.holds_until(now)
        if until is not None:
            yield Hold("breaker_open", _trouble(breaker), until)
    if not facts.calendar.is_open(now):
        opening = facts.calendar.next_open(now)
        yield Hold("outside_hours", f"closed; {_hours(facts.calendar)}", opening)
    if facts.next_send_at is not None and now < facts.next_send_at:
        left = (facts.next_send_at - now).total_seconds()
        yield Hold(
            "pacing", f"{left:.0f} s left of the gap after the last send", facts.next_send_at
        )


def _message_holds(facts: MessageFacts, calendar: Calendar, now: datetime) -> Iterator[Hold]:
    if facts.suppressed or facts.opted_out:
        yield Hold("opted_out", "this person asked not to be contacted", None, "cancel")
    if facts.bad_data is not None:
        yield Hold("bad_data", facts.bad_data, now + HUMAN_RECHECK, "defer")
    if facts.automatic and facts.stage not in AUTOMATED:
        yield Hold("conversation", f"the lead is in {facts.stage}", None, "cancel")
    if facts.automatic and facts.held_by is not None:
        yield Hold("human_takeover", f"{facts.held_by} talks to the lead", None, "cancel")
    if facts.automatic and facts.in_conversation:
        yield Hold("conversation", "the person spoke with one of us", None, "cancel")
    if facts.unheard:
        detail = "the lead wrote something that was not read yet"
        yield Hold("unheard_reply", detail, now + UNHEARD_RECHECK, "defer")
    if facts.not_after is not None and now > facts.not_after:
        then = local(facts.not_after, calendar.time_zone, seconds=False)
        yield Hold("expired", f"too late: it was due before {then}", None, "cancel")
    if facts.basis is None or facts.basis not in facts.allowed_bases:
        need = " or ".join(sorted(facts.allowed_bases)) or "a basis no policy allows"
        have = facts.basis or "none"
        detail = f"has {have}, the channel needs {need}"
        yield Hold("no_lawful_basis", detail, now + BASIS_RECHECK, "defer")
    if facts.template_fault is not None:
        yield Hold("template_broken", facts.template_fault, now + HUMAN_RECHECK, "defer")
    if not facts.window_open and not facts.has_approved_form:
        detail = "it did not write in the last day, and this text has no approved form"
        yield Hold("window_closed", detail, now + WINDOW_RECHECK, "defer")
    if not facts.sequence_active:
        yield Hold("sequence_paused", "its sequence is paused", now + HUMAN_RECHECK, "defer")
    if facts.automatic and facts.requires_human_review:
        why = f": {facts.review_reason}" if facts.review_reason else ""
        yield Hold("human_review", f"a person must look first{why}", now + HUMAN_RECHECK, "defer")
    for whom, pressure in (("person", facts.person), ("company", facts.company)):
        if pressure.count >= pressure.limit:
            until = (pressure.oldest_at or now) + PRESSURE_WINDOW
            detail = f"{pressure.count} of {pressure.limit} messages this week to the {whom}"
            yield Hold(f"{whom}_pressure", detail, calendar.next_open(until), "defer")
    if facts.standing is not None:
        yield from _quota_holds(facts.standing, calendar, now)


def _quota_holds(standing: Standing, calendar: Calendar, now: datetime) -> Iterator[Hold]:
    if not standing.allowed:
        detail = f"{standing.used} of {standing.limit} new contacts today"
        yield Hold("quota", detail, calendar.next_working_day(now), "defer")
    elif now >= standing.resets_at - DAY_END_MARGIN:
        minutes = DAY_END_MARGIN // timedelta(minutes=1)
        detail = f"no new contact in the last {minutes} minutes of the day"
        yield Hold("day_ends", detail, calendar.next_open(standing.resets_at), "defer")


def _trouble(breaker: Breaker) -> str:
    code = f", the last was {breaker.last_code}" if breaker.last_code else ""
    return f"{breaker.failures} troubles in a row with {breaker.scope} {breaker.key}{code}"


def _hours(calendar: Calendar) -> str:
    span = "-".join(f"{at // 60:02d}:{at % 60:02d}" for at in (calendar.opens, calendar.closes))
    days = "".join(str(day) for day in sorted(calendar.working_days))
    return f"open {span} {calendar.time_zone} on days {days}"
