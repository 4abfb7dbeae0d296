"""The quota: the gate in Redis and the ledger in Postgres, each alone and both together."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
from redis import Redis
from sqlalchemy import Connection, Engine, text

from cerniq_pipeline.errors import QuotaUnknown
from cerniq_pipeline.store import quotas
from cerniq_pipeline.store.quotas import EPOCH_KEY, KEY_LIFE, Gate, QuotaGate
from cerniq_pipeline_tests.builders import NOON, a_world, rows

PHONE, OTHER = "acme-01", "acme-02"
TODAY = date(2026, 11, 18)
YESTERDAY = TODAY - timedelta(days=1)
MINUTE = timedelta(minutes=1)


def a_lead(n: int = 0) -> uuid.UUID:
    return uuid.UUID(int=n)


@pytest.fixture
def gate(redis: Redis) -> QuotaGate:
    """A gate that shows epoch 1."""
    gate = QuotaGate(redis)
    gate.show_epoch(1)
    return gate


def reserve(gate: QuotaGate, n: int, *, limit: int = 3, epoch: int = 1, day: date = TODAY) -> Gate:
    return gate.reserve(PHONE, day, a_lead(n), limit=limit, epoch=epoch)


# ── The gate ──────────────────────────────────────────────────────────────────────────────────


def test_the_gate_lets_exactly_its_limit_through(gate: QuotaGate):
    assert [reserve(gate, n) for n in range(5)] == [Gate.GRANTED] * 3 + [Gate.FULL] * 2
    assert gate.used(PHONE, TODAY) == 3


def test_granting_the_same_lead_again_costs_nothing(gate: QuotaGate):
    assert [reserve(gate, 1, limit=1) for _ in range(3)] == [Gate.GRANTED] * 3
    assert gate.used(PHONE, TODAY) == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_lets_nothing_through(gate: QuotaGate, limit: int):
    assert reserve(gate, 1, limit=limit) is Gate.FULL


def test_phones_and_days_are_counted_apart(gate: QuotaGate):
    assert reserve(gate, 1, limit=1) is Gate.GRANTED
    assert reserve(gate, 2, limit=1, day=YESTERDAY) is Gate.GRANTED
    assert gate.reserve(OTHER, TODAY, a_lead(3), limit=1, epoch=1) is Gate.GRANTED
    assert reserve(gate, 4, limit=1) is Gate.FULL


def test_a_released_place_is_free_again(gate: QuotaGate):
    assert reserve(gate, 1, limit=1) is Gate.GRANTED
    gate.release(PHONE, TODAY, a_lead(1))
    assert reserve(gate, 2, limit=1) is Gate.GRANTED


def test_a_committed_place_cannot_be_released(gate: QuotaGate):
    assert reserve(gate, 1, limit=1) is Gate.GRANTED
    gate.commit(PHONE, TODAY, a_lead(1))
    gate.release(PHONE, TODAY, a_lead(1))
    assert reserve(gate, 2, limit=1) is Gate.FULL


def test_many_at_once_never_pass_more_than_the_limit(gate: QuotaGate, redis: Redis):
    with ThreadPoolExecutor(8) as crowd:
        answers = Counter(crowd.map(lambda n: reserve(gate, n, limit=20), range(100)))
    assert answers == {Gate.GRANTED: 20, Gate.FULL: 80}
    assert gate.used(PHONE, TODAY) == 20


def test_a_key_does_not_live_forever(gate: QuotaGate, redis: Redis):
    reserve(gate, 1)
    (key,) = redis.keys("cerniq:quota:acme*")  # pyright: ignore[reportGeneralTypeIssues]
    assert 0 < redis.ttl(key) <= KEY_LIFE.total_seconds()  # pyright: ignore[reportOperatorIssue]
    gate.replace(PHONE, TODAY, {a_lead(1): "committed"})
    assert 0 < redis.ttl(key) <= KEY_LIFE.total_seconds()  # pyright: ignore[reportOperatorIssue]


def test_a_gate_of_another_epoch_is_not_believed(gate: QuotaGate, redis: Redis):
    assert reserve(gate, 1, epoch=2) is Gate.UNKNOWN
    redis.flushall()
    assert reserve(gate, 1) is Gate.UNKNOWN
    assert gate.epoch() is None
    assert gate.used(PHONE, TODAY) == 0


def test_a_redis_that_forgot_its_scripts_still_answers(gate: QuotaGate, redis: Redis):
    reserve(gate, 1)
    redis.script_flush()
    assert reserve(gate, 2) is Gate.GRANTED
    redis.script_flush()
    gate.release(PHONE, TODAY, a_lead(2))
    assert gate.used(PHONE, TODAY) == 1


def test_replacing_says_how_far_the_gate_had_drifted(gate: QuotaGate):
    for n in (1, 2, 3):
        reserve(gate, n)
    assert gate.replace(PHONE, TODAY, {a_lead(n): "committed" for n in (3, 4)}) == 3
    assert gate.replace(PHONE, TODAY, {a_lead(n): "committed" for n in (3, 4)}) == 0
    assert gate.used(PHONE, TODAY) == 2
    assert gate.replace(PHONE, TODAY, {}) == 2
    assert gate.used(PHONE, TODAY) == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda gate: reserve(gate, 1),
        lambda gate: gate.commit(PHONE, TODAY, a_lead()),
        lambda gate: gate.release(PHONE, TODAY, a_lead()),
        lambda gate: gate.used(PHONE, TODAY),
        lambda gate: gate.replace(PHONE, TODAY, {}),
        lambda gate: gate.show_epoch(2),
        lambda gate: gate.epoch(),
        lambda gate: gate.rate("send", most=1, window=MINUTE, now=NOON, token="x"),
    ],
)
def test_a_redis_that_cannot_be_asked_is_an_unknown_quota(ask: Callable[[QuotaGate], object]):
    nobody = Redis(host="127.0.0.1", port=1, socket_connect_timeout=1, retry=None)
    with pytest.raises(QuotaUnknown):
        ask(QuotaGate(nobody))
    nobody.close()


@pytest.mark.parametrize("wrong", ["text", "list"])
def test_a_key_of_the_wrong_kind_is_not_believed_until_it_is_replaced(
    gate: QuotaGate, redis: Redis, wrong: str
):
    key = f"cerniq:quota:{PHONE}:{TODAY}"
    if wrong == "text":
        redis.set(key, "200")
    else:
        redis.rpush(key, "1")
    assert reserve(gate, 1) is Gate.UNKNOWN
    gate.replace(PHONE, TODAY, {a_lead(7): "committed"})
    assert [reserve(gate, n, limit=2) for n in (1, 2)] == [Gate.GRANTED, Gate.FULL]


@pytest.mark.parametrize("wrong", ["text", "list"])
def test_an_epoch_that_is_no_number_is_no_epoch(gate: QuotaGate, redis: Redis, wrong: str):
    redis.delete(EPOCH_KEY)
    if wrong == "text":
        redis.set(EPOCH_KEY, "restored")
    else:
        redis.rpush(EPOCH_KEY, "1")
    assert gate.epoch() is None
    assert reserve(gate, 1) is Gate.UNKNOWN


def test_committing_a_contact_that_was_forgotten_does_not_bring_back_half_a_day(
    gate: QuotaGate, redis: Redis
):
    reserve(gate, 1)
    redis.flushall()
    gate.commit(PHONE, TODAY, a_lead(1))
    assert gate.used(PHONE, TODAY) == 0


# ── The rate ──────────────────────────────────────────────────────────────────────────────────


def test_a_window_has_so_many_places_and_says_when_the_next_is_free(gate: QuotaGate):
    def take(after: float, token: str) -> datetime | None:
        now = NOON + timedelta(seconds=after)
        return gate.rate("send:acme", most=3, window=MINUTE, now=now, token=token)

    assert [take(10 * n, str(n)) for n in range(3)] == [None, None, None]
    assert take(30, "3") == NOON + MINUTE
    assert take(59.9, "3") == NOON + MINUTE
    assert take(60, "3") is None  # the first place is a minute old
    assert take(60, "4") == NOON + timedelta(seconds=70)


def test_rates_of_different_names_do_not_share_places(gate: QuotaGate):
    for name in ("send:acme", "send:beta"):
        assert gate.rate(name, most=1, window=MINUTE, now=NOON, token="1") is None
    assert gate.rate("send:acme", most=1, window=MINUTE, now=NOON, token="2") is not None


# ── The ledger ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def ledger(database: Engine) -> Engine:
    with database.begin() as conn:
        a_world(conn, phones=2)
        for n in range(1, 6):
            _message(conn, n)
    return database


def _message(conn: Connection, n: int) -> None:
    conn.execute(
        text("""
            INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id, recipient,
                                         due_at, planned_by)
            VALUES ('acme', 'WHATSAPP', 'initial', :lead, :phone, '+40721000000', :now, 'test')
        """),
        {"lead": a_lead(n), "phone": PHONE, "now": NOON},
    )


def book(database: Engine, n: int, *, day: date = TODAY, at: datetime = NOON) -> None:
    """Reserve for lead `n`, whose message has the same number."""
    with database.begin() as conn:
        quotas.reserve(conn, phone_id=PHONE, lead_id=a_lead(n), day=day, message_id=n, now=at)


def settle(database: Engine, n: int, state: str) -> date | None:
    with database.begin() as conn:
        return quotas.settle(conn, message_id=n, state=state, now=NOON)


def used(database: Engine, day: date = TODAY) -> int:
    with database.connect() as conn:
        return quotas.used(conn, PHONE, day)


def test_what_is_reserved_or_committed_counts_and_what_is_released_does_not(ledger: Engine):
    for n in (1, 2, 3):
        book(ledger, n)
    assert settle(ledger, 1, "committed") == TODAY
    assert settle(ledger, 2, "released") == TODAY
    assert used(ledger) == 2
    with ledger.connect() as conn:
        assert quotas.counted_leads(conn, PHONE, TODAY) == {
            a_lead(1): "committed",
            a_lead(3): "reserved",
        }


def test_a_contact_counts_once_a_day_per_phone_and_lead(ledger: Engine):
    book(ledger, 1)
    book(ledger, 1)
    assert used(ledger) == 1


def test_a_released_contact_can_be_reserved_again_on_another_day(ledger: Engine):
    book(ledger, 1, day=YESTERDAY)
    settle(ledger, 1, "released")
    book(ledger, 1)
    assert (used(ledger, YESTERDAY), used(ledger)) == (0, 1)


@pytest.mark.parametrize("state", ["reserved", "committed"])
def test_a_contact_keeps_its_day_and_counts_on_every_other_one_too(ledger: Engine, state: str):
    book(ledger, 1, day=YESTERDAY)
    if state == "committed":
        settle(ledger, 1, state)
    book(ledger, 1)
    assert (used(ledger, YESTERDAY), used(ledger)) == (1, 1)


def test_what_is_settled_stays_settled(ledger: Engine):
    book(ledger, 1)
    assert settle(ledger, 1, "committed") == TODAY
    assert settle(ledger, 1, "released") is None
    assert used(ledger) == 1


def test_a_message_that_reserved_nothing_settles_nothing(ledger: Engine):
    assert settle(ledger, 1, "committed") is None


# ── Both together ─────────────────────────────────────────────────────────────────────────────


def test_a_lost_gate_is_filled_from_the_ledger_under_a_new_epoch(ledger: Engine, redis: Redis):
    gate = QuotaGate(redis)
    for n in (1, 2, 3):
        book(ledger, n)
    settle(ledger, 2, "released")
    book(ledger, 4, day=YESTERDAY)
    with ledger.begin() as conn:
        epoch = quotas.rebuild(conn, gate, now=NOON)
    assert epoch == 2 == gate.epoch()
    assert (gate.used(PHONE, TODAY), gate.used(PHONE, YESTERDAY)) == (2, 1)
    assert gate.reserve(PHONE, TODAY, a_lead(9), limit=2, epoch=epoch) is Gate.FULL


def test_a_gate_that_shows_the_right_epoch_is_left_alone(ledger: Engine, redis: Redis):
    gate = QuotaGate(redis)
    gate.show_epoch(1)
    reserve(gate, 7)
    with ledger.begin() as conn:
        assert quotas.rebuild(conn, gate, now=NOON) == 1
    assert gate.used(PHONE, TODAY) == 1


def test_a_rebuild_that_was_rolled_back_is_done_again(ledger: Engine, redis: Redis):
    gate = QuotaGate(redis)
    book(ledger, 1)
    with ledger.connect() as conn:
        quotas.rebuild(conn, gate, now=NOON)
        conn.rollback()
        assert reserve(gate, 2, epoch=quotas.epoch(conn)) is Gate.UNKNOWN
    with ledger.begin() as conn:
        epoch = quotas.rebuild(conn, gate, now=NOON)
    assert reserve(gate, 2, epoch=epoch) is Gate.GRANTED


def test_two_rebuilds_at_once_end_with_one_epoch(ledger: Engine, redis: Redis):
    gate = QuotaGate(redis)
    book(ledger, 1)

    def rebuild(_: int) -> int:
        with ledger.begin() as conn:
            return quotas.rebuild(conn, gate, now=NOON)

    with ThreadPoolExecutor(4) as crowd:
        assert set(crowd.map(rebuild, range(4))) == {2}
    assert gate.epoch() == 2


def test_the_days_of_a_rebuild_cover_a_tenant_ahead_of_utc(ledger: Engine, redis: Redis):
    """At 22:30 UTC it is already tomorrow in Bucharest, and still today in Lisbon."""
    gate = QuotaGate(redis)
    late = datetime(2026, 11, 18, 22, 30, tzinfo=UTC)
    book(ledger, 1, day=TODAY)
    book(ledger, 2, day=TODAY + timedelta(days=1))
    with ledger.begin() as conn:
        quotas.rebuild(conn, gate, now=late)
    assert gate.used(PHONE, TODAY) == gate.used(PHONE, TODAY + timedelta(days=1)) == 1


def test_closing_writes_each_ended_day_once_with_its_limit(ledger: Engine):
    with ledger.begin() as conn:
        conn.execute(
            text("UPDATE wa_phone_numbers SET warm_up_from = :day WHERE id = :phone"),
            {"day": YESTERDAY - timedelta(days=1), "phone": PHONE},
        )
    book(ledger, 1, day=YESTERDAY)
    book(ledger, 2, day=YESTERDAY)
    settle(ledger, 2, "released")
    book(ledger, 3, day=TODAY)
    with ledger.begin() as conn:
        assert quotas.close_days(conn, tenant_id="acme", before=TODAY, now=NOON) == 1
        assert quotas.close_days(conn, tenant_id="acme", before=TODAY, now=NOON) == 0
        assert quotas.close_days(conn, tenant_id="beta", before=TODAY, now=NOON) == 0
    assert rows(ledger, "SELECT phone_id, day, used, daily_limit FROM quota_days") == [
        {"phone_id": PHONE, "day": YESTERDAY, "used": 1, "daily_limit": 35}
    ]
