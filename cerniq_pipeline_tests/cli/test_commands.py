"""The commands that people and scripts call, over real servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner, Result

from cerniq_pipeline.cli import app, context
from cerniq_pipeline.dev.embedded import EmbeddedRedis
from cerniq_pipeline.domain.names import short_id
from cerniq_pipeline.errors import MediaRefused, NotFound
from cerniq_pipeline.services import automation
from cerniq_pipeline.store import alerts, phones
from cerniq_pipeline.store.database import DatabaseClock
from cerniq_pipeline_tests.builders import (
    NOON,
    a_world,
    always_open,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

ALWAYS_OPEN = {
    "opens": 0,
    "closes": 1440,
    "working_days": [1, 2, 3, 4, 5, 6, 7],
    "holiday_country": None,
}
LONG_AGO = datetime(2026, 1, 5, tzinfo=UTC)
"""Due on any day on which this runs: commands go by the database's own clock."""

Cerniq = Callable[..., Result]


@pytest.fixture
def cerniq(
    database_url: str,
    redis_server: EmbeddedRedis,
    sandbox: RunningSandbox,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pytest.TempPathFactory,
) -> Iterator[Cerniq]:
    """Run a command as a person would, pointed at this test's servers."""
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", redis_server.url())
    monkeypatch.setenv("CERNIQ_SANDBOX_URL", sandbox.base_url)
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "a key of the tests")

    def forget() -> None:
        for cached in (context.settings, context.engine, context.clock):
            cached.cache_clear()

    forget()
    yield lambda *words: CliRunner().invoke(app, list(words))
    context.engine().dispose()
    forget()


def answer(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_status_keeps_the_keys_that_scripts_rely_on(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=2, quota=7, **ALWAYS_OPEN)
        some_leads(conn, count=3)
    dispatch(database, now=NOON)
    seen = answer(cerniq("status", "--json"))
    relied_on = {"leads", "outbox", "phones", "inbox", "reviews", "dead_letters", "alerts"}
    assert relied_on <= set(seen)
    assert seen["leads"] == {"COLD": 3}
    assert seen["outbox"] == {"planned": 3}
    assert {phone.pop("next_send_at") is not None for phone in seen["phones"]} == {True}  # pyright: ignore
    assert seen["phones"] == [
        {
            "id": f"acme-0{n}",
            "number": f"+4079000000{n - 1}",
            "status": "ACTIVE",
            "sent_today": 0,
            "quota_today": 7,
            "tenant_id": "acme",
            "rule": "ready",
        }
        for n in (1, 2)
    ]


def test_status_in_words_marks_the_sandbox(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn)
    said = cerniq("status").stdout
    assert "SANDBOX" in said
    assert "acme-01" in said


def test_why_names_the_switch_that_was_pulled_and_resume_lifts_it(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        some_leads(conn)
    assert cerniq("pause", "phone:acme-01", "--reason", "too many blocks").exit_code == 0
    told = answer(cerniq("why", "acme-01", "--json"))
    assert told["rule"] == "switched_off"
    assert "too many blocks" in str(told["detail"])
    assert told["until"] is None
    assert cerniq("resume", "phone:acme-01").exit_code == 0
    assert answer(cerniq("why", "acme-01", "--json"))["rule"] == "nothing_due"
    assert isinstance(cerniq("resume", "phone:acme-01").exception, NotFound)


@pytest.mark.parametrize(
    ("scope", "meant"),
    [
        ("phone:acme-1", "did you mean acme-01 or acme-02?"),
        ("phone:xyz", "`cerniq status` lists them"),
        ("tenant:acne", "did you mean acme?"),
        ("tenant:xyz", "there are: acme"),
        ("account:timelineai", "did you mean timelinesai?"),
        ("channel:PIGEON", "there are: EMAIL, WHATSAPP"),
        ("acme-01", "did you mean phone:acme-01?"),
        ("planet", "give global, tenant:ID"),
        ("phone:", "give global, tenant:ID"),
        ("global:x", "give global, tenant:ID"),
    ],
)
def test_nothing_is_said_to_be_off_that_does_not_exist(
    cerniq: Cerniq, database: Engine, scope: str, meant: str
):
    with database.begin() as conn:
        a_world(conn, phones=2)
    for command in ("pause", "resume"):
        refused = cerniq(command, scope)
        assert isinstance(refused.exception, NotFound), refused.output
        assert meant in str(refused.exception)
    assert rows(database, "SELECT 1 FROM switches") == []


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        ("phone:0790000000", "phone:acme-01"),
        ("phone:+40 790 000 000", "phone:acme-01"),
        ("account:TimelinesAI", "account:timelinesai"),
        ("channel:whatsapp", "channel:WHATSAPP"),
        ("tenant:acme", "tenant:acme"),
    ],
)
def test_what_is_paused_is_what_the_claim_asks_for(
    cerniq: Cerniq, database: Engine, typed: str, known: str
):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
    assert f"OFF {known}" in cerniq("pause", typed, "--by", "ana").stdout
    assert answer(cerniq("why", "acme-01", "--json"))["rule"] == "switched_off"
    assert the_row(database, "SELECT off_by FROM switches") == {"off_by": "ana"}
    assert f"ON {known}" in cerniq("resume", typed).stdout


def test_what_was_switched_off_under_a_name_that_is_gone_can_be_let_go_on(
    cerniq: Cerniq, database: Engine
):
    with database.begin() as conn:
        a_world(conn)
        phones.switch_off(conn, scope="phone", key="acme-1", reason="", by="me", now=NOON)
    refused = cerniq("resume", "phone:acme-01")
    assert "phone:acme-01 is not off; off are: phone:acme-1" in str(refused.exception)
    assert cerniq("resume", "phone:acme-1").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("parked", "list"),
        ("dlq", "list"),
        ("alerts", "list"),
        ("reviews",),
        ("status",),
        ("templates",),
        ("media", "list"),
        ("why", "acme-01"),
        ("stop", "0722123456"),
        ("import", "leads.csv"),
        ("media", "add", "leads.csv"),
    ],
)
def test_a_tenant_that_does_not_exist_is_no_empty_list(
    cerniq: Cerniq, database: Engine, words: tuple[str, ...]
):
    with database.begin() as conn:
        a_world(conn)
    Path("leads.csv").write_text("firma;telefon\nZorile;0722123456\n")
    refused = cerniq(*words, "--tenant", "acne")
    assert isinstance(refused.exception, NotFound), refused.output
    assert "did you mean acme?" in str(refused.exception)


def test_a_phone_is_found_by_its_number_and_a_wrong_one_by_the_nearest(
    cerniq: Cerniq, database: Engine
):
    with database.begin() as conn:
        a_world(conn, phones=2)
    assert "RETIRED acme-01" in cerniq("phone", "retire", "0790000000").stdout
    refused = cerniq("phone", "activate", "acme-2")
    assert "did you mean acme-02 or acme-01?" in str(refused.exception)


@pytest.mark.parametrize("named_by", ["id", "cui", "telefon_principal"])
def test_why_finds_a_lead_by_id_cui_or_number_and_says_who_would_write(
    cerniq: Cerniq, database: Engine, named_by: str
):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        some_leads(conn, cui="12345", at=LONG_AGO)
        name = conn.execute(text(f"SELECT {named_by}::text FROM gold_companies")).scalar_one()
    told = answer(cerniq("why", name, "--json"))
    assert told["rule"] == "next_dispatch"
    facts = told["facts"]
    assert isinstance(facts, dict)
    assert facts["allocation"]["phone_id"] == "acme-01"
    assert facts["allocation"]["remaining"] == 200


def test_why_says_that_a_lead_was_passed_over_and_when_it_is_looked_at_again(
    cerniq: Cerniq, database: Engine
):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        (lead_id,) = some_leads(conn, basis=None, at=LONG_AGO)
    now = context.clock().now()
    assert dispatch(database, now=now) == (0, 0)
    told = answer(cerniq("why", str(lead_id), "--json"))
    assert told["rule"] == "no_lawful_basis"
    assert str(told["until"]) > now.isoformat()


@pytest.mark.parametrize(
    ("change", "rule", "words"),
    [
        ("UPDATE gold_lead_journey SET lawful_basis = NULL", "no_lawful_basis", "no lawful basis"),
        ("UPDATE gold_companies SET hlr_reachable = false", "no_channel", "no verified number"),
        ("UPDATE sequence_steps SET channel = 'EMAIL'", "channel_unavailable", "sent on yet"),
        (
            """INSERT INTO alerts (tenant_id, kind, subject, detail, opened_at)
               VALUES ('acme', 'dispatch_stuck', 'acme', 'no zone Mars', now())""",
            "dispatch_stuck",
            "no zone Mars",
        ),
    ],
)
def test_why_says_what_a_dispatch_will_say_of_a_lead_that_is_due(
    cerniq: Cerniq, database: Engine, change: str, rule: str, words: str
):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        (lead_id,) = some_leads(conn, at=LONG_AGO)
    run_sql(database, change)
    told = answer(cerniq("why", str(lead_id), "--json"))
    assert told["rule"] == rule
    assert words in str(told["detail"])


def test_why_explains_a_message_that_went_over_to_mail(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        (lead_id,) = some_leads(conn, at=LONG_AGO)
    dispatch(database)
    run_sql(
        database,
        "UPDATE outbox_messages SET channel = 'EMAIL', phone_id = NULL, recipient = 'a@b.ro'",
    )
    assert answer(cerniq("why", str(lead_id), "--json"))["rule"] == "channel_unavailable"


def test_why_refuses_a_name_that_nothing_has(cerniq: Cerniq):
    assert isinstance(cerniq("why", "nobody").exception, NotFound)


def test_stop_cancels_what_waits_and_keeps_the_person_out(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        (lead_id,) = some_leads(conn)
    dispatch(database)
    said = cerniq("stop", str(lead_id), "--reason", "STOP")
    assert "messages cancelled: 1" in said.stdout, said.output
    assert states(database) == {"cancelled": 1}
    assert answer(cerniq("why", str(lead_id), "--json"))["rule"] == "opted_out"


SPELLINGS = ("0721000000", "0040721000000", "+40 721-000.000", "RO18547290", "ANA@Firma.ro")


@pytest.mark.parametrize("spelt", [*SPELLINGS, "the beginning of its id"])
def test_every_command_reads_a_person_in_every_spelling(
    cerniq: Cerniq, database: Engine, spelt: str
):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        a_world(conn, tenant_id="beta", phones=0)
        (lead_id,) = some_leads(conn, cui="18547290", email_principal="ana@firma.ro")
    if spelt not in SPELLINGS:
        # Eight digits and a dash are the longest beginning that could also be a CUI.
        lead_id = UUID("12345678-1234-4234-8234-123456789abc")
        run_sql(
            database,
            "INSERT INTO gold_companies (id, tenant_id, denumire) VALUES (:id, 'acme', 'Firma')",
            id=lead_id,
        )
        spelt = short_id(lead_id).upper()
    assert answer(cerniq("why", spelt, "--json"))["subject"] == f"lead {lead_id}"
    assert answer(cerniq("stage", spelt, "--json"))["stage"] == "COLD"
    assert answer(cerniq("export", spelt))["known_by"]["leads"] == [str(lead_id)]  # pyright: ignore
    said = cerniq("stop", spelt, "--json")
    assert json.loads(said.stdout) == [{"tenant_id": "acme", "leads": 1, "cancelled": 0}]
    assert answer(cerniq("why", spelt, "--json"))["rule"] == "opted_out"


def test_a_name_of_several_leads_is_answered_with_all_of_them(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        ids = [*some_leads(conn), *some_leads(conn)]
        run = "UPDATE gold_companies SET denumire = 'Zorile'"
        conn.execute(text(run))
    refused = str(cerniq("stage", "0721000000").exception)
    assert "2 leads are called '0721000000'" in refused
    assert all(f"{lead_id} (Zorile, tenant acme)" in refused for lead_id in ids)
    # A stop is not asked back: they are one person.
    assert json.loads(cerniq("stop", "0721000000", "--json").stdout)[0]["leads"] == 2


@pytest.mark.parametrize("spelt", ["0722123456", "0040722123456", "+40 722 123 456", "X@Y.ro"])
def test_somebody_whom_nobody_knows_is_stopped_and_stays_so_whoever_brings_them_in(
    cerniq: Cerniq, database: Engine, tmp_path: Path, spelt: str
):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
    said = cerniq("stop", spelt, "--reason", "said so on the phone")
    assert said.exit_code == 0, said.output
    assert "nobody's lead yet" in said.stdout
    assert answer(cerniq("why", spelt, "--json"))["rule"] == "opted_out"
    # Into the tables by another system: selection passes it over, and `why` says why.
    with database.begin() as conn:
        (lead_id,) = some_leads(conn, at=LONG_AGO)
        conn.execute(
            text("UPDATE gold_companies SET telefon_principal = :n, email_principal = :m"),
            {"n": "+40722123456", "m": "x@y.ro"},
        )
    assert answer(cerniq("why", str(lead_id), "--json"))["rule"] == "opted_out"
    assert dispatch(database, now=NOON, secret=b"a key of the tests") == (0, 0)
    held = the_row(database, "SELECT hold_reason, next_action_at FROM gold_lead_journey")
    assert held == {"hold_reason": "opted_out", "next_action_at": None}  # for good, not till then
    run_sql(database, "DELETE FROM gold_companies")
    (tmp_path / "leads.csv").write_text("firma;telefon;email\nZorile;0722123456;x@y.ro\n")
    imported = answer(cerniq("import", str(tmp_path / "leads.csv"), "--tenant", "acme", "--json"))
    assert imported["suppressed"] == 1


def test_a_stop_of_somebody_unknown_holds_at_every_tenant_unless_one_is_named(
    cerniq: Cerniq, database: Engine
):
    with database.begin() as conn:
        a_world(conn)
        a_world(conn, tenant_id="beta", phones=0)
    at_all = json.loads(cerniq("stop", "0722123456", "--json").stdout)
    assert [one["tenant_id"] for one in at_all] == ["acme", "beta"]
    at_one = json.loads(cerniq("stop", "RO18547290", "--tenant", "beta", "--json").stdout)
    assert [one["tenant_id"] for one in at_one] == ["beta"]
    told = answer(cerniq("why", "18547290", "--json"))
    assert told["facts"] == {"tenants": ["beta"]}


@pytest.mark.parametrize("typed", ["072212345", "0722123456, 0733123456", "nobody", "18547291"])
def test_a_stop_in_vain_is_refused(cerniq: Cerniq, database: Engine, typed: str):
    """A digit too few, two numbers at once, a CUI with a wrong check digit."""
    with database.begin() as conn:
        a_world(conn)
    assert isinstance(cerniq("stop", typed).exception, NotFound)
    assert rows(database, "SELECT 1 FROM suppressions") == []


def test_a_preview_shows_text_phone_and_time_on_the_tenants_clock(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn, time_zone="Asia/Kolkata", **ALWAYS_OPEN)
        (lead_id,) = some_leads(conn, at=LONG_AGO)
    seen = answer(cerniq("preview", "0721000000", "--json"))
    assert (seen["lead_id"], seen["phone_id"], seen["step"]) == (str(lead_id), "acme-01", 1)
    assert seen["text"] == "Bună ziua, Firma 0! Pasul unu."
    said = cerniq("preview", "0721000000").stdout
    assert "Bună ziua, Firma 0! Pasul unu." in said
    assert "acme-01 (+40790000000)" in said
    assert "+05:30" in said
    assert rows(database, "SELECT 1 FROM outbox_messages") == []


def test_templates_says_where_a_text_is_wrong(cerniq: Cerniq, database: Engine):
    with database.begin() as conn:
        a_world(conn, steps=("Bună, {{companei}}! Vezi exemplu.ro", "{Revin|Scriu din nou}."))
    result = cerniq("templates", "--fewest", "2", "--json")
    assert result.exit_code == 1
    first, second = json.loads(result.stdout)
    assert [problem["code"] for problem in first["problems"]] == [
        "too_few_variants",
        "unknown_variable",
        "url_in_first_message",
    ]
    assert second == {
        "tenant": "acme",
        "name": "main 2",
        "step": 2,
        "variants": 2,
        "problems": [],
    }


def test_doctor_finds_everything_in_order(cerniq: Cerniq, database: Engine):
    note_what_runs(database)
    result = cerniq("doctor", "--json")
    found = {each["what"]: each["ok"] for each in json.loads(result.stdout)}
    assert found == dict.fromkeys(
        ("python", "settings", "database", "migrations", "dagster", "redis", "clock", "provider"),
        True,
    )


def note_what_runs(database: Engine, *, stopped: str = "", age: timedelta = timedelta()) -> None:
    """As Dagster's sensors do it, so long ago."""
    names = ("open_shifts", "dispatch_every_5_minutes", "unconfirmed_sends")
    seen = [(name, "sensor", name != stopped) for name in names]
    now = DatabaseClock(database).now() - age
    automation.note(database.begin, seen, now=now)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, None),
        ({"stopped": "open_shifts"}, "open_shifts is stopped: no shift will start"),
        ({"age": timedelta(minutes=4)}, "no sign of life since"),
    ],
)
def test_doctor_and_why_name_what_is_stopped(
    cerniq: Cerniq, database: Engine, state: dict[str, Any], words: str | None
):
    """With `open_shifts` off, a phone was "ready" and doctor said that all was well."""
    with database.begin() as conn:
        a_world(conn, **always_open(datetime.now(UTC)))
        (lead_id,) = some_leads(conn, at=LONG_AGO)
    dispatch(database)
    run_sql(database, "UPDATE outbox_messages SET due_at = now() - interval '1 minute'")
    note_what_runs(database, **state)
    found = {each["what"]: each for each in json.loads(cerniq("doctor", "--json").stdout)}
    phone = answer(cerniq("why", "acme-01", "--json"))
    lead = answer(cerniq("why", str(lead_id), "--json"))
    if words is None:
        assert found["dagster"]["ok"]
        assert (phone["rule"], lead["rule"]) == ("ready", "queued")
    else:
        assert not found["dagster"]["ok"]
        assert words in found["dagster"]["found"]
        for told in (phone, lead):
            assert told["rule"] == "stopped"
            assert words in str(told["detail"])
            assert "no shift will start" in str(told["detail"])


def test_doctor_knows_that_dagster_never_ran(cerniq: Cerniq):
    found = {each["what"]: each for each in json.loads(cerniq("doctor", "--json").stdout)}
    assert not found["dagster"]["ok"]
    assert "cerniq dev" in found["dagster"]["do"]


def test_doctor_says_what_to_do_when_redis_is_not_there(
    cerniq: Cerniq, database: Engine, monkeypatch: pytest.MonkeyPatch
):
    note_what_runs(database)
    monkeypatch.setenv("CERNIQ_REDIS_URL", "unix:///nowhere/redis.sock?db=2")
    result = cerniq("doctor", "--json")
    assert result.exit_code == 1
    (wrong,) = [each for each in json.loads(result.stdout) if not each["ok"]]
    assert wrong["what"] == "redis"
    assert "cerniq services up" in wrong["do"]


def test_bench_prints_the_figure_beside_its_limit(cerniq: Cerniq):
    figures = answer(cerniq("bench", "dispatch", "--leads", "50", "--rounds", "2", "--json"))
    assert figures["leads"] == 50
    wanted = {
        "leads_per_second",
        "slowest_leads_per_second",
        "fastest_leads_per_second",
        "limit_rows_per_second",
    }
    assert wanted <= set(figures)


# ── Phones and accounts ───────────────────────────────────────────────────────────────────────


def test_a_banned_phone_is_taken_into_use_again_and_its_alert_is_closed(
    cerniq: Cerniq, database: Engine
):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        phones.set_status(conn, "acme-01", status="BANNED", reason="said so", now=NOON)
        alerts.open_once(
            conn, tenant_id="acme", kind="phone_banned", subject="acme-01", detail="", now=NOON
        )
    assert answer(cerniq("why", "acme-01", "--json"))["rule"] == "phone_not_active"
    assert cerniq("phone", "activate", "acme-01", "--by", "ana").exit_code == 0
    assert answer(cerniq("why", "acme-01", "--json"))["rule"] == "nothing_due"
    assert answer(cerniq("status", "--json"))["alerts"] == []
    assert cerniq("phone", "retire", "acme-01", "--by", "ana").exit_code == 0
    assert answer(cerniq("why", "acme-01", "--json"))["rule"] == "phone_disabled"
    assert isinstance(cerniq("phone", "retire", "nobody").exception, NotFound)


def test_an_account_that_was_stopped_goes_on_when_a_person_says_so(
    cerniq: Cerniq, database: Engine
):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        phones.switch_off(
            conn, scope="account", key="timelinesai", reason="401", by="acme-01", now=NOON
        )
        alerts.open_once(
            conn,
            tenant_id="acme",
            kind="account_suspended",
            subject="timelinesai",
            detail="401",
            now=NOON,
        )
    assert answer(cerniq("why", "acme-01", "--json"))["rule"] == "switched_off"
    assert cerniq("resume", "account:timelinesai").exit_code == 0
    assert answer(cerniq("status", "--json"))["alerts"] == []


def test_a_file_is_planned_into_a_leads_chat_by_name(
    cerniq: Cerniq, database: Engine, tmp_path: Path
):
    with database.begin() as conn:
        a_world(conn, **ALWAYS_OPEN)
        (lead_id,) = some_leads(conn)
    run_sql(
        database,
        """
        UPDATE gold_lead_journey SET first_contact_at = now(), assigned_phone_id = 'acme-01'
        """,
    )
    (tmp_path / "oferta.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n%%EOF\n")
    assert cerniq("media", "add", str(tmp_path / "oferta.pdf"), "--tenant", "acme").exit_code == 0
    sent = cerniq("media", "send", "oferta.pdf", str(lead_id), "--caption", "Oferta", "--by", "ana")
    assert sent.exit_code == 0, sent.output
    planned = the_row(database, "SELECT kind, content, planned_by FROM outbox_messages")
    assert planned == {"kind": "media", "content": "Oferta", "planned_by": "ana"}
    again = cerniq("media", "send", "oferta.pdf", str(lead_id))
    assert isinstance(again.exception, MediaRefused)
