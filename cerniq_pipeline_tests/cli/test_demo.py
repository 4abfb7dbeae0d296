"""The demo, gone with one command; the README's examples, run as they are written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cerniq_pipeline.cli import app, context
from cerniq_pipeline.cli.dev import starts_a_dispatch
from cerniq_pipeline.dev.embedded import EmbeddedRedis
from cerniq_pipeline.errors import NotFound, SetupError
from cerniq_pipeline.services.demo_data import seed_demo
from cerniq_pipeline_tests.builders import (
    a_world,
    dispatch,
    everything,
    rows,
    run_sql,
    some_leads,
    the_row,
)
from cerniq_pipeline_tests.cli.test_commands import note_what_runs
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

README = Path(__file__).parents[2] / "README.md"
Cerniq = Callable[..., Result]


@pytest.fixture
def cerniq(
    database_url: str,
    redis_server: EmbeddedRedis,
    sandbox: RunningSandbox,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Cerniq]:
    """Run a command as a new user would, in a folder of their own; they say yes when asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", redis_server.url())
    monkeypatch.setenv("CERNIQ_SANDBOX_URL", sandbox.base_url)
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "a key of the tests")

    def forget() -> None:
        for cached in (context.settings, context.engine, context.clock):
            cached.cache_clear()

    forget()
    yield lambda *words: CliRunner().invoke(app, list(words), input="y\n")
    context.engine().dispose()
    forget()


def test_it_says_which_release_it_is(cerniq: Cerniq):
    assert re.fullmatch(r"cerniq \d+\.\d+\.\d+\n", cerniq("--version").stdout)


@pytest.mark.parametrize(
    ("mode", "asked", "starts"),
    [
        ("sandbox", None, True),
        ("sandbox", False, False),
        ("live", None, False),
        ("live", True, True),
    ],
)
def test_a_start_dispatches_by_itself_in_the_sandbox_only(
    mode: str, asked: bool | None, starts: bool
):
    assert starts_a_dispatch(mode, asked) is starts


def test_a_purge_says_what_would_go_and_then_forgets_it(cerniq: Cerniq, database: Engine):
    run_sql(
        database,
        """INSERT INTO alerts (kind, subject, detail, opened_at, closed_at)
           VALUES ('sweep_stuck', 'x', '', now() - interval '1 year', now() - interval '1 year')""",
    )
    would = cerniq("purge", "--dry-run", "--json").stdout
    assert '"alerts": {\n    "kept_days": 180,\n    "rows": 1,\n    "complete": true' in would
    assert "would go" in cerniq("purge", "--dry-run").stdout
    assert len(rows(database, "SELECT 1 FROM alerts")) == 1
    assert "forgotten" in cerniq("purge").stdout
    assert rows(database, "SELECT 1 FROM alerts") == []


# ── The demo ──────────────────────────────────────────────────────────────────────────────────


def play(database: Engine) -> None:
    """Leave a trace of the demo in as many tables as a first evening does."""
    now = the_row(database, "SELECT now() AS now")["now"]
    assert dispatch(database, tenant_id="demo", now=now)[0] > 0  # pyright: ignore
    for statement in (
        """INSERT INTO send_attempts (message_id, n, phone_id, fence, begun_at, outcome)
           SELECT id, 1, phone_id, 1, now(), 'sent' FROM outbox_messages
           WHERE tenant_id = 'demo'""",
        """INSERT INTO outbox_changes (message_id, from_state, to_state, at, who, why)
           SELECT id, 'planned', 'sending', now(), '', '' FROM outbox_messages
           WHERE tenant_id = 'demo'""",
        """INSERT INTO gold_communication_log (tenant_id, lead_journey_id, channel, direction,
                                               status, phone_id, sent_at)
           SELECT tenant_id, lead_id, 'WHATSAPP', 'OUTBOUND', 'SENT', phone_id, now()
           FROM outbox_messages WHERE tenant_id = 'demo'""",
        """INSERT INTO quota_ledger (phone_id, lead_id, day, message_id, state, at)
           SELECT phone_id, lead_id, now(), id, 'committed', now() FROM outbox_messages
           WHERE tenant_id = 'demo'""",
        """INSERT INTO webhook_events (provider, event_key, event_type, account, source, body,
                                       received_at, state)
           SELECT 'timelinesai', id, 't', phone_number, 'webhook', '', now(), 'dead'
           FROM wa_phone_numbers WHERE tenant_id = 'demo'""",
        """INSERT INTO dead_letters (event_id, code, detail, review_required, at)
           SELECT id, 'UNHANDLED_EVENT', '', true, now() FROM webhook_events""",
        """INSERT INTO suppressions (tenant_id, key_hmac, reason, at)
           VALUES ('demo', 'x', 'stop', now())""",
        """INSERT INTO switches VALUES ('phone', 'demo-07', 'paused', 'ana', now())""",
        """INSERT INTO breakers (scope, key, changed_at) VALUES ('phone', 'demo-07', now())""",
        """INSERT INTO alerts (tenant_id, kind, subject, detail, opened_at)
           VALUES ('demo', 'phone_banned', 'demo-07', '', now())""",
    ):
        run_sql(database, statement)


def test_the_demo_goes_with_one_command_and_no_start_brings_it_back(
    cerniq: Cerniq, database: Engine
):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=2)
    before = everything(database)
    assert seed_demo(database)
    play(database)
    assert CliRunner().invoke(app, ["demo", "remove"], input="n\n").exit_code == 1
    assert everything(database)["gold_companies"] == 2002

    assert "the demo is gone" in cerniq("demo", "remove").stdout
    # A batch of a dispatch and days of phones are scratch, and may be gone for everybody.
    assert everything(database) == before | {"decisions": 1}
    assert not seed_demo(database)
    assert isinstance(cerniq("demo", "remove", "--yes").exception, NotFound)

    assert "there again" in cerniq("demo", "add").stdout
    assert everything(database)["gold_companies"] == 2002


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE tenants SET sandbox_only = false WHERE id = 'demo'", "live mode"),
        (
            "INSERT INTO gold_companies (tenant_id, denumire, cui) VALUES ('demo', 'Real', '1234')",
            "leads of others: 1",
        ),
        (
            "UPDATE wa_phone_numbers SET phone_number = '+40722000111' WHERE id = 'demo-01'",
            "phones of others: 1",
        ),
        (
            """INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, recipient, state,
                                            due_at, planned_by)
               VALUES ('demo', 'WHATSAPP', 'initial', gen_random_uuid(), '+40', 'sending', now(),
                       't')""",
            "messages being sent: 1",
        ),
    ],
)
def test_a_demo_with_anything_real_in_it_stays(
    cerniq: Cerniq, database: Engine, change: str, said: str
):
    seed_demo(database)
    run_sql(database, change)
    before = everything(database)
    refused = cerniq("demo", "remove", "--yes").exception
    assert isinstance(refused, SetupError)
    assert said in str(refused)
    assert everything(database) == before


# ── The README ────────────────────────────────────────────────────────────────────────────────

ELSEWHERE = {
    "make": "the whole product",
    "source": "the shell's own",
    "curl": "tried beside the other pages, over a running sandbox",
    "python": "starts the sandbox; the sandbox's own tests do",
    "dagster": "starts Dagster; the fault matrix does",
    "cerniq services": "starts servers; the tests of `dev` do",
    "cerniq web": "serves until Ctrl-C; the tests of the web service do",
    "CERNIQ_": "settings, no command",
}
"""What a block for a shell has besides commands that can be run here, and why not here."""


def examples() -> list[list[str]]:
    """Every `cerniq …` of the README's blocks for a shell, in their order."""
    found: list[list[str]] = []
    for block in re.findall(r"^```bash\n(.*?)^```", README.read_text("utf-8"), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            words[0] = words[0].removeprefix(".venv/bin/")
            if not any(" ".join(words).startswith(name) for name in ELSEWHERE):
                assert words[0] == "cerniq", line
                found.append(words[1:])
    return found


def test_the_examples_of_the_readme_work_as_written_on_a_fresh_demo(
    cerniq: Cerniq, database: Engine, tmp_path: Path
):
    """A new user types them from top to bottom, beside a file of leads and a picture of theirs."""
    seed_demo(database)
    person = {"Denumire": "Ana SRL", "Telefon": "0722 123 456", "CUI": "18547290"}
    pd.DataFrame([person]).to_excel(tmp_path / "leads.xlsx", index=False)
    (tmp_path / "pliant.pdf").write_bytes(b"%PDF-1.4\n%%EOF\n")
    note_what_runs(database)
    typed = examples()
    assert len(typed) > 20
    failed = []
    for words in typed:
        result = cerniq(*words)
        if result.exit_code != 0:
            failed.append(f"cerniq {' '.join(words)}: {result.exception!r} {result.output[-200:]}")
    assert failed == []
