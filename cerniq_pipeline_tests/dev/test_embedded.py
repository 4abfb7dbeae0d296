"""The embedded servers: started once, found again, stopped, killed, and nothing lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from redis import Redis
from sqlalchemy import create_engine, text

from cerniq_pipeline.dev.embedded import EmbeddedPostgres, EmbeddedRedis
from cerniq_pipeline.dev.listening import socket_folder
from cerniq_pipeline.dev.processes import is_alive
from cerniq_pipeline.errors import SetupError


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path / "postgres", durable=False)
    yield server
    server.stop()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "redis")
    yield server
    server.stop()


def ask(server: EmbeddedPostgres, statement: str, *, driver: str = "psycopg") -> list[tuple]:
    engine = create_engine(server.url("cerniq", driver=driver))
    try:
        with engine.begin() as conn:
            result = conn.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


def test_postgres_starts_once_and_is_found_again(postgres: EmbeddedPostgres) -> None:
    assert not postgres.is_running()
    postgres.start()
    postgres.create_database("cerniq")
    postgres.create_database("cerniq")
    again = EmbeddedPostgres(postgres.folder)
    again.start()
    assert again.pid() == postgres.pid()
    assert ask(again, "SELECT lower('ȘȚ'), current_setting('timezone')") == [("șț", "UTC")]
    assert ask(again, "SELECT 1", driver="psycopg2") == [(1,)]


def test_postgres_listens_on_a_private_socket_and_nowhere_else(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    process = psutil.Process(postgres.pid())
    assert process.net_connections(kind="inet") == []
    assert socket_folder(postgres.folder).stat().st_mode & 0o077 == 0


def test_postgres_keeps_committed_rows_over_a_kill_and_a_stop(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    postgres.create_database("cerniq")
    ask(postgres, "CREATE TABLE kept AS SELECT 7 AS value")

    postgres.kill()
    assert not postgres.is_running()
    postgres.start()
    assert ask(postgres, "SELECT value FROM kept") == [(7,)]

    left = psutil.Process(postgres.pid()).children(recursive=True)
    postgres.stop()
    assert postgres.pid() is None
    assert not any(map(is_alive, left))
    assert not socket_folder(postgres.folder).exists()
    postgres.start()
    assert ask(postgres, "SELECT value FROM kept") == [(7,)]


@pytest.mark.parametrize(
    "content", ["", "garbage\n", "{pid}\n/elsewhere\n0\n5432\n\n\n0 0\nready\n"]
)
def test_a_stale_pid_file_does_not_stop_postgres(postgres: EmbeddedPostgres, content: str) -> None:
    postgres.start()
    postgres.stop()
    # The third case: the pid was given to somebody else since, here to this very process.
    (postgres.folder / "data" / "postmaster.pid").write_text(content.format(pid=os.getpid()))
    assert not postgres.is_running()
    postgres.start()
    assert postgres.is_running()


def test_starts_at_the_same_time_end_in_one_server(postgres: EmbeddedPostgres) -> None:
    starters = [
        threading.Thread(target=EmbeddedPostgres(postgres.folder, durable=False).start)
        for _ in range(3)
    ]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert postgres.is_running()
    servers = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(postgres.folder / "data") in (process.info["cmdline"] or [])
    ]
    assert [process.pid for process in servers] == [postgres.pid()]


def test_an_interrupted_first_start_is_begun_anew(postgres: EmbeddedPostgres) -> None:
    half_made = postgres.folder / "data.new"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18\n")
    postgres.start()
    assert postgres.is_running()


def test_data_of_another_version_is_refused_with_what_to_do(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    postgres.stop()
    (postgres.folder / "data" / "PG_VERSION").write_text("16\n")
    with pytest.raises(SetupError, match="made by Postgres 16"):
        postgres.start()


def test_redis_keeps_its_counters_over_a_kill(redis: EmbeddedRedis) -> None:
    redis.start()
    with Redis.from_url(redis.url()) as client:
        for _ in range(100):
            client.incr("sent")
        assert client.connection_pool.connection_kwargs["db"] == 2
    first = redis.pid()
    redis.kill()
    assert not redis.is_running()
    redis.start()
    assert redis.pid() != first
    with Redis.from_url(redis.url()) as client:
        assert client.get("sent") == b"100"
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"


def test_redis_starts_once_and_stops_completely(redis: EmbeddedRedis) -> None:
    redis.start()
    running = redis.pid()
    EmbeddedRedis(redis.folder).start()
    assert redis.pid() == running
    assert psutil.Process(running).net_connections(kind="inet") == []
    redis.stop()
    redis.stop()
    assert redis.pid() is None


def test_a_stale_pid_file_does_not_stop_redis(redis: EmbeddedRedis) -> None:
    redis.folder.mkdir()
    (redis.folder / "redis.pid").write_text(f"{os.getpid()}\n")
    assert not redis.is_running()
    redis.start()
    assert redis.is_running()


def test_a_redis_whose_pid_file_is_gone_is_replaced_and_not_doubled(redis: EmbeddedRedis) -> None:
    redis.start()
    forgotten = psutil.Process(redis.pid())
    (redis.folder / "redis.pid").unlink()
    redis.start()
    assert redis.pid() != forgotten.pid
    assert not is_alive(forgotten)


def test_servers_survive_signals_to_the_terminal_that_started_them(redis: EmbeddedRedis) -> None:
    redis.start()
    assert os.getsid(redis.pid() or 0) != os.getsid(0)
    assert os.getpgid(redis.pid() or 0) != os.getpgid(0)
