"""Refusals that speak of the phone: whose fault they are, and how far one of them reaches."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.deliveries import Told
from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt, State
from cerniq_pipeline.domain.refusals import OTHERS_FIRST
from cerniq_pipeline.providers.meta.webhooks import read_statuses
from cerniq_pipeline.services import phone_status, recording
from cerniq_pipeline.services.dead_letters import retry
from cerniq_pipeline.services.deliveries import take_in
from cerniq_pipeline.services.failover import fail_over
from cerniq_pipeline.services.leasing import acquire, this_process
from cerniq_pipeline.store import phones
from cerniq_pipeline_tests.builders import (
    SECRET,
    Office,
    a_phone,
    an_office,
    rows,
    run_sql,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

Servers = tuple[Engine, Redis, RunningSandbox]
Fault = tuple[str, dict[str, Any]]

MINUTE = timedelta(minutes=1)
GAP = 5 * MINUTE
POISON, OTHERS = "+40721000000", {"+40721000001", "+40721000002"}
"""The message to the first of these leads is refused by every phone."""

BANNED: Fault = ("banned", {})
OFFLINE: Fault = ("refuse", {"status": 409, "code": "account_inactive"})
ABOUT_THE_PHONE = pytest.mark.parametrize(
    ("fault", "status"), [(BANNED, "BANNED"), (OFFLINE, "OFFLINE")], ids=["banned", "offline"]
)


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    return database, redis, sandbox


@pytest.fixture
def meta_office(servers: Servers) -> Office:
    return an_office(*servers, leads=2)


def poisoned(servers: Servers, fault: Fault, *, more_phones: int = 0) -> Office:
    """Three leads on one phone, first of them the one whose message every phone refuses."""
    database, _, sandbox = servers
    office = an_office(*servers, leads=3, failover_after_minutes=0)
    with database.begin() as conn:
        for n in range(2, 2 + more_phones):
            a_phone(conn, "acme", f"acme-{n:02d}", number=f"+4079000001{n}")
    sandbox.fault(fault[0], recipient=POISON, **fault[1])
    first_in_line(database)
    return office


def first_in_line(database: Engine) -> None:
    """Let that message be the next one of its phone."""
    run_sql(
        database,
        "UPDATE outbox_messages SET due_at = due_at - interval '1 day' WHERE recipient = :it",
        it=POISON,
    )


def at(office: Office, phone_id: str) -> Office:
    """The same desk at another phone."""
    now = office.clock.now()
    lease = acquire(office.desk.begin, phone_id, this_process(phone_id), now=now)
    assert lease is not None
    return replace(office, lease=lease)


def hand_over(office: Office, phone_id: str) -> Office:
    """Lose the first phone's leads to the next one."""
    office.wait(MINUTE)
    moved = fail_over(office.desk.begin, "acme-01", now=office.clock.now(), who="test")
    assert moved.given_new_phone == 3
    run_sql(office.database, "UPDATE outbox_messages SET phone_id = :it", it=phone_id)
    first_in_line(office.database)
    return at(office, phone_id)


def statuses(database: Engine) -> dict[object, object]:
    found = rows(database, "SELECT id, status FROM wa_phone_numbers")
    return {row["id"]: row["status"] for row in found}


def come_back(office: Office) -> None:
    """The next look at the connections finds the phone linked."""
    office.wait(10 * MINUTE)
    assert [one.status for one in phone_status.sync(office.desk)] == ["ACTIVE"]


# ── Phone after phone ─────────────────────────────────────────────────────────────────────────


@ABOUT_THE_PHONE
def test_a_message_that_every_phone_refuses_stops_one_phone_and_ends_as_a_dead_letter(
    servers: Servers, fault: Fault, status: str
):
    database, _, sandbox = servers
    first = poisoned(servers, fault, more_phones=2)
    assert first.send() is State.DEFERRED
    second = hand_over(first, "acme-02")
    assert second.send() is State.FAILED

    assert statuses(database) == {"acme-01": status, "acme-02": "ACTIVE", "acme-03": "ACTIVE"}
    letter = the_row(database, "SELECT * FROM dead_letters")
    assert (letter["code"], letter["review_required"]) == ("REFUSED_BY_PHONES", True)
    assert "acme-01" in str(letter["detail"])
    told = rows(database, "SELECT kind, subject, detail FROM alerts ORDER BY id")
    assert [(one["kind"], one["subject"]) for one in told] == [
        (f"phone_{status.lower()}", "acme-01"),
        ("phone_may_be_well", "acme-01"),
    ]
    assert "acme-02" in str(told[1]["detail"])
    assert [second.send_after(GAP), second.send_after(GAP)] == [State.SENT] * 2
    assert {line["recipient"] for line in sandbox.accepted()} == OTHERS

    # A person tries it again, from a phone that never had it: that one does not stop either.
    letters, now = [int(str(letter["id"]))], second.clock.now()
    assert retry(
        database.begin, letters, by="ana", secret=SECRET, now=now, reviewed=True
    )[0].done  # fmt: skip
    run_sql(database, "UPDATE outbox_messages SET phone_id = 'acme-03' WHERE state = 'planned'")
    third = at(second, "acme-03")
    assert third.send() is State.FAILED
    assert statuses(database) == {"acme-01": status, "acme-02": "ACTIVE", "acme-03": "ACTIVE"}


def test_a_phone_that_was_lost_in_another_way_is_not_said_to_be_well(servers: Servers):
    database, _, _ = servers
    first = poisoned(servers, OFFLINE, more_phones=1)
    assert first.send() is State.DEFERRED
    run_sql(
        database,
        """UPDATE wa_phone_numbers SET status = 'BANNED', status_changed_at = :later
           WHERE id = 'acme-01'""",
        later=first.clock.now() + MINUTE,
    )
    assert hand_over(first, "acme-02").send() is State.FAILED
    assert rows(database, "SELECT 1 FROM alerts WHERE kind = 'phone_may_be_well'") == []


@ABOUT_THE_PHONE
def test_phones_that_are_really_lost_stop_each_with_a_message_of_its_own(
    servers: Servers, fault: Fault, status: str
):
    database, _, sandbox = servers
    first = an_office(*servers, leads=2, phones=2)
    sandbox.fault(fault[0], **fault[1])
    assert [first.send(), at(first, "acme-02").send()] == [State.DEFERRED] * 2
    assert statuses(database) == {"acme-01": status, "acme-02": status}
    assert rows(database, "SELECT 1 FROM dead_letters") == []


# ── The same phone again and again ────────────────────────────────────────────────────────────


def test_a_message_that_sets_its_phone_offline_again_lets_the_others_show_whose_fault_it_is(
    servers: Servers,
):
    database, _, sandbox = servers
    office = poisoned(servers, OFFLINE)
    assert office.send() is State.DEFERRED
    first_in_line(database)
    come_back(office)

    # Nothing else went out in between, so it may well be the phone.
    assert office.send() is State.DEFERRED
    assert statuses(database) == {"acme-01": "OFFLINE"}
    due_at = the_row(
        database, "SELECT due_at FROM outbox_messages WHERE recipient = :it", it=POISON
    )["due_at"]
    assert due_at == office.clock.now() + OTHERS_FIRST
    come_back(office)
    assert [office.send(), office.send_after(GAP)] == [State.SENT] * 2

    # Now it is known: the phone sends everything but this.
    office.wait(OTHERS_FIRST)
    assert office.send() is State.FAILED
    assert statuses(database) == {"acme-01": "ACTIVE"}
    assert the_row(database, "SELECT code FROM dead_letters") == {"code": "REFUSED_BY_PHONES"}
    assert {line["recipient"] for line in sandbox.accepted()} == OTHERS


def test_the_alert_about_a_doubtful_stop_closes_when_the_phone_is_back(servers: Servers):
    database, _, _ = servers
    office = poisoned(servers, OFFLINE)
    assert office.send() is State.DEFERRED
    run_sql(
        database,
        """INSERT INTO alerts (tenant_id, kind, subject, detail, opened_at)
           VALUES ('acme', 'phone_may_be_well', 'acme-01', '', now())""",
    )
    come_back(office)
    assert rows(database, "SELECT kind FROM alerts WHERE closed_at IS NULL") == []


# ── What a provider says later ────────────────────────────────────────────────────────────────


def a_failure(external_id: str, code: int, *, at: datetime) -> Told:
    """What Meta tells of a message that it had accepted, as its webhook is read."""
    status = {
        "id": external_id,
        "status": "failed",
        "timestamp": str(int(at.timestamp())),
        "errors": [{"code": code, "title": "Spam rate limit hit"}],
    }
    changes = [{"field": "messages", "value": {"statuses": [status]}}]
    (told,) = read_statuses(json.dumps({"entry": [{"id": "1", "changes": changes}]}).encode())
    return Told("WHATSAPP", told)


def sent_by(office: Office, provider: str) -> OutboxMessage:
    """A message that this provider took as `wamid.1`."""
    message = office.claimed()
    run_sql(
        office.database,
        "UPDATE wa_phone_numbers SET provider = :it, meta_phone_number_id = '140790000000'",
        it=provider,
    )
    taken = recording.record(office.desk, message, Receipt("wamid.1", "chat"), who="test")
    assert taken is State.SENT
    office.wait(GAP)
    return message


def hear(office: Office, *told: Told) -> None:
    with office.desk.begin() as conn:
        take_in(conn, told, now=office.clock.now())


@pytest.mark.parametrize(
    ("code", "status"),
    [(131048, "BANNED"), (131031, "BANNED"), (368, "BANNED"), (133010, "OFFLINE")],
)
@pytest.mark.parametrize("early", [False, True], ids=["later", "before the record"])
def test_a_ban_that_is_told_later_stops_the_phone_and_raises_one_alert(
    database: Engine, meta_office: Office, code: int, status: str, early: bool
):
    told = a_failure("wamid.1", code, at=meta_office.clock.now())
    if early:
        hear(meta_office, told)
    sent_by(meta_office, "meta")
    hear(meta_office, told)
    hear(meta_office, told)

    assert statuses(database) == {"acme-01": status}
    assert meta_office.held().rule == "phone_not_active"
    alert = the_row(database, "SELECT kind, subject, detail FROM alerts")
    assert (alert["kind"], alert["subject"]) == (f"phone_{status.lower()}", "acme-01")
    assert str(code) in str(alert["detail"])


@pytest.mark.parametrize("code", [130497, 131064, 131026, 131050])
def test_a_failure_that_is_about_the_message_stops_no_phone(
    database: Engine, meta_office: Office, code: int
):
    sent_by(meta_office, "meta")
    hear(meta_office, a_failure("wamid.1", code, at=meta_office.clock.now()))
    assert statuses(database) == {"acme-01": "ACTIVE"}
    assert rows(database, "SELECT 1 FROM alerts") == []


def test_an_old_word_does_not_stop_a_phone_that_somebody_has_brought_back(
    database: Engine, meta_office: Office
):
    sent_by(meta_office, "meta")
    told = a_failure("wamid.1", 131048, at=meta_office.clock.now())
    meta_office.wait(GAP)
    with database.begin() as conn:
        now = meta_office.clock.now()
        for status in ("BANNED", "ACTIVE"):
            phones.set_status(conn, "acme-01", status=status, reason="by hand", now=now)
    hear(meta_office, told)
    assert statuses(database) == {"acme-01": "ACTIVE"}


def test_a_word_that_nobody_signed_stops_no_phone(database: Engine, meta_office: Office):
    sent_by(meta_office, "timelinesai")
    hear(meta_office, a_failure("wamid.1", 131048, at=meta_office.clock.now()))
    assert statuses(database) == {"acme-01": "ACTIVE"}
    assert the_row(database, "SELECT code FROM dead_letters") == {"code": "PHONE_BANNED"}
