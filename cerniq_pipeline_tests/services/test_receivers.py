"""What comes to a number or an address of nobody is kept with the installation until it is said."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.events import WebhookReader
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.providers.instantly.webhooks import InstantlyWebhooks
from cerniq_pipeline.providers.meta.webhooks import MetaWebhooks
from cerniq_pipeline.providers.twilio.webhooks import TwilioWebhooks
from cerniq_pipeline.services import dead_letters, drain
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.receivers import assign
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import inbox, leads
from cerniq_pipeline_tests.builders import (
    NOON,
    ManualClock,
    a_desk,
    a_phone,
    a_world,
    rows,
    run_sql,
    some_leads,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

THEIRS, OURS, NEW = "+40721000000", "+40790000000", "+40790000099"
MAILBOX = "vanzari@acme.example"
READERS: dict[str, WebhookReader] = {
    "instantly": InstantlyWebhooks(("token",)),
    "twilio": TwilioWebhooks(("token",)),
    "meta": MetaWebhooks(("secret",)),
}
LOG = "SELECT tenant_id, content_rendered FROM gold_communication_log ORDER BY tenant_id"


@pytest.fixture
def desk(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Desk:
    """Two tenants that know the same person."""
    with database.begin() as conn:
        for tenant in ("acme", "blitz"):
            a_world(conn, tenant_id=tenant, phones=1 if tenant == "acme" else 0)
            some_leads(conn, tenant, email_principal="ana@firma.example")
    return a_desk(database, redis, sandbox, ManualClock())


def kept(
    database: Engine, provider: str, body: dict[str, Any], source: inbox.Source = "webhook"
) -> None:
    """Keep a body as the web service would, or the sweep."""
    raw = json.dumps(body).encode()
    told = READERS[provider].envelope(raw)
    copy = InboundCopy(
        provider,
        told.event_key,
        told.event_type,
        told.account or "",
        told.contact or "",
        raw,
        people=told.people,
    )
    with database.begin() as conn:
        inbox.keep(conn, [copy], source=source, now=NOON)


def a_mail(words: str) -> dict[str, Any]:
    return {
        "event_type": "reply_received",
        "timestamp": "2026-11-18T10:00:00Z",
        "email_account": MAILBOX,
        "lead_email": "ana@firma.example",
        "reply_text": words,
    }


def an_sms(words: str) -> dict[str, Any]:
    return {"MessageSid": "SM1", "From": THEIRS, "To": "+40311000000", "Body": words}


def on_whatsapp(*said: tuple[str, str]) -> dict[str, Any]:
    """One body about several of our numbers, with what was said to each."""
    changes = [
        {
            "field": "messages",
            "value": {
                "messaging_product": "whatsapp",
                "metadata": {"display_phone_number": ours[1:], "phone_number_id": "1"},
                "messages": [
                    {"from": THEIRS[1:], "id": f"wamid.{n}", "type": "text", "text": {"body": text}}
                ],
            },
        }
        for n, (ours, text) in enumerate(said)
    ]
    return {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": changes}]}


def unheard(database: Engine, tenant: str) -> bool:
    with database.begin() as conn:
        person = leads.person_behind(conn, tenant, numbers=[THEIRS])
        return inbox.has_unheard(conn, tenant, person)


CASES = [("instantly", a_mail, MAILBOX), ("twilio", an_sms, "+40311000000")]


@pytest.mark.parametrize(("provider", "body", "receiver"), CASES)
def test_words_to_a_receiver_of_nobody_are_shown_to_no_tenant(
    database: Engine, desk: Desk, provider: str, body: Any, receiver: str
):
    kept(database, provider, body("Da, vreau oferta"))
    assert handle_waiting(desk, READERS) == {"dead": 1}
    assert rows(database, LOG) == []
    letter = the_row(database, "SELECT * FROM dead_letters")
    assert (letter["code"], letter["tenant_id"]) == ("UNKNOWN_RECEIVER", None)
    assert letter["receiver"] == receiver
    alert = the_row(database, "SELECT kind, subject, tenant_id FROM alerts")
    assert alert == {"kind": "receiver_unknown", "subject": receiver, "tenant_id": None}
    assert unheard(database, "acme")
    assert unheard(database, "blitz")

    put_back = assign(database.begin, receiver, tenant_id="blitz", by="ana", now=NOON)

    assert put_back == 1
    assert handle_waiting(desk, READERS) == {"done": 1}
    assert rows(database, LOG) == [{"tenant_id": "blitz", "content_rendered": "Da, vreau oferta"}]
    assert rows(database, "SELECT 1 FROM alerts WHERE closed_at IS NULL") == []
    assert not unheard(database, "acme")


@pytest.mark.parametrize(("provider", "body", "receiver"), CASES)
def test_a_stop_to_a_receiver_of_nobody_holds_for_all_who_know_the_person(
    database: Engine, desk: Desk, provider: str, body: Any, receiver: str
):
    kept(database, provider, body("STOP"))
    assert handle_waiting(desk, READERS) == {"dead": 1}
    stopped = rows(database, "SELECT tenant_id FROM gold_lead_journey WHERE whatsapp_opted_out")
    assert {one["tenant_id"] for one in stopped} == {"acme", "blitz"}
    assert rows(database, LOG) == []
    assign(database.begin, receiver, tenant_id=None, by="ana", now=NOON)
    assert handle_waiting(desk, READERS) == {"done": 1}
    assert rows(database, LOG) == []


def test_a_stop_that_fails_delays_no_other_in_its_body(
    database: Engine, desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    told = on_whatsapp((OURS, "STOP"), (OURS, "STOP"))
    first, _ = (change["value"]["messages"][0] for change in told["entry"][0]["changes"])
    first["from"] = "40733999999"
    kept(database, "meta", told)
    real = drain.hear

    def choke(conn: Any, event: Any, **how: Any) -> str:
        if event.contact.phone != THEIRS:
            raise ZeroDivisionError
        return real(conn, event, **how)

    monkeypatch.setattr(drain, "hear", choke)
    assert handle_waiting(desk, READERS) == {"put off": 1}
    stopped = rows(database, "SELECT tenant_id FROM gold_lead_journey WHERE whatsapp_opted_out")
    assert stopped == [{"tenant_id": "acme"}]


def test_a_stop_of_somebody_whom_nobody_knows_is_remembered_by_all(database: Engine, desk: Desk):
    stranger = {**an_sms("STOP"), "From": "+40733999999"}
    kept(database, "twilio", stranger)
    handle_waiting(desk, READERS)
    remembered = rows(database, "SELECT DISTINCT tenant_id FROM suppressions ORDER BY 1")
    assert [one["tenant_id"] for one in remembered] == ["acme", "blitz"]


def test_an_answer_to_a_message_is_its_writers_whatever_it_came_to(database: Engine, desk: Desk):
    run_sql(
        database,
        """
        INSERT INTO outbox_messages
          (tenant_id, lead_id, channel, kind, recipient, planned_by, due_at, state, external_id)
        SELECT 'acme', id, 'EMAIL', 'initial', 'ana@firma.example', 'test', now(), 'sent', 'mail-1'
        FROM gold_companies WHERE tenant_id = 'acme'
        """,
    )
    kept(database, "instantly", {**a_mail("Da"), "email_id": "mail-1"})
    assert handle_waiting(desk, READERS) == {"done": 1}
    assert [one["tenant_id"] for one in rows(database, LOG)] == ["acme"]


@pytest.mark.parametrize("source", ["webhook", "sweep"])
def test_what_came_before_its_phone_is_heard_when_the_phone_is_added(
    database: Engine, desk: Desk, source: inbox.Source
):
    told = on_whatsapp((OURS, "la telefonul vechi"), (NEW, "la telefonul nou"))
    kept(database, "meta", told, source)
    assert handle_waiting(desk, READERS) == {"dead": 1}
    assert [one["content_rendered"] for one in rows(database, LOG)] == ["la telefonul vechi"]
    letter = the_row(database, "SELECT code, receiver FROM dead_letters")
    assert letter == {"code": "UNKNOWN_RECEIVER", "receiver": NEW}
    assert unheard(database, "acme")
    dead_letters.check_inbox(database.begin, now=NOON)  # nothing has changed yet
    assert handle_waiting(desk, READERS) == {}
    with database.begin() as conn:
        a_phone(conn, "blitz", "blitz-01", number=NEW)

    dead_letters.check_inbox(database.begin, now=NOON + timedelta(minutes=1))

    assert handle_waiting(desk, READERS) == {"done": 1}
    said = rows(database, LOG)
    assert [(one["tenant_id"], one["content_rendered"]) for one in said] == [
        ("acme", "la telefonul vechi"),
        ("blitz", "la telefonul nou"),
    ]
    assert rows(database, "SELECT 1 FROM alerts WHERE closed_at IS NULL") == []
    letters = rows(database, "SELECT resolution, resolved_by FROM dead_letters")
    assert letters == [{"resolution": "put back into the inbox", "resolved_by": "inbox"}]
