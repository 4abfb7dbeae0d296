"""What waits for a person, at the terminal: dead letters, parked sends and alerts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from typer import Typer
from typer.testing import CliRunner, Result

from cerniq_pipeline.cli import context
from cerniq_pipeline.cli.alerts import alerts
from cerniq_pipeline.cli.letters import dlq
from cerniq_pipeline.cli.parked import parked
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.store import alerts as alert_store
from cerniq_pipeline.store import dead_letters
from cerniq_pipeline_tests.builders import (
    NOON,
    a_world,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Run a command as a person called ana would, pointed at this test's database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", "unix:///nowhere")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "a key of the tests")
    monkeypatch.setenv("LOGNAME", "ana")
    # Whatever the terminal of whoever runs this: a table is read here in whole lines.
    monkeypatch.setattr(context.console, "_width", 200)

    def forget() -> None:
        for cached in (context.settings, context.engine, context.clock):
            cached.cache_clear()

    def invoke(command: Typer, *words: object) -> Result:
        return CliRunner().invoke(command, [str(word) for word in words])

    forget()
    yield invoke
    context.engine().dispose()
    forget()


def read(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def messages(database: Engine, state: str, count: int = 1) -> list[int]:
    """Messages of one tenant in this state, without the servers it takes to get there."""
    with database.begin() as conn:
        a_world(conn)
        a_world(conn, tenant_id="beta", phones=0)
        some_leads(conn, count=count)
    assert dispatch(database) == (count, 0)
    run_sql(
        database,
        """
        UPDATE outbox_messages
        SET state = :state, attempts = 1, fence = 1, begun_at = :now, body = 'Bună!'
        """,
        state=state,
        now=NOON,
    )
    return [int(str(row["id"])) for row in rows(database, "SELECT id FROM outbox_messages")]


def letters(database: Engine, *codes: str) -> list[int]:
    """One dead letter for each code."""
    ids = messages(database, "failed", len(codes))
    with database.begin() as conn:
        for message_id, code in zip(ids, codes, strict=True):
            dead_letters.bury(
                conn,
                message_id=message_id,
                tenant_id="acme",
                code=code,
                detail="as the provider [said]",
                now=NOON,
            )
    return [
        int(str(row["id"])) for row in rows(database, "SELECT id FROM dead_letters ORDER BY id")
    ]


# ── Dead letters ──────────────────────────────────────────────────────────────────────────────


def test_dlq_lists_what_waits_in_json_and_in_words(run: Run, database: Engine):
    first, second = letters(database, "REFUSED", "INVALID_LEAD")
    listed = read(run(dlq, "list", "--json"))
    assert [(letter["id"], letter["code"]) for letter in listed] == [
        (first, "REFUSED"),
        (second, "INVALID_LEAD"),
    ]
    assert read(run(dlq, "list", "--json", "--code", "REFUSED")) == listed[:1]
    assert read(run(dlq, "list", "--json", "--tenant", "beta")) == []
    words = run(dlq, "list").stdout
    assert "Firma" in words
    assert "(review)" in words
    assert "[said]" in words


def test_dlq_retries_what_it_may_and_fails_with_a_sentence_for_the_rest(run: Run, database: Engine):
    fine, review = letters(database, "REFUSED", "INVALID_LEAD")
    result = run(dlq, "retry", fine, review)
    assert result.exit_code == 2
    assert f"letter {fine}: retried as message" in result.stdout
    assert f"letter {review} is left as it was: INVALID_LEAD" in result.stderr
    assert the_row(database, "SELECT planned_by FROM outbox_messages WHERE state = 'planned'") == {
        "planned_by": "ana"
    }
    assert run(dlq, "retry", review, "--reviewed", "--by", "dan").exit_code == 0
    by = [row["resolved_by"] for row in rows(database, "SELECT * FROM dead_letters ORDER BY id")]
    assert by == ["ana", "dan"]


def test_dlq_retries_everything_with_one_code(run: Run, database: Engine):
    letters(database, "REFUSED", "RETRIES_EXHAUSTED", "REFUSED")
    assert run(dlq, "retry", "--all", "--code", "REFUSED").exit_code == 0
    assert states(database) == {"failed": 3, "planned": 2}
    assert "no dead letter" in run(dlq, "retry", "--all", "--code", "REFUSED").stdout


@pytest.mark.parametrize("words", [[], ["--all"], [1, "--all", "--code", "X"], [1, "--code", "X"]])
def test_dlq_retry_wants_ids_or_all_of_a_code(run: Run, database: Engine, words: list[object]):
    letters(database, "REFUSED")
    assert run(dlq, "retry", *words).exit_code == 2
    assert states(database) == {"failed": 1}


def test_dlq_drops_with_a_reason_and_only_once(run: Run, database: Engine):
    (letter,) = letters(database, "REFUSED")
    assert run(dlq, "drop", letter).exit_code == 2  # why?
    dropped = run(dlq, "drop", letter, "--reason", "closed down")
    assert dropped.exit_code == 0, dropped.output
    assert f"letter {letter}: dropped: closed down" in dropped.stdout
    again = run(dlq, "drop", letter, "--reason", "again")
    assert again.exit_code == 2
    assert "dropped: closed down by ana" in again.stderr
    assert run(dlq, "list").stdout.strip() == "no dead letter waits"


# ── Parked sends ──────────────────────────────────────────────────────────────────────────────


def test_parked_lists_what_to_look_for(run: Run, database: Engine):
    (message,) = messages(database, "parked")
    (listed,) = read(run(parked, "list", "--json"))
    assert (listed["id"], listed["recipient"], listed["body"]) == (
        message,
        "+40721000000",
        "Bună!",
    )
    assert "Bună!" in run(parked, "list").stdout
    assert read(run(parked, "list", "--json", "--tenant", "beta")) == []


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["sent"], {"sent": 1}),
        (["resend"], {"cancelled": 1, "planned": 1}),
        (["drop", "--reason", "they called"], {"cancelled": 1}),
    ],
)
def test_parked_sends_are_settled_once(
    run: Run, database: Engine, words: list[str], left: dict[str, int]
):
    (message,) = messages(database, "parked")
    command, *options = words
    settled = run(parked, command, message, *options)
    assert settled.exit_code == 0, settled.output
    assert f"message {message}: " in settled.stdout
    assert states(database) == left
    assert rows(database, "SELECT who FROM outbox_changes")[-1] == {"who": "ana"}
    again = run(parked, command, message, *options)
    assert again.exit_code == 2
    assert "not parked" in again.stderr
    assert states(database) == left
    assert run(parked, "list").stdout.strip() == "no send is parked"


# ── Alerts ────────────────────────────────────────────────────────────────────────────────────


def test_alerts_are_listed_and_taken(run: Run, database: Engine):
    with database.begin() as conn:
        a_world(conn)
        alert_store.open_once(
            conn,
            tenant_id="acme",
            kind="phone_banned",
            subject="acme-01",
            detail="blocked",
            now=NOON,
        )
    (listed,) = read(run(alerts, "list", "--json"))
    assert (listed["kind"], listed["subject"]) == ("phone_banned", "acme-01")
    assert "Phone acme-01 is banned" in run(alerts, "list").stdout
    taken = run(alerts, "ack", listed["id"])
    assert taken.stdout.strip() == f"alert {listed['id']}: ana takes care of it"
    (listed,) = read(run(alerts, "list", "--json"))
    assert listed["acknowledged_by"] == "ana"
    assert isinstance(run(alerts, "ack", 999_999).exception, NotFound)
