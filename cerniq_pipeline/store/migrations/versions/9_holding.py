"""Whose turn an event of the inbox is"""

from alembic import op
import sqlalchemy as sa

revision = "9_holding"
down_revision = "9_unread_chats"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('webhook_events', sa.Column('turn', sa.SmallInteger(), nullable=True, comment='the lowest is handled first; null: not looked at yet'))
    op.create_index('webhook_events_turn_idx', 'webhook_events', ['turn', 'received_at', 'id'], unique=False, postgresql_where=sa.text("state = 'waiting'"))
