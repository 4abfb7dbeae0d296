"""The inbox keeps each event once, in order, and finds what we sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from sqlalchemy import Engine

from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.store import inbox
from cerniq_pipeline_tests.builders import (
    NOON,
    rows,
    run_sql,
    wait_until_somebody_waits_for_a_lock,
)

US, THEM, OTHER = "+40790000000", "+40721000001", "+40721000002"


def a_copy(key: str, *, kind: str = "message:received:new", contact: str = THEM) -> InboundCopy:
    return InboundCopy("timelinesai", key, kind, US, contact, f'"{key} ă"'.encode())


def test_an_event_is_kept_once_whoever_brings_it(database: Engine):
    with database.begin() as conn:
        assert inbox.keep(conn, [], source="sweep", now=NOON) == 0
        assert (
            inbox.keep(conn, [a_copy("b"), a_copy("a"), a_copy("b")], source="webhook", now=NOON)
            == 2
        )
        later = NOON + timedelta(seconds=1)
        assert inbox.keep(conn, [a_copy("a"), a_copy("c")], source="sweep", now=later) == 1
    kept = rows(database, "SELECT event_key, source, body FROM webhook_events ORDER BY received_at")
    assert [(row["event_key"], row["source"]) for row in kept] == [
        ("b", "webhook"),
        ("a", "webhook"),
        ("c", "sweep"),
    ]
    assert bytes(kept[0]["body"]) == '"b ă"'.encode()  # pyright: ignore[reportArgumentType]


def test_two_who_keep_the_same_events_in_other_orders_never_wait_in_a_ring(database: Engine):
    def sweep() -> int:
        with database.begin() as conn:
            return inbox.keep(conn, [a_copy("b"), a_copy("a")], source="sweep", now=NOON)

    with ThreadPoolExecutor() as another, database.begin() as conn:
        inbox.keep(conn, [a_copy("a")], source="webhook", now=NOON)
        swept = another.submit(sweep)
        wait_until_somebody_waits_for_a_lock(database)
        inbox.keep(conn, [a_copy("b")], source="webhook", now=NOON)
        conn.commit()
        assert swept.result() == 0


def test_the_same_key_of_another_provider_is_another_event(database: Engine):
    with database.begin() as conn:
        inbox.keep(conn, [a_copy("a")], source="webhook", now=NOON)
        meta = InboundCopy("meta", "a", "messages", US, THEM, b"{}")
        assert inbox.keep(conn, [meta], source="webhook", now=NOON) == 1


def test_only_what_was_told_of_this_person_since_then_is_found(database: Engine):
    with database.begin() as conn:
        inbox.keep(conn, [a_copy("old")], source="webhook", now=NOON - timedelta(hours=1))
        inbox.keep(conn, [a_copy("1"), a_copy("2", contact=OTHER)], source="webhook", now=NOON)
        found = inbox.about(conn, provider="timelinesai", contact=THEM, since=NOON)
        assert inbox.about(conn, provider="meta", contact=THEM, since=NOON) == []
    assert found == ['"1 ă"'.encode()]


def test_events_are_counted_by_state(database: Engine):
    with database.begin() as conn:
        inbox.keep(conn, [a_copy("a"), a_copy("b"), a_copy("c")], source="webhook", now=NOON)
    run_sql(database, "UPDATE webhook_events SET state = 'done' WHERE event_key = 'a'")
    with database.begin() as conn:
        assert inbox.counts(conn) == {"done": 1, "waiting": 2}
