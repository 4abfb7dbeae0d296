"""Channel, phone and lane: the decisions of a dispatch, as tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cerniq_pipeline.domain.leads import LawfulBasis, Stage
from cerniq_pipeline.domain.selection import (
    Allocation,
    Desk,
    Failover,
    Group,
    Lane,
    Medium,
    Preference,
    Profile,
    Skip,
    Verdict,
    allocate,
    choose_channel,
    deal,
    judge,
    lost,
    route,
)

BOTH = ("WHATSAPP", "EMAIL")
POLICY = {"WHATSAPP": {"consent"}, "EMAIL": {"consent", "legitimate_interest"}}
WHATSAPP, COLD_MAIL, WARM_MAIL = Medium.WHATSAPP, Medium.EMAIL_COLD, Medium.EMAIL_WARM

COLD = Profile(
    stage=Stage.COLD,
    has_phone=True,
    has_email=True,
    whatsapp_opted_out=False,
    email_opted_out=False,
    last_channel=None,
    basis=LawfulBasis.CONSENT,
)
LANDLINE = replace(COLD, has_phone=False, has_landline=True)


# ── The channel ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("profile", "scores", "best", "fallback"),
    [
        (COLD, {WHATSAPP: 100, COLD_MAIL: 70}, WHATSAPP, COLD_MAIL),
        (replace(COLD, stage=Stage.CONTACTED_WA), {WHATSAPP: 100, WARM_MAIL: 80},
         WHATSAPP, WARM_MAIL),
        (replace(COLD, last_channel="WHATSAPP"), {WHATSAPP: 120, COLD_MAIL: 70},
         WHATSAPP, COLD_MAIL),
        (replace(COLD, last_channel="EMAIL"), {WHATSAPP: 100, COLD_MAIL: 90},
         WHATSAPP, COLD_MAIL),
        # A tie goes to WhatsApp.
        (replace(COLD, stage=Stage.CONTACTED_EMAIL, last_channel="EMAIL"),
         {WHATSAPP: 100, WARM_MAIL: 100}, WHATSAPP, WARM_MAIL),
        (replace(COLD, has_phone=False), {COLD_MAIL: 70}, COLD_MAIL, None),
        (replace(COLD, has_phone=False, last_channel="EMAIL"), {COLD_MAIL: 90}, COLD_MAIL, None),
        (replace(COLD, has_email=False), {WHATSAPP: 100}, WHATSAPP, None),
    ],
)  # fmt: skip
def test_the_best_score_is_the_channel_and_the_next_one_the_fallback(
    profile: Profile, scores: dict[Medium, int], best: Medium, fallback: Medium | None
):
    choice = choose_channel(profile, preference="AUTO", enabled=BOTH, basis_policy=POLICY)
    assert choice.scores == scores
    assert (choice.medium, choice.skip, choice.fallback) == (best, None, fallback)


@pytest.mark.parametrize("preference", ["AUTO", "WHATSAPP", "EMAIL"])
@pytest.mark.parametrize(
    "opted_out",
    [{"whatsapp_opted_out": True}, {"email_opted_out": True}],
    ids=["on whatsapp", "by mail"],
)
def test_an_opt_out_on_any_channel_wins_over_every_preference(
    preference: Preference, opted_out: dict[str, bool]
):
    choice = choose_channel(
        replace(COLD, **opted_out), preference=preference, enabled=BOTH, basis_policy=POLICY
    )
    assert (choice.medium, choice.skip, choice.fallback) == (None, Skip.OPTED_OUT, None)


@pytest.mark.parametrize(
    ("preference", "profile", "medium", "skip"),
    [
        ("WHATSAPP", COLD, WHATSAPP, None),
        ("EMAIL", COLD, COLD_MAIL, None),
        ("WHATSAPP", replace(COLD, has_phone=False), None, Skip.NO_CHANNEL),
        ("EMAIL", replace(COLD, has_email=False), None, Skip.NO_CHANNEL),
        # A preference never lifts a refusal: legitimate interest does not suffice for WhatsApp.
        ("WHATSAPP", replace(COLD, basis=LawfulBasis.LEGITIMATE_INTEREST), None,
         Skip.NO_LAWFUL_BASIS),
    ],
)  # fmt: skip
def test_a_preference_narrows_the_choice_and_offers_no_fallback(
    preference: Preference, profile: Profile, medium: Medium | None, skip: Skip | None
):
    choice = choose_channel(profile, preference=preference, enabled=BOTH, basis_policy=POLICY)
    assert (choice.medium, choice.skip, choice.fallback) == (medium, skip, None)


@pytest.mark.parametrize(
    ("basis", "medium", "skip"),
    [
        (LawfulBasis.CONSENT, WHATSAPP, None),
        # Not enough for WhatsApp, enough for mail: the lower score is taken.
        (LawfulBasis.LEGITIMATE_INTEREST, COLD_MAIL, None),
        (LawfulBasis.EXISTING_CUSTOMER, None, Skip.NO_LAWFUL_BASIS),
        (None, None, Skip.NO_LAWFUL_BASIS),
    ],
)
def test_each_channel_needs_a_basis_that_the_tenants_policy_accepts(
    basis: LawfulBasis | None, medium: Medium | None, skip: Skip | None
):
    choice = choose_channel(
        replace(COLD, basis=basis), preference="AUTO", enabled=BOTH, basis_policy=POLICY
    )
    assert (choice.medium, choice.skip) == (medium, skip)


@pytest.mark.parametrize(
    ("enabled", "profile", "medium", "skip"),
    [
        (("WHATSAPP",), COLD, WHATSAPP, None),
        (("EMAIL",), COLD, COLD_MAIL, None),
        ((), COLD, None, Skip.NO_CHANNEL),
        (BOTH, replace(COLD, has_phone=False, has_email=False), None, Skip.NO_CHANNEL),
        (("EMAIL",), replace(COLD, has_email=False), None, Skip.NO_CHANNEL),
        # A landline is no way to WhatsApp, and that is said where WhatsApp was possible.
        (BOTH, replace(LANDLINE, has_email=False), None, Skip.LANDLINE),
        (("WHATSAPP",), LANDLINE, None, Skip.LANDLINE),
        (BOTH, LANDLINE, COLD_MAIL, None),
        (("EMAIL",), replace(LANDLINE, has_email=False), None, Skip.NO_CHANNEL),
    ],
)
def test_a_lead_without_a_reachable_enabled_channel_is_passed_over(
    enabled: tuple[str, ...], profile: Profile, medium: Medium | None, skip: Skip | None
):
    choice = choose_channel(profile, preference="AUTO", enabled=enabled, basis_policy=POLICY)
    assert (choice.medium, choice.skip) == (medium, skip)


def test_a_channel_without_a_policy_needs_a_basis_that_nobody_has():
    choice = choose_channel(COLD, preference="AUTO", enabled=BOTH, basis_policy={})
    assert choice.skip is Skip.NO_LAWFUL_BASIS


@pytest.mark.parametrize(
    ("written", "profile"),
    [
        ("COLD|t|t|f|f||consent", COLD),
        ("CONTACTED_WA|t|f|f|t|WHATSAPP|",
         replace(COLD, stage=Stage.CONTACTED_WA, has_email=False, email_opted_out=True,
                 last_channel="WHATSAPP", basis=None)),
    ],
)  # fmt: skip
def test_a_profile_is_read_as_it_was_grouped(written: str, profile: Profile):
    assert Profile.parse(written) == profile


# ── A group of leads ──────────────────────────────────────────────────────────────────────────

STEPS = {1: ("WHATSAPP", 11), 2: ("EMAIL", 12)}
COLD_TEXT = "COLD|t|t|f|f||consent"


@pytest.mark.parametrize(
    ("profile", "step", "steps", "active", "medium", "template_id", "skip"),
    [
        (COLD_TEXT, 1, STEPS, True, WHATSAPP, 11, None),
        (COLD_TEXT, 1, None, True, None, None, Skip.NO_SEQUENCE),
        (COLD_TEXT, 3, STEPS, True, None, None, Skip.SEQUENCE_FINISHED),
        (COLD_TEXT, 1, {}, True, None, None, Skip.SEQUENCE_FINISHED),
        (COLD_TEXT, 1, STEPS, False, None, None, Skip.SEQUENCE_PAUSED),
        # The step wants mail, the lead's best channel is WhatsApp.
        (COLD_TEXT, 2, STEPS, True, None, None, Skip.NO_CHANNEL),
        ("COLD|f|t|f|f||consent", 2, STEPS, True, COLD_MAIL, 12, None),
        ("COLD|t|t|t|f||consent", 1, STEPS, True, None, None, Skip.OPTED_OUT),
        ("COLD|t|t|f|f||", 1, STEPS, True, None, None, Skip.NO_LAWFUL_BASIS),
        ("COLD|f|f|f|f||consent", 1, STEPS, True, None, None, Skip.NO_CHANNEL),
        ("COLD|l|f|f|f||consent", 1, STEPS, True, None, None, Skip.LANDLINE),
        # Mail would reach it, but its step is for WhatsApp.
        ("COLD|l|t|f|f||consent", 1, STEPS, True, None, None, Skip.LANDLINE),
    ],
)
def test_a_group_of_leads_gets_the_text_of_its_step_or_a_reason(
    profile: str,
    step: int,
    steps: dict[int, tuple[str, int]] | None,
    active: bool,
    medium: Medium | None,
    template_id: int | None,
    skip: Skip | None,
):
    group = Group(profile, sequence_id=None if steps is None else 7, step=step)
    verdict = judge(
        group,
        steps,
        active=active,
        preference="AUTO",
        enabled=BOTH,
        basis_policy=POLICY,
        sendable=BOTH,
    )
    assert verdict == Verdict(group, medium, template_id, skip)


def test_a_step_on_a_channel_that_cannot_send_waits_and_an_opt_out_stays_one():
    for profile, skip in (
        ("COLD|f|t|f|f||consent", Skip.CHANNEL_UNAVAILABLE),
        ("COLD|f|t|f|t||consent", Skip.OPTED_OUT),
    ):
        group = Group(profile, sequence_id=7, step=2)
        verdict = judge(
            group, STEPS, active=True, preference="AUTO", enabled=BOTH, basis_policy=POLICY
        )
        assert verdict.skip == skip


@pytest.mark.parametrize(
    ("profile", "broken", "skip"),
    [
        (COLD_TEXT, {(12, 1), (11, 2)}, None),  # the same text may do at another step
        (COLD_TEXT, {(11, 1)}, Skip.TEMPLATE_BROKEN),
        ("COLD|t|t|t|f||consent", {(11, 1)}, Skip.OPTED_OUT),  # their own reason comes first
    ],
)
def test_a_text_that_nobody_may_get_holds_its_whole_group(
    profile: str, broken: set[tuple[int, int]], skip: Skip | None
):
    verdict = judge(
        Group(profile, 7, 1),
        STEPS,
        active=True,
        preference="AUTO",
        enabled=BOTH,
        basis_policy=POLICY,
        broken=broken,
    )
    assert verdict.skip == skip
    assert verdict.template_id == (None if skip else 11)


# ── The phone ─────────────────────────────────────────────────────────────────────────────────


def a_phone(phone_id: str, *, used: int = 0, limit: int = 200, active: bool = True) -> Desk:
    return Desk(phone_id, active=active, used=used, limit=limit)


@pytest.mark.parametrize(
    ("phone", "remaining"),
    [
        (a_phone("a", used=150), 50),
        (a_phone("a", used=200), 0),
        (a_phone("a", used=230), 0),
        (a_phone("a", active=False), 0),  # room on a phone that is not active is no room
    ],
)
def test_the_room_of_a_phone(phone: Desk, remaining: int):
    assert phone.remaining == remaining


@pytest.mark.parametrize(
    ("sticky", "new_contact", "phones", "expected"),
    [
        # The phone that the lead knows, also when another one has more room.
        ("b", False, [a_phone("a"), a_phone("b", used=199)], ("b", "STICKY", 199, 1)),
        ("b", True, [a_phone("a"), a_phone("b", used=199)], ("b", "STICKY", 199, 1)),
        # A follow-up costs nothing, so a spent quota does not hold it.
        ("b", False, [a_phone("a"), a_phone("b", used=200)], ("b", "STICKY", 200, 0)),
        # Quota binds the phone that a lead knows too.
        ("b", True, [a_phone("a"), a_phone("b", used=200)], (None, "NONE", 200, 0)),
        # Nobody else writes for a phone that is not active.
        ("b", False, [a_phone("a"), a_phone("b", active=False)], (None, "NONE", 0, 0)),
        ("b", True, [a_phone("a"), a_phone("b", active=False)], (None, "NONE", 0, 0)),
        ("gone", False, [a_phone("a")], (None, "NONE", 0, 0)),
        # A new lead goes to the phone with most room, on a tie to the first.
        (None, True, [a_phone("a", used=10), a_phone("b", used=9)], ("b", "NEW", 9, 191)),
        (None, True, [a_phone("a", used=9), a_phone("b", used=9)], ("a", "NEW", 9, 191)),
        (None, True, [a_phone("a", limit=20), a_phone("b", used=150)], ("b", "NEW", 150, 50)),
        (None, True, [a_phone("a", active=False), a_phone("b", used=199)], ("b", "NEW", 199, 1)),
        (None, True, [a_phone("a", used=200), a_phone("b", active=False)], (None, "NONE", 0, 0)),
        (None, True, [], (None, "NONE", 0, 0)),
    ],
)
def test_the_allocator_prefers_the_phone_a_lead_knows_then_the_one_with_most_room(
    sticky: str | None, new_contact: bool, phones: list[Desk], expected: tuple[object, ...]
):
    allocation = allocate(sticky, phones, new_contact=new_contact)
    assert (
        allocation.phone_id,
        allocation.kind,
        allocation.used,
        allocation.remaining,
    ) == expected
    assert allocation.reason


@pytest.mark.parametrize(
    ("sticky", "phones", "words"),
    [
        ("b", [a_phone("b", active=False)], "b is not active"),
        ("b", [a_phone("b", used=200)], "b has no quota left"),
        (None, [a_phone("a", used=200)], "no phone has quota left"),
        (None, [a_phone("a", used=150)], "50 of 200"),
    ],
)
def test_the_allocator_says_why(sticky: str | None, phones: list[Desk], words: str):
    allocation: Allocation = allocate(sticky, phones, new_contact=True)
    assert words in allocation.reason


NOW = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
GRACE = timedelta(hours=1)


@pytest.mark.parametrize(
    ("status", "since", "enabled", "expected"),
    [
        ("ACTIVE", NOW - 2 * GRACE, True, False),
        ("ACTIVE", NOW - 2 * GRACE, False, True),
        ("BANNED", NOW, True, True),  # at once
        ("BANNED", None, True, True),
        ("OFFLINE", NOW, True, False),
        ("OFFLINE", NOW - GRACE, True, False),  # the boundary itself still disturbs nobody
        ("OFFLINE", NOW - GRACE - timedelta(seconds=1), True, True),
        ("OFFLINE", None, True, False),  # nobody knows since when
        ("OFFLINE", NOW, False, True),
    ],
)
def test_a_phone_is_given_up_when_it_is_banned_disabled_or_offline_for_long(
    status: str, since: datetime | None, enabled: bool, expected: bool
):
    assert lost(status, since=since, enabled=enabled, now=NOW, grace=GRACE) is expected


@pytest.mark.parametrize(
    ("failover", "lost_phones", "phones", "expected"),
    [
        ("hand_over", ["b"], [a_phone("a", used=10), a_phone("b", active=False)],
         ("a", "FALLBACK", 10, 190)),
        # The one with most room, as for a new lead, and never the lost one itself.
        ("hand_over", ["b"], [a_phone("a", used=10), a_phone("b"), a_phone("c", used=9)],
         ("c", "FALLBACK", 9, 191)),
        # It opens a conversation, so it needs room.
        ("hand_over", ["b"], [a_phone("a", used=200), a_phone("b", active=False)],
         (None, "NONE", 0, 0)),
        ("hand_over", ["b"], [a_phone("b", active=False)], (None, "NONE", 0, 0)),
        # Offline, but not for long enough to be lost.
        ("hand_over", [], [a_phone("a"), a_phone("b", active=False)], (None, "NONE", 0, 0)),
        ("hand_over", ["a"], [a_phone("a", active=False), a_phone("b", used=5)],
         ("b", "STICKY", 5, 195)),
        ("wait", ["b"], [a_phone("a"), a_phone("b", active=False)], (None, "NONE", 0, 0)),
        ("switch_channel", ["b"], [a_phone("a"), a_phone("b", active=False)],
         (None, "NONE", 0, 0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("new_contact", [True, False])
def test_a_lead_of_a_lost_phone_falls_back_to_another_where_the_tenant_hands_over(
    failover: Failover,
    lost_phones: list[str],
    phones: list[Desk],
    expected: tuple[object, ...],
    new_contact: bool,
):
    given = allocate(
        "b", phones, new_contact=new_contact, failover=failover, lost_phones=lost_phones
    )
    assert (given.phone_id, given.kind, given.used, given.remaining) == expected


def test_a_fallback_says_which_phone_is_lost_and_how_much_room_the_other_has():
    phones = [a_phone("a", used=150), a_phone("b", active=False)]
    given = allocate("b", phones, new_contact=False, failover="hand_over", lost_phones=["b"])
    assert given.reason == "its phone b is lost; most room today: 50 of 200"
    none = allocate("b", phones[1:], new_contact=False, failover="hand_over", lost_phones=["b"])
    assert none.reason == "its phone b is lost and no other has quota left today"


@pytest.mark.parametrize(
    ("phones", "count", "expected"),
    [
        # Equal phones take turns.
        ([a_phone("a"), a_phone("b"), a_phone("c")], 7, "a b c a b c a"),
        # The one with more room is used until it is level with the others.
        ([a_phone("a", used=3), a_phone("b", used=1)], 5, "b b a b a"),
        ([a_phone("a", limit=2), a_phone("b", limit=1)], 9, "a a b"),  # shorter: the room is spent
        ([a_phone("a", active=False), a_phone("b", limit=1)], 2, "b"),
        ([a_phone("a", used=200)], 3, ""),
        ([a_phone("a")], 0, ""),
        ([], 5, ""),
    ],
)
def test_new_leads_are_dealt_to_the_phone_with_most_room(
    phones: list[Desk], count: int, expected: str
):
    assert deal(phones, count) == expected.split()


def test_dealing_never_gives_a_phone_more_than_its_room():
    phones = [a_phone(f"p{n:02d}", used=11 * n, limit=200 - 3 * n) for n in range(20)]
    hand = Counter(deal(phones, 10_000))
    assert hand == {phone.phone_id: phone.remaining for phone in phones if phone.remaining}


# ── The lane ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("step", "phone", "expected"),
    [
        (1, a_phone("a"), Lane("a", "initial")),
        (2, a_phone("a"), Lane("a", "followup")),
        (9, a_phone("a"), Lane("a", "followup")),
        (1, a_phone("a", used=200), Skip.QUOTA_EXCEEDED),
        (2, a_phone("a", used=200), Lane("a", "followup")),
        (1, a_phone("a", active=False), Skip.PHONE_NOT_ACTIVE),
        (2, a_phone("a", active=False), Skip.PHONE_NOT_ACTIVE),
        (1, None, Skip.PHONE_NOT_ACTIVE),
    ],
)
def test_a_step_goes_into_its_phones_lane_or_is_refused(
    step: int, phone: Desk | None, expected: Lane | Skip
):
    assert route(step, phone) == expected


def test_phones_whose_numbers_end_alike_never_share_a_lane():
    lanes = {route(1, a_phone(phone_id)) for phone_id in ("cluj-42", "iasi-42", "142", "42")}
    assert len(lanes) == 4
