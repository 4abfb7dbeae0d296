"""At 80 columns nothing is cut that has to be read or typed, and times are the tenant's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from cerniq_pipeline.cli import app, context
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.domain.names import short_id
from cerniq_pipeline.services.dead_letters import bury_event
from cerniq_pipeline.store import alerts, inbox, phones
from cerniq_pipeline_tests.builders import NOON, a_world, dispatch, rows, run_sql, some_leads

WIDTH = 80
LONG = "Vă rog să nu mă mai contactați, am mai spus o dată și nu s-a întâmplat nimic de atunci."
COMPANY = "Societatea Agricolă Zorile de Câmpie și Asociații din Bărăgan SRL"
ALWAYS_OPEN = {
    "opens": 0,
    "closes": 1440,
    "working_days": [1, 2, 3, 4, 5, 6, 7],
    "holiday_country": None,
}

Shown = Callable[..., str]


@pytest.fixture
def shown(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shown]:
    """What a command prints on a narrow terminal; its lines joined where they were wrapped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", "unix:///nowhere")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "a key of the tests")
    monkeypatch.setattr(context.console, "_width", WIDTH)

    def forget() -> None:
        for cached in (context.settings, context.engine, context.clock):
            cached.cache_clear()

    def invoke(*words: str) -> str:
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == 0, result.output
        assert "…" not in result.stdout
        if "--json" not in words:
            assert max(map(len, result.stdout.splitlines())) <= WIDTH
        return result.stdout

    forget()
    yield invoke
    context.engine().dispose()
    forget()


def joined(printed: str) -> str:
    return " ".join(printed.split())


def test_a_parked_send_has_its_id_its_number_and_its_whole_text(shown: Shown, database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    assert dispatch(database) == (1, 0)
    run_sql(
        database,
        """
        UPDATE outbox_messages SET state = 'parked', attempts = 1, fence = 1, begun_at = :now,
          body = :said, reason = 'nothing in the history of the chat, so a person must look'
        """,
        now=NOON,
        said=LONG,
    )
    run_sql(database, "UPDATE gold_companies SET denumire = :name", name=COMPANY)
    said = joined(shown("parked", "list"))
    (message,) = rows(database, "SELECT id FROM outbox_messages")
    for needed in (str(message["id"]), "+40721000000", "acme-01", COMPANY, LONG, "must look"):
        assert needed in said


def test_events_and_letters_have_their_ids_and_what_became_of_them(shown: Shown, database: Engine):
    with database.begin() as conn:
        a_world(conn)
        copy = InboundCopy(
            "timelinesai", "k", "message:received:new", "+40790000000", "+40722000101", b"{}"
        )
        inbox.keep(conn, [copy], source="webhook", now=NOON)
    (event,) = rows(database, "SELECT id FROM webhook_events")
    event_id = int(str(event["id"]))
    error = "UNHANDLED_EVENT: it was tried five times, and each time something else was wrong"
    with database.begin() as conn:
        inbox.give_up(conn, event_id, error=error, now=NOON, source="webhook")
        bury_event(
            conn,
            event_id=event_id,
            tenant_id="acme",
            code="UNHANDLED_EVENT",
            detail=error,
            now=NOON,
        )
        alerts.open_once(
            conn, tenant_id="acme", kind="phone_banned", subject="acme-01", detail=LONG, now=NOON
        )
    (letter,) = rows(database, "SELECT id FROM dead_letters")
    for command, wanted in (
        (("inbox", "list"), str(event_id)),
        (("dlq", "list"), str(letter["id"])),
    ):
        said = joined(shown(*command))
        assert wanted in said.split()
        assert "acme-01" in said
        assert error in said
    assert "2026-11-18 12:00:00+02:00" in shown("inbox", "list")
    assert "2026-11-18 12:00:00+02:00" in shown("inbox", "show", str(event_id))
    assert LONG in joined(shown("alerts", "list"))


def test_a_review_has_what_the_person_said_and_an_id_to_type(shown: Shown, database: Engine):
    with database.begin() as conn:
        a_world(conn, time_zone="Asia/Kolkata")
        (lead_id,) = some_leads(conn)
        conn.execute(text("UPDATE gold_companies SET denumire = :n"), {"n": COMPANY})
        conn.execute(
            text("""
                UPDATE gold_lead_journey SET requires_human_review = true, last_reply_at = :at,
                  human_review_reason = 'opt_out', human_review_priority = 'HIGH'
            """),
            {"at": NOON},
        )
        for said, at in (("Bună!", NOON - timedelta(hours=1)), (LONG + "\x1b[2J", NOON)):
            conn.execute(
                text("""
                    INSERT INTO gold_communication_log (tenant_id, lead_journey_id, channel,
                      direction, contact, content, phone_id, status, sent_at)
                    VALUES ('acme', :lead, 'WHATSAPP', 'INBOUND', '+40721000000', :said,
                            'acme-01', 'RECEIVED', :at)
                """),
                {"lead": lead_id, "said": said, "at": at},
            )
    said = joined(shown("reviews"))
    for needed in (short_id(lead_id), COMPANY, "+40721000000", LONG, "2026-11-18 15:30+05:30"):
        assert needed in said
    assert "\x1b" not in said
    assert json.loads(shown("reviews", "--json"))[0]["said"] == LONG + "\x1b[2J"
    assert "never changed" in shown("stage", short_id(lead_id))


def test_status_says_of_each_phone_when_it_really_sends_next(shown: Shown, database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=5, **ALWAYS_OPEN)
        some_leads(conn, count=20)
    assert dispatch(database, now=context.clock().now()) == (20, 0)
    soon = context.clock().now() + timedelta(minutes=5)
    with database.begin() as conn:
        phones.set_status(conn, "acme-02", status="BANNED", reason="spam", now=NOON)
        phones.switch_off(conn, scope="phone", key="acme-03", reason="x", by="me", now=NOON)
        phones.set_next_send(conn, "acme-04", at=soon)
        conn.execute(text("DELETE FROM outbox_messages WHERE phone_id = 'acme-05'"))
    for phone_id, row in {
        phone["id"]: phone for phone in json.loads(shown("status", "--json"))["phones"]
    }.items():
        why = json.loads(shown("why", phone_id, "--json"))
        assert row["rule"] == why["rule"]
        if phone_id in ("acme-01", "acme-04"):
            assert row["next_send_at"][:16] == why["until"][:16]
        else:
            assert row["next_send_at"] is None
    said = shown("status")
    for words in ("phone not active", "switched off", "nothing due", "+02:00"):
        assert words in said
    opens = soon + timedelta(days=3)
    run_sql(database, "UPDATE tenants SET working_days = :days", days=[opens.isoweekday()])
    closed = json.loads(shown("status", "--json"))["phones"][0]
    assert closed["rule"] == "outside_hours"
    assert datetime.fromisoformat(closed["next_send_at"]) > opens - timedelta(days=2)


def test_status_of_a_tenant_counts_that_tenant_only(shown: Shown, database: Engine):
    with database.begin() as conn:
        a_world(conn)
        a_world(conn, tenant_id="beta", phones=0)
        copy = InboundCopy("timelinesai", "k", "new", "+40790000000", "+40722000101", b"{}")
        inbox.keep(conn, [copy], source="webhook", now=NOON)
        phones.switch_off(conn, scope="phone", key="acme-01", reason="x", by="me", now=NOON)
        phones.switch_off(conn, scope="channel", key="EMAIL", reason="x", by="me", now=NOON)
    ours = json.loads(shown("status", "--tenant", "acme", "--json"))
    theirs = json.loads(shown("status", "--tenant", "beta", "--json"))
    assert (ours["inbox"], theirs["inbox"]) == ({"waiting": 1}, {})
    assert theirs["inbox_waiting_since"] is None
    assert [each["scope"] for each in ours["switches_off"]] == ["channel", "phone"]
    assert [each["scope"] for each in theirs["switches_off"]] == ["channel"]


def test_an_id_that_several_leads_begin_with_names_them(shown: Shown, database: Engine):
    del shown  # for its settings
    ids = [UUID(f"abcdef12-0000-4000-8000-00000000000{n}") for n in (1, 2)]
    with database.begin() as conn:
        a_world(conn)
        for n, lead_id in enumerate(ids):
            (made,) = some_leads(conn, first=n)
            conn.execute(
                text("""
                    WITH gone AS (DELETE FROM gold_companies WHERE id = :made)
                    INSERT INTO gold_companies (id, tenant_id, denumire, telefon_principal)
                    VALUES (:id, 'acme', :name, :number)
                """),
                {"made": made, "id": lead_id, "name": f"A {n}", "number": f"+4072200000{n}"},
            )
    refused = str(CliRunner().invoke(app, ["stop", "abcdef12"]).exception)
    for n, lead_id in enumerate(ids):
        assert f"{lead_id} (A {n}, tenant acme)" in refused
    assert rows(database, "SELECT 1 FROM suppressions") == []
