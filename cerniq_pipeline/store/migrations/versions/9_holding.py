"""Whose turn an event of the inbox is, and whose it is that came to no phone of ours"""

from alembic import op
import sqlalchemy as sa

revision = "9_holding"
down_revision = "9_unread_chats"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('webhook_events', sa.Column('turn', sa.SmallInteger(), nullable=True, comment='the lowest is handled first; null: not looked at yet'))
    op.create_index('webhook_events_turn_idx', 'webhook_events', ['turn', 'received_at', 'id'], unique=False, postgresql_where=sa.text("state = 'waiting'"))
    op.create_table('receivers',
    sa.Column('address', sa.Text(), nullable=False, comment='a number in E.164, or an address'),
    sa.Column('tenant_id', sa.Text(), nullable=True, comment="null: nobody's business here"),
    sa.Column('noted_by', sa.Text(), nullable=False),
    sa.Column('noted_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['tenant_id'], ['tenants.id'], name=op.f('receivers_tenant_id_fkey')),
    sa.PrimaryKeyConstraint('address', name=op.f('receivers_pkey')),
    comment='numbers and addresses at which people write to us, beside the phones'
    )
    op.add_column('dead_letters', sa.Column('receiver', sa.Text(), nullable=True, comment='where an event came to, when nobody has said whose that is'))
    op.create_index('dead_letters_receiver_idx', 'dead_letters', ['receiver'], unique=False, postgresql_where=sa.text('resolved_at IS NULL AND receiver IS NOT NULL'))
