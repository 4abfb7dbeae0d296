"""The inbox, the dead events and the stages of leads at the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cerniq_pipeline.cli import app, context
from cerniq_pipeline.cli.letters import masked
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.errors import IllegalMove, NotFound
from cerniq_pipeline.services.dead_letters import bury_event
from cerniq_pipeline.store import alerts, inbox, leads
from cerniq_pipeline_tests.builders import (
    NOON,
    a_world,
    dispatch,
    rows,
    run_sql,
    some_leads,
    the_row,
)

OURS, THEIRS = "+40790000000", "+40721000123"
MASKED = "+40*****123"

Cerniq = Callable[..., Result]


@pytest.fixture
def cerniq(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cerniq]:
    """Run a command as a person called ana would, pointed at this test's database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", "unix:///nowhere")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "a key of the tests")
    monkeypatch.setenv("LOGNAME", "ana")
    # Whatever the terminal of whoever runs this: a table is read here in whole lines.
    monkeypatch.setattr(context.console, "_width", 250)

    def forget() -> None:
        for cached in (context.settings, context.engine, context.clock):
            cached.cache_clear()

    def invoke(*words: object) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words])

    forget()
    yield invoke
    context.engine().dispose()
    forget()


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def an_event(database: Engine, key: str = "a", *, body: bytes = b"{}", kind: str = "new") -> int:
    copy = InboundCopy("timelinesai", key, kind, OURS, THEIRS, body)
    with database.begin() as conn:
        inbox.keep(conn, [copy], source="webhook", now=NOON)
    return int(str(rows(database, "SELECT max(id) AS id FROM webhook_events")[0]["id"]))


def die(database: Engine, event_id: int) -> int:
    """Give an event up; returns its letter."""
    with database.begin() as conn:
        assert inbox.give_up(
            conn, event_id, error="UNHANDLED_EVENT: as [it] was", now=NOON, source="webhook"
        )
        bury_event(
            conn,
            event_id=event_id,
            tenant_id=None,
            code="UNHANDLED_EVENT",
            detail="as [it] was",
            now=NOON,
        )
    return int(str(rows(database, "SELECT max(id) AS id FROM dead_letters")[0]["id"]))


def a_lead(database: Engine) -> UUID:
    with database.begin() as conn:
        a_world(conn)
        (lead_id,) = some_leads(conn)
    return lead_id


# ── Events ────────────────────────────────────────────────────────────────────────────────────


def test_inbox_lists_events_newest_first_with_what_became_of_them(cerniq: Cerniq, database: Engine):
    assert cerniq("inbox", "list").stdout.strip() == "no event is stored"
    with database.begin() as conn:
        a_world(conn)
    first, second, third = (an_event(database, key) for key in "abc")
    with database.begin() as conn:
        inbox.finish(conn, {first: "message_received of [nobody]"}, now=NOON)
    die(database, second)

    listed = read(cerniq("inbox", "list", "--json"))
    assert [(event["id"], event["state"]) for event in listed] == [
        (third, "waiting"),
        (second, "dead"),
        (first, "done"),
    ]
    assert (listed[0]["contact"], listed[0]["phone_id"]) == (THEIRS, "acme-01")
    assert [e["id"] for e in read(cerniq("inbox", "list", "--state", "dead", "--json"))] == [second]
    assert [e["id"] for e in read(cerniq("inbox", "list", "--limit", 1, "--json"))] == [third]
    words = cerniq("inbox", "list").stdout
    assert MASKED in words
    assert THEIRS not in words
    assert "message_received of [nobody]" in words
    assert "UNHANDLED_EVENT: as [it] was" in words
    assert cerniq("inbox", "list", "--state", "lost").exit_code == 2


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('{"text": "Bună [b]ziua[/b]"}'.encode(), '{\n  "text": "Bună [b]ziua[/b]"\n}'),
        (b"MessageSid=SM1&Body=Da", "MessageSid=SM1&Body=Da"),
        (b"\xff\x00 not \x1b[31mtext", "\\xff\\u0000 not \\u001b[31mtext"),
        (b'{"text": "\\ud800 \\u001b[2J"}', '{\n  "text": "\\ud800 \\u001b[2J"\n}'),
        (b"[" * 100_000, "[" * 100),
        (b"", ""),
    ],
)
def test_inbox_shows_an_event_whatever_its_body_is(
    cerniq: Cerniq, database: Engine, body: bytes, shown: str
):
    event_id = an_event(database, body=body)
    die(database, event_id)
    result = cerniq("inbox", "show", event_id)
    assert result.exit_code == 0, result.output
    assert shown in result.stdout
    assert "\x1b" not in result.stdout
    assert "tries        1" in result.stdout
    assert "UNHANDLED_EVENT: as [it] was" in result.stdout
    seen = read(cerniq("inbox", "show", event_id, "--json"))
    assert (seen["id"], seen["tries"], seen["contact"]) == (event_id, 1, THEIRS)
    assert isinstance(seen["body"], str)


def test_inbox_show_says_that_there_is_no_such_event(cerniq: Cerniq):
    assert isinstance(cerniq("inbox", "show", 77).exception, NotFound)


def test_inbox_lists_what_people_wrote_who_belong_to_no_lead(cerniq: Cerniq, database: Engine):
    assert cerniq("inbox", "list", "--unknown").stdout.strip() == "nobody unknown wrote"
    lead_id = a_lead(database)
    for n, (direction, lead) in enumerate(
        [("INBOUND", None), ("INBOUND", lead_id), ("OUTBOUND", None)]
    ):
        run_sql(
            database,
            """
            INSERT INTO gold_communication_log
              (tenant_id, lead_journey_id, channel, direction, contact, content, phone_id, status,
               sent_at)
            VALUES ('acme', :lead, 'WHATSAPP', :way, :who, :said, 'acme-01', 'RECEIVED', :at)
            """,
            lead=lead,
            way=direction,
            who=THEIRS,
            said=f"Cine [{n}]\x1b[2J sunteți?",
            at=NOON,
        )
    (listed,) = read(cerniq("inbox", "list", "--unknown", "--json"))
    assert (listed["contact"], listed["tenant_id"]) == (THEIRS, "acme")
    assert listed["text"] == "Cine [0]\x1b[2J sunteți?"
    words = cerniq("inbox", "list", "--unknown").stdout
    assert "Cine [0]\\u001b[2J sunteți?" in words
    assert MASKED in words
    assert THEIRS not in words
    assert cerniq("inbox", "list", "--unknown", "--state", "done").exit_code == 2


@pytest.mark.parametrize(
    ("contact", "shown"),
    [
        (THEIRS, MASKED),
        ("40721000123@s.whatsapp.net", "40*****123@s.whatsapp.net"),
        ("ana.pop@firma.ro", "a***@firma.ro"),
        (None, ""),
    ],
)
def test_a_contact_is_shown_with_its_middle_hidden(contact: str | None, shown: str):
    assert masked(contact) == shown


# ── Dead events ───────────────────────────────────────────────────────────────────────────────


def test_dlq_lists_events_beside_messages(cerniq: Cerniq, database: Engine):
    letter = die(database, an_event(database, kind="message:[received]"))
    (listed,) = read(cerniq("dlq", "list", "--json"))
    kept = {"id", "tenant_id", "code", "detail", "review_required", "at", "message_id"}
    kept |= {"company", "phone_id", "step", "attempts"}
    assert kept <= set(listed)
    assert (listed["id"], listed["kind"], listed["provider"]) == (letter, "event", "timelinesai")
    assert listed["contact"] == THEIRS
    words = cerniq("dlq", "list").stdout
    assert "timelinesai message:[received]" in words
    assert MASKED in words
    assert THEIRS not in words


def test_dlq_puts_an_event_back_or_drops_it(cerniq: Cerniq, database: Engine):
    first = die(database, an_event(database))
    refused = cerniq("dlq", "retry", first)
    assert refused.exit_code == 2
    assert "UNHANDLED_EVENT must be looked at first" in refused.stderr
    assert f"letter {first}: put back into the inbox" in (
        cerniq("dlq", "retry", first, "--reviewed").stdout
    )
    second = die(database, an_event(database, "b"))
    assert cerniq("dlq", "drop", second, "--reason", "spam").exit_code == 0
    events = rows(database, "SELECT state, result FROM webhook_events ORDER BY id")
    assert events == [
        {"state": "waiting", "result": None},
        {"state": "done", "result": "dropped by ana: spam"},
    ]
    assert cerniq("dlq", "list").stdout.strip() == "no dead letter waits"


# ── Status ────────────────────────────────────────────────────────────────────────────────────


def test_status_counts_reviews_by_priority_and_the_inbox(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn)
        a_world(conn, tenant_id="beta", phones=0)
        ids = some_leads(conn, count=4)
        some_leads(conn, "beta", first=50)
        alerts.open_once(
            conn, tenant_id=None, kind="inbox_stuck", subject="meta", detail="[old]", now=NOON
        )
    for lead_id, priority in zip(ids, ["LOW", "URGENT", None, "URGENT"], strict=True):
        run_sql(
            database,
            """
            UPDATE gold_lead_journey
            SET requires_human_review = true, human_review_priority = :p WHERE lead_id = :lead
            """,
            p=priority,
            lead=lead_id,
        )
    an_event(database)
    seen = read(cerniq("status", "--json"))
    assert list(seen["reviews"].items()) == [("URGENT", 2), ("MEDIUM", 1), ("LOW", 1)]
    assert seen["inbox"] == {"waiting": 1}
    assert seen["inbox_waiting_since"].startswith("2026-11-18T10:00")
    of_beta = read(cerniq("status", "--tenant", "beta", "--json"))
    assert (of_beta["reviews"], of_beta["inbox"]) == ({}, {})
    assert [alert["kind"] for alert in of_beta["alerts"]] == ["inbox_stuck"]
    words = cerniq("status").stdout
    assert "Inbox" in words
    assert "URGENT" in words
    assert "[old]" in words


# ── Stages ────────────────────────────────────────────────────────────────────────────────────


def test_stage_moves_a_lead_and_shows_its_way(cerniq: Cerniq, database: Engine):
    lead_id = a_lead(database)
    assert dispatch(database) == (1, 0)
    moved = cerniq("stage", lead_id, "paused", "--why", "on [holiday]")
    assert moved.stdout.strip() == (f"lead {lead_id}: from COLD to PAUSED; messages cancelled: 1")
    back = read(cerniq("stage", lead_id, "COLD", "--why", "is back", "--by", "dan", "--json"))
    assert (back["stage"], back["to"], back["cancelled"]) == ("PAUSED", "COLD", 0)
    assert back["goes_on_at"] is not None
    assert "it is in COLD already" in cerniq("stage", lead_id, "COLD", "--why", "x").stdout
    seen = read(cerniq("stage", lead_id, "--json"))
    assert [(c["from_stage"], c["to_stage"], c["who"], c["why"]) for c in seen["changes"]] == [
        ("PAUSED", "COLD", "dan", "is back"),
        ("COLD", "PAUSED", "ana", "on [holiday]"),
    ]
    assert set(seen["legal_moves"]) == {
        "CONTACTED_WA",
        "CONTACTED_EMAIL",
        "WARM_REPLY",
        "PAUSED",
        "DEAD",
    }
    words = cerniq("stage", lead_id).stdout
    assert "WARM_REPLY" in words
    assert "on [holiday]" in words


def test_stage_refuses_what_is_illegal_and_what_has_no_reason(cerniq: Cerniq, database: Engine):
    lead_id = a_lead(database)
    refused = cerniq("stage", lead_id, "NEGOTIATION", "--why", "x").exception
    assert isinstance(refused, IllegalMove)
    assert "WARM_REPLY" in str(refused)
    assert cerniq("stage", lead_id, "DEAD").exit_code == 2
    assert cerniq("stage", lead_id, "DEAD", "--why", " ").exit_code == 2
    assert cerniq("stage", lead_id, "LOST", "--why", "x").exit_code == 2
    assert isinstance(cerniq("stage", "nobody").exception, NotFound)
    assert rows(database, "SELECT 1 FROM stage_changes") == []


def test_handback_gives_a_lead_back_once(cerniq: Cerniq, database: Engine):
    lead_id = a_lead(database)
    with database.begin() as conn:
        leads.lock(conn, "acme", [lead_id])
        leads.hand_to(conn, lead_id, holder="handset", at=NOON, now=NOON)
        leads.end_automation(conn, [lead_id], reason="human_takeover", now=NOON)
    assert "held by    handset since 2026-11-18 12:00+02:00" in cerniq("stage", lead_id).stdout
    assert cerniq("handback", lead_id).exit_code == 2  # why?
    said = cerniq("handback", lead_id, "--why", "done").stdout
    assert "handset does not hold it any more; its sequence goes on" in said
    lead = the_row(database, "SELECT held_by, hold_reason FROM gold_lead_journey")
    assert lead == {"held_by": None, "hold_reason": None}
    assert isinstance(cerniq("handback", lead_id, "--why", "again").exception, NotFound)


# ── Whose an address is ───────────────────────────────────────────────────────────────────────


def test_a_receiver_is_listed_until_somebody_says_whose_it_is(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn)
    event_id = an_event(database)
    with database.begin() as conn:
        inbox.give_up(conn, event_id, error="as it was", now=NOON, source="webhook")
        bury_event(
            conn,
            event_id=event_id,
            tenant_id=None,
            code="UNKNOWN_RECEIVER",
            detail="it came to vanzari@acme.example",
            receiver="Vanzari@acme.example",
            now=NOON,
        )
    assert "1 more came to a number or an address" in cerniq("inbox", "list", "--unknown").output
    (waiting,) = read(cerniq("inbox", "receivers", "--json"))
    assert (waiting["address"], waiting["is_known"], waiting["waiting"]) == (
        "vanzari@acme.example",
        False,
        1,
    )
    assert cerniq("inbox", "assign", "vanzari@acme.example").exit_code == 2
    said = cerniq("inbox", "assign", "VANZARI@acme.example", "--tenant", "acme")
    assert "belongs to tenant acme; events put back into the inbox: 1" in said.output
    assert the_row(database, "SELECT state FROM webhook_events") == {"state": "waiting"}
    (known,) = read(cerniq("inbox", "receivers", "--json"))
    assert (known["tenant_id"], known["noted_by"], known["waiting"]) == ("acme", "ana", 0)
    assert isinstance(cerniq("inbox", "assign", OURS, "--nobody").exception, NotFound)
