"""What nobody was sure of is looked up: found, or parked for a person, and never sent again."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.calendar import Calendar
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.domain.outbox import OutboxMessage, Sighting, State
from cerniq_pipeline.domain.reads import Turn
from cerniq_pipeline.errors import ProviderUnreadable
from cerniq_pipeline.services import claiming
from cerniq_pipeline.services.parked import drop
from cerniq_pipeline.services.reconcile import (
    LOOK_AGAIN,
    LOOKED_FOR,
    OLD,
    close_quota_days,
    compare_gate,
    settle_unconfirmed,
    settle_until_quiet,
    tell_of_doubts,
)
from cerniq_pipeline.store import inbox, outbox
from cerniq_pipeline_tests.builders import (
    FIRST,
    SECOND,
    Office,
    a_world,
    an_office,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

THEN = datetime(2024, 11, 20, 10, 0, tzinfo=UTC)
"""A Wednesday noon in Bucharest of the past: the sandbox's clock is real, and a message that it
accepts must not be older than its attempt."""

DAY_THEN = date(2024, 11, 20)
SETTLE = timedelta(minutes=15)
SECOND_LONG = timedelta(seconds=1)

Servers = tuple[Engine, Redis, RunningSandbox]


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def in_doubt(
    servers: Servers, *, accepted: bool, leads: int = 1, **world: Any
) -> tuple[Office, RunningSandbox]:
    """An office whose messages were all sent without an answer."""
    office = an_office(
        *servers, now=THEN, leads=leads, gap_least_seconds=0, gap_spread_seconds=0, **world
    )
    sandbox = servers[2]
    fault = sandbox.fault("accept_then_cut" if accepted else "cut_before_accept")
    for _ in range(leads):
        assert office.send() is State.UNCONFIRMED
    sandbox.lift(fault)
    assert len(sandbox.accepted()) == (leads if accepted else 0)
    return office, sandbox


def settle(office: Office) -> Counter[str]:
    return settle_unconfirmed(office.desk, settle_time=SETTLE, who="reconcile")


# ── Found ─────────────────────────────────────────────────────────────────────────────────────


def test_a_message_that_is_found_was_sent_with_all_its_consequences(servers: Servers):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=True, steps=(FIRST, SECOND))

    assert settle(office) == {"sent": 1}

    (line,) = sandbox.accepted()
    accepted_at = datetime.fromisoformat(line["at"]).replace(
        microsecond=0
    )  # the vendor has seconds
    message = the_row(database, "SELECT * FROM outbox_messages WHERE step = 1")
    assert (message["state"], message["external_id"]) == ("sent", line["message_uid"])
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["engagement_stage"], lead["chat_id"]) == ("CONTACTED_WA", str(line["chat_id"]))
    assert lead["first_contact_at"] == accepted_at
    assert lead["quota_consumption_date"] == DAY_THEN
    logged = the_row(database, "SELECT * FROM gold_communication_log")
    assert (logged["content_rendered"], logged["sent_at"]) == (line["text"], accepted_at)
    assert rows(database, "SELECT state, day FROM quota_ledger") == [
        {"state": "committed", "day": DAY_THEN}
    ]
    follow_up = the_row(database, "SELECT * FROM outbox_messages WHERE step = 2")
    assert follow_up["state"] == "planned"
    assert follow_up["due_at"] == Calendar().next_open(accepted_at + timedelta(days=1))
    moves = rows(database, "SELECT to_state, who FROM outbox_changes ORDER BY id")
    assert moves[-1] == {"to_state": "sent", "who": "reconcile"}
    assert settle(office) == {}
    assert len(sandbox.accepted()) == 1


def test_a_follow_up_in_doubt_is_found_in_its_chat(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, now=THEN, steps=(FIRST, SECOND), dialect="v1")
    office.send()
    sandbox.fault("accept_then_truncate")
    assert office.send_after(timedelta(days=1)) is State.UNCONFIRMED
    sandbox.lift()
    assert settle(office) == {"sent": 1}
    assert states(database) == {"sent": 2}
    assert len(sandbox.accepted()) == 2


def test_many_in_doubt_are_each_found_as_themselves(servers: Servers):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=True, leads=2)
    assert settle(office) == {"sent": 2}
    found = {
        row["recipient"]: row["external_id"]
        for row in rows(database, "SELECT recipient, external_id FROM outbox_messages")
    }
    assert found == {line["recipient"]: line["message_uid"] for line in sandbox.accepted()}


def test_found_counts_also_long_after_the_settle_time(servers: Servers):
    office, _ = in_doubt(servers, accepted=True)
    office.wait(10 * SETTLE)
    assert settle(office) == {"sent": 1}


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({}, "sent"),
        ({"text": "Alt text"}, "parked"),
        ({"sender": {"phone": "+40790000009"}}, "parked"),
        ({"timestamp": "2020-01-15 12:00:00 +0200"}, "parked"),
    ],
)
def test_a_sent_event_in_the_inbox_settles_what_the_history_does_not_show(
    servers: Servers, change: dict[str, Any], result: str
):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=True)
    sandbox.fault("history_hidden")
    (line,) = sandbox.accepted()
    message = {
        "message_uid": line["message_uid"],
        "text": line["text"],
        "timestamp": "2026-01-15 12:00:00 +0200",
        "sender": {"phone": line["sender"]},
        "recipient": {"phone": line["recipient"]},
        "attachments": [],
    }
    body = {
        "event_type": "message:sent:new",
        "chat": {"chat_id": line["chat_id"]},
        "message": message | change,
    }
    copy = InboundCopy(
        "timelinesai", "k", "message:sent:new", line["sender"], line["recipient"],
        json.dumps(body).encode(),
    )  # fmt: skip
    with database.begin() as conn:
        inbox.keep(conn, [copy], source="webhook", now=office.clock.now())

    office.wait(SETTLE)

    assert settle(office) == {result: 1}
    assert len(sandbox.accepted()) == 1


# ── Not found ─────────────────────────────────────────────────────────────────────────────────


def test_absent_counts_only_after_the_settle_time_and_then_parks(servers: Servers):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=False)
    assert settle(office) == {"waiting": 1}
    office.wait(SETTLE - SECOND_LONG)
    assert settle(office) == {"waiting": 1}
    assert states(database) == {"unconfirmed": 1}
    office.wait(SECOND_LONG)
    assert settle(office) == {"parked": 1}
    message = the_row(database, "SELECT state, reason FROM outbox_messages")
    assert message["state"] == "parked"
    assert str(message["reason"]).startswith("0 messages like it")
    assert settle(office) == {}
    # It may have gone out all the same: the lead stays with a person, the quota stays used.
    assert the_row(database, "SELECT open_message FROM gold_lead_journey") == {"open_message": True}
    assert rows(database, "SELECT state FROM quota_ledger") == [{"state": "reserved"}]
    assert rows(database, "SELECT 1 FROM gold_communication_log") == []
    office.wait(timedelta(days=1))
    assert isinstance(office.claim(), claiming.Nothing)
    assert len(sandbox.journal("request")) == 1


def test_a_history_that_lags_makes_absent_a_lie_and_nothing_is_sent_again(servers: Servers):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=True)
    hidden = sandbox.fault("history_hidden")
    assert settle(office) == {"waiting": 1}
    office.wait(SETTLE)
    assert settle(office) == {"parked": 1}
    sandbox.lift(hidden)
    assert settle(office) == {}
    assert states(database) == {"parked": 1}
    assert len(sandbox.accepted()) == 1


def test_a_history_that_comes_in_time_ends_the_doubt(servers: Servers):
    office, sandbox = in_doubt(servers, accepted=True)
    hidden = sandbox.fault("history_hidden")
    assert settle(office) == {"waiting": 1}
    sandbox.lift(hidden)
    assert settle(office) == {"sent": 1}


def test_two_messages_like_it_are_parked_for_a_person(servers: Servers):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=True)
    sandbox.fault("history_twice")
    assert settle(office) == {"waiting": 1}
    office.wait(SETTLE)
    assert settle(office) == {"parked": 1}
    reason = the_row(database, "SELECT reason FROM outbox_messages")["reason"]
    assert str(reason).startswith("2 messages like it")


@pytest.mark.parametrize(
    ("fault", "operation"),
    [
        (("server_error", {"status": 500}), "chats"),
        (("server_error", {"status": 503}), "history"),
        (("rate_limited", {}), "history"),
        (("accept_then_truncate", {}), "history"),
    ],
)
def test_a_failed_look_up_is_never_an_absence(
    servers: Servers, fault: tuple[str, dict[str, Any]], operation: str
):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=True)
    sandbox.fault(fault[0], operation=operation, **fault[1])
    office.wait(LOOKED_FOR - SECOND_LONG)
    assert settle(office) == {"unreadable": 1}
    assert states(database) == {"unconfirmed": 1}
    sandbox.lift()
    assert settle(office) == {"sent": 1}


def test_what_cannot_be_looked_up_for_hours_is_parked_with_the_reason(servers: Servers):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=True)
    sandbox.fault("server_error", operation="history")
    office.wait(LOOKED_FOR)
    assert settle(office) == {"parked": 1}
    reason = the_row(database, "SELECT reason FROM outbox_messages")["reason"]
    assert str(reason).startswith("it could not be looked up for 6:00:00: timelinesai")
    assert len(sandbox.accepted()) == 1


class Spoilt:
    """A channel that has a fault of ours in it for one person."""

    def __init__(self, real: Any, person: str) -> None:
        self._real, self._person = real, person

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sightings(self, message: OutboxMessage, *, turn: Turn) -> tuple[Sighting, ...]:
        if message.to == self._person:
            raise RuntimeError(f"what {message.to} wrote")
        return self._real.sightings(message, turn=turn)


def test_one_that_cannot_be_looked_up_costs_no_other_its_turn(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=True, leads=3)
    oldest = sandbox.accepted()[0]["recipient"]
    real = office.desk.channels["timelinesai"]
    desk = replace(office.desk, channels={"timelinesai": Spoilt(real, oldest)})  # pyright: ignore[reportArgumentType]
    # As if each round had time for one alone: it is not the same one every time.
    of_all = outbox.unconfirmed
    monkeypatch.setattr(outbox, "unconfirmed", lambda conn: of_all(conn, limit=1))
    rounds = [settle_unconfirmed(desk, settle_time=SETTLE, who="test") for _ in range(4)]
    assert rounds == [{"failed": 1}, {"sent": 1}, {"sent": 1}, {"failed": 1}]
    assert oldest not in caplog.text
    office.wait(LOOKED_FOR)
    assert settle_unconfirmed(desk, settle_time=SETTLE, who="test") == {"parked": 1}
    assert states(database) == {"sent": 2, "parked": 1}


def test_sends_that_are_in_doubt_for_long_are_alerts_that_close_by_themselves(servers: Servers):
    database, *_ = servers
    office, sandbox = in_doubt(servers, accepted=True, leads=2)

    def alerts() -> list[object]:
        tell_of_doubts(database.begin, now=office.clock.now())
        found = rows(database, "SELECT kind, tenant_id, detail FROM alerts WHERE closed_at IS NULL")
        return [tuple(row.values()) for row in found]

    office.wait(OLD)
    assert alerts() == []
    office.wait(SECOND_LONG)
    unconfirmed = ("sends_unconfirmed", "acme", "2 sends are unconfirmed for more than an hour")
    assert alerts() == [unconfirmed]
    hidden = sandbox.fault("history_hidden")
    assert settle(office) == {"parked": 2}
    assert alerts() == [("sends_parked", "acme", "2 sends are parked for more than an hour")]
    sandbox.lift(hidden)
    for parked in rows(database, "SELECT id FROM outbox_messages"):
        drop(database.begin, parked["id"], by="test", reason="x", now=office.clock.now())  # pyright: ignore[reportArgumentType]
    assert alerts() == []


def test_a_message_that_left_from_another_phone_is_not_taken_for_ours(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, now=THEN)
    sandbox.fault("wrong_phone", as_phone="+40799999999")
    sandbox.fault("accept_then_cut")
    assert office.send() is State.UNCONFIRMED
    sandbox.lift()
    office.wait(SETTLE)
    assert settle(office) == {"parked": 1}
    assert states(database) == {"parked": 1}


# ── Together with others ──────────────────────────────────────────────────────────────────────


class Meanwhile:
    """A channel during whose look-up something else happens."""

    def __init__(self, real: Any, happens: Any) -> None:
        self._real, self._happens = real, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sightings(self, message: OutboxMessage, *, turn: Turn) -> tuple[Sighting, ...]:
        found = self._real.sightings(message, turn=turn)
        self._happens()
        return found


def slowly(office: Office) -> dict[str, Any]:
    real = office.desk.channels["timelinesai"]
    return {"timelinesai": Meanwhile(real, lambda: settle(office))}


def test_two_that_settle_at_once_settle_once(servers: Servers):
    database, *_ = servers
    office, _ = in_doubt(servers, accepted=True)
    slow = replace(office.desk, channels=slowly(office))
    counts = settle_unconfirmed(slow, settle_time=SETTLE, who="slow")
    assert counts == {"settled elsewhere": 1}
    assert len(rows(database, "SELECT 1 FROM gold_communication_log")) == 1
    assert len(rows(database, "SELECT 1 FROM outbox_changes WHERE to_state = 'sent'")) == 1
    phone = the_row(database, "SELECT total_messages_sent FROM wa_phone_numbers")
    assert phone == {"total_messages_sent": 1}


def test_looking_goes_on_until_nothing_is_in_doubt(servers: Servers):
    office, sandbox = in_doubt(servers, accepted=False, leads=2)
    began = office.clock.now()
    total = settle_until_quiet(
        office.desk, settle_time=SETTLE, longest=timedelta(hours=1), who="reconcile"
    )
    assert total == {"parked": 2}
    assert SETTLE <= office.clock.now() - began < SETTLE + 2 * LOOK_AGAIN
    assert len(sandbox.journal("request")) == 2


def test_looking_ends_when_its_time_is_up(servers: Servers):
    office, sandbox = in_doubt(servers, accepted=False)
    sandbox.fault("server_error", operation="chats")
    began = office.clock.now()
    total = settle_until_quiet(
        office.desk, settle_time=SETTLE, longest=timedelta(minutes=2), who="reconcile"
    )
    assert total == {}
    assert office.clock.now() - began == timedelta(minutes=2)


def test_nothing_in_doubt_needs_no_look(servers: Servers):
    office = an_office(*servers, now=THEN)

    class Unasked:
        def sightings(self, _: OutboxMessage, *, turn: Turn) -> tuple[Sighting, ...]:
            raise ProviderUnreadable("nobody should have asked")

    desk = replace(office.desk, channels={"timelinesai": Unasked()})  # pyright: ignore[reportArgumentType]
    longest = timedelta(hours=1)
    assert settle_until_quiet(desk, settle_time=SETTLE, longest=longest, who="reconcile") == {}
    assert office.clock.now() == THEN


def test_what_a_dead_process_left_in_flight_is_found_too(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, now=THEN)
    message = office.claimed()
    office.desk.channels["timelinesai"].send(message)  # and then the process dies
    run_sql(database, "UPDATE outbox_messages SET state = 'unconfirmed'")
    with database.connect() as conn:
        (waiting,) = outbox.unconfirmed(conn)
    assert waiting == replace(message, chat_id=None)
    assert settle(office) == {"sent": 1}
    assert len(sandbox.accepted()) == 1


# ── Quota ─────────────────────────────────────────────────────────────────────────────────────


def test_redis_is_made_equal_to_the_ledger(servers: Servers):
    database, redis, _ = servers
    office = an_office(
        *servers, now=THEN, leads=3, phones=2, gap_least_seconds=0, gap_spread_seconds=0
    )
    key = f"cerniq:quota:acme-01:{DAY_THEN}"
    assert office.send() is State.SENT
    redis.hset(key, mapping={"ghost 1": "reserved", "ghost 2": "committed"})
    redis.hset(f"cerniq:quota:acme-02:{DAY_THEN}", "ghost", "reserved")
    assert compare_gate(office.desk) == 3
    assert redis.hlen(key) == 1
    assert redis.exists(f"cerniq:quota:acme-02:{DAY_THEN}") == 0
    assert compare_gate(office.desk) == 0
    redis.flushall()
    assert compare_gate(office.desk) == 0  # rebuilt as a whole, under a new epoch
    assert redis.hlen(key) == 1
    assert the_row(database, "SELECT count(*) AS n FROM quota_ledger") == {"n": 1}


def test_midnight_closes_the_day_of_each_tenant_and_opens_the_next(servers: Servers):
    database, redis, _ = servers
    office = an_office(*servers, now=THEN)
    with database.begin() as conn:
        a_world(
            conn, tenant_id="west", phones=0, time_zone="America/New_York", holiday_country=None
        )
        some_leads(conn, "west")
    office.send()
    office.clock.set(datetime(2024, 11, 20, 21, 59, 59, tzinfo=UTC))
    assert close_quota_days(office.desk) == {"acme": 0, "west": 0}
    office.clock.set(datetime(2024, 11, 20, 22, 0, tzinfo=UTC))  # midnight in Bucharest
    assert close_quota_days(office.desk) == {"acme": 1, "west": 0}
    assert rows(database, "SELECT phone_id, day, used, daily_limit FROM quota_days") == [
        {"phone_id": "acme-01", "day": DAY_THEN, "used": 1, "daily_limit": 200}
    ]
    assert redis.hlen(f"cerniq:quota:acme-01:{DAY_THEN + timedelta(days=1)}") == 0
    assert close_quota_days(office.desk) == {"acme": 0, "west": 0}


@pytest.mark.parametrize(
    ("midnight", "day"),
    [
        (datetime(2026, 10, 25, 22, 0, tzinfo=UTC), date(2026, 10, 25)),  # a day of 25 hours
        (datetime(2027, 3, 28, 21, 0, tzinfo=UTC), date(2027, 3, 28)),  # a day of 23 hours
    ],
)
def test_the_day_closes_at_midnight_also_when_the_clock_changes(
    servers: Servers, midnight: datetime, day: date
):
    database, *_ = servers
    office = an_office(
        *servers,
        now=midnight - timedelta(hours=12),
        opens=0,
        closes=1440,
        working_days=[1, 2, 3, 4, 5, 6, 7],
        holiday_country=None,
    )
    office.send()
    office.clock.set(midnight - SECOND_LONG)
    assert close_quota_days(office.desk) == {"acme": 0}
    office.clock.set(midnight)
    assert close_quota_days(office.desk) == {"acme": 1}
    assert the_row(database, "SELECT day, used FROM quota_days") == {"day": day, "used": 1}
