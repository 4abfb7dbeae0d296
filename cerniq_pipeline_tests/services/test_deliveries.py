"""Statuses in any order, early or twice: a message ends where the farthest of them says."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial, reduce
from itertools import permutations
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Connection, Engine, event, text

from cerniq_pipeline.domain.deliveries import Delivery, Standing, Told, stands_after
from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt, State
from cerniq_pipeline.providers.timelinesai.channel import DIALECTS, TimelinesAI, open_client
from cerniq_pipeline.services import dead_letters, reconcile, recording
from cerniq_pipeline.services.deliveries import note_failure, take_in
from cerniq_pipeline.services.dispatch import Request
from cerniq_pipeline.services.leasing import acquire, this_process
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import deliveries
from cerniq_pipeline.store.quotas import QuotaGate
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    ManualClock,
    Office,
    a_world,
    always_open,
    beginning,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
    wait_until_somebody_waits_for_a_lock,
)

TOLD = NOON - timedelta(minutes=1)
SECONDS = {"sent": 1, "failed": 2, "delivered": 3, "read": 4}
ROUNDS = 60
NO_SERVER = "http://127.0.0.1:9"
"""Nothing is sent here: what a provider would answer is handed to the records directly."""


def an_office(
    database: Engine, redis: Redis, *, leads: int = 1, steps: tuple[str, ...] = (FIRST,)
) -> Office:
    """One phone at work at every hour, without a provider to call."""
    clock = ManualClock(NOON)
    with database.begin() as conn:
        world = a_world(
            conn, steps=steps, quota=1000, gap_least_seconds=1, **always_open(clock.now())
        )
        some_leads(conn, count=leads)
    assert dispatch(database, request=Request(batch_size=leads)) == (leads, 0)
    desk = Desk(
        begin=database.begin,
        gate=QuotaGate(redis),
        channels=dict.fromkeys(
            ("timelinesai", "meta"), TimelinesAI(open_client(NO_SERVER, "x"), DIALECTS["public"]())
        ),
        histories={},
        clock=clock,
        luck=lambda: 0.0,
        secret=SECRET,
        sends_per_minute=10_000,
    )
    lease = acquire(database.begin, world.phones[0], this_process("test"), now=NOON)
    assert lease is not None
    return Office(database, desk, clock, lease)


def with_an_approved_form(database: Engine) -> None:
    """The phone is with Meta, which has a form of the text for outside the window."""
    run_sql(
        database,
        """
        UPDATE wa_phone_numbers SET provider = 'meta', timelinesai_account_id = NULL,
               meta_phone_number_id = '1065'
        """,
    )
    run_sql(database, "UPDATE templates SET approved_name = 'intro_ro'")


def settle(office: Office, message: OutboxMessage, external_id: str) -> None:
    """Record that the provider took a message, under this id."""
    taken = recording.record(office.desk, message, Receipt(external_id, "chat"), who="test")
    assert taken is State.SENT


def sent(office: Office, external_id: str = "m1") -> OutboxMessage:
    """The next message, taken by the provider."""
    message = office.claimed()
    settle(office, message, external_id)
    office.wait(timedelta(minutes=1))
    return message


def word(
    status: str,
    external_id: str = "m1",
    *,
    channel: str = "WHATSAPP",
    after: float | None = None,
    **changes: Any,
) -> Told:
    """A provider's word about a message, so many seconds into the minute before noon."""
    seconds = SECONDS.get(status, 0) if after is None else after
    failed = status == "failed"
    delivery = Delivery(
        external_id=external_id,
        status=status,
        at=TOLD + timedelta(seconds=seconds),
        code=131026 if failed else None,
        title="Undeliverable" if failed else "",
        meaning="INVALID_RECIPIENT_NUMBER" if failed else None,
        callback=None,
    )
    return Told(channel, replace(delivery, **changes))


def tell(office: Office, *told: Told) -> dict[str, int]:
    """Take words in as one batch; returns what became of them."""
    with office.database.begin() as conn:
        return dict(take_in(conn, told, now=office.clock.now()))


def the_log(office: Office) -> dict[str, object]:
    return the_row(
        office.database,
        """
        SELECT status, status_at, delivered_at, read_at, failed_at, error_code, error_title
        FROM gold_communication_log
        """,
    )


def at(status: str) -> object:
    return TOLD + timedelta(seconds=SECONDS[status])


# ── Forward ───────────────────────────────────────────────────────────────────────────────────


def test_each_status_brings_a_message_forward_with_its_time(database: Engine, redis: Redis):
    office = an_office(database, redis)
    sent(office)
    none = dict.fromkeys(("delivered_at", "read_at", "failed_at", "error_code", "error_title"))

    assert tell(office, word("sent")) == {"stale": 1}
    assert the_log(office) == none | {"status": "SENT", "status_at": at("sent")}
    assert tell(office, word("delivered")) == {"moved": 1}
    arrived = none | {"delivered_at": at("delivered")}
    assert the_log(office) == arrived | {"status": "DELIVERED", "status_at": at("delivered")}
    assert tell(office, word("read")) == {"moved": 1}
    seen = arrived | {"read_at": at("read"), "status": "READ", "status_at": at("read")}
    assert the_log(office) == seen
    assert tell(office, word("delivered"), word("sent"), word("failed")) == {"stale": 3}
    assert the_log(office) == seen


def test_who_read_a_message_got_it(database: Engine, redis: Redis):
    office = an_office(database, redis)
    sent(office)
    assert tell(office, word("read")) == {"moved": 1}
    assert the_log(office)["delivered_at"] == at("read")
    assert tell(office, word("delivered")) == {"stale": 1}
    log = the_log(office)
    assert (log["delivered_at"], log["read_at"], log["status_at"]) == (
        at("delivered"),
        at("read"),
        at("read"),
    )


def test_of_two_times_the_earlier_one_counts_and_none_lies_ahead_of_us(
    database: Engine, redis: Redis
):
    office = an_office(database, redis)
    sent(office)
    with database.begin() as conn:
        take_in(conn, [word("delivered", after=9999)], now=NOON)
    assert the_log(office)["delivered_at"] == NOON
    tell(office, word("delivered", after=5), word("delivered", after=7))
    assert the_log(office)["status_at"] == TOLD + timedelta(seconds=5)


def test_a_word_that_we_do_not_have_changes_nothing(database: Engine, redis: Redis):
    office = an_office(database, redis)
    sent(office)
    before = the_log(office)
    assert tell(office, word("unknown"), word("unknown", "nobody's")) == {"unknown": 2}
    assert the_log(office) == before
    assert rows(database, "SELECT 1 FROM early_deliveries") == []


def test_of_several_words_in_a_batch_the_farthest_stands(database: Engine, redis: Redis):
    office = an_office(database, redis)
    sent(office)
    told = [word("read"), word("sent"), word("failed"), word("delivered"), word("read")]
    assert tell(office, *told) == {"moved": 1, "stale": 4}
    assert the_log(office)["status"] == "READ"
    assert rows(database, "SELECT 1 FROM dead_letters") == []


def test_what_was_typed_on_a_handset_moves_too_and_fails_without_consequences(
    database: Engine, redis: Redis
):
    office = an_office(database, redis, steps=(FIRST, SECOND))
    sent(office)
    log_of = "SELECT status, error_title FROM gold_communication_log WHERE job_id IS NULL"
    run_sql(
        database,
        """
        INSERT INTO gold_communication_log
          (tenant_id, lead_journey_id, channel, direction, external_message_id, status)
        SELECT tenant_id, lead_journey_id, channel, 'OUTBOUND', 'typed', 'SENT'
        FROM gold_communication_log
        """,
    )
    assert tell(office, word("failed", "typed")) == {"failed": 1}
    assert the_row(database, log_of) == {"status": "FAILED", "error_title": "Undeliverable"}
    assert rows(database, "SELECT 1 FROM dead_letters") == []
    assert states(database) == {"sent": 1, "planned": 1}
    assert tell(office, word("read", "typed")) == {"moved": 1}
    assert the_row(database, log_of) == {"status": "READ", "error_title": None}
    assert note_failure(office.desk, word("failed", "typed").delivery) == "known"


def test_the_same_id_on_another_channel_or_in_the_other_direction_is_another_message(
    database: Engine, redis: Redis
):
    office = an_office(database, redis)
    sent(office)
    run_sql(
        database,
        """
        INSERT INTO gold_communication_log
          (tenant_id, lead_journey_id, channel, direction, external_message_id, status)
        SELECT tenant_id, lead_journey_id, v.* FROM gold_communication_log,
          (VALUES ('EMAIL', 'OUTBOUND', 'm1', 'SENT'), ('WHATSAPP', 'INBOUND', 'in', 'RECEIVED')) v
        """,
    )
    assert tell(office, word("read", channel="EMAIL"), word("read", "in")) == {
        "moved": 1,
        "early": 1,
    }
    log = rows(database, "SELECT channel, status FROM gold_communication_log ORDER BY 1, 2")
    assert [tuple(row.values()) for row in log] == [
        ("EMAIL", "READ"),
        ("WHATSAPP", "RECEIVED"),
        ("WHATSAPP", "SENT"),
    ]


# ── Failures ──────────────────────────────────────────────────────────────────────────────────


def test_a_failure_carries_code_and_title_and_has_its_consequences_once(
    database: Engine, redis: Redis
):
    office = an_office(database, redis, steps=(FIRST, SECOND))
    sent(office)
    assert tell(office, word("failed"), word("sent"), word("failed")) == {"failed": 1, "stale": 2}
    assert tell(office, word("failed")) == {"stale": 1}
    log = the_log(office)
    assert (log["status"], log["status_at"], log["failed_at"]) == (
        "FAILED",
        at("failed"),
        at("failed"),
    )
    assert (log["error_code"], log["error_title"]) == ("131026", "Undeliverable")
    letter = the_row(database, "SELECT code, detail FROM dead_letters")
    assert letter == {"code": "INVALID_RECIPIENT_NUMBER", "detail": "131026: Undeliverable"}
    assert the_row(database, "SELECT state FROM quota_ledger")["state"] == "committed"
    assert states(database) == {"sent": 1, "cancelled": 1}


def test_a_failure_with_a_code_says_more_than_one_without(database: Engine, redis: Redis):
    office = an_office(database, redis, leads=2)
    vague = {"code": None, "title": "it failed", "meaning": None, "after": 1}
    for external_id, told in (("a", ({}, vague)), ("b", (vague, {}))):
        sent(office, external_id)
        for changes in told:
            tell(office, word("failed", external_id, **changes))
    log = rows(database, "SELECT error_code, error_title, failed_at FROM gold_communication_log")
    assert log == [
        {"error_code": "131026", "error_title": "Undeliverable", "failed_at": at("failed")}
    ] * len(log)


def test_a_delivery_proves_a_failure_wrong(database: Engine, redis: Redis):
    office = an_office(database, redis)
    sent(office)
    assert tell(office, word("failed")) == {"failed": 1}
    assert tell(office, word("delivered")) == {"moved": 1}
    log = the_log(office)
    assert (log["status"], log["failed_at"], log["error_code"], log["error_title"]) == (
        "DELIVERED",
        None,
        None,
        None,
    )
    letter = the_row(database, "SELECT resolution, resolved_by FROM dead_letters")
    assert letter == {"resolution": "delivered after all", "resolved_by": "provider"}
    assert tell(office, word("failed")) == {"stale": 1}


def test_what_a_provider_took_keeps_its_place_in_the_day_whatever_it_says_later(
    database: Engine, redis: Redis
):
    office = an_office(database, redis, leads=3)
    run_sql(database, "UPDATE wa_phone_numbers SET daily_quota = 2")
    sent(office, "m1")
    tell(office, word("failed"))
    sent(office, "m2")
    assert not isinstance(office.claim(), OutboxMessage)
    tell(office, word("delivered"), word("failed", "m2"))
    assert reconcile.compare_gate(office.desk) == 0
    assert not isinstance(office.claim(), OutboxMessage)
    assert states(database) == {"sent": 2, "deferred": 1}
    counted = "SELECT count(*) AS n FROM quota_ledger WHERE state = 'committed'"
    assert the_row(database, counted) == {"n": 2}


def test_a_failed_message_that_is_retried_on_another_day_counts_on_both(
    database: Engine, redis: Redis
):
    office = an_office(database, redis)
    sent(office)
    tell(office, word("failed"))
    letter = the_row(database, "SELECT id FROM dead_letters")["id"]
    office.wait(timedelta(days=1))
    now = office.clock.now()
    retried = dead_letters.retry(
        database.begin,
        [letter],  # pyright: ignore[reportArgumentType]
        by="ana",
        secret=SECRET,
        now=now,
    )
    assert [answer.done for answer in retried] == [True]
    sent(office, "m2")
    days = rows(database, "SELECT day, state FROM quota_ledger ORDER BY day")
    assert days == [
        {"day": NOON.date(), "state": "committed"},
        {"day": now.date(), "state": "committed"},
    ]


def test_what_a_person_made_of_a_failure_stays_when_it_was_none(database: Engine, redis: Redis):
    office = an_office(database, redis)
    sent(office)
    tell(office, word("failed"))
    letter = the_row(database, "SELECT id FROM dead_letters")["id"]
    dead_letters.drop(database.begin, [letter], by="ana", reason="enough", now=NOON)  # pyright: ignore[reportArgumentType]
    tell(office, word("read"))
    settled = the_row(database, "SELECT resolution FROM dead_letters")
    assert settled == {"resolution": "dropped: enough"}


def test_nothing_goes_in_the_place_of_a_message_that_arrived(database: Engine, redis: Redis):
    office = an_office(database, redis, steps=(FIRST, SECOND))
    with_an_approved_form(database)
    sent(office)
    closed = {"meaning": "WINDOW_CLOSED", "code": 131047}
    assert tell(office, word("failed", **closed)) == {"failed": 1}
    assert states(database) == {"sent": 1, "planned": 2}
    assert tell(office, word("read")) == {"moved": 1}
    waiting = the_row(database, "SELECT step FROM outbox_messages WHERE state = 'planned'")
    assert waiting == {"step": 2}
    assert the_row(database, "SELECT open_message FROM gold_lead_journey")["open_message"] is True
    assert rows(database, "SELECT 1 FROM outbox_changes WHERE to_state = 'cancelled'") != []


def test_where_no_other_form_can_go_a_closed_window_is_a_dead_letter(
    database: Engine, redis: Redis
):
    office = an_office(database, redis)
    run_sql(database, "UPDATE templates SET approved_name = 'intro_ro'")
    sent(office)
    tell(office, word("failed", meaning="WINDOW_CLOSED", code=131047))
    assert states(database) == {"sent": 1}
    assert the_row(database, "SELECT code FROM dead_letters") == {"code": "WINDOW_CLOSED"}


def test_what_went_out_in_its_place_meanwhile_counts_once(database: Engine, redis: Redis):
    office = an_office(database, redis)
    with_an_approved_form(database)
    sent(office)
    tell(office, word("failed", meaning="WINDOW_CLOSED"))
    sent(office, "m2")
    assert tell(office, word("delivered")) == {"moved": 1}
    assert states(database) == {"sent": 2}
    assert the_row(database, "SELECT state FROM quota_ledger") == {"state": "committed"}


def test_a_single_failure_is_told_by_its_own_door(database: Engine, redis: Redis):
    office = an_office(database, redis, leads=2)
    sent(office)
    failed = word("failed").delivery
    assert note_failure(office.desk, failed) == "dead letter"
    assert note_failure(office.desk, failed) == "known"
    assert note_failure(office.desk, word("failed", "m2").delivery) == "unknown"
    sent(office, "m2")
    assert len(rows(database, "SELECT 1 FROM dead_letters")) == 2


# ── Any order ─────────────────────────────────────────────────────────────────────────────────


def test_seven_hundred_and_twenty_orders_of_words_end_in_one_standing():
    told = [word(status).delivery for status in SECONDS]
    told += [word("failed", after=1).delivery, word("delivered", after=8).delivery]
    start = Standing("SENT")
    assert len({reduce(stands_after, order, start) for order in permutations(told)}) == 1
    undelivered = [one for one in told if one.status in ("sent", "failed")] * 2
    assert len({reduce(stands_after, order, start) for order in permutations(undelivered)}) == 1


STANDING = """
    SELECT l.status, l.status_at, l.delivered_at, l.read_at, l.failed_at, l.error_code,
           l.error_title, q.state AS quota,
           (SELECT count(*) FROM dead_letters d WHERE d.message_id = o.id AND d.resolved_at IS NULL)
             AS open_letters
    FROM gold_communication_log l JOIN outbox_messages o ON o.id = l.job_id
    JOIN quota_ledger q ON q.lead_id = o.lead_id
"""


@pytest.mark.parametrize(
    ("told", "status", "quota", "letters"),
    [
        (("sent", "delivered", "read", "failed"), "READ", "committed", 0),
        (("delivered", "delivered", "failed", "failed"), "DELIVERED", "committed", 0),
        (("sent", "failed", "failed"), "FAILED", "committed", 1),
    ],
)
def test_a_message_ends_the_same_whatever_is_told_first_and_whenever_we_hear_that_it_was_taken(
    database: Engine,
    redis: Redis,
    told: tuple[str, ...],
    status: str,
    quota: str,
    letters: int,
):
    orders = sorted(set(permutations((*told, "taken"))))
    office = an_office(database, redis, leads=len(orders))
    for n, order in enumerate(orders):
        message = office.claimed()
        for step in order:
            if step == "taken":
                settle(office, message, f"m{n}")
            else:
                tell(office, word(step, f"m{n}"))
        office.wait(timedelta(minutes=1))
    ends = rows(database, STANDING)
    assert len(ends) == len(orders)
    assert ends == [ends[0]] * len(ends)
    assert (ends[0]["status"], ends[0]["quota"], ends[0]["open_letters"]) == (
        status,
        quota,
        letters,
    )
    assert rows(database, "SELECT 1 FROM early_deliveries") == []


# ── Early ─────────────────────────────────────────────────────────────────────────────────────


def test_what_is_told_too_early_waits_for_its_message(database: Engine, redis: Redis):
    office = an_office(database, redis)
    message = office.claimed()
    told = [word("delivered"), word("read"), word("read", after=9)]
    assert tell(office, *told) == {"early": 3}
    assert tell(office, word("read", after=5), word("delivered", after=2)) == {"early": 2}
    assert len(rows(database, "SELECT 1 FROM early_deliveries")) == 2
    settle(office, message, "m1")
    log = the_log(office)
    assert (log["status"], log["read_at"]) == ("READ", at("read"))
    assert log["delivered_at"] == TOLD + timedelta(seconds=2)
    assert rows(database, "SELECT 1 FROM early_deliveries") == []


def test_an_early_failure_has_its_consequences_when_its_message_is_settled(
    database: Engine, redis: Redis
):
    office = an_office(database, redis, steps=(FIRST, SECOND))
    message = office.claimed()
    assert tell(office, word("failed")) == {"early": 1}
    settle(office, message, "m1")
    log = the_log(office)
    assert (log["status"], log["error_code"]) == ("FAILED", "131026")
    assert len(rows(database, "SELECT 1 FROM dead_letters")) == 1
    assert states(database) == {"sent": 1, "cancelled": 1}  # the step after it, just planned
    lead = the_row(database, "SELECT open_message, hold_reason FROM gold_lead_journey")
    assert lead == {"open_message": False, "hold_reason": "failed"}


def test_a_code_that_is_too_large_to_be_kept_is_no_reason_to_lose_the_failure(
    database: Engine, redis: Redis
):
    office = an_office(database, redis)
    message = office.claimed()
    assert tell(office, word("failed", code=10**14)) == {"early": 1}
    settle(office, message, "m1")
    assert the_log(office)["error_code"] == "INVALID_RECIPIENT_NUMBER"


# ── At the same time ──────────────────────────────────────────────────────────────────────────


def test_a_word_waits_for_a_message_that_is_just_being_settled(database: Engine, redis: Redis):
    office = an_office(database, redis)
    message = office.claimed()
    with ThreadPoolExecutor(1) as pool:
        telling: list[Future[dict[str, int]]] = []

        def before_commit() -> None:
            if not telling:
                telling.append(pool.submit(tell, office, word("read")))
                wait_until_somebody_waits_for_a_lock(database)

        office.desk = replace(office.desk, begin=beginning(database, before_commit))
        settle(office, message, "m1")
        assert telling[0].result() == {"moved": 1}
    assert the_log(office)["status"] == "READ"
    assert rows(database, "SELECT 1 FROM early_deliveries") == []


def test_a_settlement_waits_for_a_word_that_is_just_being_kept(database: Engine, redis: Redis):
    office = an_office(database, redis)
    message = office.claimed()
    with ThreadPoolExecutor(1) as pool:
        with database.begin() as conn:
            assert take_in(conn, [word("read")], now=NOON) == {"early": 1}
            settling = pool.submit(settle, office, message, "m1")
            wait_until_somebody_waits_for_a_lock(database)
        settling.result()
    assert the_log(office)["status"] == "READ"
    assert rows(database, "SELECT 1 FROM early_deliveries") == []


def test_no_word_is_lost_when_a_message_is_settled_in_the_same_moment(
    database: Engine, redis: Redis
):
    office = an_office(database, redis, leads=ROUNDS)
    start = threading.Barrier(3)

    def at_once(work: Callable[[], object]) -> object:
        start.wait()
        return work()

    with ThreadPoolExecutor(3) as pool:
        for n in range(ROUNDS):
            message, id = office.claimed(), f"m{n}"
            others = [word("delivered", f"x{n}"), word("sent", id)]
            done = [
                pool.submit(at_once, partial(settle, office, message, id)),
                pool.submit(at_once, partial(tell, office, word("read", id), *others)),
                pool.submit(at_once, partial(tell, office, word("failed", id), *others[::-1])),
            ]
            for future in done:
                future.result()
            office.wait(timedelta(minutes=1))
    ends = rows(database, STANDING)
    assert len(ends) == ROUNDS
    assert {(row["status"], row["quota"], row["open_letters"]) for row in ends} == {
        ("READ", "committed", 0)
    }
    kept = rows(database, "SELECT DISTINCT left(external_id, 1) AS of FROM early_deliveries")
    assert kept == [{"of": "x"}]


def test_many_who_tell_everything_in_any_order_at_once_never_stand_in_each_others_way(
    database: Engine, redis: Redis
):
    messages = 20
    office = an_office(database, redis, leads=messages, steps=(FIRST, SECOND))
    for n in range(messages):
        sent(office, f"m{n}")
    # The second step of each lead is settled while words about both steps come.
    run_sql(database, "UPDATE outbox_messages SET due_at = :now WHERE step = 2", now=NOON)
    ids = [f"m{n}" for n in range(2 * messages)]
    told = [word(status, id) for id in ids for status in ("failed", "read", "delivered")]

    def everything(seed: int) -> None:
        luck = random.Random(seed)
        shuffled = luck.sample(told, len(told))
        for begin in range(0, len(shuffled), 30):
            tell(office, *shuffled[begin : begin + 30])

    def the_rest() -> None:
        for n in range(messages, 2 * messages):
            message = office.claim()
            if isinstance(message, OutboxMessage):  # not cancelled by a failure of the first
                settle(office, message, f"m{n}")
            office.wait(timedelta(minutes=1))

    with ThreadPoolExecutor(4) as pool:
        for future in [
            *(pool.submit(everything, seed) for seed in range(3)),
            pool.submit(the_rest),
        ]:
            future.result()
    tell(office, *told)
    ends = rows(database, STANDING)
    assert {(row["status"], row["open_letters"]) for row in ends} == {("READ", 0)}
    assert {row["quota"] for row in ends} == {"committed"}


def test_a_delivery_waits_for_a_failure_that_is_just_being_noted(database: Engine, redis: Redis):
    office = an_office(database, redis)
    sent(office)
    with ThreadPoolExecutor(1) as pool:
        with database.begin() as conn:
            assert take_in(conn, [word("failed")], now=NOON) == {"failed": 1}
            telling = pool.submit(tell, office, word("delivered"))
            wait_until_somebody_waits_for_a_lock(database)
        assert telling.result() == {"moved": 1}
    assert the_log(office)["status"] == "DELIVERED"
    letter = the_row(database, "SELECT resolution FROM dead_letters")
    assert letter == {"resolution": "delivered after all"}


def test_who_waits_for_the_lead_of_a_failed_message_holds_nothing_that_others_need(
    database: Engine, redis: Redis
):
    office = an_office(database, redis, steps=(FIRST, SECOND))
    sent(office)
    with ThreadPoolExecutor(1) as pool:
        with database.begin() as conn:
            conn.execute(text("SELECT 1 FROM gold_lead_journey FOR UPDATE"))
            telling = pool.submit(tell, office, word("failed"), word("read", "m2"))
            wait_until_somebody_waits_for_a_lock(database)
            # As the claim and the settlement of this lead's next message do.
            for table in ("outbox_messages", "gold_communication_log", "quota_ledger"):
                conn.execute(text(f"SELECT 1 FROM {table} FOR UPDATE NOWAIT"))
            deliveries.lock_words(conn, [("WHATSAPP", "m2")])
        assert telling.result() == {"failed": 1, "early": 1}


def test_a_message_that_fails_while_its_delivery_is_looked_at_is_looked_at_again(
    database: Engine, redis: Redis, monkeypatch: pytest.MonkeyPatch
):
    office = an_office(database, redis)
    sent(office)
    real = deliveries.find
    others = [word("failed")]

    def find(conn: Connection, keys: Any) -> Any:
        found = real(conn, keys)
        if others:
            tell(office, others.pop())
        return found

    monkeypatch.setattr(deliveries, "find", find)
    assert tell(office, word("delivered")) == {"moved": 1}
    assert the_row(database, "SELECT resolution FROM dead_letters") == {
        "resolution": "delivered after all"
    }


# ── Cost ──────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def statements(database: Engine) -> Iterator[list[str]]:
    """Every statement that is sent meanwhile."""
    seen: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    event.listen(database, "before_cursor_execute", note)
    yield seen
    event.remove(database, "before_cursor_execute", note)


def logged(conn: Connection, ids: Sequence[str]) -> None:
    conn.execute(
        text("""
            INSERT INTO gold_communication_log
              (tenant_id, channel, direction, external_message_id, status)
            SELECT 'acme', 'WHATSAPP', 'OUTBOUND', id, 'SENT' FROM unnest(CAST(:ids AS text[])) id
        """),
        {"ids": ids},
    )


def test_five_hundred_words_cost_a_handful_of_statements(database: Engine):
    ids = [f"m{n}" for n in range(400)]
    with database.begin() as conn:
        a_world(conn)
        logged(conn, ids)
    told = [word("delivered", id) for id in ids] + [word("read", f"x{n}") for n in range(100)]
    with statements(database) as seen, database.begin() as conn:
        counts = take_in(conn, told, now=NOON)
    assert counts == {"moved": 400, "early": 100}
    assert len(seen) <= 8, seen
    log = rows(database, "SELECT status, count(*) AS n FROM gold_communication_log GROUP BY 1")
    assert log == [{"status": "DELIVERED", "n": 400}]
