"""What other systems may write into a lead's rows, with the database's checks out of the way."""

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
