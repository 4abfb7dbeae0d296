"""A phone that is connected but dead is noticed, and unanswered messages are counted."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from cerniq_pipeline.services.phone_health import HISTORY, PhoneHealth, look_after_phones
from cerniq_pipeline.store import phone_health
from cerniq_pipeline_tests.builders import NOON, a_world, rows, run_sql, some_leads, the_row

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def leads(database: Engine) -> list[UUID]:
    """Ten leads of a tenant with two phones."""
    with database.begin() as conn:
        a_world(conn, phones=2)
        return some_leads(conn, count=10)


def said(
    database: Engine,
    lead: UUID,
    *times: datetime,
    direction: str = "OUTBOUND",
    phone: str = "acme-01",
    status: str = "SENT",
) -> None:
    """Write messages into the log as a send or a reply would."""
    with database.begin() as conn:
        conn.execute(
            text("""
                INSERT INTO gold_communication_log
                  (tenant_id, lead_journey_id, channel, direction, phone_id, status, sent_at)
                SELECT 'acme', :lead, 'WHATSAPP', :direction, :phone, :status, at
                FROM unnest(CAST(:times AS timestamptz[])) at
            """),
            {
                "lead": lead,
                "direction": direction,
                "phone": phone,
                "status": status,
                "times": list(times),
            },
        )


def look(database: Engine, *, now: datetime = NOON) -> PhoneHealth:
    """The first phone's health."""
    return look_after_phones(database.begin, now=now)[0]


def every(step: timedelta, count: int, *, before: datetime) -> list[datetime]:
    return [before - step * n for n in range(1, count + 1)]


def alerts(database: Engine) -> list[dict[str, object]]:
    return rows(database, "SELECT kind, subject, closed_at IS NULL AS open FROM alerts ORDER BY id")


def test_a_phone_that_falls_silent_against_its_own_history_is_told_once_until_a_reply_comes(
    database: Engine, leads: list[UUID]
):
    reply = NOON - 2 * DAY
    said(database, leads[0], *every(MINUTE, 60, before=reply))
    for lead in leads:
        said(database, lead, reply, direction="INBOUND")
    said(database, leads[0], *every(MINUTE, 25, before=NOON))
    # 10 of 60 answered; 25 without an answer have a chance of 1.05 %
    assert not look(database).silent
    said(database, leads[0], NOON)
    seen = look(database)
    assert (seen.silent, seen.sent_since_reply, seen.score.silence) == (True, 26, 0)
    assert seen.reply_rate == pytest.approx(1 / 6)
    look(database)
    assert alerts(database) == [{"kind": "phone_silent", "subject": "acme-01", "open": True}]

    said(database, leads[1], NOON + MINUTE, direction="INBOUND")
    assert not look(database, now=NOON + 2 * MINUTE).silent
    assert alerts(database) == [{"kind": "phone_silent", "subject": "acme-01", "open": False}]


def test_only_the_days_before_the_last_reply_make_its_rate(database: Engine, leads: list[UUID]):
    reply = NOON - DAY
    said(database, leads[0], *every(MINUTE, 60, before=reply - HISTORY * DAY))
    said(database, leads[0], reply, direction="INBOUND")
    said(database, leads[0], *every(MINUTE, 49, before=reply))
    assert look(database).reply_rate is None
    said(database, leads[1], reply - MINUTE)
    assert look(database).reply_rate == pytest.approx(1 / 50)


def test_a_phone_that_nobody_ever_answered_is_not_called_silent(
    database: Engine, leads: list[UUID]
):
    said(database, leads[0], *every(MINUTE, 500, before=NOON))
    assert not look(database).silent


def test_a_phone_that_is_known_to_be_offline_is_not_said_to_be_silent_as_well(
    database: Engine, leads: list[UUID]
):
    reply = NOON - DAY
    said(database, leads[0], *every(MINUTE, 50, before=reply))
    for lead in leads:
        said(database, lead, reply, direction="INBOUND")
    said(database, leads[0], *every(MINUTE, 50, before=NOON))
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'OFFLINE', is_online = false")
    seen = look(database)
    assert (seen.silent, seen.score.connection) == (True, 0)
    assert alerts(database) == []


def test_failures_of_the_last_day_count_against_a_phone(database: Engine, leads: list[UUID]):
    outcomes = ["sent"] * 16 + ["deferred", "sent", "rejected", "unconfirmed"]
    with database.begin() as conn:
        for n, outcome in enumerate(outcomes):
            for at in (NOON - MINUTE, NOON - 2 * DAY):
                conn.execute(
                    text("""
                        WITH message AS (
                          INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id,
                            recipient, dedupe_key, due_at, planned_by)
                          VALUES ('acme', 'WHATSAPP', 'reply', :lead, 'acme-01', '+40', :key, :at,
                                  'test') RETURNING id
                        )
                        INSERT INTO send_attempts
                          (message_id, n, phone_id, fence, begun_at, outcome)
                        SELECT id, 1, 'acme-01', 1, :at, :outcome FROM message
                    """),
                    {"lead": leads[0], "key": f"{n} {at}", "at": at, "outcome": outcome},
                )
    assert look(database).score.failures == 15  # 2 of 20 failed; 4 would leave no point


@pytest.mark.parametrize(
    ("zone", "now", "counted"),
    [
        # 1 December begins at 22:00 UTC in Bucharest
        ("Europe/Bucharest", datetime(2026, 11, 30, 21, 59, tzinfo=UTC), 2),
        ("Europe/Bucharest", datetime(2026, 11, 30, 22, 1, tzinfo=UTC), 0),
        ("UTC", datetime(2026, 11, 30, 22, 1, tzinfo=UTC), 2),
        ("UTC", datetime(2026, 12, 1, 0, 0, tzinfo=UTC), 0),
    ],
)
def test_the_month_of_unanswered_messages_is_the_tenants(
    database: Engine, leads: list[UUID], zone: str, now: datetime, counted: int
):
    run_sql(database, "UPDATE tenants SET time_zone = :zone", zone=zone)
    said(database, leads[0], NOON, NOON + MINUTE)
    look_after_phones(database.begin, now=now)
    assert unanswered(database) == {"acme-01": counted, "acme-02": 0}


def test_a_reply_answers_what_its_lead_was_sent_before_it_from_any_phone(
    database: Engine, leads: list[UUID]
):
    now = NOON + 10 * MINUTE
    said(database, leads[0], NOON, NOON + MINUTE, NOON + 3 * MINUTE)
    said(database, leads[0], NOON, phone="acme-02")
    said(database, leads[1], NOON)
    said(database, leads[2], NOON, status="FAILED")
    look_after_phones(database.begin, now=now)
    assert unanswered(database) == {"acme-01": 4, "acme-02": 1}
    said(database, leads[0], NOON + 2 * MINUTE, direction="INBOUND")
    look_after_phones(database.begin, now=now)
    assert unanswered(database) == {"acme-01": 2, "acme-02": 0}


def unanswered(database: Engine) -> dict[object, object]:
    found = rows(database, "SELECT id, unanswered_this_month FROM wa_phone_numbers")
    return {row["id"]: row["unanswered_this_month"] for row in found}


# ── Days that are over ────────────────────────────────────────────────────────────────────────


def added_up(database: Engine, *, now: datetime = NOON) -> int:
    with database.begin() as conn:
        return phone_health.add_up_days(conn, history=HISTORY, now=now)


def test_a_day_that_is_over_is_added_up_once_and_again_only_when_its_words_change(
    database: Engine, leads: list[UUID]
):
    said(database, leads[0], NOON - 3 * DAY, NOON - 2 * DAY, NOON)
    assert added_up(database) == 2 * 17  # two phones, the days of November before this one
    assert added_up(database) == 0
    said(database, leads[0], NOON)
    assert added_up(database) == 0  # today is not over
    run_sql(
        database, "UPDATE gold_communication_log SET status = 'DELIVERED', delivered_at = now()"
    )
    assert added_up(database) == 0
    run_sql(
        database,
        "UPDATE gold_communication_log SET status = 'FAILED' WHERE sent_at = :at",
        at=NOON - 3 * DAY,
    )
    assert added_up(database) == 1
    said(database, leads[0], NOON - DAY, direction="INBOUND", phone="acme-02")
    assert added_up(database) == 3  # its own day, and both on which the lead was written to
    run_sql(database, "UPDATE tenants SET time_zone = 'Asia/Tokyo'")
    assert added_up(database) > 30


@pytest.mark.parametrize("seed", range(3))
def test_the_figures_are_those_of_the_whole_log_whatever_happens_to_it(
    database: Engine, leads: list[UUID], seed: int
):
    luck = random.Random(seed)
    phones = ["acme-01", "acme-02"]
    for step in range(25):
        now = NOON + step * 7 * timedelta(hours=1)
        lead, phone = luck.choice(leads), luck.choice(phones)
        at = now - luck.randrange(20 * 24 * 60) * MINUTE
        match luck.randrange(6):
            case 0 | 1 | 2:
                said(database, lead, at, at + MINUTE, phone=phone)
            case 3:
                said(database, lead, at, phone=phone, direction="INBOUND")
            case 4:
                run_sql(database, _ANY.format("UPDATE", "SET status = 'FAILED'"), skip=step)
            case _:
                run_sql(database, _ANY.format("DELETE FROM", ""), skip=step // 2)
        seen = look_after_phones(database.begin, now=now)
        assert [
            (one.phone_id, one.sent_since_reply, unanswered(database)[one.phone_id]) for one in seen
        ] == [_by_hand(database, phone, now) for phone in phones]


_ANY = """
    {0} gold_communication_log {1} WHERE id = (
      SELECT id FROM gold_communication_log ORDER BY sent_at, id OFFSET :skip LIMIT 1)
"""


def _by_hand(database: Engine, phone: str, now: datetime) -> tuple[object, ...]:
    """The same figures, each from every row that there is."""
    found = the_row(
        database,
        """
        WITH said AS (SELECT * FROM gold_communication_log
                      WHERE status <> 'FAILED' AND sent_at <= :now),
        last AS (SELECT max(sent_at) AS at FROM gold_communication_log
                 WHERE phone_id = :phone AND direction = 'INBOUND' AND sent_at <= :now)
        SELECT count(*) FILTER (WHERE s.sent_at > last.at) AS since,
               count(*) FILTER (
                 WHERE s.sent_at >= date_trunc('month', CAST(:now AS timestamptz),
                                               'Europe/Bucharest')
                   AND NOT EXISTS (SELECT 1 FROM said r WHERE r.direction = 'INBOUND'
                     AND r.lead_journey_id = s.lead_journey_id AND r.sent_at >= s.sent_at)
               ) AS unanswered
        FROM last LEFT JOIN said s ON s.phone_id = :phone AND s.direction = 'OUTBOUND'
        """,
        phone=phone,
        now=now,
    )
    return phone, found["since"], found["unanswered"]
