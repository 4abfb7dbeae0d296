"""Chats that are still to be read, and sends by when they were last looked up"""

from alembic import op
import sqlalchemy as sa

revision = "9_unread_chats"
down_revision = "9_conversations"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('unread_chats',
    sa.Column('provider', sa.Text(), nullable=False),
    sa.Column('chat_id', sa.Text(), nullable=False),
    sa.Column('account', sa.Text(), nullable=False, comment='our number'),
    sa.Column('contact', sa.Text(), nullable=False),
    sa.Column('last_at', sa.DateTime(timezone=True), nullable=False, comment='of the last message in it'),
    sa.Column('since', sa.DateTime(timezone=True), nullable=False, comment='from when on it is to be read'),
    sa.Column('noted_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('due_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('failures', sa.Integer(), server_default='0', nullable=False, comment='of its own, in a row'),
    sa.Column('failing_since', sa.DateTime(timezone=True), nullable=True),
    sa.Column('error', sa.Text(), nullable=True),
    sa.PrimaryKeyConstraint('provider', 'chat_id', name=op.f('unread_chats_pkey')),
    comment='chats in which something was said that may not be in the inbox yet'
    )
    op.create_index(op.f('unread_chats_provider_due_at_idx'), 'unread_chats', ['provider', 'due_at'], unique=False)
    op.add_column('sweeps', sa.Column('begun_at', sa.DateTime(timezone=True), nullable=True, comment='of a list that was not read to its end yet'))
    op.add_column('sweeps', sa.Column('page', sa.Integer(), nullable=True, comment='the last page of that list that was read'))
    op.add_column('sweeps', sa.Column('good_chat', sa.Text(), nullable=True, comment='one that could be read: to tell bad chats from a bad day'))
    op.alter_column('sweeps', 'swept_to', existing_type=sa.DateTime(timezone=True), nullable=True,
               comment='all chats with older messages were read or are noted',
               existing_comment='all older messages are in the inbox')
    op.alter_column('sweeps', 'swept_at', existing_type=sa.DateTime(timezone=True), nullable=True)
    op.create_table_comment(
        'sweeps',
        "how far the providers' lists of chats have been read",
        existing_comment="how far the providers' histories have been read",
        schema=None
    )
    # A sweep that was under way began then, and lists its chats anew.
    op.execute("""
        INSERT INTO sweeps (provider, begun_at)
        SELECT left(provider, -length('/unfinished')), swept_at FROM sweeps
        WHERE provider LIKE '%/unfinished'
        ON CONFLICT (provider) DO UPDATE SET begun_at = excluded.begun_at
    """)
    op.execute("DELETE FROM sweeps WHERE provider LIKE '%/unfinished'")
    op.add_column('outbox_messages', sa.Column('looked_up_at', sa.DateTime(timezone=True), nullable=True, comment='when its provider was last asked whether it left'))
