"""The sending core: tenants, leads, templates, outbox, quota, leases"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dispatch_items",
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("lead_id", sa.Uuid(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("recipient", sa.Text(), nullable=True),
        sa.Column("sequence_id", sa.BigInteger(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("sticky_phone_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("batch_id", "position", name=op.f("dispatch_items_pkey")),
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "dispatch_plans",
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("lead_id", sa.Uuid(), nullable=False),
        sa.Column("recipient", sa.Text(), nullable=True),
        sa.Column("sequence_id", sa.BigInteger(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("template_id", sa.BigInteger(), nullable=True),
        sa.Column(
            "medium",
            sa.Text(),
            nullable=True,
            comment="null: passed over, or left for the next batch",
        ),
        sa.Column("phone_id", sa.Text(), nullable=True),
        sa.Column("skip", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("batch_id", "position", name=op.f("dispatch_plans_pkey")),
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "outbox_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=False),
        sa.Column("to_state", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("outbox_changes_pkey")),
        comment="append only: one row per move of an outbox message",
    )
    op.create_index(
        op.f("outbox_changes_message_id_id_idx"),
        "outbox_changes",
        ["message_id", "id"],
        unique=False,
    )
    op.create_table(
        "outbox_messages",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("lead_id", sa.Uuid(), nullable=False),
        sa.Column("phone_id", sa.Text(), nullable=True),
        sa.Column("recipient", sa.Text(), nullable=False),
        sa.Column("sequence_id", sa.BigInteger(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("template_id", sa.BigInteger(), nullable=True),
        sa.Column(
            "dedupe_key", sa.Text(), nullable=True, comment="for messages outside a sequence"
        ),
        sa.Column("state", sa.Text(), server_default="planned", nullable=False),
        sa.Column("reason", sa.Text(), nullable=True, comment="why it is in this state"),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("not_after", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column(
            "begun_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="start of the last attempt",
        ),
        sa.Column(
            "body", sa.Text(), nullable=True, comment="exactly what was handed to the provider"
        ),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("planned_by", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "state IN ('planned', 'sending', 'sent', 'deferred', 'unconfirmed', 'parked', 'failed', 'cancelled')",
            name=op.f("outbox_messages_state_check"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("outbox_messages_pkey")),
    )
    op.create_index(
        "outbox_messages_dedupe_key_idx",
        "outbox_messages",
        ["dedupe_key"],
        unique=True,
        postgresql_where=sa.text("dedupe_key IS NOT NULL"),
    )
    op.create_index(
        "outbox_messages_due_idx",
        "outbox_messages",
        ["phone_id", "due_at", "id"],
        unique=False,
        postgresql_where=sa.text("state IN ('planned', 'deferred')"),
    )
    op.create_index(
        "outbox_messages_one_sending_idx",
        "outbox_messages",
        ["phone_id"],
        unique=True,
        postgresql_where=sa.text("state = 'sending'"),
    )
    op.create_index(
        "outbox_messages_person_once_idx",
        "outbox_messages",
        ["recipient", "sequence_id", "step"],
        unique=True,
        postgresql_where=sa.text("sequence_id IS NOT NULL"),
    )
    op.create_index(
        "outbox_messages_step_once_idx",
        "outbox_messages",
        ["lead_id", "sequence_id", "step"],
        unique=True,
    )
    op.create_index(
        "outbox_messages_unsettled_idx",
        "outbox_messages",
        ["begun_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('sending', 'unconfirmed', 'parked')"),
    )
    op.create_table(
        "quota_gate",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("rebuilt_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("quota_gate_one_row_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("quota_gate_pkey")),
        comment="the epoch that Redis must show before its counts are believed",
    )
    op.create_table(
        "switches",
        sa.Column("scope", sa.Text(), nullable=False, comment="global, tenant, channel or phone"),
        sa.Column("key", sa.Text(), nullable=False, comment="empty for global"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("off_by", sa.Text(), nullable=False),
        sa.Column("off_since", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "scope IN ('global', 'tenant', 'channel', 'phone')", name=op.f("switches_scope_check")
        ),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("switches_pkey")),
        comment="kill switches: a row here means off",
    )
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text(), nullable=False, comment="a short readable name, e.g. demo"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="active", nullable=False),
        sa.Column("time_zone", sa.Text(), server_default="Europe/Bucharest", nullable=False),
        sa.Column(
            "opens",
            sa.Integer(),
            server_default="540",
            nullable=False,
            comment="minutes of the day",
        ),
        sa.Column("closes", sa.Integer(), server_default="1080", nullable=False),
        sa.Column(
            "working_days",
            sa.ARRAY(sa.SmallInteger()),
            server_default=sa.text("'{1,2,3,4,5}'"),
            nullable=False,
        ),
        sa.Column(
            "holiday_country",
            sa.Text(),
            server_default="RO",
            nullable=True,
            comment="null: no public holidays",
        ),
        sa.Column(
            "channels", sa.ARRAY(sa.Text()), server_default=sa.text("'{WHATSAPP}'"), nullable=False
        ),
        sa.Column(
            "basis_policy",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text('\'{"WHATSAPP": ["consent", "existing_customer"]}\''),
            nullable=False,
            comment="channel -> the lawful bases that suffice for it",
        ),
        sa.Column("gap_least_seconds", sa.Integer(), server_default="30", nullable=False),
        sa.Column("gap_spread_seconds", sa.Integer(), server_default="120", nullable=False),
        sa.Column("weekly_per_person", sa.Integer(), server_default="3", nullable=False),
        sa.Column("weekly_per_company", sa.Integer(), server_default="6", nullable=False),
        sa.Column("default_sequence_id", sa.BigInteger(), nullable=True),
        sa.Column(
            "sandbox_only",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="invented numbers may belong to real people: never send for it in live mode",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("status IN ('active', 'paused')", name=op.f("tenants_status_check")),
        sa.CheckConstraint(
            "opens >= 0 AND opens < closes AND closes <= 1440", name=op.f("tenants_hours_check")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("tenants_pkey")),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column(
            "subject", sa.Text(), nullable=False, comment="the phone, account or queue it is about"
        ),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("alerts_tenant_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("alerts_pkey")),
    )
    op.create_index(
        "alerts_open_once_idx",
        "alerts",
        ["tenant_id", "kind", "subject"],
        unique=True,
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("review_required", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("resolution", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("dead_letters_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("dead_letters_pkey")),
        sa.UniqueConstraint("message_id", name=op.f("dead_letters_message_id_key")),
    )
    op.create_table(
        "dispatch_batches",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column(
            "asked",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="the run configuration",
        ),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("dispatch_batches_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("dispatch_batches_pkey")),
    )
    op.create_table(
        "gold_companies",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("denumire", sa.Text(), nullable=False),
        sa.Column("cui", sa.Text(), nullable=True),
        sa.Column("telefon_principal", sa.Text(), nullable=True),
        sa.Column("hlr_reachable", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("email_principal", sa.Text(), nullable=True),
        sa.Column("email_status", sa.Text(), nullable=True),
        sa.Column("contact_principal_nume", sa.Text(), nullable=True),
        sa.Column("judet", sa.Text(), nullable=True),
        sa.Column("localitate", sa.Text(), nullable=True),
        sa.Column(
            "custom",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("gold_companies_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("gold_companies_pkey")),
        sa.UniqueConstraint("tenant_id", "cui", name=op.f("gold_companies_tenant_id_cui_key")),
    )
    op.create_index(
        "gold_companies_email_idx",
        "gold_companies",
        ["tenant_id", sa.literal_column("lower(email_principal)")],
        unique=False,
    )
    op.create_index(
        op.f("gold_companies_tenant_id_telefon_principal_idx"),
        "gold_companies",
        ["tenant_id", "telefon_principal"],
        unique=False,
    )
    op.create_table(
        "imports",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("file_sha256", sa.Text(), nullable=False),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False, comment="reading or done"),
        sa.Column(
            "options",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("rows_read", sa.Integer(), server_default="0", nullable=False),
        sa.Column("rows_bad", sa.Integer(), server_default="0", nullable=False),
        sa.Column("leads_new", sa.Integer(), server_default="0", nullable=False),
        sa.Column("leads_merged", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("imports_tenant_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("imports_pkey")),
        sa.UniqueConstraint(
            "tenant_id", "file_sha256", name=op.f("imports_tenant_id_file_sha256_key")
        ),
    )
    op.create_table(
        "send_attempts",
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("phone_id", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True, comment="null while in flight"),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("late", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.ForeignKeyConstraint(
            ["message_id"], ["outbox_messages.id"], name=op.f("send_attempts_message_id_fkey")
        ),
        sa.PrimaryKeyConstraint("message_id", "n", name=op.f("send_attempts_pkey")),
    )
    op.create_table(
        "sequences",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="active", nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("status IN ('active', 'paused')", name=op.f("sequences_status_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("sequences_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("sequences_pkey")),
        sa.UniqueConstraint("tenant_id", "name", name=op.f("sequences_tenant_id_name_key")),
    )
    op.create_table(
        "suppressions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column(
            "key_hmac",
            sa.LargeBinary(),
            nullable=False,
            comment="keyed hash of a number or address",
        ),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("suppressions_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("suppressions_pkey")),
        sa.UniqueConstraint(
            "tenant_id", "key_hmac", name=op.f("suppressions_tenant_id_key_hmac_key")
        ),
    )
    op.create_table(
        "templates",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("templates_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("templates_pkey")),
        sa.UniqueConstraint("tenant_id", "name", name=op.f("templates_tenant_id_name_key")),
    )
    op.create_table(
        "wa_phone_numbers",
        sa.Column("id", sa.Text(), nullable=False, comment="readable; names the Dagster partition"),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("phone_number", sa.Text(), nullable=False, comment="E.164"),
        sa.Column("timelinesai_account_id", sa.Text(), nullable=False, comment="the number's JID"),
        sa.Column("status", sa.Text(), server_default="ACTIVE", nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("status_changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("is_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("is_online", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("daily_quota", sa.Integer(), server_default="200", nullable=False),
        sa.Column(
            "warm_up_from",
            sa.Date(),
            nullable=True,
            comment="first day of the warm-up ramp; null: an old number",
        ),
        sa.Column(
            "next_send_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="end of the gap after the last send",
        ),
        sa.Column("total_messages_sent", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_message_sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_health_check_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "status IN ('ACTIVE', 'OFFLINE', 'BANNED')", name=op.f("wa_phone_numbers_status_check")
        ),
        sa.CheckConstraint("daily_quota >= 0", name=op.f("wa_phone_numbers_daily_quota_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("wa_phone_numbers_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("wa_phone_numbers_pkey")),
        sa.UniqueConstraint("phone_number", name=op.f("wa_phone_numbers_phone_number_key")),
    )
    op.create_table(
        "gold_lead_journey",
        sa.Column("lead_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("engagement_stage", sa.Text(), server_default="COLD", nullable=False),
        sa.Column("previous_stage", sa.Text(), nullable=True),
        sa.Column("stage_changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("priority", sa.Text(), server_default="NORMAL", nullable=False),
        sa.Column(
            "priority_rank",
            sa.SmallInteger(),
            sa.Computed(
                "CASE priority WHEN 'HIGH' THEN 1 WHEN 'NORMAL' THEN 2 ELSE 3 END", persisted=True
            ),
            nullable=False,
        ),
        sa.Column(
            "requires_human_review", sa.Boolean(), server_default=sa.text("false"), nullable=False
        ),
        sa.Column("human_review_reason", sa.Text(), nullable=True),
        sa.Column("human_review_priority", sa.Text(), nullable=True),
        sa.Column(
            "assigned_phone_id",
            sa.Text(),
            nullable=True,
            comment="no foreign key: see outbox_messages",
        ),
        sa.Column("assigned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("is_new_contact", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("quota_consumption_date", sa.Date(), nullable=True),
        sa.Column(
            "whatsapp_opted_out", sa.Boolean(), server_default=sa.text("false"), nullable=False
        ),
        sa.Column("email_opted_out", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("opted_out_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_channel_used", sa.Text(), nullable=True),
        sa.Column("first_contact_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_contact_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_reply_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reply_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "chat_id",
            sa.Text(),
            nullable=True,
            comment="the provider's chat with the assigned phone",
        ),
        sa.Column(
            "current_sequence_id",
            sa.BigInteger(),
            nullable=True,
            comment="null: the tenant's default sequence",
        ),
        sa.Column(
            "sequence_step",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="last one sent",
        ),
        sa.Column(
            "next_action_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=True,
            comment="when selection looks at the lead again; null: nothing is to be planned",
        ),
        sa.Column("open_message", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "hold_reason",
            sa.Text(),
            nullable=True,
            comment="why selection passed it over the last time",
        ),
        sa.Column("lawful_basis", sa.Text(), nullable=True),
        sa.Column("lawful_basis_source", sa.Text(), nullable=True),
        sa.Column("lawful_basis_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "lawful_basis IN ('consent', 'existing_customer', 'legitimate_interest')",
            name=op.f("gold_lead_journey_lawful_basis_check"),
        ),
        sa.CheckConstraint(
            "priority IN ('HIGH', 'NORMAL', 'LOW')", name=op.f("gold_lead_journey_priority_check")
        ),
        sa.CheckConstraint(
            "lawful_basis IS NULL OR (lawful_basis_source IS NOT NULL AND lawful_basis_at IS NOT NULL)",
            name=op.f("gold_lead_journey_basis_is_proven_check"),
        ),
        sa.ForeignKeyConstraint(
            ["lead_id"],
            ["gold_companies.id"],
            name=op.f("gold_lead_journey_lead_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("gold_lead_journey_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("lead_id", name=op.f("gold_lead_journey_pkey")),
    )
    op.create_index(
        "gold_lead_journey_review_idx",
        "gold_lead_journey",
        ["tenant_id"],
        unique=False,
        postgresql_where=sa.text("requires_human_review"),
    )
    op.create_index(
        "gold_lead_journey_selectable_idx",
        "gold_lead_journey",
        ["tenant_id", "priority_rank", "next_action_at", "lead_id"],
        unique=False,
        postgresql_where=sa.text(
            "NOT open_message AND NOT requires_human_review AND next_action_at IS NOT NULL AND engagement_stage IN ('COLD', 'CONTACTED_WA', 'CONTACTED_EMAIL')"
        ),
    )
    op.create_table(
        "import_rows",
        sa.Column("import_id", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("denumire", sa.Text(), nullable=True),
        sa.Column("cui", sa.Text(), nullable=True),
        sa.Column("telefon_principal", sa.Text(), nullable=True),
        sa.Column("email_principal", sa.Text(), nullable=True),
        sa.Column("contact_principal_nume", sa.Text(), nullable=True),
        sa.Column("judet", sa.Text(), nullable=True),
        sa.Column("localitate", sa.Text(), nullable=True),
        sa.Column("priority", sa.Text(), nullable=True),
        sa.Column("lawful_basis", sa.Text(), nullable=True),
        sa.Column("lawful_basis_source", sa.Text(), nullable=True),
        sa.Column("lawful_basis_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("custom", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.ForeignKeyConstraint(
            ["import_id"],
            ["imports.id"],
            name=op.f("import_rows_import_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("import_id", "line", name=op.f("import_rows_pkey")),
    )
    op.create_table(
        "phone_leases",
        sa.Column("phone_id", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("holder", sa.Text(), nullable=True, comment="null: free"),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column(
            "pid_started",
            sa.Double(),
            nullable=True,
            comment="tells a process from a later one with the same pid",
        ),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["phone_id"], ["wa_phone_numbers.id"], name=op.f("phone_leases_phone_id_fkey")
        ),
        sa.PrimaryKeyConstraint("phone_id", name=op.f("phone_leases_pkey")),
    )
    op.create_table(
        "quota_days",
        sa.Column("phone_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.Column("daily_limit", sa.Integer(), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["phone_id"], ["wa_phone_numbers.id"], name=op.f("quota_days_phone_id_fkey")
        ),
        sa.PrimaryKeyConstraint("phone_id", "day", name=op.f("quota_days_pkey")),
        comment="closed days, one row per phone",
    )
    op.create_table(
        "quota_ledger",
        sa.Column("phone_id", sa.Text(), nullable=False),
        sa.Column("lead_id", sa.Uuid(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False, comment="the tenant's day, not UTC's"),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False, comment="reserved, committed or released"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "state IN ('reserved', 'committed', 'released')", name=op.f("quota_ledger_state_check")
        ),
        sa.ForeignKeyConstraint(
            ["phone_id"], ["wa_phone_numbers.id"], name=op.f("quota_ledger_phone_id_fkey")
        ),
        sa.PrimaryKeyConstraint("phone_id", "lead_id", name=op.f("quota_ledger_pkey")),
    )
    op.create_index(
        op.f("quota_ledger_phone_id_day_idx"), "quota_ledger", ["phone_id", "day"], unique=False
    )
    op.create_table(
        "sequence_steps",
        sa.Column("sequence_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("template_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "delay_minutes", sa.Integer(), nullable=False, comment="after the step before went out"
        ),
        sa.CheckConstraint(
            "step >= 1 AND delay_minutes >= 0", name=op.f("sequence_steps_step_check")
        ),
        sa.ForeignKeyConstraint(
            ["sequence_id"],
            ["sequences.id"],
            name=op.f("sequence_steps_sequence_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["template_id"], ["templates.id"], name=op.f("sequence_steps_template_id_fkey")
        ),
        sa.PrimaryKeyConstraint("sequence_id", "step", name=op.f("sequence_steps_pkey")),
    )
    op.create_table(
        "stage_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("lead_id", sa.Uuid(), nullable=False),
        sa.Column("from_stage", sa.Text(), nullable=False),
        sa.Column("to_stage", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["lead_id"],
            ["gold_companies.id"],
            name=op.f("stage_changes_lead_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("stage_changes_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("stage_changes_pkey")),
    )
    op.create_index(
        op.f("stage_changes_lead_id_at_idx"), "stage_changes", ["lead_id", "at"], unique=False
    )
    op.create_table(
        "gold_communication_log",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("lead_journey_id", sa.Uuid(), nullable=True),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("template_id", sa.BigInteger(), nullable=True),
        sa.Column("content", sa.Text(), nullable=True),
        sa.Column("content_rendered", sa.Text(), nullable=True),
        sa.Column("external_message_id", sa.Text(), nullable=True),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("phone_id", sa.Text(), nullable=True),
        sa.Column("phone_number", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("quota_cost", sa.Integer(), server_default="0", nullable=False),
        sa.Column("sequence_id", sa.BigInteger(), nullable=True),
        sa.Column("sequence_step", sa.Integer(), nullable=True),
        sa.Column("job_id", sa.BigInteger(), nullable=True, comment="the outbox message"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["lead_journey_id"],
            ["gold_lead_journey.lead_id"],
            name=op.f("gold_communication_log_lead_journey_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("gold_communication_log_tenant_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("gold_communication_log_pkey")),
        sa.UniqueConstraint("job_id", name=op.f("gold_communication_log_job_id_key")),
        sa.UniqueConstraint(
            "tenant_id",
            "channel",
            "external_message_id",
            name=op.f("gold_communication_log_tenant_id_channel_external_message_id_key"),
        ),
    )
    op.create_index(
        op.f("gold_communication_log_lead_journey_id_sent_at_idx"),
        "gold_communication_log",
        ["lead_journey_id", "sent_at"],
        unique=False,
    )
    op.create_index(
        op.f("gold_communication_log_thread_id_idx"),
        "gold_communication_log",
        ["thread_id"],
        unique=False,
    )
    # Whoever writes a company, by import, by API or with SQL, gets a lead: one statement, any size.
    op.execute(
        """
        CREATE FUNCTION enrol_companies() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          INSERT INTO gold_lead_journey (tenant_id, lead_id)
          SELECT tenant_id, id FROM arrived ON CONFLICT (lead_id) DO NOTHING;
          RETURN NULL;
        END $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER enrol_companies AFTER INSERT ON gold_companies
        REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION enrol_companies()
        """
    )
    op.execute(
        """
        CREATE FUNCTION open_phone_leases() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          INSERT INTO phone_leases (phone_id) SELECT id FROM arrived ON CONFLICT DO NOTHING;
          RETURN NULL;
        END $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER open_phone_leases AFTER INSERT ON wa_phone_numbers
        REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION open_phone_leases()
        """
    )
    op.execute(
        """
        CREATE FUNCTION refuse_rewriting_history() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          RAISE EXCEPTION '% is append only', TG_TABLE_NAME;
        END $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outbox_changes
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting_history()
        """
    )
    op.execute("INSERT INTO quota_gate (id, epoch) VALUES (1, 1)")
