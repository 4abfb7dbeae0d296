"""`cerniq history`: the whole conversation on the operator's own terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import typer
from redis import Redis
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cerniq_pipeline.cli import history
from cerniq_pipeline.defs import resources
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.providers.timelinesai.calls import open_client
from cerniq_pipeline.providers.timelinesai.history import PublicHistory
from cerniq_pipeline_tests.builders import (
    ManualClock,
    a_desk,
    a_world,
    run_sql,
    some_leads,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

THEN = datetime(2024, 11, 20, 10, 0, tzinfo=UTC)
PERSON = "+40721000000"


@pytest.fixture
def show(
    database: Engine, redis: Redis, sandbox: RunningSandbox, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Run the command over this test's servers."""
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    run_sql(database, "UPDATE gold_lead_journey SET assigned_phone_id = 'acme-01'")
    reader = PublicHistory(open_client(sandbox.public_url, "sandbox-token"))
    desk = a_desk(database, redis, sandbox, ManualClock(THEN))
    desk = replace(desk, histories={"timelinesai": reader})
    monkeypatch.setattr(resources.Senders, "desk", lambda _: desk)
    monkeypatch.setattr(history, "settings", lambda: None)
    monkeypatch.setattr(history, "engine", lambda: database)
    app = typer.Typer()
    app.command()(history.history)
    return lambda *words: CliRunner().invoke(app, list(words))


def test_both_sides_are_shown_oldest_first(show: Callable[..., Result], sandbox: RunningSandbox):
    sandbox.inbound("+40790000000", PERSON, "Da, [bold]vreau", at=THEN)
    sandbox.inbound("+40790000000", PERSON, "Sun eu", by_hand=True, at=THEN.replace(hour=11))
    told = json.loads(show(PERSON, "--json").stdout)
    assert told["fetched"]["new"] == 2
    assert [(one["direction"], one["status"], one["text"]) for one in told["messages"]] == [
        ("INBOUND", "RECEIVED", "Da, [bold]vreau"),
        ("OUTBOUND", "READ", "Sun eu"),
    ]
    words = show(PERSON)
    assert words.exit_code == 0
    assert "Da, [bold]vreau" in words.stdout
    assert "2 messages read in 1 chats, 0 new" in words.stdout


def test_an_unknown_lead_is_said_to_be_unknown(show: Callable[..., Result]):
    assert isinstance(show("nobody").exception, NotFound)
