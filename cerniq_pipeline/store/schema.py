"""The tables in one picture. Tables named `gold_*`, `wa_*` and `whatsapp_*` are shared with the
rest of Cerniq and keep its names; the others are ours. `migrations/` brings a database here, and a
test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)

Instant = DateTime(timezone=True)

CUI_KEY = r"ltrim(regexp_replace(regexp_replace(btrim(cui), '\.0+$', ''), '[^0-9]', '', 'g'), '0')"
"""The same for every spelling of a company's number; others write that table too."""


def _key() -> Column[int]:
    return Column("id", BigInteger, Identity(always=True), primary_key=True)


def _made() -> Column[object]:
    return Column("created_at", Instant, nullable=False, server_default=text("now()"))


def _changed() -> Column[object]:
    return Column("updated_at", Instant, nullable=False, server_default=text("now()"))


def _tenant() -> Column[str]:
    return Column("tenant_id", ForeignKey("tenants.id"), nullable=False)


def _cause() -> Column[object]:
    # Filled in by the database: whoever handles an event names it once, for the transaction.
    return Column(
        "correlation_id",
        Text,
        server_default=text(
            "NULLIF(current_setting('cerniq.correlation_id'::text, true), ''::text)"
        ),
        comment="the event that caused it, by its caller's name for it; null: no event did",
    )


# ── Who we are ────────────────────────────────────────────────────────────────────────────────

tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True, comment="a short readable name, e.g. demo"),
    Column("name", Text, nullable=False),
    Column("status", Text, nullable=False, server_default="active"),
    Column("time_zone", Text, nullable=False, server_default="Europe/Bucharest"),
    Column("opens", Integer, nullable=False, server_default="540", comment="minutes of the day"),
    Column("closes", Integer, nullable=False, server_default="1080"),
    Column(
        "working_days", ARRAY(SmallInteger), nullable=False, server_default=text("'{1,2,3,4,5}'")
    ),
    Column("holiday_country", Text, server_default="RO", comment="null: no public holidays"),
    Column("channels", ARRAY(Text), nullable=False, server_default=text("'{WHATSAPP}'")),
    Column(
        "basis_policy",
        JSONB,
        nullable=False,
        server_default=text('\'{"WHATSAPP": ["consent", "existing_customer"]}\''),
        comment="channel -> the lawful bases that suffice for it",
    ),
    Column("gap_least_seconds", Integer, nullable=False, server_default="30"),
    Column("gap_spread_seconds", Integer, nullable=False, server_default="120"),
    Column("weekly_per_person", Integer, nullable=False, server_default="3"),
    Column("weekly_per_company", Integer, nullable=False, server_default="6"),
    Column("media_gap_least_seconds", Integer, nullable=False, server_default="30"),
    Column("media_gap_spread_seconds", Integer, nullable=False, server_default="60"),
    Column(
        "failover",
        Text,
        nullable=False,
        server_default="hand_over",
        comment="what becomes of the leads of a phone that is gone",
    ),
    Column(
        "failover_after_minutes",
        Integer,
        nullable=False,
        server_default="60",
        comment="how long a phone may be offline before its leads go elsewhere; banned: at once",
    ),
    Column(
        "introduction",
        Text,
        nullable=False,
        server_default="{Vă scriem|Revenim} de pe alt număr, cel vechi nu mai este activ.",
        comment="the line that opens a message from a phone the lead does not know",
    ),
    Column(
        "unanswered_per_month",
        Integer,
        nullable=False,
        server_default="2000",
        comment="messages without an answer that a phone may have in a month",
    ),
    Column(
        "alike_texts",
        Integer,
        nullable=False,
        server_default="10",
        comment="a phone whose last so many texts of a day are alike stops; 0: never",
    ),
    Column(
        "heartbeat_minutes",
        Integer,
        nullable=False,
        server_default="0",
        comment="how often a phone writes to another of ours to prove it is alive; 0: never",
    ),
    Column("default_sequence_id", BigInteger),
    Column(
        "sandbox_only",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="invented numbers may belong to real people: never send for it in live mode",
    ),
    _made(),
    CheckConstraint("status IN ('active', 'paused')", name="status"),
    CheckConstraint("opens >= 0 AND opens < closes AND closes <= 1440", name="hours"),
    CheckConstraint("failover IN ('wait', 'hand_over', 'switch_channel')", name="failover"),
    # Postgres itself refuses a name that it does not know.
    CheckConstraint(
        "timezone(time_zone, '2000-01-01 00:00:00+00'::timestamptz) IS NOT NULL", name="time_zone"
    ),
    CheckConstraint("working_days <@ '{1,2,3,4,5,6,7}'::smallint[]", name="working_days"),
    CheckConstraint("array_position(channels, NULL) IS NULL", name="channels"),
    CheckConstraint(
        "jsonb_typeof(basis_policy) = 'object'"
        " AND NOT jsonb_path_exists(basis_policy,"
        " 'strict $.* ? (@.type() != \"array\")', '{}', true)"
        " AND NOT jsonb_path_exists(basis_policy,"
        " 'strict $.*[*] ? (@.type() != \"string\")', '{}', true)",
        name="basis_policy",
    ),
    CheckConstraint(
        "least(gap_least_seconds, gap_spread_seconds, media_gap_least_seconds,"
        " media_gap_spread_seconds, failover_after_minutes, weekly_per_person, weekly_per_company,"
        " unanswered_per_month, alike_texts, heartbeat_minutes) >= 0",
        name="counts",
    ),
)

wa_phone_numbers = Table(
    "wa_phone_numbers",
    metadata,
    Column("id", Text, primary_key=True, comment="readable; names the Dagster partition"),
    _tenant(),
    Column("phone_number", Text, nullable=False, unique=True, comment="E.164"),
    Column("provider", Text, nullable=False, server_default="timelinesai"),
    Column("timelinesai_account_id", Text, comment="the number's JID"),
    Column("meta_phone_number_id", Text, unique=True, comment="Meta's id of the number"),
    Column("status", Text, nullable=False, server_default="ACTIVE"),
    Column("status_reason", Text),
    Column("status_changed_at", Instant),
    Column("is_enabled", Boolean, nullable=False, server_default=text("true")),
    Column("is_online", Boolean, nullable=False, server_default=text("true")),
    Column("daily_quota", Integer, nullable=False, server_default="200"),
    Column("warm_up_from", Date, comment="first day of the warm-up ramp; null: an old number"),
    Column("next_send_at", Instant, comment="end of the gap after the last send"),
    Column("total_messages_sent", Integer, nullable=False, server_default="0"),
    Column("last_message_sent_at", Instant),
    Column("last_health_check_at", Instant),
    Column("last_sync_error", Text, comment="why its status could not be read the last time"),
    Column(
        "unanswered_this_month",
        Integer,
        nullable=False,
        server_default="0",
        comment="counted once a minute, see tenants.unanswered_per_month",
    ),
    _made(),
    _changed(),
    CheckConstraint("status IN ('ACTIVE', 'OFFLINE', 'BANNED')", name="status"),
    CheckConstraint("daily_quota >= 0", name="daily_quota"),
    CheckConstraint(
        "CASE provider WHEN 'timelinesai' THEN timelinesai_account_id IS NOT NULL"
        " WHEN 'meta' THEN meta_phone_number_id IS NOT NULL ELSE false END",
        name="provider",
    ),
)

switches = Table(
    "switches",
    metadata,
    Column("scope", Text, primary_key=True, comment="how much it stops"),
    Column("key", Text, primary_key=True, comment="empty for global"),
    Column("reason", Text, nullable=False),
    Column("off_by", Text, nullable=False),
    Column("off_since", Instant, nullable=False),
    CheckConstraint("scope IN ('global', 'tenant', 'channel', 'account', 'phone')", name="scope"),
    comment="kill switches: a row here means off; an account is all phones of one provider",
)

breakers = Table(
    "breakers",
    metadata,
    Column("scope", Text, primary_key=True, comment="provider or phone"),
    Column("key", Text, primary_key=True),
    Column("state", Text, nullable=False, server_default="closed"),
    Column("failures", Integer, nullable=False, server_default="0", comment="in a row"),
    Column("openings", Integer, nullable=False, server_default="0", comment="since it last closed"),
    Column("probe_at", Instant, comment="when the next probe may go"),
    Column("last_code", Text),
    Column("changed_at", Instant, nullable=False),
    CheckConstraint("scope IN ('provider', 'phone')", name="scope"),
    CheckConstraint("state IN ('closed', 'open', 'half_open')", name="state"),
    comment="circuit breakers: nothing is sent through an open one",
)

heartbeats = Table(
    "heartbeats",
    metadata,
    _key(),
    _tenant(),
    Column("phone_id", ForeignKey("wa_phone_numbers.id"), nullable=False, comment="who wrote"),
    Column("to_phone_id", ForeignKey("wa_phone_numbers.id"), nullable=False),
    Column("body", Text, nullable=False),
    Column("begun_at", Instant, nullable=False),
    Column("outcome", Text, comment="null: not looked for yet"),
    Column("settled_at", Instant),
    Index(None, "phone_id", "begun_at"),
    CheckConstraint("outcome IN ('seen', 'lost', 'not_sent')", name="outcome"),
    comment="messages between two of our own phones",
)

decisions = Table(
    "decisions",
    metadata,
    Column("name", Text, primary_key=True),
    Column("at", Instant, nullable=False),
    Column("by", Text, nullable=False),
    comment="what people decided for this installation, so that no start decides otherwise",
)

# ── Leads ─────────────────────────────────────────────────────────────────────────────────────

gold_companies = Table(
    "gold_companies",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    _tenant(),
    Column("denumire", Text, nullable=False),
    Column("cui", Text),
    Column("telefon_principal", Text),
    Column(
        "phone_key",
        Text,
        Computed(r"right(regexp_replace(telefon_principal, '\D', '', 'g'), 9)", persisted=True),
        comment="the same for every spelling of a number; others write this table too",
    ),
    Column("hlr_reachable", Boolean, nullable=False, server_default=text("true")),
    Column("email_principal", Text),
    Column("email_status", Text),
    Column("contact_principal_nume", Text),
    Column("judet", Text),
    Column("localitate", Text),
    Column("custom", JSONB, nullable=False, server_default=text("'{}'")),
    _made(),
    _changed(),
    UniqueConstraint("tenant_id", "cui"),
    Index(None, "tenant_id", "telefon_principal"),
    Index(None, "tenant_id", "phone_key"),
    Index("gold_companies_email_idx", "tenant_id", text("lower(email_principal)")),
    Index("gold_companies_cui_key_idx", "tenant_id", text(CUI_KEY)),
)

gold_lead_journey = Table(
    "gold_lead_journey",
    metadata,
    # A lead is a company, so its journey has the company's key. The documents' own `id` stays a
    # column without an index: every index on this table is paid for whenever a lead is planned.
    Column("lead_id", ForeignKey("gold_companies.id", ondelete="CASCADE"), primary_key=True),
    Column("id", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    _tenant(),
    Column("engagement_stage", Text, nullable=False, server_default="COLD"),
    Column("previous_stage", Text),
    Column("stage_changed_at", Instant),
    Column("priority", Text, nullable=False, server_default="NORMAL"),
    Column(
        "priority_rank",
        SmallInteger,
        Computed(
            "CASE priority WHEN 'HIGH' THEN 1 WHEN 'NORMAL' THEN 2 ELSE 3 END", persisted=True
        ),
        nullable=False,
    ),
    Column("requires_human_review", Boolean, nullable=False, server_default=text("false")),
    Column("human_review_reason", Text),
    Column("human_review_priority", Text),
    Column("human_review_correlation_id", Text, comment="the event that gave the reason"),
    Column("assigned_phone_id", Text, comment="no foreign key: see outbox_messages"),
    Column("assigned_at", Instant),
    Column("is_new_contact", Boolean, nullable=False, server_default=text("true")),
    Column("quota_consumption_date", Date),
    Column("whatsapp_opted_out", Boolean, nullable=False, server_default=text("false")),
    Column("email_opted_out", Boolean, nullable=False, server_default=text("false")),
    Column("opted_out_at", Instant),
    Column("last_channel_used", Text),
    Column("first_contact_at", Instant),
    Column("last_contact_at", Instant),
    Column("last_reply_at", Instant),
    Column("reply_count", Integer, nullable=False, server_default="0"),
    Column("chat_id", Text, comment="the provider's chat with the assigned phone"),
    Column("held_by", Text, comment="the person who talks to it; null: nobody does"),
    Column("held_since", Instant),
    Column(
        "in_conversation",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="the person spoke with one of us, as this lead or as another: nothing automatic",
    ),
    Column("current_sequence_id", BigInteger, comment="null: the tenant's default sequence"),
    Column("sequence_step", Integer, nullable=False, server_default="0", comment="last one sent"),
    Column(
        "next_action_at",
        Instant,
        server_default=text("now()"),
        comment="when selection looks at the lead again; null: nothing is to be planned",
    ),
    Column("open_message", Boolean, nullable=False, server_default=text("false")),
    Column("hold_reason", Text, comment="why selection passed it over the last time"),
    Column("lawful_basis", Text),
    Column("lawful_basis_source", Text),
    Column("lawful_basis_at", Instant),
    _made(),
    _changed(),
    CheckConstraint("priority IN ('HIGH', 'NORMAL', 'LOW')", name="priority"),
    CheckConstraint(
        "engagement_stage IN ('COLD', 'CONTACTED_WA', 'CONTACTED_EMAIL', 'WARM_REPLY',"
        " 'NEGOTIATION', 'CONVERTED', 'DEAD', 'PAUSED')",
        name="engagement_stage",
    ),
    CheckConstraint(
        "lawful_basis IN ('consent', 'existing_customer', 'legitimate_interest')",
        name="lawful_basis",
    ),
    CheckConstraint(
        "lawful_basis IS NULL OR (lawful_basis_source IS NOT NULL AND lawful_basis_at IS NOT NULL)",
        name="basis_is_proven",
    ),
    # Selection reads its batch off this index from the left, so a batch of 100 costs the same
    # among ten thousand leads as among a million.
    Index(
        "gold_lead_journey_selectable_idx",
        "tenant_id",
        "priority_rank",
        "next_action_at",
        "lead_id",
        postgresql_where=text(
            "NOT open_message AND NOT requires_human_review AND next_action_at IS NOT NULL"
            " AND engagement_stage IN ('COLD', 'CONTACTED_WA', 'CONTACTED_EMAIL')"
        ),
    ),
    Index(
        "gold_lead_journey_review_idx",
        "tenant_id",
        postgresql_where=text("requires_human_review"),
    ),
)

stage_changes = Table(
    "stage_changes",
    metadata,
    _key(),
    _tenant(),
    Column("lead_id", ForeignKey("gold_companies.id", ondelete="CASCADE"), nullable=False),
    Column("from_stage", Text, nullable=False),
    Column("to_stage", Text, nullable=False),
    Column("at", Instant, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    _cause(),
    Index(None, "lead_id", "at"),
)

suppressions = Table(
    "suppressions",
    metadata,
    _key(),
    _tenant(),
    Column("key_hmac", LargeBinary, nullable=False, comment="of a number, an address or a CUI"),
    Column("scope", Text, nullable=False, server_default="person"),
    Column("reason", Text, nullable=False),
    Column("at", Instant, nullable=False),
    _cause(),
    UniqueConstraint("tenant_id", "key_hmac"),
    CheckConstraint("scope IN ('person', 'company')", name="scope"),
    comment="who asked us to stop, as keyed hashes: outlives the lead",
)

# ── What we say ───────────────────────────────────────────────────────────────────────────────

templates = Table(
    "templates",
    metadata,
    _key(),
    _tenant(),
    Column("name", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("media_id", ForeignKey("media_files.id"), comment="sent with the text as its caption"),
    Column("approved_name", Text, comment="its name at Meta, where it was approved"),
    Column("approved_language", Text, nullable=False, server_default="ro"),
    Column(
        "approved_parameters",
        ARRAY(Text),
        nullable=False,
        server_default=text("'{}'"),
        comment="the variables that Meta fills in, in its order",
    ),
    _made(),
    _changed(),
    UniqueConstraint("tenant_id", "name"),
)

media_files = Table(
    "media_files",
    metadata,
    _key(),
    _tenant(),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("source_url", Text, comment="where it was fetched from; null: from a file"),
    Column("content", LargeBinary, nullable=False),
    _made(),
    UniqueConstraint("tenant_id", "name"),
    CheckConstraint("kind IN ('image', 'document', 'video')", name="kind"),
    comment="checked once when it came in; what is sent is what was checked",
)

sequences = Table(
    "sequences",
    metadata,
    _key(),
    _tenant(),
    Column("name", Text, nullable=False),
    Column("status", Text, nullable=False, server_default="active"),
    _made(),
    UniqueConstraint("tenant_id", "name"),
    CheckConstraint("status IN ('active', 'paused')", name="status"),
)

sequence_steps = Table(
    "sequence_steps",
    metadata,
    Column(
        "sequence_id",
        ForeignKey("sequences.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("channel", Text, nullable=False),
    Column("template_id", ForeignKey("templates.id"), nullable=False),
    Column("delay_minutes", Integer, nullable=False, comment="after the step before went out"),
    CheckConstraint("step >= 1 AND delay_minutes >= 0", name="step"),
)

# ── What leaves ───────────────────────────────────────────────────────────────────────────────

dispatch_batches = Table(
    "dispatch_batches",
    metadata,
    _key(),
    _tenant(),
    Column("asked", JSONB, nullable=False, comment="the run configuration"),
    Column("made_by", Text, nullable=False),
    Column("planned_at", Instant),
    Column("filled_at", Instant, comment="when it was written into the outbox; once"),
    _made(),
)

# Scratch space of one dispatch: worth nothing after a crash, so neither table is logged.
dispatch_items = Table(
    "dispatch_items",
    metadata,
    Column("batch_id", BigInteger, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("lead_id", Uuid, nullable=False),
    Column("profile", Text, nullable=False),
    Column("recipient", Text),
    Column("sequence_id", BigInteger),
    Column("step", Integer, nullable=False),
    Column("sticky_phone_id", Text),
    prefixes=["UNLOGGED"],
)

dispatch_plans = Table(
    "dispatch_plans",
    metadata,
    Column("batch_id", BigInteger, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("lead_id", Uuid, nullable=False),
    Column("recipient", Text),
    Column("sequence_id", BigInteger),
    Column("step", Integer, nullable=False),
    Column("template_id", BigInteger),
    Column("medium", Text, comment="null: passed over, or left for the next batch"),
    Column("phone_id", Text),
    Column("skip", Text),
    prefixes=["UNLOGGED"],
)

outbox_messages = Table(
    "outbox_messages",
    metadata,
    _key(),
    Column("tenant_id", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("lead_id", Uuid, nullable=False),
    Column("phone_id", Text),
    Column("recipient", Text, nullable=False),
    Column("sequence_id", BigInteger),
    Column("step", Integer),
    Column("template_id", BigInteger),
    Column("content", Text, comment="its text, for messages without a template"),
    Column("media_id", BigInteger, comment="for messages whose template brings none"),
    Column("dedupe_key", Text, comment="for messages outside a sequence"),
    Column("replaced_by", BigInteger, comment="the message that a person sent in its place"),
    Column("state", Text, nullable=False, server_default="planned"),
    Column("reason", Text, comment="why it is in this state"),
    Column("due_at", Instant, nullable=False),
    Column("not_after", Instant),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("retries", Integer, nullable=False, server_default="0"),
    Column("fence", BigInteger),
    Column("begun_at", Instant, comment="start of the last attempt"),
    Column("looked_up_at", Instant, comment="when its provider was last asked whether it left"),
    Column("body", Text, comment="exactly what was handed to the provider"),
    Column("external_id", Text),
    Column("planned_by", Text, nullable=False),
    _cause(),
    _made(),
    _changed(),
    CheckConstraint(
        "state IN ('planned', 'sending', 'sent', 'deferred', 'unconfirmed', 'parked', 'failed',"
        " 'cancelled')",
        name="state",
    ),
    # Never twice: a step is planned once per lead, and once per number when leads share one.
    # No foreign keys: rows are only ever selected from those tables, and checking the keys row by
    # row more than doubles the cost of planning.
    # One that was replaced makes room for its successor: it keeps another last column. Not by a
    # condition, because then every search for a lead's messages would have to repeat it.
    Index(
        "outbox_messages_step_once_idx",
        "lead_id",
        "sequence_id",
        "step",
        text("coalesce(replaced_by, 0)"),
        unique=True,
    ),
    Index(
        "outbox_messages_person_once_idx",
        "recipient",
        "sequence_id",
        "step",
        text("coalesce(replaced_by, 0)"),
        unique=True,
        postgresql_where=text("sequence_id IS NOT NULL"),
    ),
    Index(
        "outbox_messages_dedupe_key_idx",
        "dedupe_key",
        unique=True,
        postgresql_where=text("dedupe_key IS NOT NULL"),
    ),
    # Never two at once: the database itself refuses a second send in flight on a phone.
    Index(
        "outbox_messages_one_sending_idx",
        "phone_id",
        unique=True,
        postgresql_where=text("state = 'sending'"),
    ),
    Index(
        "outbox_messages_due_idx",
        "phone_id",
        "due_at",
        text("(kind <> 'initial')"),
        "id",
        postgresql_where=text("state IN ('planned', 'deferred')"),
    ),
    Index(
        "outbox_messages_unsettled_idx",
        "begun_at",
        postgresql_where=text("state IN ('sending', 'unconfirmed', 'parked')"),
    ),
    Index(
        "outbox_messages_external_id_idx",
        "external_id",
        postgresql_where=text("external_id IS NOT NULL"),
    ),
)

outbox_changes = Table(
    "outbox_changes",
    metadata,
    _key(),
    Column("message_id", BigInteger, nullable=False),
    Column("from_state", Text, nullable=False),
    Column("to_state", Text, nullable=False),
    Column("at", Instant, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    _cause(),
    Index(None, "message_id", "id"),
    comment="append only, until retention: one row per move of an outbox message",
)

send_attempts = Table(
    "send_attempts",
    metadata,
    Column("message_id", ForeignKey("outbox_messages.id"), primary_key=True),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("phone_id", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("begun_at", Instant, nullable=False),
    Column("finished_at", Instant),
    Column("outcome", Text, comment="null while in flight"),
    Column("code", Text),
    Column("detail", Text),
    Column("external_id", Text),
    Column("late", Boolean, nullable=False, server_default=text("false")),
    Column("raw_request", JSONB, comment="what was said to the provider, without secrets"),
    Column("raw_response", JSONB, comment="what it answered; null: nothing"),
    Index(None, "phone_id", "begun_at"),
    Index("send_attempts_raw_idx", "begun_at", postgresql_where=text("raw_request IS NOT NULL")),
)

quota_ledger = Table(
    "quota_ledger",
    metadata,
    Column("phone_id", ForeignKey("wa_phone_numbers.id"), primary_key=True),
    Column("lead_id", Uuid, primary_key=True),
    Column("day", Date, primary_key=True, comment="the tenant's day, not UTC's"),
    Column("message_id", BigInteger, nullable=False),
    Column("state", Text, nullable=False, comment="reserved, committed or released"),
    Column("at", Instant, nullable=False),
    Index(None, "phone_id", "day"),
    CheckConstraint("state IN ('reserved', 'committed', 'released')", name="state"),
)

quota_days = Table(
    "quota_days",
    metadata,
    Column("phone_id", ForeignKey("wa_phone_numbers.id"), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("used", Integer, nullable=False),
    Column("daily_limit", Integer, nullable=False),
    Column("closed_at", Instant, nullable=False),
    comment="closed days, one row per phone",
)

quota_gate = Table(
    "quota_gate",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("rebuilt_at", Instant),
    CheckConstraint("id = 1", name="one_row"),
    comment="the epoch that Redis must show before its counts are believed",
)

phone_leases = Table(
    "phone_leases",
    metadata,
    Column("phone_id", ForeignKey("wa_phone_numbers.id"), primary_key=True),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    Column("holder", Text, comment="null: free"),
    Column("host", Text),
    Column("pid", Integer),
    Column("pid_started", Double, comment="tells a process from a later one with the same pid"),
    Column("lease_until", Instant),
)

whatsapp_conversations = Table(
    "whatsapp_conversations",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    _tenant(),
    Column("lead_id", ForeignKey("gold_companies.id", ondelete="SET NULL")),
    Column("customer_phone", Text, comment="E.164; null: the person hides it"),
    Column("customer_user_id", Text, comment="the provider's id of the person"),
    Column("customer_name", Text),
    Column("phone_id", Text, comment="the phone of ours that the person wrote to last"),
    Column("chat_id", Text),
    Column("window_opened_at", Instant, comment="the person's last message"),
    Column("window_expires_at", Instant, comment="until when free text may be written to it"),
    Column("last_message_at", Instant),
    Column("message_count", Integer, nullable=False, server_default="0", comment="both ways"),
    _made(),
    _changed(),
    Index(
        "whatsapp_conversations_phone_idx",
        "tenant_id",
        "customer_phone",
        unique=True,
        postgresql_where=text("customer_phone IS NOT NULL"),
    ),
    Index(
        "whatsapp_conversations_user_id_idx",
        "tenant_id",
        "customer_user_id",
        unique=True,
        postgresql_where=text("customer_user_id IS NOT NULL"),
    ),
    Index(None, "lead_id"),
    CheckConstraint(
        "customer_phone IS NOT NULL OR customer_user_id IS NOT NULL", name="has_customer"
    ),
)

gold_communication_log = Table(
    "gold_communication_log",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    _tenant(),
    Column("lead_journey_id", ForeignKey("gold_lead_journey.lead_id", ondelete="CASCADE")),
    Column("channel", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("template_id", BigInteger),
    Column("conversation_id", ForeignKey("whatsapp_conversations.id", ondelete="SET NULL")),
    Column("contact", Text, comment="the other side: a number, an address or a provider's id"),
    Column("message_type", Text, nullable=False, server_default="text"),
    Column("content", Text),
    Column("content_rendered", Text),
    Column("external_message_id", Text),
    Column("thread_id", Text),
    Column("phone_id", Text),
    Column("phone_number", Text),
    Column("status", Text, nullable=False),
    Column("status_at", Instant),
    Column("delivered_at", Instant),
    Column("read_at", Instant),
    Column("failed_at", Instant),
    Column("error_code", Text),
    Column("error_title", Text),
    Column("media_type", Text, comment="image, document, video, audio; null: text only"),
    Column("media_id", Text, comment="the provider's id of a file that came in"),
    Column("media", JSONB, comment="the files that came in, as the provider described them"),
    Column("heard_at", Instant, comment="when an inbound message had its effects; once"),
    Column("sent_at", Instant),
    Column("quota_cost", Integer, nullable=False, server_default="0"),
    Column("sequence_id", BigInteger),
    Column("sequence_step", Integer),
    Column("job_id", BigInteger, unique=True, comment="the outbox message"),
    Column("raw_request", JSONB, comment="as in send_attempts; kept for as long"),
    Column("raw_response", JSONB),
    _cause(),
    _made(),
    UniqueConstraint("tenant_id", "channel", "external_message_id"),
    Index(None, "lead_journey_id", "sent_at"),
    Index(None, "thread_id"),
    Index(None, "conversation_id"),
    Index(None, "phone_id", "sent_at"),
    Index(
        "gold_communication_log_heard_idx",
        "phone_id",
        "sent_at",
        postgresql_where=text("direction = 'INBOUND'"),
    ),
    Index(
        "gold_communication_log_raw_idx",
        "sent_at",
        postgresql_where=text("raw_request IS NOT NULL"),
    ),
)

phone_days = Table(
    "phone_days",
    metadata,
    Column("phone_id", ForeignKey("wa_phone_numbers.id", ondelete="CASCADE"), primary_key=True),
    Column("day", Date, primary_key=True, comment="the tenant's day"),
    Column("time_zone", Text, nullable=False, comment="by which it was its day"),
    Column("sent", Integer, nullable=False),
    Column("unanswered", Integer, nullable=False, comment="of those sent that day"),
    Column("repliers", ARRAY(Text), nullable=False, comment="who wrote: leads, or else chats"),
    comment="what the log says of each phone's past days, so that nobody adds up a month again",
)

phone_day_changes = Table(
    "phone_day_changes",
    metadata,
    Column("phone_id", Text, nullable=False),
    Column("at", Instant, nullable=False),
    comment="days of phones that the log tells otherwise by now; written by a trigger of the log",
)

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
"""The log under the name and the columns that the rest of Cerniq reads it by."""

event.listen(metadata, "after_create", DDL(WHATSAPP_MESSAGES))
event.listen(metadata, "before_drop", DDL("DROP VIEW IF EXISTS whatsapp_messages"))

dead_letters = Table(
    "dead_letters",
    metadata,
    _key(),
    Column("tenant_id", ForeignKey("tenants.id"), comment="null: nobody knows whose event it is"),
    Column("message_id", BigInteger, unique=True, comment="a message that failed"),
    Column("event_id", BigInteger, unique=True, comment="or an event that cannot be handled"),
    Column("code", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("receiver", Text, comment="where an event came to, when nobody has said whose that is"),
    Column("review_required", Boolean, nullable=False),
    Column("at", Instant, nullable=False),
    Column("resolved_at", Instant),
    Column("resolved_by", Text),
    Column("resolution", Text),
    _cause(),
    Index("dead_letters_open_idx", "tenant_id", "at", postgresql_where=text("resolved_at IS NULL")),
    Index(
        "dead_letters_receiver_idx",
        "receiver",
        postgresql_where=text("resolved_at IS NULL AND receiver IS NOT NULL"),
    ),
    CheckConstraint("num_nonnulls(message_id, event_id) = 1", name="about_one"),
)

alerts = Table(
    "alerts",
    metadata,
    _key(),
    Column("tenant_id", ForeignKey("tenants.id"), comment="null: about the installation"),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False, comment="the phone, account or queue it is about"),
    Column("detail", Text, nullable=False),
    Column("opened_at", Instant, nullable=False),
    Column("notified_at", Instant),
    Column("acknowledged_at", Instant),
    Column("acknowledged_by", Text),
    Column("closed_at", Instant),
    _cause(),
    Index(
        "alerts_open_once_idx",
        text("coalesce(tenant_id, '')"),
        "kind",
        "subject",
        unique=True,
        postgresql_where=text("closed_at IS NULL"),
    ),
)

# ── What comes back ───────────────────────────────────────────────────────────────────────────

webhook_events = Table(
    "webhook_events",
    metadata,
    _key(),
    Column("provider", Text, nullable=False),
    Column("event_key", Text, nullable=False, comment="the same event has the same key for ever"),
    Column("event_type", Text, nullable=False, comment="in the provider's words"),
    Column("account", Text, comment="our number, in E.164"),
    Column("contact", Text, comment="the other side: a number, or the provider's id of a person"),
    Column(
        "people",
        ARRAY(Text),
        nullable=False,
        server_default=text("'{}'"),
        comment="everybody it is about, by every name that it has for them",
    ),
    Column("source", Text, nullable=False, comment="webhook, or sweep when we had to fetch it"),
    Column("headers", JSONB, nullable=False, server_default=text("'{}'")),
    Column("body", LargeBinary, nullable=False, comment="the raw bytes"),
    Column("received_at", Instant, nullable=False),
    Column("state", Text, nullable=False, server_default="waiting"),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("next_try_at", Instant, comment="null: at once"),
    Column("turn", SmallInteger, comment="the lowest is handled first; null: not looked at yet"),
    Column("error", Text),
    Column("result", Text, comment="what became of it, in words"),
    Column("handled_at", Instant),
    Column(
        "correlation_id",
        Text,
        server_default=text("(gen_random_uuid())::text"),
        comment="its caller's name for it, or one of ours",
    ),
    UniqueConstraint("provider", "event_key"),
    CheckConstraint("source IN ('webhook', 'sweep')", name="source"),
    CheckConstraint("state IN ('waiting', 'done', 'dead')", name="state"),
    Index(
        "webhook_events_waiting_idx",
        "received_at",
        "id",
        postgresql_where=text("state = 'waiting'"),
    ),
    # Stops are looked for in whatever is new, however much else waits.
    Index(
        "webhook_events_turn_idx",
        "turn",
        "received_at",
        "id",
        postgresql_where=text("state = 'waiting'"),
    ),
    # Every claim asks whether the person wrote something that nobody has read yet.
    Index(
        "webhook_events_unheard_idx",
        "people",
        postgresql_using="gin",
        postgresql_where=text("state <> 'done'"),
    ),
    Index(None, "provider", "received_at"),
    Index(
        "webhook_events_body_idx",
        "received_at",
        postgresql_where=text("state = 'done' AND octet_length(body) > 0"),
    ),
    comment="the inbox: everything that a provider told us, as it came",
)

receivers = Table(
    "receivers",
    metadata,
    Column("address", Text, primary_key=True, comment="a number in E.164, or an address"),
    Column("tenant_id", ForeignKey("tenants.id"), comment="null: nobody's business here"),
    Column("noted_by", Text, nullable=False),
    Column("noted_at", Instant, nullable=False),
    comment="numbers and addresses at which people write to us, beside the phones",
)

early_deliveries = Table(
    "early_deliveries",
    metadata,
    Column("channel", Text, primary_key=True),
    Column("external_id", Text, primary_key=True),
    Column("status", Text, primary_key=True),
    Column("at", Instant, nullable=False),
    Column("code", Integer),
    Column("title", Text, nullable=False),
    Column("meaning", Text),
    Column("told_at", Instant, nullable=False),
    Column("correlation_id", Text, comment="of the event that told it"),
    comment="what a provider said of messages that the log does not have yet",
)

automations = Table(
    "automations",
    metadata,
    Column("name", Text, primary_key=True, comment="a sensor, a schedule or a daemon of Dagster"),
    Column("kind", Text, nullable=False),
    Column("is_running", Boolean, nullable=False),
    Column("since", Instant, nullable=False, comment="when that was first seen"),
    Column("seen_at", Instant, nullable=False, comment="old: nobody looks any more"),
    CheckConstraint("kind IN ('sensor', 'schedule', 'daemon')", name="kind"),
    comment="what starts our work, as two sensors of Dagster see it; others can ask here",
)

run_leases = Table(
    "run_leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until", Instant, nullable=False),
    comment="who does the work that one run at a time should do; safe without, only wasteful",
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("swept_to", Instant, comment="all chats with older messages were read or are noted"),
    Column("swept_at", Instant),
    Column("begun_at", Instant, comment="of a list that was not read to its end yet"),
    Column("page", Integer, comment="the last page of that list that was read"),
    Column("good_chat", Text, comment="one that could be read: to tell bad chats from a bad day"),
    comment="how far the providers' lists of chats have been read",
)

unread_chats = Table(
    "unread_chats",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("chat_id", Text, primary_key=True),
    Column("account", Text, nullable=False, comment="our number"),
    Column("contact", Text, nullable=False),
    Column("last_at", Instant, nullable=False, comment="of the last message in it"),
    Column("since", Instant, nullable=False, comment="from when on it is to be read"),
    Column("noted_at", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("failures", Integer, nullable=False, server_default="0", comment="of its own, in a row"),
    Column("failing_since", Instant),
    Column("error", Text),
    Index(None, "provider", "due_at"),
    comment="chats in which something was said that may not be in the inbox yet",
)

# ── What comes in from files ──────────────────────────────────────────────────────────────────

imports = Table(
    "imports",
    metadata,
    _key(),
    _tenant(),
    Column("file_sha256", Text, nullable=False),
    Column("file_name", Text, nullable=False),
    Column("state", Text, nullable=False, comment="reading or done"),
    Column("options", JSONB, nullable=False, server_default=text("'{}'")),
    Column("rows_read", Integer, nullable=False, server_default="0"),
    Column("rows_bad", Integer, nullable=False, server_default="0"),
    Column("leads_new", Integer, nullable=False, server_default="0"),
    Column("leads_merged", Integer, nullable=False, server_default="0"),
    _made(),
    _changed(),
    UniqueConstraint("tenant_id", "file_sha256"),
)

import_rows = Table(
    "import_rows",
    metadata,
    Column("import_id", ForeignKey("imports.id", ondelete="CASCADE"), primary_key=True),
    Column("line", Integer, primary_key=True, autoincrement=False),
    Column("denumire", Text),
    Column("cui", Text),
    Column("telefon_principal", Text),
    Column("email_principal", Text),
    Column("contact_principal_nume", Text),
    Column("judet", Text),
    Column("localitate", Text),
    Column("priority", Text),
    Column("lawful_basis", Text),
    Column("lawful_basis_source", Text),
    Column("lawful_basis_at", Instant),
    Column("custom", JSONB),
)
