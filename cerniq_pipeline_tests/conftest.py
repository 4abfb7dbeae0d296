"""Real Postgres, real Redis and a real sandbox for every test that needs one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from redis import Redis
from sqlalchemy import Engine, create_engine, text

from cerniq_pipeline.dev.embedded import EmbeddedPostgres, EmbeddedRedis
from cerniq_pipeline.store.database import connect
from cerniq_pipeline.store.migrations import upgrade
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

TEMPLATE = "cerniq_template"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A throw-away server with one migrated database that every test clones."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), durable=False)
    server.start()
    server.create_database(TEMPLATE)
    upgrade(server.url(TEMPLATE))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def running_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    with RunningSandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture
def database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The address of an empty migrated database of this test's own."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    admin = create_engine(postgres.url("postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as conn:
        conn.execute(text(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY"))
    yield postgres.url(name)
    with admin.connect() as conn:
        conn.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def database(database_url: str) -> Iterator[Engine]:
    """An engine on an empty migrated database of this test's own."""
    engine = connect(database_url, pool_size=20)
    yield engine
    engine.dispose()


@pytest.fixture
def redis(redis_server: EmbeddedRedis) -> Iterator[Redis]:
    """An empty Redis."""
    client = Redis.from_url(redis_server.url())
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def sandbox(running_sandbox: RunningSandbox) -> RunningSandbox:
    """A sandbox that has forgotten everything."""
    running_sandbox.reset()
    return running_sandbox
