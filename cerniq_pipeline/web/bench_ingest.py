"""How many webhooks one web process keeps, measured beside the limit of the machine.

A real service, a load in a process of its own, and a scratch database. The limit is what Postgres
does with the same rows in the same table, as many in one commit as there are connections, when
nobody speaks HTTP.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psycopg
import uvloop
from sqlalchemy import Engine, text

from cerniq_pipeline.store.inbox import Arrival, keep_webhooks
from cerniq_pipeline.store.scratch import scratch_database
from cerniq_pipeline.web.load import Load, Seen, a_body

SCRATCH = "cerniq_bench_ingest"
HOST = "127.0.0.1"
WARM_UP = 2_000
COPIES = 1_000
AGAIN = 20
"""Each so many-th event is told twice."""
_START_SECONDS = 30


@dataclass(frozen=True)
class IngestBench:
    """Figures of one measurement; every event that is counted was on the disk when answered."""

    connections: int
    events: int
    posts: int
    stored: int
    events_per_second: int
    p50_ms: float
    p99_ms: float
    slowest_ms: float
    limit_inserts_per_second: int
    share_of_limit: float
    copies: int
    copies_kept: int


def bench_ingest(
    database_url: str, *, events: int, connections: int, progress: Callable[[str], None]
) -> IngestBench:
    """Post `events` new events and some of them twice; raises when one is lost or kept twice."""
    with scratch_database(database_url, SCRATCH) as engine:
        progress("measuring bare inserts")
        limit = uvloop.run(_bare_inserts(engine, events=events, batch=connections))
        token = secrets.token_urlsafe(16)
        with _web_process(engine, token) as port:
            path = f"/webhooks/timelinesai?token={token}"
            load = Load(HOST, port, path, connections, events=WARM_UP, again=0, name="warm")
            progress("warming up")
            _post(load)
            _empty(engine)
            progress(f"posting {events:,} events over {connections} connections")
            seen = _post(replace(load, events=events, again=AGAIN, name="bench"))
            stored = _count(engine)
            progress(f"posting one event {COPIES:,} times")
            _post(replace(load, copies=COPIES, name="copy"))
            copies_kept = _count(engine) - stored
    if stored != events or copies_kept != 1:
        raise RuntimeError(f"{stored} of {events} events and {copies_kept} of 1 copy were kept")
    per_second = events / seen.seconds
    return IngestBench(
        connections=connections,
        events=events,
        posts=seen.posts,
        stored=stored,
        events_per_second=round(per_second),
        p50_ms=seen.p50_ms,
        p99_ms=seen.p99_ms,
        slowest_ms=seen.slowest_ms,
        limit_inserts_per_second=round(limit),
        share_of_limit=round(per_second / limit, 3),
        copies=COPIES,
        copies_kept=copies_kept,
    )


async def _bare_inserts(engine: Engine, *, events: int, batch: int) -> float:
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    headers = json.dumps({"content-type": "application/json"})
    body = a_body("0" * 36)

    def arrivals(begin: int) -> list[Arrival]:
        numbers = range(begin, min(begin + batch, events))
        return [
            Arrival(
                "timelinesai", f"bare:{n}", "bare", "+40790000001", "+40721000123", headers, body
            )
            for n in numbers
        ]

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        began = time.perf_counter()
        for begin in range(0, events, batch):
            await keep_webhooks(conn, arrivals(begin))
        took = time.perf_counter() - began
    _empty(engine)
    return events / took


@contextmanager
def _web_process(engine: Engine, token: str) -> Iterator[int]:
    """A web service on a free port, in a folder without any settings but these."""
    told = {
        "CERNIQ_MODE": "sandbox",
        "CERNIQ_DATABASE_URL": engine.url.render_as_string(hide_password=False),
        "CERNIQ_REDIS_URL": "unix:///nowhere",
        "CERNIQ_SECRET_KEY": secrets.token_urlsafe(),
        "CERNIQ_TIMELINESAI_WEBHOOK_TOKEN": token,
    }
    others = {name: value for name, value in os.environ.items() if not name.startswith("CERNIQ_")}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "web.log"
        with log.open("wb") as complaints:
            process = subprocess.Popen(
                [Path(sys.executable).with_name("cerniq"), "web", "--host", HOST, "--port", "0"],
                cwd=folder,
                env={**others, **told, "CERNIQ_DATA_DIR": folder, "PYTHONUNBUFFERED": "1"},
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            port = said.strip().rpartition(":")[2]
            if not port.isdigit():
                raise RuntimeError(f"the web service did not start: {log.read_text()}")
            yield int(port)
        finally:
            process.terminate()
            try:
                process.wait(_START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _post(load: Load) -> Seen:
    ran = subprocess.run(
        [sys.executable, "-m", "cerniq_pipeline.web.load"],
        input=json.dumps(asdict(load)),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"the load failed: {ran.stderr.strip().rpartition(chr(10))[2]}")
    return Seen(**json.loads(ran.stdout))


def _count(engine: Engine) -> int:
    with engine.begin() as conn:
        return conn.execute(text("SELECT count(*) FROM webhook_events")).scalar_one()


def _empty(engine: Engine) -> None:
    with engine.begin() as conn:
        conn.execute(text("TRUNCATE webhook_events"))
