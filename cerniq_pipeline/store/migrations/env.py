"""Alembic's entry point; the caller of `upgrade` brings the connection and owns the transaction."""

from alembic import context

from cerniq_pipeline.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
