"""What others wrote and nobody can read costs that lead only; a stop always counts."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.holds import Installation
from cerniq_pipeline.domain.leads import Stage
from cerniq_pipeline.services.bad_data import tell_of_bad_data
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.explain import why
from cerniq_pipeline.services.lead_stages import change_stage, position
from cerniq_pipeline.services.leasing import give_back, this_process
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline.store import suppressions
from cerniq_pipeline_tests.builders import (
    NOON,
    SECRET,
    Office,
    an_office,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.faults import said
from cerniq_pipeline_tests.faults.spoiling import (
    GOES_ON,
    NO_WRITES,
    STANDS_STILL,
    without_checks,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

HOUR = timedelta(hours=1)
ANYTHING = STANDS_STILL | GOES_ON | NO_WRITES
Servers = tuple[Engine, Redis, RunningSandbox]


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty; the database refuses nothing."""
    without_checks(database)
    return database, redis, sandbox


def first_lead(database: Engine) -> uuid.UUID:
    """The lead whose message is at the head of the queue."""
    found = the_row(database, "SELECT lead_id FROM outbox_messages ORDER BY id LIMIT 1")["lead_id"]
    assert isinstance(found, uuid.UUID)
    return found


def spoilt(office: Office, kind: str) -> uuid.UUID:
    lead_id = first_lead(office.database)
    run_sql(office.database, ANYTHING[kind], lead=lead_id)
    return lead_id


def work(office: Office) -> dict[str, int]:
    give_back(office.database.begin, office.lease)
    shift = work_shift(office.desk, office.lease.phone_id, this_process("test"), longest=HOUR)
    return dict(shift.outcomes)


def explained(office: Office, lead_id: uuid.UUID) -> tuple[str, str]:
    told = why(
        office.database.begin,
        str(lead_id),
        tenant_id=None,
        secret=SECRET,
        here=Installation(False, ("timelinesai",)),
        now=office.clock.now(),
    )
    return told.rule, told.detail


# ── A claim ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("unknown stage", "gold_lead_journey.engagement_stage"),
        ("unknown basis", "gold_lead_journey.lawful_basis"),
        ("no name", "gold_companies.denumire"),
    ],
)
def test_a_lead_that_cannot_be_read_stands_still_and_others_go_on(
    servers: Servers, kind: str, at: str
):
    database, *_ = servers
    office = an_office(*servers, leads=3)
    lead_id = spoilt(office, kind)

    assert work(office) == {"sent": 2}

    assert states(database) == {"sent": 2, "deferred": 1}
    message = the_row(database, "SELECT * FROM outbox_messages WHERE state = 'deferred'")
    assert (message["lead_id"], message["due_at"]) == (lead_id, NOON + HOUR)
    assert at in str(message["reason"])
    assert "PE_HOLD" not in str(message["reason"])  # what stands there may be anybody's words
    rule, detail = explained(office, lead_id)
    assert (rule, at in detail) == ("bad_data", True)
    lead = the_row(database, "SELECT * FROM gold_lead_journey WHERE requires_human_review")
    assert (lead["lead_id"], lead["human_review_reason"]) == (lead_id, "bad data")
    tell_of_bad_data(database.begin, now=NOON)
    alert = the_row(database, "SELECT * FROM alerts WHERE closed_at IS NULL")
    assert (alert["kind"], alert["subject"], alert["detail"]) == ("bad_data", "acme", "1 leads")


def test_a_lead_whose_data_was_mended_goes_on_by_itself(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    lead_id = spoilt(office, "unknown stage")
    assert work(office) == {}
    tell_of_bad_data(database.begin, now=NOON)
    run_sql(database, "UPDATE gold_lead_journey SET engagement_stage = 'COLD'")
    office.clock.move(HOUR)

    assert work(office) == {"sent": 1}

    assert [line["recipient"] for line in sandbox.accepted()] == ["+40721000000"]
    assert position(database.begin, lead_id, secret=SECRET).stage is Stage.CONTACTED_WA
    tell_of_bad_data(database.begin, now=NOON)
    assert rows(database, "SELECT 1 FROM alerts WHERE closed_at IS NULL") == []
    assert rows(database, "SELECT 1 FROM gold_lead_journey WHERE requires_human_review") == []


def test_a_person_may_move_a_lead_out_of_a_stage_that_there_is_not(servers: Servers):
    database, *_ = servers
    office = an_office(*servers)
    lead_id = spoilt(office, "unknown stage")
    assert position(database.begin, lead_id, secret=SECRET).stage is None
    moved = change_stage(
        database.begin,
        tenant_id="acme",
        lead_id=lead_id,
        to=Stage.NEGOTIATION,
        who="ana",
        why="she called",
        secret=SECRET,
        now=NOON,
    )
    assert (moved.stage, moved.to) == (None, Stage.NEGOTIATION)
    audit = the_row(database, "SELECT from_stage, to_stage FROM stage_changes")
    assert audit == {"from_stage": "PE_HOLD", "to_stage": "NEGOTIATION"}


@pytest.mark.parametrize("kind", GOES_ON)
def test_what_no_message_asks_for_holds_nobody(servers: Servers, kind: str):
    office = an_office(*servers, leads=2)
    spoilt(office, kind)
    assert work(office) == {"sent": 2}


def test_a_fault_of_ours_puts_its_message_off_and_the_shift_goes_on(servers: Servers):
    """Something else than the lead's data: an event that no release has foreseen."""
    database, *_ = servers
    office = an_office(*servers, leads=3)
    lead_id = first_lead(database)
    run_sql(
        database,
        "UPDATE outbox_messages SET kind = 'x', state = 'planned', content = repeat('y', 9)"
        " WHERE lead_id = :lead",
        lead=lead_id,
    )
    run_sql(
        database,
        "ALTER TABLE outbox_messages ADD CHECK (NOT (kind = 'x' AND state = 'sending'))",
    )

    assert work(office) == {"sent": 2}

    message = the_row(database, "SELECT * FROM outbox_messages WHERE state = 'deferred'")
    assert message["lead_id"] == lead_id
    assert "unexpected_error: IntegrityError" in str(message["reason"])
    assert "40721" not in str(message["reason"])
    assert "yyy" not in str(message["reason"])
    tell_of_bad_data(database.begin, now=NOON)
    assert the_row(database, "SELECT kind FROM alerts WHERE closed_at IS NULL") == {
        "kind": "bad_data"
    }


def test_an_answer_that_cannot_be_written_down_is_in_doubt_and_the_shift_goes_on(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=3)
    lead_id = spoilt(office, "no write is let through")

    assert work(office) == {"sent": 2, "unconfirmed": 1}

    assert len(sandbox.accepted()) == 3
    office.clock.move(timedelta(days=2))
    settle_unconfirmed(office.desk, settle_time=HOUR, who="test")
    parked = the_row(database, "SELECT lead_id FROM outbox_messages WHERE state = 'parked'")
    assert parked == {"lead_id": lead_id}
    assert len(sandbox.accepted()) == 3


# ── A stop ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ANYTHING)
@pytest.mark.parametrize("way", ["by hand", "in a reply"])
def test_a_stop_counts_whatever_is_wrong_with_the_lead(servers: Servers, kind: str, way: str):
    database, _, sandbox = servers
    office = an_office(*servers)
    lead_id = spoilt(office, kind)
    if way == "by hand":
        opt_out(
            database.begin,
            tenant_id="acme",
            lead_id=lead_id,
            secret=SECRET,
            reason="asked to stop",
            now=NOON,
        )
    else:
        with database.begin() as conn:
            said.keep(conn, [said.a_message("STOP", at=NOON)], now=NOON)
        handle_waiting(office.desk, said.READERS)

    with database.connect() as conn:
        key = suppressions.person_key(SECRET, "+40721000000")
        assert suppressions.is_suppressed(conn, "acme", [key]) or (kind, way) == (
            "odd number",
            "by hand",
        )
    assert states(database) == {"cancelled": 1} or (kind, way) == ("odd number", "in a reply")
    office.clock.move(HOUR)
    work(office)
    assert sandbox.accepted() == []


def test_a_reply_of_a_lead_in_no_stage_is_heard_and_shown_to_a_person(servers: Servers):
    database, *_ = servers
    office = an_office(*servers)
    spoilt(office, "unknown stage")
    with database.begin() as conn:
        said.keep(conn, [said.a_message("Da, mă interesează", at=NOON)], now=NOON, source="sweep")
    assert handle_waiting(office.desk, said.READERS) == {"done": 1}
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["reply_count"], lead["human_review_reason"]) == (1, "bad data")
    assert states(database) == {"cancelled": 1}


# ── Selection ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", STANDS_STILL | GOES_ON)
def test_a_dispatch_takes_the_others(servers: Servers, kind: str):
    database, *_ = servers
    office = an_office(*servers)
    with database.begin() as conn:
        good, bad = some_leads(conn, count=2, first=5)
    run_sql(database, ANYTHING[kind], lead=bad)
    dispatch(database)
    assert rows(database, "SELECT 1 FROM outbox_messages WHERE lead_id = :id", id=good)
    assert work(office)["sent"] >= 2
