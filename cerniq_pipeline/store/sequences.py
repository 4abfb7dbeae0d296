"""Sequences and their steps."""

from __future__ import annotations

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
