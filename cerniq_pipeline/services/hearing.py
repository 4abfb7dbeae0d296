"""Hear one event: all that follows from it, in the transaction that marks it as handled.

Events come twice, in any order, and from several doors. So nothing here counts on what came before:
every effect is one that may be had once, whenever its turn is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.conversations import (
    BAD_DATA,
    HANDSET,
    WROTE_AGAIN,
    Meaning,
    meaning_of,
)
from cerniq_pipeline.domain.deliveries import OPTED_OUT, Delivery, Told
from cerniq_pipeline.domain.events import Contact, InboundEvent, Kind
from cerniq_pipeline.domain.leads import stage_after_reply
from cerniq_pipeline.errors import UnknownReceiver
from cerniq_pipeline.services.deliveries import apply_early, keep_stop, stop_of, take_in
from cerniq_pipeline.services.opt_out import Stop, honour
from cerniq_pipeline.store import (
    conversations,
    deliveries,
    leads,
    outbox,
    phones,
    receivers,
    tenants,
)
from cerniq_pipeline.store.leads import Lead

WHO = "inbox"

ABOUT_A_MESSAGE = frozenset({Kind.STATUS, Kind.OPEN, Kind.CLICK})
ABOUT_A_PHONE = frozenset(
    {Kind.ACCOUNT_CONNECTED, Kind.ACCOUNT_DISCONNECTED, Kind.ACCOUNT_SUSPENDED}
)


@dataclass(frozen=True)
class _Scene:
    """One event at one tenant's: what it means, to whose leads, at which phone."""

    event: InboundEvent
    meaning: Meaning
    tenant_id: str
    phone_id: str | None
    secret: bytes
    now: datetime
    only_stop: bool = False

    @property
    def at(self) -> datetime:
        """When it happened; a provider's clock that runs ahead does not make it tomorrow."""
        return min(self.event.at, self.now)


def hear(
    conn: Connection,
    event: InboundEvent,
    *,
    secret: bytes,
    now: datetime,
    only_stop: bool = False,
) -> str:
    """Carry out all that follows from one event, and say in words what that was.

    With `only_stop` nothing but what it ends: for an event whose other effects fail. Raises
    UnknownReceiver when nobody has said whose it is; a stop in it is honoured already.
    """
    meaning = meaning_of(event)
    if event.kind in ABOUT_A_PHONE:
        return "the phone's status is asked for"
    if meaning == Meaning():
        return f"{event.kind}: kept, nothing follows from it"
    if event.channel != "WHATSAPP":
        return _heard_without_a_phone(
            conn, event, meaning, secret=secret, now=now, only_stop=only_stop
        )
    if event.detail == "in a group":
        return "in a group"
    if event.contact.phone and phones.by_number(conn, event.contact.phone):
        return "between two phones of ours"
    ours = phones.by_number(conn, event.account) if event.account else None
    if ours is None:
        if meaning.takes_over and event.by_api:
            return "sent by a program from a number that is no phone of ours"
        return _heard_without_a_phone(
            conn, event, meaning, secret=secret, now=now, only_stop=only_stop
        )
    tenant_id, phone_id = ours
    if meaning.takes_over and (event.by_api or conversations.is_ours(conn, event, phone_id)):
        return "the echo of a message of ours"
    return _heard_by(conn, _Scene(event, meaning, tenant_id, phone_id, secret, now, only_stop))


def hear_of_messages(conn: Connection, events: Sequence[InboundEvent], *, now: datetime) -> str:
    """Take in what became of messages that went out, many at once, in a transaction of its own.

    It locks leads and then the words about messages; so it comes once, and with nothing before it.
    """
    told = [Told(event.channel, delivery) for event in events if (delivery := _delivery(event))]
    counts = take_in(conn, told, now=now)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "no news"


def tells_of_a_stop(event: InboundEvent) -> bool:
    """Whether a provider tells that it heard a request to stop, as what became of a message."""
    return event.delivery is not None and event.delivery.meaning == OPTED_OUT


def hear_stop(conn: Connection, event: InboundEvent, *, secret: bytes, now: datetime) -> bool:
    """Honour a request to stop that a provider heard before us.

    It counts for the lead of that message, known by the provider's id or by ours, and for whomever
    it names at the tenant that it was told to. Of a message that nobody knows yet it is kept, and
    counts for its lead when the message is recorded. False when that has just happened: then it
    must be heard once more.
    """
    told = _delivery(event)
    assert told is not None
    key = (event.channel, told.external_id)
    known = deliveries.whose(conn, key, provider=event.provider, our_id=told.our_id)
    leads_at: dict[str, list[UUID]] = {tenant_id: [] for tenant_id in _receiving(conn, event)}
    for tenant_id, lead_id in known:
        leads_at.setdefault(tenant_id, []).append(lead_id)
    for tenant_id in sorted(leads_at):
        stop = stop_of(tenant_id, told, now=now)
        _stop_everywhere(conn, event, stop, leads_at[tenant_id], secret=secret, now=now)
    return bool(known) or keep_stop(conn, Told(event.channel, told), now=now)


def _receiving(conn: Connection, event: InboundEvent) -> list[str]:
    """The tenants at which this event names somebody; a number of ours is nobody's."""
    contact = event.contact
    if contact.key is None or (contact.phone and phones.by_number(conn, contact.phone)):
        return []
    return owners(conn, event) or _concerned(conn, contact)


def _stop_everywhere(
    conn: Connection,
    event: InboundEvent,
    stop: Stop,
    lead_ids: Sequence[UUID],
    *,
    secret: bytes,
    now: datetime,
) -> None:
    contact = event.contact
    behind = conversations.leads_behind(conn, stop.tenant_id, contact, chat_id=None, phone_id=None)
    copies = leads.lock_person(
        conn,
        stop.tenant_id,
        lead_ids={*lead_ids, *behind},
        numbers=[contact.phone] if contact.phone else [],
        emails=[contact.email] if contact.email else [],
    )
    honour(conn, stop, copies, addresses=_addresses(contact), secret=secret, now=now)


def _addresses(contact: Contact) -> list[str]:
    return [one for one in (contact.phone, contact.email, contact.user_id) if one]


def _delivery(event: InboundEvent) -> Delivery | None:
    """A status as it was told, or what an opened or followed e-mail says of its delivery."""
    if event.delivery is not None:
        return replace(event.delivery, correlation_id=event.correlation_id)
    if event.external_id is None:
        return None
    return Delivery(
        external_id=event.external_id,
        status="read",
        at=event.at,
        code=None,
        title="",
        meaning=None,
        callback=None,
        correlation_id=event.correlation_id,
    )


def owners(conn: Connection, event: InboundEvent) -> list[str]:
    """The tenants whose event this is; none: nobody's here, or nobody has said.

    On WhatsApp the phone says it. On other channels it is whose message it is about, or else whose
    number or address it came to. Who else knows the person has no right to their words.
    """
    phone = phones.by_number(conn, event.account) if event.account else None
    if event.channel != "WHATSAPP":
        if wrote := conversations.tenants_that_wrote(conn, event.reply_to or event.external_id):
            return wrote
        everyone = tenants.all_ids(conn)
        if len(everyone) == 1:
            return everyone  # whoever it is, they wrote to this one
    if phone is not None:
        return [phone[0]]
    known = receivers.find(conn, event.account)
    return [known.tenant_id] if known and known.tenant_id else []


def _heard_without_a_phone(
    conn: Connection,
    event: InboundEvent,
    meaning: Meaning,
    *,
    secret: bytes,
    now: datetime,
    only_stop: bool,
) -> str:
    """An event that came to no phone of ours: heard by those whose it is.

    One of nobody keeps its words to itself. But what it asks for without words, and a stop in them,
    is honoured by everybody whom it may concern: better one stop too many.
    """

    def at(tenant_id: str) -> _Scene:
        return _Scene(event, meaning, tenant_id, None, secret, now, only_stop)

    if theirs := owners(conn, event):
        return "; ".join(_heard_by(conn, at(tenant_id)) for tenant_id in theirs)
    concerned = _concerned(conn, event.contact)
    if meaning.logged is None:
        return "; ".join(_heard_by(conn, at(tenant_id)) for tenant_id in concerned)
    if meaning.stop:
        for scene in map(at, concerned):
            _stopped(conn, scene, _lock_copies(conn, scene, _likely(conn, scene)))
    if not only_stop and receivers.find(conn, event.account) is None:
        raise UnknownReceiver(event.account)
    return "to a number or an address that is nobody's here"


def _concerned(conn: Connection, contact: Contact) -> list[str]:
    return conversations.tenants_knowing(conn, contact) or tenants.all_ids(conn)


def _heard_by(conn: Connection, scene: _Scene) -> str:
    event, meaning = scene.event, scene.meaning
    likely = _likely(conn, scene)
    if meaning.takes_over and not likely:
        return "typed on the handset to nobody we know"
    copies = _lock_copies(conn, scene, likely)
    if conversations.was_heard(conn, scene.tenant_id, event.channel, event.external_id):
        return "heard before"
    by_id = {lead.lead_id: lead for lead in copies}
    lead = next((by_id[lead_id] for lead_id in likely if lead_id in by_id), None)
    done = [_stopped(conn, scene, copies)]
    if scene.only_stop:
        return done[0]
    if event.contact.key:
        outbox.lock_person(conn, scene.tenant_id, event.contact.key)
    _write_down(conn, scene, lead)
    done += [_moved(conn, scene, lead)] if lead else []
    if meaning.takes_over and event.external_id:
        apply_early(conn, event.channel, event.external_id, secret=scene.secret, now=scene.now)
    whose = f"lead {lead.lead_id}" if lead else "somebody unknown"
    return ", ".join([f"{event.kind} of {whose}", *filter(None, done)])


def _likely(conn: Connection, scene: _Scene) -> list[UUID]:
    """The leads that this person may be, the likeliest first."""
    event = scene.event
    return conversations.leads_behind(
        conn, scene.tenant_id, event.contact, chat_id=event.chat_id, phone_id=scene.phone_id
    )


def _lock_copies(conn: Connection, scene: _Scene, likely: list[UUID]) -> list[Lead]:
    """Lock every lead of this person."""
    contact = scene.event.contact
    return leads.lock_person(
        conn,
        scene.tenant_id,
        lead_ids=likely,
        numbers=[contact.phone] if contact.phone else [],
        emails=[contact.email] if contact.email else [],
    )


def _stopped(conn: Connection, scene: _Scene, copies: list[Lead]) -> str:
    """End what is automatic for every lead of this person, for good when they asked for that."""
    meaning, now = scene.meaning, scene.now
    lead_ids = [lead.lead_id for lead in copies]
    if meaning.stop:
        addresses = _addresses(scene.event.contact)
        stop = Stop(scene.tenant_id, meaning.stop, at=scene.at, who=WHO)
        cancelled = honour(conn, stop, copies, addresses=addresses, secret=scene.secret, now=now)
        return f"opted out, {cancelled} messages cancelled"
    if meaning.bounced:
        leads.mark_bounced(conn, lead_ids, now=now)
        cancelled = outbox.cancel_pending(
            conn, lead_ids, why="bounce", who=WHO, now=now, channel="EMAIL"
        )
        return f"the address bounced, {cancelled} e-mails cancelled"
    if meaning.ends:
        cancelled = outbox.cancel_pending(
            conn, lead_ids, why=meaning.ends, who=WHO, now=now, also_by_hand=False
        )
        leads.end_automation(conn, lead_ids, reason=meaning.ends, now=now)
        return f"{cancelled} messages cancelled"
    return ""


def _write_down(conn: Connection, scene: _Scene, lead: Lead | None) -> None:
    """Log what was said, in its conversation; open the window that it opens."""
    event, meaning = scene.event, scene.meaning
    lead_id = lead.lead_id if lead else None
    conversation_id: UUID | None = None
    if event.channel == "WHATSAPP" and (meaning.logged or meaning.opens_window):
        conversation_id = conversations.open_conversation(
            conn,
            tenant_id=scene.tenant_id,
            lead_id=lead_id,
            contact=event.contact,
            phone_id=scene.phone_id,
            chat_id=event.chat_id,
            now=scene.now,
        )
    if conversation_id is not None and meaning.opens_window:
        conversations.open_window(
            conn,
            conversation_id,
            at=scene.at,
            phone_id=scene.phone_id,
            chat_id=event.chat_id,
        )
    if meaning.logged:
        conversations.log(
            conn,
            event,
            tenant_id=scene.tenant_id,
            direction=meaning.logged,
            lead_id=lead_id,
            conversation_id=conversation_id,
            phone_id=scene.phone_id,
            now=scene.now,
        )
    if conversation_id is not None:
        conversations.recount(conn, conversation_id)


def _moved(conn: Connection, scene: _Scene, lead: Lead) -> str:
    """What becomes of the lead itself: its stage, its count, who talks to it, who must look."""
    meaning, now = scene.meaning, scene.now
    opted_out = lead.opted_out or meaning.stop is not None
    review = meaning.review or (WROTE_AGAIN if _wrote_again(lead, scene) else None)
    said = []
    if meaning.is_reply:
        leads.note_reply(conn, lead.lead_id, at=scene.at, chat_id=_chat_with(lead, scene), now=now)
        stage = stage_after_reply(lead.stage, opted_out=opted_out)
        if stage is None:
            review = review or BAD_DATA  # no stage tells a person of it
        elif not opted_out and leads.change_stage(
            conn, lead, tenant_id=scene.tenant_id, to=stage, who=WHO, why="reply", now=now
        ):
            said.append(f"now {stage}")
    if meaning.takes_over:
        leads.hand_to(conn, lead.lead_id, holder=HANDSET, at=scene.at, now=now)
        said.append("taken over by hand")
    if review:
        leads.ask_for_review(conn, lead.lead_id, reason=review, priority="HIGH", now=now)
        said.append(f"a person must look: {review}")
    return ", ".join(said)


def _wrote_again(lead: Lead, scene: _Scene) -> bool:
    """Whether something was said after a stop; either may be heard first."""
    if scene.meaning.stop:
        return lead.last_reply_at is not None and lead.last_reply_at > scene.at
    said_stop_at = lead.opted_out_at if scene.meaning.is_reply else None
    return said_stop_at is not None and scene.at > said_stop_at


def _chat_with(lead: Lead, scene: _Scene) -> str | None:
    """The chat, when it is with the phone that writes to this lead."""
    same = lead.assigned_phone_id in (None, scene.phone_id)
    return scene.event.chat_id if same else None
