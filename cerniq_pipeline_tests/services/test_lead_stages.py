"""Leads moved by hand: legal moves only, one at a time, and what follows from each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.leads import AUTOMATED, LEGAL_MOVES, Stage
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.errors import IllegalMove, NotFound
from cerniq_pipeline.services.lead_stages import (
    HandedBack,
    Moved,
    change_stage,
    hand_back,
    legal_moves,
    position,
)
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.store import leads, overview, suppressions
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    Office,
    a_world,
    an_office,
    beginning,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
    wait_until_somebody_waits_for_a_lock,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

DAY = timedelta(days=1)
LATER = NOON + timedelta(hours=1)


def a_lead(database: Engine, *, stage: Stage = Stage.COLD) -> UUID:
    with database.begin() as conn:
        a_world(conn, steps=(FIRST, SECOND))
        (lead_id,) = some_leads(conn)
    run_sql(database, "UPDATE gold_lead_journey SET engagement_stage = :s", s=stage)
    return lead_id


def go(
    database: Engine,
    lead_id: UUID,
    to: Stage,
    *,
    begin: Begin | None = None,
    who: str = "ana",
    now: datetime = NOON,
) -> Moved:
    return change_stage(
        begin or database.begin,
        tenant_id="acme",
        lead_id=lead_id,
        to=to,
        who=who,
        why="they called",
        secret=SECRET,
        now=now,
    )


def give_back(database: Engine, lead_id: UUID, *, now: datetime = NOON) -> HandedBack:
    return hand_back(
        database.begin,
        tenant_id="acme",
        lead_id=lead_id,
        who="ana",
        why="she is done",
        secret=SECRET,
        now=now,
    )


def take_over(database: Engine, lead_id: UUID, *, now: datetime = NOON) -> None:
    """A person types on the handset."""
    with database.begin() as conn:
        leads.lock(conn, "acme", [lead_id])
        leads.hand_to(conn, lead_id, holder="handset", at=now, now=now)
        leads.end_automation(conn, [lead_id], reason="human_takeover", now=now)


def journey(database: Engine) -> dict[str, object]:
    return the_row(database, "SELECT * FROM gold_lead_journey")


def everything(database: Engine) -> list[object]:
    tables = ("gold_lead_journey", "stage_changes", "outbox_messages", "outbox_changes")
    return [rows(database, f"SELECT * FROM {table} ORDER BY 1") for table in tables]


# ── Moves ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stage", Stage)
def test_a_lead_goes_where_the_table_lets_it_and_nowhere_else(database: Engine, stage: Stage):
    lead_id = a_lead(database)
    for to in Stage:
        run_sql(database, "UPDATE gold_lead_journey SET engagement_stage = :s", s=stage)
        run_sql(database, "DELETE FROM stage_changes")
        if to is stage:
            assert go(database, lead_id, to) == Moved(lead_id, stage, to)
            assert rows(database, "SELECT 1 FROM stage_changes") == []
        elif to in LEGAL_MOVES[stage]:
            assert go(database, lead_id, to).stage is stage
            change = the_row(
                database, "SELECT from_stage, to_stage, at, who, why FROM stage_changes"
            )
            assert change == {
                "from_stage": stage,
                "to_stage": to,
                "at": NOON,
                "who": "ana",
                "why": "they called",
            }
            assert journey(database)["engagement_stage"] == to
        else:
            before = everything(database)
            with pytest.raises(IllegalMove) as refused:
                go(database, lead_id, to)
            assert all(legal in str(refused.value) for legal in LEGAL_MOVES[stage])
            assert everything(database) == before


def test_a_move_to_where_people_talk_ends_what_is_automatic(database: Engine):
    lead_id = a_lead(database)
    assert dispatch(database) == (1, 0)
    run_sql(
        database,
        """
        INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, recipient, due_at,
                                     dedupe_key, content, planned_by)
        SELECT tenant_id, channel, 'media', lead_id, recipient, due_at, 'f', 'Oferta', 'dan'
        FROM outbox_messages
        """,
    )
    assert go(database, lead_id, Stage.WARM_REPLY) == Moved(
        lead_id, Stage.COLD, Stage.WARM_REPLY, cancelled=1
    )
    by_kind = rows(database, "SELECT kind, state, reason FROM outbox_messages ORDER BY id")
    assert by_kind == [
        {"kind": "initial", "state": "cancelled", "reason": "stage change"},
        {"kind": "media", "state": "planned", "reason": None},  # a person sends it
    ]
    assert the_row(database, "SELECT who, why FROM outbox_changes") == {
        "who": "ana",
        "why": "stage change",
    }
    lead = journey(database)
    assert (lead["open_message"], lead["next_action_at"]) == (False, None)
    assert lead["hold_reason"] == "conversation"
    assert dispatch(database, now=LATER) == (0, 0)


def test_a_lead_that_was_never_written_to_is_selected_again(database: Engine):
    lead_id = a_lead(database, stage=Stage.PAUSED)
    run_sql(
        database,
        """
        UPDATE gold_lead_journey
        SET next_action_at = NULL, hold_reason = 'conversation', held_by = 'x', held_since = :now
        """,
        now=NOON,
    )
    assert go(database, lead_id, Stage.COLD).goes_on_at == NOON
    lead = journey(database)
    assert (lead["next_action_at"], lead["hold_reason"]) == (NOON, None)
    assert (lead["held_by"], lead["held_since"]) == (None, None)
    assert dispatch(database) == (1, 0)


@pytest.fixture
def office(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Office:
    """A lead that got its first message; the second is planned for tomorrow."""
    office = an_office(database, redis, sandbox, steps=(FIRST, SECOND), delay=DAY)
    assert office.send() is State.SENT
    return office


def the_lead(database: Engine) -> UUID:
    lead_id = journey(database)["lead_id"]
    assert isinstance(lead_id, UUID)
    return lead_id


def test_a_sequence_goes_on_where_it_stopped_and_no_earlier_than_it_would_have(
    office: Office, sandbox: RunningSandbox
):
    database = office.database
    lead_id = the_lead(database)
    due_at = the_row(database, "SELECT due_at FROM outbox_messages WHERE step = 2")["due_at"]
    assert go(database, lead_id, Stage.PAUSED).cancelled == 1

    back = go(database, lead_id, Stage.CONTACTED_WA, now=LATER)

    assert back.goes_on_at == due_at
    assert states(database) == {"sent": 1, "cancelled": 1, "deferred": 1}
    new = the_row(database, "SELECT * FROM outbox_messages WHERE state = 'deferred'")
    assert (new["step"], new["due_at"], new["planned_by"]) == (2, due_at, "ana")
    assert journey(database)["open_message"] is True
    assert dispatch(database, now=LATER) == (0, 0)
    assert office.send_after(DAY) is State.SENT
    assert [line["recipient"] for line in sandbox.accepted()] == ["+40721000000"] * 2
    assert sandbox.duplicates() == []


def test_a_lead_that_goes_to_and_fro_gets_each_step_once(office: Office, sandbox: RunningSandbox):
    database = office.database
    lead_id = the_lead(database)
    for _ in range(3):
        go(database, lead_id, Stage.PAUSED)
        go(database, lead_id, Stage.CONTACTED_WA)
        go(database, lead_id, Stage.CONTACTED_WA)
    assert states(database) == {"sent": 1, "cancelled": 3, "deferred": 1}
    office.send_after(DAY)
    assert len(sandbox.accepted()) == 2
    assert len(rows(database, "SELECT 1 FROM stage_changes WHERE who = 'ana'")) == 6


def test_a_step_that_was_never_planned_waits_for_its_delay(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    office = an_office(database, redis, sandbox, steps=(FIRST, SECOND), delay=DAY)
    message = office.claimed()
    lead_id = the_lead(database)
    go(database, lead_id, Stage.PAUSED)
    assert journey(database)["open_message"] is True  # it is in flight
    assert office.send(message) is State.SENT
    assert states(database) == {"sent": 1}
    assert go(database, lead_id, Stage.CONTACTED_WA, now=LATER).goes_on_at == NOON + DAY
    assert dispatch(database, now=LATER) == (0, 0)
    assert dispatch(database, now=NOON + DAY) == (1, 0)


def test_a_message_that_may_have_gone_out_is_not_sent_again(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    office = an_office(database, redis, sandbox, steps=(FIRST, SECOND), delay=DAY)
    message = office.claimed()
    lead_id = the_lead(database)
    run_sql(database, "UPDATE outbox_messages SET state = 'cancelled', reason = 'dropped: x'")
    run_sql(
        database,
        """
        INSERT INTO outbox_changes (message_id, from_state, to_state, at, who, why)
        VALUES (:id, 'parked', 'cancelled', :now, 'dan', 'dropped: x')
        """,
        id=message.id,
        now=NOON,
    )
    run_sql(database, "UPDATE gold_lead_journey SET open_message = false")
    go(database, lead_id, Stage.PAUSED)
    go(database, lead_id, Stage.COLD)
    assert states(database) == {"cancelled": 1}
    assert dispatch(database) == (0, 1)
    assert journey(database)["hold_reason"] == "already_planned"


@pytest.mark.parametrize("stage", [Stage.WARM_REPLY, Stage.PAUSED, Stage.DEAD])
def test_who_opted_out_never_goes_back_to_automation(database: Engine, stage: Stage):
    lead_id = a_lead(database, stage=stage)
    opt_out(
        database.begin, tenant_id="acme", lead_id=lead_id, secret=SECRET, reason="STOP", now=NOON
    )
    run_sql(database, "UPDATE gold_lead_journey SET engagement_stage = :s", s=stage)
    before = everything(database)
    for to in LEGAL_MOVES[stage] & AUTOMATED:
        with pytest.raises(IllegalMove, match="asked not to be contacted"):
            go(database, lead_id, to)
    assert everything(database) == before
    go(database, lead_id, Stage.WARM_REPLY)
    assert journey(database)["hold_reason"] == "opted_out"


def test_who_is_known_only_by_the_hash_of_a_number_never_goes_back_either(database: Engine):
    lead_id = a_lead(database, stage=Stage.PAUSED)
    run_sql(
        database,
        "INSERT INTO suppressions (tenant_id, key_hmac, reason, at) VALUES ('acme', :k, 'x', :at)",
        k=suppressions.person_key(SECRET, "+40721000000"),
        at=NOON,
    )
    with pytest.raises(IllegalMove, match="asked not to be contacted"):
        go(database, lead_id, Stage.COLD)
    assert not set(position(database.begin, lead_id, secret=SECRET).legal_moves) & AUTOMATED


def test_two_who_move_a_lead_at_once_come_one_after_the_other(database: Engine):
    lead_id = a_lead(database, stage=Stage.WARM_REPLY)
    with ThreadPoolExecutor(1) as other:
        came = []

        def let_the_other_come() -> None:
            came.append(other.submit(go, database, lead_id, Stage.NEGOTIATION, who="dan"))
            wait_until_somebody_waits_for_a_lock(database)

        go(database, lead_id, Stage.CONVERTED, begin=beginning(database, let_the_other_come))
        # Legal from where dan saw it, but not from where ana has left it.
        with pytest.raises(IllegalMove, match="from CONVERTED to NEGOTIATION"):
            came[0].result(timeout=30)
    assert journey(database)["engagement_stage"] == "CONVERTED"
    assert the_row(database, "SELECT who FROM stage_changes") == {"who": "ana"}


def test_a_crowd_of_people_leaves_an_unbroken_trail(database: Engine):
    lead_id = a_lead(database, stage=Stage.PAUSED)

    def wander(turn: int) -> int:
        moved = 0
        for to in [*Stage][turn:] + [*Stage][:turn]:
            try:
                before = go(database, lead_id, to, who=f"person {turn}")
            except IllegalMove:
                continue
            moved += before.stage is not before.to
        return moved

    with ThreadPoolExecutor(4) as crowd:
        moved = sum(crowd.map(wander, range(4)))
    trail = rows(database, "SELECT from_stage, to_stage FROM stage_changes ORDER BY id")
    assert len(trail) == moved
    came_to: object = Stage.PAUSED
    for change in trail:
        assert change["from_stage"] == came_to
        assert Stage(str(change["to_stage"])) in LEGAL_MOVES[Stage(str(came_to))]
        came_to = change["to_stage"]
    assert journey(database)["engagement_stage"] == came_to


def test_a_lead_of_another_tenant_is_not_found(database: Engine):
    lead_id = a_lead(database)
    with pytest.raises(NotFound):
        change_stage(
            database.begin,
            tenant_id="beta",
            lead_id=lead_id,
            to=Stage.DEAD,
            who="ana",
            why="x",
            secret=SECRET,
            now=NOON,
        )
    assert journey(database)["engagement_stage"] == "COLD"


def test_a_position_shows_the_legal_moves_and_the_way_newest_first(database: Engine):
    lead_id = a_lead(database)
    go(database, lead_id, Stage.WARM_REPLY)
    go(database, lead_id, Stage.NEGOTIATION, now=LATER, who="dan")
    take_over(database, lead_id, now=LATER)
    stands = position(database.begin, lead_id, secret=SECRET)
    assert (stands.stage, stands.company, stands.opted_out) == ("NEGOTIATION", "Firma 0", False)
    assert (stands.held_by, stands.held_since) == ("handset", LATER)
    assert stands.legal_moves == legal_moves(Stage.NEGOTIATION, opted_out=False)
    assert set(stands.legal_moves) == LEGAL_MOVES[Stage.NEGOTIATION]
    assert [(change["to_stage"], change["who"]) for change in stands.changes] == [
        ("NEGOTIATION", "dan"),
        ("WARM_REPLY", "ana"),
    ]


# ── Giving back ───────────────────────────────────────────────────────────────────────────────


def test_a_lead_that_is_given_back_goes_on(office: Office):
    database = office.database
    lead_id = the_lead(database)
    due_at = the_row(database, "SELECT due_at FROM outbox_messages WHERE step = 2")["due_at"]
    take_over(database, lead_id)
    office.wait(DAY)
    hold = office.claim()
    assert states(database) == {"sent": 1, "cancelled": 1}, hold

    given = give_back(database, lead_id, now=LATER)

    assert isinstance(due_at, datetime)
    assert given == HandedBack(lead_id, "handset", NOON, None, Stage.CONTACTED_WA, due_at)
    lead = journey(database)
    assert (lead["held_by"], lead["held_since"], lead["hold_reason"]) == (None, None, None)
    assert office.send() is State.SENT
    assert rows(database, "SELECT 1 FROM stage_changes WHERE who = 'ana'") == []


def test_a_lead_that_was_looked_at_goes_on(office: Office):
    database = office.database
    lead_id = the_lead(database)
    run_sql(
        database,
        """
        UPDATE gold_lead_journey SET requires_human_review = true, human_review_reason = 'price',
               human_review_priority = 'HIGH'
        """,
    )
    office.wait(2 * DAY)
    office.claim()
    held = the_row(database, "SELECT state, reason FROM outbox_messages WHERE step = 2")
    assert held == {"state": "deferred", "reason": "human_review: a person must look first: price"}
    with database.begin() as conn:
        (waiting,) = overview.reviews(conn, tenant_id="acme")
    assert (waiting["lead_id"], waiting["priority"], waiting["reason"]) == (
        lead_id,
        "HIGH",
        "price",
    )

    assert give_back(database, lead_id).review == "price"

    assert journey(database)["requires_human_review"] is False
    with database.begin() as conn:
        assert overview.reviews(conn, tenant_id=None) == []
    office.wait(timedelta(hours=2))
    assert office.send() is State.SENT


def test_a_lead_whose_person_wrote_as_another_lead_can_go_on(database: Engine):
    lead_id = a_lead(database, stage=Stage.COLD)
    run_sql(
        database,
        """
        UPDATE gold_lead_journey
        SET next_action_at = NULL, hold_reason = 'reply', in_conversation = true
        """,
    )
    assert give_back(database, lead_id).goes_on_at is not None
    assert journey(database)["hold_reason"] is None


@pytest.mark.parametrize("stage", [Stage.WARM_REPLY, Stage.PAUSED, Stage.CONVERTED])
def test_a_lead_with_whom_people_talk_is_let_go_and_nothing_follows(database: Engine, stage: Stage):
    lead_id = a_lead(database, stage=stage)
    take_over(database, lead_id)
    assert give_back(database, lead_id).goes_on_at is None
    lead = journey(database)
    assert (lead["held_by"], lead["next_action_at"]) == (None, None)


def test_a_lead_that_opted_out_is_let_go_and_nothing_follows(database: Engine):
    lead_id = a_lead(database)
    take_over(database, lead_id)
    opt_out(
        database.begin, tenant_id="acme", lead_id=lead_id, secret=SECRET, reason="STOP", now=NOON
    )
    run_sql(database, "UPDATE gold_lead_journey SET engagement_stage = 'COLD'")
    assert give_back(database, lead_id).goes_on_at is None
    lead = journey(database)
    assert (lead["held_by"], lead["next_action_at"]) == (None, None)
    assert lead["hold_reason"] == "opted_out"


def test_a_lead_that_nobody_holds_cannot_be_given_back(database: Engine):
    lead_id = a_lead(database)
    before = everything(database)
    with pytest.raises(NotFound, match="nobody holds lead"):
        give_back(database, lead_id)
    assert everything(database) == before
