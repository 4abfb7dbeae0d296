"""What nobody signed is believed when its provider shows it, however late; a lie never is."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.services import dead_letters as letters
from cerniq_pipeline.services import drain as drain_module
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.history import sweep
from cerniq_pipeline.store import dead_letters, inbox
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    Office,
    an_office,
    rows,
    run_sql,
    states,
    the_row,
)
from cerniq_pipeline_tests.faults.said import READERS, a_message, keep
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

OURS, THEIRS = "+40790000000", "+40721000000"
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)

Servers = tuple[Engine, Redis, RunningSandbox]


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


@pytest.fixture
def office(servers: Servers) -> Office:
    """A lead that got its first message; the second one waits."""
    office = an_office(*servers, steps=(FIRST, SECOND))
    assert office.send() is State.SENT
    return office


def told(office: Office, text: str, *, uid: str = "") -> None:
    """An unsigned webhook tells of a message; without an id that the provider has, of a lie."""
    body = a_message(text, uid=uid, at=NOON, ours=OURS, theirs=THEIRS)
    with office.desk.begin() as conn:
        assert keep(conn, [body], now=office.clock.now()) == 1


def said(sandbox: RunningSandbox, text: str) -> str:
    """The person really wrote; returns the provider's id of it."""
    return str(sandbox.inbound(OURS, THEIRS, text, at=NOON, webhook=False)["message_uid"])


def hides(sandbox: RunningSandbox) -> str:
    """The provider does not know yet what was said."""
    return sandbox.fault("html_error", status=404, operation="history")


def hear(office: Office, time: timedelta) -> Counter[str]:
    """What the drain does while so much time passes."""
    outcomes: Counter[str] = Counter()
    until = office.clock.now() + time
    while True:
        outcomes += handle_waiting(office.desk, READERS)
        if office.clock.now() >= until:
            return outcomes
        office.wait(min(5 * MINUTE, until - office.clock.now()))


def the_lead(database: Engine) -> dict[str, object]:
    return the_row(database, "SELECT engagement_stage, reply_count FROM gold_lead_journey")


HEARD = {"engagement_stage": "WARM_REPLY", "reply_count": 1}


@pytest.mark.parametrize("lag", [4 * MINUTE, HOUR, 5 * HOUR])
def test_a_reply_that_its_provider_shows_late_is_heard(
    servers: Servers, office: Office, lag: timedelta
):
    database, _, sandbox = servers
    told(office, "Da", uid=said(sandbox, "Da"))
    lying = hides(sandbox)
    assert hear(office, lag)["dead"] == 0
    assert letters.check_inbox(office.desk.begin, now=office.clock.now()) == {}  # nobody's fault
    sandbox.lift(lying)
    assert hear(office, HOUR)["done"] == 1
    assert the_lead(database) == HEARD


def test_a_lie_is_asked_for_a_few_times_and_never_heard(servers: Servers, office: Office):
    database, _, sandbox = servers
    told(office, "Da, vreau oferta")
    asked = sandbox.fault("server_error", operation="history", probability=0)
    outcomes = hear(office, 8 * HOUR)
    sweep(office.desk, "timelinesai", longest=HOUR, full=True)
    outcomes += hear(office, HOUR)
    assert (outcomes["dead"], outcomes["done"]) == (1, 0)
    seen = next(one["seen"] for one in sandbox.faults() if one["id"] == asked)
    assert seen < 20
    assert the_row(database, "SELECT code FROM dead_letters") == {"code": "UNCONFIRMED_SENDER"}
    assert the_lead(database)["reply_count"] == 0
    assert states(database) == {"sent": 1, "planned": 1}


@pytest.mark.parametrize("waited", [timedelta(), 2 * HOUR, 8 * HOUR])
def test_what_the_sweep_finds_is_heard_though_its_event_waits_or_is_dead(
    servers: Servers, office: Office, waited: timedelta
):
    database, _, sandbox = servers
    told(office, "Da", uid=said(sandbox, "Da"))
    lying = hides(sandbox)
    if waited:
        hear(office, waited)
    assert the_row(database, "SELECT state FROM webhook_events") == {
        "state": "dead" if waited == 8 * HOUR else "waiting"
    }
    sandbox.lift(lying)
    sweep(office.desk, "timelinesai", longest=HOUR, full=True)
    lying = hides(sandbox)  # it need not be asked for again
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    assert the_lead(database) == HEARD
    with database.begin() as conn:
        assert dead_letters.open_letters(conn) == []
    assert rows(database, "SELECT 1 FROM alerts WHERE closed_at IS NULL") == []
    sandbox.lift(lying)
    sweep(office.desk, "timelinesai", longest=HOUR, full=True)
    assert handle_waiting(office.desk, READERS) == {}
    assert the_lead(database) == HEARD


def test_a_lie_under_a_true_id_gives_way_to_what_was_really_said(servers: Servers, office: Office):
    database, _, sandbox = servers
    told(office, "Sunt de acord cu tot", uid=said(sandbox, "Cine e?"))
    sweep(office.desk, "timelinesai", longest=HOUR)
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    log = "SELECT content FROM gold_communication_log WHERE direction = 'INBOUND'"
    assert rows(database, log) == [{"content": "Cine e?"}]


def test_a_stop_that_the_sweep_shows_waits_behind_no_other(
    servers: Servers, office: Office, monkeypatch: pytest.MonkeyPatch
):
    database, _, sandbox = servers
    told(office, "Da, vreau oferta")
    told(office, "Bine", uid=said(sandbox, "STOP"))
    run_sql(database, "UPDATE webhook_events SET turn = 2")  # both wait to be asked for
    sweep(office.desk, "timelinesai", longest=HOUR)
    monkeypatch.setattr(drain_module, "AT_ONCE", 1)
    handle_waiting(office.desk, READERS)
    stopped = the_row(database, "SELECT whatsapp_opted_out FROM gold_lead_journey")
    assert stopped == {"whatsapp_opted_out": True}


def test_an_event_that_a_person_dropped_stays_dropped(servers: Servers, office: Office):
    database, _, sandbox = servers
    told(office, "Da", uid=said(sandbox, "Da"))
    lying = hides(sandbox)
    hear(office, 8 * HOUR)
    letter = the_row(database, "SELECT id FROM dead_letters")["id"]
    letters.drop(office.desk.begin, [letter], by="ana", reason="spam", now=office.clock.now())  # pyright: ignore[reportArgumentType]
    sandbox.lift(lying)
    sweep(office.desk, "timelinesai", longest=HOUR, full=True)
    assert handle_waiting(office.desk, READERS) == {}
    assert the_lead(database)["reply_count"] == 0


def test_what_is_confirmed_while_the_drain_gives_it_up_is_heard(
    servers: Servers, office: Office, monkeypatch: pytest.MonkeyPatch
):
    database, _, sandbox = servers
    told(office, "Da", uid=said(sandbox, "Da"))
    lying = hides(sandbox)
    hear(office, 5 * HOUR)
    office.wait(3 * HOUR)
    real = inbox.give_up

    def late(*args: Any, **how: Any) -> bool:
        sandbox.lift(lying)
        sweep(office.desk, "timelinesai", longest=HOUR, full=True)
        return real(*args, **how)

    monkeypatch.setattr(drain_module.inbox, "give_up", late)
    handle_waiting(office.desk, READERS)
    assert rows(database, "SELECT 1 FROM dead_letters") == []
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    assert the_lead(database) == HEARD


def test_waiting_for_the_provider_costs_none_of_the_tries(
    servers: Servers, office: Office, monkeypatch: pytest.MonkeyPatch
):
    database, _, sandbox = servers
    told(office, "Da", uid=said(sandbox, "Da"))
    lying = hides(sandbox)
    hear(office, 2 * HOUR)
    sandbox.lift(lying)

    def choke(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(drain_module, "hear", choke)
        office.wait(2 * HOUR)
        assert handle_waiting(office.desk, READERS) == {"put off": 1}
    office.wait(HOUR)
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    assert the_lead(database) == HEARD
