"""Row 45: other systems write what nobody can read into leads of a campaign that is under way."""

from __future__ import annotations

import random
import uuid
from datetime import timedelta

from sqlalchemy import text

from cerniq_pipeline.domain.holds import HUMAN_RECHECK, Installation
from cerniq_pipeline.services.explain import why
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline_tests.builders import SECRET, run_sql
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.listening import hear_all, hearing_desk
from cerniq_pipeline_tests.faults.matrix.refusals import Walk
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage
from cerniq_pipeline_tests.faults.said import a_message, keep
from cerniq_pipeline_tests.faults.shift_process import Trap
from cerniq_pipeline_tests.faults.spoiling import GOES_ON, STANDS_STILL, without_checks

PHONES = 2
HERE = Installation(live=False, providers=("timelinesai",))
DEATHS = ("claim_before_commit", "call_answered", "record_before_commit")
"""Where nothing has left yet, or the history shows it: in doubt is parked, as in row 1."""


def spoilt_on_the_way(stage: Stage, dice: random.Random) -> Recovery:
    """Spoil random leads between the beats of shifts, some of which die.

    Those stand still whose message had not been begun, and nobody else does. Then some of them ask
    to stop, and the data of the others is mended: they get their message.
    """
    each = stage.scale.pick(8, 60)
    stage.plan(leads=PHONES * each, limit=PHONES * each, phones=PHONES)
    without_checks(stage.crew.engine)
    walk = Walk(stage, dice)
    untouched = [row["lead_id"] for row in stage.ask("SELECT lead_id FROM outbox_messages")]
    dice.shuffle(untouched)
    still: dict[uuid.UUID, str] = {}
    kinds = [*STANDS_STILL, *STANDS_STILL, *GOES_ON]
    dice.shuffle(kinds)
    deaths = 0
    while kinds:
        for _ in range(dice.randint(0, 3)):
            dice.choice([walk.claim, walk.record])()
        if dice.random() < 1 / 4:
            deaths += _die(stage, walk, dice)
        kind, lead_id = kinds.pop(), untouched.pop()
        assert isinstance(lead_id, uuid.UUID)
        if _spoil(stage, lead_id, kind):
            still[lead_id] = kind
    _work(stage, walk)
    stage.fault_over()
    _judge_still(stage, still)
    stopped = [lead_id for lead_id in still if dice.random() < 1 / 2]
    for lead_id in stopped:
        _stop(stage, lead_id, by_reply=dice.random() < 1 / 2)
    _mend(stage, [lead_id for lead_id in still if lead_id not in stopped])
    stage.move_time(HUMAN_RECHECK + timedelta(minutes=1))
    _work(stage, walk)
    stage.come_to_rest()
    ended = {"sent": PHONES * each - len(stopped), "cancelled": len(stopped)}
    if stage.states() != {state: count for state, count in ended.items() if count}:
        raise Broken("STUCK", f"after all is mended: {stage.states()}, not {ended}")
    reviews = stage.ask("SELECT lead_id FROM gold_lead_journey WHERE requires_human_review")
    if {row["lead_id"] for row in reviews} - set(stopped):
        raise Broken("STUCK", f"mended, and still before a person: {reviews}")
    return stage.recovery(f"{len(still)} stood still, {len(stopped)} stopped, {deaths} deaths")


def _die(stage: Stage, walk: Walk, dice: random.Random) -> int:
    """Let a shift of a phone that nobody holds die at some point of its work."""
    free = [phone for phone in stage.phones() if phone not in walk.in_flight]
    if not free:
        return 0
    stage.crew.start(dice.choice(free), trap=Trap(dice.choice(DEATHS))).wait()
    return 1


def _spoil(stage: Stage, lead_id: uuid.UUID, kind: str) -> bool:
    """Write into one lead as a stranger would; whether its message has to stand still."""
    with stage.crew.engine.begin() as conn:
        lead = {"lead": lead_id}
        conn.execute(text("SELECT 1 FROM gold_lead_journey WHERE lead_id = :lead FOR UPDATE"), lead)
        state = conn.execute(
            text("SELECT state FROM outbox_messages WHERE lead_id = :lead"), lead
        ).scalar_one()
        conn.execute(text((STANDS_STILL | GOES_ON)[kind]), lead)
    return kind in STANDS_STILL and state in ("planned", "deferred")


def _work(stage: Stage, walk: Walk) -> None:
    """Go on in this process until nothing is due or in doubt."""
    for _ in range(1000):
        if not walk.in_flight and not stage.crew.busy():
            return
        stage.move_time(timedelta(milliseconds=200))
        walk.claim()
        walk.record()
        if not walk.in_flight:
            stage.look_up()
    raise Broken("STUCK", f"{stage.states()}")


def _judge_still(stage: Stage, still: dict[uuid.UUID, str]) -> None:
    messages = {
        row["lead_id"]: row
        for row in stage.ask("SELECT lead_id, state, reason FROM outbox_messages")
    }
    others = {row["state"] for lead_id, row in messages.items() if lead_id not in still}
    if others != {"sent"}:
        raise Broken("STUCK", f"leads with nothing wrong, or nothing that matters: {others}")
    for lead_id, kind in still.items():
        message = messages[lead_id]
        told = why(
            stage.crew.engine.begin,
            str(lead_id),
            tenant_id=None,
            secret=SECRET,
            here=HERE,
            now=stage.now(),
        )
        (lead,) = stage.ask(
            "SELECT human_review_reason AS why FROM gold_lead_journey WHERE lead_id = :id",
            id=lead_id,
        )
        seen = (message["state"], told.rule, lead["why"])
        if seen != ("deferred", "bad_data", "bad data") or "bad_data" not in str(message["reason"]):
            raise Broken("UNSEEN", f"{kind}: {seen}, {message['reason']}")


def _stop(stage: Stage, lead_id: uuid.UUID, *, by_reply: bool) -> None:
    if not by_reply:  # as the unsubscribe page and `cerniq stop` do
        opt_out(
            stage.crew.engine.begin,
            tenant_id="acme",
            lead_id=lead_id,
            secret=SECRET,
            reason="asked to stop",
            now=stage.now(),
        )
        return
    (message,) = stage.ask(
        "SELECT recipient FROM outbox_messages WHERE lead_id = :lead", lead=lead_id
    )
    said = a_message(
        "STOP", at=stage.now(), ours=stage.senders()[0], theirs=str(message["recipient"])
    )
    desk = hearing_desk(stage)
    with desk.begin() as conn:
        keep(conn, [said], now=stage.now(), source="sweep")
    assert hear_all(stage, desk) == {"done": 1}


def _mend(stage: Stage, lead_ids: list[uuid.UUID]) -> None:
    run_sql(
        stage.crew.engine,
        """
        UPDATE gold_lead_journey SET engagement_stage = 'COLD', lawful_basis = 'consent'
        WHERE lead_id = ANY(:leads)
        """,
        leads=lead_ids,
    )
    run_sql(
        stage.crew.engine,
        "UPDATE gold_companies SET denumire = 'Firma' WHERE id = ANY(:leads)",
        leads=lead_ids,
    )
