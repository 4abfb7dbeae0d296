"""Sequences and their steps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.sequences import Step


@dataclass(frozen=True)
class TemplateUse:
    """A template and where it stands."""

    tenant_id: str
    name: str
    content: str
    step: int | None


def steps(conn: Connection, sequence_id: int) -> dict[int, Step]:
    """The steps of one sequence by their number."""
    rows = conn.execute(
        text("""
            SELECT step, channel, template_id, delay_minutes FROM sequence_steps
            WHERE sequence_id = :id
        """),
        {"id": sequence_id},
    )
    return {
        row.step: Step(row.step, row.channel, row.template_id, timedelta(minutes=row.delay_minutes))
        for row in rows
    }


Outlines = dict[int | None, tuple[bool, dict[int, tuple[str, int]]]]


def outlines(conn: Connection, ids: Collection[int | None]) -> Outlines:
    """Each sequence with whether it is active and its steps: step → (channel, template)."""
    rows = conn.execute(
        text("""
            SELECT q.id, q.status = 'active' AS active, s.step, s.channel, s.template_id
            FROM sequences q LEFT JOIN sequence_steps s ON s.sequence_id = q.id
            WHERE q.id = ANY(:ids)
        """),
        {"ids": [sequence_id for sequence_id in ids if sequence_id is not None]},
    )
    found: Outlines = {}
    for row in rows:
        _, steps = found.setdefault(row.id, (row.active, {}))
        if row.step is not None:
            steps[row.step] = (row.channel, row.template_id)
    return found


def texts(conn: Connection, template_ids: Collection[int]) -> dict[int, str]:
    """The contents of these templates."""
    rows = conn.execute(
        text("SELECT id, content FROM templates WHERE id = ANY(:ids)"), {"ids": list(template_ids)}
    )
    return {row.id: row.content for row in rows}


def all_texts(conn: Connection, tenant_id: str | None) -> list[TemplateUse]:
    """Every template with the earliest step that uses it, if any does."""
    rows = conn.execute(
        text("""
            SELECT t.tenant_id, t.name, t.content, min(s.step) AS step
            FROM templates t LEFT JOIN sequence_steps s ON s.template_id = t.id
            WHERE CAST(:tenant AS text) IS NULL OR t.tenant_id = :tenant
            GROUP BY t.id ORDER BY t.tenant_id, t.id
        """),
        {"tenant": tenant_id},
    )
    return [TemplateUse(*row) for row in rows]
