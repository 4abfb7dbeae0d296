"""What a provider took keeps its place in its day, and a stop told as a status is a stop"""

from alembic import op

revision = "9_statuses"
down_revision = "9_holding"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A send in doubt is looked for in every event that may be about its person.
    op.drop_index(op.f('webhook_events_account_contact_received_at_idx'), table_name='webhook_events')
    op.create_index(op.f('webhook_events_provider_received_at_idx'), 'webhook_events', ['provider', 'received_at'])
    # A lead that is written to on two days has a place in both of them.
    op.drop_constraint(op.f('quota_ledger_pkey'), 'quota_ledger', type_='primary')
    op.create_primary_key(op.f('quota_ledger_pkey'), 'quota_ledger', ['phone_id', 'lead_id', 'day'])
    # Requests to stop that were told as a failed message and forgotten.
    op.execute("""
        UPDATE gold_lead_journey j
        SET whatsapp_opted_out = true, email_opted_out = true,
            opted_out_at = least(j.opted_out_at, d.at), next_action_at = NULL,
            hold_reason = 'opted_out'
        FROM dead_letters d JOIN outbox_messages o ON o.id = d.message_id
        WHERE d.code = 'OPTED_OUT' AND o.lead_id = j.lead_id
    """)
    # What was given back for a message that the provider had taken.
    op.execute("""
        UPDATE quota_ledger q SET state = 'committed' FROM outbox_messages o
        WHERE o.id = q.message_id AND o.state = 'sent' AND q.state = 'released'
    """)
