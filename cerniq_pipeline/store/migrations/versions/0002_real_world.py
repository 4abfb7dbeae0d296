"""WhatsApp in the real world: providers, breakers, media, failover, the inbox, dead letters"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('breakers',
    sa.Column('scope', sa.Text(), nullable=False, comment='provider or phone'),
    sa.Column('key', sa.Text(), nullable=False),
    sa.Column('state', sa.Text(), server_default='closed', nullable=False),
    sa.Column('failures', sa.Integer(), server_default='0', nullable=False, comment='in a row'),
    sa.Column('openings', sa.Integer(), server_default='0', nullable=False, comment='since it last closed'),
    sa.Column('probe_at', sa.DateTime(timezone=True), nullable=True, comment='when the next probe may go'),
    sa.Column('last_code', sa.Text(), nullable=True),
    sa.Column('changed_at', sa.DateTime(timezone=True), nullable=False),
    sa.CheckConstraint("scope IN ('provider', 'phone')", name=op.f('breakers_scope_check')),
    sa.CheckConstraint("state IN ('closed', 'open', 'half_open')", name=op.f('breakers_state_check')),
    sa.PrimaryKeyConstraint('scope', 'key', name=op.f('breakers_pkey')),
    comment='circuit breakers: nothing is sent through an open one'
    )
    op.create_table('sweeps',
    sa.Column('provider', sa.Text(), nullable=False),
    sa.Column('swept_to', sa.DateTime(timezone=True), nullable=False, comment='all older messages are in the inbox'),
    sa.Column('swept_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('provider', name=op.f('sweeps_pkey')),
    comment="how far the providers' histories have been read"
    )
    op.create_table('webhook_events',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('provider', sa.Text(), nullable=False),
    sa.Column('event_key', sa.Text(), nullable=False, comment='the same event has the same key for ever'),
    sa.Column('event_type', sa.Text(), nullable=False, comment="in the provider's words"),
    sa.Column('account', sa.Text(), nullable=True, comment='our number, in E.164'),
    sa.Column('contact', sa.Text(), nullable=True, comment="the other side: a number, or the provider's id of a person"),
    sa.Column('source', sa.Text(), nullable=False, comment='webhook, or sweep when we had to fetch it'),
    sa.Column('headers', postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
    sa.Column('body', sa.LargeBinary(), nullable=False, comment='the raw bytes'),
    sa.Column('received_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('state', sa.Text(), server_default='waiting', nullable=False),
    sa.Column('tries', sa.Integer(), server_default='0', nullable=False),
    sa.Column('error', sa.Text(), nullable=True),
    sa.Column('handled_at', sa.DateTime(timezone=True), nullable=True),
    sa.CheckConstraint("source IN ('webhook', 'sweep')", name=op.f('webhook_events_source_check')),
    sa.CheckConstraint("state IN ('waiting', 'done', 'dead')", name=op.f('webhook_events_state_check')),
    sa.PrimaryKeyConstraint('id', name=op.f('webhook_events_pkey')),
    sa.UniqueConstraint('provider', 'event_key', name=op.f('webhook_events_provider_event_key_key')),
    comment='the inbox: everything that a provider told us, as it came'
    )
    op.create_index(op.f('webhook_events_account_contact_received_at_idx'), 'webhook_events', ['account', 'contact', 'received_at'], unique=False)
    op.create_index('webhook_events_waiting_idx', 'webhook_events', ['id'], unique=False, postgresql_where=sa.text("state = 'waiting'"))
    op.create_table('media_files',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('tenant_id', sa.Text(), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('kind', sa.Text(), nullable=False),
    sa.Column('filename', sa.Text(), nullable=False),
    sa.Column('content_type', sa.Text(), nullable=False),
    sa.Column('size', sa.BigInteger(), nullable=False),
    sa.Column('sha256', sa.Text(), nullable=False),
    sa.Column('source_url', sa.Text(), nullable=True, comment='where it was fetched from; null: from a file'),
    sa.Column('content', sa.LargeBinary(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), server_default=sa.text('now()'), nullable=False),
    sa.CheckConstraint("kind IN ('image', 'document', 'video')", name=op.f('media_files_kind_check')),
    sa.ForeignKeyConstraint(['tenant_id'], ['tenants.id'], name=op.f('media_files_tenant_id_fkey')),
    sa.PrimaryKeyConstraint('id', name=op.f('media_files_pkey')),
    sa.UniqueConstraint('tenant_id', 'name', name=op.f('media_files_tenant_id_name_key')),
    comment='checked once when it came in; what is sent is what was checked'
    )
    op.create_table('heartbeats',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('tenant_id', sa.Text(), nullable=False),
    sa.Column('phone_id', sa.Text(), nullable=False, comment='who wrote'),
    sa.Column('to_phone_id', sa.Text(), nullable=False),
    sa.Column('body', sa.Text(), nullable=False),
    sa.Column('begun_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('outcome', sa.Text(), nullable=True, comment='null: not looked for yet'),
    sa.Column('settled_at', sa.DateTime(timezone=True), nullable=True),
    sa.CheckConstraint("outcome IN ('seen', 'lost', 'not_sent')", name=op.f('heartbeats_outcome_check')),
    sa.ForeignKeyConstraint(['phone_id'], ['wa_phone_numbers.id'], name=op.f('heartbeats_phone_id_fkey')),
    sa.ForeignKeyConstraint(['tenant_id'], ['tenants.id'], name=op.f('heartbeats_tenant_id_fkey')),
    sa.ForeignKeyConstraint(['to_phone_id'], ['wa_phone_numbers.id'], name=op.f('heartbeats_to_phone_id_fkey')),
    sa.PrimaryKeyConstraint('id', name=op.f('heartbeats_pkey')),
    comment='messages between two of our own phones'
    )
    op.create_index(op.f('heartbeats_phone_id_begun_at_idx'), 'heartbeats', ['phone_id', 'begun_at'], unique=False)
    op.add_column('alerts', sa.Column('notified_at', sa.DateTime(timezone=True), nullable=True))
    op.add_column('alerts', sa.Column('acknowledged_at', sa.DateTime(timezone=True), nullable=True))
    op.add_column('alerts', sa.Column('acknowledged_by', sa.Text(), nullable=True))
    op.add_column('dead_letters', sa.Column('resolved_by', sa.Text(), nullable=True))
    op.create_index('dead_letters_open_idx', 'dead_letters', ['tenant_id', 'at'], unique=False, postgresql_where=sa.text('resolved_at IS NULL'))
    op.add_column('gold_communication_log', sa.Column('status_at', sa.DateTime(timezone=True), nullable=True))
    op.add_column('gold_communication_log', sa.Column('error_code', sa.Text(), nullable=True))
    op.add_column('gold_communication_log', sa.Column('error_title', sa.Text(), nullable=True))
    op.add_column('gold_communication_log', sa.Column('media_type', sa.Text(), nullable=True, comment='image, document, video, audio; null: text only'))
    op.create_index(op.f('gold_communication_log_phone_id_sent_at_idx'), 'gold_communication_log', ['phone_id', 'sent_at'], unique=False)
    op.add_column('gold_lead_journey', sa.Column('window_until', sa.DateTime(timezone=True), nullable=True, comment='until when free text may be written to it through Meta'))
    op.add_column('outbox_messages', sa.Column('content', sa.Text(), nullable=True, comment='its text, for messages without a template'))
    op.add_column('outbox_messages', sa.Column('media_id', sa.BigInteger(), nullable=True, comment='for messages whose template brings none'))
    op.add_column('outbox_messages', sa.Column('replaced_by', sa.BigInteger(), nullable=True, comment='the message that a person sent in its place'))
    op.create_index('outbox_messages_external_id_idx', 'outbox_messages', ['external_id'], unique=False, postgresql_where=sa.text('external_id IS NOT NULL'))
    op.alter_column('switches', 'scope',
               existing_type=sa.TEXT(),
               comment='how much it stops',
               existing_comment='global, tenant, channel or phone',
               existing_nullable=False)
    op.create_table_comment(
        'switches',
        'kill switches: a row here means off; an account is all phones of one provider',
        existing_comment='kill switches: a row here means off',
        schema=None
    )
    op.add_column('templates', sa.Column('media_id', sa.BigInteger(), nullable=True, comment='sent with the text as its caption'))
    op.add_column('templates', sa.Column('approved_name', sa.Text(), nullable=True, comment='its name at Meta, where it was approved'))
    op.add_column('templates', sa.Column('approved_language', sa.Text(), server_default='ro', nullable=False))
    op.add_column('templates', sa.Column('approved_parameters', sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False, comment='the variables that Meta fills in, in its order'))
    op.create_foreign_key(op.f('templates_media_id_fkey'), 'templates', 'media_files', ['media_id'], ['id'])
    op.add_column('tenants', sa.Column('media_gap_least_seconds', sa.Integer(), server_default='30', nullable=False))
    op.add_column('tenants', sa.Column('media_gap_spread_seconds', sa.Integer(), server_default='60', nullable=False))
    op.add_column('tenants', sa.Column('failover', sa.Text(), server_default='hand_over', nullable=False, comment='what becomes of the leads of a phone that is gone'))
    op.add_column('tenants', sa.Column('failover_after_minutes', sa.Integer(), server_default='60', nullable=False, comment='how long a phone may be offline before its leads go elsewhere; banned: at once'))
    op.add_column('tenants', sa.Column('introduction', sa.Text(), server_default='{Vă scriem|Revenim} de pe alt număr, cel vechi nu mai este activ.', nullable=False, comment='the line that opens a message from a phone the lead does not know'))
    op.add_column('tenants', sa.Column('unanswered_per_month', sa.Integer(), server_default='2000', nullable=False, comment='messages without an answer that a phone may have in a month'))
    op.add_column('tenants', sa.Column('alike_texts', sa.Integer(), server_default='10', nullable=False, comment='a phone whose last so many texts of a day are alike stops; 0: never'))
    op.add_column('tenants', sa.Column('heartbeat_minutes', sa.Integer(), server_default='0', nullable=False, comment='how often a phone writes to another of ours to prove it is alive; 0: never'))
    op.add_column('wa_phone_numbers', sa.Column('provider', sa.Text(), server_default='timelinesai', nullable=False))
    op.add_column('wa_phone_numbers', sa.Column('meta_phone_number_id', sa.Text(), nullable=True, comment="Meta's id of the number"))
    op.add_column('wa_phone_numbers', sa.Column('last_sync_error', sa.Text(), nullable=True, comment='why its status could not be read the last time'))
    op.add_column('wa_phone_numbers', sa.Column('unanswered_this_month', sa.Integer(), server_default='0', nullable=False, comment='counted once a minute, see tenants.unanswered_per_month'))
    op.alter_column('wa_phone_numbers', 'timelinesai_account_id',
               existing_type=sa.TEXT(),
               nullable=True,
               existing_comment="the number's JID")
    op.create_unique_constraint(op.f('wa_phone_numbers_meta_phone_number_id_key'), 'wa_phone_numbers', ['meta_phone_number_id'])
    op.create_index(
        op.f("send_attempts_phone_id_begun_at_idx"), "send_attempts", ["phone_id", "begun_at"]
    )
    # What autogenerate does not see: conditions and checks.
    op.drop_constraint("switches_scope_check", "switches")
    op.create_check_constraint(
        "scope", "switches", "scope IN ('global', 'tenant', 'channel', 'account', 'phone')"
    )
    op.create_check_constraint(
        "failover", "tenants", "failover IN ('wait', 'hand_over', 'switch_channel')"
    )
    op.create_check_constraint(
        "provider",
        "wa_phone_numbers",
        "CASE provider WHEN 'timelinesai' THEN timelinesai_account_id IS NOT NULL"
        " WHEN 'meta' THEN meta_phone_number_id IS NOT NULL ELSE false END",
    )
    op.drop_index("outbox_messages_step_once_idx", "outbox_messages")
    op.create_index(
        "outbox_messages_step_once_idx",
        "outbox_messages",
        ["lead_id", "sequence_id", "step", sa.text("coalesce(replaced_by, 0)")],
        unique=True,
    )
    op.drop_index("outbox_messages_person_once_idx", "outbox_messages")
    op.create_index(
        "outbox_messages_person_once_idx",
        "outbox_messages",
        ["recipient", "sequence_id", "step", sa.text("coalesce(replaced_by, 0)")],
        unique=True,
        postgresql_where=sa.text("sequence_id IS NOT NULL"),
    )
