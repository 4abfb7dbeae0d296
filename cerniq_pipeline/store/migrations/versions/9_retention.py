"""What may be forgotten, what is kept of each call, and which event caused what"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

revision = "9_retention"
down_revision = "9_dispatch"
branch_labels = None
depends_on = None

CAUSED = (
    'stage_changes', 'suppressions', 'outbox_messages', 'outbox_changes',
    'gold_communication_log', 'dead_letters', 'alerts',
)


def upgrade() -> None:
    # ── Causes ──
    for table in CAUSED:
        op.add_column(table, sa.Column('correlation_id', sa.Text(), server_default=sa.text("NULLIF(current_setting('cerniq.correlation_id'::text, true), ''::text)"), nullable=True, comment="the event that caused it, by its caller's name for it; null: no event did"))
    op.add_column('gold_lead_journey', sa.Column('human_review_correlation_id', sa.Text(), nullable=True, comment='the event that gave the reason'))
    op.add_column('early_deliveries', sa.Column('correlation_id', sa.Text(), nullable=True, comment='of the event that told it'))
    # First without its default: what is there stays as it is, and the table is not written anew.
    op.add_column('webhook_events', sa.Column('correlation_id', sa.Text(), nullable=True, comment="its caller's name for it, or one of ours"))
    op.alter_column('webhook_events', 'correlation_id', server_default=sa.text('(gen_random_uuid())::text'))

    # ── What was said in each call ──
    for table, said, at in (
        ('send_attempts', 'what was said to the provider, without secrets', 'begun_at'),
        ('gold_communication_log', 'as in send_attempts; kept for as long', 'sent_at'),
    ):
        answered = 'what it answered; null: nothing' if table == 'send_attempts' else None
        op.add_column(table, sa.Column('raw_request', postgresql.JSONB(astext_type=sa.Text()), nullable=True, comment=said))
        op.add_column(table, sa.Column('raw_response', postgresql.JSONB(astext_type=sa.Text()), nullable=True, comment=answered))
        op.create_index(f'{table}_raw_idx', table, [at], postgresql_where=sa.text('raw_request IS NOT NULL'))

    # ── What may be forgotten ──
    op.create_index('webhook_events_body_idx', 'webhook_events', ['received_at'], postgresql_where=sa.text("state = 'done' AND octet_length(body) > 0"))
    op.create_table_comment('outbox_changes', 'append only, until retention: one row per move of an outbox message', existing_comment='append only: one row per move of an outbox message')
    op.execute("""
        CREATE OR REPLACE FUNCTION refuse_rewriting_history() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF TG_OP = 'DELETE' AND current_setting('cerniq.forgetting', true) = 'on' THEN
            RETURN NULL;
          END IF;
          RAISE EXCEPTION '% is append only', TG_TABLE_NAME;
        END $$
    """)
    op.create_table('decisions',
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('by', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('decisions_pkey')),
    comment='what people decided for this installation, so that no start decides otherwise'
    )

    # What came in was delivered, as the documents have it.
    op.execute("""
        UPDATE gold_communication_log SET status = 'DELIVERED'
        WHERE direction = 'INBOUND' AND status = 'RECEIVED'
    """)

    # ── The past days of each phone ──
    op.create_table('phone_days',
    sa.Column('phone_id', sa.Text(), nullable=False),
    sa.Column('day', sa.Date(), nullable=False, comment="the tenant's day"),
    sa.Column('time_zone', sa.Text(), nullable=False, comment='by which it was its day'),
    sa.Column('sent', sa.Integer(), nullable=False),
    sa.Column('unanswered', sa.Integer(), nullable=False, comment='of those sent that day'),
    sa.Column('repliers', sa.ARRAY(sa.Text()), nullable=False, comment='who wrote: leads, or else chats'),
    sa.ForeignKeyConstraint(['phone_id'], ['wa_phone_numbers.id'], name=op.f('phone_days_phone_id_fkey'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('phone_id', 'day', name=op.f('phone_days_pkey')),
    comment="what the log says of each phone's past days, so that nobody adds up a month again"
    )
    op.create_table('phone_day_changes',
    sa.Column('phone_id', sa.Text(), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    comment='days of phones that the log tells otherwise by now; written by a trigger of the log'
    )
    op.create_index('gold_communication_log_heard_idx', 'gold_communication_log', ['phone_id', 'sent_at'], postgresql_where=sa.text("direction = 'INBOUND'"))
    # Rows are only ever added, so nobody who writes into the log waits for anybody else. What a
    # person wrote also changes the days on which they were written to.
    op.execute("""
        CREATE FUNCTION note_phone_days() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF TG_OP = 'INSERT' THEN
            INSERT INTO phone_day_changes (phone_id, at)
            SELECT phone_id, sent_at FROM arrived WHERE phone_id IS NOT NULL AND sent_at IS NOT NULL
            UNION
            SELECT o.phone_id, o.sent_at FROM arrived a JOIN gold_communication_log o
              ON o.lead_journey_id = a.lead_journey_id AND o.sent_at <= a.sent_at
            WHERE a.direction = 'INBOUND' AND o.direction = 'OUTBOUND' AND o.phone_id IS NOT NULL;
          ELSIF TG_OP = 'DELETE' THEN
            INSERT INTO phone_day_changes (phone_id, at)
            SELECT phone_id, sent_at FROM gone WHERE phone_id IS NOT NULL AND sent_at IS NOT NULL
            UNION
            SELECT o.phone_id, o.sent_at FROM gone a JOIN gold_communication_log o
              ON o.lead_journey_id = a.lead_journey_id AND o.sent_at <= a.sent_at
            WHERE a.direction = 'INBOUND' AND o.direction = 'OUTBOUND' AND o.phone_id IS NOT NULL;
          ELSE
            INSERT INTO phone_day_changes (phone_id, at)
            WITH changed AS (
              SELECT g.id FROM gone g JOIN arrived a ON a.id = g.id
              WHERE (g.phone_id, g.direction, g.status = 'FAILED', g.lead_journey_id, g.thread_id,
                     g.sent_at)
                 IS DISTINCT FROM
                    (a.phone_id, a.direction, a.status = 'FAILED', a.lead_journey_id, a.thread_id,
                     a.sent_at)
            ), said AS (
              SELECT r.* FROM (SELECT * FROM gone UNION ALL SELECT * FROM arrived) r
              JOIN changed c ON c.id = r.id
            )
            SELECT phone_id, sent_at FROM said WHERE phone_id IS NOT NULL AND sent_at IS NOT NULL
            UNION
            SELECT o.phone_id, o.sent_at FROM said a JOIN gold_communication_log o
              ON o.lead_journey_id = a.lead_journey_id AND o.sent_at <= a.sent_at
            WHERE a.direction = 'INBOUND' AND o.direction = 'OUTBOUND' AND o.phone_id IS NOT NULL;
          END IF;
          RETURN NULL;
        END $$
    """)
    for when, tables in (
        ('INSERT', 'NEW TABLE AS arrived'),
        ('UPDATE', 'OLD TABLE AS gone NEW TABLE AS arrived'),
        ('DELETE', 'OLD TABLE AS gone'),
    ):
        op.execute(f"""
            CREATE TRIGGER note_phone_days_{when.lower()} AFTER {when} ON gold_communication_log
            REFERENCING {tables} FOR EACH STATEMENT EXECUTE FUNCTION note_phone_days()
        """)
