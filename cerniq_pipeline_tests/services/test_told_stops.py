"""A stop that a provider heard before us, told as what became of a message, stops the person."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.events import WebhookReader
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.domain.outbox import OutboxMessage, Receipt, State
from cerniq_pipeline.errors import SendRejected, SendUnconfirmed
from cerniq_pipeline.providers.dropcowboy.webhooks import DropCowboyWebhooks
from cerniq_pipeline.providers.meta.webhooks import MetaWebhooks
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline.providers.twilio.webhooks import TwilioWebhooks
from cerniq_pipeline.providers.vonage.webhooks import VonageWebhooks
from cerniq_pipeline.services import dead_letters, drain, recording, sending, work_shift
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.hearing import hear_stop
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.store import inbox
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    Office,
    an_office,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

Servers = tuple[Engine, Redis, RunningSandbox]
OURS, THEIRS = "+40790000000", "+40721000000"
READERS: dict[str, WebhookReader] = {
    reader.provider: reader
    for reader in (
        MetaWebhooks(("secret",)),
        TimelinesAIWebhooks(("token",)),
        TwilioWebhooks(("secret",)),
        VonageWebhooks(("secret",)),
        DropCowboyWebhooks(("secret",)),
    )
}


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


@pytest.fixture
def office(servers: Servers) -> Office:
    """A phone with Meta, and a lead with a copy: the same company with another number."""
    database, *_ = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    with database.begin() as conn:
        some_leads(conn, first=7, cui="RO 123")
    run_sql(database, "UPDATE gold_companies SET cui = 'RO123' WHERE cui IS NULL")
    run_sql(
        database,
        """
        UPDATE wa_phone_numbers SET provider = 'meta', timelinesai_account_id = NULL,
               meta_phone_number_id = '1065'
        """,
    )
    run_sql(database, "UPDATE templates SET approved_name = 'intro_ro'")
    return office


def meta_stop(*, code: int = 131050, **named: str) -> bytes:
    """Meta's status about a message to somebody who wants no more of them."""
    told = {
        "status": "failed",
        "timestamp": str(int(NOON.timestamp())),
        "errors": [{"code": code, "title": "User has stopped marketing messages"}],
        **named,
    }
    value = {"metadata": {"display_phone_number": OURS}, "statuses": [told]}
    change = {"field": "messages", "value": value}
    return json.dumps({"object": "whatsapp", "entry": [{"id": "1", "changes": [change]}]}).encode()


def hear(office: Office, body: bytes, provider: str = "meta") -> None:
    """Keep a body as the web service does, and handle it."""
    told = READERS[provider].envelope(body)
    first = (told.account or "", told.contact or "")
    copy = InboundCopy(provider, told.event_key, told.event_type, *first, body, told.people)
    with office.database.begin() as conn:
        inbox.keep(conn, [copy], source="webhook", now=office.clock.now())
    assert handle_waiting(office.desk, READERS) == {"done": 1}


def stopped(database: Engine) -> list[bool]:
    """Of each lead whether it was stopped on all channels, for good."""
    found = rows(
        database,
        """
        SELECT whatsapp_opted_out AND email_opted_out AND engagement_stage = 'DEAD' AS stopped
        FROM gold_lead_journey
        """,
    )
    return [bool(row["stopped"]) for row in found]


def record(office: Office, message: OutboxMessage, outcome: Any) -> State:
    return recording.record(office.desk, message, outcome, who="test")


# ── Whenever it is told, and whatever it names ────────────────────────────────────────────────

BY_ID, BY_OURS = {"id": "wamid.1"}, {"id": "wamid.1", "biz_opaque_callback_data": "1"}
BY_NUMBER, BY_USER_ID = {"recipient_id": THEIRS[1:]}, {"recipient_user_id": "RO.123"}


@pytest.mark.parametrize(
    "named",
    [BY_ID | BY_USER_ID, BY_OURS | BY_USER_ID, BY_NUMBER, BY_ID | BY_NUMBER],
    ids=["their id", "our id", "number", "id and number"],
)
@pytest.mark.parametrize("moment", ["in flight", "unconfirmed", "recorded"])
def test_a_told_stop_stops_the_person_whatever_it_names_and_whenever(
    servers: Servers, office: Office, named: dict[str, str], moment: str
):
    database, *_ = servers
    message = office.claimed()
    accepted = Receipt("wamid.1", None)
    if moment == "in flight":
        hear(office, meta_stop(**named))
        record(office, message, accepted)
    elif moment == "recorded":
        record(office, message, accepted)
        hear(office, meta_stop(**named))
    else:
        record(office, message, SendUnconfirmed("SILENCE", "nobody answered"))
        hear(office, meta_stop(**named))
        proof = meta_stop(**BY_OURS | BY_NUMBER, code=131026).replace(b"failed", b"sent")
        hear(office, proof)
    assert stopped(database) == [True, True]
    assert states(database).get("planned", 0) == 0
    assert rows(database, "SELECT 1 FROM early_deliveries WHERE status = 'stop'") == []


@pytest.mark.parametrize("named", [BY_OURS, BY_NUMBER], ids=["our id", "number"])
def test_a_stop_about_a_parked_send_stops_the_person(
    servers: Servers, office: Office, named: dict[str, str]
):
    database, *_ = servers
    record(office, office.claimed(), SendUnconfirmed("SILENCE", "nobody answered"))
    office.wait(timedelta(hours=1))
    settle_unconfirmed(office.desk, settle_time=timedelta(), who="test")
    assert states(database) == {"parked": 1}
    hear(office, meta_stop(**named))
    assert stopped(database) == [True, True]


def test_a_reference_that_another_provider_wrote_is_none_of_ours(office: Office):
    message = office.claimed()
    sms = {"message_uuid": str(uuid.uuid4()), "to": "40799", "from": "40312", "status": "rejected"}
    sms |= {"err-code": "9", "client-ref": str(message.id), "timestamp": NOON.isoformat()}
    hear(office, json.dumps(sms).encode(), "vonage")
    assert stopped(office.database) == [False, False]


def test_a_stop_about_a_message_of_no_lead_is_kept_and_asked_about_no_further(office: Office):
    run_sql(
        office.database,
        """
        INSERT INTO gold_communication_log
          (tenant_id, channel, direction, external_message_id, status, sent_at)
        VALUES ('acme', 'WHATSAPP', 'OUTBOUND', 'wamid.1', 'SENT', now())
        """,
    )
    (told,) = READERS["meta"].read(meta_stop(id="wamid.1"), received_at=NOON)
    with office.desk.begin() as conn:
        assert hear_stop(conn, told, secret=SECRET, now=NOON)
    kept = the_row(office.database, "SELECT external_id, status FROM early_deliveries")
    assert kept == {"external_id": "wamid.1", "status": "stop"}


def test_who_stops_before_we_know_them_is_never_written_to(servers: Servers, office: Office):
    database, *_ = servers
    run_sql(database, "DELETE FROM outbox_messages")
    hear(office, meta_stop(id="wamid.unknown", recipient_id="40721000020"))
    with database.begin() as conn:
        some_leads(conn, first=20)
    dispatch(database)
    for _ in range(3):
        office.wait(timedelta(minutes=5))
        claimed = office.claim()
        if isinstance(claimed, OutboxMessage):
            assert claimed.to != "+40721000020"
            record(office, claimed, Receipt(f"wamid.{claimed.id}", None))


# ── Every vendor's words ──────────────────────────────────────────────────────────────────────


def twilio(**named: str) -> bytes:
    return urlencode(
        {
            "MessageStatus": "undelivered",
            "ErrorCode": "21610",
            "AccountSid": "AC1",
            "From": "+40312345678",
            "To": THEIRS,
            **named,
        }
    ).encode()


def vonage(**named: str) -> bytes:
    told = {"to": "40312345678", "msisdn": THEIRS[1:], "status": "rejected", "err-code": "9"}
    return json.dumps(told | named).encode()


def dropcowboy(**named: str) -> bytes:
    data = {"status": "failure", "reason": "DNC", "reason_code": 4016, "to": THEIRS, **named}
    told = {"event_id": "e", "event": "contact.rvm.status", "event_at": 1768471200000}
    return json.dumps({**told, "data": data}).encode()


def timelinesai(**named: str) -> bytes:
    reason = {"code": 131050, "title": "User has stopped marketing messages"}
    told = {
        "event_type": "waba:message:failed",
        "whatsapp_account": {"phone": OURS},
        "chat": {"chat_id": 1, "phone": THEIRS, "is_group": False},
        "message": {"failure_reason": reason, "recipient": {"phone": THEIRS}, **named},
    }
    return json.dumps(told).encode()


VENDORS: list[tuple[str, Callable[..., bytes], str]] = [
    ("twilio", twilio, "MessageSid"),
    ("vonage", vonage, "messageId"),
    ("dropcowboy", dropcowboy, "drop_id"),
    ("timelinesai", timelinesai, "message_uid"),
]


@pytest.mark.parametrize(("provider", "told", "id_name"), VENDORS, ids=[row[0] for row in VENDORS])
@pytest.mark.parametrize("with_id", [True, False], ids=["of a message", "of nobody's message"])
def test_every_vendors_stop_stops_the_number_it_names(
    servers: Servers,
    office: Office,
    provider: str,
    told: Callable[..., bytes],
    id_name: str,
    with_id: bool,
):
    _, _, sandbox = servers
    sandbox.fault("server_error", status=503, operation="any")  # a stop waits for no answer
    body = told(**({id_name: "unknown"} if with_id else {}))
    reader = READERS[provider]
    kept = reader.envelope(body)
    first = (kept.account or "", kept.contact or "")
    copy = InboundCopy(provider, kept.event_key, kept.event_type, *first, body, kept.people)
    with office.database.begin() as conn:
        inbox.keep(conn, [copy], source="webhook", now=office.clock.now())
    handle_waiting(office.desk, READERS)
    assert stopped(office.database) == [True, True]


# ── Deaths, and people ────────────────────────────────────────────────────────────────────────


class Killed(BaseException):
    """Stands for `kill -9`: nothing of ours runs after it."""


def test_a_drain_that_dies_in_between_honours_the_stop_all_the_same(
    office: Office, monkeypatch: pytest.MonkeyPatch
):
    def die(*_: object, **__: object) -> str:
        raise Killed

    message = office.claimed()
    monkeypatch.setattr(drain, "hear_of_messages", die)
    with pytest.raises(Killed):
        hear(office, meta_stop(**BY_ID))
    record(office, message, Receipt("wamid.1", None))
    assert stopped(office.database) == [True, True]


def test_a_shift_that_dies_before_it_records_a_stop_has_honoured_it(
    office: Office, monkeypatch: pytest.MonkeyPatch
):
    def die(*_: object, **__: object) -> State:
        raise Killed

    refused = SendRejected("OPTED_OUT", "131050 User has stopped")
    monkeypatch.setattr(sending, "call", lambda *_: refused)
    monkeypatch.setattr(recording, "record", die)
    with pytest.raises(Killed):
        work_shift._send(office.desk, office.claimed(), "test")
    assert stopped(office.database) == [True, True]


def test_a_message_to_who_asked_to_stop_is_never_retried(servers: Servers, office: Office):
    database, *_ = servers
    record(office, office.claimed(), SendRejected("OPTED_OUT", "131050"))
    letter = the_row(database, "SELECT id, code FROM dead_letters")
    assert letter["code"] == "OPTED_OUT"
    (answer,) = dead_letters.retry(
        database.begin,
        [int(str(letter["id"]))],
        by="ana",
        secret=SECRET,
        now=NOON,
        reviewed=True,
    )
    assert (answer.done, states(database)) == (False, {"failed": 1})
    assert "asked their provider to hear no more" in answer.said
