"""Meta as a second provider: free text inside the 24-hour window, the approved form outside, and
what follows when Meta says later that a message failed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.providers.meta.webhooks import MetaWebhooks, read_statuses
from cerniq_pipeline.services.deliveries import note_failure
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.leasing import give_back, this_process
from cerniq_pipeline.services.media import add_file
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline.store import inbox
from cerniq_pipeline_tests.builders import (
    FIRST,
    SECOND,
    Office,
    always_open,
    an_office,
    rows,
    run_sql,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

Servers = tuple[Engine, Redis, RunningSandbox]
DAY = timedelta(days=1)
APPROVED = """
    UPDATE templates SET approved_name = 'intro_ro', approved_parameters = '{companie}'
    WHERE name = 'main 1'
"""


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def at_meta(servers: Servers, *, approved: bool = True, window: bool = False) -> Office:
    """An office whose phone is with Meta, and whose lead wrote to us lately or not."""
    database, *_ = servers
    now = datetime.now(UTC)  # the sandbox counts its windows in real time
    office = an_office(*servers, now=now, steps=(FIRST, SECOND), **always_open(now))
    run_sql(
        database,
        """
        UPDATE wa_phone_numbers SET provider = 'meta', timelinesai_account_id = NULL,
               meta_phone_number_id = '1' || ltrim(phone_number, '+')
        """,
    )
    if approved:
        run_sql(database, APPROVED)
    if window:
        later = office.clock.now() + DAY
        run_sql(
            database,
            """
            INSERT INTO whatsapp_conversations
              (tenant_id, lead_id, customer_phone, phone_id, window_expires_at)
            SELECT tenant_id, lead_id, recipient, phone_id, :later FROM outbox_messages
            """,
            later=later,
        )
    return office


def write_to_us(servers: Servers) -> None:
    """Let the lead write, so that Meta's own window is open."""
    database, _, sandbox = servers
    number = the_row(database, "SELECT recipient FROM outbox_messages")["recipient"]
    sandbox.inbound("+40790000000", str(number), "Bună")


# ── What may go ───────────────────────────────────────────────────────────────────────────────


def test_inside_the_window_the_text_goes_as_it_is(servers: Servers):
    database, _, sandbox = servers
    office = at_meta(servers, window=True)
    write_to_us(servers)

    assert office.send() is State.SENT

    (line,) = sandbox.accepted()
    assert (line["provider"], line["text"]) == ("meta", "Bună ziua, Firma 0! Pasul unu.")
    lead = the_row(database, "SELECT chat_id, engagement_stage FROM gold_lead_journey")
    assert lead == {"chat_id": line["recipient"].lstrip("+"), "engagement_stage": "CONTACTED_WA"}


def test_outside_the_window_only_the_approved_form_goes(servers: Servers):
    database, _, sandbox = servers
    office = at_meta(servers)

    assert office.send() is State.SENT

    (line,) = sandbox.accepted()
    assert line["template"]["name"] == "intro_ro"
    assert line["template"]["language"] == {"code": "ro"}
    assert "Firma 0" in line["text"]
    assert sandbox.statuses() == []  # nothing fails later
    logged = the_row(database, "SELECT content_rendered FROM gold_communication_log")
    assert logged["content_rendered"] == "Bună ziua, Firma 0! Pasul unu."


def test_a_text_without_an_approved_form_waits_outside_the_window(servers: Servers):
    database, _, sandbox = servers
    office = at_meta(servers, approved=False)

    office.claim()

    message = the_row(database, "SELECT state, reason, due_at FROM outbox_messages")
    assert message["state"] == "deferred"
    assert str(message["reason"]).startswith("window_closed")
    assert message["due_at"] == office.clock.now() + DAY
    assert sandbox.journal("request") == []


def test_a_window_that_meta_finds_closed_turns_the_text_into_its_approved_form(servers: Servers):
    """We thought it open; Meta says 131047 at once, and the next try goes as a template."""
    database, _, sandbox = servers
    office = at_meta(servers, window=True)
    sandbox.fault("window_closed_at_once")

    assert office.send() is State.DEFERRED
    assert office.send_after(timedelta(minutes=3)) is State.SENT

    (line,) = sandbox.accepted()
    assert line["template"]["name"] == "intro_ro"
    assert states(database) == {"sent": 1, "planned": 1}


def test_a_document_goes_with_its_caption(servers: Servers, tmp_path: Path):
    database, _, sandbox = servers
    office = at_meta(servers, window=True)
    write_to_us(servers)
    (tmp_path / "oferta.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n%%EOF\n")
    kept = add_file(database.begin, tmp_path / "oferta.pdf", tenant_id="acme")
    run_sql(database, "UPDATE templates SET media_id = :media", media=kept.id)

    assert office.send() is State.SENT

    (line,) = sandbox.accepted()
    assert (line["attachment"]["filename"], line["attachment"]["mimetype"]) == (
        "oferta.pdf",
        "application/pdf",
    )
    assert line["text"] == "Bună ziua, Firma 0! Pasul unu."
    logged = the_row(database, "SELECT media_type FROM gold_communication_log")
    assert logged["media_type"] == "document"


def test_a_person_who_told_meta_to_stop_is_never_written_to_again(servers: Servers):
    database, _, sandbox = servers
    office = at_meta(servers)
    sandbox.fault("refuse", status=400, meta_code=131050)
    give_back(database.begin, office.lease)

    shift = work_shift(office.desk, "acme-01", this_process("shift"), longest=timedelta(minutes=5))

    assert shift.outcomes == {"failed": 1}
    lead = the_row(database, "SELECT whatsapp_opted_out, email_opted_out FROM gold_lead_journey")
    assert lead == {"whatsapp_opted_out": True, "email_opted_out": True}
    assert len(rows(database, "SELECT 1 FROM suppressions")) == 1


# ── What comes later ──────────────────────────────────────────────────────────────────────────


def failed(servers: Servers, *, code: int = 131047) -> Delivery:
    """Meta's word about the one message that was sent, read from its webhook's body."""
    (line,) = servers[2].accepted()
    status = {
        "id": line["message_uid"],
        "status": "failed",
        "timestamp": str(int(datetime.now(UTC).timestamp())),
        "recipient_id": line["recipient"].lstrip("+"),
        "errors": [{"code": code, "title": "Re-engagement message"}],
    }
    (delivery,) = read_statuses(webhook(status))
    return delivery


def webhook(status: dict[str, object]) -> bytes:
    value = {"messaging_product": "whatsapp", "statuses": [status]}
    change = {"field": "messages", "value": value}
    body = {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]}
    return json.dumps(body).encode()


def sent_too_late(servers: Servers, *, approved: bool = True) -> Office:
    """An office that took a closed window for open: the text was accepted, and fails later."""
    office = at_meta(servers, approved=approved, window=True)
    assert office.send() is State.SENT
    assert [line["code"] for line in servers[2].statuses()] == [131047]
    return office


def test_a_closed_window_that_is_told_later_is_sent_again_in_its_approved_form(servers: Servers):
    database, _, sandbox = servers
    office = sent_too_late(servers)
    told = failed(servers)

    assert note_failure(office.desk, told) == "sent again in its approved form"
    assert note_failure(office.desk, told) == "known"

    log = the_row(database, "SELECT status, error_code, error_title FROM gold_communication_log")
    assert log == {
        "status": "FAILED",
        "error_code": "131047",
        "error_title": "Re-engagement message",
    }
    assert office.send_after(timedelta(minutes=3)) is State.SENT
    again = sandbox.accepted()[-1]
    assert again["template"]["name"] == "intro_ro"
    assert len(sandbox.accepted()) == 2
    assert states(database) == {"sent": 2, "planned": 1}  # the step after it is still to come


@pytest.mark.parametrize(("approved", "code"), [(False, 131047), (True, 131026)])
def test_any_other_late_failure_is_for_a_person(servers: Servers, approved: bool, code: int):
    database, _, sandbox = servers
    office = sent_too_late(servers, approved=approved)

    assert note_failure(office.desk, failed(servers, code=code)) == "dead letter"

    letter = the_row(database, "SELECT code, detail FROM dead_letters")
    expected = "WINDOW_CLOSED" if code == 131047 else "INVALID_RECIPIENT_NUMBER"
    assert (letter["code"], str(code) in str(letter["detail"])) == (expected, True)
    # The step after it would speak of a message that nobody got.
    assert states(database) == {"sent": 1, "cancelled": 1}
    lead = the_row(database, "SELECT open_message, hold_reason FROM gold_lead_journey")
    assert lead == {"open_message": False, "hold_reason": "failed"}
    assert len(sandbox.accepted()) == 1


def test_a_failure_that_comes_after_the_delivery_is_not_believed(servers: Servers):
    database, *_ = servers
    office = sent_too_late(servers)
    run_sql(database, "UPDATE gold_communication_log SET status = 'DELIVERED'")
    assert note_failure(office.desk, failed(servers)) == "known"
    assert states(database) == {"sent": 1, "planned": 1}


def test_a_failure_of_a_message_that_is_not_ours_changes_nothing(servers: Servers):
    office = sent_too_late(servers)
    stranger = Delivery("wamid.unknown", "failed", office.clock.now(), 131047, "", "X", None)
    assert note_failure(office.desk, stranger) == "unknown"


# ── What the inbox says of a send in doubt ────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "callback", "result"),
    [
        ("delivered", "1", "sent"),
        ("sent", "1", "sent"),
        ("failed", "1", "parked"),
        ("delivered", "2", "parked"),
    ],
)
def test_a_status_that_carries_our_id_settles_a_send_in_doubt(
    servers: Servers, status: str, callback: str, result: str
):
    database, _, sandbox = servers
    office = at_meta(servers)
    sandbox.fault("accept_then_cut")
    assert office.send() is State.UNCONFIRMED
    (line,) = sandbox.accepted()
    told = {
        "id": line["message_uid"],
        "status": status,
        "timestamp": str(int(datetime.now(UTC).timestamp())),
        "recipient_id": line["recipient"].lstrip("+"),
        "biz_opaque_callback_data": callback,
    }
    copy = InboundCopy("meta", "k", "messages", line["sender"], line["recipient"], webhook(told))
    with database.begin() as conn:
        inbox.keep(conn, [copy], source="webhook", now=office.clock.now())

    office.wait(timedelta(hours=1))
    counts = settle_unconfirmed(office.desk, settle_time=timedelta(minutes=15), who="test")

    assert counts == {result: 1}
    message = the_row(database, "SELECT external_id FROM outbox_messages WHERE step = 1")
    assert message["external_id"] == (line["message_uid"] if result == "sent" else None)
    assert rows(database, "SELECT 1 FROM outbox_messages WHERE state = 'sending'") == []


NUMBER, USER_ID = {"recipient_id": "40721000000"}, {"recipient_user_id": "RO.1234567890"}


@pytest.mark.parametrize("named", [NUMBER, NUMBER | USER_ID, USER_ID], ids=["number", "both", "id"])
@pytest.mark.parametrize("hears", ["the look-up", "the drain"])
def test_the_proof_is_found_wherever_it_stands_and_whatever_it_calls_the_person(
    servers: Servers, named: dict[str, str], hears: str
):
    database, _, sandbox = servers
    office = at_meta(servers)
    sandbox.fault("accept_then_cut")
    assert office.send() is State.UNCONFIRMED
    (line,) = sandbox.accepted()
    at = str(int(datetime.now(UTC).timestamp()))
    other = {"id": "wamid.Z", "status": "read", "timestamp": at, "recipient_id": "40722999999"}
    ours = {"id": line["message_uid"], "status": "sent", "timestamp": at, **named}
    changes = [
        {
            "field": "messages",
            "value": {"metadata": {"display_phone_number": number}, "statuses": [status]},
        }
        # The first one is about another number of ours, and somebody else.
        for number, status in (
            ("40790000009", other),
            ("40790000000", ours | {"biz_opaque_callback_data": "1"}),
        )
    ]
    body = json.dumps({"object": "whatsapp", "entry": [{"id": "1", "changes": changes}]}).encode()
    reader = MetaWebhooks(("secret",))
    told = reader.envelope(body)
    first = (told.account or "", told.contact or "")
    copy = InboundCopy("meta", told.event_key, told.event_type, *first, body, told.people)
    with database.begin() as conn:
        inbox.keep(conn, [copy], source="webhook", now=office.clock.now())

    if hears == "the drain":
        assert handle_waiting(office.desk, {"meta": reader}) == {"done": 1}
    else:
        settle_unconfirmed(office.desk, settle_time=timedelta(minutes=15), who="test")

    sent = "SELECT external_id FROM outbox_messages WHERE state = 'sent'"
    assert rows(database, sent) == [{"external_id": line["message_uid"]}]
