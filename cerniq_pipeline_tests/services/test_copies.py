"""One person in several leads: what they say to one of them ends what is automatic for all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.events import Contact, InboundEvent, Kind
from cerniq_pipeline.domain.outbox import OutboxMessage, State
from cerniq_pipeline.errors import SendDeferred, SendUnconfirmed
from cerniq_pipeline.services import parked, recording
from cerniq_pipeline.services.claiming import Nothing
from cerniq_pipeline.services.hearing import hear
from cerniq_pipeline.services.lead_stages import hand_back
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    Office,
    an_office,
    dispatch,
    run_sql,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

GAP = timedelta(minutes=3)
DAY = timedelta(days=1)


@pytest.fixture
def office(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Office:
    """Two leads of one person; the second one's first message is in flight."""
    office = an_office(database, redis, sandbox, steps=(FIRST, SECOND), leads=2)
    run_sql(database, "UPDATE gold_companies SET email_principal = 'ana@firma.example'")
    return office


@pytest.fixture
def in_flight(office: Office) -> OutboxMessage:
    assert office.send() is State.SENT
    office.wait(GAP)
    return office.claimed()


def the_other(database: Engine, message: OutboxMessage) -> dict[str, object]:
    """The lead of this person that the message does not go to."""
    return the_row(
        database,
        "SELECT c.* FROM gold_companies c WHERE id <> :lead",
        lead=message.lead_id,
    )


def the_lead_of(database: Engine, message: OutboxMessage) -> dict[str, object]:
    return the_row(
        database, "SELECT * FROM gold_lead_journey WHERE lead_id = :lead", lead=message.lead_id
    )


def said_to_the_other(
    database: Engine,
    message: OutboxMessage,
    text: str = "Bună, mă interesează",
    kind: Kind = Kind.MESSAGE_RECEIVED,
) -> None:
    """Let something be said in the chat with the person's other lead."""
    number = str(the_other(database, message)["telefon_principal"])
    event = InboundEvent(
        kind=kind,
        provider="timelinesai",
        channel="WHATSAPP",
        at=NOON + GAP,
        account="+40790000000",
        contact=Contact(phone=number),
        external_id="said-1",
        text=text,
    )
    with database.begin() as conn:
        hear(conn, event, secret=SECRET, now=NOON + GAP)


# ── However the message in flight ends ────────────────────────────────────────────────────────


def arrives(office: Office, message: OutboxMessage) -> None:
    assert office.send(message) is State.SENT


def is_found_later(office: Office, message: OutboxMessage) -> None:
    gone_silent(office, message)
    found = settle_unconfirmed(office.desk, settle_time=timedelta(minutes=15), who="test")
    assert found == {"sent": 1}


def gone_silent(office: Office, message: OutboxMessage) -> None:
    office.desk.channels["timelinesai"].send(message)
    silence = SendUnconfirmed("NO_ANSWER", "the line went dead")
    assert recording.record(office.desk, message, silence, who="test") is State.UNCONFIRMED


def is_marked_by_hand(office: Office, message: OutboxMessage) -> None:
    is_parked(office, message)
    marked = parked.mark_sent(office.desk.begin, message.id, by="ana", now=office.clock.now())
    assert marked.done


def is_parked(office: Office, message: OutboxMessage) -> None:
    silence = SendUnconfirmed("NO_ANSWER", "the line went dead")
    recording.record(office.desk, message, silence, who="test")
    assert settle_unconfirmed(office.desk, settle_time=timedelta(), who="test") == {"parked": 1}


def is_put_off(office: Office, message: OutboxMessage) -> None:
    later = SendDeferred("RATE_LIMITED", "too many")
    assert recording.record(office.desk, message, later, who="test") is State.DEFERRED


@pytest.mark.parametrize("ends", [arrives, is_found_later, is_marked_by_hand, is_put_off])
def test_a_reply_to_one_lead_ends_the_sequence_of_a_copy_in_flight(
    database: Engine,
    office: Office,
    in_flight: OutboxMessage,
    ends: Callable[[Office, OutboxMessage], None],
):
    said_to_the_other(database, in_flight)
    ends(office, in_flight)
    office.wait(DAY)
    assert isinstance(office.claim(), Nothing)
    assert dispatch(database, now=office.clock.now()) == (0, 0)
    assert not {"planned", "deferred"} & states(database).keys()
    lead = the_lead_of(database, in_flight)
    assert (lead["in_conversation"], lead["open_message"]) == (True, False)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Kind.MESSAGE_SENT_ELSEWHERE, "Bună, sunt Ion", "human_takeover"),
        (Kind.MESSAGE_RECEIVED, "poate nu mai scrieți chiar zilnic", "reply"),
        (Kind.CALL, "", "reply"),
    ],
    ids=["takeover", "likely stop", "call"],
)
def test_so_does_whatever_else_ends_what_is_automatic(
    database: Engine,
    office: Office,
    in_flight: OutboxMessage,
    kind: Kind,
    text: str,
    reason: str,
):
    said_to_the_other(database, in_flight, text, kind)
    arrives(office, in_flight)
    assert the_lead_of(database, in_flight)["hold_reason"] == reason
    assert not {"planned", "deferred"} & states(database).keys()


def test_what_is_parked_is_not_sent_again_to_who_answered_as_another_lead(
    database: Engine, office: Office, in_flight: OutboxMessage
):
    is_parked(office, in_flight)
    said_to_the_other(database, in_flight)
    now = office.clock.now()
    again = parked.resend(office.desk.begin, in_flight.id, by="ana", secret=SECRET, now=now)
    assert not again.done
    assert again.said == "people talk to this person; hand the lead back first"


def test_a_person_may_give_the_copy_back_to_its_sequence(
    database: Engine, office: Office, in_flight: OutboxMessage
):
    said_to_the_other(database, in_flight)
    arrives(office, in_flight)
    handed = hand_back(
        office.desk.begin,
        tenant_id="acme",
        lead_id=in_flight.lead_id,
        who="ana",
        why="another department",
        secret=SECRET,
        now=office.clock.now(),
    )
    assert handed.goes_on_at is not None
    office.wait(2 * DAY)
    assert dispatch(database, now=office.clock.now()) == (1, 0)


@pytest.mark.parametrize(
    ("column", "first", "second"),
    [
        ("cui", "RO 10000008", "10000008"),
        ("email_principal", "Ana@Firma.example", "ana@firma.example"),
        ("telefon_principal", "0721 000 001", "+40721000001"),
    ],
)
def test_copies_are_known_by_number_address_and_company(
    database: Engine,
    redis: Redis,
    sandbox: RunningSandbox,
    column: str,
    first: str,
    second: str,
):
    office = an_office(database, redis, sandbox, steps=(FIRST, SECOND), leads=2)
    assert office.send() is State.SENT
    office.wait(GAP)
    in_flight = office.claimed()
    other = UUID(str(the_other(database, in_flight)["id"]))
    for lead_id, spelt in ((in_flight.lead_id, first), (other, second)):
        run_sql(
            database,
            f"UPDATE gold_companies SET {column} = :spelt WHERE id = :id",
            id=lead_id,
            spelt=spelt,
        )
    said_to_the_other(database, in_flight)
    arrives(office, in_flight)
    assert the_lead_of(database, in_flight)["hold_reason"] == "reply"
    assert not {"planned", "deferred"} & states(database).keys()
