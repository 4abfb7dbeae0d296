"""Sequences and their steps."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.sequences import Step


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


def outlines(
    conn: Connection, ids: Collection[int | None]
) -> dict[int | None, tuple[bool, dict[int, tuple[str, int]]]]:
    """Each sequence with whether it is active and its steps: step → (channel, template)."""
    rows = conn.execute(
        text("""
            SELECT q.id, q.status = 'active' AS active, s.step, s.channel, s.template_id
            FROM sequences q LEFT JOIN sequence_steps s ON s.sequence_id = q.id
            WHERE q.id = ANY(:ids)
        """),
        {"ids": [sequence_id for sequence_id in ids if sequence_id is not None]},
    )
    found: dict[int | None, tuple[bool, dict[int, tuple[str, int]]]] = {}
    for row in rows:
        _, steps = found.setdefault(row.id, (row.active, {}))
        if row.step is not None:
            steps[row.step] = (row.channel, row.template_id)
    return found
