"""Rows 15, 16 and 17: a Redis that cannot count, or counts wrongly, and many who want the last."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from redis import Redis

from cerniq_pipeline.services.reconcile import compare_gate
from cerniq_pipeline_tests.builders import run_sql
from cerniq_pipeline_tests.faults import sabotage
from cerniq_pipeline_tests.faults.campaign import set_limit, take_all_at_once, wait_for
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage, pause

CANNOT_COUNT: list[Callable[..., Any]] = [
    sabotage.down,
    sabotage.full_of_memory,
    sabotage.read_only,
]
FORGETS: list[Callable[..., Any]] = [
    sabotage.flushed,
    sabotage.evicted,
    sabotage.of_another_type,
    sabotage.epoch_of_another_type,
    sabotage.scripts_forgotten,
]


def redis_breaks(stage: Stage, dice: random.Random) -> Recovery:
    """Break Redis in every way we know, in any order, while two phones send."""
    phones, each = 2, stage.scale.pick(40, 120)
    stage.plan(leads=phones * (each + 5), limit=each, phones=phones)
    kinds = dice.sample([*CANNOT_COUNT, *FORGETS], stage.scale.pick(3, len(CANNOT_COUNT + FORGETS)))
    with stage.shifts_open() as shifts:
        for kind in kinds:
            before = len(stage.sandbox.accepted())
            _wait_for_more(stage, before + 2)
            pause(dice.uniform(0.0, 0.1))
            if kind in CANNOT_COUNT:
                mend = kind(stage.redis)
                with stage.silence(in_flight=phones):
                    pause(dice.uniform(0.2, 0.5))
                mend()
            else:
                with Redis.from_url(stage.redis.url()) as client:
                    kind(client, sabotage.quota_key(stage.crew, dice.choice(stage.phones())))
            stage.fault_over()
        assert shifts.any_work_left(), "the campaign was over before the last fault"
    _full(stage, phones * each)
    return stage.recovery(f"{len(kinds)} kinds")


def redis_disagrees(stage: Stage, dice: random.Random) -> Recovery:
    """Take entries out of Redis's count, or add some, while the phone sends up to its limit."""
    limit = 12
    stage.plan(leads=2 * limit, limit=limit)
    stop = dice.randint(2, limit - 2)
    with stage.shifts_open():
        _wait_for_more(stage, stop)
        drift = _spoil(stage, dice)
        stage.fault_over()
    _full(stage, limit)
    drift += _spoil(stage, dice)
    corrected, left = compare_gate(stage.crew.desk), compare_gate(stage.crew.desk)
    if not corrected or left:
        raise Broken("DISAGREEMENT", f"of {drift} wrong entries {corrected} were seen, {left} left")
    return stage.recovery(f"{drift} entries spoilt")


def _spoil(stage: Stage, dice: random.Random) -> int:
    """Make Redis show fewer or more than the ledger; returns by how many."""
    key = sabotage.quota_key(stage.crew)
    with Redis.from_url(stage.redis.url()) as client:
        entries: Any = client.hkeys(key)
        if dice.random() < 0.5 and entries:
            gone = dice.sample(sorted(entries), dice.randint(1, max(1, len(entries) - 1)))
            return int(client.hdel(key, *gone))  # pyright: ignore[reportArgumentType]
        sabotage.too_many(client, key)
        return 10


def many_want_the_last(stage: Stage, dice: random.Random) -> Recovery:
    """Let 64 claim at once from a phone that may open one more conversation today."""
    threads, processes = stage.scale.pick(24, 48), stage.scale.pick(4, 16)
    limit = dice.randint(2, 6)
    stage.plan(leads=3 * limit, limit=limit - 1)
    stage.crew.work()
    set_limit(stage.crew, limit)
    stage.limit = limit
    run_sql(stage.crew.engine, "UPDATE outbox_messages SET due_at = now() WHERE state = 'deferred'")
    stage.fault_over()
    sent = take_all_at_once(stage.crew, threads=threads, processes=processes)
    if sent != 1:
        raise Broken("OVER QUOTA", f"{sent} took the last place")
    _full(stage, limit)
    return stage.recovery(f"{threads} threads, {processes} processes")


def _wait_for_more(stage: Stage, count: int) -> None:
    wait_for(lambda: len(stage.sandbox.accepted()) >= count)


def _full(stage: Stage, limit: int) -> None:
    """The fault neither cost a contact nor gave one away."""
    sent = len(stage.sandbox.accepted())
    assert sent == limit, f"{sent} of {limit} contacts were made"
