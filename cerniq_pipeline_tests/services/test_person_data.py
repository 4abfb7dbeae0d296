"""A person's data: gone without a trace but the hashes, or all of it and nobody else's."""

from __future__ import annotations

import json
import stat
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine, text
from typer.testing import CliRunner, Result

from cerniq_pipeline.cli import app, context
from cerniq_pipeline.domain.events import WebhookReader
from cerniq_pipeline.domain.history import InboundCopy, RecentChat
from cerniq_pipeline.domain.outbox import LEGAL_MOVES, OutboxMessage, State
from cerniq_pipeline.errors import NotFound, SendUnconfirmed
from cerniq_pipeline.providers.instantly.webhooks import InstantlyWebhooks
from cerniq_pipeline.providers.meta.webhooks import MetaWebhooks
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline.services import person_data, recording
from cerniq_pipeline.services.claiming import Nothing
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.import_leads import ImportOptions, import_leads
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.services.person_data import Erased, erase, export, find
from cerniq_pipeline.store import histories, inbox
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.schema import metadata
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    ManualClock,
    Office,
    a_phone,
    a_world,
    an_office,
    beginning,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
    wait_until_somebody_waits_for_a_lock,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox
from cerniq_pipeline_tests.services.sample_files import write

OURS = "+40790000000"
NUMBER = "+40721000000"
COMPANY = "Brutăria Zorile SRL"
NAME = "Ioana Ștefănescu"
EMAIL = "ioana@zorile.ro"
CUI = "18547290"
REPLY = "Da, mă interesează făina de secară"
UNREAD = "Sunați-mă după prânz, vă rog"
TRACES = ("721000000", EMAIL, "zorile", "Zorile", "Ștefănescu", "Stefanescu", REPLY, UNREAD, CUI)
MINUTE = timedelta(minutes=1)
Servers = tuple[Engine, Redis, RunningSandbox]

READERS: dict[str, WebhookReader] = {
    "timelinesai": TimelinesAIWebhooks(("token",)),
    "meta": MetaWebhooks(("secret",)),
    "instantly": InstantlyWebhooks(("token",)),
}


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


# ── What is seeded, and what is looked for ────────────────────────────────────────────────────


def a_webhook(words: str, *, contact: str = NUMBER, name: str = NAME, account: str = OURS) -> bytes:
    """What TimelinesAI tells of a message that came in."""
    chat = {"full_name": name, "chat_id": int(contact[-4:]), "is_group": False, "phone": contact}
    body = {
        "event_type": "message:received:new",
        "chat": chat,
        "whatsapp_account": {"full_name": "Vânzări", "phone": account},
        "message": {
            "text": words,
            "direction": "received",
            "origin": "WhatsApp",
            "timestamp": "2026-11-18 12:01:00 +0200",
            "message_uid": str(uuid.uuid4()),
            "reply_to_uid": None,
            "sender": {"full_name": name, "phone": contact},
            "recipient": {"full_name": "Vânzări", "phone": account},
            "attachments": [],
        },
    }
    return json.dumps(body, ensure_ascii=False).encode()


def a_shared_webhook(*said: tuple[str, str, str], account: str = OURS) -> bytes:
    """What Meta tells of messages of several people in one body: (number, name, words)."""
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": account.lstrip("+"), "phone_number_id": "1065"},
        "contacts": [
            {"profile": {"name": name}, "wa_id": number.lstrip("+")} for number, name, _ in said
        ],
        "messages": [
            {
                "from": number.lstrip("+"),
                "id": f"wamid.{number}",
                "timestamp": "1795000000",
                "type": "text",
                "text": {"body": words},
            }
            for number, _, words in said
        ],
    }
    changes = [{"field": "messages", "value": value}]
    whole = {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": changes}]}
    return json.dumps(whole).encode()


def keep(database: Engine, body: bytes, *, provider: str = "timelinesai") -> int:
    """Keep a body as a sweep would; returns how many were new."""
    found = READERS[provider].envelope(body)
    copy = InboundCopy(
        provider, found.event_key, found.event_type, found.account or "", found.contact or "", body
    )
    with database.begin() as conn:
        return inbox.keep(conn, [copy], source="sweep", now=NOON)


def a_known_person(servers: Servers, **world: Any) -> Office:
    """A person who got a message, and whose company has all that a company can have."""
    database = servers[0]
    office = an_office(*servers, steps=(FIRST, SECOND), **world)
    run_sql(
        database,
        """
        UPDATE gold_companies
        SET denumire = :company, contact_principal_nume = :name, email_principal = :email,
            cui = :cui, custom = CAST(:custom AS jsonb), judet = 'Cluj'
        WHERE telefon_principal = :number
        """,
        company=COMPANY,
        name=NAME,
        email=EMAIL,
        cui=CUI,
        number=NUMBER,
        custom=json.dumps({"Al doilea telefon": "0721 000 000", "Șef": NAME}),
    )
    assert office.send() is State.SENT
    return office


def seed_everywhere(servers: Servers) -> Office:
    """A person in every table in which a person can be."""
    database, *_ = servers
    office = a_known_person(servers)
    keep(database, a_webhook(REPLY))
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    keep(database, a_webhook(UNREAD))
    sent = the_row(database, "SELECT id, lead_id FROM outbox_messages WHERE state = 'sent'")
    with database.begin() as conn:
        for state, kind in (("failed", "media"), ("parked", "media"), ("unconfirmed", "media")):
            message_id = conn.execute(
                text("""
                    INSERT INTO outbox_messages
                      (tenant_id, channel, kind, lead_id, phone_id, recipient, content, body, state,
                       reason, due_at, attempts, begun_at, fence, dedupe_key, planned_by)
                    VALUES ('acme', 'WHATSAPP', :kind, :lead, 'acme-01', :to, :words, :words,
                            :state, 'no chat with ' || :to, :now, 1, :now, 1, :state, 'test')
                    RETURNING id
                """),
                {
                    "kind": kind,
                    "lead": sent["lead_id"],
                    "to": NUMBER,
                    "words": f"Oferta pentru {COMPANY}",
                    "state": state,
                    "now": NOON,
                },
            ).scalar_one()
            conn.execute(
                text("""
                    INSERT INTO send_attempts
                      (message_id, n, phone_id, fence, begun_at, outcome, detail)
                    VALUES (:id, 1, 'acme-01', 1, :now, 'rejected', 'no chat with 0721000000')
                """),
                {"id": message_id, "now": NOON},
            )
            if state == "failed":
                conn.execute(
                    text("""
                        INSERT INTO dead_letters
                          (tenant_id, message_id, code, detail, review_required, at)
                        VALUES ('acme', :id, 'NO_CHAT', 'no chat with ' || :to, false, :now)
                    """),
                    {"id": message_id, "to": NUMBER, "now": NOON},
                )
        conn.execute(
            text("""
                INSERT INTO early_deliveries (channel, external_id, status, at, title, told_at)
                SELECT channel, external_id, 'read', :now, 'read by ' || CAST(:to AS text), :now
                FROM outbox_messages WHERE id = :id
            """),
            {"id": sent["id"], "to": NUMBER, "now": NOON},
        )
        import_id = conn.execute(
            text("""
                INSERT INTO imports (tenant_id, file_sha256, file_name, state)
                VALUES ('acme', 'half', 'leads.csv', 'reading') RETURNING id
            """)
        ).scalar_one()
        conn.execute(
            text("""
                INSERT INTO import_rows (import_id, line, denumire, telefon_principal, cui,
                                         contact_principal_nume, custom)
                VALUES (:i, 2, :company, :number, NULL, :name, '{}'),
                       (:i, 3, :company, NULL, :cui, :name, '{}'),
                       (:i, 4, 'Altcineva SRL', '+40733000000', NULL, 'Dan', '{}')
            """),
            {"i": import_id, "company": COMPANY, "number": NUMBER, "cui": CUI, "name": NAME},
        )
        event_id = conn.execute(
            text("""
                INSERT INTO webhook_events
                  (provider, event_key, event_type, account, contact, source, headers, body,
                   received_at, state, error)
                VALUES ('timelinesai', 'odd', 'odd', :ours, :to, 'webhook',
                        jsonb_build_object('x-from', CAST(:to AS text)),
                        convert_to('not json, from ' || :to, 'UTF8'), :now, 'dead', 'about ' || :to)
                RETURNING id
            """),
            {"ours": OURS, "to": NUMBER, "now": NOON},
        ).scalar_one()
        conn.execute(
            text("""
                INSERT INTO dead_letters (tenant_id, event_id, code, detail, review_required, at)
                VALUES ('acme', :id, 'UNREADABLE_WEBHOOK', 'about ' || :to, true, :now)
            """),
            {"id": event_id, "to": NUMBER, "now": NOON},
        )
        conn.execute(
            text("""
                INSERT INTO dispatch_plans (batch_id, position, lead_id, recipient, step)
                SELECT id, 99, gen_random_uuid(), :to, 1 FROM dispatch_batches LIMIT 1
            """),
            {"to": "0721 000 000"},
        )
    mail = {
        "event_type": "reply_received",
        "timestamp": "2026-11-18T10:00:00Z",
        "lead_email": "Ioana@Zorile.ro",
        "email_id": "m-1",
        "reply_text": REPLY,
    }
    keep(database, json.dumps(mail, ensure_ascii=False).encode(), provider="instantly")
    with database.begin() as conn:
        chat = RecentChat("7", OURS, NUMBER, NOON)
        histories.note_chats(conn, "timelinesai", [chat], since=NOON, now=NOON)
    return office


def traces_of_the_person(database: Engine, traces: tuple[str, ...] = TRACES) -> dict[str, set[str]]:
    """The tables in which one of these words stands, in any column, also within raw bytes."""
    found: dict[str, set[str]] = {}
    with database.connect() as conn:
        for table in metadata.sorted_tables:
            for row in conn.execute(text(f"SELECT t::text FROM {table.name} t")).scalars():
                for word in traces:
                    if word in row or word.encode().hex() in row:
                        found.setdefault(table.name, set()).add(word)
    return found


def forget(
    database: Engine,
    subject: object = NUMBER,
    *,
    tenant_id: str | None = None,
    begin: Begin | None = None,
    clock: ManualClock | None = None,
) -> Erased:
    begin = begin or database.begin
    person = find(database.begin, str(subject), tenant_id=tenant_id, secret=SECRET)
    return erase(
        begin,
        person,
        readers=READERS,
        secret=SECRET,
        reason="erased on request",
        who="ana",
        clock=clock or ManualClock(),
    )


def show(database: Engine, subject: object = NUMBER, **where: str) -> dict[str, Any]:
    person = find(database.begin, str(subject), tenant_id=where.get("tenant_id"), secret=SECRET)
    return export(database.begin, person, readers=READERS, secret=SECRET, clock=ManualClock())


# ── Gone ──────────────────────────────────────────────────────────────────────────────────────

HOLD_A_PERSON = {
    *("gold_companies", "outbox_messages", "send_attempts", "gold_communication_log"),
    *("whatsapp_conversations", "dead_letters", "webhook_events", "early_deliveries"),
    *("import_rows", "dispatch_items", "dispatch_plans", "unread_chats"),
}


def test_nothing_of_a_person_is_left_in_any_table(servers: Servers):
    database, *_ = servers
    seed_everywhere(servers)
    assert traces_of_the_person(database).keys() == HOLD_A_PERSON
    erased = forget(database)
    assert traces_of_the_person(database) == {}
    assert erased.is_complete
    assert (erased.leads, erased.conversations, erased.events) == (1, 1, 4)
    kept = rows(database, "SELECT denumire FROM import_rows")
    assert kept == [{"denumire": "Altcineva SRL"}]


def test_what_guards_a_promise_stays(servers: Servers):
    database, *_ = servers
    seed_everywhere(servers)
    identity = "SELECT id, lead_id, sequence_id, step, dedupe_key, external_id FROM outbox_messages"
    counted = "SELECT * FROM quota_ledger"
    asked = "SELECT provider, event_key FROM webhook_events WHERE provider <> 'instantly'"
    before = [rows(database, f"{sql} ORDER BY 1, 2") for sql in (identity, counted, asked)]
    forget(database)
    assert [rows(database, f"{sql} ORDER BY 1, 2") for sql in (identity, counted, asked)] == before
    events = rows(database, "SELECT DISTINCT state, result, body, headers FROM webhook_events")
    assert events == [{"state": "done", "result": "erased", "body": b"", "headers": {}}]
    recipients = rows(database, "SELECT id, recipient, body, content FROM outbox_messages")
    assert all(row["recipient"] == f"erased:{row['id']}" for row in recipients)
    letters = rows(database, "SELECT detail, resolution, resolved_by FROM dead_letters")
    assert letters == [{"detail": "erased", "resolution": "erased", "resolved_by": "ana"}] * 2


def test_every_message_comes_to_its_end_by_legal_moves(servers: Servers):
    database, *_ = servers
    office = seed_everywhere(servers)
    last = rows(database, "SELECT id, state FROM outbox_messages ORDER BY id")
    assert {row["state"] for row in last} == {
        *("sent", "cancelled", "failed", "parked", "unconfirmed")
    }
    moves_before = rows(database, "SELECT max(id) AS id FROM outbox_changes")[0]["id"]
    forget(database)
    assert set(states(database)) == {"sent", "cancelled", "failed"}
    moves = rows(
        database,
        "SELECT from_state, to_state FROM outbox_changes WHERE id > :id ORDER BY id",
        id=moves_before,
    )
    assert len(moves) == 3
    for move in moves:
        assert State(str(move["to_state"])) in LEGAL_MOVES[State(str(move["from_state"]))]
        assert move["to_state"] != "planned"
    office.wait(10 * MINUTE)
    assert office.claim() == Nothing(None)


@pytest.mark.parametrize("state", ["planned", "deferred", "unconfirmed", "parked"])
def test_what_had_not_ended_is_cancelled(servers: Servers, state: str):
    database, _, sandbox = servers
    office = an_office(*servers)
    run_sql(database, "UPDATE outbox_messages SET state = :s, begun_at = :n", s=state, n=NOON)
    assert forget(database).cancelled == 1
    assert states(database) == {"cancelled": 1}
    assert office.claim() == Nothing(None)
    assert sandbox.journal("request") == []


def test_a_replay_or_a_sweep_does_not_bring_the_words_back(servers: Servers):
    database, *_ = servers
    office = a_known_person(servers)
    body = a_webhook(REPLY)
    keep(database, body)
    handle_waiting(office.desk, READERS)
    forget(database)
    assert keep(database, body) == 0
    assert handle_waiting(office.desk, READERS) == {}
    assert traces_of_the_person(database) == {}


def test_a_reply_that_nobody_has_read_goes_too(servers: Servers):
    database, *_ = servers
    office = a_known_person(servers)
    keep(database, a_webhook(UNREAD))
    forget(database)
    assert handle_waiting(office.desk, READERS) == {}
    assert traces_of_the_person(database) == {}


def test_who_is_imported_again_after_the_erasure_gets_nothing(servers: Servers, tmp_path: Path):
    database, _, sandbox = servers
    office = a_known_person(servers)
    forget(database)
    summary = import_leads(
        database,
        write(
            tmp_path / "leads.csv",
            "Alt nume SRL;;0721 000 000;",
            "Altă firmă;;0733000001;IOANA@zorile.ro",
            f"A treia;RO{CUI};0733000002;",
        ),
        tenant_id="acme",
        options=ImportOptions(),
        secret=SECRET,
        now=NOON,
        progress=lambda done, total: None,
    )
    assert (summary.new, summary.suppressed) == (3, 3)
    run_sql(
        database,
        """
        UPDATE gold_lead_journey SET lawful_basis = 'consent', lawful_basis_source = 'form',
                                     lawful_basis_at = :now
        """,
        now=NOON,
    )
    office.wait(MINUTE)
    assert dispatch(database, now=office.clock.now()) == (0, 0)
    assert office.claim() == Nothing(None)
    assert len(sandbox.accepted()) == 1  # the one from before


def test_who_is_written_into_the_tables_by_others_gets_nothing_and_can_be_erased_again(
    servers: Servers,
):
    database, _, sandbox = servers
    office = a_known_person(servers)
    forget(database)
    with database.begin() as conn:
        some_leads(conn)  # the same number, behind our back
    assert dispatch(database, secret=b"another") == (1, 0)  # as if it had been planned before
    office.wait(10 * MINUTE)
    assert office.claim() == Nothing(None)
    assert forget(database).leads == 1
    assert traces_of_the_person(database) == {}
    assert len(sandbox.accepted()) == 1


@pytest.mark.parametrize(
    "subject",
    [
        *("0721000000", "+40 721 000 000", "0040721000000", "0721.000.000", "40721000000"),
        *("ioana@zorile.ro", " IOANA@Zorile.ro "),
        *("18547290", "RO18547290", "RO 18547290"),
    ],
)
def test_a_person_is_found_by_every_spelling(servers: Servers, subject: str):
    database, *_ = servers
    a_known_person(servers)
    forget(database, subject)
    assert traces_of_the_person(database) == {}
    assert forget(database, subject).leads == 0  # a second time does no harm


def test_a_person_is_found_by_a_leads_id_also_when_it_is_gone(servers: Servers):
    database, *_ = servers
    a_known_person(servers)
    lead_id = the_row(database, "SELECT id FROM gold_companies")["id"]
    assert forget(database, lead_id).leads == 1
    assert forget(database, lead_id).leads == 0
    assert traces_of_the_person(database) == {}


def test_all_leads_of_a_person_go_together_and_others_stay(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, email_principal="ana@firma.ro")
        some_leads(conn, first=1, email_principal="ANA@firma.ro")
        (spelt,) = some_leads(conn, first=2)
        some_leads(conn, first=3, email_principal="ion@alta.ro")
        conn.execute(
            text("UPDATE gold_companies SET telefon_principal = '0721 000 000' WHERE id = :id"),
            {"id": spelt},
        )
    dispatch(database)
    person = find(database.begin, NUMBER, tenant_id=None, secret=SECRET)
    assert person.companies == ("Firma 0", "Firma 1", "Firma 2")
    assert forget(database).leads == 3
    assert rows(database, "SELECT denumire FROM gold_companies") == [{"denumire": "Firma 3"}]
    left = the_row(database, "SELECT state, recipient FROM outbox_messages WHERE state = 'planned'")
    assert left["recipient"] == "+40721000003"


def test_a_message_to_the_number_goes_also_when_its_lead_has_another_by_now(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    dispatch(database)
    run_sql(database, "UPDATE gold_companies SET telefon_principal = '+40733000000'")
    assert forget(database).leads == 0
    assert traces_of_the_person(database, ("721000000",)) == {}
    assert states(database) == {"cancelled": 1}
    lead = the_row(database, "SELECT open_message, hold_reason FROM gold_lead_journey")
    assert lead == {"open_message": False, "hold_reason": "opted_out"}


def test_somebody_who_only_wrote_to_us_is_erased_too(servers: Servers):
    database, *_ = servers
    office = an_office(*servers)
    stranger = "+40755000111"
    keep(database, a_webhook("Cine sunteți?", contact=stranger, name="Radu Necunoscutul"))
    handle_waiting(office.desk, READERS)
    traces = ("755000111", "Necunoscutul", "Cine sunteți?")
    assert traces_of_the_person(database, traces).keys() >= {
        *("whatsapp_conversations", "gold_communication_log", "webhook_events")
    }
    erased = forget(database, "0755 000 111")
    assert (erased.leads, erased.conversations, erased.logged) == (0, 1, 1)
    assert traces_of_the_person(database, traces) == {}
    assert states(database) == {"planned": 1}  # nobody else's


def test_somebody_whom_nobody_knows_is_not_found(database: Engine):
    with database.begin() as conn:
        a_world(conn)
    for subject in ("+40755000111", "x@y.ro", str(uuid.uuid4()), "18547290", "nobody"):
        with pytest.raises(NotFound, match="nothing is held"):
            forget(database, subject)
    with pytest.raises(NotFound, match="acme"):
        forget(database, tenant_id="none")


# ── Whose data it is ──────────────────────────────────────────────────────────────────────────


def two_tenants(servers: Servers) -> Office:
    """The same person at two tenants, each with its own phone, message and reply."""
    database, *_ = servers
    office = a_known_person(servers)
    with database.begin() as conn:
        a_world(conn, tenant_id="beta", phones=0)
        a_phone(conn, "beta", "beta-01", number="+40791000001")
        some_leads(conn, "beta", email_principal=EMAIL, contact_principal_nume="secret al beta")
    assert dispatch(database, tenant_id="beta") == (1, 0)
    keep(database, a_webhook(REPLY))
    keep(database, a_webhook("numai pentru beta", account="+40791000001"))
    assert handle_waiting(office.desk, READERS) == {"done": 2}
    return office


def test_a_subject_of_two_tenants_needs_a_tenant(servers: Servers):
    two_tenants(servers)
    with pytest.raises(NotFound, match="acme, beta; name one"):
        forget(servers[0])


def test_another_tenants_data_are_not_touched(servers: Servers):
    database, *_ = servers
    two_tenants(servers)
    beta = "SELECT * FROM {} WHERE tenant_id = 'beta' ORDER BY id"
    tables = ("gold_companies", "outbox_messages", "gold_communication_log")
    before = [rows(database, beta.format(table)) for table in tables]
    forget(database, tenant_id="acme")
    assert [rows(database, beta.format(table)) for table in tables] == before
    assert all(before)
    bodies = rows(database, "SELECT account, body <> '' AS is_there FROM webhook_events ORDER BY 1")
    assert bodies == [
        {"account": OURS, "is_there": False},
        {"account": "+40791000001", "is_there": True},
    ]


def test_a_body_that_is_also_about_others_waits_until_it_is_handled(servers: Servers):
    database, *_ = servers
    office = a_known_person(servers)
    body = a_shared_webhook(("+40733000000", "Dan", "Salut, sunt Dan"), (NUMBER, NAME, REPLY))
    keep(database, body, provider="meta")
    erased = forget(database)
    assert (erased.left_events, erased.is_complete) == (1, False)
    assert handle_waiting(office.desk, READERS) == {"done": 1}  # Dan is heard
    assert forget(database).is_complete
    assert traces_of_the_person(database) == {}
    said = rows(database, "SELECT content FROM gold_communication_log")
    assert said == [{"content": "Salut, sunt Dan"}]


def test_who_only_mentions_a_number_keeps_their_words(servers: Servers):
    database, *_ = servers
    office = a_known_person(servers)
    words = "Sunați la 0721000000"
    keep(database, a_webhook(words, contact="+40733000000", name="Dan"))
    forget(database)
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    assert the_row(database, "SELECT content FROM gold_communication_log") == {"content": words}


# ── Races ─────────────────────────────────────────────────────────────────────────────────────


class WatchedClock(ManualClock):
    """Says when somebody begins to wait, and wakes them when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = threading.Event()
        self.wake = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.asleep.set()
        assert self.wake.wait(30)
        super().sleep(seconds)


def test_a_message_in_flight_goes_out_is_counted_and_leaves_no_trace(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    run_sql(database, "UPDATE gold_companies SET denumire = :n", n=COMPANY)
    message = office.claimed()
    clock = WatchedClock()
    results: list[Erased] = []
    erasing = threading.Thread(target=lambda: results.append(forget(database, clock=clock)))
    erasing.start()
    assert clock.asleep.wait(30)  # the lead is gone by now, and the message still flies
    assert rows(database, "SELECT 1 FROM gold_companies") == []
    assert office.send(message) is State.SENT
    clock.wake.set()
    erasing.join()
    assert results[0].is_complete
    assert states(database) == {"sent": 1}
    assert traces_of_the_person(database) == {}
    assert len(sandbox.accepted()) == 1
    assert the_row(database, "SELECT state FROM quota_ledger") == {"state": "committed"}


@pytest.mark.parametrize("ends", ["unconfirmed", "deferred"])
def test_a_message_in_flight_that_ends_badly_is_never_tried_again(servers: Servers, ends: str):
    database, _, sandbox = servers
    office = an_office(*servers)
    message = office.claimed()
    clock = WatchedClock()
    results: list[Erased] = []
    erasing = threading.Thread(target=lambda: results.append(forget(database, clock=clock)))
    erasing.start()
    assert clock.asleep.wait(30)
    if ends == "unconfirmed":
        silence = SendUnconfirmed("TIMEOUT", "nothing came")
        assert recording.record(office.desk, message, silence, who="test") is State.UNCONFIRMED
    else:
        run_sql(database, "UPDATE outbox_messages SET state = 'deferred'")
    clock.wake.set()
    erasing.join()
    assert results[0].is_complete
    assert states(database) == {"cancelled": 1}
    assert traces_of_the_person(database) == {}
    office.wait(10 * MINUTE)
    assert office.claim() == Nothing(None)
    assert sandbox.journal("request") == []


def test_a_message_that_hangs_is_told_and_finished_by_the_next_erasure(servers: Servers):
    database, *_ = servers
    office = an_office(*servers)
    message = office.claimed()
    erased = forget(database)
    assert (erased.in_flight, erased.is_complete) == ((message.id,), False)
    run_sql(database, "UPDATE outbox_messages SET state = 'unconfirmed'")
    assert forget(database).is_complete
    assert states(database) == {"cancelled": 1}
    assert traces_of_the_person(database) == {}


def test_a_claim_that_meets_an_erasure_waits_for_it_and_sends_nothing(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    claimed: list[object] = []
    claiming = threading.Thread(target=lambda: claimed.append(office.claim()))

    def let_the_claim_come() -> None:
        if not claiming.is_alive() and not claimed and erasing:
            claiming.start()
            wait_until_somebody_waits_for_a_lock(database)

    erasing: list[bool] = []
    begin = beginning(database, let_the_claim_come)
    person = find(database.begin, NUMBER, tenant_id=None, secret=SECRET)

    def honoured(*args: Any, **kwargs: Any) -> int:
        erasing.append(True)  # only the transaction that erases holds the locks
        return real(*args, **kwargs)

    real = person_data.honour
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(person_data, "honour", honoured)
        erase(
            begin,
            person,
            readers=READERS,
            secret=SECRET,
            reason="erased on request",
            who="ana",
            clock=ManualClock(),
        )
    claiming.join()
    assert claimed == [Nothing(None)]
    assert states(database) == {"cancelled": 1}
    assert sandbox.journal("request") == []


def test_claims_and_erasures_at_once_never_both_win(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=10, gap_least_seconds=0, gap_spread_seconds=0)
    numbers = rows(database, "SELECT recipient FROM outbox_messages ORDER BY id")
    for row in numbers:
        ready = threading.Barrier(2)
        erased: list[Erased] = []

        def say_erase(
            ready: threading.Barrier = ready,
            erased: list[Erased] = erased,
            number: object = row["recipient"],
        ) -> None:
            ready.wait()
            erased.append(forget(database, number))

        run_sql(
            database,
            """
            UPDATE outbox_messages SET due_at = CASE recipient WHEN :to THEN :now ELSE :later END
            WHERE state = 'planned'
            """,
            to=row["recipient"],
            now=NOON,
            later=NOON + timedelta(days=1),
        )
        erasing = threading.Thread(target=say_erase)
        erasing.start()
        ready.wait()
        claimed = office.claim()
        if isinstance(claimed, OutboxMessage):
            assert office.send(claimed) is State.SENT
        erasing.join()
        assert forget(database, row["recipient"]).is_complete
    assert set(states(database)) <= {"sent", "cancelled"}
    assert len(sandbox.accepted()) == states(database).get("sent", 0)
    assert rows(database, "SELECT 1 FROM gold_companies") == []
    assert traces_of_the_person(database, ("+4072100",)) == {}


def test_replies_that_are_heard_while_their_person_is_erased_leave_nothing_behind(
    servers: Servers,
):
    database, *_ = servers
    office = a_known_person(servers)
    for n in range(8):
        keep(database, a_webhook(f"{REPLY} {n}"))
    ready = threading.Barrier(2)

    def hear() -> None:
        ready.wait()
        while handle_waiting(office.desk, READERS):
            pass

    hearing = threading.Thread(target=hear)
    hearing.start()
    ready.wait()
    forget(database)
    hearing.join()
    assert traces_of_the_person(database) == {}
    assert rows(database, "SELECT 1 FROM webhook_events WHERE state <> 'done'") == []


# ── Shown ─────────────────────────────────────────────────────────────────────────────────────


def test_everything_about_a_person_is_in_one_document(servers: Servers):
    database, *_ = servers
    seed_everywhere(servers)
    lead_id = the_row(database, "SELECT id FROM gold_companies")["id"]
    assert isinstance(lead_id, uuid.UUID)
    opt_out(
        database.begin, tenant_id="acme", lead_id=lead_id, secret=SECRET, reason="STOP", now=NOON
    )
    shown = show(database)
    assert shown["companies"][0]["contact_principal_nume"] == NAME
    assert shown["companies"][0]["custom"]["Șef"] == NAME
    assert shown["journeys"][0]["lawful_basis"] == {
        "basis": "consent",
        "source": "test",
        "at": "2026-11-18T09:00:00+00:00",
    }
    (talk,) = shown["conversations"]
    assert [one["direction"] for one in talk["messages"]] == ["OUTBOUND", "INBOUND"]
    assert talk["messages"][1]["content"] == REPLY
    assert {one["state"] for one in shown["outbox"]} >= {"sent", "failed", "parked"}
    assert shown["outbox"][0]["attempts"][0]["outcome"] == "sent"
    assert shown["stage_changes"][-1]["to_stage"] == "DEAD"
    assert {(one["of"], one["scope"]) for one in shown["suppressions"]} == {
        (NUMBER, "person"),
        (EMAIL, "person"),
        (f"CUI {CUI}", "company"),
    }
    assert any(REPLY in (one["body"] or "") for one in shown["events"])
    assert len(shown["dead_letters"]) == 2
    assert [row["line"] for row in shown["unfinished_imports"]] == [2, 3]
    assert json.dumps(shown, sort_keys=False) == json.dumps(show(database))


def test_nobody_elses_data_are_in_the_document(servers: Servers):
    database, *_ = servers
    office = two_tenants(servers)
    with database.begin() as conn:
        some_leads(conn, first=7, email_principal="dan@alta.ro")
    keep(database, a_webhook("Eu sunt Dan", contact="+40721000007", name="Dan Altul"))
    keep(
        database,
        a_shared_webhook(("+40721000007", "Dan Altul", "Tot Dan"), (NUMBER, NAME, "Eu, Ioana")),
        provider="meta",
    )
    handle_waiting(office.desk, READERS)
    shown = json.dumps(show(database, tenant_id="acme"), ensure_ascii=False)
    assert REPLY in shown
    assert "Eu, Ioana" in shown
    for others in ("Dan", "0007", "alta.ro", "beta", "40791000001"):
        assert others not in shown, shown[max(0, shown.find(others) - 90) :][:200]


def test_an_erased_person_is_shown_by_nothing_but_the_stop(servers: Servers):
    database, *_ = servers
    seed_everywhere(servers)
    forget(database)
    shown = show(database)
    assert [(one["of"], one["reason"]) for one in shown["suppressions"]] == [
        (NUMBER, "erased on request")
    ]
    filled = {name for name, value in shown.items() if value and isinstance(value, list)}
    assert filled == {"suppressions"}


# ── At the terminal ───────────────────────────────────────────────────────────────────────────

Cerniq = Callable[..., Result]


@pytest.fixture
def cerniq(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cerniq]:
    """Run a command as a person called ana would, pointed at this test's database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", "unix:///nowhere")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", SECRET.decode())
    monkeypatch.setenv("LOGNAME", "ana")

    def forget_settings() -> None:
        for cached in (context.settings, context.engine, context.clock):
            cached.cache_clear()

    def invoke(*words: str, answer: str = "") -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, list(words), input=answer)

    forget_settings()
    yield invoke
    context.engine().dispose()
    forget_settings()


@pytest.fixture
def firm(database: Engine) -> Engine:
    """A tenant with one lead that has a planned message."""
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, contact_principal_nume=NAME, cui=CUI)
    dispatch(database)
    return database


def test_the_command_says_who_is_meant_and_asks(cerniq: Cerniq, firm: Engine):
    refused = cerniq("erase", "0721000000", answer="n\n")
    assert refused.exit_code == 1
    assert "Firma 0" in refused.output
    assert len(rows(firm, "SELECT 1 FROM gold_companies")) == 1
    done = cerniq("erase", "0721000000", answer="y\n")
    assert done.exit_code == 0, done.output
    assert "1 leads" in done.output
    assert traces_of_the_person(firm, ("721000000", NAME)) == {}


def test_the_command_prints_json_when_it_need_not_ask(cerniq: Cerniq, firm: Engine):
    assert cerniq("erase", NUMBER, "--json").exit_code == 2
    done = cerniq("erase", NUMBER, "--json", "--yes", "--reason", "letter of 3 May")
    told = json.loads(done.stdout)
    assert (told["leads"], told["cancelled"], told["complete"]) == (1, 1, True)
    kept = the_row(firm, "SELECT DISTINCT reason FROM suppressions")
    assert kept == {"reason": "letter of 3 May"}


def test_an_erasure_that_must_be_repeated_has_an_exit_status_of_its_own(
    cerniq: Cerniq, firm: Engine
):
    body = a_shared_webhook(("+40733000000", "Dan", "Salut"), (NUMBER, NAME, REPLY))
    keep(firm, body, provider="meta")
    assert cerniq("erase", NUMBER, "--yes").exit_code == 3


def test_the_document_is_for_its_owner_and_overwrites_nothing(
    cerniq: Cerniq, firm: Engine, tmp_path: Path
):
    done = cerniq("export", "RO18547290", "--out", "ioana.json")
    assert done.exit_code == 0, done.output
    path = tmp_path / "ioana.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert NAME in path.read_text(encoding="utf-8")
    before = path.read_bytes()
    assert cerniq("export", NUMBER, "--out", "ioana.json").exit_code == 2
    assert cerniq("export", NUMBER, "--out", "no/such/folder.json").exit_code == 2
    assert path.read_bytes() == before
    printed = json.loads(cerniq("export", NUMBER).stdout)
    assert printed["companies"] == json.loads(before)["companies"]
