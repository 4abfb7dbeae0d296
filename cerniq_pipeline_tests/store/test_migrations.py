"""The migrations bring a database to the schema, and the database itself keeps the first rules."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from cerniq_pipeline.dev.embedded import EmbeddedPostgres
from cerniq_pipeline.store.migrations import upgrade
from cerniq_pipeline.store.schema import metadata
from cerniq_pipeline_tests.builders import NOON, a_world, dispatch, rows, run_sql, some_leads


@pytest.fixture
def empty_database(postgres: EmbeddedPostgres):
    """The address of a database that has never been migrated."""
    name = f"bare_{uuid.uuid4().hex[:12]}"
    postgres.create_database(name)
    yield postgres.url(name)
    admin = create_engine(postgres.url("postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as conn:
        conn.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


def test_the_migrations_lead_exactly_to_the_schema(database: Engine):
    with database.connect() as conn:
        context = MigrationContext.configure(
            conn, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, metadata) == []


def test_every_index_condition_and_check_is_the_schemas(database: Engine, empty_database: str):
    """Autogenerate does not look at conditions: compare what Postgres itself says of both ways."""
    direct = create_engine(empty_database)
    try:
        metadata.create_all(direct)
        assert rules_of(direct) == rules_of(database)
    finally:
        direct.dispose()


def rules_of(engine: Engine) -> list[tuple[str, str]]:
    """Every index and constraint of our tables as Postgres writes it."""
    with engine.connect() as conn:
        found = conn.execute(
            text("""
                SELECT tablename || '.' || indexname, indexdef FROM pg_indexes
                WHERE schemaname = 'public' AND tablename <> 'alembic_version'
                UNION ALL
                SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
                FROM pg_constraint
                WHERE connamespace = 'public'::regnamespace
                  AND conrelid::regclass::text <> 'alembic_version'
                UNION ALL
                SELECT relname, relpersistence::text FROM pg_class
                WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
                  AND relname <> 'alembic_version'
                ORDER BY 1, 2
            """)
        )
        return [(row[0], row[1]) for row in found]


def test_upgrading_again_changes_nothing(database_url: str, database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=2)
    before = rules_of(database)
    upgrade(database_url)
    assert rules_of(database) == before
    assert rows(database, "SELECT count(*) AS n FROM gold_lead_journey") == [{"n": 2}]
    assert rows(database, "SELECT id, epoch FROM quota_gate") == [{"id": 1, "epoch": 1}]


def test_a_lead_in_no_stage_is_paused_and_shown_when_the_stages_are_checked(empty_database: str):
    upgrade(empty_database, to="9_lead_data-1")
    engine = create_engine(empty_database)
    with engine.begin() as conn:
        conn.execute(text("INSERT INTO tenants (id, name) VALUES ('acme', 'Acme')"))
        for name in "AB":
            company = "INSERT INTO gold_companies (tenant_id, denumire) VALUES ('acme', :name)"
            conn.execute(text(company), {"name": name})
        conn.execute(
            text("""
                UPDATE gold_lead_journey j SET engagement_stage = 'pe_hold'
                FROM gold_companies c WHERE c.id = j.lead_id AND c.denumire = 'B'
            """)
        )
    upgrade(empty_database)
    leads = "SELECT engagement_stage, human_review_reason FROM gold_lead_journey ORDER BY 1"
    assert rows(engine, leads) == [
        {"engagement_stage": "COLD", "human_review_reason": None},
        {"engagement_stage": "PAUSED", "human_review_reason": "bad data"},
    ]
    assert rows(engine, "SELECT from_stage, to_stage, who FROM stage_changes") == [
        {"from_stage": "pe_hold", "to_stage": "PAUSED", "who": "migration"}
    ]
    engine.dispose()


def test_a_tenants_row_that_cannot_be_read_stays_as_it_is_and_no_other_is_written(
    empty_database: str,
):
    upgrade(empty_database, to="9_tenant_data-1")
    engine = create_engine(empty_database)
    with engine.begin() as conn:
        conn.execute(
            text("INSERT INTO tenants (id, name, time_zone) VALUES ('acme', 'A', 'Mars/Phobos')")
        )
    upgrade(empty_database)
    assert rows(engine, "SELECT time_zone FROM tenants") == [{"time_zone": "Mars/Phobos"}]
    with engine.begin() as conn:
        conn.execute(text("UPDATE tenants SET time_zone = 'Asia/Tokyo'"))
    refused = (
        "time_zone = 'Mars/Phobos'",
        "working_days = '{1,NULL}'",
        "working_days = '{8}'",
        "channels = '{NULL}'",
        "basis_policy = '[]'",
        """basis_policy = '{"WHATSAPP": "consent"}'""",
        """basis_policy = '{"WHATSAPP": [["consent"]]}'""",
        """basis_policy = '{"WHATSAPP": [7]}'""",
        "gap_least_seconds = -1",
        "alike_texts = -1",
    )
    for change in refused:
        with pytest.raises(DBAPIError, match=r"check constraint|not recognized"):
            with engine.begin() as conn:
                conn.execute(text(f"UPDATE tenants SET {change}"))
    engine.dispose()


def test_two_upgrades_at_once_take_turns(empty_database: str):
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(upgrade, empty_database) for _ in range(2)]:
            done.result(timeout=60)
    engine = create_engine(empty_database)
    with engine.connect() as conn:
        assert conn.execute(text("SELECT count(*) FROM quota_gate")).scalar_one() == 1
    engine.dispose()


# ── What the database does by itself ──────────────────────────────────────────────────────────


def test_a_company_written_by_anybody_becomes_a_lead(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        conn.execute(
            text("""
                INSERT INTO gold_companies (tenant_id, denumire, telefon_principal)
                SELECT 'acme', 'Firma ' || n, '+407210' || lpad(n::text, 5, '0')
                FROM generate_series(1, 500) n
            """)
        )
    (found,) = rows(
        database,
        """
        SELECT count(*) AS leads, count(DISTINCT j.lead_id) AS companies,
               bool_and(engagement_stage = 'COLD' AND next_action_at IS NOT NULL
                        AND lawful_basis IS NULL AND NOT open_message
                        AND j.tenant_id = c.tenant_id) AS fresh
        FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
        """,
    )
    assert found == {"leads": 500, "companies": 500, "fresh": True}


def test_writing_a_company_again_leaves_its_journey_alone(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        (lead,) = some_leads(conn, cui="RO1")
    run_sql(database, "UPDATE gold_lead_journey SET engagement_stage = 'NEGOTIATION'")
    run_sql(
        database,
        """
        INSERT INTO gold_companies (tenant_id, denumire, cui) VALUES ('acme', 'Alt nume', 'RO1')
        ON CONFLICT (tenant_id, cui) DO UPDATE SET denumire = excluded.denumire
        """,
    )
    assert rows(database, "SELECT lead_id, engagement_stage FROM gold_lead_journey") == [
        {"lead_id": lead, "engagement_stage": "NEGOTIATION"}
    ]


def test_a_new_phone_gets_its_lease(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=3)
    assert rows(database, "SELECT phone_id, fence, holder FROM phone_leases ORDER BY 1") == [
        {"phone_id": f"acme-0{n}", "fence": 0, "holder": None} for n in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "rewriting",
    [
        "UPDATE outbox_changes SET why = 'nobody knows'",
        "DELETE FROM outbox_changes",
        "UPDATE outbox_changes SET why = 'nobody knows' WHERE false",
    ],
)
def test_the_trace_of_messages_is_append_only(database: Engine, rewriting: str):
    run_sql(
        database,
        """
        INSERT INTO outbox_changes (message_id, from_state, to_state, at, who, why)
        VALUES (1, 'planned', 'sending', now(), 'test', 'attempt 1')
        """,
    )
    with pytest.raises(DBAPIError, match="outbox_changes is append only"):
        run_sql(database, rewriting)
    assert [row["why"] for row in rows(database, "SELECT why FROM outbox_changes")] == ["attempt 1"]


# ── What the database refuses by itself ───────────────────────────────────────────────────────


def test_a_second_message_in_flight_on_one_phone_is_refused(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=2)
    assert dispatch(database) == (2, 0)
    run_sql(
        database,
        """
        UPDATE outbox_messages SET state = 'sending'
        WHERE id = (SELECT min(id) FROM outbox_messages)
        """,
    )
    with pytest.raises(IntegrityError, match="outbox_messages_one_sending_idx"):
        run_sql(database, "UPDATE outbox_messages SET state = 'sending' WHERE state = 'planned'")


@pytest.mark.parametrize(
    ("same", "index"),
    [
        ("lead", "outbox_messages_step_once_idx"),
        ("number", "outbox_messages_person_once_idx"),
    ],
)
def test_a_step_stands_in_the_outbox_once_per_lead_and_per_number(
    database: Engine, same: str, index: str
):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    dispatch(database)
    lead = "lead_id" if same == "lead" else "gen_random_uuid()"
    number = "recipient" if same == "number" else "'+40721999999'"
    with pytest.raises(IntegrityError, match=index):
        run_sql(
            database,
            f"""
            INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id, recipient,
                                         sequence_id, step, due_at, planned_by)
            SELECT tenant_id, channel, kind, {lead}, phone_id, {number}, sequence_id, step, due_at,
                   'a second dispatcher'
            FROM outbox_messages
            """,
        )


@pytest.mark.parametrize(
    "wrong",
    [
        "UPDATE gold_lead_journey SET lawful_basis = 'consent'",  # without source and date
        "UPDATE gold_lead_journey SET lawful_basis = 'hope', lawful_basis_source = 'x',"
        " lawful_basis_at = now()",
        "UPDATE gold_lead_journey SET priority = 'URGENT'",
        "UPDATE gold_lead_journey SET engagement_stage = 'PE_HOLD'",
        "UPDATE tenants SET opens = 1080, closes = 540",
        "UPDATE wa_phone_numbers SET daily_quota = -1",
        "UPDATE wa_phone_numbers SET status = 'RESTING'",
        "INSERT INTO switches VALUES ('galaxy', '', 'x', 'x', now())",
        "INSERT INTO quota_gate (id, epoch) VALUES (2, 1)",
    ],
)
def test_values_that_mean_nothing_are_refused(database: Engine, wrong: str):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, basis=None, at=NOON)
    with pytest.raises(IntegrityError, match="check constraint"):
        run_sql(database, wrong)
