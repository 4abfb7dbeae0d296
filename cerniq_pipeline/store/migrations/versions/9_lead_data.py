"""What stage a lead may be in, and the order of a phone's messages

A lead in a stage that there is not is moved to PAUSED, where nothing automatic is written to it, and
put before a person; the word that stood there is kept in `stage_changes`. To leave it as it is and
not to look at old rows (NOT VALID) would be worse: Postgres would then refuse every change of such a
row, the opt-out of its person too.
"""

from alembic import op
import sqlalchemy as sa

revision = "9_lead_data"
down_revision = "9_statuses"
branch_labels = None
depends_on = None

# As they were when this migration was written.
STAGES = "('COLD', 'CONTACTED_WA', 'CONTACTED_EMAIL', 'WARM_REPLY', 'NEGOTIATION', 'CONVERTED', 'DEAD', 'PAUSED')"


def upgrade() -> None:
    op.drop_index('outbox_messages_due_idx', 'outbox_messages')
    op.create_index('outbox_messages_due_idx', 'outbox_messages', ['phone_id', 'due_at', sa.text("(kind <> 'initial')"), 'id'], unique=False, postgresql_where=sa.text("state IN ('planned', 'deferred')"))
    op.execute("LOCK TABLE gold_lead_journey IN SHARE ROW EXCLUSIVE MODE")
    op.execute(f"""
        INSERT INTO stage_changes (tenant_id, lead_id, from_stage, to_stage, at, who, why)
        SELECT tenant_id, lead_id, engagement_stage, 'PAUSED', now(), 'migration', 'no such stage'
        FROM gold_lead_journey WHERE engagement_stage NOT IN {STAGES}
    """)
    op.execute(f"""
        UPDATE gold_lead_journey
        SET human_review_reason = CASE WHEN requires_human_review THEN human_review_reason
                                       ELSE 'bad data' END,
            human_review_priority = CASE WHEN requires_human_review THEN human_review_priority
                                         ELSE 'MEDIUM' END,
            requires_human_review = true, previous_stage = engagement_stage,
            engagement_stage = 'PAUSED', stage_changed_at = now(), updated_at = now()
        WHERE engagement_stage NOT IN {STAGES}
    """)
    op.create_check_constraint(op.f('gold_lead_journey_engagement_stage_check'), 'gold_lead_journey', f"engagement_stage IN {STAGES}")
