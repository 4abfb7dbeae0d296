"""Rows 18, 19 and 20: a provider that accepts and falls silent, lies, or is in trouble."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import text

from cerniq_pipeline.domain.breakers import PROBE_EVERY, TROUBLES_TO_OPEN
from cerniq_pipeline_tests.faults.campaign import wait_for
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import ANSWER_WITHIN, Stage, pause
from cerniq_pipeline_tests.faults.shift_process import Running

SHARE = 0.05
PER_PHONE = 100
AT_ONCE = 4
"""Shift processes that work at the same time: more do not fit on two processors."""

TIMEOUT: dict[str, Any] = {"kind": "late", "delay_ms": int(1500 * ANSWER_WITHIN)}
"""A real time-out costs seconds, so a few stand for all."""

CUTS: Sequence[dict[str, Any]] = [
    {"kind": "accept_then_cut"},
    {"kind": "accept_then_cut", "reset": True},
    {"kind": "accept_then_cut_after_headers"},
    {"kind": "accept_then_truncate"},
]


def accepted_and_silent(stage: Stage, dice: random.Random) -> Recovery:
    """Leave 5 % of the sends without a clear answer, though every one was accepted."""
    sends = stage.scale.sends
    phones = max(2, sends // PER_PHONE)
    stage.plan(leads=sends, limit=-(-sends // phones), phones=phones)
    timeouts = stage.scale.pick(0, 6)
    for sender in stage.senders():
        for position in scattered(dice, of=sends // phones, share=SHARE):
            silence = TIMEOUT if timeouts > 0 else dice.choice(CUTS)
            timeouts -= 1
            stage.sandbox.fault(**silence, phone=sender, after=position, times=1)
    _work_all(stage)
    stage.sandbox.lift()
    stage.fault_over()
    _look_up_all(stage)
    in_doubt, resolved = _in_doubt_and_resolved(stage)
    stage.come_to_rest()
    accepted = len(stage.sandbox.accepted())
    if accepted != sends:
        raise Broken("DISAGREEMENT", f"{accepted} accepted of {sends}")
    if resolved < 0.99 * in_doubt:
        raise Broken("UNRESOLVED", f"{resolved} of {in_doubt} were found in the history")
    duplicates = len(stage.sandbox.duplicates())
    share = resolved / in_doubt if in_doubt else 1.0
    return stage.recovery(
        f"{sends} sends, {in_doubt} silent, {duplicates} duplicates, {share:.1%} resolved"
    )


def scattered(dice: random.Random, *, of: int, share: float) -> list[int]:
    """Which of so many sends are hit; never three in a row, for which a breaker would open."""
    hit: list[int] = []
    for n in range(of):
        if dice.random() < share and hit[-2:] != [n - 2, n - 1]:
            hit.append(n)
    return hit


def _work_all(stage: Stage) -> None:
    """One shift for every phone, a few at a time."""
    waiting = list(stage.phones())
    working: list[Running] = []
    while waiting or working:
        while waiting and len(working) < AT_ONCE:
            working.append(stage.crew.start(waiting.pop(), nap=0.2))
        working.pop(0).wait(120)


def _look_up_all(stage: Stage) -> None:
    """Look up until nothing more is found; a look-up takes the oldest hundred."""
    found = 1
    while found:
        found = stage.look_up(settle_time=timedelta(minutes=10))["sent"]


def _in_doubt_and_resolved(stage: Stage) -> tuple[int, int]:
    with stage.crew.engine.connect() as conn:
        row = conn.execute(
            text("""
                SELECT count(*), count(*) FILTER (WHERE state = 'sent') FROM outbox_messages
                WHERE id IN (SELECT message_id FROM outbox_changes WHERE to_state = 'unconfirmed')
            """)
        ).one()
    return row[0], row[1]


def history_lies(stage: Stage, dice: random.Random) -> Recovery:
    """Have accepted messages show too late, never, or twice, and look them up meanwhile."""
    leads = stage.scale.pick(12, 24)
    stage.plan(leads=leads, limit=leads)
    cut = scattered(dice, of=leads, share=0.4)
    for position in cut:
        stage.sandbox.fault("accept_then_cut", after=position, times=1)
    lie = dice.choice(["history_lag", "history_hidden", "history_twice"])
    late = {"visible_after_ms": 900_000} if lie == "history_lag" else {}
    stage.sandbox.fault(lie, **late)
    stage.crew.work()
    in_doubt = stage.states().get("unconfirmed", 0)
    assert in_doubt == len(cut), f"{len(cut)} were cut, {in_doubt} are in doubt"
    soon = stage.look_up(settle_time=timedelta(minutes=15))
    assert soon["waiting"] == in_doubt, f"decided before the settle time: {soon}"
    stage.look_up()
    stage.sandbox.lift()
    stage.fault_over()
    stage.look_up()
    stage.crew.work()
    stage.come_to_rest()
    accepted = len(stage.sandbox.accepted())
    if accepted != leads:
        raise Broken("DUPLICATE" if accepted > leads else "DISAGREEMENT", f"{accepted} accepted")
    if stage.states() != {"sent": leads - in_doubt} | ({"parked": in_doubt} if in_doubt else {}):
        raise Broken("DISAGREEMENT", f"{in_doubt} were in doubt: {stage.states()}")
    return stage.recovery(f"{in_doubt} parked")


# ── Storms ────────────────────────────────────────────────────────────────────────────────────

STORMS: Sequence[dict[str, Any]] = [
    {"kind": "rate_limited"},
    {"kind": "rate_limited", "retry_after": 5},
    {"kind": "rate_limited", "retry_after": 120},
    *({"kind": "server_error", "status": status} for status in range(500, 505)),
    {"kind": "html_error", "status": 502},
    {"kind": "error_in_ok"},
    {"kind": "redirect"},
]
STEP = timedelta(seconds=5)
STEP_SECONDS = 0.08
"""How long a step of the storm takes here, by the real clock."""

LONG_SHIFT = timedelta(minutes=5)
PHONES = 2


def provider_in_trouble(stage: Stage, dice: random.Random) -> Recovery:
    """Have every send answered with trouble for minutes, and count how often we ask meanwhile."""
    leads = stage.scale.pick(24, 60)
    stage.plan(leads=leads, limit=leads // PHONES, phones=PHONES)
    storm = dice.choice(STORMS)
    long = timedelta(minutes=stage.scale.pick(4, 20))
    with stage.shifts_open(longest=LONG_SHIFT):
        wait_for(lambda: len(stage.sandbox.accepted()) >= PHONES)
        stage.sandbox.fault(**storm, operation=dice.choice(["send", "any"]))
        sends, probes = _count_while_time_passes(stage, long)
        stage.sandbox.lift()
        stage.fault_over()
        _let_time_pass(stage)
    breakers = 1 if storm["kind"] == "rate_limited" else 1 + PHONES
    most_probes = breakers * (1 + long / PROBE_EVERY)
    if probes > most_probes:
        raise Broken("FAILED OPEN", f"{probes} probes in {long}, at most {most_probes:.0f}")
    # Until a breaker opens, and then one message for each probe that was answered.
    most_sends = sum(TROUBLES_TO_OPEN.values()) + PHONES + probes
    if sends > most_sends:
        raise Broken("FAILED OPEN", f"{sends} sends in {long} of trouble, at most {most_sends}")
    what = " ".join(map(str, storm.values()))
    return stage.recovery(f"{what}: {sends} sends, {probes} probes in {long}")


def _count_while_time_passes(stage: Stage, long: timedelta) -> tuple[int, int]:
    """Let the storm last; returns how many sends and how many probes went out in it."""
    sends, probes = len(stage.sandbox.journal("request")), stage.calls("accounts")
    for _ in range(long // STEP):
        pause(STEP_SECONDS)
        stage.move_time(STEP)
    return len(stage.sandbox.journal("request")) - sends, stage.calls("accounts") - probes


def _let_time_pass(stage: Stage) -> None:
    """Let time go by quickly until nothing waits any more."""
    waiting = "SELECT 1 FROM outbox_messages WHERE state IN ('planned', 'deferred', 'sending')"
    for _ in range(400):
        if not stage.ask(waiting):
            break
        pause(STEP_SECONDS)
        stage.move_time(2 * STEP)
    stage.move_time(LONG_SHIFT)  # those that wait for more end
