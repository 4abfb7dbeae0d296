"""Claim, call and record over the real servers: every outcome with all that follows from it.

The sandbox's journal says what went out; the tables say whether we know it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from cerniq_pipeline.domain.holds import Hold
from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt, State
from cerniq_pipeline.domain.pacing import Gap
from cerniq_pipeline.errors import LeaseLost, QuotaUnknown, SendRejected
from cerniq_pipeline.providers.timelinesai.channel import PublicDialect, TimelinesAI, open_client
from cerniq_pipeline.services import checkpoints, claiming, leasing, recording, sending
from cerniq_pipeline.services.claiming import Nothing
from cerniq_pipeline.services.leasing import Holder, this_process
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.services.work_shift import LINGER, work_shift
from cerniq_pipeline.store import overview, phones
from cerniq_pipeline.store.quotas import QuotaGate
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    THIRD,
    ManualClock,
    Office,
    a_phone,
    a_sequence,
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

S = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
GAP = Gap().least
"""The gap between two sends when luck is 0, as in these tests."""

TODAY = date(2026, 11, 18)
TOMORROW_NINE = datetime(2026, 11, 19, 7, 0, tzinfo=UTC)
AROUND_THE_CLOCK: dict[str, Any] = {
    "opens": 0,
    "closes": 1440,
    "working_days": [1, 2, 3, 4, 5, 6, 7],
    "holiday_country": None,
}
NO_GAP = {"gap_least_seconds": 0, "gap_spread_seconds": 0}


@pytest.fixture
def servers(
    database: Engine, redis: Redis, sandbox: RunningSandbox
) -> tuple[Engine, Redis, RunningSandbox]:
    """The three real servers, empty."""
    return database, redis, sandbox


Servers = tuple[Engine, Redis, RunningSandbox]


def message_row(database: Engine, step: int = 1) -> dict[str, Any]:
    return the_row(
        database,
        """
        SELECT state, reason, due_at, attempts, retries, body, external_id, fence
        FROM outbox_messages WHERE step = :step
        """,
        step=step,
    )


def lead_row(database: Engine) -> dict[str, Any]:
    return the_row(database, "SELECT * FROM gold_lead_journey")


def ledger(database: Engine) -> list[tuple[str, date]]:
    found = rows(database, "SELECT state, day FROM quota_ledger ORDER BY at, lead_id")
    return [(row["state"], row["day"]) for row in found]  # pyright: ignore[reportReturnType]


def trace(database: Engine, step: int = 1) -> list[tuple[object, ...]]:
    """The moves of a message, in order."""
    found = rows(
        database,
        """
        SELECT from_state, to_state FROM outbox_changes c
        JOIN outbox_messages o ON o.id = c.message_id WHERE step = :step ORDER BY c.id
        """,
        step=step,
    )
    return [(row["from_state"], row["to_state"]) for row in found]


# ── Sent ──────────────────────────────────────────────────────────────────────────────────────


def test_a_sent_message_has_all_its_consequences(servers: Servers):
    database, redis, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    office.wait(5 * MINUTE)
    now = office.clock.now()

    assert office.send() is State.SENT

    (line,) = sandbox.accepted()
    assert (line["sender"], line["recipient"]) == ("+40790000000", "+40721000000")
    assert line["text"] == "Bună ziua, Firma 0! Pasul unu."
    message = message_row(database)
    assert (message["state"], message["attempts"], message["retries"]) == ("sent", 1, 0)
    assert message["external_id"] == line["message_uid"]
    assert message["body"] == line["text"]
    assert trace(database) == [("planned", "sending"), ("sending", "sent")]
    lead = lead_row(database)
    assert (lead["engagement_stage"], lead["previous_stage"]) == ("CONTACTED_WA", "COLD")
    assert lead["stage_changed_at"] == lead["first_contact_at"] == lead["last_contact_at"] == now
    assert (lead["assigned_phone_id"], lead["last_channel_used"]) == ("acme-01", "WHATSAPP")
    assert (lead["sequence_step"], lead["is_new_contact"]) == (1, False)
    assert lead["quota_consumption_date"] == TODAY
    assert lead["open_message"] is True  # the second step is planned
    assert ledger(database) == [("committed", TODAY)]
    assert redis.hvals(f"cerniq:quota:acme-01:{TODAY}") == [b"committed"]


def test_what_was_said_and_answered_is_kept_without_the_token(servers: Servers):
    database, _, sandbox = servers
    an_office(*servers).send()
    (line,) = sandbox.accepted()
    kept = "SELECT raw_request AS said, raw_response AS answered FROM "
    attempt = the_row(database, kept + "send_attempts")
    assert the_row(database, kept + "gold_communication_log") == attempt
    assert attempt["said"]["method"] == "POST"  # pyright: ignore
    assert line["text"] in str(attempt["said"])
    assert attempt["answered"]["status"] == 200  # pyright: ignore
    assert line["message_uid"] in str(attempt["answered"])
    assert "sandbox-token" not in str(attempt)


@pytest.mark.parametrize(
    ("fault", "status"),
    [("invalid_number", 400), ("accept_then_cut", None), ("server_error", 500)],
)
def test_what_was_said_is_kept_of_an_attempt_that_failed(
    servers: Servers, fault: str, status: int | None
):
    database, _, sandbox = servers
    office = an_office(*servers)
    sandbox.fault(fault)
    assert office.send() is not State.SENT
    attempt = the_row(database, "SELECT raw_request, raw_response FROM send_attempts")
    assert "Pasul unu" in str(attempt["raw_request"])
    answered = attempt["raw_response"]
    assert (answered and answered["status"]) == status  # pyright: ignore


def test_a_sent_message_is_logged_counted_and_audited(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    office.send()
    (line,) = sandbox.accepted()
    logged = the_row(database, "SELECT * FROM gold_communication_log")
    assert (logged["channel"], logged["direction"], logged["status"]) == (
        "WHATSAPP",
        "OUTBOUND",
        "SENT",
    )
    assert (logged["content"], logged["content_rendered"]) == (FIRST, line["text"])
    assert logged["external_message_id"] == line["message_uid"]
    assert (logged["phone_id"], logged["phone_number"]) == ("acme-01", "+40790000000")
    assert (logged["sent_at"], logged["quota_cost"], logged["sequence_step"]) == (NOON, 1, 1)
    phone = the_row(database, "SELECT * FROM wa_phone_numbers")
    assert (phone["total_messages_sent"], phone["last_message_sent_at"]) == (1, NOON)
    assert phone["next_send_at"] == NOON + GAP
    audit = the_row(database, "SELECT * FROM stage_changes")
    assert (audit["from_stage"], audit["to_stage"]) == ("COLD", "CONTACTED_WA")
    assert (audit["who"], audit["at"], audit["tenant_id"]) == ("test", NOON, "acme")
    attempt = the_row(database, "SELECT * FROM send_attempts")
    assert (attempt["n"], attempt["outcome"], attempt["late"]) == (1, "sent", False)
    assert (attempt["external_id"], attempt["begun_at"]) == (line["message_uid"], NOON)
    changes = rows(database, "SELECT who, why, at FROM outbox_changes ORDER BY id")
    assert {row["who"] for row in changes} == {"test"}
    assert all(row["why"] and row["at"] == NOON for row in changes)


@pytest.mark.parametrize("stage", ["CONTACTED_WA", "CONTACTED_EMAIL"])
def test_a_stage_that_stays_is_not_audited_and_one_that_moves_is(servers: Servers, stage: str):
    database, *_ = servers
    office = an_office(*servers)
    run_sql(database, "UPDATE gold_lead_journey SET engagement_stage = :stage", stage=stage)
    office.send()
    moved = stage != "CONTACTED_WA"
    assert lead_row(database)["engagement_stage"] == "CONTACTED_WA"
    assert len(rows(database, "SELECT 1 FROM stage_changes")) == moved


# ── The next step ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sent_at", "delay", "due_at"),
    [
        # Planned at noon, sent at 15:00: the day counts from when it really went out.
        (NOON + 3 * HOUR, DAY, NOON + DAY + 3 * HOUR),
        # Friday noon: a day later is Saturday, so Monday at nine.
        (NOON + 2 * DAY, DAY, datetime(2026, 11, 23, 7, 0, tzinfo=UTC)),
        # 17:30: an hour later the office has closed.
        (NOON + 5 * HOUR + 30 * MINUTE, HOUR, TOMORROW_NINE),
        # A week and a half later are Saint Andrew and the National Day.
        (NOON, 12 * DAY, datetime(2026, 12, 2, 7, 0, tzinfo=UTC)),
    ],
)
def test_the_next_step_is_due_from_the_real_send_time_inside_business_hours(
    servers: Servers, sent_at: datetime, delay: timedelta, due_at: datetime
):
    database, *_ = servers
    office = an_office(*servers, steps=(FIRST, SECOND), delay=delay)
    office.wait(sent_at - NOON)
    office.send()
    planned = the_row(database, "SELECT * FROM outbox_messages WHERE step = 2")
    assert (planned["state"], planned["kind"], planned["due_at"]) == ("planned", "followup", due_at)
    assert (planned["phone_id"], planned["recipient"]) == ("acme-01", "+40721000000")
    lead = lead_row(database)
    assert (lead["open_message"], lead["next_action_at"]) == (True, None)


def test_a_sequence_is_walked_to_its_end_in_one_chat(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND, THIRD))
    assert [office.send(), office.send_after(DAY), office.send_after(DAY)] == [State.SENT] * 3
    assert isinstance(office.claim(), Hold)  # the gap
    office.wait(HOUR)
    assert office.claim() == Nothing(None)
    lines = sandbox.accepted()
    assert [line["kind"] for line in lines] == ["message", "chat_message", "chat_message"]
    assert len({line["chat_id"] for line in lines}) == 1
    lead = lead_row(database)
    assert (lead["sequence_step"], lead["open_message"]) == (3, False)
    assert (lead["next_action_at"], lead["hold_reason"]) == (None, None)
    assert ledger(database) == [("committed", TODAY)]  # follow-ups cost nothing
    costs = rows(database, "SELECT quota_cost FROM gold_communication_log ORDER BY sequence_step")
    assert [row["quota_cost"] for row in costs] == [1, 0, 0]
    assert states(database) == {"sent": 3}


def test_a_next_step_on_another_channel_is_left_to_selection(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    run_sql(database, "UPDATE sequence_steps SET channel = 'EMAIL' WHERE step = 2")
    office.send()
    lead = lead_row(database)
    assert (lead["open_message"], lead["next_action_at"]) == (False, NOON + DAY)
    assert states(database) == {"sent": 1}


def test_a_step_that_is_planned_already_is_not_planned_twice(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    run_sql(
        database,
        """
        INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id, recipient,
                                     sequence_id, step, template_id, due_at, planned_by)
        SELECT tenant_id, channel, 'followup', lead_id, phone_id, recipient, sequence_id, 2,
               template_id, due_at + interval '2 days', 'by hand'
        FROM outbox_messages
        """,
    )
    assert office.send() is State.SENT
    assert len(rows(database, "SELECT 1 FROM outbox_messages WHERE step = 2")) == 1


# ── Not sent, or nobody knows ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "wait"),
    [
        (("rate_limited", {}), 60 * S),
        (("rate_limited", {"retry_after": 10}), 60 * S),
        (("rate_limited", {"retry_after": 300}), 300 * S),
    ],
)
def test_a_deferred_message_waits_and_gives_its_quota_back(
    servers: Servers, fault: tuple[str, dict[str, Any]], wait: timedelta
):
    database, redis, sandbox = servers
    office = an_office(*servers)
    sandbox.fault(fault[0], **fault[1])

    assert office.send() is State.DEFERRED

    message = message_row(database)
    assert (message["state"], message["due_at"]) == ("deferred", NOON + wait)
    assert (message["attempts"], message["retries"]) == (1, 1)
    assert message["reason"].startswith("RATE_LIMITED")
    assert trace(database) == [("planned", "sending"), ("sending", "deferred")]
    attempt = the_row(database, "SELECT * FROM send_attempts")
    assert (attempt["outcome"], attempt["code"]) == ("deferred", "RATE_LIMITED")
    assert ledger(database) == [("released", TODAY)]
    assert redis.hlen(f"cerniq:quota:acme-01:{TODAY}") == 0
    lead = lead_row(database)
    assert (lead["engagement_stage"], lead["open_message"]) == ("COLD", True)
    assert rows(database, "SELECT 1 FROM gold_communication_log") == []
    sandbox.lift()
    assert office.send_after(wait) is State.SENT
    assert len(sandbox.accepted()) == 1
    assert ledger(database) == [("committed", TODAY)]


def test_a_rate_limited_message_is_tried_six_times_and_then_buried(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=6, **NO_GAP)
    first = the_row(database, "SELECT id, recipient FROM outbox_messages ORDER BY id LIMIT 1")
    sandbox.fault("rate_limited", recipient=first["recipient"])
    # The others go through, one a minute, so it is not the provider's trouble.
    others = "UPDATE outbox_messages SET due_at = due_at + (id - 2) * interval '1 minute'"
    run_sql(database, f"{others} WHERE id > :first", first=first["id"])
    for _ in range(5):
        assert (office.send(), office.send()) == (State.DEFERRED, State.SENT)
        office.wait(MINUTE)
    assert office.send() is State.FAILED
    assert len(sandbox.journal("refused")) == 6
    grave = the_row(database, "SELECT * FROM dead_letters")
    assert (grave["code"], grave["review_required"]) == ("RETRIES_EXHAUSTED", False)
    lead = the_row(database, "SELECT * FROM gold_lead_journey WHERE hold_reason = 'failed'")
    assert (lead["open_message"], lead["next_action_at"]) == (False, None)


def test_an_unreachable_provider_is_tried_again_after_30_60_and_120_seconds(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    nobody = TimelinesAI(open_client(f"http://127.0.0.1:{port}", "token"), PublicDialect())
    office.desk = replace(office.desk, channels={"timelinesai": nobody})
    waits = []
    for _ in range(3):
        begun = office.clock.now()
        assert office.send() is State.DEFERRED
        waits.append(message_row(database)["due_at"] - begun)
        office.wait(waits[-1])
    assert waits == [30 * S, 60 * S, 120 * S]
    assert office.send() is State.FAILED
    assert ledger(database) == [("released", TODAY)]
    assert sandbox.journal("request") == []


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (("invalid_number", {}), "INVALID_RECIPIENT_NUMBER"),
        (("html_error", {"status": 422}), "REFUSED"),
    ],
)
def test_a_rejected_message_is_dead_at_once_and_releases_its_lead(
    servers: Servers, fault: tuple[str, dict[str, Any]], code: str
):
    database, redis, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    sandbox.fault(fault[0], **fault[1])

    assert office.send() is State.FAILED

    grave = the_row(database, "SELECT * FROM dead_letters")
    assert (grave["code"], grave["review_required"], grave["tenant_id"]) == (code, False, "acme")
    assert the_row(database, "SELECT outcome FROM send_attempts") == {"outcome": "rejected"}
    assert ledger(database) == [("released", TODAY)]
    assert redis.hlen(f"cerniq:quota:acme-01:{TODAY}") == 0
    lead = lead_row(database)
    assert (lead["open_message"], lead["hold_reason"]) == (False, "failed")
    assert lead["engagement_stage"] == "COLD"
    assert states(database) == {"failed": 1}  # no second step


@pytest.mark.parametrize("code", ["INVALID_LEAD", "PHONE_BANNED", "ACCOUNT_SUSPENDED"])
def test_some_dead_letters_need_a_person(servers: Servers, code: str):
    database, *_ = servers
    office = an_office(*servers)
    message = office.claimed()
    recording.record(office.desk, message, SendRejected(code, "it cannot be"), who="test")
    assert the_row(database, "SELECT code, review_required FROM dead_letters") == {
        "code": code,
        "review_required": True,
    }


@pytest.mark.parametrize(
    ("fault", "went_out"),
    [
        (("accept_then_cut", {"reset": True}), 1),
        (("cut_before_accept", {}), 0),
        (("server_error", {"status": 502}), 0),
        (("error_in_ok", {"accepted": True}), 1),
    ],
)
def test_an_unconfirmed_message_keeps_its_quota_and_its_lead(
    servers: Servers, fault: tuple[str, dict[str, Any]], went_out: int
):
    database, redis, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    sandbox.fault(fault[0], **fault[1])

    assert office.send() is State.UNCONFIRMED

    assert len(sandbox.accepted()) == went_out
    assert trace(database) == [("planned", "sending"), ("sending", "unconfirmed")]
    assert the_row(database, "SELECT outcome FROM send_attempts") == {"outcome": "unconfirmed"}
    assert ledger(database) == [("reserved", TODAY)]
    assert redis.hlen(f"cerniq:quota:acme-01:{TODAY}") == 1
    lead = lead_row(database)
    assert (lead["open_message"], lead["engagement_stage"]) == (True, "COLD")
    assert rows(database, "SELECT 1 FROM gold_communication_log") == []
    # Nobody sends it again, however long one waits.
    sandbox.lift()
    for _ in range(2):
        office.wait(DAY)
        assert office.claim() == Nothing(None)
    assert len(sandbox.journal("request")) == 1
    assert dispatch(database, now=office.clock.now()) == (0, 0)


@pytest.mark.parametrize(
    ("fault", "words", "status", "alert"),
    [
        ("banned", {}, "BANNED", "phone_banned"),
        ("refuse", {"status": 409, "code": "account_inactive"}, "OFFLINE", "phone_offline"),
    ],
)
def test_a_phone_that_must_stop_keeps_its_messages_and_raises_one_alert(
    servers: Servers, fault: str, words: dict[str, Any], status: str, alert: str
):
    database, _, sandbox = servers
    office = an_office(*servers, leads=3)
    sandbox.fault(fault, **words)

    assert office.send() is State.DEFERRED

    phone = the_row(database, "SELECT * FROM wa_phone_numbers")
    assert (phone["status"], phone["is_online"]) == (status, False)
    assert phone["status_changed_at"] == NOON
    assert phone["status_reason"]
    assert states(database) == {"deferred": 1, "planned": 2}
    assert ledger(database) == [("released", TODAY)]
    office.wait(HOUR)
    hold = office.held()
    assert (hold.rule, hold.until) == ("phone_not_active", None)
    # Somebody brings it back too early: the alert that is open is not opened again.
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'ACTIVE'")
    assert office.send() is State.DEFERRED
    opened = the_row(database, "SELECT * FROM alerts")
    assert (opened["kind"], opened["subject"], opened["closed_at"]) == (alert, "acme-01", None)
    sandbox.lift()
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'ACTIVE'")
    office.wait(HOUR)
    assert [office.send(), office.send_after(GAP), office.send_after(GAP)] == [State.SENT] * 3
    assert len(sandbox.accepted()) == 3
    assert sandbox.duplicates() == []


def test_a_disconnected_phone_does_not_use_up_its_queue(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=5)
    sandbox.set_accounts(**{"+40790000000": "disconnected"})
    assert office.send() is State.DEFERRED
    office.wait(HOUR)
    assert office.held().rule == "phone_not_active"
    assert states(database) == {"deferred": 1, "planned": 4}
    assert rows(database, "SELECT 1 FROM dead_letters") == []


def test_a_process_that_stood_still_after_its_claim_sends_nothing(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    message = office.claimed()
    office.wait(sending.CALL_DEADLINE + S)
    assert office.send(message) is State.DEFERRED
    assert message_row(database)["reason"].startswith("TOO_LATE")
    assert sandbox.journal("request") == []


# ── Quota ─────────────────────────────────────────────────────────────────────────────────────


def a_quota_of(database: Engine, limit: int) -> None:
    """Lower the limit under messages that are planned already."""
    run_sql(database, "UPDATE wa_phone_numbers SET daily_quota = :limit", limit=limit)


def test_a_phone_opens_exactly_its_quota_and_the_rest_waits_for_the_next_working_day(
    servers: Servers,
):
    database, redis, sandbox = servers
    office = an_office(*servers, leads=5, **NO_GAP)
    a_quota_of(database, 2)
    assert [office.send(), office.send()] == [State.SENT, State.SENT]
    assert office.claim() == Nothing(TOMORROW_NINE)
    assert states(database) == {"sent": 2, "deferred": 3}
    waiting = rows(database, "SELECT due_at, reason FROM outbox_messages WHERE state = 'deferred'")
    assert {row["due_at"] for row in waiting} == {TOMORROW_NINE}
    assert all(row["reason"] == "quota: 2 of 2 new contacts today" for row in waiting)
    assert len(sandbox.accepted()) == 2
    assert redis.hlen(f"cerniq:quota:acme-01:{TODAY}") == 2
    office.wait(TOMORROW_NINE - NOON)
    assert [office.send(), office.send()] == [State.SENT, State.SENT]
    assert isinstance(office.claim(), Nothing)
    assert len(sandbox.accepted()) == 4
    assert [day for _, day in ledger(database)] == [TODAY, TODAY, TODAY + DAY, TODAY + DAY]


def test_a_follow_up_goes_out_although_the_quota_is_spent(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    office.send()
    a_quota_of(database, 0)
    assert office.send_after(DAY) is State.SENT
    assert len(sandbox.accepted()) == 2


def test_a_young_phone_is_bound_by_its_ramp(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=25, **NO_GAP)
    run_sql(database, "UPDATE wa_phone_numbers SET warm_up_from = :day", day=TODAY)
    for _ in range(20):
        assert office.send() is State.SENT
    assert office.claim() == Nothing(TOMORROW_NINE)
    assert len(sandbox.accepted()) == 20


def test_the_day_changes_at_midnight_in_bucharest(servers: Servers):
    database, redis, sandbox = servers
    midnight = datetime(2026, 11, 18, 22, 0, tzinfo=UTC)
    office = an_office(
        *servers, now=midnight - 5 * MINUTE - S, leads=3, **AROUND_THE_CLOCK, **NO_GAP
    )
    a_quota_of(database, 2)
    assert office.send() is State.SENT
    office.wait(S)  # the last five minutes of the day
    assert office.claim() == Nothing(midnight)
    assert states(database) == {"sent": 1, "deferred": 2}
    reasons = rows(database, "SELECT reason FROM outbox_messages WHERE state = 'deferred'")
    assert all(str(row["reason"]).startswith("day_ends") for row in reasons)
    office.wait(5 * MINUTE - S)
    assert isinstance(office.claim(), Nothing)
    office.wait(S)  # midnight: a new day, although UTC has two hours to go
    assert [office.send(), office.send()] == [State.SENT, State.SENT]
    assert ledger(database) == [("committed", TODAY), *[("committed", TODAY + DAY)] * 2]
    assert redis.hlen(f"cerniq:quota:acme-01:{TODAY + DAY}") == 2
    assert len(sandbox.accepted()) == 3


def test_a_follow_up_may_go_in_the_last_minutes_of_the_day(servers: Servers):
    late = datetime(2026, 11, 18, 21, 58, tzinfo=UTC)
    office = an_office(*servers, now=late - DAY - HOUR, steps=(FIRST, SECOND), **AROUND_THE_CLOCK)
    assert office.send() is State.SENT
    assert office.send_after(DAY + HOUR) is State.SENT


@pytest.mark.parametrize(
    ("instant", "day"),
    [
        (datetime(2026, 10, 24, 20, 59, tzinfo=UTC), date(2026, 10, 24)),
        (datetime(2026, 10, 24, 21, 0, tzinfo=UTC), date(2026, 10, 25)),  # summer midnight
        (datetime(2026, 10, 25, 21, 30, tzinfo=UTC), date(2026, 10, 25)),  # the 25th hour
        (datetime(2026, 10, 25, 22, 0, tzinfo=UTC), date(2026, 10, 26)),  # winter midnight
        (datetime(2027, 3, 28, 20, 50, tzinfo=UTC), date(2027, 3, 28)),  # a day of 23 hours
        (datetime(2027, 3, 28, 21, 0, tzinfo=UTC), date(2027, 3, 29)),
    ],
)
def test_a_contact_counts_on_bucharests_day_when_the_clock_changes(
    servers: Servers, instant: datetime, day: date
):
    database, *_ = servers
    now = instant if instant.minute != 59 else instant - 10 * MINUTE
    office = an_office(*servers, now=now, **AROUND_THE_CLOCK)
    assert office.send() is State.SENT
    assert ledger(database) == [("committed", day)]


# ── Redis ─────────────────────────────────────────────────────────────────────────────────────


def test_a_flushed_redis_is_filled_from_the_ledger_before_it_is_believed(servers: Servers):
    database, redis, sandbox = servers
    office = an_office(*servers, leads=4, **NO_GAP)
    a_quota_of(database, 2)
    assert office.send() is State.SENT
    redis.flushall()
    assert office.send() is State.SENT
    redis.flushall()
    assert isinstance(office.claim(), Nothing)
    assert len(sandbox.accepted()) == 2


def test_a_redis_that_shows_too_many_is_corrected_and_holds_nobody_back(servers: Servers):
    database, redis, sandbox = servers
    office = an_office(*servers, leads=3, **NO_GAP)
    a_quota_of(database, 2)
    assert office.send() is State.SENT
    redis.hset(
        f"cerniq:quota:acme-01:{TODAY}", mapping={f"ghost {n}": "reserved" for n in range(9)}
    )
    assert office.send() is State.SENT
    assert redis.hlen(f"cerniq:quota:acme-01:{TODAY}") == 2
    assert isinstance(office.claim(), Nothing)
    assert len(sandbox.accepted()) == 2


def test_a_redis_that_shows_too_few_lets_nobody_over_the_ledgers_limit(servers: Servers):
    database, redis, sandbox = servers
    office = an_office(*servers, leads=3, **NO_GAP)
    a_quota_of(database, 1)
    assert office.send() is State.SENT
    redis.delete(f"cerniq:quota:acme-01:{TODAY}")
    assert isinstance(office.claim(), Nothing)
    assert len(sandbox.accepted()) == 1


def test_without_redis_nothing_is_sent_and_nothing_is_lost(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    nobody = Redis(host="127.0.0.1", port=1, socket_connect_timeout=1, retry=None)
    with_redis = office.desk
    office.desk = replace(with_redis, gate=QuotaGate(nobody))
    hold = office.held()
    assert (hold.rule, hold.until) == ("quota_unknown", NOON + claiming.REDIS_RECHECK)
    assert message_row(database)["state"] == "planned"
    assert ledger(database) == []
    assert sandbox.journal("request") == []
    office.desk = with_redis
    assert office.send() is State.SENT
    office.desk = replace(with_redis, gate=QuotaGate(nobody))
    office.wait(DAY)
    assert office.held().rule == "quota_unknown"  # a follow-up has a rate to keep, too
    nobody.close()


def test_a_redis_that_dies_after_the_call_does_not_undo_what_was_sent(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    message = office.claimed()
    nobody = Redis(host="127.0.0.1", port=1, socket_connect_timeout=1, retry=None)
    office.desk = replace(office.desk, gate=QuotaGate(nobody))
    assert office.send(message) is State.SENT
    assert ledger(database) == [("committed", TODAY)]
    assert len(sandbox.accepted()) == 1
    nobody.close()


# ── Pace ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("luck", "gap"), [(0.0, 30 * S), (0.5, 90 * S), (0.999, 149.88 * S)])
def test_a_phone_rests_for_its_gap_after_every_send(servers: Servers, luck: float, gap: timedelta):
    *_, sandbox = servers
    office = an_office(*servers, leads=2)
    office.desk = replace(office.desk, luck=lambda: luck)
    assert office.send() is State.SENT
    hold = office.held()
    assert (hold.rule, hold.until, hold.then) == ("pacing", NOON + gap, "wait")
    office.wait(gap - timedelta(microseconds=1))
    assert office.held().rule == "pacing"
    office.wait(timedelta(microseconds=1))
    assert office.send() is State.SENT
    assert len(sandbox.accepted()) == 2


def test_an_attempt_that_dies_in_mid_flight_has_used_its_gap(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, leads=2)
    office.claimed()
    phone = the_row(database, "SELECT next_send_at FROM wa_phone_numbers")
    assert phone["next_send_at"] == NOON + GAP


def test_the_gap_of_a_slow_call_counts_from_its_end(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, leads=2)
    message = office.claimed()
    office.wait(20 * S)
    office.send(message)
    phone = the_row(database, "SELECT next_send_at FROM wa_phone_numbers")
    assert phone["next_send_at"] == NOON + 20 * S + GAP


def test_the_accounts_rate_is_shared_by_all_its_phones(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=4, phones=2, sends_per_minute=2, **NO_GAP)
    second = leasing.acquire(database.begin, "acme-02", this_process("test"), now=NOON)
    assert second is not None
    other = Office(database, office.desk, office.clock, second)
    assert office.send() is State.SENT
    office.clock.move(10 * S)
    assert other.send() is State.SENT
    for shift in (office, other):
        hold = shift.held()
        assert (hold.rule, hold.until, hold.then) == ("rate_limit", NOON + MINUTE, "wait")
    assert states(database) == {"sent": 2, "planned": 2}
    assert office.send_after(50 * S) is State.SENT
    assert other.held().until == NOON + 70 * S
    assert len(sandbox.accepted()) == 3


def test_the_accounts_rate_runs_as_fast_as_the_sandboxs_time(servers: Servers):
    office = an_office(*servers, leads=3, sends_per_minute=1, **NO_GAP)
    office.desk = replace(office.desk, speed=2.0)
    assert [office.send(), office.send()] == [State.SENT, State.SENT]
    assert office.held().rule == "rate_limit"


# ── Contact pressure ──────────────────────────────────────────────────────────────────────────


def test_a_person_gets_no_more_than_so_many_messages_a_week(servers: Servers):
    database, _, sandbox = servers
    office = an_office(
        *servers, steps=(FIRST, SECOND, THIRD), weekly_per_person=2, weekly_per_company=9
    )
    assert [office.send(), office.send_after(DAY)] == [State.SENT, State.SENT]
    office.wait(DAY)
    assert office.claim() == Nothing(NOON + 7 * DAY)
    reason = message_row(database, step=3)["reason"]
    assert reason == "person_pressure: 2 of 2 messages this week to the person"
    office.wait(5 * DAY - S)
    assert isinstance(office.claim(), Nothing)
    assert office.send_after(S) is State.SENT
    assert len(sandbox.accepted()) == 3


def test_a_company_gets_no_more_than_so_many_messages_a_week(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, steps=(FIRST, SECOND), weekly_per_company=1, weekly_per_person=9)
    office.send()
    # Its number changes, so the person is another one; the company is the same.
    run_sql(database, "UPDATE outbox_messages SET recipient = '+40729999999' WHERE step = 2")
    office.wait(DAY)
    assert office.claim() == Nothing(NOON + 7 * DAY)
    assert message_row(database, step=2)["reason"].startswith("company_pressure: 1 of 1")


def test_a_message_that_may_have_gone_out_counts_and_one_that_did_not_does_not(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, weekly_per_person=1, **NO_GAP)
    with database.begin() as conn:
        again = a_sequence(conn, "acme", name="again", steps=("Din nou, {{companie}}.",))
    run_sql(
        database,
        """
        INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id, recipient,
                                     sequence_id, step, template_id, due_at, planned_by)
        SELECT o.tenant_id, o.channel, 'initial', o.lead_id, o.phone_id, o.recipient, s.sequence_id,
               1, s.template_id, o.due_at + interval '1 minute', 'by hand'
        FROM outbox_messages o, sequence_steps s WHERE s.sequence_id = :again
        """,
        again=again,
    )
    sandbox.fault("invalid_number", times=1)
    assert office.send() is State.FAILED
    sandbox.fault("cut_before_accept", times=1)
    assert office.send_after(MINUTE) is State.UNCONFIRMED
    run_sql(
        database,
        """
        UPDATE outbox_messages SET state = 'planned', sequence_id = sequence_id, attempts = 1
        WHERE state = 'failed'
        """,
    )
    assert isinstance(office.claim(), Nothing)
    assert (
        len(rows(database, "SELECT 1 FROM outbox_messages WHERE reason LIKE 'person_pressure%'"))
        == 1
    )


def test_what_another_tenant_wrote_to_a_number_is_none_of_our_business(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, weekly_per_person=1)
    assert office.send() is State.SENT
    with database.begin() as conn:
        world = a_world(conn, tenant_id="beta", phones=0, weekly_per_person=1)
        a_phone(conn, "beta", "beta-01", number="+40791000001")
        some_leads(conn, "beta")
    assert world.sequence_id
    assert dispatch(database, tenant_id="beta") == (1, 0)
    lease = leasing.acquire(database.begin, "beta-01", this_process("test"), now=NOON)
    assert lease is not None
    assert Office(database, office.desk, office.clock, lease).send() is State.SENT
    assert [line["recipient"] for line in sandbox.accepted()] == ["+40721000000"] * 2


# ── What holds a message ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("UPDATE gold_lead_journey SET whatsapp_opted_out = true", "opted_out"),
        ("UPDATE gold_lead_journey SET email_opted_out = true", "opted_out"),
        ("UPDATE gold_lead_journey SET engagement_stage = 'WARM_REPLY'", "conversation"),
        ("UPDATE gold_lead_journey SET engagement_stage = 'PAUSED'", "conversation"),
        ("UPDATE outbox_messages SET not_after = '2026-11-18 09:59:59+00'", "expired"),
    ],
)
def test_a_message_that_may_never_go_is_cancelled_with_its_reason(
    servers: Servers, change: str, rule: str
):
    database, _, sandbox = servers
    office = an_office(*servers)
    run_sql(database, change)
    assert office.claim() == Nothing(None)
    message = message_row(database)
    assert message["state"] == "cancelled"
    assert message["reason"].startswith(rule)
    assert trace(database) == [("planned", "cancelled")]
    lead = lead_row(database)
    assert (lead["open_message"], lead["hold_reason"], lead["next_action_at"]) == (
        False,
        rule,
        None,
    )
    assert sandbox.journal("request") == []
    assert ledger(database) == []


@pytest.mark.parametrize(
    ("hold", "lift", "rule", "wait"),
    [
        ("UPDATE gold_lead_journey SET requires_human_review = true",
         "UPDATE gold_lead_journey SET requires_human_review = false", "human_review", HOUR),
        ("UPDATE sequences SET status = 'paused'", "UPDATE sequences SET status = 'active'",
         "sequence_paused", HOUR),
        ("UPDATE gold_lead_journey SET lawful_basis = NULL",
         "UPDATE gold_lead_journey SET lawful_basis = 'consent'", "no_lawful_basis", DAY),
        ("UPDATE gold_lead_journey SET lawful_basis = 'legitimate_interest'",
         "UPDATE gold_lead_journey SET lawful_basis = 'consent'", "no_lawful_basis", DAY),
        ("""UPDATE tenants SET basis_policy = '{"EMAIL": ["consent"]}'""",
         """UPDATE tenants SET basis_policy = '{"WHATSAPP": ["consent"]}'""", "no_lawful_basis",
         DAY),
    ],
)  # fmt: skip
def test_a_message_that_may_go_later_is_put_off_and_looked_at_again(
    servers: Servers, hold: str, lift: str, rule: str, wait: timedelta
):
    database, _, sandbox = servers
    office = an_office(*servers)
    run_sql(database, hold)
    for _ in range(2):
        assert office.claim() == Nothing(office.clock.now() + wait)
        assert message_row(database)["reason"].startswith(rule)
        office.wait(wait)
    run_sql(database, lift)
    assert office.send() is State.SENT
    assert len(sandbox.accepted()) == 1


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("UPDATE tenants SET status = 'paused'", "tenant_paused"),
        ("UPDATE wa_phone_numbers SET is_enabled = false", "phone_disabled"),
        ("UPDATE wa_phone_numbers SET status = 'OFFLINE'", "phone_not_active"),
        ("INSERT INTO switches VALUES ('global', '', 'stop', 'me', now())", "switched_off"),
        ("INSERT INTO switches VALUES ('tenant', 'acme', 'stop', 'me', now())", "switched_off"),
        (
            "INSERT INTO switches VALUES ('channel', 'WHATSAPP', 'stop', 'me', now())",
            "switched_off",
        ),
        ("INSERT INTO switches VALUES ('phone', 'acme-01', 'stop', 'me', now())", "switched_off"),
    ],
)
def test_a_silent_phone_keeps_its_messages_as_they_are(servers: Servers, change: str, rule: str):
    database, _, sandbox = servers
    office = an_office(*servers)
    run_sql(database, change)
    hold = office.held()
    assert (hold.rule, hold.until) == (rule, None)
    assert message_row(database)["state"] == "planned"
    assert trace(database) == []
    assert sandbox.journal("request") == []


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO switches VALUES ('tenant', 'beta', 'stop', 'me', now())",
        "INSERT INTO switches VALUES ('channel', 'EMAIL', 'stop', 'me', now())",
        "INSERT INTO switches VALUES ('phone', 'acme-02', 'stop', 'me', now())",
    ],
)
def test_a_switch_of_somebody_else_holds_nobody(servers: Servers, change: str):
    database, *_ = servers
    office = an_office(*servers)
    run_sql(database, change)
    assert office.send() is State.SENT


def test_a_held_message_does_not_hold_those_behind_it(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=60)
    run_sql(
        database,
        """
        UPDATE gold_lead_journey SET requires_human_review = true WHERE lead_id IN
          (SELECT lead_id FROM outbox_messages ORDER BY due_at, id LIMIT 59)
        """,
    )
    assert office.claim() == Nothing(NOON)  # one claim lets go of its locks after fifty
    assert office.send() is State.SENT
    assert len(sandbox.accepted()) == 1
    assert states(database) == {"deferred": 59, "sent": 1}


def test_a_new_contact_goes_before_a_follow_up_of_the_same_due_time(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, leads=3, **NO_GAP)
    for at, kind in enumerate(["followup", "initial", "handover"]):
        oldest = "SELECT id FROM outbox_messages ORDER BY id LIMIT 1 OFFSET :at"
        sql = f"UPDATE outbox_messages SET kind = :kind WHERE id = ({oldest})"
        run_sql(database, sql, at=at, kind=kind)
    with database.connect() as conn:
        waiting = conn.execute(text("SELECT id, kind FROM outbox_messages")).all()
        ahead = {row.kind: overview.ahead_of(conn, "acme-01", row.id) for row in waiting}

    gone = []
    for _ in waiting:
        gone.append(office.claimed())
        office.send(gone[-1])
    assert [message.kind for message in gone] == ["initial", "followup", "handover"]
    assert ahead == {"initial": 0, "followup": 1, "handover": 2}


def test_a_message_whose_lead_is_gone_is_cancelled_and_holds_nobody(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=2)
    run_sql(
        database,
        """
        DELETE FROM gold_companies WHERE id =
          (SELECT lead_id FROM outbox_messages ORDER BY due_at, id LIMIT 1)
        """,
    )
    assert office.send() is State.SENT
    assert len(sandbox.accepted()) == 1
    assert states(database) == {"cancelled": 1, "sent": 1}
    gone = the_row(database, "SELECT reason FROM outbox_messages WHERE state = 'cancelled'")
    assert "lead is gone" in str(gone["reason"])


# ── The text ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("template", "company", "said"),
    [
        ("Bună ziua, {{prenume}}!", {}, "no value and no default for: prenume"),
        ("Bună, {{angajati}} oameni.", {}, "angajati"),
        # The address comes in with the lead.
        ("Bună ziua, {{contact}}!", {"contact_principal_nume": "Ion www.exemplu.ro"}, "address"),
        ("Bună ziua, {{companie}}!", {"denumire": "Firma {{parola}}"}, "template marks"),
        ("Bună ziua, {{companie}}!", {"denumire": "Firma {a|b}"}, "template marks"),
    ],
)
def test_a_text_that_must_not_go_never_reaches_the_provider(
    servers: Servers, template: str, company: dict[str, str], said: str
):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(template,))
    for name, value in company.items():
        run_sql(database, f"UPDATE gold_companies SET {name} = :value", value=value)
    assert office.claim() == Nothing(None)
    message = message_row(database)
    assert (message["state"], message["body"]) == ("failed", None)
    assert said in message["reason"]
    assert trace(database) == [("planned", "failed")]
    grave = the_row(database, "SELECT * FROM dead_letters")
    assert (grave["code"], grave["review_required"]) == ("INVALID_LEAD", True)
    assert lead_row(database)["open_message"] is False
    assert ledger(database) == []
    assert sandbox.journal("request") == []


BROKEN = [
    "Vizitați https://exemplu.ro",
    "Vizitați exemplu.ro, {{companie}}",
    "Bună ziua, {{companie",
    "Bună {ziua|seara",
    " ",
]


@pytest.mark.parametrize("template", BROKEN)
def test_a_text_that_nobody_may_get_is_not_planned(database: Engine, template: str):
    with database.begin() as conn:
        a_world(conn, steps=(template,))
        some_leads(conn)
    assert dispatch(database) == (0, 0)
    assert states(database) == {}
    assert lead_row(database)["hold_reason"] == "template_broken"


@pytest.mark.parametrize("template", BROKEN)
def test_leads_wait_while_a_text_that_was_spoilt_is_mended(servers: Servers, template: str):
    database, _, sandbox = servers
    office = an_office(*servers)
    mended = the_row(database, "SELECT content FROM templates")["content"]
    run_sql(database, "UPDATE templates SET content = :text", text=template)
    assert office.claim() == Nothing(NOON + timedelta(hours=1))
    message = message_row(database)
    assert message["state"] == "deferred"
    assert message["reason"].startswith("template_broken")
    assert sandbox.journal("request") == []
    run_sql(database, "UPDATE templates SET content = :text", text=mended)
    assert office.send_after(timedelta(hours=1)) is State.SENT


def test_a_message_whose_template_is_gone_waits(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    run_sql(database, "UPDATE outbox_messages SET template_id = NULL")
    assert office.claim() == Nothing(NOON + timedelta(hours=1))
    assert message_row(database)["state"] == "deferred"
    assert sandbox.journal("request") == []


def test_a_follow_up_may_carry_an_address(servers: Servers):
    *_, sandbox = servers
    office = an_office(*servers, steps=(FIRST, "Detalii: https://exemplu.ro/oferta"))
    office.send()
    assert office.send_after(DAY) is State.SENT
    assert sandbox.accepted()[1]["text"] == "Detalii: https://exemplu.ro/oferta"


def test_a_lead_that_cannot_be_written_to_does_not_stop_the_next_one(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=3, steps=("Bună, {{localitate}}!",))
    run_sql(
        database,
        """
        UPDATE gold_companies SET localitate = 'Cluj-Napoca' WHERE id =
          (SELECT lead_id FROM outbox_messages ORDER BY due_at DESC, id DESC LIMIT 1)
        """,
    )
    assert office.send() is State.SENT
    assert states(database) == {"sent": 1, "failed": 2}
    assert [line["text"] for line in sandbox.accepted()] == ["Bună, Cluj-Napoca!"]


@pytest.mark.parametrize(
    ("custom", "text"),
    [
        ('{"angajati": "12"}', "Aveți 12 angajați."),
        ('{"angajati": 12}', "Aveți 12 angajați."),
        ('{"angajati": {"total": 12}}', None),
        ('{"angajati": null}', None),
        ("[12]", None),
        ("12", None),
    ],
)
def test_whatever_stands_in_a_leads_own_fields_the_shift_goes_on(
    servers: Servers, custom: str, text: str | None
):
    database, _, sandbox = servers
    office = an_office(*servers, steps=("Aveți {{angajati}} angajați.",))
    run_sql(database, "UPDATE gold_companies SET custom = CAST(:custom AS jsonb)", custom=custom)
    claimed = office.claim()
    assert (claimed.body if isinstance(claimed, OutboxMessage) else None) == text
    assert states(database) == {"sending" if text else "failed": 1}
    assert sandbox.journal("request") == []


# ── Follow-ups and their chat ─────────────────────────────────────────────────────────────────


def test_a_follow_up_without_a_chat_looks_it_up_and_remembers_it(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    office.send()
    assert lead_row(database)["chat_id"] is None  # this dialect does not say
    assert office.send_after(DAY) is State.SENT
    first, second = sandbox.accepted()
    assert (second["kind"], second["chat_id"]) == ("chat_message", first["chat_id"])
    assert lead_row(database)["chat_id"] == str(first["chat_id"])


def test_an_acceptance_that_names_the_chat_is_enough(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND), dialect="v1")
    office.send()
    (first,) = sandbox.accepted()
    assert lead_row(database)["chat_id"] == str(first["chat_id"])
    logged = the_row(database, "SELECT thread_id FROM gold_communication_log")
    assert logged["thread_id"] == str(first["chat_id"])
    assert office.send_after(DAY) is State.SENT
    assert sandbox.accepted()[1]["chat_id"] == first["chat_id"]


@pytest.mark.parametrize(
    ("dialect", "fault", "code", "wait"),
    [
        ("public", ("history_hidden", {}), "CHAT_UNKNOWN", 60 * S),
        ("public", ("server_error", {"status": 503}), "UNREACHABLE", 30 * S),
        ("public", ("accept_then_truncate", {}), "UNREACHABLE", 30 * S),
        ("v1", None, "CHAT_UNKNOWN", 60 * S),  # there is no way to ask
    ],
)
def test_a_follow_up_whose_chat_is_not_known_waits_and_opens_no_second_one(
    servers: Servers,
    dialect: str,
    fault: tuple[str, dict[str, Any]] | None,
    code: str,
    wait: timedelta,
):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND), dialect=dialect)
    office.send()
    run_sql(database, "UPDATE gold_lead_journey SET chat_id = NULL")
    if fault:
        sandbox.fault(fault[0], operation="chats", **fault[1])
    assert office.send_after(DAY) is State.DEFERRED
    message = message_row(database, step=2)
    assert message["reason"].startswith(code)
    assert message["due_at"] == NOON + DAY + wait
    assert len(sandbox.accepted()) == 1
    sandbox.lift()
    (first,) = sandbox.accepted()
    run_sql(database, "UPDATE gold_lead_journey SET chat_id = :chat", chat=str(first["chat_id"]))
    assert office.send_after(wait) is State.SENT
    assert {line["chat_id"] for line in sandbox.accepted()} == {first["chat_id"]}


# ── Lost commits and replaced shifts ──────────────────────────────────────────────────────────


def test_a_claim_whose_commit_went_unheard_is_put_back_and_sent_once(servers: Servers):
    database, redis, sandbox = servers
    office = an_office(*servers)
    lost = office.claimed()  # committed, and this shift never heard of it
    assert office.held().rule == "pacing"
    assert message_row(database)["state"] == "deferred"
    assert ledger(database) == [("released", TODAY)]
    assert office.send_after(GAP) is State.SENT
    assert len(sandbox.accepted()) == 1
    assert trace(database) == [
        ("planned", "sending"),
        ("sending", "deferred"),
        ("deferred", "sending"),
        ("sending", "sent"),
    ]
    attempts = rows(database, "SELECT n, outcome FROM send_attempts ORDER BY n")
    assert attempts == [{"n": 1, "outcome": "deferred"}, {"n": 2, "outcome": "sent"}]
    assert ledger(database) == [("committed", TODAY)]
    assert redis.hlen(f"cerniq:quota:acme-01:{TODAY}") == 1
    assert message_row(database)["retries"] == 0  # the provider was never asked
    assert lost.attempt == 1


@pytest.mark.parametrize("point", ["claim_committed", "record_committed"])
def test_a_shift_survives_a_commit_whose_answer_got_lost(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, point: str
):
    database, _, sandbox = servers
    office = an_office(*servers, leads=3)
    leasing.give_back(database.begin, office.lease)
    times: list[str] = []

    def lose_one_answer(name: str) -> None:
        if name == point and not times:
            times.append(name)
            raise OperationalError("COMMIT", {}, ConnectionError("server closed the connection"))

    monkeypatch.setattr(checkpoints, "reach", lose_one_answer)
    shift = work_shift(office.desk, "acme-01", this_process("test"), longest=HOUR)
    assert times == [point]
    assert shift.outcomes == {"sent": 3}
    assert len(sandbox.accepted()) == 3
    assert sandbox.duplicates() == []
    assert states(database) == {"sent": 3}
    assert {state for state, _ in ledger(database)} == {"committed"}


def somebody_dead(name: str = "dead") -> Holder:
    """A process of this machine that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return replace(this_process(name), pid=child.pid)


@pytest.mark.parametrize(
    ("outcome", "evidence"),
    [(Receipt("late-uid", "77"), "sent"), (SendRejected("REFUSED", "400"), "failed")],
)
def test_the_late_result_of_a_replaced_shift_is_evidence_only(
    servers: Servers, outcome: Receipt | SendRejected, evidence: str
):
    database, _, _ = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    leasing.give_back(database.begin, office.lease)
    stale = leasing.acquire(database.begin, "acme-01", somebody_dead(), now=NOON)
    assert stale is not None
    old = Office(database, office.desk, office.clock, stale)
    message = old.claimed()
    successor = leasing.acquire(database.begin, "acme-01", this_process("new"), now=NOON)
    assert successor is not None
    assert message_row(database)["state"] == "unconfirmed"

    assert recording.record(office.desk, message, outcome, who="dead") is State.UNCONFIRMED

    assert message_row(database)["state"] == "unconfirmed"
    attempt = the_row(database, "SELECT * FROM send_attempts")
    assert (attempt["outcome"], attempt["late"]) == (evidence, True)
    assert attempt["external_id"] == (outcome.external_id if evidence == "sent" else None)
    assert trace(database) == [("planned", "sending"), ("sending", "unconfirmed")]
    assert ledger(database) == [("reserved", TODAY)]
    assert lead_row(database)["engagement_stage"] == "COLD"
    assert rows(database, "SELECT 1 FROM gold_communication_log") == []
    assert rows(database, "SELECT 1 FROM dead_letters") == []
    with pytest.raises(LeaseLost):
        old.claim()


def test_a_lease_that_ran_out_claims_nothing(servers: Servers):
    database, *_ = servers
    office = an_office(*servers)
    office.clock.move(leasing.LEASE)
    with pytest.raises(LeaseLost):
        office.claim()
    assert message_row(database)["state"] == "planned"


# ── Shifts ────────────────────────────────────────────────────────────────────────────────────


class EventfulClock(ManualClock):
    """A manual clock that lets something happen the first time somebody sleeps."""

    def __init__(self, now: datetime = NOON) -> None:
        super().__init__(now)
        self.happens = lambda: None
        self.naps: list[float] = []

    def sleep(self, seconds: float) -> None:
        assert len(self.naps) < 1000, "this shift never ends"
        self.naps.append(seconds)
        happens, self.happens = self.happens, lambda: None
        happens()
        super().sleep(seconds)


def a_shift_at(
    servers: Servers, now: datetime = NOON, **world: Any
) -> tuple[Desk, EventfulClock, Engine]:
    """A desk for shifts whose phone is free and whose leads are dispatched."""
    office = an_office(*servers, now=now, **world)
    leasing.give_back(office.database.begin, office.lease)
    clock = EventfulClock(now)
    return replace(office.desk, clock=clock), clock, office.database


def test_a_shift_ends_when_nothing_is_due(servers: Servers):
    desk, _, database = a_shift_at(servers, leads=2)
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert (shift.ended, shift.outcomes) == ("nothing is due", {"sent": 2})
    assert the_row(database, "SELECT holder FROM phone_leases") == {"holder": None}


def test_a_shift_ends_when_the_next_message_is_far_away_and_lingers_when_it_is_near(
    servers: Servers,
):
    *_, sandbox = servers
    desk, clock, database = a_shift_at(servers, leads=3)
    due = [NOON, NOON + LINGER, NOON + 2 * LINGER + MINUTE]
    for n, at in enumerate(due):
        run_sql(
            database,
            "UPDATE outbox_messages SET due_at = :at WHERE recipient LIKE :number",
            at=at,
            number=f"%{n}",
        )
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.outcomes == {"sent": 2}
    assert shift.ended == f"nothing is due before {due[2]:%F %R} UTC"
    assert clock.now() < due[2] - LINGER
    assert max(clock.naps) <= 15  # well within the lease
    assert len(sandbox.accepted()) == 2


def test_a_shift_ends_when_its_time_is_up(servers: Servers):
    desk, clock, database = a_shift_at(servers, leads=50)
    shift = work_shift(desk, "acme-01", this_process("test"), longest=5 * MINUTE)
    assert shift.ended == "its time was up"
    assert NOON + 5 * MINUTE <= clock.now() < NOON + 6 * MINUTE
    assert shift.outcomes == {"sent": 10 + 1}  # one every thirty seconds, the first at once
    assert the_row(database, "SELECT holder FROM phone_leases") == {"holder": None}


def test_a_shift_ends_when_the_hours_close(servers: Servers):
    *_, sandbox = servers
    closing = datetime(2026, 11, 18, 16, 0, tzinfo=UTC)
    desk, clock, database = a_shift_at(servers, now=closing - MINUTE, leads=10)
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.ended.startswith("outside_hours")
    assert shift.outcomes == {"sent": 2}  # at 17:59:00 and 17:59:30; 18:00 is closed
    assert clock.now() == closing
    assert len(sandbox.accepted()) == 2
    assert states(database) == {"sent": 2, "planned": 8}


def test_a_shift_waits_for_an_opening_that_is_near(servers: Servers):
    opening = TOMORROW_NINE
    desk, clock, database = a_shift_at(servers)
    clock.set(opening - 2 * MINUTE)
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.outcomes == {"sent": 1}
    assert the_row(database, "SELECT begun_at FROM send_attempts") == {"begun_at": opening}


def test_a_shift_ends_when_the_quota_is_spent(servers: Servers):
    desk, _, database = a_shift_at(servers, leads=4)
    a_quota_of(database, 2)
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.outcomes == {"sent": 2}
    assert shift.ended == f"nothing is due before {TOMORROW_NINE:%F %R} UTC"


def test_a_shift_ends_when_its_phone_must_stop(servers: Servers):
    *_, sandbox = servers
    desk, _, database = a_shift_at(servers, leads=4)
    sandbox.fault("banned", after=1)
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.outcomes == {"sent": 1, "deferred": 1}
    assert shift.ended.startswith("phone_not_active: acme-01 is BANNED")
    assert len(sandbox.journal("request")) == 2
    assert states(database) == {"sent": 1, "deferred": 1, "planned": 2}


@pytest.mark.parametrize(
    ("scope", "key"),
    [("global", ""), ("tenant", "acme"), ("channel", "WHATSAPP"), ("phone", "acme-01")],
)
def test_a_kill_switch_is_noticed_by_the_next_claim(servers: Servers, scope: str, key: str):
    *_, sandbox = servers
    desk, clock, database = a_shift_at(servers, leads=5)

    def switch_off() -> None:
        with database.begin() as conn:
            phones.switch_off(
                conn, scope=scope, key=key, reason="stop now", by="me", now=clock.now()
            )

    clock.happens = switch_off
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.outcomes == {"sent": 1}
    assert shift.ended.startswith("switched_off")
    assert "stop now" in shift.ended
    assert len(sandbox.accepted()) == 1
    with database.begin() as conn:
        assert phones.switch_on(conn, scope=scope, key=key)
        assert not phones.switch_on(conn, scope=scope, key=key)
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.outcomes == {"sent": 4}


def test_a_second_shift_of_a_held_phone_does_nothing(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    shift = work_shift(office.desk, "acme-01", this_process("second"), longest=HOUR)
    assert (shift.ended, shift.outcomes) == ("another shift holds this phone", {})
    assert sandbox.journal("request") == []
    assert the_row(database, "SELECT holder FROM phone_leases") == {"holder": "test"}


def test_a_shift_that_was_replaced_stops_and_leaves_the_lease_alone(servers: Servers):
    *_, sandbox = servers
    desk, clock, database = a_shift_at(servers, leads=5)

    def replaced() -> None:
        run_sql(
            database,
            "UPDATE phone_leases SET fence = fence + 1, holder = 'new', lease_until = :until",
            until=NOON + HOUR,
        )

    clock.happens = replaced
    shift = work_shift(desk, "acme-01", this_process("old"), longest=HOUR)
    assert shift.ended.startswith("replaced")
    assert shift.outcomes == {"sent": 1}
    assert len(sandbox.accepted()) == 1
    assert the_row(database, "SELECT holder FROM phone_leases") == {"holder": "new"}


def test_a_shift_waits_out_a_short_retry_and_sends(servers: Servers):
    *_, sandbox = servers
    desk, _, _ = a_shift_at(servers)
    sandbox.fault("rate_limited", times=2)
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.outcomes == {"deferred": 2, "sent": 1}
    assert len(sandbox.accepted()) == 1


class AbsentGate(QuotaGate):
    """A gate that cannot be asked until it comes back."""

    away = True

    def rate(
        self, name: str, *, most: int, window: timedelta, now: datetime, token: str
    ) -> datetime | None:
        if self.away:
            raise QuotaUnknown("Redis cannot be asked")
        return super().rate(name, most=most, window=window, now=now, token=token)


def test_a_shift_waits_for_a_redis_that_comes_back(servers: Servers):
    _, redis, sandbox = servers
    desk, clock, _ = a_shift_at(servers)
    gate = AbsentGate(redis)

    def come_back() -> None:
        gate.away = False

    clock.happens = come_back
    desk = replace(desk, gate=gate)
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.outcomes == {"sent": 1}
    assert clock.naps[0] == claiming.REDIS_RECHECK.total_seconds()
    assert len(sandbox.accepted()) == 1


def test_no_two_requests_of_a_phone_are_ever_open_at_once(servers: Servers):
    *_, sandbox = servers
    desk, _, _ = a_shift_at(servers, leads=8, steps=(FIRST, SECOND), delay=timedelta())
    shift = work_shift(desk, "acme-01", this_process("test"), longest=HOUR)
    assert shift.outcomes == {"sent": 16}
    assert sandbox.overlaps() == []
    assert sandbox.duplicates() == []
