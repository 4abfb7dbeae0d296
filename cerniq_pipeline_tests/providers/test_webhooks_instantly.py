"""Instantly's webhooks: believed by our own header, read by the vendor's two sets of names."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from cerniq_pipeline.domain.events import InboundEvent, Kind, WebhookRequest
from cerniq_pipeline.errors import UnreadableWebhook
from cerniq_pipeline.providers.instantly.webhooks import InstantlyWebhooks
from cerniq_pipeline_tests.providers.webhook_contract import (
    ARRIVED,
    HOOK,
    MARKER,
    NOW,
    WebhookContract,
)

TOKEN, NEXT_TOKEN = "a-random-header-token-1", "a-random-header-token-2"


def told(event_type: str, **more: Any) -> bytes:
    base = {
        "timestamp": "2026-01-15T10:00:00.000Z",
        "event_type": event_type,
        "workspace": "0190",
        "campaign_id": "0191",
        "campaign_name": "Q1",
        "lead_email": "Ana@example.test",
        "email_account": "sales@our.test",
        "email_id": "0192",
    }
    return json.dumps(base | more).encode()


REPLY = {
    "reply_subject": "Re: Salut",
    "reply_text_snippet": "Da",
    "reply_text": MARKER,
    "reply_html": "<p>…</p>",
}
BODIES = {
    "reply": (told("reply_received", **REPLY), (Kind.MESSAGE_RECEIVED,)),
    "auto reply": (told("auto_reply_received", **REPLY), (Kind.AUTO_REPLY,)),
    "bounce": (told("email_bounced", email_subject="Salut"), (Kind.BOUNCE,)),
    "unsubscribed": (told("lead_unsubscribed", email_id=None), (Kind.UNSUBSCRIBE,)),
    "opened": (told("email_opened"), (Kind.OPEN,)),
    "clicked": (told("link_clicked"), (Kind.CLICK,)),
    "clicked by its other name": (told("email_link_clicked"), (Kind.CLICK,)),
    "sent": (told("email_sent", step=1, variant=1, is_first=True), (Kind.STATUS,)),
    "a label of ours": (told("Foarte interesat"), (Kind.UNKNOWN,)),
}


class TestInstantly(WebhookContract):
    secret = TOKEN
    next_secret = NEXT_TOKEN
    wrong_secrets = ("", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper())
    bodies = BODIES
    unknown = told("account_error")

    def reader(self, *secrets: str) -> InstantlyWebhooks:
        return InstantlyWebhooks(secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        return WebhookRequest(HOOK, {"x-outreach-token": secret}, {}, body)


READER = InstantlyWebhooks((TOKEN,))


def only(body: bytes) -> InboundEvent:
    (event,) = READER.read(body, received_at=ARRIVED)
    return event


def test_a_reply_is_read_whole():
    event = only(BODIES["reply"][0])
    assert (event.account, event.contact.email) == ("sales@our.test", "ana@example.test")
    assert (event.text, event.external_id, event.at) == (MARKER, "0192", NOW)
    assert (event.channel, event.detail) == ("EMAIL", "Re: Salut")


def test_a_reply_without_its_text_shows_the_beginning():
    assert only(told("reply_received", reply_text_snippet="Da")).text == "Da"


def test_a_mail_that_left_is_a_status():
    delivery = only(BODIES["sent"][0]).delivery
    assert delivery is not None
    assert (delivery.external_id, delivery.status) == ("0192", "sent")


@pytest.mark.parametrize(
    "change",
    [
        {"lead_email": "dan@example.test"},
        {"email_id": "0193"},
        {"timestamp": "2026-01-15T10:00:01.000Z"},
        {"event_type": "email_bounced"},
    ],
)
def test_each_of_the_four_makes_another_event(change):
    other = READER.envelope(told(**({"event_type": "email_opened"} | change)))
    assert other.event_key != READER.envelope(told("email_opened")).event_key


def test_a_body_without_a_type_is_unreadable():
    with pytest.raises(UnreadableWebhook, match="event_type"):
        READER.read(b'{"lead_email":"ana@example.test"}', received_at=ARRIVED)
