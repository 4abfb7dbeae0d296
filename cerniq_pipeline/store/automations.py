"""What starts our work, as it was last seen."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.automation import Automation


def note(conn: Connection, seen: Collection[tuple[str, str, bool]], *, now: datetime) -> None:
    """Write down what there is, as (name, kind, is running), and forget what there is no more."""
    values = {
        "names": [name for name, _, _ in seen],
        "kinds": [kind for _, kind, _ in seen],
        "running": [is_running for _, _, is_running in seen],
        "now": now,
    }
    conn.execute(
        text("""
            INSERT INTO automations AS a (name, kind, is_running, since, seen_at)
            SELECT name, kind, is_running, :now, :now
            FROM unnest(CAST(:names AS text[]), CAST(:kinds AS text[]), CAST(:running AS bool[]))
              AS s (name, kind, is_running)
            ORDER BY name
            ON CONFLICT (name) DO UPDATE SET
              kind = excluded.kind, is_running = excluded.is_running,
              since = CASE WHEN a.is_running = excluded.is_running THEN a.since
                           ELSE excluded.since END,
              seen_at = greatest(a.seen_at, excluded.seen_at)
        """),
        values,
    )
    conn.execute(text("DELETE FROM automations WHERE name <> ALL(:names)"), values)


def seen(conn: Connection) -> list[Automation]:
    """Everything that starts our work; nothing where Dagster never ran."""
    rows = conn.execute(
        text("SELECT name, kind, is_running, since, seen_at FROM automations ORDER BY name")
    )
    return [Automation(*row) for row in rows]
