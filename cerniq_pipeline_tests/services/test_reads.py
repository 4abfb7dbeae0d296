"""Every read of a provider's account is counted, whoever makes it and for whatever reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import Engine

from cerniq_pipeline.domain.breakers import PROBE_EVERY
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.domain.reads import LIMITS, What
from cerniq_pipeline.services import breaking
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.reads import at_once
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.store.quotas import QuotaGate
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    Office,
    an_office,
    rows,
    run_sql,
    the_row,
)
from cerniq_pipeline_tests.faults.said import READERS, a_message, keep
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

Servers = tuple[Engine, Redis, RunningSandbox]


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def use_up(office: Office, *kinds: What) -> None:
    """Leave this minute no read of these kinds."""
    for what in kinds:
        for _ in range(LIMITS[what].most):
            at_once(office.desk, "timelinesai")(what)


def asked(sandbox: RunningSandbox) -> Callable[[], int]:
    """Counts what the provider was asked from now on, by a fault that never strikes."""
    watch = sandbox.fault("server_error", operation="any", probability=0)

    def count() -> int:
        return next(one["seen"] for one in sandbox.faults() if one["id"] == watch)

    return count


def a_told_reply(office: Office, sandbox: RunningSandbox) -> None:
    """A reply that was really written, as an unsigned webhook tells it."""
    (ours,) = sandbox.accepted()
    line = sandbox.inbound(ours["sender"], ours["recipient"], "Da", webhook=False)
    body = a_message(
        "Da",
        uid=str(line["message_uid"]),
        at=NOON,
        ours=ours["sender"],
        theirs=ours["recipient"],
        from_us=False,
        chat_id=int(line["chat_id"]),
    )
    with office.desk.begin() as conn:
        keep(conn, [body], now=NOON)


def test_a_reply_waits_for_a_read_and_loses_no_try(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    office.send()
    a_told_reply(office, sandbox)
    use_up(office, "history")
    reads = asked(sandbox)
    assert handle_waiting(office.desk, READERS) == {"put off": 1}
    assert (reads(), the_row(database, "SELECT tries FROM webhook_events")) == (0, {"tries": 0})
    office.wait(MINUTE)
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    assert reads() == 1


@pytest.mark.parametrize("kinds", [("history",), ("chats",)])
def test_a_send_in_doubt_is_looked_up_when_there_are_reads_again(
    servers: Servers, kinds: tuple[What, ...]
):
    sandbox = servers[2]
    office = an_office(*servers)
    fault = sandbox.fault("accept_then_cut")
    assert office.send() is State.UNCONFIRMED
    sandbox.lift(fault)
    use_up(office, *kinds)
    counts = settle_unconfirmed(office.desk, settle_time=timedelta(), who="test")
    assert counts == {"put off": 1}  # and not parked: nobody was asked whether it is there
    office.wait(MINUTE)
    assert settle_unconfirmed(office.desk, settle_time=MINUTE, who="test")["put off"] == 0


def test_a_send_of_which_an_event_tells_is_not_parked_because_nobody_may_ask(servers: Servers):
    sandbox = servers[2]
    office = an_office(*servers)
    sandbox.fault("accept_then_cut")
    assert office.send() is State.UNCONFIRMED
    (sent,) = sandbox.accepted()
    echo = a_message(
        str(sent["text"]),
        uid=str(sent["message_uid"]),
        at=NOON,
        ours=sent["sender"],
        theirs=sent["recipient"],
        from_us=True,
    )
    with office.desk.begin() as conn:
        keep(conn, [echo], now=NOON)
    office.wait(timedelta(hours=7))
    use_up(office, "history")
    counts = settle_unconfirmed(office.desk, settle_time=timedelta(), who="test")
    assert counts == {"put off": 1}


def test_a_probe_that_nobody_may_make_is_no_answer(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=4, gap_least_seconds=0, gap_spread_seconds=0)
    sandbox.fault("server_error", status=502, accepted=False, times=3)
    for _ in range(3):
        assert office.send() is State.UNCONFIRMED
    office.wait(PROBE_EVERY)
    use_up(office, "history")
    reads = asked(sandbox)
    assert not breaking.probe(office.desk, "acme-01")
    assert reads() == 0
    assert {row["state"] for row in rows(database, "SELECT state FROM breakers")} == {
        "open",
        "closed",
    }
    office.wait(MINUTE)
    assert breaking.probe(office.desk, "acme-01")


def test_a_follow_up_without_a_read_for_its_chat_steps_back_and_troubles_nobody(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    office.send()
    run_sql(database, "UPDATE gold_lead_journey SET chat_id = NULL")
    office.wait(DAY)
    use_up(office, "chats")
    assert office.send() is State.DEFERRED
    waiting = the_row(database, "SELECT reason FROM outbox_messages WHERE step = 2")
    assert str(waiting["reason"]).startswith("READS_USED_UP")
    assert rows(database, "SELECT 1 FROM breakers WHERE failures > 0") == []
    office.wait(MINUTE)
    assert office.send() is State.SENT
    assert len(sandbox.accepted()) == 2


def test_without_a_count_nobody_asks(servers: Servers):
    sandbox = servers[2]
    office = an_office(*servers)
    office.send()
    a_told_reply(office, sandbox)
    unreachable = Redis(unix_socket_path="/nowhere", retry=Retry(NoBackoff(), 0))
    blind = replace(office.desk, gate=QuotaGate(unreachable))
    reads = asked(sandbox)
    assert handle_waiting(blind, READERS) == {"put off": 1}
    (ours,) = sandbox.accepted()
    stop = a_message("STOP", at=NOON, ours=ours["sender"], theirs=ours["recipient"])
    with office.desk.begin() as conn:
        keep(conn, [stop], now=NOON)
    assert handle_waiting(blind, READERS) == {"done": 1}  # what may be done without asking is done
    assert reads() == 0
