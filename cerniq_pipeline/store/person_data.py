"""Everything the tables hold about one person: found by any of their names, shown, and deleted.

What becomes of a person's rows when they are erased, table by table:

- deleted: `gold_companies` and with it `gold_lead_journey`, `stage_changes` and
  `gold_communication_log`; `whatsapp_conversations`, `early_deliveries`, `unread_chats`,
  `import_rows`, `dispatch_items` and `dispatch_plans`;
- emptied, because the row guards something: `outbox_messages` (never twice), `send_attempts`,
  `dead_letters`, and `webhook_events`, whose keys keep a replay from bringing the words back;
- kept as they are, because they hold ids, counts and times only: `quota_ledger`, `outbox_changes`
  and `suppressions`, whose hashes are what makes a "stop" outlive the person's data;
- the others know no lead at all.

Files are not in here: what an import could not read (`*.errors.csv`), a spool of webhooks that
waits for the database, and backups are for whoever keeps them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Connection,
    Executable,
    Select,
    Table,
    Text,
    case,
    delete,
    func,
    literal,
    null,
    or_,
    select,
    text,
    tuple_,
    update,
)

from cerniq_pipeline.domain.contacts import (
    canonical_address,
    canonical_cui,
    phone_key,
    same_number,
)
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.domain.unsubscribing import Subscription
from cerniq_pipeline.store import leads, schema, suppressions
from cerniq_pipeline.store.schema import (
    dead_letters,
    dispatch_batches,
    dispatch_items,
    dispatch_plans,
    early_deliveries,
    gold_communication_log,
    gold_companies,
    gold_lead_journey,
    import_rows,
    imports,
    outbox_messages,
    send_attempts,
    unread_chats,
    wa_phone_numbers,
    webhook_events,
    whatsapp_conversations,
)

ERASED = "erased"
FINAL = (State.SENT, State.FAILED, State.CANCELLED)
OF_OTHERS = frozenset({"held_by", "planned_by", "resolved_by", "who", "tenant_id", "fence"})
"""Columns that say who of us did something, or nothing of anybody."""


def subscription(conn: Connection, asked: Subscription) -> tuple[str, bool] | None:
    """The tenant's name, and whether this lead may still hear from it; None: no such tenant."""
    row = conn.execute(
        text("""
            SELECT t.name, EXISTS (
              SELECT 1 FROM gold_lead_journey j
              WHERE j.tenant_id = t.id AND j.lead_id = :lead
                AND NOT (j.whatsapp_opted_out AND j.email_opted_out)) AS is_subscribed
            FROM tenants t WHERE t.id = :tenant
        """),
        {"tenant": asked.tenant_id, "lead": asked.lead_id},
    ).one_or_none()
    return (row.name, row.is_subscribed) if row else None


# ── Who is meant ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Person:
    """Whom a request is about: all that they are known by at one tenant, as it is spelt there."""

    tenant_id: str
    lead_ids: frozenset[UUID] = frozenset()
    companies: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()
    emails: frozenset[str] = frozenset()
    user_ids: frozenset[str] = frozenset()
    cuis: frozenset[str] = frozenset()
    external_ids: frozenset[str] = field(default=frozenset(), repr=False)
    """The providers' ids of messages to and from them."""

    @cached_property
    def names(self) -> frozenset[str]:
        """Every number, address and provider's id, in one spelling each."""
        return frozenset(map(canonical_address, self.numbers | self.emails | self.user_ids))

    def is_called(self, name: str | None) -> bool:
        """Whether this number, address or id is one of theirs, however it is spelt."""
        if not name:
            return False
        return canonical_address(name) in self.names or any(
            same_number(name, number) for number in self.numbers if phone_key(name)
        )

    def suppression_keys(self, secret: bytes) -> dict[bytes, str]:
        """The hashes under which a stop may hold for them, each with what it is the hash of."""
        persons = {suppressions.person_key(secret, name): name for name in sorted(self.names)}
        companies = {
            suppressions.company_key(secret, cui): f"CUI {canonical_cui(cui)}"
            for cui in sorted(self.cuis)
        }
        return persons | companies

    def found_in(self, column: Column[str]) -> ColumnElement[bool]:
        """SQL that finds them by a column; `is_called` has the last word: countries share keys."""
        keys = {key for number in self.numbers if (key := phone_key(number))}
        digits = func.right(func.regexp_replace(column, r"\D", "", "g"), 9)
        return or_(digits.in_(keys), func.lower(func.btrim(column)).in_(self.names))


def leads_with_id(conn: Connection, lead_id: UUID) -> dict[UUID, str]:
    """The lead with this id and its tenant; also one that is gone and was once written to."""
    tenant_id = conn.execute(
        text("""
            SELECT tenant_id FROM gold_companies WHERE id = :lead
            UNION SELECT tenant_id FROM outbox_messages WHERE lead_id = :lead
        """),
        {"lead": lead_id},
    ).scalar_one_or_none()
    return {lead_id: tenant_id} if tenant_id is not None else {}


def leads_with_cui(conn: Connection, cui: str) -> dict[UUID, str]:
    """The leads whose company has this number, in any spelling, with their tenants."""
    rows = conn.execute(
        text(r"""
            SELECT id, tenant_id, cui FROM gold_companies
            WHERE ltrim(regexp_replace(cui, '\D', '', 'g'), '0')
                = ltrim(regexp_replace(:cui, '\D', '', 'g'), '0')
        """),
        {"cui": cui},
    )
    wanted = canonical_cui(cui)
    return {row.id: row.tenant_id for row in rows if canonical_cui(row.cui) == wanted}


def tenants_knowing(conn: Connection, person: Person, *, keys: Collection[bytes]) -> list[str]:
    """The tenants that hold anything about somebody with these names, hashes included.

    `person` is anybody's: its own tenant is not asked for.
    """
    holding = set()
    for tenant_id, name, where in _PLACES:
        asked = select(tenant_id, name).where(person.found_in(name)).distinct()
        found = conn.execute(asked.where(where) if where is not None else asked)
        holding |= {row[0] for row in found if person.is_called(row[1])}
    remembering = conn.execute(
        text("SELECT DISTINCT tenant_id FROM suppressions WHERE key_hmac = ANY(:keys)"),
        {"keys": list(keys)},
    )
    return sorted(holding | set(remembering.scalars()))


_FROM_A_FILE = imports.c.id == import_rows.c.import_id
_TO_OUR_PHONE = wa_phone_numbers.c.phone_number == webhook_events.c.account
_PLACES: tuple[tuple[Column[str], Column[str], ColumnElement[bool] | None], ...] = (
    (gold_companies.c.tenant_id, gold_companies.c.telefon_principal, None),
    (gold_companies.c.tenant_id, gold_companies.c.email_principal, None),
    (whatsapp_conversations.c.tenant_id, whatsapp_conversations.c.customer_phone, None),
    (whatsapp_conversations.c.tenant_id, whatsapp_conversations.c.customer_user_id, None),
    (gold_communication_log.c.tenant_id, gold_communication_log.c.contact, None),
    (outbox_messages.c.tenant_id, outbox_messages.c.recipient, None),
    (imports.c.tenant_id, import_rows.c.telefon_principal, _FROM_A_FILE),
    (imports.c.tenant_id, import_rows.c.email_principal, _FROM_A_FILE),
    (wa_phone_numbers.c.tenant_id, webhook_events.c.contact, _TO_OUR_PHONE),
)
"""Where a number or an address may stand, and whose it is there."""


def identify(conn: Connection, person: Person) -> Person:
    """The same person with all their leads: who shares a number or an address is one person.

    To be asked once for a person: the leads of the leads that it finds may be somebody else's.
    """
    named = leads.ids_by_address(
        conn, person.tenant_id, numbers=person.numbers, emails=person.emails
    )
    known = companies(conn, replace(person, lead_ids=person.lead_ids | set(named)))
    shared = leads.ids_by_address(
        conn,
        person.tenant_id,
        numbers=_filled(row["telefon_principal"] for row in known),
        emails=_filled(row["email_principal"] for row in known),
    )
    lead_ids = person.lead_ids | {*named, *shared}
    return complete(conn, replace(person, lead_ids=lead_ids))


def complete(conn: Connection, person: Person) -> Person:
    """The same person with everything that they and their leads are known by just now.

    A conversation adds the names under which they wrote to us.
    """
    theirs = companies(conn, person)
    person = replace(
        person,
        companies=tuple(sorted(row["denumire"] for row in theirs)),
        numbers=person.numbers | _filled(row["telefon_principal"] for row in theirs),
        emails=person.emails | _filled(row["email_principal"] for row in theirs),
        cuis=person.cuis | _filled(row["cui"] for row in theirs),
    )
    spoken = conversations(conn, person)
    person = replace(
        person,
        numbers=person.numbers | _filled(row["customer_phone"] for row in spoken),
        user_ids=person.user_ids | _filled(row["customer_user_id"] for row in spoken),
    )
    said = {row["external_message_id"] for row in log(conn, person)}
    sent = {row["external_id"] for row in messages(conn, person)}
    return replace(person, external_ids=_filled(said | sent))


def _filled(values: Iterable[str | None]) -> frozenset[str]:
    return frozenset(value for value in values if value and value.strip())


# ── What is held ──────────────────────────────────────────────────────────────────────────────


def _all_of(table: Table) -> Select[Any]:
    return select(*(column for column in table.c if column.name not in OF_OTHERS))


def _rows(conn: Connection, asked: Executable) -> list[dict[str, Any]]:
    return [dict(row) for row in conn.execute(asked).mappings()]


def companies(conn: Connection, person: Person) -> list[dict[str, Any]]:
    """Their companies, as the tables have them."""
    table = gold_companies.c
    mine = (table.tenant_id == person.tenant_id) & table.id.in_(person.lead_ids)
    return _rows(conn, _all_of(gold_companies).where(mine).order_by(table.created_at, table.id))


def journeys(conn: Connection, person: Person) -> list[dict[str, Any]]:
    """How far the outreach to each of their leads has come, and on what basis."""
    table = gold_lead_journey.c
    mine = (table.tenant_id == person.tenant_id) & table.lead_id.in_(person.lead_ids)
    asked = _all_of(gold_lead_journey).where(mine)
    return _rows(conn, asked.order_by(table.created_at, table.lead_id))


def stage_changes(conn: Connection, person: Person) -> list[dict[str, Any]]:
    """Every move of their leads."""
    table = schema.stage_changes.c
    mine = (table.tenant_id == person.tenant_id) & table.lead_id.in_(person.lead_ids)
    return _rows(conn, _all_of(schema.stage_changes).where(mine).order_by(table.at, table.id))


def conversations(conn: Connection, person: Person) -> list[dict[str, Any]]:
    """Their conversations with us, with or without a lead."""
    table = whatsapp_conversations.c
    mine = or_(
        table.lead_id.in_(person.lead_ids),
        person.found_in(table.customer_phone),
        person.found_in(table.customer_user_id),
    )
    asked = _all_of(whatsapp_conversations).where(table.tenant_id == person.tenant_id, mine)
    return [
        row
        for row in _rows(conn, asked.order_by(table.created_at, table.id))
        if row["lead_id"] in person.lead_ids
        or person.is_called(row["customer_phone"])
        or person.is_called(row["customer_user_id"])
    ]


def log(conn: Connection, person: Person) -> list[dict[str, Any]]:
    """Every message to and from them that the log has, oldest first."""
    table = gold_communication_log.c
    talks = {row["id"] for row in conversations(conn, person)}
    mine = or_(
        table.lead_journey_id.in_(person.lead_ids),
        table.conversation_id.in_(talks),
        person.found_in(table.contact),
    )
    asked = _all_of(gold_communication_log).where(table.tenant_id == person.tenant_id, mine)
    return [
        row
        for row in _rows(conn, asked.order_by(table.sent_at, table.created_at, table.id))
        if row["lead_journey_id"] in person.lead_ids
        or row["conversation_id"] in talks
        or person.is_called(row["contact"])
    ]


def messages(conn: Connection, person: Person) -> list[dict[str, Any]]:
    """Every message of the outbox to their leads or to a number of theirs."""
    table = outbox_messages.c
    mine = or_(table.lead_id.in_(person.lead_ids), person.found_in(table.recipient))
    asked = _all_of(outbox_messages).where(table.tenant_id == person.tenant_id, mine)
    return [
        row
        for row in _rows(conn, asked.order_by(table.id))
        if row["lead_id"] in person.lead_ids or person.is_called(row["recipient"])
    ]


def attempts(conn: Connection, message_ids: Collection[int]) -> list[dict[str, Any]]:
    """Every attempt to send these messages."""
    table = send_attempts.c
    asked = _all_of(send_attempts).where(table.message_id.in_(message_ids))
    return _rows(conn, asked.order_by(table.message_id, table.n))


def letters(
    conn: Connection, *, message_ids: Collection[int], event_ids: Collection[int]
) -> list[dict[str, Any]]:
    """The dead letters about these messages and events."""
    table = dead_letters.c
    about = or_(table.message_id.in_(message_ids), table.event_id.in_(event_ids))
    return _rows(conn, _all_of(dead_letters).where(about).order_by(table.id))


def stops(conn: Connection, person: Person, *, secret: bytes) -> list[dict[str, Any]]:
    """Where they, or their company, asked us to stop: when, why, and by which name we know it."""
    keys = person.suppression_keys(secret)
    table = schema.suppressions.c
    asked = (
        select(table.key_hmac, table.scope, table.reason, table.at)
        .where(table.tenant_id == person.tenant_id, table.key_hmac.in_(keys))
        .order_by(table.at, table.id)
    )
    return [{"of": keys[bytes(row.pop("key_hmac"))], **row} for row in _rows(conn, asked)]


def import_lines(conn: Connection, person: Person) -> list[dict[str, Any]]:
    """Rows of unfinished imports with one of their numbers, addresses or companies."""
    table = import_rows.c
    cuis = set(map(canonical_cui, person.cuis))
    mine = or_(
        person.found_in(table.telefon_principal),
        person.found_in(table.email_principal),
        table.cui.in_(cuis),
    )
    asked = (
        _all_of(import_rows)
        .join(imports, _FROM_A_FILE)
        .where(imports.c.tenant_id == person.tenant_id, mine)
        .order_by(table.import_id, table.line)
    )
    return [
        row
        for row in _rows(conn, asked)
        if person.is_called(row["telefon_principal"])
        or person.is_called(row["email_principal"])
        or row["cui"] in cuis
    ]


@dataclass(frozen=True)
class KeptEvent:
    """An event of the inbox that may be about them."""

    id: int
    provider: str
    event_key: str
    event_type: str
    account: str | None
    contact: str | None
    source: str
    body: bytes
    received_at: datetime
    state: str
    result: str | None


def events_mentioning(conn: Connection, person: Person) -> list[int]:
    """The events in which one of their names, or the id of a message of theirs, stands.

    Reads every event there is: a body may hold several people, and names only the first of them.
    """
    table = webhook_events.c
    digits = {key for number in person.numbers if (key := phone_key(number))}
    words = digits | person.emails | person.user_ids | person.external_ids
    # Bytes have no lower case; written out, they have.
    written = func.lower(func.encode(table.body, "escape"))
    mentions = or_(
        person.found_in(table.contact),
        *(func.strpos(written, word) > 0 for word in sorted({w.strip().lower() for w in words})),
    )
    return list(conn.execute(select(table.id).where(mentions).order_by(table.id)).scalars())


def events(
    conn: Connection, person: Person, event_ids: Collection[int], *, lock: bool = False
) -> list[KeptEvent]:
    """These events, and those that came from them and that nobody has handled yet.

    `lock` takes them in the order of whoever handles events, and before any lead.
    """
    table = webhook_events.c
    names = sorted(person.numbers | person.emails | person.user_ids)
    named = table.people.bool_op("&&")(literal(names, ARRAY(Text)))
    unheard = (table.state != "done") & or_(person.found_in(table.contact), named)
    asked = (
        select(*(table[each.name] for each in fields(KeptEvent)))
        .where(or_(table.id.in_(event_ids), unheard))
        .order_by(table.id)
    )
    found = conn.execute(asked.with_for_update() if lock else asked).mappings()
    return [KeptEvent(**{**row, "body": bytes(row["body"])}) for row in found]


# ── Erasing ───────────────────────────────────────────────────────────────────────────────────


def lock_messages(conn: Connection, message_ids: Collection[int]) -> dict[int, State]:
    """Lock these messages, after their leads, and say where each stands."""
    table = outbox_messages.c
    asked = select(table.id, table.state).where(table.id.in_(message_ids)).order_by(table.id)
    return {row.id: State(row.state) for row in conn.execute(asked.with_for_update())}


def empty_messages(
    conn: Connection, message_ids: Collection[int], *, who: str, now: datetime
) -> int:
    """Take the person out of these locked messages, as far as they came to their end.

    A message keeps its identity and its step. The recipient becomes a word of its own: the same
    for two messages, it would break the rule that a step goes to a number once.
    """
    table = outbox_messages.c
    emptied = conn.execute(
        update(outbox_messages)
        .where(table.id.in_(message_ids), table.state.in_(FINAL))
        .values(
            recipient=func.concat(f"{ERASED}:", table.id),
            content=None,
            body=None,
            reason=ERASED,
            updated_at=now,
        )
        .returning(table.id)
    )
    ids = list(emptied.scalars())
    conn.execute(
        update(send_attempts)
        .where(send_attempts.c.message_id.in_(ids))
        .values(detail=None, raw_request=null(), raw_response=null())
    )
    _empty_letters(conn, dead_letters.c.message_id.in_(ids), who=who, now=now)
    return len(ids)


def empty_events(conn: Connection, found: Sequence[KeptEvent], *, who: str, now: datetime) -> int:
    """Leave of these locked events only that they were: a replay of one is still known."""
    table = webhook_events.c
    ids = [event.id for event in found]
    emptied = conn.execute(
        update(webhook_events)
        .where(table.id.in_(ids))
        .values(
            contact=None,
            people=[],
            headers={},
            body=b"",
            state="done",
            result=ERASED,
            error=None,
            next_try_at=None,
            handled_at=func.coalesce(table.handled_at, now),
        )
    )
    _empty_letters(conn, dead_letters.c.event_id.in_(ids), who=who, now=now)
    return emptied.rowcount


def rename_events(conn: Connection, event_ids: Collection[int]) -> None:
    """Give events another key whose own one names the person; a replay is then news."""
    table = webhook_events.c
    renamed = update(webhook_events).where(table.id.in_(event_ids))
    conn.execute(renamed.values(event_key=func.concat(f"{ERASED}:", table.id)))


def _empty_letters(
    conn: Connection, about: ColumnElement[bool], *, who: str, now: datetime
) -> None:
    table = dead_letters.c
    is_open = table.resolved_at.is_(None)
    conn.execute(
        update(dead_letters)
        .where(about)
        .values(
            detail=ERASED,
            resolution=case((is_open, ERASED), else_=table.resolution),
            resolved_by=case((is_open, who), else_=table.resolved_by),
            resolved_at=func.coalesce(table.resolved_at, now),
        )
    )


@dataclass(frozen=True)
class Deleted:
    """How many rows are gone."""

    leads: int
    conversations: int
    messages: int


def delete_all(conn: Connection, person: Person) -> Deleted:
    """Delete every row that is about nobody else; the caller has locked the leads."""
    said = [row["id"] for row in log(conn, person)]
    talks = [row["id"] for row in conversations(conn, person)]
    lines = [(row["import_id"], row["line"]) for row in import_lines(conn, person)]
    line = tuple_(import_rows.c.import_id, import_rows.c.line)
    for gone in (
        delete(gold_communication_log).where(gold_communication_log.c.id.in_(said)),
        delete(whatsapp_conversations).where(whatsapp_conversations.c.id.in_(talks)),
        delete(early_deliveries).where(early_deliveries.c.external_id.in_(person.external_ids)),
        delete(import_rows).where(line.in_(lines)),
        delete(unread_chats).where(
            unread_chats.c.account.in_(_our_numbers(person.tenant_id)),
            person.found_in(unread_chats.c.contact),
        ),
        _noted_down(dispatch_items, person),
        _noted_down(dispatch_plans, person),
    ):
        conn.execute(gone)
    mine = gold_companies.c.id.in_(person.lead_ids)
    companies_gone = conn.execute(
        delete(gold_companies).where(gold_companies.c.tenant_id == person.tenant_id, mine)
    )
    return Deleted(companies_gone.rowcount, len(talks), len(said))


def _our_numbers(tenant_id: str) -> Select[Any]:
    phones = wa_phone_numbers.c
    return select(phones.phone_number).where(phones.tenant_id == tenant_id)


def _noted_down(scratch: Table, person: Person) -> Executable:
    """What a dispatch noted of them; nothing else is lost when it notes a stranger down again."""
    batches = select(dispatch_batches.c.id).where(dispatch_batches.c.tenant_id == person.tenant_id)
    theirs = or_(scratch.c.lead_id.in_(person.lead_ids), person.found_in(scratch.c.recipient))
    return delete(scratch).where(scratch.c.batch_id.in_(batches), theirs)
