"""Every kind of event, and all that follows from it: once, in any order, for the right lead."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.events import Contact, InboundEvent, InboundMedia, Kind
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.errors import UnknownReceiver
from cerniq_pipeline.services.claiming import Nothing
from cerniq_pipeline.services.hearing import hear
from cerniq_pipeline.store import receivers
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    Office,
    a_world,
    an_office,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

OURS = "+40790000000"
THEIRS = "+40721000000"
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
Servers = tuple[Engine, Redis, RunningSandbox]


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def a_reply(text: str = "Bună, mă interesează", **changes: object) -> InboundEvent:
    """What the first lead writes to the first phone."""
    event = InboundEvent(
        kind=Kind.MESSAGE_RECEIVED,
        provider="timelinesai",
        channel="WHATSAPP",
        at=NOON + MINUTE,
        account=OURS,
        contact=Contact(phone=THEIRS, name="Ana Pop"),
        external_id="reply-1",
        chat_id="77",
        text=text,
    )
    return replace(event, **changes)  # pyright: ignore[reportArgumentType]


def heard(database: Engine, event: InboundEvent, *, now: datetime = NOON + 2 * MINUTE) -> str:
    with database.begin() as conn:
        return hear(conn, event, secret=SECRET, now=now)


def the_lead(database: Engine) -> dict[str, object]:
    return the_row(database, "SELECT * FROM gold_lead_journey")


def the_log(database: Engine, direction: str = "INBOUND") -> list[dict[str, object]]:
    return rows(
        database,
        "SELECT * FROM gold_communication_log WHERE direction = :way ORDER BY sent_at",
        way=direction,
    )


@pytest.fixture
def office(servers: Servers) -> Office:
    """A lead that got its first message; the second one waits."""
    office = an_office(*servers, steps=(FIRST, SECOND))
    assert office.send() is State.SENT
    return office


# ── A reply ───────────────────────────────────────────────────────────────────────────────────


def test_a_reply_stops_the_sequence_and_warms_the_lead(database: Engine, office: Office):
    assert states(database) == {"sent": 1, "planned": 1}
    result = heard(database, a_reply())
    lead = the_lead(database)
    assert (
        result
        == f"message_received of lead {lead['lead_id']}, 1 messages cancelled, now WARM_REPLY"
    )
    assert (lead["engagement_stage"], lead["previous_stage"]) == ("WARM_REPLY", "CONTACTED_WA")
    assert (lead["reply_count"], lead["last_reply_at"]) == (1, NOON + MINUTE)
    assert (lead["open_message"], lead["next_action_at"]) == (False, None)
    assert lead["hold_reason"] == "reply"
    assert lead["requires_human_review"] is False
    cancelled = the_row(database, "SELECT * FROM outbox_messages WHERE state = 'cancelled'")
    assert (cancelled["step"], cancelled["reason"]) == (2, "reply")
    audit = the_row(database, "SELECT * FROM stage_changes WHERE to_stage = 'WARM_REPLY'")
    assert (audit["from_stage"], audit["who"], audit["why"]) == ("CONTACTED_WA", "inbox", "reply")
    office.wait(DAY)
    assert office.claim() == Nothing(None)
    assert dispatch(database, now=NOON + DAY) == (0, 0)


def test_a_reply_is_logged_in_its_conversation(database: Engine, office: Office):
    heard(database, a_reply())
    (said,) = the_log(database)
    conversation = the_row(database, "SELECT * FROM whatsapp_conversations")
    assert (said["content"], said["status"]) == ("Bună, mă interesează", "DELIVERED")
    assert (said["contact"], said["phone_id"], said["thread_id"]) == (THEIRS, "acme-01", "77")
    assert said["conversation_id"] == conversation["id"]
    assert conversation["customer_phone"] == THEIRS
    assert conversation["customer_name"] == "Ana Pop"
    assert conversation["message_count"] == 2  # what we wrote counts too
    assert conversation["window_opened_at"] == NOON + MINUTE
    assert conversation["window_expires_at"] == NOON + MINUTE + DAY
    shown = rows(database, "SELECT * FROM whatsapp_messages ORDER BY sent_at")
    told = ("direction", "status", "sender_phone", "recipient_phone")
    assert [tuple(one[name] for name in told) for one in shown] == [
        ("outbound", "sent", OURS, THEIRS),
        ("inbound", "delivered", THEIRS, OURS),
    ]


def test_the_same_message_twice_has_its_effects_once(database: Engine, office: Office):
    heard(database, a_reply())
    run_sql(database, "UPDATE gold_lead_journey SET hold_reason = NULL, next_action_at = now()")
    assert heard(database, a_reply()) == "heard before"
    lead = the_lead(database)
    assert (lead["reply_count"], lead["hold_reason"]) == (1, None)
    assert len(the_log(database)) == 1


def test_stop_beats_everything_else(database: Engine, office: Office):
    result = heard(database, a_reply("Stop, nu mai vreau mesaje"))
    lead = the_lead(database)
    assert "opted out, 1 messages cancelled" in result
    assert (lead["whatsapp_opted_out"], lead["email_opted_out"]) == (True, True)
    assert (lead["engagement_stage"], lead["hold_reason"]) == ("DEAD", "opted_out")
    assert lead["opted_out_at"] == NOON + MINUTE
    assert len(rows(database, "SELECT 1 FROM suppressions WHERE scope = 'person'")) == 1
    assert states(database) == {"sent": 1, "cancelled": 1}


def test_a_keyword_asks_for_a_person_soon(database: Engine, office: Office):
    heard(database, a_reply("Cât costă?"))
    lead = the_lead(database)
    assert lead["requires_human_review"] is True
    assert (lead["human_review_priority"], lead["human_review_reason"]) == ("HIGH", "price")


def test_somebody_unknown_is_kept_and_shown(database: Engine, office: Office):
    stranger = a_reply(contact=Contact(phone="+40733999999"), chat_id="88")
    assert heard(database, stranger) == "message_received of somebody unknown, 0 messages cancelled"
    (said,) = the_log(database)
    assert (said["lead_journey_id"], said["contact"]) == (None, "+40733999999")
    assert the_lead(database)["engagement_stage"] == "CONTACTED_WA"


def test_a_person_with_an_id_and_no_number_is_known_by_it(database: Engine, office: Office):
    both = Contact(phone=THEIRS, user_id="RO.1349")
    heard(database, a_reply(contact=both))
    heard(
        database,
        a_reply(
            contact=Contact(user_id="RO.1349"),
            external_id="reply-2",
            chat_id=None,
            at=NOON + 2 * MINUTE,
        ),
    )
    assert the_lead(database)["reply_count"] == 2
    assert the_row(database, "SELECT message_count FROM whatsapp_conversations") == {
        "message_count": 3
    }


def test_two_conversations_become_one_when_they_are_the_same_person(
    database: Engine, office: Office
):
    heard(database, a_reply(contact=Contact(user_id="RO.1349"), chat_id=None))
    assert len(rows(database, "SELECT 1 FROM whatsapp_conversations")) == 2
    heard(database, a_reply(contact=Contact(phone=THEIRS, user_id="RO.1349"), external_id="r2"))
    conversation = the_row(database, "SELECT * FROM whatsapp_conversations")
    assert (conversation["message_count"], conversation["customer_user_id"]) == (3, "RO.1349")


def test_a_file_is_kept_with_its_id(database: Engine, office: Office):
    picture = InboundMedia("image", "image/jpeg", provider_id="1003")
    heard(database, a_reply("poza", media=(picture,), message_type="image"))
    (said,) = the_log(database)
    assert (said["message_type"], said["media_type"], said["media_id"]) == (
        "image",
        "image",
        "1003",
    )


def test_what_postgres_cannot_hold_does_not_lose_the_message(database: Engine, office: Office):
    heard(database, a_reply("a\0b \ud800 c"))
    (said,) = the_log(database)
    assert said["content"] == "ab ? c"


# ── Who else speaks ───────────────────────────────────────────────────────────────────────────


def typed(text: str = "Bună, sunt Ion de la vânzări", **changes: object) -> InboundEvent:
    changes = {"kind": Kind.MESSAGE_SENT_ELSEWHERE, "external_id": "hand-1", **changes}
    return a_reply(text, **changes)


def test_somebody_who_types_on_the_handset_takes_the_lead_over(database: Engine, office: Office):
    assert "taken over by hand" in heard(database, typed())
    lead = the_lead(database)
    assert (lead["held_by"], lead["held_since"]) == ("handset", NOON + MINUTE)
    assert (lead["hold_reason"], lead["engagement_stage"]) == ("human_takeover", "CONTACTED_WA")
    assert states(database) == {"sent": 1, "cancelled": 1}
    assert [one["content_rendered"] for one in the_log(database, "OUTBOUND")][1:] == [
        "Bună, sunt Ion de la vânzări"
    ]


@pytest.mark.parametrize("by_api", [True, False])
def test_our_own_echo_is_never_a_reply(database: Engine, office: Office, by_api: bool):
    sent = the_row(database, "SELECT external_id, body FROM outbox_messages WHERE state = 'sent'")
    echo = typed(str(sent["body"]), external_id=str(sent["external_id"]), by_api=by_api)
    assert heard(database, echo) == "the echo of a message of ours"
    assert the_lead(database)["held_by"] is None
    assert states(database) == {"sent": 1, "planned": 1}


def test_an_echo_that_is_quicker_than_our_own_record_is_known_by_its_words(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    message = office.claimed()
    assert heard(database, typed(message.body)) == "the echo of a message of ours"
    assert office.send(message) is State.SENT
    assert states(database) == {"sent": 1, "planned": 1}


def test_a_takeover_during_a_send_ends_the_sequence_after_it(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    message = office.claimed()
    heard(database, typed())
    assert office.send(message) is State.SENT
    assert states(database) == {"sent": 1}
    assert the_lead(database)["hold_reason"] == "human_takeover"


def test_our_phones_do_not_talk_to_leads_when_they_talk_to_each_other(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=2)
    between = a_reply(contact=Contact(phone="+40790000001"))
    assert heard(database, between) == "between two phones of ours"
    assert the_log(database) == []


@pytest.mark.parametrize("account", ["+40799999999", None])
def test_what_came_to_no_phone_of_ours_is_never_taken_for_heard(
    database: Engine, office: Office, account: str | None
):
    with pytest.raises(UnknownReceiver):
        heard(database, a_reply(account=account))
    with database.begin() as conn:
        receivers.note(conn, "+40799999999", tenant_id=None, by="ana", now=NOON)
    foreign = a_reply(account="+40799999999")
    assert heard(database, foreign) == "to a number or an address that is nobody's here"
    assert the_log(database) == []


def test_everyone_with_the_same_number_is_the_same_person(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    assert office.send() is State.SENT
    with database.begin() as conn:
        (twin,) = some_leads(conn, first=1)
    run_sql(
        database,
        "UPDATE gold_companies SET telefon_principal = '0721 000 000' WHERE id = :id",
        id=twin,
    )
    heard(database, a_reply())
    stages = rows(
        database,
        "SELECT engagement_stage, next_action_at, hold_reason FROM gold_lead_journey ORDER BY 1",
    )
    assert [one["engagement_stage"] for one in stages] == ["COLD", "WARM_REPLY"]
    assert {one["hold_reason"] for one in stages} == {"reply"}
    assert {one["next_action_at"] for one in stages} == {None}
    assert isinstance(twin, UUID)
