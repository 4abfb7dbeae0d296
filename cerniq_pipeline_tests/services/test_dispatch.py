"""Dispatch on real Postgres: who is planned, who waits and why, and what is never planned."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from cerniq_pipeline.domain.selection import Skip
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.services.dispatch import (
    Request,
    Result,
    fill_outbox,
    next_dispatch,
    plan_batch,
    select_leads,
)
from cerniq_pipeline.store import selection
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    a_phone,
    a_sequence,
    a_world,
    beginning,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
    wait_until_somebody_waits_for_a_lock,
)

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TOMORROW_NINE = datetime(2026, 11, 19, 7, 0, tzinfo=UTC)
NIGHT = datetime(2026, 11, 18, 20, 0, tzinfo=UTC)


def plan(
    database: Engine, *, now: datetime = NOON, tenant_id: str = "acme", **asked: Any
) -> tuple[int, Result]:
    """Select and plan, without filling the outbox: (batch, result)."""
    batch_id, _ = select_leads(
        database.begin, tenant_id, Request(**asked), by="test", secret=SECRET, now=now
    )
    return batch_id, plan_batch(database.begin, batch_id, now=now)


def fill(database: Engine, batch_id: int, *, now: datetime = NOON) -> tuple[int, int]:
    return fill_outbox(database.begin, batch_id, by="test", now=now)


def planned_numbers(database: Engine) -> list[str]:
    """Who is in the outbox, in the order of planning."""
    found = rows(database, "SELECT recipient FROM outbox_messages ORDER BY id")
    return [str(row["recipient"]) for row in found]


def number(n: int) -> str:
    """The number of the n-th lead of `some_leads`."""
    return f"+407210{n:05d}"


# ── The plan and the outbox ───────────────────────────────────────────────────────────────────


def test_a_due_lead_becomes_a_message_and_is_marked(database: Engine):
    with database.begin() as conn:
        world = a_world(conn)
        (lead_id,) = some_leads(conn)
    batch_id, result = plan(database)
    assert result == Result(total_eligible_leads=1, dispatched_to_whatsapp=1)
    assert fill(database, batch_id) == (1, 0)
    message = the_row(database, "SELECT * FROM outbox_messages")
    assert (message["tenant_id"], message["channel"], message["kind"]) == (
        "acme",
        "WHATSAPP",
        "initial",
    )
    assert (message["lead_id"], message["recipient"]) == (lead_id, number(0))
    assert (message["phone_id"], message["sequence_id"], message["step"]) == (
        "acme-01",
        world.sequence_id,
        1,
    )
    assert (message["state"], message["due_at"], message["planned_by"]) == ("planned", NOON, "test")
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["open_message"], lead["next_action_at"], lead["hold_reason"]) == (True, None, None)
    assert (lead["assigned_phone_id"], lead["assigned_at"]) == ("acme-01", NOON)
    assert lead["engagement_stage"] == "COLD"  # planned is not contacted


def test_the_counts_are_those_of_the_documents(database: Engine):
    with database.begin() as conn:
        a_world(conn, quota=2, channels=["WHATSAPP", "EMAIL"])
        conn.execute(
            text("""
                UPDATE tenants SET basis_policy = '{"WHATSAPP": ["consent"], "EMAIL": ["consent"]}'
            """)
        )
        mail = a_sequence(conn, "acme", name="mail")
        conn.execute(
            text("UPDATE sequence_steps SET channel = 'EMAIL' WHERE sequence_id = :s"), {"s": mail}
        )
        some_leads(conn, count=3)  # one more than the quota
        some_leads(conn, first=10, basis=None)
        some_leads(conn, count=2, first=20, hlr_reachable=False)
        mails = some_leads(
            conn, first=30, hlr_reachable=False, email_principal="a@b.ro", email_status="valid"
        )
        conn.execute(
            text("UPDATE gold_lead_journey SET current_sequence_id = :s WHERE lead_id = ANY(:l)"),
            {"s": mail, "l": mails},
        )
        reviewed = some_leads(conn, count=4, first=40)
        conn.execute(
            text(
                "UPDATE gold_lead_journey SET requires_human_review = true WHERE lead_id = ANY(:l)"
            ),
            {"l": reviewed},
        )
    _, result = plan(database)
    assert result == Result(
        total_eligible_leads=7,
        dispatched_to_whatsapp=2,
        dispatched_to_email=0,
        skipped_quota_exceeded=1,
        skipped_no_channel=2,
        skipped_human_review=4,
        skipped={
            "quota_exceeded": 1,
            "no_lawful_basis": 1,
            "no_channel": 2,
            "channel_unavailable": 1,
        },
    )


ODD_LEAD = "WHERE lead_id = (SELECT id FROM gold_companies WHERE denumire = 'Firma 9')"
ODD_COMPANY = "WHERE denumire = 'Firma 9'"


@pytest.mark.parametrize(
    ("change", "skip", "looked_at_again"),
    [
        (f"UPDATE gold_lead_journey SET whatsapp_opted_out = true {ODD_LEAD}",
         Skip.OPTED_OUT, None),
        (f"UPDATE gold_lead_journey SET email_opted_out = true {ODD_LEAD}",
         Skip.OPTED_OUT, None),
        (f"UPDATE gold_lead_journey SET lawful_basis = NULL {ODD_LEAD}",
         Skip.NO_LAWFUL_BASIS, NOON + DAY),
        (f"UPDATE gold_lead_journey SET lawful_basis = 'legitimate_interest' {ODD_LEAD}",
         Skip.NO_LAWFUL_BASIS, NOON + DAY),
        (f"UPDATE gold_companies SET hlr_reachable = false {ODD_COMPANY}",
         Skip.NO_CHANNEL, NOON + DAY),
        (f"UPDATE gold_companies SET telefon_principal = NULL {ODD_COMPANY}",
         Skip.NO_CHANNEL, NOON + DAY),
        (f"UPDATE gold_companies SET telefon_principal = '0721 000 009' {ODD_COMPANY}",
         Skip.NO_CHANNEL, NOON + DAY),  # a number that nobody normalised
        (f"UPDATE gold_companies SET telefon_principal = '+40721000009 or 1' {ODD_COMPANY}",
         Skip.NO_CHANNEL, NOON + DAY),
        (f"UPDATE gold_companies SET telefon_principal = '+40213456789' {ODD_COMPANY}",
         Skip.LANDLINE, NOON + DAY),
        (f"UPDATE gold_companies SET telefon_principal = '+33142685300' {ODD_COMPANY}",
         Skip.LANDLINE, NOON + DAY),
        (f"UPDATE gold_lead_journey SET sequence_step = 1 {ODD_LEAD}",
         Skip.SEQUENCE_FINISHED, None),
        (f"UPDATE gold_lead_journey SET current_sequence_id = 999999 {ODD_LEAD}",
         Skip.NO_SEQUENCE, NOON + DAY),
        (f"""UPDATE gold_lead_journey SET current_sequence_id =
             (SELECT id FROM sequences WHERE name = 'resting') {ODD_LEAD}""",
         Skip.SEQUENCE_PAUSED, NOON + HOUR),
        (f"""UPDATE gold_lead_journey SET current_sequence_id =
             (SELECT id FROM sequences WHERE name = 'spoilt') {ODD_LEAD}""",
         Skip.TEMPLATE_BROKEN, NOON + HOUR),
        (f"UPDATE gold_lead_journey SET assigned_phone_id = 'acme-02' {ODD_LEAD}",
         Skip.PHONE_NOT_ACTIVE, NOON + HOUR),
        (f"UPDATE gold_lead_journey SET assigned_phone_id = 'sold' {ODD_LEAD}",
         Skip.PHONE_NOT_ACTIVE, NOON + HOUR),
        (f"UPDATE gold_lead_journey SET assigned_phone_id = 'acme-03' {ODD_LEAD}",
         Skip.QUOTA_EXCEEDED, TOMORROW_NINE),
    ],
)  # fmt: skip
def test_a_lead_that_is_passed_over_has_its_reason_and_does_not_block_the_others(
    database: Engine, change: str, skip: Skip, looked_at_again: datetime | None
):
    with database.begin() as conn:
        a_world(conn, phones=3)
        resting = a_sequence(conn, "acme", name="resting")
        a_sequence(conn, "acme", name="spoilt", steps=("Bună {ziua|seara",))
        conn.execute(text("UPDATE sequences SET status = 'paused' WHERE id = :s"), {"s": resting})
        some_leads(conn, first=9, at=NOON - DAY)  # the oldest: first in the line
        some_leads(conn, count=2)
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'OFFLINE' WHERE id = 'acme-02'")
    run_sql(database, "UPDATE wa_phone_numbers SET daily_quota = 0 WHERE id = 'acme-03'")
    run_sql(database, change)
    batch_id, result = plan(database, batch_size=3)
    assert result.skipped == {skip: 1}
    assert (result.total_eligible_leads, result.dispatched_to_whatsapp) == (3, 2)
    assert fill(database, batch_id) == (2, 0)
    assert sorted(planned_numbers(database)) == [number(0), number(1)]
    odd = the_row(
        database,
        f"SELECT hold_reason, next_action_at, open_message FROM gold_lead_journey {ODD_LEAD}",
    )
    assert odd == {
        "hold_reason": skip,
        "next_action_at": looked_at_again,
        "open_message": False,
    }
    # Out of the way: the next tick does not look at it.
    _, again = plan(database, now=NOON + timedelta(minutes=5))
    assert again.total_eligible_leads == 0


def test_a_tenant_without_a_sequence_passes_everybody_over(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=2)
    run_sql(database, "UPDATE tenants SET default_sequence_id = NULL")
    _, result = plan(database)
    assert result.skipped == {Skip.NO_SEQUENCE: 2}


def test_a_text_with_an_address_may_follow_up_although_it_may_not_greet(database: Engine):
    with database.begin() as conn:
        a_world(conn, steps=("Vizitați https://exemplu.ro",))
        following = a_sequence(conn, "acme", name="following", steps=(FIRST, SECOND))
        leads = some_leads(conn, count=2)
        conn.execute(
            text("""
                UPDATE sequence_steps SET template_id =
                  (SELECT id FROM templates WHERE content LIKE '%https%')
                WHERE sequence_id = :following AND step = 2
            """),
            {"following": following},
        )
        conn.execute(
            text("""
                UPDATE gold_lead_journey SET current_sequence_id = :following, sequence_step = 1,
                  assigned_phone_id = 'acme-01'
                WHERE lead_id = :lead
            """),
            {"following": following, "lead": leads[1]},
        )
    _, result = plan(database)
    assert (result.dispatched_to_whatsapp, result.skipped) == (1, {Skip.TEMPLATE_BROKEN: 1})


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE gold_lead_journey SET requires_human_review = true",
        "UPDATE gold_lead_journey SET engagement_stage = 'WARM_REPLY'",
        "UPDATE gold_lead_journey SET engagement_stage = 'DEAD'",
        "UPDATE gold_lead_journey SET next_action_at = NULL",
        "UPDATE gold_lead_journey SET next_action_at = '2026-11-18 10:00:01+00'",
        "UPDATE gold_lead_journey SET open_message = true",
    ],
)
def test_some_leads_are_not_even_looked_at(database: Engine, change: str):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    run_sql(database, change)
    _, result = plan(database)
    assert result.total_eligible_leads == 0
    assert dispatch(database) == (0, 0)


def test_many_leads_that_cannot_be_contacted_do_not_hide_those_behind_them(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=200, basis=None, at=NOON - DAY)
        some_leads(conn, count=3, first=5000)
    ticks = [dispatch(database, request=Request(batch_size=10))[0] for _ in range(5)]
    assert sum(ticks) == 3  # twenty batches' worth of them are gone after a few ticks


# ── Never twice ───────────────────────────────────────────────────────────────────────────────


def test_a_planned_lead_is_not_planned_again_by_the_next_tick(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=5)
    assert dispatch(database) == (5, 0)
    for minutes in (5, 10, 15):
        assert dispatch(database, now=NOON + timedelta(minutes=minutes)) == (0, 0)
    assert states(database) == {"planned": 5}


def test_two_plans_of_the_same_leads_fill_the_outbox_once(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=5)
    (first, _), (second, _) = plan(database), plan(database)
    assert fill(database, first) == (5, 0)
    assert fill(database, second) == (0, 0)
    assert fill(database, first) == (0, 0)  # the same batch, filled again by hand
    assert states(database) == {"planned": 5}


def test_ten_dispatches_at_once_plan_every_lead_once_and_no_phone_too_much(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=2, quota=15)
        some_leads(conn, count=40)
    with ThreadPoolExecutor(10) as crowd:
        written = list(crowd.map(lambda n: dispatch(database, by=f"run {n}")[0], range(10)))
    assert sum(written) == 30
    per_phone = rows(database, "SELECT phone_id, count(*) AS n FROM outbox_messages GROUP BY 1")
    assert {row["phone_id"]: row["n"] for row in per_phone} == {"acme-01": 15, "acme-02": 15}
    assert len(set(planned_numbers(database))) == 30


def test_a_second_dispatch_waits_for_the_room_that_the_first_one_takes(database: Engine):
    with database.begin() as conn:
        a_world(conn, quota=3)
        some_leads(conn, count=3)
        urgent = some_leads(conn, count=3, first=10)
        conn.execute(
            text("UPDATE gold_lead_journey SET priority = 'HIGH' WHERE lead_id = ANY(:l)"),
            {"l": urgent},
        )
    (first, _), (second, _) = (plan(database, priority_filter=p) for p in ("HIGH", "NORMAL"))
    written: list[tuple[int, int]] = []
    filling = threading.Thread(target=lambda: written.append(fill(database, second)))

    def let_the_second_come() -> None:
        filling.start()
        wait_until_somebody_waits_for_a_lock(database)

    begin = beginning(database, let_the_second_come)
    assert fill_outbox(begin, first, by="test", now=NOON) == (3, 0)
    filling.join()
    assert written == [(0, 0)]
    assert per_phone(database) == {"acme-01": 3}


def test_two_leads_with_one_number_get_one_message(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
        some_leads(conn, first=1, at=NOON - timedelta(minutes=30))
    run_sql(database, "UPDATE gold_companies SET telefon_principal = :n", n=number(0))
    assert dispatch(database) == (1, 1)
    assert planned_numbers(database) == [number(0)]
    found = rows(
        database,
        "SELECT open_message, hold_reason, next_action_at FROM gold_lead_journey ORDER BY 1",
    )
    assert found == [
        {"open_message": False, "hold_reason": "already_planned", "next_action_at": None},
        {"open_message": True, "hold_reason": None, "next_action_at": None},
    ]
    assert dispatch(database, now=NOON + DAY) == (0, 0)


def test_a_number_that_had_its_first_message_long_ago_is_not_greeted_again(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    dispatch(database)
    run_sql(database, "UPDATE outbox_messages SET state = 'sent'")
    with database.begin() as conn:
        some_leads(conn, first=1)
    run_sql(database, "UPDATE gold_companies SET telefon_principal = :n", n=number(0))
    assert dispatch(database) == (0, 1)
    assert states(database) == {"sent": 1}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE gold_lead_journey SET whatsapp_opted_out = true",
        "UPDATE gold_lead_journey SET email_opted_out = true",
        "UPDATE gold_lead_journey SET requires_human_review = true",
        "UPDATE gold_lead_journey SET engagement_stage = 'WARM_REPLY'",
        "UPDATE gold_lead_journey SET sequence_step = 1",
        "UPDATE gold_lead_journey SET next_action_at = NULL",
        "UPDATE gold_lead_journey SET open_message = true",
    ],
)
def test_what_changed_between_plan_and_outbox_is_noticed(database: Engine, change: str):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    batch_id, result = plan(database)
    assert result.dispatched_to_whatsapp == 1
    run_sql(database, change)
    assert fill(database, batch_id) == (0, 0)
    assert states(database) == {}


# ── What is asked ─────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_shows_what_it_would_do_and_writes_nothing(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=3)
        some_leads(conn, first=9, basis=None)
    before = rows(database, "SELECT * FROM gold_lead_journey ORDER BY lead_id")
    batch_id, result = plan(database, dry_run=True)
    assert (result.dispatched_to_whatsapp, result.skipped) == (3, {"no_lawful_basis": 1})
    assert fill(database, batch_id) == (0, 0)
    assert states(database) == {}
    assert rows(database, "SELECT * FROM gold_lead_journey ORDER BY lead_id") == before
    assert dispatch(database) == (3, 0)


def with_priorities(database: Engine) -> None:
    """Three leads, the least urgent waiting longest: 0 LOW, 1 NORMAL, 2 HIGH."""
    with database.begin() as conn:
        a_world(conn)
        for n, priority in enumerate(["LOW", "NORMAL", "HIGH"]):
            (lead_id,) = some_leads(conn, first=n, at=NOON - (3 - n) * HOUR)
            conn.execute(
                text("UPDATE gold_lead_journey SET priority = :p WHERE lead_id = :l"),
                {"p": priority, "l": lead_id},
            )


def test_the_urgent_go_first_and_then_who_waits_longest(database: Engine):
    with_priorities(database)
    with database.begin() as conn:
        some_leads(conn, first=3, at=NOON - 2 * DAY)  # NORMAL, and waiting longest of all
    dispatch(database)
    assert planned_numbers(database) == [number(2), number(3), number(1), number(0)]


@pytest.mark.parametrize(("asked", "planned"), [("HIGH", 2), ("NORMAL", 1), ("LOW", 0)])
def test_a_priority_can_be_asked_for(database: Engine, asked: str, planned: int):
    with_priorities(database)
    assert dispatch(database, request=Request(priority_filter=asked)) == (1, 0)
    assert planned_numbers(database) == [number(planned)]


def test_a_batch_is_no_larger_than_asked_and_the_rest_comes_next(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=5)
    batch_id, result = plan(database, batch_size=2)
    assert result == Result(
        total_eligible_leads=5, dispatched_to_whatsapp=2, waiting_for_next_batch=3
    )
    fill(database, batch_id)
    assert [dispatch(database, request=Request(batch_size=2)) for _ in range(3)] == [
        (2, 0),
        (1, 0),
        (0, 0),
    ]


@pytest.mark.parametrize("by", ["name", "id"])
def test_a_sequence_can_be_asked_for_by_name_or_id(database: Engine, by: str):
    with database.begin() as conn:
        world = a_world(conn)
        other = a_sequence(conn, "acme", name="toamna")
        some_leads(conn)
        (lead_id,) = some_leads(conn, first=1)
        conn.execute(
            text("UPDATE gold_lead_journey SET current_sequence_id = :s WHERE lead_id = :l"),
            {"s": other, "l": lead_id},
        )
    asked = "toamna" if by == "name" else str(other)
    assert dispatch(database, request=Request(sequence_filter=asked)) == (1, 0)
    assert planned_numbers(database) == [number(1)]
    # A lead without a sequence of its own is in the tenant's default one.
    asked = "main" if by == "name" else str(world.sequence_id)
    assert dispatch(database, request=Request(sequence_filter=asked)) == (1, 0)


def test_a_sequence_whose_name_is_anothers_id_is_found_by_its_name(database: Engine):
    with database.begin() as conn:
        world = a_world(conn)
        named = a_sequence(conn, "acme", name=str(world.sequence_id))
        (lead_id,) = some_leads(conn)
        conn.execute(text("UPDATE gold_lead_journey SET current_sequence_id = :s"), {"s": named})
    assert lead_id
    assert dispatch(database, request=Request(sequence_filter=str(world.sequence_id))) == (1, 0)


@pytest.mark.parametrize("asked", ["unknown", "999999", "beta's own", "'; DROP TABLE leads; --"])
def test_an_unknown_sequence_is_refused_and_nothing_is_planned(database: Engine, asked: str):
    with database.begin() as conn:
        a_world(conn)
        a_world(conn, tenant_id="beta", phones=0)
        a_sequence(conn, "beta", name="beta's own")
        some_leads(conn)
    with pytest.raises(NotFound, match="no sequence"):
        dispatch(database, request=Request(sequence_filter=asked))
    assert rows(database, "SELECT 1 FROM dispatch_batches") == []


def test_an_unknown_tenant_is_refused(database: Engine):
    with database.begin() as conn:
        a_world(conn)
    with pytest.raises(NotFound, match="acme"):
        dispatch(database, tenant_id="acmé")


@pytest.mark.parametrize(
    ("preference", "skipped"), [("WHATSAPP", {}), ("EMAIL", {Skip.NO_CHANNEL: 1})]
)
def test_a_channel_preference_narrows_the_choice(
    database: Engine, preference: str, skipped: dict[str, int]
):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    _, result = plan(database, channel_preference=preference)
    assert result.skipped == skipped


@pytest.mark.parametrize("preference", ["AUTO", "WHATSAPP", "EMAIL"])
def test_no_preference_lifts_an_opt_out(database: Engine, preference: str):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, email_principal="a@b.ro", email_status="valid")
    run_sql(database, "UPDATE gold_lead_journey SET whatsapp_opted_out = true")
    _, result = plan(database, channel_preference=preference)
    assert result.skipped == {Skip.OPTED_OUT: 1}


# ── Phones ────────────────────────────────────────────────────────────────────────────────────


def per_phone(database: Engine) -> Counter[str]:
    found = rows(database, "SELECT phone_id FROM outbox_messages")
    return Counter(str(row["phone_id"]) for row in found)


def test_new_leads_are_spread_over_the_phones(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=3)
        some_leads(conn, count=10)
    dispatch(database)
    assert per_phone(database) == {"acme-01": 4, "acme-02": 3, "acme-03": 3}


def test_phones_whose_numbers_end_alike_have_lanes_of_their_own(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=0)
        a_phone(conn, "acme", "cluj", number="+40740000042")
        a_phone(conn, "acme", "iasi", number="+40750000042")
        some_leads(conn, count=6)
    dispatch(database)
    assert per_phone(database) == {"cluj": 3, "iasi": 3}


def test_a_phone_with_less_room_gets_fewer(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=2, quota=10)
        some_leads(conn, count=8)
    run_sql(database, "UPDATE wa_phone_numbers SET daily_quota = 4 WHERE id = 'acme-02'")
    dispatch(database)
    assert per_phone(database) == {"acme-01": 7, "acme-02": 1}


def test_a_young_phone_gets_no_more_than_its_ramp(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=30)
    run_sql(database, "UPDATE wa_phone_numbers SET warm_up_from = '2026-11-18'")
    batch_id, result = plan(database)
    assert (result.dispatched_to_whatsapp, result.skipped_quota_exceeded) == (20, 10)
    assert fill(database, batch_id) == (20, 0)


def test_a_lead_goes_to_the_phone_it_knows(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=3)
        leads = some_leads(conn, count=4)
        conn.execute(
            text(
                "UPDATE gold_lead_journey SET assigned_phone_id = 'acme-03' WHERE lead_id = ANY(:l)"
            ),
            {"l": leads},
        )
    dispatch(database)
    assert per_phone(database) == {"acme-03": 4}


def knowing(database: Engine, count: int, *, first: int, at: datetime) -> list[UUID]:
    """Leads that know acme-01."""
    with database.begin() as conn:
        leads = some_leads(conn, count=count, first=first, at=at)
        conn.execute(
            text(
                "UPDATE gold_lead_journey SET assigned_phone_id = 'acme-01' WHERE lead_id = ANY(:l)"
            ),
            {"l": leads},
        )
    return leads


def test_the_room_of_a_phone_belongs_first_to_those_who_know_it(database: Engine):
    with database.begin() as conn:
        a_world(conn, quota=3)
        some_leads(conn, count=3, at=NOON - 2 * HOUR)  # strangers, waiting longer
    knowing(database, 2, first=10, at=NOON - HOUR)
    batch_id, result = plan(database)
    assert (result.dispatched_to_whatsapp, result.skipped_quota_exceeded) == (3, 2)
    fill(database, batch_id)
    assert {number(10), number(11)} < set(planned_numbers(database))


def test_room_is_not_kept_for_those_who_may_not_be_contacted(database: Engine):
    with database.begin() as conn:
        a_world(conn, quota=2)
        some_leads(conn, count=2)
    silent = knowing(database, 5, first=10, at=NOON - DAY)
    run_sql(
        database,
        "UPDATE gold_lead_journey SET whatsapp_opted_out = true WHERE lead_id = ANY(:l)",
        l=silent,
    )
    _, result = plan(database)
    assert result.dispatched_to_whatsapp == 2
    assert result.skipped == {Skip.OPTED_OUT: 5}


def test_quota_binds_the_phone_that_a_lead_knows(database: Engine):
    with database.begin() as conn:
        a_world(conn, quota=2, phones=2)
    knowing(database, 3, first=0, at=NOON - HOUR)
    batch_id, result = plan(database)
    assert (result.dispatched_to_whatsapp, result.skipped_quota_exceeded) == (2, 1)
    assert fill(database, batch_id) == (2, 0)
    assert per_phone(database) == {"acme-01": 2}


def test_a_follow_up_costs_no_room(database: Engine):
    with database.begin() as conn:
        a_world(conn, quota=0, steps=(FIRST, SECOND))
    leads = knowing(database, 2, first=0, at=NOON - HOUR)
    run_sql(
        database,
        """
        UPDATE gold_lead_journey SET sequence_step = 1, engagement_stage = 'CONTACTED_WA'
        WHERE lead_id = ANY(:l)
        """,
        l=leads,
    )
    assert dispatch(database) == (2, 0)
    kinds = rows(database, "SELECT kind, step FROM outbox_messages")
    assert kinds == [{"kind": "followup", "step": 2}] * 2


def test_waiting_messages_use_up_the_room_of_a_phone(database: Engine):
    with database.begin() as conn:
        a_world(conn, quota=5)
        some_leads(conn, count=12)
    assert dispatch(database, request=Request(batch_size=3)) == (3, 0)
    batch_id, result = plan(database)
    assert (result.dispatched_to_whatsapp, result.skipped_quota_exceeded) == (2, 7)
    assert fill(database, batch_id) == (2, 0)
    assert dispatch(database) == (0, 0)


def test_what_was_sent_today_uses_up_the_room_of_a_phone_and_yesterdays_does_not(
    database: Engine,
):
    with database.begin() as conn:
        a_world(conn, quota=5)
        some_leads(conn, count=9)
    run_sql(
        database,
        """
        INSERT INTO quota_ledger (phone_id, lead_id, day, message_id, state, at)
        SELECT 'acme-01', gen_random_uuid(), day, 1, state, now() FROM (VALUES
          (date '2026-11-18', 'committed'), (date '2026-11-18', 'reserved'),
          (date '2026-11-18', 'released'), (date '2026-11-17', 'committed')) AS v (day, state)
        """,
    )
    _, result = plan(database)
    assert result.dispatched_to_whatsapp == 3


def test_room_that_was_taken_between_plan_and_outbox_is_not_taken_twice(database: Engine):
    with database.begin() as conn:
        a_world(conn, quota=3)
        some_leads(conn, count=3)
    batch_id, result = plan(database)
    assert result.dispatched_to_whatsapp == 3
    run_sql(database, "UPDATE wa_phone_numbers SET daily_quota = 1")
    assert fill(database, batch_id) == (1, 0)
    left = rows(
        database,
        "SELECT 1 FROM gold_lead_journey WHERE next_action_at IS NOT NULL AND NOT open_message",
    )
    assert len(left) == 2  # still due, and looked at by the next tick


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE wa_phone_numbers SET status = 'BANNED' WHERE id = 'acme-01'",
        "UPDATE wa_phone_numbers SET status = 'OFFLINE' WHERE id = 'acme-01'",
        "UPDATE wa_phone_numbers SET is_enabled = false WHERE id = 'acme-01'",
        "INSERT INTO switches VALUES ('phone', 'acme-01', 'stop', 'me', now())",
    ],
)
def test_a_phone_that_is_not_active_gets_nobody(database: Engine, change: str):
    with database.begin() as conn:
        a_world(conn, phones=2)
        some_leads(conn, count=4)
    run_sql(database, change)
    dispatch(database)
    assert per_phone(database) == {"acme-02": 4}


@pytest.mark.parametrize(
    ("tenant", "change", "per_phone_then"),
    [
        ("hand_over", "status = 'BANNED'", {"acme-02": 3}),
        ("hand_over", "is_enabled = false", {"acme-02": 3}),
        ("hand_over", f"status = 'OFFLINE', status_changed_at = '{NOON - 2 * HOUR}'",
         {"acme-02": 3}),
        ("hand_over", f"status = 'OFFLINE', status_changed_at = '{NOON - HOUR / 2}'", {}),
        ("wait", "status = 'BANNED'", {}),
        ("switch_channel", "status = 'BANNED'", {}),
    ],
)  # fmt: skip
def test_leads_that_a_lost_phone_never_wrote_to_are_dealt_another_where_the_tenant_hands_over(
    database: Engine, tenant: str, change: str, per_phone_then: dict[str, int]
):
    with database.begin() as conn:
        a_world(conn, phones=2, quota=3, failover=tenant)
    knowing(database, 4, first=0, at=NOON - HOUR)
    run_sql(database, "UPDATE gold_lead_journey SET assigned_at = :then", then=NOON - DAY)
    run_sql(database, f"UPDATE wa_phone_numbers SET {change} WHERE id = 'acme-01'")
    batch_id, result = plan(database)
    waiting = Skip.QUOTA_EXCEEDED if per_phone_then else Skip.PHONE_NOT_ACTIVE
    assert result.skipped == {waiting: 4 - sum(per_phone_then.values())}
    assert violations(database, batch_id) == {}
    fill(database, batch_id)
    assert per_phone(database) == per_phone_then
    moved = rows(
        database,
        """SELECT assigned_phone_id, assigned_at FROM gold_lead_journey
           WHERE open_message OR assigned_phone_id <> 'acme-01'""",
    )
    assert moved == [{"assigned_phone_id": "acme-02", "assigned_at": NOON}] * len(moved)
    assert len(moved) == sum(per_phone_then.values())


@pytest.mark.parametrize(
    "trace",
    [
        "UPDATE gold_lead_journey SET chat_id = '7'",
        """INSERT INTO gold_communication_log
             (tenant_id, lead_journey_id, channel, direction, status)
           SELECT 'acme', lead_id, 'WHATSAPP', 'INBOUND', 'RECEIVED' FROM gold_lead_journey""",
        """INSERT INTO quota_ledger (phone_id, lead_id, day, message_id, state, at)
           SELECT 'acme-01', lead_id, '2026-11-17', 1, 'reserved', now() FROM gold_lead_journey""",
        """WITH dropped AS (
             INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id, recipient,
                                          state, due_at, planned_by)
             SELECT 'acme', 'WHATSAPP', 'initial', lead_id, 'acme-01', '+40721', 'cancelled',
                    now(), 'me'
             FROM gold_lead_journey RETURNING id)
           INSERT INTO send_attempts (message_id, n, phone_id, fence, begun_at, outcome)
           SELECT id, 1, 'acme-01', 1, now(), 'unconfirmed' FROM dropped""",
    ],
    ids=["a chat", "it wrote to us", "it counts as opened", "an attempt nobody is sure of"],
)
def test_a_lead_that_may_know_the_lost_phone_is_not_dealt_another_as_if_it_were_new(
    database: Engine, trace: str
):
    with database.begin() as conn:
        a_world(conn, phones=2)
    knowing(database, 1, first=0, at=NOON - HOUR)
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'BANNED' WHERE id = 'acme-01'")
    run_sql(database, trace)
    _, result = plan(database)
    assert result.skipped == {Skip.PHONE_NOT_ACTIVE: 1}


def test_without_any_active_phone_leads_wait_an_hour_and_say_why(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=2)
        some_leads(conn, count=3)
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'OFFLINE'")
    batch_id, result = plan(database)
    assert result.skipped == {Skip.PHONE_NOT_ACTIVE: 3}
    fill(database, batch_id)
    waiting = rows(database, "SELECT next_action_at FROM gold_lead_journey")
    assert {row["next_action_at"] for row in waiting} == {NOON + HOUR}


# ── Hours and switches ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("now", "switch", "skip"),
    [
        (NIGHT, None, Skip.OUTSIDE_HOURS),
        (datetime(2026, 11, 21, 10, 0, tzinfo=UTC), None, Skip.OUTSIDE_HOURS),  # Saturday
        (datetime(2026, 12, 1, 10, 0, tzinfo=UTC), None, Skip.OUTSIDE_HOURS),  # National Day
        (NOON, ("global", ""), Skip.SWITCHED_OFF),
        (NOON, ("tenant", "acme"), Skip.SWITCHED_OFF),
        (NOON, ("channel", "WHATSAPP"), Skip.SWITCHED_OFF),
    ],
)
def test_a_tenant_that_waits_as_a_whole_plans_nobody_and_puts_nobody_off(
    database: Engine, now: datetime, switch: tuple[str, str] | None, skip: Skip
):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=3)
    if switch:
        run_sql(
            database,
            "INSERT INTO switches VALUES (:scope, :key, 'stop', 'me', now())",
            scope=switch[0],
            key=switch[1],
        )
    before = rows(database, "SELECT next_action_at FROM gold_lead_journey")
    batch_id, result = plan(database, now=now)
    assert result.skipped == {skip: 3}
    assert result.skipped_outside_hours == (3 if skip is Skip.OUTSIDE_HOURS else 0)
    assert fill(database, batch_id, now=now) == (0, 0)
    assert rows(database, "SELECT next_action_at FROM gold_lead_journey") == before
    # As soon as the reason is gone, they are planned at once.
    run_sql(database, "DELETE FROM switches")
    monday = datetime(2026, 12, 7, 10, 0, tzinfo=UTC)
    assert dispatch(database, now=monday) == (3, 0)


@pytest.mark.parametrize("switch", [("tenant", "beta"), ("channel", "EMAIL"), ("phone", "acme-02")])
def test_a_switch_of_somebody_else_stops_nobody(database: Engine, switch: tuple[str, str]):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    run_sql(
        database,
        "INSERT INTO switches VALUES (:scope, :key, 'stop', 'me', now())",
        scope=switch[0],
        key=switch[1],
    )
    assert dispatch(database) == (1, 0)


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (NOON, NOON + timedelta(minutes=5)),
        (NOON + timedelta(seconds=1), NOON + timedelta(minutes=5)),
        (NOON + timedelta(minutes=4, seconds=59), NOON + timedelta(minutes=5)),
    ],
)
def test_the_next_dispatch_is_at_the_next_five_minute_mark(now: datetime, then: datetime):
    assert next_dispatch(now) == then


# ── Tenants, and leads that others write ──────────────────────────────────────────────────────


def test_leads_of_another_tenant_are_not_touched(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=2)
        a_world(conn, tenant_id="beta", phones=0)
        a_phone(conn, "beta", "beta-01", number="+40791000001")
        some_leads(conn, "beta", count=3)  # the same numbers
    before = rows(database, "SELECT * FROM gold_lead_journey WHERE tenant_id = 'beta' ORDER BY 1")
    assert dispatch(database) == (2, 0)
    assert rows(database, "SELECT DISTINCT tenant_id, phone_id FROM outbox_messages") == [
        {"tenant_id": "acme", "phone_id": "acme-01"}
    ]
    after = rows(database, "SELECT * FROM gold_lead_journey WHERE tenant_id = 'beta' ORDER BY 1")
    assert after == before
    assert dispatch(database, tenant_id="beta") == (3, 0)


def test_a_company_written_with_plain_sql_is_planned_once_it_has_a_basis(database: Engine):
    with database.begin() as conn:
        a_world(conn)
    run_sql(
        database,
        """
        INSERT INTO gold_companies (tenant_id, denumire, telefon_principal)
        VALUES ('acme', 'Scrisă de mână SRL', '+40721555555')
        """,
    )
    now = datetime(2126, 11, 18, 10, 0, tzinfo=UTC)  # whenever this test runs, the lead is due
    batch_id, result = plan(database, now=now)
    assert result.skipped == {Skip.NO_LAWFUL_BASIS: 1}
    fill(database, batch_id, now=now)
    run_sql(
        database,
        """
        UPDATE gold_lead_journey SET lawful_basis = 'existing_customer',
          lawful_basis_source = 'contract 7', lawful_basis_at = now(), next_action_at = now()
        """,
    )
    assert dispatch(database, now=now) == (1, 0)
    assert planned_numbers(database) == ["+40721555555"]


def test_a_preview_shows_no_number(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=3)
    batch_id, _ = plan(database)
    with database.connect() as conn:
        shown = selection.preview(conn, batch_id, limit=2)
    assert [row["position"] for row in shown] == [1, 2]
    assert {row["company"] for row in shown} < {"Firma 0", "Firma 1", "Firma 2"}
    assert "+40" not in str(shown)


# ── The checks really fail ────────────────────────────────────────────────────────────────────


@pytest.fixture
def checked(database: Engine) -> tuple[Engine, int]:
    """A sound plan of four leads on two phones with a quota of three."""
    with database.begin() as conn:
        a_world(conn, phones=2, quota=3)
        some_leads(conn, count=4)
    batch_id, result = plan(database)
    assert result.dispatched_to_whatsapp == 4
    return database, batch_id


def violations(database: Engine, batch_id: int) -> dict[str, int]:
    """How many leads of a batch break each rule, as far as any does."""
    with database.connect() as conn:
        said = {
            "opted_out": selection.planned_though_opted_out(conn, batch_id),
            "no_basis": selection.planned_without_basis(conn, batch_id),
            "twice": selection.planned_twice(conn, batch_id),
            "over_quota": selection.planned_over_quota(
                conn, batch_id, tenant_id="acme", day=NOON.date()
            ),
        }
    return {name: len(leads) for name, leads in said.items() if leads}


def test_a_sound_plan_passes_every_check_before_and_after_it_is_filled(
    checked: tuple[Engine, int],
):
    database, batch_id = checked
    assert violations(database, batch_id) == {}
    fill(database, batch_id)
    assert violations(database, batch_id) == {}


ONE = "WHERE lead_id = (SELECT lead_id FROM dispatch_plans ORDER BY position LIMIT 1)"


@pytest.mark.parametrize(
    ("tampering", "complaint"),
    [
        (f"UPDATE gold_lead_journey SET whatsapp_opted_out = true {ONE}", {"opted_out": 1}),
        ("UPDATE gold_lead_journey SET email_opted_out = true", {"opted_out": 4}),
        (f"UPDATE gold_lead_journey SET lawful_basis = NULL {ONE}", {"no_basis": 1}),
        (f"UPDATE gold_lead_journey SET lawful_basis = 'legitimate_interest' {ONE}",
         {"no_basis": 1}),
        ("""UPDATE tenants SET basis_policy = '{"EMAIL": ["consent"]}'""", {"no_basis": 4}),
        ("""INSERT INTO dispatch_plans
            SELECT batch_id, 1000, lead_id, recipient, sequence_id, step, template_id, medium,
                   phone_id, skip
            FROM dispatch_plans WHERE position = 1""", {"twice": 1}),
        ("UPDATE dispatch_plans SET phone_id = 'acme-01'", {"over_quota": 1}),
        ("UPDATE wa_phone_numbers SET daily_quota = 1",
         {"over_quota": 2}),
    ],
)  # fmt: skip
def test_each_check_fails_when_its_rule_is_broken(
    checked: tuple[Engine, int], tampering: str, complaint: dict[str, object]
):
    database, batch_id = checked
    run_sql(database, tampering)
    assert violations(database, batch_id) == complaint


def test_a_step_that_stands_in_the_outbox_already_fails_the_check(checked: tuple[Engine, int]):
    database, batch_id = checked
    fill(database, batch_id)
    run_sql(database, "UPDATE outbox_messages SET state = 'sent'")
    run_sql(database, "UPDATE gold_lead_journey SET open_message = false, next_action_at = now()")
    again, _ = plan(database, now=datetime(2126, 11, 18, 10, 0, tzinfo=UTC))
    assert violations(database, again)["twice"] == 4


def test_waiting_messages_count_in_the_quota_check(checked: tuple[Engine, int]):
    database, batch_id = checked
    run_sql(
        database,
        """
        INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id, recipient, due_at,
                                     planned_by)
        SELECT 'acme', 'WHATSAPP', 'initial', gen_random_uuid(), 'acme-02', '+4072999000' || n,
               now(), 'by hand'
        FROM generate_series(1, 2) n
        """,
    )
    assert violations(database, batch_id) == {"over_quota": 1}
