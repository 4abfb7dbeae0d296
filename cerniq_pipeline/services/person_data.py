"""A person's data: all of it in one document, or gone, with only the hashes of a "stop" left.

Erasing takes the locks of an opt-out, so it falls before or after a claim and never into one. A
message that is being sent at that moment finds no lead any more when it is recorded; it is emptied
as soon as it came to its end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.clock import Clock
from cerniq_pipeline.domain.contacts import phone_key
from cerniq_pipeline.domain.events import InboundEvent, WebhookReader
from cerniq_pipeline.domain.names import read_name
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.errors import NotFound, UnreadableWebhook
from cerniq_pipeline.logs import event
from cerniq_pipeline.services import hearing
from cerniq_pipeline.services.crossing import insist
from cerniq_pipeline.services.opt_out import Stop, honour
from cerniq_pipeline.store import (
    leads,
    outbox,
    overview,
    person_data,
    phones,
    tenants,
)
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.person_data import KeptEvent, Person

Readers = Mapping[str, WebhookReader]

LONGEST_FLIGHT = timedelta(seconds=90)
"""How long a message that is being sent is waited for: longer than any call may take."""

LOOK_AGAIN = timedelta(seconds=1)

TO_THE_END: dict[State, tuple[State, ...]] = {
    State.PLANNED: (State.CANCELLED,),
    State.DEFERRED: (State.CANCELLED,),
    # Nobody will ever look it up again. What it cost stays counted: it may have gone out.
    State.UNCONFIRMED: (State.PARKED, State.CANCELLED),
    State.PARKED: (State.CANCELLED,),
}
"""The legal moves by which a message comes to its end without being sent."""


@dataclass(frozen=True)
class Erased:
    """What an erasure did; counts only, so that it may be told to anybody."""

    tenant_id: str
    leads: int
    conversations: int
    logged: int
    """Messages of the log."""
    outbox: int
    """Messages of the outbox that lost their text and their recipient."""
    cancelled: int
    events: int
    in_flight: tuple[int, ...] = ()
    """Messages that are still being sent: the same command finishes them later."""
    left_events: int = 0
    """Events that are also about others and that nobody has handled yet."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be done."""
        return not self.in_flight and not self.left_events


# ── Who is meant ──────────────────────────────────────────────────────────────────────────────


def find(begin: Begin, subject: str, *, tenant_id: str | None, secret: bytes) -> Person:
    """The person behind a lead's id, a CUI, a number or an address, in any spelling.

    Raises NotFound when nobody knows them, or when several tenants do and none was named.
    """
    with begin() as conn:
        if tenant_id is not None:
            tenants.get(conn, tenant_id)
        known = _known(conn, subject, secret=secret)
        if tenant_id is not None:
            known = [person for person in known if person.tenant_id == tenant_id]
        if not known:
            where = f" at tenant {tenant_id}" if tenant_id else ""
            raise NotFound(
                f"nothing is held{where} about this subject; give a lead's id, a CUI, a number "
                "or an address"
            )
        if len(known) > 1:
            names = ", ".join(person.tenant_id for person in known)
            raise NotFound(f"several tenants know this subject: {names}; name one with --tenant")
        return person_data.identify(conn, known[0])


def _known(conn: Connection, subject: str, *, secret: bytes) -> list[Person]:
    """What the subject may mean, at each tenant; the first meaning that anybody knows counts."""
    name = read_name(subject)
    if name.lead_id is not None:
        return _by_leads(person_data.leads_with_id(conn, name.lead_id))
    if name.email is not None:
        return _by_name(conn, Person("", emails=frozenset({name.email})), secret=secret)
    if name.number is not None and (
        found := _by_name(conn, Person("", numbers=frozenset({name.number})), secret=secret)
    ):
        return found
    if name.cui is not None:
        meant = Person("", cuis=frozenset({name.cui}))
        found = _by_leads(person_data.leads_with_cui(conn, name.cui), meant)
        if found := found or _by_name(conn, meant, secret=secret):
            return found
    if name.id_range is not None:
        _, begun = overview.find_leads(conn, name, tenant_id=None)
        if len(begun) > 1:
            names = "; ".join(overview.described(conn, begun))
            raise NotFound(f"{len(begun)} leads have an id that begins like this: {names}")
        if begun:
            return _by_leads(begun)
    return _by_name(conn, Person("", user_ids=frozenset({name.typed})), secret=secret)


def _by_leads(found: Mapping[UUID, str], meant: Person | None = None) -> list[Person]:
    meant = meant or Person("")
    return [
        replace(
            meant,
            tenant_id=tenant_id,
            lead_ids=frozenset(lead for lead, whose in found.items() if whose == tenant_id),
        )
        for tenant_id in sorted(set(found.values()))
    ]


def _by_name(conn: Connection, meant: Person, *, secret: bytes) -> list[Person]:
    keys = meant.suppression_keys(secret)
    return [
        replace(meant, tenant_id=tenant_id)
        for tenant_id in person_data.tenants_knowing(conn, meant, keys=keys)
    ]


# ── Events ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _About:
    """An event of the inbox that is about them."""

    kept: KeptEvent
    theirs: tuple[InboundEvent, ...]
    """What it says of them; nothing when nobody can read it."""
    is_shared: bool
    """Whether it is also about somebody else, or another tenant's too."""


def _about(
    conn: Connection, person: Person, found: Sequence[KeptEvent], readers: Readers
) -> list[_About]:
    judged = (_judge(conn, person, kept, readers) for kept in found)
    return [about for about in judged if about is not None]


def _judge(conn: Connection, person: Person, kept: KeptEvent, readers: Readers) -> _About | None:
    """What this event is to the person; None when it only mentions one of their names."""
    said = _read(kept, readers)
    if not said:  # nobody can read it: what it was kept under must do
        ours = phones.by_number(conn, kept.account) if kept.account else None
        is_here = ours is None or ours[0] == person.tenant_id
        return _About(kept, (), False) if is_here and person.is_called(kept.contact) else None
    owners = [hearing.owners(conn, one) if _concerns(person, one) else None for one in said]
    theirs = tuple(
        one
        for one, whose in zip(said, owners, strict=True)
        if whose is not None and (not whose or person.tenant_id in whose)
    )
    if not theirs:
        return None
    is_shared = len(theirs) < len(said) or any(whose and len(whose) > 1 for whose in owners)
    return _About(kept, theirs, is_shared)


def _read(kept: KeptEvent, readers: Readers) -> tuple[InboundEvent, ...]:
    reader = readers.get(kept.provider)
    if reader is None or not kept.body:
        return ()
    try:
        return reader.read(kept.body, received_at=kept.received_at)
    except UnreadableWebhook:
        return ()


def _concerns(person: Person, said: InboundEvent) -> bool:
    """Whether it comes from them, or is about a message to or from them."""
    contact = said.contact
    about = {said.external_id, said.reply_to, said.delivery.external_id if said.delivery else None}
    return not about.isdisjoint(person.external_ids) or any(
        map(person.is_called, (contact.phone, contact.email, contact.user_id))
    )


# ── Erasing ───────────────────────────────────────────────────────────────────────────────────


def erase(
    begin: Begin,
    person: Person,
    *,
    readers: Readers,
    secret: bytes,
    reason: str,
    who: str,
    clock: Clock,
    longest: timedelta = LONGEST_FLIGHT,
) -> Erased:
    """Delete all that is held about a person, and remember by hashes that they must not come back.

    `reason` and `who` are kept for good. Erasing somebody twice does no harm: the second time
    finishes what the first had to leave.
    """
    with begin() as conn:
        mentioned = person_data.events_mentioning(conn, person)
    stop = Stop(person.tenant_id, reason, at=clock.now(), who=who)
    erased = insist(lambda: _erase(begin, person, mentioned, stop, readers, secret), worker="erase")
    until = clock.now() + longest
    while erased.in_flight and clock.now() < until:
        clock.sleep(LOOK_AGAIN.total_seconds())
        erased = _finish(begin, erased, replace(stop, at=clock.now()))
    event(
        "erase",
        "person_erased",
        tenant=person.tenant_id,
        leads=erased.leads,
        outbox=erased.outbox,
        events=erased.events,
        in_flight=len(erased.in_flight),
        left_events=erased.left_events,
    )
    return erased


def _erase(
    begin: Begin,
    person: Person,
    mentioned: Collection[int],
    stop: Stop,
    readers: Readers,
    secret: bytes,
) -> Erased:
    now = stop.at
    with begin() as conn:
        # Events before leads: that is the order of whoever handles them.
        person_data.events(conn, person, mentioned, lock=True)
        person = person_data.complete(conn, person)
        written_to = {row["lead_id"] for row in person_data.messages(conn, person)}
        locked = leads.lock(conn, person.tenant_id, person.lead_ids | written_to)
        kept = person_data.events(conn, person, mentioned, lock=True)
        about = _about(conn, person, kept, readers)
        cancelled = honour(
            conn,
            stop,
            [lead for lead in locked if lead.lead_id in person.lead_ids],
            addresses=person.names,
            secret=secret,
            now=now,
        )
        sent = [row["id"] for row in person_data.messages(conn, person)]
        in_flight, ended = _end_messages(conn, sent, stop)
        # One that is also about others is theirs to hear first; once handled, its words stand in
        # the log, each under its own person.
        left = [one for one in about if one.is_shared and one.kept.state != "done"]
        gone = [one.kept for one in about if one not in left]
        person_data.rename_events(conn, [one.id for one in gone if _names(person, one.event_key)])
        emptied = person_data.empty_messages(conn, sent, who=stop.who, now=now)
        events = person_data.empty_events(conn, gone, who=stop.who, now=now)
        deleted = person_data.delete_all(conn, person)
    return Erased(
        tenant_id=person.tenant_id,
        leads=deleted.leads,
        conversations=deleted.conversations,
        logged=deleted.messages,
        outbox=emptied,
        cancelled=cancelled + ended,
        events=events,
        in_flight=in_flight,
        left_events=len(left),
    )


def _names(person: Person, key: str) -> bool:
    """Whether one of their names stands in an event's key."""
    digits = {phone_key(number) for number in person.numbers}
    words = {word for word in digits | person.names if word}
    return any(word in key.lower() for word in words)


def _end_messages(
    conn: Connection, message_ids: Collection[int], stop: Stop
) -> tuple[tuple[int, ...], int]:
    """Bring every message to its end by legal moves: (those being sent now, how many ended)."""
    ended = 0
    in_flight = []
    for message_id, state in person_data.lock_messages(conn, message_ids).items():
        if state is State.SENDING:
            in_flight.append(message_id)  # only its sender knows how it ends
        for target in TO_THE_END.get(state, ()):
            outbox.move(
                conn,
                message_id,
                current=state,
                target=target,
                why=stop.reason,
                who=stop.who,
                now=stop.at,
            )
            state = target  # where the next move starts
            ended += target is State.CANCELLED
            # It may have been planned for a lead that has another number by now, and stays.
            leads.end_sequence(conn, message_id, reason="opted_out", now=stop.at)
    return tuple(in_flight), ended


def _finish(begin: Begin, erased: Erased, stop: Stop) -> Erased:
    """Empty the messages that came to their end since; their leads are gone already."""
    with begin() as conn:
        in_flight, ended = _end_messages(conn, erased.in_flight, stop)
        emptied = person_data.empty_messages(conn, erased.in_flight, who=stop.who, now=stop.at)
    return replace(
        erased,
        in_flight=in_flight,
        cancelled=erased.cancelled + ended,
        outbox=erased.outbox + emptied,
    )


# ── Showing ───────────────────────────────────────────────────────────────────────────────────


def export(
    begin: Begin, person: Person, *, readers: Readers, secret: bytes, clock: Clock
) -> dict[str, Any]:
    """Everything that is held about a person, ready to be written as JSON, in a fixed order."""
    with begin() as conn:
        person = person_data.complete(conn, person)
        sent = person_data.messages(conn, person)
        attempts = person_data.attempts(conn, [row["id"] for row in sent])
        logged = person_data.log(conn, person)
        talks = person_data.conversations(conn, person)
        mentioned = person_data.events_mentioning(conn, person)
        about = _about(conn, person, person_data.events(conn, person, mentioned), readers)
        known_talks = {row["id"] for row in talks}
        document = {
            "exported_at": clock.now(),
            "tenant": person.tenant_id,
            "known_by": {
                "leads": sorted(map(str, person.lead_ids)),
                "numbers": sorted(person.numbers),
                "emails": sorted(person.emails),
                "provider_ids": sorted(person.user_ids),
                "company_numbers": sorted(person.cuis),
            },
            "companies": person_data.companies(conn, person),
            "journeys": [_with_basis(row) for row in person_data.journeys(conn, person)],
            "stage_changes": person_data.stage_changes(conn, person),
            "conversations": [
                row | {"messages": [one for one in logged if one["conversation_id"] == row["id"]]}
                for row in talks
            ],
            "other_messages": [row for row in logged if row["conversation_id"] not in known_talks],
            "outbox": [
                row | {"attempts": [one for one in attempts if one["message_id"] == row["id"]]}
                for row in sent
            ],
            "suppressions": person_data.stops(conn, person, secret=secret),
            "events": [_shown(one) for one in about],
            "dead_letters": person_data.letters(
                conn,
                message_ids=[row["id"] for row in sent],
                event_ids=[one.kept.id for one in about if not one.is_shared],
            ),
            "unfinished_imports": person_data.import_lines(conn, person),
        }
    return _plain(document)


def _with_basis(journey: dict[str, Any]) -> dict[str, Any]:
    basis = {
        "basis": journey.pop("lawful_basis"),
        "source": journey.pop("lawful_basis_source"),
        "at": journey.pop("lawful_basis_at"),
    }
    return journey | {"lawful_basis": basis if basis["basis"] else None}


def _shown(about: _About) -> dict[str, Any]:
    """An event as it came; of one that is also about others only what it says of this person."""
    kept = about.kept
    shown = {
        "provider": kept.provider,
        "type": kept.event_type,
        "source": kept.source,
        "received_at": kept.received_at,
        "state": kept.state,
    }
    if about.is_shared:
        return shown | {"body": None, "said": [asdict(one) for one in about.theirs]}
    try:
        return shown | {"body": kept.body.decode()}
    except UnicodeDecodeError:
        return shown | {"body": None, "body_hex": kept.body.hex()}


def _plain(value: Any) -> Any:
    """The value as JSON has it; instants in ISO 8601, everything else by its text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
