"""What was said of messages: found by any tenant's index, kept once, and locked in one order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import Connection, Engine, text

from cerniq_pipeline.domain.deliveries import Delivery, Standing, Told
from cerniq_pipeline.store import deliveries
from cerniq_pipeline_tests.builders import NOON, a_world, rows
from cerniq_pipeline_tests.builders import wait_until_somebody_waits_for_a_lock as somebody_waits

READ = Told("WHATSAPP", Delivery("m1", "read", NOON, None, "", None, None))
FAILED = Told("WHATSAPP", Delivery("m1", "failed", NOON, 131026, "No", "REFUSED", None))


def at(told: Told, minutes: int, **changes: object) -> Told:
    """The same word, told so many minutes later."""
    when = {"at": NOON + timedelta(minutes=minutes)}
    return replace(told, delivery=replace(told.delivery, **when, **changes))  # pyright: ignore[reportArgumentType]


def keep(database: Engine, *told: Told) -> list[dict[str, object]]:
    """Keep words as too early; returns all that is kept."""
    with database.begin() as conn:
        deliveries.keep_early(conn, told, now=NOON)
    return rows(database, "SELECT status, at, code FROM early_deliveries ORDER BY status")


def log(conn: Connection, tenant_id: str, ids: Sequence[str]) -> None:
    conn.execute(
        text("""
            INSERT INTO gold_communication_log
              (tenant_id, channel, direction, external_message_id, status)
            SELECT :tenant, 'WHATSAPP', 'OUTBOUND', id, 'SENT'
            FROM unnest(CAST(:ids AS text[])) id
        """),
        {"tenant": tenant_id, "ids": list(ids)},
    )


def test_a_message_is_found_whosever_it_is_and_only_on_its_channel(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        conn.execute(text("INSERT INTO tenants (id, name) VALUES ('other', 'other')"))
        log(conn, "acme", ["a"])
        log(conn, "other", ["b"])
        found = deliveries.find(conn, [("WHATSAPP", "a"), ("WHATSAPP", "b"), ("SMS", "a")])
    assert sorted(one.key for one in found) == [("WHATSAPP", "a"), ("WHATSAPP", "b")]
    assert {(one.standing, one.sent) for one in found} == {(Standing("SENT"), None)}


def test_finding_does_not_read_the_whole_log(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        log(conn, "acme", [f"m{n}" for n in range(20_000)])
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(text("ANALYZE gold_communication_log"))
    with database.begin() as conn:
        before = _rows_read(database)
        assert len(deliveries.find(conn, [("WHATSAPP", f"m{n}") for n in range(20)])) == 20
        conn.execute(text("SELECT pg_stat_force_next_flush()"))
    assert _rows_read(database) == before


def _rows_read(database: Engine) -> object:
    """How many rows of the log were read one after the other, as the server counts them."""
    with database.begin() as conn:
        conn.execute(text("SELECT pg_stat_clear_snapshot()"))
        return conn.execute(
            text("""
                SELECT seq_tup_read FROM pg_stat_user_tables
                WHERE relname = 'gold_communication_log'
            """)
        ).scalar_one()


def test_standings_are_written_as_they_are_given(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        log(conn, "acme", ["a", "b"])
        a, b = sorted(deliveries.find(conn, [("WHATSAPP", "a"), ("WHATSAPP", "b")]), key=_key)
        failed = Standing("FAILED", NOON, failed_at=NOON, error_code="7", error_title="No")
        seen = Standing("READ", NOON, delivered_at=NOON, read_at=NOON)
        deliveries.write(conn, {a.log_id: failed, b.log_id: seen})
        assert deliveries.lock_standings(conn, [a.log_id, b.log_id]) == {
            a.log_id: failed,
            b.log_id: seen,
        }


def _key(one: deliveries.Logged) -> tuple[str, str]:
    return one.key


# ── What comes too early ──────────────────────────────────────────────────────────────────────


def test_a_word_is_kept_once_with_its_earliest_time(database: Engine):
    kept = {"status": "read", "at": NOON, "code": None}
    assert keep(database, at(READ, 5)) == [kept | {"at": NOON + timedelta(minutes=5)}]
    assert keep(database, READ) == [kept]
    assert keep(database, at(READ, 3)) == [kept]


def test_a_failure_with_a_code_is_kept_rather_than_an_earlier_one_without(database: Engine):
    vague = at(FAILED, -5, code=None)
    kept = [{"status": "failed", "at": NOON, "code": 131026}]
    assert keep(database, vague)[0]["code"] is None
    assert keep(database, FAILED) == kept
    assert keep(database, vague) == kept


def test_what_was_kept_is_taken_once_and_complete(database: Engine):
    other = replace(READ, delivery=replace(READ.delivery, external_id="m2"))
    keep(database, READ, FAILED, other)
    with database.begin() as conn:
        taken = deliveries.take_early(conn, READ.key)
        assert sorted(taken, key=lambda told: told.delivery.status) == [FAILED, READ]
        assert deliveries.take_early(conn, READ.key) == []
        assert deliveries.take_early(conn, ("SMS", "m2")) == []
        assert deliveries.take_early(conn, other.key) == [other]


def test_two_who_lock_the_same_words_in_another_order_wait_and_do_not_cross(database: Engine):
    keys = [("WHATSAPP", f"m{n}") for n in range(50)]

    def lock(order: Sequence[tuple[str, str]]) -> None:
        with database.begin() as conn:
            deliveries.lock_words(conn, order)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(50):
            for done in [pool.submit(lock, order) for order in (keys, keys[::-1])]:
                done.result()
        with database.begin() as conn:
            deliveries.lock_words(conn, keys[:1])
            waiting = pool.submit(lock, keys)
            somebody_waits(database)
            assert not waiting.done()
        waiting.result()
