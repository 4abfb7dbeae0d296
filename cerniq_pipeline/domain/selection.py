"""Who may be contacted now, through what, from where, and why the others wait.

The decisions are made here once per *group* of leads and once per *phone*; `store/selection.py`
lays them over thousands of leads in one statement. So there is one set of rules, in plain Python,
and no loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Literal

from cerniq_pipeline.domain.leads import LawfulBasis, Stage, known_basis

Preference = Literal["AUTO", "WHATSAPP", "EMAIL"]
Failover = Literal["wait", "hand_over", "switch_channel"]
"""What becomes of the leads of a phone that is lost."""

PREVIOUS_CHANNEL_BONUS = 20

SENDABLE = frozenset({"WHATSAPP"})
"""Channels that messages go out on today. A step on another one waits: it is not planned."""


class Medium(StrEnum):
    """A channel as the selector scores it: cold and warm mail differ."""

    WHATSAPP = "WHATSAPP"
    EMAIL_COLD = "EMAIL_COLD"
    EMAIL_WARM = "EMAIL_WARM"

    @property
    def channel(self) -> str:
        """The channel that carries it: the name in settings, policies and the outbox."""
        return "WHATSAPP" if self is Medium.WHATSAPP else "EMAIL"


class Skip(StrEnum):
    """Why a lead is not planned now."""

    OUTSIDE_HOURS = "outside_hours"
    SWITCHED_OFF = "switched_off"
    OPTED_OUT = "opted_out"
    NO_LAWFUL_BASIS = "no_lawful_basis"
    NO_CHANNEL = "no_channel"
    LANDLINE = "landline"
    QUOTA_EXCEEDED = "quota_exceeded"
    PHONE_NOT_ACTIVE = "phone_not_active"
    SEQUENCE_FINISHED = "sequence_finished"
    SEQUENCE_PAUSED = "sequence_paused"
    NO_SEQUENCE = "no_sequence"
    TEMPLATE_BROKEN = "template_broken"
    ALREADY_PLANNED = "already_planned"
    STEP_REPEATED = "step_repeated"
    CHANNEL_UNAVAILABLE = "channel_unavailable"


@dataclass(frozen=True)
class Profile:
    """All that channel choice depends on; thousands of leads share a few dozen profiles."""

    stage: Stage
    has_phone: bool
    has_email: bool
    whatsapp_opted_out: bool
    email_opted_out: bool
    last_channel: str | None
    basis: LawfulBasis | None
    has_landline: bool = False
    """Whether its number is one that has no WhatsApp; then it counts as having no phone."""

    @classmethod
    def parse(cls, text: str) -> Profile:
        """Read the form in which `store/selection.py` groups leads."""
        stage, phone, email, wa_out, email_out, last, basis = text.split("|")
        return cls(
            stage=Stage(stage),
            has_phone=phone == "t",
            has_email=email == "t",
            whatsapp_opted_out=wa_out == "t",
            email_opted_out=email_out == "t",
            last_channel=last or None,
            basis=known_basis(basis),
            has_landline=phone == "l",
        )

    @staticmethod
    def with_landline(text: str) -> str:
        """The same profile of somebody whose number has no WhatsApp, if it counted as one."""
        stage, phone, *rest = text.split("|")
        return "|".join((stage, "l" if phone == "t" else phone, *rest))

    @staticmethod
    def stopped(text: str) -> str:
        """The same profile of somebody who asked us to stop, whatever their lead's row says."""
        stage, phone, email, _, _, last, basis = text.split("|")
        return "|".join((stage, phone, email, "t", "t", last, basis))


@dataclass(frozen=True)
class Choice:
    """The channel for a lead, or why there is none, with the scores that led there."""

    medium: Medium | None
    skip: Skip | None
    fallback: Medium | None
    scores: Mapping[Medium, int] = field(default_factory=dict)


def choose_channel(
    profile: Profile,
    *,
    preference: Preference,
    enabled: Collection[str],
    basis_policy: Mapping[str, Collection[str]],
) -> Choice:
    """Score every channel and take the best.

    An opt-out on one channel counts for all of them: the person said stop, not the telephone.
    A preference narrows the choice and never lifts a refusal.
    """
    if profile.whatsapp_opted_out or profile.email_opted_out:
        return Choice(None, Skip.OPTED_OUT, None)
    mail = Medium.EMAIL_COLD if profile.stage is Stage.COLD else Medium.EMAIL_WARM
    reachable: dict[Medium, int] = {}
    if profile.has_phone:
        reachable[Medium.WHATSAPP] = 100
    if profile.has_email:
        reachable[mail] = 70 if mail is Medium.EMAIL_COLD else 80
    wanted = {
        medium: score + (PREVIOUS_CHANNEL_BONUS if medium.channel == profile.last_channel else 0)
        for medium, score in reachable.items()
        if medium.channel in enabled and preference in ("AUTO", medium.channel)
    }
    scores = {
        medium: score
        for medium, score in wanted.items()
        if profile.basis is not None and profile.basis in basis_policy.get(medium.channel, ())
    }
    if wanted and not scores:
        return Choice(None, Skip.NO_LAWFUL_BASIS, None)
    if not scores:
        asks_for_whatsapp = "WHATSAPP" in enabled and preference in ("AUTO", "WHATSAPP")
        return Choice(None, _no_way(profile, to_whatsapp=asks_for_whatsapp), None)
    best, *others = sorted(scores, key=lambda medium: -scores[medium])
    return Choice(best, None, others[0] if others else None, scores)


def _no_way(profile: Profile, *, to_whatsapp: bool) -> Skip:
    """Why nothing reaches a lead: a number that is there but has no WhatsApp is said to be one."""
    return Skip.LANDLINE if to_whatsapp and profile.has_landline else Skip.NO_CHANNEL


@dataclass(frozen=True)
class Group:
    """Leads that are decided together: one profile, at one step of one sequence."""

    profile: str
    sequence_id: int | None
    step: int


@dataclass(frozen=True)
class Verdict:
    """What happens to a group: a medium and the text for it, or why not."""

    group: Group
    medium: Medium | None
    template_id: int | None
    skip: Skip | None


def judge(
    group: Group,
    steps: Mapping[int, tuple[str, int]] | None,
    *,
    active: bool,
    preference: Preference,
    enabled: Collection[str],
    basis_policy: Mapping[str, Collection[str]],
    broken: Collection[tuple[int, int]] = (),
    sendable: Collection[str] = SENDABLE,
) -> Verdict:
    """Decide for one group; `steps` are its sequence's: step → (channel, template).

    A (template, step) in `broken` cannot be used for anybody: its leads wait until it is mended,
    instead of failing one by one.
    """
    if steps is None:
        return Verdict(group, None, None, Skip.NO_SEQUENCE)
    if group.step not in steps:
        return Verdict(group, None, None, Skip.SEQUENCE_FINISHED)
    if not active:
        return Verdict(group, None, None, Skip.SEQUENCE_PAUSED)
    profile = Profile.parse(group.profile)
    choice = choose_channel(
        profile,
        preference=preference,
        enabled=enabled,
        basis_policy=basis_policy,
    )
    channel, template_id = steps[group.step]
    if channel not in sendable and choice.skip is not Skip.OPTED_OUT:
        return Verdict(group, None, None, Skip.CHANNEL_UNAVAILABLE)
    if choice.medium is not None and choice.medium.channel != channel:
        return Verdict(group, None, None, _no_way(profile, to_whatsapp=channel == "WHATSAPP"))
    if choice.medium is not None and (template_id, group.step) in broken:
        return Verdict(group, None, None, Skip.TEMPLATE_BROKEN)
    return Verdict(group, choice.medium, template_id if choice.medium else None, choice.skip)


@dataclass(frozen=True)
class Desk:
    """A phone as the allocator sees it."""

    phone_id: str
    active: bool
    used: int
    limit: int

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used) if self.active else 0


@dataclass(frozen=True)
class Allocation:
    """The phone that will write to a lead, and why this one."""

    phone_id: str | None
    kind: Literal["STICKY", "NEW", "FALLBACK", "NONE"]
    used: int
    remaining: int
    reason: str


def lost(
    status: str, *, since: datetime | None, enabled: bool, now: datetime, grace: timedelta
) -> bool:
    """Whether a phone is given up, so that its leads follow the tenant's rule.

    An outage shorter than the grace time disturbs nobody; when nobody knows since when a phone is
    offline, it is not given up.
    """
    if status == "BANNED" or not enabled:
        return True
    return status == "OFFLINE" and since is not None and now - since > grace


def allocate(
    sticky: str | None,
    desks: Sequence[Desk],
    *,
    new_contact: bool,
    failover: Failover = "wait",
    lost_phones: Collection[str] = (),
) -> Allocation:
    """Choose the phone for one lead: the one it knows, else the one with most room today.

    A lead stays with the phone it was given: when that one is not active it waits, until the phone
    is lost and the tenant hands its leads over. A known phone with no room left also waits, because
    quota binds it too.
    """
    if sticky is not None:
        desk = next((desk for desk in desks if desk.phone_id == sticky), None)
        if failover == "hand_over" and sticky in lost_phones:
            return _fall_back(sticky, desks)
        if desk is None or not desk.active:
            return Allocation(None, "NONE", 0, 0, f"its phone {sticky} is not active")
        if new_contact and desk.remaining == 0:
            return Allocation(None, "NONE", desk.used, 0, f"its phone {sticky} has no quota left")
        return Allocation(sticky, "STICKY", desk.used, desk.remaining, "the phone it knows")
    picked = deal(desks, 1)
    if not picked:
        return Allocation(None, "NONE", 0, 0, "no phone has quota left today")
    desk = next(desk for desk in desks if desk.phone_id == picked[0])
    reason = f"most room today: {desk.remaining} of {desk.limit}"
    return Allocation(desk.phone_id, "NEW", desk.used, desk.remaining, reason)


def _fall_back(lost_phone: str, desks: Sequence[Desk]) -> Allocation:
    """Another phone than the lost one: it opens a conversation there, so it needs room."""
    others = [desk for desk in desks if desk.phone_id != lost_phone]
    picked = deal(others, 1)
    if not picked:
        why = f"its phone {lost_phone} is lost and no other has quota left today"
        return Allocation(None, "NONE", 0, 0, why)
    desk = next(desk for desk in others if desk.phone_id == picked[0])
    reason = f"its phone {lost_phone} is lost; most room today: {desk.remaining} of {desk.limit}"
    return Allocation(desk.phone_id, "FALLBACK", desk.used, desk.remaining, reason)


def deal(desks: Sequence[Desk], count: int) -> list[str]:
    """Phones for the next `count` new leads, always from the one with most room left.

    Equal phones take turns, because each pick lowers its phone's room. Shorter than `count` when
    the room of all phones is spent.
    """
    rooms = sorted({desk.remaining for desk in desks}, reverse=True)
    hand: list[str] = []
    for room, next_room in pairwise([*rooms, 0]):
        if len(hand) >= count:
            break
        # Everybody with the most room takes turns until the next ones have as much.
        together = [desk.phone_id for desk in desks if desk.remaining >= room]
        hand += together * min(room - next_room, -(-(count - len(hand)) // len(together)))
    return hand[:count]


@dataclass(frozen=True)
class Lane:
    """The line in which a message waits: one per phone, whatever its kind."""

    phone_id: str
    kind: Literal["initial", "followup"]


def route(step: int, desk: Desk | None) -> Lane | Skip:
    """The lane of a lead's step on its phone, or why the phone refuses it.

    Keyed by the phone's id: lanes named after the last digits of a number would collide.
    """
    if desk is None or not desk.active:
        return Skip.PHONE_NOT_ACTIVE
    kind: Literal["initial", "followup"] = "initial" if step == 1 else "followup"
    if kind == "initial" and desk.remaining == 0:
        return Skip.QUOTA_EXCEEDED
    return Lane(desk.phone_id, kind)
