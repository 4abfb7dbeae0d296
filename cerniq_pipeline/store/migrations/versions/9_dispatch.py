"""Batches that are planned and filled once, and what starts our work, as others can see it"""

from alembic import op
import sqlalchemy as sa

revision = "9_dispatch"
down_revision = "9_lead_data"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('dispatch_batches', sa.Column('planned_at', sa.DateTime(timezone=True), nullable=True))
    op.add_column('dispatch_batches', sa.Column('filled_at', sa.DateTime(timezone=True), nullable=True, comment='when it was written into the outbox; once'))
    op.create_table('automations',
    sa.Column('name', sa.Text(), nullable=False, comment='a sensor, a schedule or a daemon of Dagster'),
    sa.Column('kind', sa.Text(), nullable=False),
    sa.Column('is_running', sa.Boolean(), nullable=False),
    sa.Column('since', sa.DateTime(timezone=True), nullable=False, comment='when that was first seen'),
    sa.Column('seen_at', sa.DateTime(timezone=True), nullable=False, comment='old: nobody looks any more'),
    sa.CheckConstraint("kind IN ('sensor', 'schedule', 'daemon')", name=op.f('automations_kind_check')),
    sa.PrimaryKeyConstraint('name', name=op.f('automations_pkey')),
    comment='what starts our work, as two sensors of Dagster see it; others can ask here'
    )
    # E-mails that were planned for a telephone number. None was ever sent; their step is free again.
    op.execute("""
        WITH wrong AS (
          DELETE FROM outbox_messages
          WHERE channel = 'EMAIL' AND recipient NOT LIKE '%@%' AND state IN ('planned', 'deferred')
            AND begun_at IS NULL
          RETURNING lead_id
        )
        UPDATE gold_lead_journey j SET open_message = false, next_action_at = now()
        FROM wrong w WHERE j.lead_id = w.lead_id
    """)
