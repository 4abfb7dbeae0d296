"""What a lead may be, and the order of a phone's messages"""

from alembic import op
import sqlalchemy as sa

revision = "9_lead_data"
down_revision = "9_statuses"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index('outbox_messages_due_idx', 'outbox_messages')
    op.create_index('outbox_messages_due_idx', 'outbox_messages', ['phone_id', 'due_at', sa.text("(kind <> 'initial')"), 'id'], unique=False, postgresql_where=sa.text("state IN ('planned', 'deferred')"))
