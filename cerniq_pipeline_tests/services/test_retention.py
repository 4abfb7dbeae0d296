"""What has served its time is forgotten, a few rows at a time; what guards something stays."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import get_args

import pytest
from redis import Redis
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.domain.retention import Kind
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline.services import retention as service
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.retention import purge
from cerniq_pipeline.store import inbox, retention
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    ManualClock,
    Office,
    a_world,
    an_office,
    dispatch,
    everything,
    rows,
    run_sql,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox
from cerniq_pipeline_tests.services.test_drain import a_webhook, store

DAY = timedelta(days=1)
YEARS = ManualClock(NOON + 3 * 365 * DAY)
Keep = dict[Kind, timedelta]
KEEP: Keep = dict.fromkeys(retention.KINDS, 30 * DAY)
READERS = {"timelinesai": TimelinesAIWebhooks(("token",))}


def forget(
    database: Engine, *, keep: dict[Kind, timedelta] = KEEP, **how: object
) -> dict[str, int]:
    """Purge as of years later; returns what went, without the kinds of which nothing did."""
    done = purge(database.begin, keep, clock=YEARS, **how)  # pyright: ignore[reportArgumentType]
    assert all(one.is_complete for one in done.values())
    return {kind: one.rows for kind, one in done.items() if one.rows}


def test_every_kind_has_a_rule():
    assert set(retention.KINDS) == set(get_args(Kind))


@pytest.fixture
def office(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Office:
    """A lead that was written to, answered and asked to stop."""
    office = an_office(database, redis, sandbox, steps=(FIRST, SECOND))
    assert office.send() is State.SENT
    store(database, a_webhook("Stop, nu mai vreau mesaje"), source="sweep")
    assert handle_waiting(office.desk, READERS)["done"] == 1
    return office


def test_what_guards_something_stays_for_ever(database: Engine, office: Office):
    before = everything(database)
    forget(database)
    after = everything(database)
    gone = {table for table in before if before[table] != after[table]}
    assert gone == {"send_attempts", "outbox_changes", "webhook_events"}
    said = rows(database, "SELECT content_rendered FROM gold_communication_log")
    assert "Stop, nu mai vreau mesaje" in {row["content_rendered"] for row in said}
    assert after["suppressions"] > 0
    # Nobody plans again what was planned.
    run_sql(database, "UPDATE gold_lead_journey SET whatsapp_opted_out = false")
    assert dispatch(database, now=YEARS.now())[0] == 0


def test_a_dry_run_counts_what_would_go_and_changes_nothing(database: Engine, office: Office):
    before = everything(database)
    would = forget(database, dry_run=True)
    assert everything(database) == before
    would_empty = {"webhook_bodies": 1, "raw_calls": 1, "logged_raw_calls": 1}
    assert would == {"webhook_keys": 1, "attempts": 1, "changes": 3} | would_empty
    assert forget(database) == would
    calls = rows(database, "SELECT raw_request, raw_response FROM gold_communication_log")
    assert {value for call in calls for value in call.values()} == {None}


def test_a_body_goes_long_before_its_key_so_that_no_sweep_brings_its_words_back(
    database: Engine, office: Office
):
    assert forget(database, keep={**KEEP, "webhook_keys": 5000 * DAY})["webhook_bodies"] == 1
    kept = the_row(database, "SELECT * FROM webhook_events")
    assert (bytes(kept["body"]), kept["contact"], kept["people"]) == (b"", None, [])  # pyright: ignore
    told = the_row(database, "SELECT state, result FROM webhook_events")
    assert told["state"] == "done"
    assert "opted out" in str(told["result"])
    with database.begin() as conn:
        copy = InboundCopy(
            "timelinesai", str(kept["event_key"]), "", "+40790000000", "+40721000000", b"again"
        )
        assert inbox.keep(conn, [copy], source="sweep", now=YEARS.now()) == 0


def test_what_nobody_has_handled_or_settled_is_never_touched(database: Engine, office: Office):
    store(database, a_webhook("Bună", uid="waiting"))
    store(database, b"nobody can read this")
    run_sql(
        database,
        """UPDATE webhook_events SET state = 'dead', handled_at = received_at
           WHERE event_type = 'unreadable'""",
    )
    run_sql(
        database,
        """INSERT INTO dead_letters (event_id, code, detail, review_required, at)
           SELECT id, 'UNREADABLE_WEBHOOK', '', true, received_at FROM webhook_events
           WHERE state = 'dead'""",
    )
    run_sql(
        database,
        """INSERT INTO alerts (kind, subject, detail, opened_at, closed_at)
           VALUES ('inbox_dead', 'open', '', :at, NULL), ('inbox_dead', 'closed', '', :at, :at)""",
        at=NOON,
    )
    forget(database)
    left = rows(database, "SELECT state, length(body) > 0 AS has_body FROM webhook_events")
    assert sorted((row["state"], row["has_body"]) for row in left) == [
        ("dead", True),
        ("waiting", True),
    ]
    assert len(rows(database, "SELECT 1 FROM dead_letters")) == 1
    assert rows(database, "SELECT subject FROM alerts") == [{"subject": "open"}]
    # A settled letter goes, and only with it its event.
    run_sql(database, "UPDATE webhook_events SET state = 'done' WHERE state = 'dead'")
    run_sql(database, "UPDATE dead_letters SET resolved_at = :at", at=NOON)
    assert forget(database) == {"letters": 1, "webhook_bodies": 1, "webhook_keys": 1}


@pytest.mark.parametrize("state", ["sending", "unconfirmed", "parked"])
def test_what_may_prove_a_send_in_doubt_stays_until_that_is_settled(
    database: Engine, office: Office, state: str
):
    run_sql(database, "UPDATE outbox_messages SET state = :state WHERE step = 1", state=state)
    assert forget(database).keys() & {"webhook_bodies", "webhook_keys", "attempts"} == set()
    assert len(rows(database, "SELECT 1 FROM outbox_changes")) >= 2
    run_sql(database, "UPDATE outbox_messages SET state = 'sent' WHERE step = 1")
    assert forget(database).keys() >= {"webhook_bodies", "webhook_keys", "attempts"}


def test_the_audit_is_append_only_for_everybody_else(database: Engine, office: Office):
    with pytest.raises(DBAPIError, match="append only"):
        run_sql(database, "DELETE FROM outbox_changes")
    forget(database)
    for change in ("DELETE FROM outbox_changes", "UPDATE outbox_changes SET why = 'no'"):
        with pytest.raises(DBAPIError, match="append only"):
            run_sql(database, change)


def test_heartbeats_and_early_words_go_but_the_last_heartbeat_of_each_pair_stays(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=2)
    run_sql(
        database,
        """INSERT INTO heartbeats (tenant_id, phone_id, to_phone_id, body, begun_at, settled_at,
                                   outcome)
           SELECT 'acme', 'acme-01', 'acme-02', '', :at + n * interval '1 minute', :at, 'seen'
           FROM generate_series(1, 3) n""",
        at=NOON,
    )
    run_sql(
        database,
        """INSERT INTO early_deliveries (channel, external_id, status, at, title, told_at)
           SELECT 'WHATSAPP', 'm' || n, 'read', :at, '', :at FROM generate_series(1, 5) n""",
        at=NOON,
    )
    assert forget(database) == {"heartbeats": 2, "early_deliveries": 5}
    assert the_row(database, "SELECT begun_at FROM heartbeats")["begun_at"] == NOON + timedelta(
        minutes=3
    )


def a_pile(database: Engine, count: int, *, at: datetime = NOON) -> None:
    run_sql(
        database,
        """INSERT INTO webhook_events (provider, event_key, event_type, source, body, received_at,
                                       state, handled_at)
           SELECT 'resend', n::text, 't', 'webhook', 'x', :at, 'done', :at
           FROM generate_series(1, :count) n""",
        count=count,
        at=at,
    )


def test_it_goes_in_batches_and_passes_over_what_others_hold(
    database: Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service, "AT_ONCE", 7)
    a_pile(database, 40)
    only: Keep = {**KEEP, "webhook_keys": 5000 * DAY}
    with database.begin() as conn:
        conn.execute(text("SELECT 1 FROM webhook_events WHERE event_key = '20' FOR UPDATE"))
        done = threading.Thread(target=forget, args=[database], kwargs={"keep": only})
        done.start()
        done.join(30)
        assert not done.is_alive(), "it waits for a row that somebody else has locked"
        left = rows(database, "SELECT event_key FROM webhook_events WHERE body <> ''")
        assert left == [{"event_key": "20"}]
    assert forget(database, keep=only) == {"webhook_bodies": 1}


def test_it_ends_when_its_time_is_up_and_says_so(database: Engine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "AT_ONCE", 5)
    a_pile(database, 20)
    clock = ManualClock(YEARS.now())
    steps = iter(range(100))

    class Ticking:
        def now(self) -> datetime:
            clock.move(timedelta(minutes=10) * (next(steps) > 0))
            return clock.now()

        sleep = clock.sleep

    done = purge(database.begin, KEEP, clock=Ticking(), longest=timedelta(minutes=25))
    assert sum(one.rows for one in done.values()) == 0 or not done["webhook_bodies"].is_complete
    assert not done["early_deliveries"].is_complete
    assert forget(database)["webhook_keys"] == 20
