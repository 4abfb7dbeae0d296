"""What others wrote into a tenant's row and nobody can read costs that tenant only."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import Engine, text

from cerniq_pipeline.cli.times import LocalTimes
from cerniq_pipeline.domain.holds import Installation
from cerniq_pipeline.domain.outbox import OutboxMessage, State
from cerniq_pipeline.services import heartbeat
from cerniq_pipeline.services.bad_data import tell_of_bad_data
from cerniq_pipeline.services.dispatch import Request, fill_all, plan_all, select_all
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.explain import phones_needing_a_shift, why
from cerniq_pipeline.services.failover import phones_to_fail_over
from cerniq_pipeline.services.leasing import acquire, give_back, this_process
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.services.phone_health import look_after_phones
from cerniq_pipeline.services.reconcile import close_quota_days
from cerniq_pipeline.services.status import status
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    Office,
    a_phone,
    a_world,
    an_office,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.faults import said
from cerniq_pipeline_tests.faults.spoiling import BAD_TENANTS, without_tenant_checks
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

HERE = Installation(False, ("timelinesai",))
DAY = timedelta(days=1)
Servers = tuple[Engine, Redis, RunningSandbox]

each_sort = pytest.mark.parametrize(
    "kind", ["unknown zone", "hours out of range", "policy of lists of lists", "no limit"]
)
"""One of each: what Postgres, a calendar and Python itself cannot take, and what is not there."""


@pytest.fixture
def office(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Office:
    """Two tenants with a due message each: acme, and the one whose row is spoilt, first of all."""
    without_tenant_checks(database)
    office = an_office(database, redis, sandbox, steps=(FIRST, SECOND))
    with database.begin() as conn:
        a_world(conn, tenant_id="aaa", phones=0, steps=(FIRST, SECOND))
        a_phone(conn, "aaa", "aaa-01", number="+40790000900")
        some_leads(conn, "aaa", first=50)
    assert dispatch(database, tenant_id="aaa") == (1, 0)
    give_back(database.begin, office.lease)
    return office


def spoil(office: Office, kind: str) -> None:
    run_sql(office.database, BAD_TENANTS[kind], tenant="aaa")


def mend(office: Office) -> None:
    run_sql(
        office.database,
        """
        UPDATE tenants bad SET (time_zone, opens, closes, working_days, holiday_country, channels,
          basis_policy, gap_least_seconds, alike_texts, weekly_per_person,
          unanswered_per_month, failover,
          failover_after_minutes)
        = (SELECT time_zone, opens, closes, working_days, holiday_country, channels,
          basis_policy, gap_least_seconds, alike_texts, weekly_per_person,
          unanswered_per_month, failover,
          failover_after_minutes FROM tenants WHERE id = 'acme')
        WHERE id = 'aaa'
        """,
    )


def work(office: Office, phone_id: str) -> tuple[dict[str, int], str]:
    shift = work_shift(office.desk, phone_id, this_process("test"), longest=DAY / 24)
    return dict(shift.outcomes), shift.ended


def told(office: Office, what: str) -> tuple[str, str]:
    found = why(
        office.database.begin,
        what,
        tenant_id=None,
        secret=SECRET,
        here=HERE,
        now=office.clock.now(),
    )
    return found.rule, found.detail


def lead_of(office: Office, tenant_id: str) -> UUID:
    sql = "SELECT id FROM gold_companies WHERE tenant_id = :t ORDER BY telefon_principal LIMIT 1"
    found = the_row(office.database, sql, t=tenant_id)["id"]
    assert isinstance(found, UUID)
    return found


@pytest.mark.parametrize("kind", BAD_TENANTS)
def test_its_phones_stand_still_visibly_and_go_on_when_it_is_mended(office: Office, kind: str):
    database = office.database
    spoil(office, kind)

    assert phones_needing_a_shift(database.begin, here=HERE, now=NOON) == ["acme-01"]
    assert work(office, "acme-01")[0] == {"sent": 1}
    outcomes, ended = work(office, "aaa-01")
    assert (outcomes, ended.startswith("bad_data: tenants.")) == ({}, True)

    for what in ("aaa-01", str(lead_of(office, "aaa"))):
        rule, detail = told(office, what)
        assert (rule, detail.startswith("tenants.")) == ("bad_data", True)
        assert "Mars" not in detail  # what stands there may be anybody's words
    alert = "SELECT tenant_id, subject, detail FROM alerts WHERE kind = 'tenant_unreadable'"
    tell_of_bad_data(database.begin, now=NOON)
    tell_of_bad_data(database.begin, now=NOON)
    found = the_row(database, f"{alert} AND closed_at IS NULL")
    assert (found["tenant_id"], found["subject"], found["detail"]) == ("aaa", "aaa", detail)

    mend(office)
    tell_of_bad_data(database.begin, now=NOON)
    assert rows(database, f"{alert} AND closed_at IS NULL") == []
    assert phones_needing_a_shift(database.begin, here=HERE, now=NOON) == ["aaa-01"]
    assert work(office, "aaa-01")[0] == {"sent": 1}


@each_sort
def test_who_looks_at_every_tenant_goes_on_for_the_others(office: Office, kind: str):
    database = office.database
    with database.begin() as conn:
        # A phone of either has something to be moved, and somebody to write to.
        conn.execute(text("UPDATE tenants SET heartbeat_minutes = 5"))
        a_phone(conn, "acme", "acme-02", number="+40790000800")
        a_phone(conn, "acme", "acme-03", number="+40790000801")
        a_phone(conn, "aaa", "aaa-02", number="+40790000901")
        a_phone(conn, "aaa", "aaa-03", number="+40790000902")
        zone = LocalTimes.of(conn).at(NOON, "acme")
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'BANNED' WHERE id LIKE '%-01'")
    everyone = ["aaa-01", "aaa-02", "aaa-03", "acme-01", "acme-02", "acme-03"]
    spoil(office, kind)

    shown = status(database.begin, tenant_id=None, here=HERE, now=NOON)["phones"]
    assert [(one["id"], one["rule"] == "bad_data") for one in shown] == [
        (each, each.startswith("aaa")) for each in everyone
    ]
    assert [one.phone_id for one in look_after_phones(database.begin, now=NOON)] == everyone
    assert phones_to_fail_over(database.begin, now=NOON) == ["acme-01"]
    assert heartbeat.work_to_do(office.desk)
    beats = heartbeat.beat(office.desk, this_process("test"), patience=timedelta())
    assert beats == {"sent": 2, "held: bad_data": 2}
    with database.begin() as conn:
        assert LocalTimes.of(conn).at(NOON, "acme") == zone


@each_sort
def test_the_days_of_the_others_are_closed(office: Office, kind: str):
    assert work(office, "acme-01")[0] == work(office, "aaa-01")[0] == {"sent": 1}
    spoil(office, kind)
    office.clock.move(DAY)
    assert close_quota_days(office.desk) == {"acme": 1}
    mend(office)
    assert close_quota_days(office.desk) == {"aaa": 1, "acme": 0}


@each_sort
def test_the_others_are_dispatched(office: Office, kind: str):
    with office.database.begin() as conn:
        some_leads(conn, "acme", first=70)
        some_leads(conn, "aaa", first=80)
    spoil(office, kind)
    begin = office.database.begin
    select_all(begin, Request(), tenant_id=None, by="run", secret=SECRET, now=NOON)
    plan_all(begin, by="run", secret=SECRET, now=NOON)
    assert fill_all(begin, by="run", now=NOON).written == 1
    alert = the_row(office.database, "SELECT * FROM alerts WHERE kind = 'dispatch_stuck'")
    assert (alert["tenant_id"], "tenants." in str(alert["detail"])) == ("aaa", True)


@each_sort
def test_what_is_on_its_way_is_recorded_and_followed_up(office: Office, kind: str):
    message = _in_flight(office)
    spoil(office, kind)
    assert office.send(message) is State.SENT
    (following,) = rows(
        office.database, "SELECT state FROM outbox_messages WHERE tenant_id = 'aaa' AND step = 2"
    )
    assert following == {"state": "planned"}


def _in_flight(office: Office) -> OutboxMessage:
    lease = acquire(office.database.begin, "aaa-01", this_process("test"), now=NOON)
    assert lease is not None
    office.lease = lease
    return office.claimed()


@each_sort
@pytest.mark.parametrize("way", ["by hand", "in a reply"])
def test_its_people_are_heard_and_may_stop(office: Office, kind: str, way: str):
    spoil(office, kind)
    if way == "by hand":
        opt_out(
            office.database.begin,
            tenant_id="aaa",
            lead_id=lead_of(office, "aaa"),
            secret=SECRET,
            reason="asked to stop",
            now=NOON,
        )
    else:
        stop = said.a_message("STOP", at=NOON, ours="+40790000900", theirs="+40721000050")
        with office.database.begin() as conn:
            said.keep(conn, [stop], now=NOON)
        assert handle_waiting(office.desk, said.READERS) == {"done": 1}
    assert states(office.database) == {"planned": 1, "cancelled": 1}
