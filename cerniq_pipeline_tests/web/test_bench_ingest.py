"""The benchmark measures a real service, counts what it stored, and leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import create_engine, text

from cerniq_pipeline.dev.embedded import EmbeddedPostgres
from cerniq_pipeline.web.bench_ingest import COPIES, SCRATCH, bench_ingest
from cerniq_pipeline.web.load import Load, a_body, post, requests
from cerniq_pipeline_tests.web.running import RunningWeb


def test_a_small_measurement_adds_up(postgres: EmbeddedPostgres):
    figures = bench_ingest(
        postgres.url("postgres"), events=200, connections=4, progress=lambda line: None
    )
    assert (figures.events, figures.stored, figures.posts) == (200, 200, 210)
    assert (figures.copies, figures.copies_kept) == (COPIES, 1)
    assert 0 < figures.p50_ms <= figures.p99_ms <= figures.slowest_ms
    assert figures.events_per_second > 0
    assert figures.limit_inserts_per_second > 0
    admin = create_engine(postgres.url("postgres"))
    with admin.connect() as conn:
        left = conn.execute(
            text("SELECT count(*) FROM pg_database WHERE datname = :name"), {"name": SCRATCH}
        ).scalar_one()
    admin.dispose()
    assert left == 0


def test_an_answer_that_is_no_promise_ends_the_load(web: RunningWeb):
    load = Load(
        "127.0.0.1", web.port, "/webhooks/timelinesai?token=x", 2, events=5, again=0, name="x"
    )
    with pytest.raises(RuntimeError, match="answered 404"):
        asyncio.run(post(load))


def test_events_differ_and_have_the_size_of_real_ones():
    next_request = requests(Load("h", 1, "/", 1, events=4, again=2, name="x"))
    posts = [*iter(next_request, None)]
    assert (len(posts), len(set(posts))) == (6, 4)
    assert 800 < len(a_body("0" * 36)) < 1000
