"""What holds a phone or a message: which rule is named first, its numbers, and when it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cerniq_pipeline.domain.calendar import Calendar
from cerniq_pipeline.domain.holds import (
    Hold,
    Installation,
    MessageFacts,
    PhoneFacts,
    Pressure,
    Switch,
    hold_on_message,
    hold_on_phone,
)
from cerniq_pipeline.domain.leads import AUTOMATED, LawfulBasis, Stage
from cerniq_pipeline.domain.quotas import Standing

NOON = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)  # Wednesday 12:00 in Bucharest
NIGHT = datetime(2026, 11, 18, 20, 0, tzinfo=UTC)
TOMORROW_NINE = datetime(2026, 11, 19, 7, 0, tzinfo=UTC)
MIDNIGHT = datetime(2026, 11, 18, 22, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
OFFICE = Calendar()
AROUND_THE_CLOCK = Calendar(
    opens=0, closes=24 * 60, working_days=frozenset(range(1, 8)), country=None
)

PHONE = PhoneFacts(
    phone_id="acme-01",
    status="ACTIVE",
    status_reason=None,
    enabled=True,
    tenant_active=True,
    sandbox_only=False,
    switches=(),
    calendar=OFFICE,
    next_send_at=None,
)
MESSAGE = MessageFacts(
    automatic=True,
    stage=Stage.COLD,
    opted_out=False,
    suppressed=False,
    requires_human_review=False,
    held_by=None,
    in_conversation=False,
    unheard=False,
    basis=LawfulBasis.CONSENT,
    allowed_bases=frozenset({"consent"}),
    sequence_active=True,
    not_after=None,
    person=Pressure(count=0, limit=3, oldest_at=None),
    company=Pressure(count=0, limit=6, oldest_at=None),
    standing=Standing(used=0, limit=200, resets_at=MIDNIGHT),
)


def on_phone(facts: PhoneFacts, now: datetime = NOON, *, live: bool = False) -> Hold | None:
    here = Installation(live=live, providers={"timelinesai"})
    return hold_on_phone(facts, here=here, now=now)


def on_message(
    facts: MessageFacts, now: datetime = NOON, calendar: Calendar = OFFICE
) -> Hold | None:
    return hold_on_message(facts, calendar=calendar, now=now)


# ── A phone ───────────────────────────────────────────────────────────────────────────────────


def test_nothing_holds_a_healthy_phone_in_an_open_hour():
    assert on_phone(PHONE) is None
    assert on_phone(PHONE, live=True) is None


PHONE_RULES: list[tuple[str, dict[str, Any]]] = [
    ("sandbox_only", {"sandbox_only": True}),
    ("switched_off", {"switches": [Switch("global", "", "incident")]}),
    ("tenant_paused", {"tenant_active": False}),
    ("phone_disabled", {"enabled": False}),
    ("phone_not_active", {"status": "BANNED"}),
    ("outside_hours", {}),
    ("pacing", {"next_send_at": NIGHT + HOUR}),
]


@pytest.mark.parametrize("first", range(len(PHONE_RULES)))
def test_the_first_rule_that_binds_a_phone_is_the_one_that_is_named(first: int):
    facts = PHONE
    for _, change in PHONE_RULES[first:]:
        facts = replace(facts, **change)
    closed = PHONE_RULES[first][0] != "pacing"
    now = NIGHT if closed else NOON
    hold = on_phone(facts, now, live=True)
    assert hold is not None
    assert hold.rule == PHONE_RULES[first][0]
    assert hold.then == "wait"  # a silent phone keeps its messages


@pytest.mark.parametrize(
    ("facts", "now", "detail", "until"),
    [
        (replace(PHONE, switches=[Switch("global", "", "incident")]), NOON, "global switch", None),
        (replace(PHONE, switches=[Switch("tenant", "acme", "unpaid")]), NOON, "unpaid", None),
        (replace(PHONE, switches=[Switch("channel", "WHATSAPP", "x")]), NOON,
         "channel WHATSAPP", None),
        (replace(PHONE, switches=[Switch("phone", "acme-01", "x")]), NOON, "phone acme-01", None),
        (replace(PHONE, tenant_active=False), NOON, "paused", None),
        (replace(PHONE, enabled=False), NOON, "acme-01 is disabled", None),
        (replace(PHONE, status="OFFLINE", status_reason="401"), NOON, "OFFLINE: 401", None),
        (PHONE, NIGHT, "open 09:00-18:00 Europe/Bucharest on days 12345", TOMORROW_NINE),
        (replace(PHONE, next_send_at=NOON + timedelta(seconds=42)), NOON, "42 s left",
         NOON + timedelta(seconds=42)),
    ],
)  # fmt: skip
def test_a_hold_on_a_phone_has_its_numbers_and_its_end(
    facts: PhoneFacts, now: datetime, detail: str, until: datetime | None
):
    hold = on_phone(facts, now)
    assert hold is not None
    assert detail in hold.detail
    assert hold.until == until


def test_the_end_of_the_gap_itself_is_free():
    facts = replace(PHONE, next_send_at=NOON)
    assert on_phone(facts, NOON) is None
    assert on_phone(facts, NOON - timedelta(microseconds=1)) is not None


def test_invented_leads_are_held_in_live_mode_only():
    facts = replace(PHONE, sandbox_only=True)
    assert on_phone(facts, live=False) is None
    hold = on_phone(facts, live=True)
    assert hold is not None
    assert hold.until is None


def test_a_phone_that_never_opens_is_held_without_an_end():
    never = replace(PHONE, calendar=Calendar(working_days=frozenset()))
    hold = on_phone(never)
    assert hold is not None
    assert (hold.rule, hold.until) == ("outside_hours", None)


# ── A message ─────────────────────────────────────────────────────────────────────────────────


def test_nothing_holds_a_lawful_message_to_a_willing_lead():
    assert on_message(MESSAGE) is None


MESSAGE_RULES: list[tuple[str, dict[str, Any]]] = [
    ("opted_out", {"opted_out": True}),
    ("conversation", {"stage": Stage.WARM_REPLY}),
    ("human_takeover", {"held_by": "handset"}),
    ("unheard_reply", {"unheard": True}),
    ("expired", {"not_after": NOON - HOUR}),
    ("no_lawful_basis", {"basis": None}),
    ("template_broken", {"template_fault": "line 1: this group is never closed"}),
    ("sequence_paused", {"sequence_active": False}),
    ("human_review", {"requires_human_review": True}),
    ("person_pressure", {"person": Pressure(3, 3, NOON - HOUR)}),
    ("company_pressure", {"company": Pressure(6, 6, NOON - HOUR)}),
    ("quota", {"standing": Standing(used=200, limit=200, resets_at=MIDNIGHT)}),
]


@pytest.mark.parametrize("first", range(len(MESSAGE_RULES)))
def test_the_first_rule_that_binds_a_message_is_the_one_that_is_named(first: int):
    facts = MESSAGE
    for _, change in MESSAGE_RULES[first:]:
        facts = replace(facts, **change)
    hold = on_message(facts)
    assert hold is not None
    assert hold.rule == MESSAGE_RULES[first][0]


@pytest.mark.parametrize(
    ("change", "then", "until", "detail"),
    [
        ({"opted_out": True}, "cancel", None, "asked not to be contacted"),
        ({"suppressed": True}, "cancel", None, "asked not to be contacted"),
        ({"stage": Stage.NEGOTIATION}, "cancel", None, "NEGOTIATION"),
        ({"held_by": "handset"}, "cancel", None, "handset talks to the lead"),
        ({"in_conversation": True}, "cancel", None, "spoke with one of us"),
        # Somebody reads it within seconds; then this message is cancelled or goes.
        ({"unheard": True}, "defer", NOON + timedelta(seconds=30), "was not read yet"),
        ({"not_after": NOON - timedelta(seconds=1)}, "cancel", None, "2026-11-18 11:59+02:00"),
        # A basis can be found: looked at again every day.
        ({"basis": None}, "defer", NOON + DAY, "has none, the channel needs consent"),
        ({"basis": LawfulBasis.LEGITIMATE_INTEREST}, "defer", NOON + DAY, "legitimate_interest"),
        ({"allowed_bases": frozenset()}, "defer", NOON + DAY, "no policy allows"),
        ({"template_fault": "line 1: this group is never closed"}, "defer", NOON + HOUR,
         "line 1: this group is never closed"),
        ({"sequence_active": False}, "defer", NOON + HOUR, "paused"),
        ({"requires_human_review": True}, "defer", NOON + HOUR, "a person must look"),
        # The oldest of three messages leaves the week on Thursday at 12:30 in Bucharest.
        ({"person": Pressure(3, 3, NOON + timedelta(days=1, minutes=30) - WEEK)}, "defer",
         NOON + timedelta(days=1, minutes=30), "3 of 3 messages this week to the person"),
        # The oldest of six leaves on a Saturday: then it is Monday at nine.
        ({"company": Pressure(6, 6, NOON + timedelta(days=3) - WEEK)}, "defer",
         datetime(2026, 11, 23, 7, tzinfo=UTC), "6 of 6 messages this week to the company"),
        ({"standing": Standing(200, 200, MIDNIGHT)}, "defer", TOMORROW_NINE,
         "200 of 200 new contacts today"),
        ({"standing": Standing(250, 200, MIDNIGHT)}, "defer", TOMORROW_NINE, "250 of 200"),
    ],
)  # fmt: skip
def test_a_hold_on_a_message_says_what_becomes_of_it(
    change: dict[str, Any], then: str, until: datetime | None, detail: str
):
    hold = on_message(replace(MESSAGE, **change))
    assert hold is not None
    assert (hold.then, hold.until) == (then, until)
    assert detail in hold.detail


@pytest.mark.parametrize(
    "change",
    [
        {"not_after": NOON},  # the boundary itself is in time
        {"person": Pressure(2, 3, NOON)},
        {"company": Pressure(5, 6, NOON)},
        {"standing": Standing(199, 200, MIDNIGHT)},
        {"standing": None},  # a follow-up costs nothing
    ],
)
def test_the_boundary_itself_is_free(change: dict[str, Any]):
    assert on_message(replace(MESSAGE, **change)) is None


@pytest.mark.parametrize("stage", list(Stage))
def test_only_the_automated_stages_are_written_to(stage: Stage):
    hold = on_message(replace(MESSAGE, stage=stage))
    assert (hold is None) is (stage in AUTOMATED)


@pytest.mark.parametrize(
    ("before_midnight", "rule"),
    [
        (timedelta(minutes=5, microseconds=1), None),
        (timedelta(minutes=5), "day_ends"),
        (timedelta(microseconds=1), "day_ends"),
    ],
)
def test_the_last_five_minutes_of_the_day_open_no_conversation(
    before_midnight: timedelta, rule: str | None
):
    now = MIDNIGHT - before_midnight
    hold = on_message(MESSAGE, now, AROUND_THE_CLOCK)
    assert (hold.rule if hold else None) == rule
    if hold:
        assert (hold.then, hold.until) == ("defer", MIDNIGHT)
    followup = replace(MESSAGE, standing=None)
    assert on_message(followup, now, AROUND_THE_CLOCK) is None


def test_a_spent_quota_at_the_end_of_the_day_waits_for_the_next_day():
    facts = replace(MESSAGE, standing=Standing(200, 200, MIDNIGHT))
    hold = on_message(facts, MIDNIGHT - timedelta(minutes=1), AROUND_THE_CLOCK)
    assert hold is not None
    assert (hold.rule, hold.until) == ("quota", MIDNIGHT)
