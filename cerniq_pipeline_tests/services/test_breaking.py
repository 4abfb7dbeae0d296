"""A provider in trouble is left alone, probed with reads, and used again when it answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.breakers import PROBE_EVERY
from cerniq_pipeline.domain.holds import Installation
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.services import breaking
from cerniq_pipeline.services.explain import phones_needing_a_shift, why
from cerniq_pipeline.services.leasing import this_process
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.services.sending import CALL_DEADLINE
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline.store import leases, phones
from cerniq_pipeline_tests.builders import (
    SECRET,
    Office,
    a_desk,
    an_office,
    rows,
    run_sql,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

Servers = tuple[Engine, Redis, RunningSandbox]
NO_GAP = {"gap_least_seconds": 0, "gap_spread_seconds": 0}


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def breaker(database: Engine, scope: str) -> dict[str, object] | None:
    found = rows(database, "SELECT * FROM breakers WHERE scope = :scope", scope=scope)
    return found[0] if found else None


def troubled(servers: Servers, **fault: object) -> Office:
    """An office whose phone has just seen three odd answers in a row."""
    office = an_office(*servers, leads=8, **NO_GAP)
    servers[2].fault("server_error", status=502, accepted=False, **fault)
    for _ in range(3):
        assert office.send() is State.UNCONFIRMED
    return office


def test_nothing_is_written_while_everything_is_in_order(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, leads=2, **NO_GAP)
    assert [office.send(), office.send()] == [State.SENT] * 2
    assert rows(database, "SELECT * FROM breakers") == []


def test_a_phone_with_three_odd_answers_rests_and_raises_one_alert(servers: Servers):
    database, _, sandbox = servers
    office = troubled(servers)

    hold = office.held()

    assert (hold.rule, hold.until) == ("breaker_open", office.clock.now() + PROBE_EVERY)
    assert len(sandbox.journal("request")) == 3
    alert = the_row(database, "SELECT * FROM alerts")
    assert (alert["kind"], alert["subject"]) == ("phone_trouble", "acme-01")


def test_five_troubles_of_any_phones_stop_all_phones_of_the_provider(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=8, phones=2, **NO_GAP)
    other = an_other(servers, office)
    sandbox.fault("html_error", status=503, accepted=False)

    for one in (office, other, office, other, office):
        assert one.send() is State.UNCONFIRMED

    assert other.held().rule == "breaker_open"
    assert breaker(database, "provider")["state"] == "open"  # pyright: ignore[reportOptionalSubscript]
    kinds = rows(database, "SELECT DISTINCT kind FROM alerts WHERE closed_at IS NULL ORDER BY 1")
    assert {row["kind"] for row in kinds} == {"phone_trouble", "provider_trouble"}


def an_other(servers: Servers, office: Office) -> Office:
    """The second phone of an office, in the same hands."""
    database, redis, sandbox = servers
    with database.begin() as conn:
        row = leases.lock(conn, "acme-02")
        me = this_process("test")
        until = office.clock.now() + timedelta(hours=1)
        leases.grant(conn, "acme-02", to=me, fence=row.fence + 1, until=until)
    lease = replace(office.lease, phone_id="acme-02", fence=row.fence + 1)
    return Office(database, a_desk(database, redis, sandbox, office.clock), office.clock, lease)


def test_trouble_of_the_provider_costs_a_message_none_of_its_tries(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=6, **NO_GAP)
    sandbox.fault("rate_limited")

    for _ in range(5):
        assert office.send() is State.DEFERRED

    assert office.held().rule == "breaker_open"
    assert states(database) == {"deferred": 5, "planned": 1}
    tries = rows(database, "SELECT retries FROM outbox_messages WHERE state = 'deferred'")
    assert sorted(row["retries"] for row in tries) == [0, 1, 1, 1, 1]  # the fifth opened it


def test_a_long_storm_is_probed_with_reads_and_then_everything_is_sent(servers: Servers):
    """Twenty minutes of 502: no message more is put at risk, and none is given up."""
    database, _, sandbox = servers
    office = troubled(servers, operation="any")
    begun = office.clock.now()
    asked = []
    while office.clock.now() - begun < timedelta(minutes=20):
        hold = office.held()
        assert hold.until is not None
        office.wait(max(hold.until - office.clock.now(), timedelta()))
        before = reads(sandbox)
        assert not breaking.probe(office.desk, "acme-01")
        asked += [office.clock.now()] * (reads(sandbox) - before)
    sandbox.lift()

    assert len(asked) > 10
    assert all(later - earlier >= PROBE_EVERY for earlier, later in pairwise(asked))
    assert states(database) == {"unconfirmed": 3, "planned": 5}
    office.wait(PROBE_EVERY)
    assert breaking.probe(office.desk, "acme-01")
    assert [office.send() for _ in range(5)] == [State.SENT] * 5
    assert breaker(database, "phone")["state"] == "closed"  # pyright: ignore[reportOptionalSubscript]
    assert rows(database, "SELECT 1 FROM alerts WHERE closed_at IS NULL") == []


def reads(sandbox: RunningSandbox) -> int:
    """How often the sandbox was asked for its accounts."""
    return sandbox.client.get("/_sandbox/health").json()["calls"].get("accounts", 0)


def test_the_first_message_after_a_probe_decides_alone(servers: Servers):
    """While it is under way nobody else may try; its failure opens for twice as long."""
    database, _, sandbox = servers
    office = an_office(*servers, leads=4, phones=2, **NO_GAP)
    other = an_other(servers, office)
    half_open = """
        INSERT INTO breakers (scope, key, state, failures, openings, probe_at, changed_at)
        VALUES ('provider', 'timelinesai', 'half_open', 5, 1, :now, :now)
    """
    run_sql(database, half_open, now=office.clock.now())
    message = office.claimed()

    assert other.held().rule == "breaker_open"
    sandbox.fault("server_error", status=502, accepted=False, times=1)
    assert office.send(message) is State.UNCONFIRMED

    hold = other.held()
    assert (hold.rule, hold.until) == ("breaker_open", office.clock.now() + 2 * PROBE_EVERY)


def test_only_one_of_two_gets_the_turn_to_probe(servers: Servers):
    office = troubled(servers)
    office.wait(PROBE_EVERY)
    assert breaking.probe(office.desk, "acme-01")
    assert not breaking.probe(office.desk, "acme-01")


def test_a_shift_outlives_a_short_storm_by_itself(servers: Servers):
    database, _, sandbox = servers
    office = troubled(servers)
    fault = sandbox.faults()[0]["id"]
    run_sql(database, "UPDATE phone_leases SET holder = NULL, lease_until = NULL")
    sandbox.lift(fault)

    shift = work_shift(office.desk, "acme-01", this_process("shift"), longest=timedelta(minutes=10))

    assert shift.outcomes == {"sent": 5}
    assert shift.ended.startswith("nothing is due")


def test_an_outcome_that_asked_nobody_closes_no_breaker(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, leads=1, **NO_GAP)
    half_open = """
        INSERT INTO breakers (scope, key, state, failures, openings, probe_at, changed_at)
        VALUES ('provider', 'timelinesai', 'half_open', 5, 1, :now, :now)
    """
    run_sql(database, half_open, now=office.clock.now())
    message = office.claimed()
    office.clock.move(CALL_DEADLINE + timedelta(seconds=1))

    assert office.send(message) is State.DEFERRED  # too late to begin

    assert breaker(database, "provider")["state"] == "half_open"  # pyright: ignore[reportOptionalSubscript]


def test_a_phone_is_not_probed_while_its_provider_is_in_trouble(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, **NO_GAP)
    now = office.clock.now()
    opened = """
        INSERT INTO breakers (scope, key, state, failures, openings, probe_at, changed_at)
        VALUES ('provider', 'timelinesai', 'open', 5, 1, :later, :now),
               ('phone', 'acme-01', 'open', 3, 1, :now, :now)
    """
    run_sql(database, opened, later=now + PROBE_EVERY, now=now)
    before = reads(sandbox)

    assert not breaking.probe(office.desk, "acme-01")
    assert reads(sandbox) == before

    office.wait(PROBE_EVERY)
    assert breaking.probe(office.desk, "acme-01")  # the provider's turn
    assert breaking.probe(office.desk, "acme-01")  # then the phone's
    assert office.send() is State.SENT
    still = rows(database, "SELECT 1 FROM breakers WHERE state <> 'closed'")
    assert still == []


def test_while_the_provider_is_in_trouble_one_shift_is_opened_to_probe_it(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, leads=6, phones=3, **NO_GAP)
    run_sql(database, "UPDATE phone_leases SET holder = NULL, lease_until = NULL")
    now = office.clock.now()
    here = Installation(live=False, providers={"timelinesai"})
    assert len(phones_needing_a_shift(database.begin, here=here, now=now)) == 3
    opened = """
        INSERT INTO breakers (scope, key, state, failures, openings, probe_at, changed_at)
        VALUES ('provider', 'timelinesai', 'open', 5, 1, :at, :now)
    """
    run_sql(database, opened, at=now + PROBE_EVERY, now=now)
    assert phones_needing_a_shift(database.begin, here=here, now=now) == ["acme-01"]
    run_sql(database, "UPDATE breakers SET probe_at = :far", far=now + timedelta(minutes=10))
    assert phones_needing_a_shift(database.begin, here=here, now=now) == []


# ── A provider without a key ──────────────────────────────────────────────────────────────────


def test_a_phone_whose_provider_has_no_key_rests_and_says_so_everywhere(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, **NO_GAP)
    now = office.clock.now()
    run_sql(database, "UPDATE phone_leases SET holder = NULL, lease_until = NULL")
    nobody = Installation(live=False, providers=frozenset())

    keyless = replace(office.desk, channels={})
    assert keyless.hold_on(phone_of(database), now=now).rule == "no_key"  # pyright: ignore[reportOptionalMemberAccess]
    said = why(database.begin, "acme-01", tenant_id=None, secret=SECRET, here=nobody, now=now)
    assert said.rule == "no_key"
    assert phones_needing_a_shift(database.begin, here=nobody, now=now) == []
    shift = work_shift(keyless, "acme-01", this_process("shift"), longest=timedelta(minutes=5))
    assert shift.ended.startswith("no_key")


def phone_of(database: Engine):
    with database.begin() as conn:
        return phones.get(conn, "acme-01")


def test_a_send_in_doubt_at_a_provider_without_a_key_waits_and_stops_nobody(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, **NO_GAP)
    sandbox.fault("accept_then_cut")
    assert office.send() is State.UNCONFIRMED

    counts = settle_unconfirmed(
        replace(office.desk, channels={}), settle_time=timedelta(), who="test"
    )

    assert counts == {"unreadable": 1}
    assert states(database) == {"unconfirmed": 1}
