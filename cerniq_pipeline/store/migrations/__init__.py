"""Bring a database to the schema of this release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine

MIGRATION_LOCK = 0x0CE2_1001


def upgrade(database_url: str, *, to: str = "head") -> None:
    """Apply every missing migration, or those up to one.

    Two at once take turns, and the second finds nothing to do.
    """
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import text

    from cerniq_pipeline.store.database import open_engine

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    engine = open_engine(database_url)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            config.attributes["connection"] = connection
            command.upgrade(config, to)
    finally:
        engine.dispose()


def missing(engine: Engine) -> list[str]:
    """The migrations that this database has not seen yet."""
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    script = ScriptDirectory(str(Path(__file__).parent))
    return [step.revision for step in script.iterate_revisions("head", current or "base")]
