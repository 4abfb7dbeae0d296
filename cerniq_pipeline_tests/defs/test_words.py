"""What a person wrote, and their number, stand in no error that Dagster stores for good."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._utils.error import serializable_error_info_from_exc_info
from redis import Redis
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from cerniq_pipeline.defs import leads, resources, sending
from cerniq_pipeline.defs.running import wordless
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.services.leasing import give_back
from cerniq_pipeline.settings import Settings
from cerniq_pipeline.store.database import DatabaseClock
from cerniq_pipeline_tests.builders import SECRET, Office, always_open, an_office, run_sql
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

NUMBER = "+40721000000"
WORDS = "Firma 0"
"""What only the lead's row and its text hold."""


@pytest.fixture
def office(
    database: Engine, redis: Redis, sandbox: RunningSandbox, monkeypatch: pytest.MonkeyPatch
) -> Office:
    """The resources of this process open an office with one message."""
    now = datetime.now(UTC)
    office = an_office(database, redis, sandbox, now=now, **always_open(now))
    give_back(database.begin, office.lease)
    monkeypatch.setattr(resources, "_engine", lambda: database)
    monkeypatch.setattr(resources, "_clock", lambda: DatabaseClock(database))
    monkeypatch.setattr(resources.Database, "secret", lambda _: SECRET)
    monkeypatch.setattr(resources.Senders, "desk", lambda _: office.desk)
    told = Settings(
        database_url="postgresql://unused/unused", redis_url="redis://unused", secret_key="x"
    )
    monkeypatch.setattr(sending, "settings", lambda: told)
    return office


def stored(act: Callable[[], object]) -> str:
    """The error of this, as Dagster stores it with a tick."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever it is called
        act()
    return serializable_error_info_from_exc_info((raised.type, raised.value, raised.tb)).to_string()


def failures(instance: dg.DagsterInstance, run_id: str) -> str:
    """What the event log holds of failures; a preview of leads is there for people to see."""
    entries = instance.all_logs(run_id)
    return "\n".join(
        str(one)
        for one in entries
        if one.dagster_event and one.dagster_event.event_type_value.endswith("FAILURE")
    )


def assert_wordless(told: str, *, names: str) -> None:
    assert names in told  # the error is there, and says what and where
    assert NUMBER.lstrip("+") not in told
    assert WORDS not in told


def test_an_error_of_an_asset_is_stored_without_the_row(office: Office):
    run_sql(office.database, "DELETE FROM outbox_messages")
    run_sql(
        office.database, "UPDATE gold_lead_journey SET open_message = false, next_action_at = now()"
    )
    run_sql(office.database, "ALTER TABLE outbox_messages ADD CHECK (recipient = 'nobody')")
    job = dg.Definitions.merge(leads.defs, resources.defs).resolve_job_def("dispatch")
    with dg.DagsterInstance.ephemeral() as instance:
        ran = job.execute_in_process(instance=instance, raise_on_error=False)
        told = failures(instance, ran.run_id)
    assert not ran.success
    assert_wordless(told, names="outbox_messages_recipient_check")


def test_an_error_of_a_shift_is_stored_without_the_message(office: Office):
    """Of a shift's own: what is wrong with one message does not end it."""
    sql = "CREATE TABLE leases_said (phone text CHECK (phone <> :said))"
    run_sql(office.database, sql.replace(":said", f"'{NUMBER} {WORDS}'"))
    run_sql(
        office.database,
        f"""
        CREATE FUNCTION leak() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO leases_said VALUES ('{NUMBER} {WORDS}'); RETURN NEW; END $$
        """,
    )
    run_sql(
        office.database,
        "CREATE TRIGGER leak BEFORE UPDATE ON phone_leases FOR EACH ROW EXECUTE FUNCTION leak()",
    )
    job = dg.Definitions.merge(sending.defs, resources.defs).resolve_job_def("phone_shift")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("phones", ["acme-01"])
        ran = job.execute_in_process(
            instance=instance, partition_key="acme-01", raise_on_error=False
        )
        told = failures(instance, ran.run_id)
    assert not ran.success
    assert_wordless(told, names="leases_said_phone_check")


def test_an_error_of_a_tick_is_stored_without_words(office: Office):
    """As Dagster would store it; each conversion of that many leads quotes what it cannot read."""
    run_sql(office.database, f'ALTER TABLE wa_phone_numbers RENAME TO "{WORDS} {NUMBER}"')
    run_sql(
        office.database,
        f"""
        CREATE VIEW wa_phone_numbers AS SELECT CAST('{WORDS} ' || phone_number AS int) AS id
        FROM "{WORDS} {NUMBER}"
        """,
    )
    context = dg.build_sensor_context(
        resources={"database": resources.Database()},
        definitions=dg.Definitions.merge(sending.defs, resources.defs),
    )
    told = stored(lambda: sending.open_shifts.evaluate_tick(context))
    assert_wordless(told, names="22P02")


@pytest.mark.parametrize(
    "error", [ValueError(f"odd: {NUMBER} {WORDS}"), NotFound(f"no {NUMBER}, ana@firma.example")]
)
def test_an_error_of_any_kind_keeps_its_place_and_loses_its_words(error: Exception):
    @wordless
    def fail() -> None:
        try:
            raise KeyError(WORDS)
        except KeyError as first:
            raise error from first

    told = stored(fail)
    assert_wordless(told, names=f"{type(error).__name__} in fail:")
    assert "ana@firma" not in told


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("INSERT INTO tenants (id, name) SELECT 'acme', :words", "tenants_pkey"),
        ("UPDATE tenants SET status = :words", "tenants_status_check"),
        ("SELECT CAST(:words AS int)", "22P02"),
        ("SELECT CAST(:words AS timestamptz)", "22007"),
    ],
)
def test_an_error_of_the_database_names_the_rule_and_not_the_value(
    office: Office, sql: str, says: str
):
    with pytest.raises(DBAPIError) as raised, office.database.begin() as conn:
        conn.execute(text(sql), {"words": f"{WORDS} {NUMBER}"})
    cause = raised.value.__cause__
    for told in (str(raised.value), repr(raised.value), str(cause), repr(cause)):
        assert WORDS not in told
        assert NUMBER not in told
    assert says in str(raised.value)
