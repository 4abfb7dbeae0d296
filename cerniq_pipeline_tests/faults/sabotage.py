"""Ways to break Redis and Postgres under the feet of a shift."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from redis import Redis
from sqlalchemy import text

from cerniq_pipeline.dev.embedded import EmbeddedPostgres, EmbeddedRedis
from cerniq_pipeline.store.quotas import EPOCH_KEY
from cerniq_pipeline_tests.faults.campaign import PHONE, wait_for
from cerniq_pipeline_tests.faults.shift_process import Crew

# ── A Redis that cannot count; each returns how to mend it ────────────────────────────────────


def down(server: EmbeddedRedis) -> Callable[[], object]:
    server.kill()
    return server.start


def full_of_memory(server: EmbeddedRedis) -> Callable[[], object]:
    client = Redis.from_url(server.url())
    client.config_set("maxmemory", 1)
    return lambda: client.config_set("maxmemory", 0)


def read_only(server: EmbeddedRedis) -> Callable[[], object]:
    client = Redis.from_url(server.url())
    client.replicaof("127.0.0.1", 1)
    return lambda: client.replicaof("NO", "ONE")


# ── A Redis that remembers something else ─────────────────────────────────────────────────────


def quota_key(crew: Crew, phone_id: str = PHONE) -> str:
    """Where Redis counts this phone's newest day."""
    with crew.engine.connect() as conn:
        day = conn.execute(text("SELECT max(day) FROM quota_ledger")).scalar_one()
    return f"cerniq:quota:{phone_id}:{day}"


def flushed(client: Redis, key: str) -> None:
    client.flushall()


def evicted(client: Redis, key: str) -> None:
    client.delete(key)


def of_another_type(client: Redis, key: str) -> None:
    client.set(key, "not a hash")


def epoch_of_another_type(client: Redis, key: str) -> None:
    client.delete(EPOCH_KEY)
    client.lpush(EPOCH_KEY, "not a number")


def scripts_forgotten(client: Redis, key: str) -> None:
    client.script_flush()


def too_many(client: Redis, key: str) -> None:
    client.hset(key, mapping={f"nobody-{n}": "reserved" for n in range(10)})


# ── A Postgres that is gone; `start` brings it back ───────────────────────────────────────────


def killed(server: EmbeddedPostgres) -> None:
    server.kill()


def stopped_immediately(server: EmbeddedPostgres) -> None:
    pid = server.pid()
    assert pid is not None
    os.kill(pid, signal.SIGQUIT)
    wait_for(lambda: server.pid() is None)
