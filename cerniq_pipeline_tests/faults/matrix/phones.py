"""Rows 21 and 22: a provider that takes the wrong phone, and phones that are lost on the way."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from cerniq_pipeline.services.failover import fail_over
from cerniq_pipeline.store import phones as phone_store
from cerniq_pipeline_tests.faults.campaign import wait_for
from cerniq_pipeline_tests.faults.judge import Broken, journal_time
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage, pause

AT_ONCE = timedelta(seconds=5)
"""Within this time everything must have stopped."""

WATCHED = 1.0
"""Seconds for which a phone that has stopped is watched: some thirty messages' time."""

PHONES = 3


def sent_from_another_phone(stage: Stage, dice: random.Random) -> Recovery:
    """Have the provider send from phones that nobody named; then a person lets all go on."""
    each, begin = stage.scale.pick(20, 40), dice.randint(PHONES, 3 * PHONES)
    stage.plan(leads=PHONES * each, limit=each, phones=PHONES)
    others = [f"+4079900000{n}" for n in range(PHONES)]
    with stage.shifts_open():
        wait_for(lambda: len(stage.sandbox.accepted()) >= begin)
        for sender, other in zip(stage.senders(), others, strict=True):
            stage.sandbox.fault("wrong_phone", phone=sender, as_phone=other)
        wait_for(lambda: bool(stage.ask("SELECT 1 FROM switches WHERE scope = 'account'")))
        stopped = datetime.now(UTC)
        with stage.silence(in_flight=PHONES - 1):
            pause(WATCHED)
        wrong = [line for line in stage.sandbox.accepted() if line["sender"] in others]
        _stopped_at_once(stage, stopped - journal_time(wrong[0]))
        stage.sandbox.lift()
        with stage.crew.engine.begin() as conn:
            phone_store.switch_on(conn, scope="account", key="timelinesai")
        stage.fault_over()
    if len(wrong) > PHONES:
        raise Broken("FAILED OPEN", f"{len(wrong)} messages left from other phones: {wrong}")
    alerts = stage.ask("SELECT kind, subject FROM alerts")
    assert [alert["kind"] for alert in alerts] == ["wrong_sender"], f"not one alert: {alerts}"
    assert stage.states() == {"sent": PHONES * each}, stage.states()
    return stage.recovery(f"{len(wrong)} wrong messages from {PHONES} phones")


def phone_lost(stage: Stage, dice: random.Random) -> Recovery:
    """Ban or disconnect one phone in mid-campaign; its leads go elsewhere, or wait for it."""
    each, begin = stage.scale.pick(10, 30), dice.randint(PHONES, 2 * PHONES)
    rule, banned = dice.choice(["hand_over", "wait"]), dice.random() < 0.5
    stage.plan(
        leads=PHONES * each,
        limit=PHONES * each,
        phones=PHONES,
        follow_up=dice.random() < 0.5,
        failover=rule,
        failover_after_minutes=0,
    )
    phone_id, sender = dice.choice(list(zip(stage.phones(), stage.senders(), strict=True)))
    with stage.shifts_open():
        wait_for(lambda: len(stage.sandbox.accepted()) >= begin)
        lost_at = _lose(stage, sender, banned=banned)
        wait_for(lambda: bool(_alerts(stage, phone_id)))
        _stopped_at_once(stage, datetime.now(UTC) - lost_at)
        with stage.silence(in_flight=0, sender=sender):
            pause(WATCHED)
        stage.fault_over()
        if rule == "hand_over":
            wait_for(lambda: _left_after_moving(stage, phone_id) == 0)
        else:
            _bring_back(stage, phone_id, sender)
    alerts = _alerts(stage, phone_id)
    assert len(alerts) == 1, f"not exactly one alert: {alerts}"
    found = stage.states()
    assert found.keys() == {"sent"}, f"leads were left behind: {found}"
    how = "banned" if banned else "disconnected"
    return stage.recovery(f"{how}, {rule}")


def _stopped_at_once(stage: Stage, took: timedelta) -> None:
    """A busy machine, as it is when tests run, may take longer."""
    if took > AT_ONCE and not stage.scale.brief:
        raise Broken("FAILED OPEN", f"it took {took} to stop")


def _lose(stage: Stage, sender: str, *, banned: bool) -> datetime:
    if banned:
        stage.sandbox.fault("banned", phone=sender)
    else:
        stage.sandbox.set_accounts(**{sender: "disconnected"})
    return datetime.now(UTC)


def _bring_back(stage: Stage, phone_id: str, sender: str) -> None:
    stage.sandbox.lift()
    stage.sandbox.set_accounts(**{sender: "active"})
    with stage.crew.engine.begin() as conn:
        phone_store.set_status(
            conn, phone_id, status="ACTIVE", reason="linked again", now=stage.now()
        )


def _alerts(stage: Stage, phone_id: str) -> list[dict[str, object]]:
    return stage.ask("SELECT kind, detail FROM alerts WHERE subject = :phone", phone=phone_id)


def _left_after_moving(stage: Stage, phone_id: str) -> int:
    """Let this phone's leads follow their rule; returns how many still wait there."""
    return fail_over(stage.crew.engine.begin, phone_id, now=stage.now(), who="matrix").left
