"""Let the leads of a lost phone follow their tenant's rule: another phone, another channel."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from cerniq_pipeline.domain.selection import Desk, deal
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import failover, leases, phones, selection, tenants
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.failover import LostPhone

AT_ONCE = 1000
"""Leads that are moved in one transaction; the next tick takes the next ones."""


@dataclass(frozen=True)
class Moved:
    """How many leads left a lost phone, and how; `left` still wait there today."""

    phone_id: str
    given_new_phone: int = 0
    handed_over: int = 0
    switched_to_mail: int = 0
    left: int = 0

    @property
    def total(self) -> int:
        return self.given_new_phone + self.handed_over + self.switched_to_mail


def phones_to_fail_over(begin: Begin, *, now: datetime) -> list[str]:
    """The lost phones from which some lead may be moved now."""
    with begin() as conn:
        return [
            phone.id
            for phone in failover.lost_phones(conn, now=now)
            if failover.movable(conn, phone, until=_day_end(conn, phone.tenant_id, now=now), most=1)
            and _most(conn, phone, now=now)
        ]


def fail_over(begin: Begin, phone_id: str, *, now: datetime, who: str) -> Moved:
    """Move what is due today from a lost phone, as far as the other phones have room for it.

    Nothing moves for a lead of whom we do not know whether it got a message; it follows when that
    is settled. What is due on a later day stays until then: the phone may be back by that time,
    and the room of the others is for today's messages.
    """
    with begin() as conn:
        leases.lock(conn, phone_id)  # no claim of this phone may be half done
        phone = failover.lost_phone(conn, phone_id, now=now)
        if phone is None:
            return Moved(phone_id)
        selection.lock_dispatch(conn, phone.tenant_id)  # room is given away by one at a time
        moved = _move(conn, phone, who=who, now=now)
    if moved.total:
        event(
            "failover",
            "leads_moved",
            level="warning",
            by=who,
            phone=phone_id,
            new_phone=moved.given_new_phone,
            handed_over=moved.handed_over,
            by_mail=moved.switched_to_mail,
            left=moved.left,
        )
    return moved


def _move(conn: Connection, phone: LostPhone, *, who: str, now: datetime) -> Moved:
    until = _day_end(conn, phone.tenant_id, now=now)
    most = _most(conn, phone, now=now)
    seen = failover.movable(conn, phone, until=until, most=most)
    failover.lock_leads(conn, seen)
    # Looked at again under the locks: one of them may have replied or opted out in between.
    leads = failover.movable(conn, phone, until=until, most=most, among=seen)
    kinds: dict[str, int] = {}
    by_mail = 0
    if phone.rule == "switch_channel":
        messages = [message_id for ids in leads.values() for message_id in ids]
        by_mail = failover.switch_to_mail(conn, phone, messages, who=who, now=now)
    else:
        hand = deal(_other_desks(conn, phone, now=now), len(leads))
        dealt = dict(zip(leads, hand, strict=False))  # who comes after its end has no room
        strangers = failover.strangers(conn, leads)
        kinds = failover.hand_over(conn, phone, dealt, strangers=strangers, who=who, now=now)
    return Moved(
        phone.id,
        given_new_phone=kinds.get("initial", 0),
        handed_over=kinds.get("handover", 0),
        switched_to_mail=by_mail,
        left=failover.waiting(conn, phone.id, until=until),
    )


def _most(conn: Connection, phone: LostPhone, *, now: datetime) -> int:
    """How many leads of this phone may move at once: never more than there is room for."""
    if phone.rule == "switch_channel":
        return AT_ONCE
    return min(AT_ONCE, sum(desk.remaining for desk in _other_desks(conn, phone, now=now)))


def _other_desks(conn: Connection, phone: LostPhone, *, now: datetime) -> list[Desk]:
    day = tenants.get(conn, phone.tenant_id).calendar.day_of(now)
    desks = phones.desks(conn, phone.tenant_id, day=day)
    # Another provider may ask for texts that were approved first; that is for a person to decide.
    like_it = phones.of_the_same_provider(conn, phone.id)
    return [desk for desk in desks if desk.phone_id in like_it]


def _day_end(conn: Connection, tenant_id: str, *, now: datetime) -> datetime:
    calendar = tenants.get(conn, tenant_id).calendar
    return calendar.day_starts(calendar.day_of(now) + timedelta(days=1))
