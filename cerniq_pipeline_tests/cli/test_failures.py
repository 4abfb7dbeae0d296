"""What a person and a script are told when the servers are not there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from cerniq_pipeline.cli import app, context, main
from cerniq_pipeline.cli.failures import UNREACHABLE
from cerniq_pipeline_tests.builders import run_sql

NOWHERE = "postgresql://cerniq:a-password@127.0.0.1:1/cerniq"


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


Cerniq = Callable[..., Ended]


def forget() -> None:
    for cached in (context.settings, context.engine, context.clock):
        cached.cache_clear()


@pytest.fixture
def cerniq(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Cerniq]:
    """Run the whole command, with a database and a Redis that are not there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERNIQ_DATABASE_URL", NOWHERE)
    monkeypatch.setenv("CERNIQ_REDIS_URL", "redis://127.0.0.1:1/2")
    monkeypatch.setenv("CERNIQ_SANDBOX_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "a key of the tests")
    (tmp_path / "leads.csv").write_text("firma;telefon\nZorile;0722123456\n")

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["cerniq", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Ended(int(ended.value.code or 0), said.out, said.err)

    forget()
    yield run
    forget()


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("why", "demo-01"),
        ("import", "leads.csv"),
        ("pause",),
        ("stop", "0722123456"),
        ("migrate",),
        ("parked", "list"),
        ("preview", "10000008"),
    ],
)
def test_a_database_that_is_not_there_is_one_line_and_what_to_do(
    cerniq: Cerniq, words: tuple[str, ...]
):
    ended = cerniq(*words)
    assert ended.status == UNREACHABLE
    assert ended.out == ""
    (line,) = ended.err.splitlines()
    assert "the database does not answer" in line
    assert "127.0.0.1" in line
    assert "cerniq services up" in line
    assert "a-password" not in line


def test_a_script_that_asked_for_json_gets_one_document(cerniq: Cerniq):
    ended = cerniq("status", "--json")
    assert ended.status == UNREACHABLE
    told = json.loads(ended.out)
    assert "the database does not answer" in told["error"]
    assert "cerniq services up" in told["do"]


def test_tables_of_another_release_are_told_from_a_server_that_is_away(
    cerniq: Cerniq, database: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    run_sql(database, "ALTER TABLE switches RENAME TO switches_of_old")
    ended = cerniq("pause")
    context.engine().dispose()
    assert ended.status == UNREACHABLE
    assert "run `cerniq migrate`" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_doctor_says_a_cause_once(cerniq: Cerniq):
    del cerniq  # its servers that are not there
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    wrong = {each["what"]: each["found"] for each in found if each["ok"] is False}
    assert "127.0.0.1" in wrong["database"]
    assert set(wrong) == {"database", "redis", "provider"}  # three servers, three causes
    not_looked_at = [each["what"] for each in found if each["ok"] is None]
    assert not_looked_at == ["migrations", "dagster", "clock"]
