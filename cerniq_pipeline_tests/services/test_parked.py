"""Parked sends: marked as sent, sent again as a new message, or dropped; each decided once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.calendar import Calendar
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.domain.replacements import Answer
from cerniq_pipeline.services.leasing import give_back, this_process
from cerniq_pipeline.services.parked import drop, mark_sent, resend
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline.store import parked
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    Office,
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

HOUR = timedelta(hours=1)
LATER = NOON + HOUR
Servers = tuple[Engine, Redis, RunningSandbox]
Decide = Callable[[Begin, int], Answer]


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def in_the_park(servers: Servers, *, accepted: bool = False) -> tuple[Office, int]:
    """An office whose only send is parked; and its id."""
    office = an_office(*servers, steps=(FIRST, SECOND))
    sandbox = servers[2]
    faults = [sandbox.fault("accept_then_cut" if accepted else "cut_before_accept")]
    faults += [sandbox.fault("history_hidden")] if accepted else []
    assert office.send() is State.UNCONFIRMED
    office.wait(HOUR)
    counts = settle_unconfirmed(office.desk, settle_time=HOUR, who="reconcile")
    assert counts == {"parked": 1}
    for fault in faults:
        sandbox.lift(fault)
    message = the_row(office.database, "SELECT id FROM outbox_messages")
    return office, int(str(message["id"]))


def mark(begin: Begin, message_id: int) -> Answer:
    return mark_sent(begin, message_id, by="ana", now=LATER)


def again(begin: Begin, message_id: int) -> Answer:
    return resend(begin, message_id, by="ana", secret=SECRET, now=LATER)


def let_be(begin: Begin, message_id: int) -> Answer:
    return drop(begin, message_id, by="ana", reason="they called us", now=LATER)


def last_move(database: Engine) -> dict[str, object]:
    moves = rows(database, "SELECT from_state, to_state, who, at FROM outbox_changes ORDER BY id")
    return moves[-1]


def everything(database: Engine) -> list[object]:
    """All that a refusal must leave as it was."""
    tables = ("outbox_messages", "outbox_changes", "gold_lead_journey", "quota_ledger")
    return [rows(database, f"SELECT * FROM {table} ORDER BY 1") for table in tables]


def test_a_send_that_is_in_the_chat_is_recorded_with_all_its_consequences(servers: Servers):
    database, _, sandbox = servers
    _, message_id = in_the_park(servers, accepted=True)

    assert mark(database.begin, message_id) == Answer(message_id, True, "recorded as sent")

    message = the_row(database, "SELECT * FROM outbox_messages WHERE id = :id", id=message_id)
    assert (message["state"], message["external_id"]) == ("sent", f"by-hand/{message_id}")
    assert last_move(database) == {
        "from_state": "parked",
        "to_state": "sent",
        "who": "ana",
        "at": LATER,
    }
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["engagement_stage"], lead["open_message"]) == ("CONTACTED_WA", True)
    assert lead["first_contact_at"] == NOON
    logged = the_row(database, "SELECT * FROM gold_communication_log")
    assert logged["content_rendered"] == sandbox.accepted()[0]["text"]
    assert rows(database, "SELECT state FROM quota_ledger") == [{"state": "committed"}]
    follow_up = the_row(database, "SELECT * FROM outbox_messages WHERE step = 2")
    assert follow_up["state"] == "planned"
    assert follow_up["due_at"] == Calendar().next_open(NOON + timedelta(days=1))
    assert len(sandbox.accepted()) == 1


def test_a_send_that_is_not_in_the_chat_goes_out_once_as_a_new_message(servers: Servers):
    database, _, sandbox = servers
    office, message_id = in_the_park(servers)

    answer = again(database.begin, message_id)

    old, new = rows(database, "SELECT * FROM outbox_messages ORDER BY id")
    assert answer == Answer(message_id, True, f"sent again as message {new['id']}")
    assert (old["state"], old["replaced_by"]) == ("cancelled", new["id"])
    assert old["reason"] == answer.said
    assert (new["state"], new["step"], new["due_at"]) == ("planned", 1, LATER)
    assert last_move(database)["who"] == new["planned_by"] == "ana"
    ledger = rows(database, "SELECT message_id, state FROM quota_ledger")
    assert ledger == [{"message_id": message_id, "state": "reserved"}]

    give_back(database.begin, office.lease)
    shift = work_shift(office.desk, "acme-01", this_process("next"), longest=HOUR)
    assert shift.outcomes == {"sent": 1}
    assert len(sandbox.accepted()) == 1
    assert states(database) == {"cancelled": 1, "sent": 1, "planned": 1}


def test_a_dropped_send_closes_its_lead_and_stays_counted(servers: Servers):
    database, *_ = servers
    office, message_id = in_the_park(servers)
    assert let_be(database.begin, message_id).said == "dropped: they called us"
    assert states(database) == {"cancelled": 1}
    message = the_row(database, "SELECT reason, replaced_by FROM outbox_messages")
    assert message == {"reason": "dropped: they called us", "replaced_by": None}
    assert last_move(database)["who"] == "ana"
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["open_message"], lead["hold_reason"]) == (False, "closed_by_hand")
    assert lead["next_action_at"] is None
    assert rows(database, "SELECT state FROM quota_ledger") == [{"state": "reserved"}]
    office.wait(timedelta(days=1))
    assert servers[2].accepted() == []


@pytest.mark.parametrize("first", [mark, again, let_be])
@pytest.mark.parametrize("second", [mark, again, let_be])
def test_of_two_operators_at_once_one_decides(servers: Servers, first: Decide, second: Decide):
    database, *_ = servers
    _, message_id = in_the_park(servers)
    said: list[Answer] = []
    late = threading.Thread(target=lambda: said.append(second(database.begin, message_id)))

    def let_the_other_come() -> None:
        late.start()
        wait_until_somebody_waits_for_a_lock(database)

    assert first(beginning(database, let_the_other_come), message_id).done
    decided = everything(database)
    late.join()
    (refused,) = said
    assert not refused.done
    assert "not parked" in refused.said
    assert everything(database) == decided


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE gold_lead_journey SET whatsapp_opted_out = true", "asked not to be contacted"),
        ("UPDATE gold_lead_journey SET engagement_stage = 'NEGOTIATION'", "NEGOTIATION"),
        ("UPDATE gold_companies SET telefon_principal = NULL", "no number"),
        ("DELETE FROM gold_companies", "its lead is gone"),
    ],
)
def test_nothing_is_sent_again_to_a_lead_that_may_not_be_written_to(
    servers: Servers, change: str, said: str
):
    database, *_ = servers
    _, message_id = in_the_park(servers)
    run_sql(database, change)
    before = everything(database)
    answer = again(database.begin, message_id)
    assert not answer.done
    assert said in answer.said
    assert everything(database) == before


def test_nothing_is_sent_again_where_the_number_has_this_step_already(servers: Servers):
    database, *_ = servers
    _, message_id = in_the_park(servers)
    run_sql(
        database,
        """
        INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, recipient, sequence_id,
                                     step, due_at, state, planned_by)
        SELECT tenant_id, channel, kind, gen_random_uuid(), '+40722999999', sequence_id, step,
               due_at, 'sent', 'test' FROM outbox_messages
        """,
    )
    run_sql(database, "UPDATE gold_companies SET telefon_principal = '+40722999999'")
    before = everything(database)
    answer = again(database.begin, message_id)
    assert answer.said == "this step has a message to that number already"
    assert everything(database) == before


@pytest.mark.parametrize("decide", [mark, let_be])
def test_a_send_to_a_person_who_opted_out_can_still_be_settled(servers: Servers, decide: Decide):
    database, *_ = servers
    _, message_id = in_the_park(servers)
    run_sql(database, "UPDATE gold_lead_journey SET whatsapp_opted_out = true")
    assert decide(database.begin, message_id).done
    assert states(database).keys() <= {"sent", "cancelled"}
    assert the_row(database, "SELECT open_message FROM gold_lead_journey")["open_message"] is False


@pytest.mark.parametrize("decide", [mark, again, let_be])
def test_a_message_that_is_not_parked_is_left_alone(servers: Servers, decide: Decide):
    database, *_ = servers
    office = an_office(*servers)
    assert office.send() is State.SENT
    message_id = int(str(the_row(database, "SELECT id FROM outbox_messages")["id"]))
    before = everything(database)
    assert decide(database.begin, message_id) == Answer(message_id, False, "it is sent, not parked")
    assert "no such message" in decide(database.begin, 999_999).said
    assert everything(database) == before


def test_the_list_has_what_it_takes_to_find_the_message_in_the_chat(servers: Servers):
    database, *_ = servers
    _, message_id = in_the_park(servers)
    with database.begin() as conn:
        (found,) = parked.parked(conn)
        assert parked.parked(conn, tenant_id="beta") == []
        assert parked.parked(conn, tenant_id="acme") == [found]
    assert (found["id"], found["company"], found["phone_id"]) == (message_id, "Firma 0", "acme-01")
    assert (found["recipient"], found["step"]) == ("+40721000000", 1)
    assert (found["begun_at"], found["body"]) == (NOON, "Bună ziua, Firma 0! Pasul unu.")


def test_a_resend_of_the_next_day_counts_on_that_day_too(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, quota=1, gap_least_seconds=0, gap_spread_seconds=0)
    fault = sandbox.fault("cut_before_accept")
    assert office.send() is State.UNCONFIRMED
    sandbox.lift(fault)
    office.wait(HOUR)
    settle_unconfirmed(office.desk, settle_time=HOUR, who="reconcile")
    message = the_row(database, "SELECT id FROM outbox_messages")
    office.wait(timedelta(days=1))
    now = office.clock.now()
    assert resend(database.begin, int(str(message["id"])), by="ana", secret=SECRET, now=now).done
    assert office.send() is State.SENT
    with database.begin() as conn:
        some_leads(conn, first=5, at=now - HOUR)
    assert dispatch(database, now=now) == (0, 0)  # one a day, and that one was opened today
    assert rows(database, "SELECT day, state FROM quota_ledger ORDER BY day") == [
        {"day": NOON.date(), "state": "reserved"},  # it may have gone out after all
        {"day": now.date(), "state": "committed"},
    ]
