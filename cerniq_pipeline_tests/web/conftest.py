"""A web service that most tests share; each finds an empty inbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, text

from cerniq_pipeline.dev.embedded import EmbeddedPostgres
from cerniq_pipeline.store.database import connect
from cerniq_pipeline_tests.conftest import TEMPLATE
from cerniq_pipeline_tests.web.running import RunningWeb
from cerniq_pipeline_tests.web.senders import ALL_SECRETS

SHARED = "shared_inbox"


@pytest.fixture(scope="session")
def shared_inbox(postgres: EmbeddedPostgres) -> Iterator[Engine]:
    admin = create_engine(postgres.url("postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as conn:
        conn.execute(text(f"CREATE DATABASE {SHARED} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY"))
    admin.dispose()
    engine = connect(postgres.url(SHARED))
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def shared_web(
    shared_inbox: Engine, postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningWeb]:
    web = RunningWeb(
        tmp_path_factory.mktemp("web"), postgres.url(SHARED), limits={"receive_seconds": 1.0}
    )
    with web.tell(**ALL_SECRETS):
        yield web


@pytest.fixture
def inbox(shared_inbox: Engine) -> Engine:
    """The database of the shared service, without any event."""
    with shared_inbox.begin() as conn:
        conn.execute(text("TRUNCATE webhook_events"))
    return shared_inbox


@pytest.fixture
def web(shared_web: RunningWeb, inbox: Engine) -> RunningWeb:
    """The shared service; a request is given one second, not ten."""
    return shared_web
