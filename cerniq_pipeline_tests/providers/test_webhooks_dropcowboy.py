"""Drop Cowboy's webhooks: what became of a voicemail, signed over the time and the body."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime
from typing import Any

import pytest

from cerniq_pipeline.domain.events import InboundEvent, Kind, WebhookRequest
from cerniq_pipeline.providers.dropcowboy.webhooks import DropCowboyWebhooks
from cerniq_pipeline_tests.providers.webhook_contract import (
    ARRIVED,
    HOOK,
    MARKER,
    NOW,
    TimedContract,
)

SECRET, NEXT_SECRET = "demo_hook_secret", "demo_hook_secret_2"
VECTOR = (
    b'{"event_id":"e1","event":"contact.rvm.status",'
    b'"event_at":1768471200000,"data":{"reason_code":0}}'
)
VECTOR_SIGNATURE = "sha256=046d66b25b435c3a41315bc7ad83b9d8744807bbc0a51ff16312318476dd0ad3"


def told(uid: str, event: str = "contact.rvm.status", **data: Any) -> bytes:
    base = {
        "team_id": "t1",
        "contact_id": "c1",
        "drop_id": "d1",
        "campaign_id": None,
        "status": "success",
        "reason": "",
        "reason_code": 0,
        "to": "+15550010001",
        "from": "+15550019999",
    }
    whole = {"event_id": uid, "event": event, "event_at": 1768471200000, "data": base | data}
    return json.dumps(whole).encode()


BODIES = {
    "success": (told("e1"), (Kind.STATUS,)),
    "failure": (
        told("e2", status="failure", reason=MARKER, reason_code=4002),
        (Kind.STATUS,),
    ),
    "receipt": (told("e3", "contact.rvm.receipt"), (Kind.UNKNOWN,)),
    "about nobody": (VECTOR.replace(b'"e1"', b'"e4"'), (Kind.UNKNOWN,)),
}


class TestDropCowboy(TimedContract):
    secret = SECRET
    next_secret = NEXT_SECRET
    wrong_secrets = ("", SECRET[:-1], f"{SECRET}x")
    bodies = BODIES
    unknown = told("e5", "contact.sms.status")

    def reader(self, *secrets: str) -> DropCowboyWebhooks:
        return DropCowboyWebhooks(secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        written = str(int(at.timestamp()))
        digest = hmac.new(secret.encode(), f"{written}.".encode() + body, hashlib.sha256)
        headers = {"x-signature": f"sha256={digest.hexdigest()}", "x-timestamp": written}
        return WebhookRequest(HOOK, headers, {}, body)


READER = DropCowboyWebhooks((SECRET,))


def only(body: bytes) -> InboundEvent:
    (event,) = READER.read(body, received_at=ARRIVED)
    return event


def test_the_published_signature_passes():
    headers = {
        "x-signature": VECTOR_SIGNATURE,
        "x-timestamp": "1768471200",
        "x-signature-version": "v1",
    }
    READER.verify(WebhookRequest(HOOK, headers, {}, VECTOR), now=NOW)


def test_a_result_is_read_whole():
    event = only(told("e1"))
    assert (event.at, event.channel, event.external_id) == (NOW, "VOICE", "d1")
    assert (event.account, event.contact.phone) == ("+15550019999", "+15550010001")


@pytest.mark.parametrize(
    ("status", "code", "word", "meaning"),
    [
        ("success", 0, "delivered", None),
        ("failure", 4002, "failed", "REFUSED"),
        ("failure", 4001, "failed", "INVALID_RECIPIENT_NUMBER"),
        ("failure", 6005, "failed", "OPTED_OUT"),
        ("success", 4016, "failed", "OPTED_OUT"),
        ("a new word", 0, "unknown", None),
    ],
)
def test_what_became_of_a_voicemail(status, code, word, meaning):
    delivery = only(told("e1", status=status, reason_code=code)).delivery
    assert delivery is not None
    assert (delivery.status, delivery.meaning, delivery.code) == (word, meaning, code or None)


def test_the_vendors_event_id_is_the_key():
    assert READER.envelope(told("e9")).event_key == "e9"
