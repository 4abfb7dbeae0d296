"""Rows 43, 44 and 46: histories that cannot be read in places, and that show things late."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx

from cerniq_pipeline.domain.history import LONGEST_PAUSE
from cerniq_pipeline.providers.timelinesai.channel import DIALECTS, TimelinesAI, open_client
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.history import sweep, sweep_all
from cerniq_pipeline.services.reconcile import LOOKED_FOR, settle_unconfirmed, tell_of_doubts
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.answers import scattered
from cerniq_pipeline_tests.faults.matrix.listening import hear_all, hearing_desk
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage
from cerniq_pipeline_tests.faults.said import READERS, a_message, keep

UNREADABLE: Sequence[dict[str, Any]] = [
    {"kind": "server_error", "status": 500},
    {"kind": "html_error", "status": 502},
    {"kind": "html_error", "status": 404},
    {"kind": "error_in_ok"},
    {"kind": "accept_then_truncate"},
]
SILENCE = timedelta(hours=6)
TICK = timedelta(minutes=2)
LONG = timedelta(minutes=10)


# ── Chats that cannot be read ─────────────────────────────────────────────────────────────────


def chats_unreadable(stage: Stage, dice: random.Random) -> Recovery:
    """Have many people write without a webhook, and some of their chats be unreadable."""
    stage.plan(leads=1, limit=1)
    stage.come_to_rest()
    desk = hearing_desk(stage)
    sweep(desk, "timelinesai", longest=LONG)
    (ours,) = stage.senders()
    begun = stage.now()
    people = [f"+40733{n:06d}" for n in range(stage.scale.pick(70, 1200))]
    bad = dice.sample(people, dice.randint(1, len(people) // 10))
    said: dict[str, str] = {}
    for person in people:
        at = begun + SILENCE * dice.random()
        said |= {_write(stage, ours, person, at=at): person}
    stage.move_time(SILENCE)
    for person in bad:
        fault = dict(dice.choice(UNREADABLE))
        stage.sandbox.fault(**fault, operation="history", recipient=person)
    stage.sandbox.fault("server_error", after=dice.randint(0, 60), times=4, operation="any")
    for _ in range(8):
        sweep(desk, "timelinesai", longest=LONG)
        stage.move_time(TICK)
    late = dice.choice([person for person in people if person not in bad])
    said |= {_write(stage, ours, late, at=stage.now()): late}
    sweep(desk, "timelinesai", longest=LONG)
    _expect(stage, {uid for uid, person in said.items() if person not in bad})
    if not _is_open(stage, "chat_unreadable"):
        raise Broken("UNRESOLVED", f"{len(bad)} chats cannot be read, and nobody is told")
    stage.sandbox.lift()
    stage.fault_over()
    stage.move_time(LONGEST_PAUSE)
    sweep(desk, "timelinesai", longest=LONG)
    _expect(stage, set(said))
    if _is_open(stage, "chat_unreadable"):
        raise Broken("UNRESOLVED", "all chats were read, and the alert is still open")
    stage.come_to_rest()
    return stage.recovery(f"{len(people)} chats, {len(bad)} of them bad")


def _write(stage: Stage, ours: str, person: str, *, at: Any) -> str:
    line = stage.sandbox.inbound(ours, person, "Da", at=at.replace(microsecond=0), webhook=False)
    return str(line["message_uid"])


def _expect(stage: Stage, uids: set[str]) -> None:
    found = stage.ask("SELECT event_key FROM webhook_events")
    kept = {str(row["event_key"]).rpartition(":")[2] for row in found}
    if kept != uids:
        raise Broken("LOST", f"{len(uids - kept)} of {len(uids)} are not in the inbox")


def _is_open(stage: Stage, kind: str) -> bool:
    return bool(
        stage.ask("SELECT 1 FROM alerts WHERE kind = :kind AND closed_at IS NULL", kind=kind)
    )


# ── Look-ups ──────────────────────────────────────────────────────────────────────────────────


def look_ups_disturbed(stage: Stage, dice: random.Random) -> Recovery:
    """Leave sends in doubt, and let some of their chats, and rows in others, be unreadable."""
    leads = stage.scale.pick(12, 60)
    stage.plan(leads=leads, limit=leads)
    for position in scattered(dice, of=leads, share=0.6):
        stage.sandbox.fault("accept_then_cut", after=position, times=1)
    stage.crew.work()
    stage.sandbox.lift()
    found = stage.ask("SELECT recipient FROM outbox_messages WHERE state = 'unconfirmed'")
    in_doubt = [str(row["recipient"]) for row in found]
    bad = dice.sample(in_doubt, dice.randint(min(1, len(in_doubt)), -(-len(in_doubt) // 2)))
    for person in bad:
        fault = dict(dice.choice(UNREADABLE))
        stage.sandbox.fault(**fault, operation="history", recipient=person)
    desk = _reading_odd_rows(stage, dice)
    _settle(stage, desk)
    _left(stage, "unconfirmed", len(bad))
    stage.move_time(LOOKED_FOR / 2)
    _settle(stage, desk)
    tell_of_doubts(desk.begin, now=stage.now())
    if bad and not _is_open(stage, "sends_unconfirmed"):
        raise Broken("UNRESOLVED", f"{len(bad)} are in doubt for hours, and nobody is told")
    stage.move_time(LOOKED_FOR)
    _settle(stage, desk)
    _left(stage, "unconfirmed", 0)
    _left(stage, "parked", len(bad))
    tell_of_doubts(desk.begin, now=stage.now())
    if _is_open(stage, "sends_unconfirmed"):
        raise Broken("UNRESOLVED", "nothing is in doubt, and the alert is still open")
    stage.sandbox.lift()
    stage.fault_over()
    stage.come_to_rest()
    return stage.recovery(f"{len(in_doubt)} in doubt, {len(bad)} parked")


def _settle(stage: Stage, desk: Desk) -> None:
    settle_unconfirmed(desk, settle_time=timedelta(hours=1), who="matrix")


def _left(stage: Stage, state: str, count: int) -> None:
    if stage.states().get(state, 0) != count:
        raise Broken("UNRESOLVED", f"{count} must be {state}: {stage.states()}")


def _reading_odd_rows(stage: Stage, dice: random.Random) -> Desk:
    """The stage's desk, which is shown rows of unknown forms among the good ones."""
    url = stage.sandbox.public_url
    real = open_client(url, "sandbox-token")

    def answer(request: httpx.Request) -> httpx.Response:
        try:
            told = real.get(request.url)
            body = told.json()
        except (httpx.TransportError, ValueError):
            return httpx.Response(502)
        shown = (body.get("data") or {}).get("messages") if isinstance(body, dict) else None
        if isinstance(shown, list):
            odd = [7, {}, {"from_me": True}, {"from_me": True, "message_type": "whatsapp"}]
            shown.insert(dice.randint(0, len(shown)), dice.choice(odd))
        return httpx.Response(told.status_code, json=body)

    client = httpx.Client(base_url=url, transport=httpx.MockTransport(answer))
    channel = TimelinesAI(client, DIALECTS["public"]())
    return replace(stage.crew.desk, channels={"timelinesai": channel})


# ── A history that lags ───────────────────────────────────────────────────────────────────────


def shown_late(stage: Stage, dice: random.Random) -> Recovery:
    """Tell of replies by unsigned webhooks that the history shows only later, and of lies."""
    leads = stage.scale.pick(6, 30)
    stage.plan(leads=leads, limit=leads)
    stage.come_to_rest()
    desk = hearing_desk(stage)
    sweep(desk, "timelinesai", longest=LONG)
    people = [str(line["recipient"]) for line in stage.sandbox.accepted()]
    (ours,) = stage.senders()
    lags = {}
    told = stage.now()
    for person in people:
        uid = _write(stage, ours, person, at=told)
        lags[
            stage.sandbox.fault("html_error", status=404, operation="history", recipient=person)
        ] = timedelta(minutes=dice.choice([1, 5, 40, 200, 500]) * dice.random())
        _tell(stage, desk, a_message("Da", uid=uid, at=told, ours=ours, theirs=person))
    lied_to = dice.sample(people, dice.randint(1, len(people)))
    for person in lied_to:
        _tell(stage, desk, a_message("Sunt de acord", uid=str(uuid.uuid4()), theirs=person))
    while lags:
        step = timedelta(minutes=dice.randint(1, 40))
        stage.move_time(step)
        for fault in [one for one, lag in lags.items() if stage.now() - told >= lag]:
            stage.sandbox.lift(fault)
            del lags[fault]
        handle_waiting(desk, READERS)
        if dice.random() < 0.3:
            sweep_all(desk, longest=LONG)
    stage.fault_over()
    stage.move_time(LONGEST_PAUSE)
    sweep(desk, "timelinesai", longest=LONG, full=True)
    outcomes = hear_all(stage, desk)
    logged = stage.ask("""
        SELECT contact, content FROM gold_communication_log WHERE direction = 'INBOUND'
    """)
    heard = sorted((str(row["contact"]), row["content"]) for row in logged)
    if any(text != "Da" for _, text in heard):
        raise Broken("BELIEVED", f"{heard}")
    if heard != sorted((person, "Da") for person in people):
        raise Broken("LOST", f"{len(heard)} of {len(people)} replies were heard: {outcomes}")
    letters = stage.ask("SELECT code FROM dead_letters WHERE resolved_at IS NULL")
    if [row["code"] for row in letters] != ["UNCONFIRMED_SENDER"] * len(lied_to):
        raise Broken("UNRESOLVED", f"{len(lied_to)} lies, letters {letters}")
    counts = {row["reply_count"] for row in stage.ask("SELECT reply_count FROM gold_lead_journey")}
    if counts != {1}:
        raise Broken("DUPLICATE", f"replies were counted {counts} times")
    stage.come_to_rest()
    return stage.recovery(f"{len(people)} replies, {len(lied_to)} lies")


def _tell(stage: Stage, desk: Desk, body: bytes) -> None:
    with desk.begin() as conn:
        keep(conn, [body], now=stage.now())
