"""What comes back: conversations, deliveries in any order, who asked to stop, the inbox's dead"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# As it was when this migration was written; what schema.py says may move on.
WHATSAPP_MESSAGES = """
    CREATE VIEW whatsapp_messages AS
    SELECT id, tenant_id, conversation_id, lead_journey_id AS lead_id,
           external_message_id AS wa_message_id, lower(direction) AS direction,
           message_type AS type, coalesce(content_rendered, content) AS content, media_id,
           CASE direction WHEN 'INBOUND' THEN contact ELSE phone_number END AS sender_phone,
           CASE direction WHEN 'INBOUND' THEN phone_number ELSE contact END AS recipient_phone,
           lower(status) AS status, sent_at, delivered_at, read_at, failed_at, error_code,
           error_title, created_at
    FROM gold_communication_log WHERE channel = 'WHATSAPP'
"""


def upgrade() -> None:
    op.create_table('early_deliveries',
    sa.Column('channel', sa.Text(), nullable=False),
    sa.Column('external_id', sa.Text(), nullable=False),
    sa.Column('status', sa.Text(), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('code', sa.Integer(), nullable=True),
    sa.Column('title', sa.Text(), nullable=False),
    sa.Column('meaning', sa.Text(), nullable=True),
    sa.Column('told_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('channel', 'external_id', 'status', name=op.f('early_deliveries_pkey')),
    comment='what a provider said of messages that the log does not have yet'
    )
    op.create_table('run_leases',
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('holder', sa.Text(), nullable=False),
    sa.Column('until', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('run_leases_pkey')),
    comment='who does the work that one run at a time should do; safe without, only wasteful'
    )
    op.create_table('whatsapp_conversations',
    sa.Column('id', sa.Uuid(), server_default=sa.text('gen_random_uuid()'), nullable=False),
    sa.Column('tenant_id', sa.Text(), nullable=False),
    sa.Column('lead_id', sa.Uuid(), nullable=True),
    sa.Column('customer_phone', sa.Text(), nullable=True, comment='E.164; null: the person hides it'),
    sa.Column('customer_user_id', sa.Text(), nullable=True, comment="the provider's id of the person"),
    sa.Column('customer_name', sa.Text(), nullable=True),
    sa.Column('phone_id', sa.Text(), nullable=True, comment='the phone of ours that the person wrote to last'),
    sa.Column('chat_id', sa.Text(), nullable=True),
    sa.Column('window_opened_at', sa.DateTime(timezone=True), nullable=True, comment="the person's last message"),
    sa.Column('window_expires_at', sa.DateTime(timezone=True), nullable=True, comment='until when free text may be written to it'),
    sa.Column('last_message_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('message_count', sa.Integer(), server_default='0', nullable=False, comment='both ways'),
    sa.Column('created_at', sa.DateTime(timezone=True), server_default=sa.text('now()'), nullable=False),
    sa.Column('updated_at', sa.DateTime(timezone=True), server_default=sa.text('now()'), nullable=False),
    sa.CheckConstraint('customer_phone IS NOT NULL OR customer_user_id IS NOT NULL', name=op.f('whatsapp_conversations_has_customer_check')),
    sa.ForeignKeyConstraint(['lead_id'], ['gold_companies.id'], name=op.f('whatsapp_conversations_lead_id_fkey'), ondelete='SET NULL'),
    sa.ForeignKeyConstraint(['tenant_id'], ['tenants.id'], name=op.f('whatsapp_conversations_tenant_id_fkey')),
    sa.PrimaryKeyConstraint('id', name=op.f('whatsapp_conversations_pkey'))
    )
    op.create_index(op.f('whatsapp_conversations_lead_id_idx'), 'whatsapp_conversations', ['lead_id'], unique=False)
    op.create_index('whatsapp_conversations_phone_idx', 'whatsapp_conversations', ['tenant_id', 'customer_phone'], unique=True, postgresql_where=sa.text('customer_phone IS NOT NULL'))
    op.create_index('whatsapp_conversations_user_id_idx', 'whatsapp_conversations', ['tenant_id', 'customer_user_id'], unique=True, postgresql_where=sa.text('customer_user_id IS NOT NULL'))
    op.alter_column('alerts', 'tenant_id',
               existing_type=sa.TEXT(),
               nullable=True,
               comment='null: about the installation')
    op.drop_index(op.f('alerts_open_once_idx'), table_name='alerts', postgresql_where='(closed_at IS NULL)')
    op.create_index('alerts_open_once_idx', 'alerts', [sa.literal_column("coalesce(tenant_id, '')"), 'kind', 'subject'], unique=True, postgresql_where=sa.text('closed_at IS NULL'))
    op.add_column('dead_letters', sa.Column('event_id', sa.BigInteger(), nullable=True, comment='or an event that cannot be handled'))
    op.alter_column('dead_letters', 'tenant_id',
               existing_type=sa.TEXT(),
               nullable=True,
               comment='null: nobody knows whose event it is')
    op.alter_column('dead_letters', 'message_id',
               existing_type=sa.BIGINT(),
               nullable=True,
               comment='a message that failed')
    op.create_unique_constraint(op.f('dead_letters_event_id_key'), 'dead_letters', ['event_id'])
    op.add_column('gold_communication_log', sa.Column('conversation_id', sa.Uuid(), nullable=True))
    op.add_column('gold_communication_log', sa.Column('contact', sa.Text(), nullable=True, comment="the other side: a number, an address or a provider's id"))
    op.add_column('gold_communication_log', sa.Column('message_type', sa.Text(), server_default='text', nullable=False))
    op.add_column('gold_communication_log', sa.Column('delivered_at', sa.DateTime(timezone=True), nullable=True))
    op.add_column('gold_communication_log', sa.Column('read_at', sa.DateTime(timezone=True), nullable=True))
    op.add_column('gold_communication_log', sa.Column('failed_at', sa.DateTime(timezone=True), nullable=True))
    op.add_column('gold_communication_log', sa.Column('media_id', sa.Text(), nullable=True, comment="the provider's id of a file that came in"))
    op.add_column('gold_communication_log', sa.Column('media', postgresql.JSONB(astext_type=sa.Text()), nullable=True, comment='the files that came in, as the provider described them'))
    op.add_column('gold_communication_log', sa.Column('heard_at', sa.DateTime(timezone=True), nullable=True, comment='when an inbound message had its effects; once'))
    op.create_index(op.f('gold_communication_log_conversation_id_idx'), 'gold_communication_log', ['conversation_id'], unique=False)
    op.create_foreign_key(op.f('gold_communication_log_conversation_id_fkey'), 'gold_communication_log', 'whatsapp_conversations', ['conversation_id'], ['id'], ondelete='SET NULL')
    op.add_column('gold_companies', sa.Column('phone_key', sa.Text(), sa.Computed("right(regexp_replace(telefon_principal, '\\D', '', 'g'), 9)", persisted=True), nullable=True, comment='the same for every spelling of a number; others write this table too'))
    op.create_index(op.f('gold_companies_tenant_id_phone_key_idx'), 'gold_companies', ['tenant_id', 'phone_key'], unique=False)
    op.add_column('gold_lead_journey', sa.Column('held_by', sa.Text(), nullable=True, comment='the person who talks to it; null: nobody does'))
    op.add_column('gold_lead_journey', sa.Column('held_since', sa.DateTime(timezone=True), nullable=True))
    op.drop_column('gold_lead_journey', 'window_until')
    op.add_column('suppressions', sa.Column('scope', sa.Text(), server_default='person', nullable=False))
    op.alter_column('suppressions', 'key_hmac',
               existing_type=postgresql.BYTEA(),
               comment='of a number, an address or a CUI',
               existing_comment='keyed hash of a number or address',
               existing_nullable=False)
    op.create_table_comment(
        'suppressions',
        'who asked us to stop, as keyed hashes: outlives the lead',
        existing_comment=None,
        schema=None
    )
    op.add_column('webhook_events', sa.Column('next_try_at', sa.DateTime(timezone=True), nullable=True, comment='null: at once'))
    op.add_column('webhook_events', sa.Column('result', sa.Text(), nullable=True, comment='what became of it, in words'))
    op.drop_index('webhook_events_waiting_idx', table_name='webhook_events')
    op.create_index('webhook_events_waiting_idx', 'webhook_events', ['received_at', 'id'], unique=False, postgresql_where=sa.text("state = 'waiting'"))
    op.add_column('webhook_events', sa.Column('people', sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False, comment='everybody it is about, by every name that it has for them'))
    op.execute("UPDATE webhook_events SET people = ARRAY[contact] WHERE contact IS NOT NULL")
    op.create_index('webhook_events_unheard_idx', 'webhook_events', ['people'], unique=False, postgresql_using='gin', postgresql_where=sa.text("state <> 'done'"))
    op.create_check_constraint(op.f('dead_letters_about_one_check'), 'dead_letters', "num_nonnulls(message_id, event_id) = 1")
    op.create_check_constraint(op.f('suppressions_scope_check'), 'suppressions', "scope IN ('person', 'company')")
    # What was logged before knew its other side only through the lead.
    op.execute("""
        UPDATE gold_communication_log l SET contact = c.telefon_principal
        FROM gold_companies c WHERE c.id = l.lead_journey_id AND l.channel = 'WHATSAPP'
    """)
    op.execute(WHATSAPP_MESSAGES)

