"""What other systems may write into our rows, with the database's checks out of the way."""

from __future__ import annotations

from sqlalchemy import Engine

from cerniq_pipeline_tests.builders import run_sql

JOURNEY = "UPDATE gold_lead_journey SET {} WHERE lead_id = :lead"
COMPANY = "UPDATE gold_companies SET {} WHERE id = :lead"

STANDS_STILL = {
    "unknown stage": JOURNEY.format("engagement_stage = 'PE_HOLD'"),
    "unknown basis": JOURNEY.format("lawful_basis = 'speranta'"),
    "no name": COMPANY.format("denumire = NULL"),
}
"""Without these nobody can say what may be written to the lead."""

GOES_ON = {
    "instants without end": JOURNEY.format(
        "last_reply_at = 'infinity', lawful_basis_at = '12026-01-01', held_since = '-infinity',"
        " quota_consumption_date = 'infinity'"
    ),
    "odd number": COMPANY.format("telefon_principal = 'sună la secretară'"),
    "odd address": COMPANY.format("email_principal = '<ana@@', cui = '''; --'"),
    "odd own fields": COMPANY.format("custom = '[[1], null, {}]'"),
    "bar in its channel": JOURNEY.format("last_channel_used = 'A|B'"),
    "countless replies": JOURNEY.format("reply_count = 2147483647"),
}
"""These are nobody's business in a message."""

NO_WRITES = {
    "no write is let through": "INSERT INTO spoilt VALUES (:lead)",
}
"""Somebody else's trigger refuses whatever we write into the journey."""

TENANT = "UPDATE tenants SET {} WHERE id = :tenant"

BAD_TENANTS = {
    "unknown zone": TENANT.format("time_zone = 'Mars/Phobos'"),
    "path for a zone": TENANT.format("time_zone = '../../etc/passwd'"),
    "hours out of range": TENANT.format("opens = -5000, closes = 90000"),
    "hours the other way": TENANT.format("opens = 1080, closes = 540"),
    "days that there are not": TENANT.format("working_days = '{1,NULL,9}'"),
    "unknown country": TENANT.format("holiday_country = 'Utopia'"),
    "policy of numbers": TENANT.format("""basis_policy = '{"WHATSAPP": 7}'"""),
    "policy of a word": TENANT.format("""basis_policy = '{"WHATSAPP": "consent"}'"""),
    "policy of lists of lists": TENANT.format("""basis_policy = '{"WHATSAPP": [["consent"]]}'"""),
    "policy without channels": TENANT.format("basis_policy = '[1, null]'"),
    "no policy": TENANT.format("basis_policy = NULL"),
    "channels of nothing": TENANT.format("channels = '{NULL,WHATSAPP}'"),
    "gap into the past": TENANT.format("gap_least_seconds = -2147483648"),
    "endless alike texts": TENANT.format("alike_texts = -1"),
    "no limit": TENANT.format("weekly_per_person = NULL, unanswered_per_month = NULL"),
    "unknown rule for lost phones": TENANT.format("failover = 'x', failover_after_minutes = NULL"),
}
"""Without these nobody can say when, how and to whom this tenant may write."""


def without_tenant_checks(engine: Engine) -> None:
    """The same for the rows of tenants."""
    run_sql(
        engine,
        """
        DO $$ DECLARE one record; BEGIN
          FOR one IN SELECT conname FROM pg_constraint
                     WHERE conrelid = 'tenants'::regclass AND contype = 'c' LOOP
            EXECUTE format('ALTER TABLE tenants DROP CONSTRAINT %I', one.conname);
          END LOOP;
          FOR one IN SELECT attname FROM pg_attribute
                     WHERE attrelid = 'tenants'::regclass AND attnum > 0 AND attnotnull
                       AND attname <> 'id' LOOP
            EXECUTE format('ALTER TABLE tenants ALTER COLUMN %I DROP NOT NULL', one.attname);
          END LOOP;
        END $$
        """,
    )


def without_checks(engine: Engine) -> None:
    """Let anything be written, as in a database that somebody else looks after."""
    for sql in (
        "ALTER TABLE gold_lead_journey DROP CONSTRAINT gold_lead_journey_engagement_stage_check",
        "ALTER TABLE gold_lead_journey DROP CONSTRAINT gold_lead_journey_lawful_basis_check",
        "ALTER TABLE gold_companies ALTER COLUMN denumire DROP NOT NULL",
        "CREATE TABLE spoilt (lead uuid PRIMARY KEY)",
        """
        CREATE FUNCTION refuse_write() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF EXISTS (SELECT 1 FROM spoilt WHERE lead = NEW.lead_id) THEN
            RAISE EXCEPTION 'not now';
          END IF;
          RETURN NEW;
        END $$
        """,
        """
        CREATE TRIGGER refuse_write BEFORE UPDATE ON gold_lead_journey
        FOR EACH ROW EXECUTE FUNCTION refuse_write()
        """,
    ):
        run_sql(engine, sql)
