"""What a provider took keeps its place in its day, and a stop told as a status is a stop"""

from alembic import op

revision = "9_statuses"
down_revision = "9_unread_chats"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A lead that is written to on two days has a place in both of them.
    op.drop_constraint(op.f('quota_ledger_pkey'), 'quota_ledger', type_='primary')
    op.create_primary_key(op.f('quota_ledger_pkey'), 'quota_ledger', ['phone_id', 'lead_id', 'day'])
    # What was given back for a message that the provider had taken.
    op.execute("""
        UPDATE quota_ledger q SET state = 'committed' FROM outbox_messages o
        WHERE o.id = q.message_id AND o.state = 'sent' AND q.state = 'released'
    """)
