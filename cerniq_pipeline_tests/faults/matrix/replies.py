"""Rows 25 and 26: events in every order, and events of which nobody tells."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cerniq_pipeline.domain.history import try_again_in
from cerniq_pipeline.domain.outbox import OutboxMessage
from cerniq_pipeline.services import claiming, leasing, recording, sending
from cerniq_pipeline.services.history import sweep_all
from cerniq_pipeline.services.leasing import this_process
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline_tests.faults.campaign import PHONE
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.listening import hear_all, hearing_desk
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage
from cerniq_pipeline_tests.faults.orders import SETS, Events, differences, endings
from cerniq_pipeline_tests.faults.said import a_message, keep

AGO = timedelta(minutes=30)
"""How long before it is heard the story begins; by then all of it has happened."""


def every_order(stage: Stage, dice: random.Random) -> Recovery:
    """Let six events come in each of their 720 orders, three stories; all end in one state.

    The brief play has those that begin with one event of each story.
    """
    stage.plan(leads=1, limit=1, follow_up=True)
    desk = stage.crew.desk
    lease = leasing.acquire(desk.begin, PHONE, this_process("orders"), now=stage.now())
    assert lease is not None
    message = claiming.claim(desk, lease)
    assert isinstance(message, OutboxMessage), message
    orders = 0
    for name, story in SETS.items():
        start = stage.now()
        events = story(message, start - AGO)
        firsts = [dice.choice(list(events))] if stage.scale.brief else list(events)
        orders += _compare(stage, name, events, start=start, firsts=firsts)
    recording.record(desk, message, sending.call(desk, message), who="orders")
    leasing.give_back(desk.begin, lease)
    stage.fault_over()
    stage.come_to_rest()
    return stage.recovery(f"{orders} orders")


def _compare(
    stage: Stage, name: str, events: Events, *, start: datetime, firsts: Sequence[str]
) -> int:
    """Hold every ending against that of the order in which it happened; returns how many."""
    in_order = next(endings(stage.crew.engine, stage.crew.desk, events, start=start))
    count = 0
    for ending in endings(stage.crew.engine, stage.crew.desk, events, start=start, firsts=firsts):
        count += 1
        if found := differences(in_order.state, ending.state):
            order = ", ".join(ending.order)
            raise Broken("ORDER MATTERS", f"{name}: {order}: {'; '.join(found)}")
    return count


# ── Nobody tells ──────────────────────────────────────────────────────────────────────────────

SILENCE = timedelta(hours=6)
TWO_DAYS = timedelta(days=2)
RECOVERED_WITHIN = 300.0
"""Seconds from the start of the sweep until all of it had its effects, at most."""

WORDS = ["Bună ziua", "Da, mă interesează", "Cât costă?", "Reveniți luni", "👍", "STOP"]
STRANGER = "+40733999999"


@dataclass(frozen=True)
class Said:
    """One message of those hours."""

    uid: str
    chat_id: int
    text: str
    theirs: str
    by_hand: bool
    at: datetime


def webhooks_dropped(stage: Stage, dice: random.Random) -> Recovery:
    """Have people write for six hours, and one of us to them, without a single webhook.

    The sweep that follows is disturbed too, and half of the webhooks come when it is over.
    """
    leads = stage.scale.pick(8, 40)
    stage.plan(leads=leads, limit=leads, follow_up=True, delay=TWO_DAYS)
    stage.come_to_rest()
    desk = hearing_desk(stage)
    _sweep(stage, desk)
    said = _talk(stage, dice)
    stage.move_time(SILENCE)
    stage.sandbox.fault("server_error", status=503, operation="history", after=2, times=2)
    began = time.monotonic()
    found = _sweep(stage, desk)
    outcomes = hear_all(stage, desk)
    took = time.monotonic() - began
    stage.fault_over()
    if found != len(said) or outcomes != {"done": found}:
        raise Broken("LOST", f"{len(said)} messages, {found} found, {outcomes}")
    with desk.begin() as conn:
        late = dice.sample(said, len(said) // 2)
        if again := keep(conn, [_webhook(one, stage) for one in late], now=stage.now()):
            raise Broken("DUPLICATE", f"{again} webhooks were news after the sweep")
    _check_effects(stage, said)
    if not stage.scale.brief and took > RECOVERED_WITHIN:
        raise Broken("TOO LATE", f"{took:.0f} s until {len(said)} messages had their effects")
    stage.come_to_rest()
    return stage.recovery(f"{len(said)} messages in {took:.1f} s")


def _sweep(stage: Stage, desk: Desk) -> int:
    """Sweep until everything was read; returns how many messages were new.

    A chat whose answer was bad while the others' were good is read again by a later sweep.
    """
    new = 0
    unfinished: str | None = None
    for _ in range(10):
        swept = sweep_all(desk, longest=timedelta(minutes=10))["timelinesai"]
        new, unfinished = new + swept.new, swept.unfinished
        if unfinished is None and not stage.ask("SELECT 1 FROM unread_chats"):
            return new
        stage.move_time(try_again_in(1))
    raise AssertionError(f"the sweep never came to its end: {unfinished}")


def _talk(stage: Stage, dice: random.Random) -> list[Said]:
    """Most people write something, some of them a lot; to a few one of us writes by hand."""
    (ours,) = stage.senders()
    people = [str(line["recipient"]) for line in stage.sandbox.accepted()]
    begun = stage.now()
    said = []
    for theirs in [*dice.sample(people, 3 * len(people) // 4), STRANGER]:
        minute = 0
        for _ in range(dice.choice([1, 1, 2, 6])):
            minute += dice.randint(1, 55)
            at = (begun + timedelta(minutes=minute)).replace(microsecond=0)
            # What one of us writes to a stranger is nobody's business.
            by_hand = theirs != STRANGER and dice.random() < 0.2
            text = dice.choice(WORDS)
            line = stage.sandbox.inbound(ours, theirs, text, at=at, by_hand=by_hand, webhook=False)
            uid, chat_id = str(line["message_uid"]), int(line["chat_id"])
            said.append(Said(uid, chat_id, text, theirs, by_hand, at))
    return said


def _webhook(said: Said, stage: Stage) -> bytes:
    return a_message(
        said.text,
        uid=said.uid,
        at=said.at,
        ours=stage.senders()[0],
        theirs=said.theirs,
        from_us=said.by_hand,
        chat_id=said.chat_id,
    )


def _check_effects(stage: Stage, said: Sequence[Said]) -> None:
    """Every word is in the log, and every lead stands where its words have brought it."""
    logged = stage.ask("""
        SELECT contact, direction, content_rendered AS text FROM gold_communication_log
        WHERE job_id IS NULL
    """)
    there = sorted((str(row["contact"]), row["direction"], row["text"]) for row in logged)
    wanted = sorted(
        (one.theirs, "OUTBOUND" if one.by_hand else "INBOUND", one.text) for one in said
    )
    if there != wanted:
        raise Broken("LOST", f"the log has {there}, said was {wanted}")
    by_person: dict[str, list[Said]] = defaultdict(list)
    for one in said:
        by_person[one.theirs].append(one)
    for row in stage.ask("""
        SELECT c.telefon_principal AS number, j.* FROM gold_lead_journey j
        JOIN gold_companies c ON c.id = j.lead_id
    """):
        _check_lead(stage, row, by_person[str(row["number"])])


def _check_lead(stage: Stage, lead: dict[str, object], said: Sequence[Said]) -> None:
    replies = [one.text for one in said if not one.by_hand]
    stopped = "STOP" in replies
    stage_of_lead = "DEAD" if stopped else "WARM_REPLY" if replies else "CONTACTED_WA"
    held_by = "handset" if any(one.by_hand for one in said) else None
    stands = (lead["reply_count"], lead["engagement_stage"], lead["whatsapp_opted_out"])
    waiting = stage.ask(
        "SELECT 1 FROM outbox_messages WHERE lead_id = :lead AND state = 'planned'",
        lead=lead["lead_id"],
    )
    if stands != (len(replies), stage_of_lead, stopped) or lead["held_by"] != held_by:
        raise Broken("LOST", f"{said} left the lead at {stands}, held by {lead['held_by']}")
    if bool(waiting) == bool(said):
        raise Broken("LOST", f"{len(waiting)} messages wait for a lead that said {said}")
