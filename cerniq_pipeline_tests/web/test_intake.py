"""The one task that writes: its batches, its clock, and what Postgres will not have."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine

from cerniq_pipeline.store.inbox import Arrival, keep_webhooks
from cerniq_pipeline.web.intake import Intake, NotKept
from cerniq_pipeline.web.spool import Spool
from cerniq_pipeline_tests.builders import rows
from cerniq_pipeline_tests.web.test_spool import an_arrival

NOWHERE = "postgresql+psycopg://nobody@127.0.0.1:1/nothing"


def with_intake(database_url: str, folder: Path, work: Callable[[Intake], Awaitable[None]]) -> None:
    async def run() -> None:
        intake = Intake(database_url, Spool(folder), retry_seconds=0.05)
        await intake.start()
        try:
            await work(intake)
        finally:
            await intake.stop()

    asyncio.run(run())


def test_what_comes_together_is_committed_together(
    database_url: str, database: Engine, tmp_path: Path
):
    async def work(intake: Intake) -> None:
        await asyncio.gather(*(intake.keep(an_arrival(str(n))) for n in range(700)))

    with_intake(database_url, tmp_path, work)
    kept = rows(database, "SELECT event_key, xmin::text FROM webhook_events ORDER BY received_at")
    assert [row["event_key"] for row in kept] == [str(n) for n in range(700)]
    assert len({row["xmin"] for row in kept}) == 2  # 500 and the rest


def test_one_event_that_postgres_will_not_have_does_not_take_the_others_along(
    database_url: str, database: Engine, tmp_path: Path
):
    bad = an_arrival("b", account="a\0b")
    half = an_arrival("h", contact="\ud800", body=b"half")

    async def work(intake: Intake) -> None:
        told = [an_arrival("a"), bad, half, an_arrival("c")]
        await asyncio.gather(*map(intake.keep, told))

    with_intake(database_url, tmp_path, work)
    kept = rows(database, "SELECT * FROM webhook_events ORDER BY received_at")
    assert [row["event_key"] for row in kept] == [
        "a",
        hashlib.sha256(bad.body).hexdigest(),
        hashlib.sha256(b"half").hexdigest(),
        "c",
    ]
    assert [row["event_type"] == "unreadable" for row in kept] == [False, True, True, False]
    assert list(tmp_path.iterdir()) == []


def test_a_spooled_event_that_postgres_will_not_have_does_not_block_the_spool(
    database_url: str, database: Engine, tmp_path: Path
):
    spool = Spool(tmp_path)
    spool.append([an_arrival("a"), an_arrival("b", account="a\0b"), an_arrival("c")])
    spool.close()

    async def work(intake: Intake) -> None:
        while (await intake.health()).spool_bytes:
            await asyncio.sleep(0.01)

    with_intake(database_url, tmp_path, work)
    assert len(rows(database, "SELECT 1 FROM webhook_events")) == 3


def test_a_spooled_event_has_the_time_of_its_arrival_and_not_of_its_replay(
    database_url: str, database: Engine, tmp_path: Path
):
    early = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    late = datetime.now(UTC) + timedelta(days=1)  # by a clock that was wrong
    spool = Spool(tmp_path)
    spool.append([an_arrival("early", received_at=early), an_arrival("late", received_at=late)])
    spool.append([an_arrival("unknown")])
    spool.close()

    async def work(intake: Intake) -> None:
        while (await intake.health()).spool_bytes:
            await asyncio.sleep(0.01)

    with_intake(database_url, tmp_path, work)
    (now,) = rows(database, "SELECT clock_timestamp() AS now")
    kept = {
        row["event_key"]: row["received_at"]
        for row in rows(database, "SELECT * FROM webhook_events")
    }
    assert kept["early"] == early
    today = (kept["late"], kept["unknown"])
    assert all(now["now"] - timedelta(minutes=1) < at <= now["now"] for at in today)  # pyright: ignore


def test_without_a_database_the_spool_keeps_it_and_the_clock_is_this_machines(tmp_path: Path):
    async def work(intake: Intake) -> None:
        await intake.keep(an_arrival("a"))
        found = await intake.health()
        assert (found.database, found.can_keep) == (False, True)
        assert found.spool_bytes > 0
        assert abs(intake.now() - datetime.now(UTC)) < timedelta(minutes=1)

    with_intake(NOWHERE, tmp_path, work)
    assert len(list(tmp_path.iterdir())) == 1


def test_whoever_waits_for_what_cannot_be_kept_hears_so(tmp_path: Path):
    blocked = tmp_path / "spool"
    blocked.write_text("a file where a folder should be")

    async def work(intake: Intake) -> None:
        for _ in range(2):
            with pytest.raises(NotKept):
                await intake.keep(an_arrival("a"))
        assert not (await intake.health()).can_keep

    with_intake(NOWHERE, blocked, work)


def test_a_sender_that_went_away_harms_nobody(database_url: str, database: Engine, tmp_path: Path):
    async def work(intake: Intake) -> None:
        gone = intake.keep(an_arrival("a"))
        gone.cancel()
        await intake.keep(an_arrival("b"))

    with_intake(database_url, tmp_path, work)
    kept = rows(database, "SELECT event_key FROM webhook_events ORDER BY event_key")
    assert [row["event_key"] for row in kept] == ["a", "b"]


def test_two_services_that_are_told_the_same_in_opposite_orders_do_not_block_each_other(
    database_url: str, database: Engine
):
    url = database_url.replace("+psycopg", "")

    async def tell(told: list[Arrival]) -> int:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
            return (await keep_webhooks(conn, told)).new

    async def both() -> list[int]:
        new = []
        for turn in range(20):
            told = [an_arrival(f"{turn}-{n}") for n in range(200)]
            new.append(sum(await asyncio.gather(tell(told), tell(told[::-1]))))
        return new

    assert asyncio.run(both()) == [200] * 20
