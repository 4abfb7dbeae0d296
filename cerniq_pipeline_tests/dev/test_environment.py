"""From a bare project folder to servers, `.env` and tables; and real servers when named."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import create_engine, make_url, text

from cerniq_pipeline.dev import envfile
from cerniq_pipeline.dev.embedded import EmbeddedPostgres, EmbeddedRedis
from cerniq_pipeline.dev.environment import data_folder, embedded_servers, prepare
from cerniq_pipeline.errors import SetupError

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder in which nothing was set up yet."""
    for name in [*os.environ]:
        if name.startswith("CERNIQ_") or name == "DAGSTER_HOME":
            monkeypatch.delenv(name)
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(PROJECT / name, folder)
    yield folder
    for server in embedded_servers(folder / ".cerniq"):
        server.stop()


def rows(url: str, statement: str) -> list[tuple]:
    engine = create_engine(url)
    try:
        with engine.begin() as conn:
            result = conn.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


def test_a_bare_folder_gets_servers_settings_tables_and_demo_data(root: Path) -> None:
    (root / ".env").write_text("MINE=1\n")
    first = prepare(root)

    written = envfile.in_block(envfile.read(root / ".env"))
    assert written == {**first.values, **first.webhook_secrets}
    assert len(set(first.webhook_secrets.values())) == 3
    assert min(map(len, first.webhook_secrets.values())) >= 32
    assert not first.webhook_secrets.keys() & first.values.keys()
    assert written["CERNIQ_PUBLIC_URL"] == "http://127.0.0.1:8000"
    assert envfile.outside_block(envfile.read(root / ".env")) == {"MINE": "1"}
    assert stat.S_IMODE((root / ".env").stat().st_mode) == 0o600
    assert [server.is_running() for server in first.servers] == [True, True]
    assert rows(written["CERNIQ_DATABASE_URL"], "SELECT count(*) FROM gold_companies") == [(2000,)]
    assert rows(written["CERNIQ_DAGSTER_DATABASE_URL"], "SELECT 1") == [(1,)]
    assert make_url(written["CERNIQ_DAGSTER_DATABASE_URL"]).drivername == "postgresql+psycopg2"
    with Redis.from_url(written["CERNIQ_REDIS_URL"]) as client:
        assert client.ping()
    home = Path(written["DAGSTER_HOME"])
    assert (home / "dagster.yaml").read_text() == (root / "dagster.yaml").read_text()

    # A secret that a person rotates in the block stays as they wrote it.
    rotated = envfile.read(root / ".env").replace(
        first.webhook_secrets["CERNIQ_META_APP_SECRET"], "rotated-by-hand"
    )
    (root / ".env").write_text(rotated)
    second = prepare(root, web_url="http://127.0.0.1:8007")
    assert second.webhook_secrets == {
        **first.webhook_secrets,
        "CERNIQ_META_APP_SECRET": "rotated-by-hand",
    }
    assert second.values == {**first.values, "CERNIQ_PUBLIC_URL": "http://127.0.0.1:8007"}
    assert envfile.in_block(envfile.read(root / ".env")) == {
        **second.values,
        **second.webhook_secrets,
    }

    # Again: the same servers, the same key, nothing twice; also when .env was lost in between.
    (root / ".env").unlink()
    again = prepare(root, sandbox_url="http://127.0.0.1:8905")
    assert again.values == {**first.values, "CERNIQ_SANDBOX_URL": "http://127.0.0.1:8905"}
    assert [server.pid() for server in again.servers] == [server.pid() for server in first.servers]
    assert rows(written["CERNIQ_DATABASE_URL"], "SELECT count(*) FROM gold_companies") == [(2000,)]


def test_named_servers_are_used_and_none_is_started(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgres: EmbeddedPostgres,
    redis_server: EmbeddedRedis,
) -> None:
    postgres.create_database("named")
    monkeypatch.setenv("CERNIQ_DATABASE_URL", postgres.url("named").replace("+psycopg", ""))
    (root / ".env").write_text(
        f"CERNIQ_REDIS_URL='{redis_server.url(5)}'\nCERNIQ_MODE=live\n"
        "CERNIQ_META_APP_SECRET=mine\nCERNIQ_PUBLIC_URL=https://hooks.example.test\n"
    )

    prepared = prepare(root)

    assert prepared.servers == ()
    assert not prepared.owns_dagster_storage
    assert not (root / ".cerniq" / "postgres").exists()
    assert prepared.values["CERNIQ_REDIS_URL"] == redis_server.url(5)
    storage = make_url(prepared.values["CERNIQ_DAGSTER_DATABASE_URL"])
    assert (storage.drivername, storage.database) == ("postgresql+psycopg2", "named_dagster")
    assert rows(postgres.url("named_dagster"), "SELECT 1") == [(1,)]
    # Live mode has no demo data; a line of yours is not repeated in the block.
    assert rows(postgres.url("named"), "SELECT count(*) FROM tenants") == [(0,)]
    block = envfile.in_block(envfile.read(root / ".env"))
    assert "CERNIQ_REDIS_URL" not in block
    # Nobody makes up the secrets of a real provider; a line of yours is the only one of its name.
    assert prepared.webhook_secrets == {"CERNIQ_META_APP_SECRET": "mine"}
    assert prepared.values["CERNIQ_PUBLIC_URL"] == "https://hooks.example.test"
    assert not [name for name in block if "WEBHOOK" in name or "META" in name or "PUBLIC" in name]


def test_without_the_right_to_make_a_database_dagster_gets_a_schema_of_its_own(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgres: EmbeddedPostgres,
    redis_server: EmbeddedRedis,
) -> None:
    postgres.create_database("narrow")
    rows(postgres.url("narrow"), "CREATE ROLE tenant LOGIN NOCREATEDB PASSWORD 'p@ss'")
    rows(postgres.url("narrow"), "GRANT ALL ON DATABASE narrow TO tenant")
    rows(postgres.url("narrow"), "GRANT ALL ON SCHEMA public TO tenant")
    narrow = postgres.url("narrow").replace("cerniq@", "tenant:p%40ss@")
    monkeypatch.setenv("CERNIQ_DATABASE_URL", narrow)
    monkeypatch.setenv("CERNIQ_REDIS_URL", redis_server.url())
    monkeypatch.setenv("CERNIQ_MODE", "live")

    prepared = prepare(root)

    assert "schema `dagster`" in prepared.notes[0]
    storage = prepared.values["CERNIQ_DAGSTER_DATABASE_URL"]
    assert rows(storage, "SELECT current_schema(), current_user") == [("dagster", "tenant")]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("CERNIQ_DATABASE_URL", "postgresql://u:hush@127.0.0.1:1/db", "CERNIQ_DATABASE_URL cannot"),
        ("CERNIQ_DATABASE_URL", "mysql://u:hush@127.0.0.1/db", "must look like postgresql://"),
        ("CERNIQ_DATABASE_URL", "hush", "is not an address"),
    ],
)
def test_a_server_that_cannot_be_used_is_named_without_its_password(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SetupError) as refused:
        prepare(root)
    assert says in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_dagster_address_that_would_pick_the_wrong_driver_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CERNIQ_DAGSTER_DATABASE_URL", "postgresql://somewhere/dagster")
    with pytest.raises(SetupError, match="psycopg2"):
        prepare(root)


def test_one_name_with_two_values_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".env").write_text("CERNIQ_DATABASE_URL=postgresql://a/b\n")
    monkeypatch.setenv("CERNIQ_DATABASE_URL", "postgresql://c/d")
    with pytest.raises(SetupError, match="CERNIQ_DATABASE_URL has one value"):
        prepare(root)


def test_another_key_than_the_one_that_opt_outs_were_hashed_with_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".cerniq").mkdir()
    (root / ".cerniq" / "secret_key").write_text("the-old-one\n")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "a-new-one")
    with pytest.raises(SetupError, match="CERNIQ_SECRET_KEY differs") as refused:
        prepare(root)
    assert "the-old-one" not in str(refused.value)


def test_a_first_key_that_can_be_guessed_is_not_taken_in_live_mode(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CERNIQ_MODE", "live")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "hush")
    with pytest.raises(SetupError, match="CERNIQ_SECRET_KEY can be guessed") as refused:
        prepare(root)
    assert "hush" not in str(refused.value)
    assert not (root / ".cerniq" / "secret_key").exists()


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no dagster\.yaml"):
        prepare(tmp_path)


def test_the_data_folder_is_absolute_and_may_be_elsewhere(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_folder(root) == root / ".cerniq"
    monkeypatch.setenv("CERNIQ_DATA_DIR", "../elsewhere")
    assert data_folder(root) == root.parent / "elsewhere"
