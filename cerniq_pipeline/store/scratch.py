"""A database for measuring: made, migrated, and gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, make_url, text

from cerniq_pipeline.store.database import open_engine
from cerniq_pipeline.store.migrations import upgrade


@contextmanager
def scratch_database(database_url: str, name: str) -> Iterator[Engine]:
    """An empty database of this name beside the given one; what stood there before is dropped."""
    url = make_url(database_url)
    admin = open_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as conn:
        conn.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
        conn.execute(text(f"CREATE DATABASE {name}"))
    engine = open_engine(url.set(database=name))
    try:
        upgrade(engine.url.render_as_string(hide_password=False))
        yield engine
    finally:
        engine.dispose()
        with admin.connect() as conn:
            conn.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        admin.dispose()
