"""What a person wrote and nobody has read yet holds everything that would go to them."""

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
from cerniq_pipeline.services.claiming import Nothing
from cerniq_pipeline.store import inbox
from cerniq_pipeline_tests.builders import NOON, an_office, run_sql, some_leads, the_row
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

COPYS_NUMBER = "+40721000077"


def kept(database: Engine, reader: WebhookReader, body: dict[str, Any]) -> None:
    """Keep a body as the web service would, and let nobody read it."""
    raw = json.dumps(body).encode()
    told = reader.envelope(raw)
    copy = InboundCopy(
        reader.provider,
        told.event_key,
        told.event_type,
        told.account or "",
        told.contact or "",
        raw,
        people=told.people,
    )
    with database.begin() as conn:
        inbox.keep(conn, [copy], source="webhook", now=NOON)


def by_mail(database: Engine, address: str) -> None:
    body = {
        "event_type": "reply_received",
        "timestamp": "2026-11-18T10:00:00Z",
        "email_account": "vanzari@acme.example",
        "lead_email": address,
        "reply_text": "Da, vreau oferta",
    }
    kept(database, InstantlyWebhooks(("token",)), body)


def by_sms(database: Engine, number: str) -> None:
    body = {"MessageSid": "SM1", "From": number, "To": "+40311000000", "Body": "Da"}
    kept(database, TwilioWebhooks(("token",)), body)


def by_id(database: Engine, user_id: str) -> None:
    """As a second person of one body, known by an id alone."""
    said = [
        {"from": "40733000000", "id": "wamid.1", "type": "text", "text": {"body": "da"}},
        {"from_user_id": user_id, "id": "wamid.2", "type": "text", "text": {"body": "da"}},
    ]
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "40790000000", "phone_number_id": "1"},
        "messages": said,
    }
    change = {"field": "messages", "value": value}
    body = {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]}
    kept(database, MetaWebhooks(("secret",)), body)


@pytest.mark.parametrize(
    ("ties", "says", "name"),
    [
        ({}, by_mail, "ana@firma.example"),
        ({}, by_sms, "+40721000000"),
        ({"email_principal": "ANA@firma.example"}, by_sms, COPYS_NUMBER),
        ({"cui": "RO 14399840"}, by_sms, COPYS_NUMBER),
        (
            {"cui": "RO 14399840", "email_principal": "ion@firma.example"},
            by_mail,
            "ion@firma.example",
        ),
        ({"cui": "RO14399840"}, by_id, "RO.1349"),
        ({"email_principal": "nobody@else.example"}, by_sms, None),
    ],
    ids=["own-mail", "own-sms", "mail-copy", "company-copy", "copys-mail", "copys-id", "stranger"],
)
def test_an_unread_word_holds_every_lead_of_its_person(
    database: Engine, redis: Redis, sandbox: RunningSandbox, ties: Any, says: Any, name: str | None
):
    office = an_office(database, redis, sandbox)
    run_sql(
        database,
        "UPDATE gold_companies SET email_principal = 'Ana@Firma.example', cui = '14399840'",
    )
    with database.begin() as conn:
        (copy,) = some_leads(conn, first=1, **ties)
    spelt = "0721 000 077"
    run_sql(
        database,
        "UPDATE gold_companies SET telefon_principal = :n WHERE id = :id",
        n=spelt,
        id=copy,
    )
    run_sql(
        database,
        """
        INSERT INTO whatsapp_conversations (tenant_id, lead_id, customer_user_id)
        VALUES ('acme', :copy, 'RO.1349')
        """,
        copy=copy,
    )
    says(database, name or COPYS_NUMBER)
    claimed = office.claim()
    if name is None:
        assert not isinstance(claimed, Nothing)
        return
    assert claimed == Nothing(office.clock.now() + timedelta(seconds=30))
    waiting = the_row(database, "SELECT state, reason FROM outbox_messages")
    assert waiting["state"] == "deferred"
    assert str(waiting["reason"]).startswith("unheard_reply")
    run_sql(database, "UPDATE webhook_events SET state = 'done'")
    office.wait(timedelta(minutes=1))
    assert not isinstance(office.claim(), Nothing)
