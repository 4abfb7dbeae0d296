"""What stops a line before harm is done: a wrong sender, a suspended account, texts all alike, a
budget that runs out, and too many tries at once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.services.dispatch import Request
from cerniq_pipeline.services.leasing import this_process
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline.store import phones
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    ManualClock,
    a_desk,
    a_world,
    an_office,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

Servers = tuple[Engine, Redis, RunningSandbox]
NO_GAP = {"gap_least_seconds": 0, "gap_spread_seconds": 0}
HOUR = timedelta(hours=1)


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def a_shift(servers: Servers, phone_id: str, *, now: timedelta = timedelta()):
    clock = ManualClock(NOON + now)
    return work_shift(
        a_desk(*servers, clock), phone_id, this_process(phone_id), longest=timedelta(minutes=20)
    )


# ── A message that left from another phone ────────────────────────────────────────────────────


def test_one_message_from_a_wrong_phone_stops_every_phone_of_the_account(servers: Servers):
    database, _, sandbox = servers
    with database.begin() as conn:
        a_world(conn, phones=3, **NO_GAP)
        some_leads(conn, count=9)
    dispatch(database)
    sandbox.fault("wrong_phone", as_phone="+40790000001", phone="+40790000000")

    ends = [a_shift(servers, phone).ended for phone in ("acme-01", "acme-02", "acme-03")]

    wrong = [line for line in sandbox.accepted() if line["sender"] != line["asked_sender"]]
    assert (len(wrong), len(sandbox.accepted())) == (1, 1)
    assert all(end.startswith("switched_off") for end in ends)
    assert "another phone" in ends[2]
    alert = the_row(database, "SELECT * FROM alerts")
    assert (alert["kind"], alert["subject"]) == ("wrong_sender", "timelinesai")
    assert states(database) == {"sent": 1, "planned": 8}  # it did go out, and is not sent again


def test_a_follow_up_from_a_wrong_phone_stops_the_line_too(servers: Servers):
    """The chat ought to fix the sender; who relies on that notices too late."""
    database, _, sandbox = servers
    with database.begin() as conn:
        a_world(conn, phones=2, steps=(FIRST, SECOND), delay=timedelta(), **NO_GAP)
        some_leads(conn, count=2)
    dispatch(database)
    sandbox.fault("wrong_phone", as_phone="+40790000001", phone="+40790000000", after=1)

    a_shift(servers, "acme-01")

    wrong = [line for line in sandbox.accepted() if line["sender"] != line["asked_sender"]]
    assert [line["kind"] for line in wrong] == ["chat_message"]
    alert = the_row(database, "SELECT kind FROM alerts")
    assert alert["kind"] == "wrong_sender"


def test_a_sender_that_cannot_be_read_is_no_proof_and_the_line_goes_on(servers: Servers):
    database, _, sandbox = servers
    with database.begin() as conn:
        a_world(conn, **NO_GAP)
        some_leads(conn, count=2)
    dispatch(database)
    sandbox.fault("server_error", status=500, operation="history", accepted=False)

    assert a_shift(servers, "acme-01").outcomes == {"sent": 2}


def test_the_line_goes_on_when_a_person_lets_it(servers: Servers):
    database, *_ = servers
    with database.begin() as conn:
        a_world(conn, **NO_GAP)
        some_leads(conn, count=1)
        phones.switch_off(
            conn, scope="account", key="timelinesai", reason="test", by="test", now=NOON
        )
    assert dispatch(database) == (0, 0)  # nobody is planned onto a phone that is off
    with database.begin() as conn:
        assert phones.switch_on(conn, scope="account", key="timelinesai")
    run_sql(database, "UPDATE gold_lead_journey SET next_action_at = :now", now=NOON)
    dispatch(database)
    assert a_shift(servers, "acme-01").outcomes == {"sent": 1}


# ── An account that may not send ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", ["unauthorized", "forbidden"])
def test_a_refused_token_stops_the_account_and_costs_no_message(servers: Servers, fault: str):
    database, _, sandbox = servers
    office = an_office(*servers, leads=3, **NO_GAP)
    sandbox.fault(fault)

    assert office.send() is State.DEFERRED

    hold = office.held()
    assert (hold.rule, hold.until) == ("switched_off", None)
    assert states(database) == {"deferred": 1, "planned": 2}
    alert = the_row(database, "SELECT * FROM alerts")
    assert (alert["kind"], alert["subject"]) == ("account_suspended", "timelinesai")
    assert len(sandbox.journal("request")) == 1
    sandbox.lift()
    with database.begin() as conn:
        phones.switch_on(conn, scope="account", key="timelinesai")
    assert [office.send() for _ in range(3)] == [State.SENT] * 3


# ── Texts that are all alike ──────────────────────────────────────────────────────────────────

SAME = "Bună ziua! Vă scriem despre service la utilaje agricole în zona dvs., {{companie}}."


def test_a_phone_that_repeats_itself_is_held_and_somebody_is_told(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=6, steps=(SAME,), alike_texts=4, **NO_GAP)

    assert [office.send() for _ in range(4)] == [State.SENT] * 4
    office.claim()

    assert states(database) == {"sent": 4, "deferred": 2}
    held = rows(database, "SELECT reason, due_at FROM outbox_messages WHERE state = 'deferred'")
    assert all(str(row["reason"]).startswith("too_alike") for row in held)
    assert {row["due_at"] for row in held} == {NOON + HOUR}
    assert len(sandbox.accepted()) == 4
    alert = the_row(database, "SELECT * FROM alerts")
    assert (alert["kind"], alert["subject"]) == ("texts_too_alike", "acme-01")


def test_a_template_with_variety_goes_on_and_so_does_the_next_day(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, leads=5, steps=(SAME,), alike_texts=4, **NO_GAP)
    assert [office.send() for _ in range(4)] == [State.SENT] * 4
    office.claim()
    run_sql(database, "UPDATE templates SET content = 'Salut! O întrebare, {{companie}}?'")
    office.wait(HOUR)
    assert office.send() is State.SENT


# ── A budget of unanswered messages ───────────────────────────────────────────────────────────


def test_a_budget_that_runs_out_slows_new_contacts_before_it_is_spent(servers: Servers):
    """13 days of November are left: 26 messages that may stay unanswered are 2 a day."""
    database, *_ = servers
    office = an_office(*servers, leads=5, unanswered_per_month=100, **NO_GAP)
    run_sql(database, "UPDATE wa_phone_numbers SET unanswered_this_month = 74")

    assert [office.send() for _ in range(2)] == [State.SENT] * 2
    office.claim()

    reasons = rows(database, "SELECT reason FROM outbox_messages WHERE state = 'deferred'")
    assert {row["reason"] for row in reasons} == {"quota: 2 of 2 new contacts today"}


def test_a_dispatch_deals_only_what_the_budget_leaves(servers: Servers):
    database, *_ = servers
    with database.begin() as conn:
        a_world(conn, unanswered_per_month=100)
        some_leads(conn, count=5)
    run_sql(database, "UPDATE wa_phone_numbers SET unanswered_this_month = 74")
    assert dispatch(database, request=Request(batch_size=5)) == (2, 0)


# ── Too many tries at once ────────────────────────────────────────────────────────────────────


def test_no_more_than_ten_messages_a_minute_are_tried_again(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=12, **NO_GAP)
    run_sql(database, "UPDATE outbox_messages SET retries = 1, state = 'deferred'")

    assert [office.send() for _ in range(10)] == [State.SENT] * 10
    office.claim()

    waiting = rows(database, "SELECT reason, due_at FROM outbox_messages WHERE state = 'deferred'")
    assert {row["reason"] for row in waiting} == {"retry_limit: 10 a minute are out"}
    assert len(sandbox.accepted()) == 10
    office.wait(timedelta(minutes=1))
    assert [office.send() for _ in range(2)] == [State.SENT] * 2
