"""`cerniq history`: the whole conversation on the operator's own terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cerniq_pipeline.cli import app, context
from cerniq_pipeline.dev.embedded import EmbeddedRedis
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline_tests.builders import a_world, run_sql, some_leads
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

THEN = datetime(2024, 11, 20, 10, 0, tzinfo=UTC)
OURS, PERSON = "+40790000000", "+40721000000"

Show = Callable[..., Result]


@pytest.fixture
def show(
    database: Engine,
    database_url: str,
    redis_server: EmbeddedRedis,
    sandbox: RunningSandbox,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Show]:
    """Run the command as a person would, for a tenant with one lead that has a phone."""
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    run_sql(database, "UPDATE gold_lead_journey SET assigned_phone_id = 'acme-01'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", redis_server.url())
    monkeypatch.setenv("CERNIQ_SANDBOX_URL", sandbox.base_url)
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "a key of the tests")
    opened = (context.settings, context.engine, context.clock)
    for each in opened:
        each.cache_clear()
    yield lambda *words: CliRunner().invoke(app, ["history", *words])
    context.engine().dispose()
    for each in opened:
        each.cache_clear()


def test_both_sides_are_shown_oldest_first(show: Show, sandbox: RunningSandbox):
    sandbox.inbound(OURS, PERSON, "Da, [bold]vreau", at=THEN)
    sandbox.inbound(OURS, PERSON, "Sun eu", by_hand=True, at=THEN.replace(hour=11))
    told = json.loads(show(PERSON, "--json").stdout)
    assert told["fetched"]["new"] == 2
    assert [(one["direction"], one["status"], one["text"]) for one in told["messages"]] == [
        ("INBOUND", "DELIVERED", "Da, [bold]vreau"),
        ("OUTBOUND", "READ", "Sun eu"),
    ]
    words = show(PERSON)
    assert words.exit_code == 0
    assert "Da, [bold]vreau" in words.stdout
    assert "2 messages read in 1 chats, 0 new" in words.stdout


def test_an_unknown_lead_is_said_to_be_unknown(show: Show):
    assert isinstance(show("nobody").exception, NotFound)
