"""Resend's webhooks: signed by Svix's own library here, verified by us."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from svix.webhooks import Webhook

from cerniq_pipeline.domain.events import InboundEvent, InboundMedia, Kind, WebhookRequest
from cerniq_pipeline.errors import SetupError, UnreadableWebhook
from cerniq_pipeline.providers.resend.webhooks import ResendWebhooks
from cerniq_pipeline_tests.providers.webhook_contract import (
    ARRIVED,
    HOOK,
    MARKER,
    NOW,
    TimedContract,
)

SECRET = "whsec_b3V0cmVhY2gtZGVtby1zaWduaW5nLWtleS0wMDAwMDE="
NEXT_SECRET = "whsec_b3V0cmVhY2gtZGVtby1zaWduaW5nLWtleS0wMDAwMDI="
VECTOR = (
    b'{"type":"email.delivered","created_at":"2026-01-15T10:00:00.000Z","data":{"email_id":"em_1"}}'
)
VECTOR_SIGNATURE = "v1,e11odhevGB+0YK56w5gxfVmtcbfiL0OtAz/RNC9DsFo="


def told(event_type: str, **data: Any) -> bytes:
    base = {
        "created_at": "2026-01-15T09:59:00.000Z",
        "email_id": "56761188",
        "message_id": "<a@our.test>",
        "from": "Noi <N@our.test>",
        "to": ["Ana@example.test"],
        "subject": MARKER,
    }
    whole = {"type": event_type, "created_at": "2026-01-15T10:00:00.000Z", "data": base | data}
    return json.dumps(whole, separators=(",", ":")).encode()


BOUNCE = {"type": "Permanent", "subType": "General", "message": "no such user"}
CLICK = {"link": "https://our.test/x", "timestamp": "2026-01-15T10:05:00.000Z"}
ATTACHMENT = {"id": "att1", "filename": "a.pdf", "content_type": "application/pdf"}
BODIES = {
    "sent": (told("email.sent"), (Kind.STATUS,)),
    "delivered": (told("email.delivered"), (Kind.STATUS,)),
    "delayed": (told("email.delivery_delayed"), (Kind.STATUS,)),
    "failed": (
        told("email.failed", failed={"reason": "reached_daily_quota"}),
        (Kind.STATUS,),
    ),
    "suppressed": (
        told("email.suppressed", suppressed={"type": "OnList", "message": "bounced before"}),
        (Kind.STATUS,),
    ),
    "bounced": (told("email.bounced", bounce=BOUNCE, tags={"lead": "42"}), (Kind.BOUNCE,)),
    "complained": (told("email.complained"), (Kind.COMPLAINT,)),
    "opened": (told("email.opened"), (Kind.OPEN,)),
    "clicked": (told("email.clicked", click=CLICK), (Kind.CLICK,)),
    "received": (
        told(
            "email.received",
            **{"from": "Ana <ana@example.test>", "to": ["reply@our.test"]},
            attachments=[ATTACHMENT],
        ),
        (Kind.MESSAGE_RECEIVED,),
    ),
    "scheduled": (told("email.scheduled"), (Kind.UNKNOWN,)),
    "unsubscribed": (
        json.dumps(
            {
                "type": "contact.updated",
                "created_at": "2026-01-15T10:00:00.000Z",
                "data": {"id": "c1", "email": "ana@example.test", "unsubscribed": True},
            }
        ).encode(),
        (Kind.UNSUBSCRIBE,),
    ),
}


class TestResend(TimedContract):
    secret = SECRET
    next_secret = NEXT_SECRET
    wrong_secrets = (
        "whsec_b3V0cmVhY2gtZGVtby1zaWduaW5nLWtleS0wMDAwMDA=",
        "whsec_b3V0cmVhY2gtZGVtby1zaWduaW5nLWtleS0wMDAw",
    )
    bodies = BODIES
    unknown = told("email.teleported")

    def reader(self, *secrets: str) -> ResendWebhooks:
        return ResendWebhooks(secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        signature = Webhook(secret).sign("msg_demo1", at, body.decode())
        headers = {
            "svix-id": "msg_demo1",
            "svix-timestamp": str(int(at.timestamp())),
            "svix-signature": signature,
        }
        return WebhookRequest(HOOK, headers, {}, body)

    def test_one_good_signature_among_several_is_enough(self):
        request = self.signed(self.any_body(), SECRET)
        good = request.headers["svix-signature"]
        for several in (f"v1,AAAA {good}", f"{good} v1a,BBBB", f"v2,x v1, {good}"):
            headers = {**request.headers, "svix-signature": several}
            self.reader(SECRET).verify(replace(request, headers=headers), now=NOW)

    def test_a_signature_of_another_version_does_not_count(self):
        request = self.signed(self.any_body(), SECRET)
        for version in ("v2,", "v1a,", ""):
            other = request.headers["svix-signature"].replace("v1,", version)
            headers = {**request.headers, "svix-signature": other}
            self.refuses(self.reader(SECRET), replace(request, headers=headers))


READER = ResendWebhooks((SECRET,))


def only(body: bytes) -> InboundEvent:
    (event,) = READER.read(body, received_at=ARRIVED)
    return event


def test_the_published_signature_passes():
    headers = {
        "svix-id": "msg_demo1",
        "svix-timestamp": "1768471200",
        "svix-signature": VECTOR_SIGNATURE,
    }
    READER.verify(WebhookRequest(HOOK, headers, {}, VECTOR), now=NOW)


@pytest.mark.parametrize("secret", ["whsec_%%%", "whsec_"])
def test_a_secret_that_cannot_be_one_stops_the_start_without_being_shown(secret: str):
    with pytest.raises(SetupError) as error:
        ResendWebhooks((secret,))
    assert secret not in str(error.value)


@pytest.mark.parametrize(
    ("name", "status", "title"),
    [
        ("sent", "sent", ""),
        ("delivered", "delivered", ""),
        ("delayed", "sent", ""),
        ("failed", "failed", "reached_daily_quota"),
        ("suppressed", "failed", "OnList bounced before"),
        ("bounced", "failed", "Permanent General no such user"),
    ],
)
def test_what_became_of_a_mail(name, status, title):
    event = only(BODIES[name][0])
    assert event.delivery is not None
    assert (event.delivery.external_id, event.delivery.at) == ("56761188", NOW)
    assert (event.delivery.status, event.delivery.title) == (status, title)
    assert (event.account, event.contact.email) == ("n@our.test", "ana@example.test")


def test_a_mail_that_came_in_has_its_sides_exchanged():
    event = only(BODIES["received"][0])
    assert (event.account, event.contact.email) == ("reply@our.test", "ana@example.test")
    assert event.media == (
        InboundMedia("document", "application/pdf", "a.pdf", provider_id="att1"),
    )


def test_a_click_happened_when_it_was_made():
    event = only(BODIES["clicked"][0])
    assert (event.at.minute, event.detail) == (5, "https://our.test/x")


def test_a_second_opening_is_another_event():
    later = BODIES["opened"][0].replace(b"T10:00:00", b"T11:00:00")
    assert READER.envelope(later).event_key != READER.envelope(BODIES["opened"][0]).event_key


def test_a_body_without_a_type_is_unreadable():
    with pytest.raises(UnreadableWebhook, match="type"):
        READER.read(b'{"data":{}}', received_at=ARRIVED)
