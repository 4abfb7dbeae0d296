"""Twilio's webhooks: signed by the vendor's own library here, verified by us."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import datetime
from urllib.parse import parse_qsl, urlencode

import pytest
from twilio.request_validator import RequestValidator

from cerniq_pipeline.domain.events import InboundEvent, InboundMedia, Kind, WebhookRequest
from cerniq_pipeline.errors import WebhookRefused
from cerniq_pipeline.providers.twilio.webhooks import TwilioWebhooks
from cerniq_pipeline_tests.providers.webhook_contract import (
    ARRIVED,
    MARKER,
    NOW,
    SignedBodyContract,
)

URL = "https://hooks.example.test/twilio/sms?c=7"
LEAD, OURS = "+40722123456", "+40312345678"
TOKEN, NEXT_TOKEN = "demo_auth_token", "demo_auth_token_2"
SID = "SM00000000000000000000000000000001"
SHA256 = {"x-twilio-webhooks-signature-settings": "key=k1,algorithm=HMAC_SHA256"}

VECTOR = urlencode(
    {"MessageSid": SID, "From": LEAD, "To": OURS, "Body": "STOP", "NumMedia": "0"}
).encode()
VECTOR_SHA1 = "kPJGxs0pq9P9ifeOgLOBRLBPkyA="
VECTOR_SHA256 = "2bJ9+CbUYos2OCliZiP0aEtf/ZTaTSnu1A5Kzqhw2PA="


def form(**fields: str) -> bytes:
    return urlencode({"MessageSid": SID, "AccountSid": "AC1", **fields}).encode()


def inbound(**fields: str) -> bytes:
    return form(**{"SmsSid": SID, "From": LEAD, "To": OURS, "NumMedia": "0", **fields})


def status(word: str, **fields: str) -> bytes:
    return form(**{"MessageStatus": word, "To": LEAD, "From": OURS, **fields})


PICTURE = {"NumMedia": "1", "MediaUrl0": "https://m.test/1", "MediaContentType0": "image/jpeg"}
BODIES = {
    "text": (inbound(Body=MARKER, SmsStatus="received"), (Kind.MESSAGE_RECEIVED,)),
    "picture": (
        inbound(Body="", **PICTURE).replace(b"01&", b"02&"),
        (Kind.MESSAGE_RECEIVED,),
    ),
    "stop": (
        inbound(Body="STOP", OptOutType="STOP").replace(b"01&", b"03&"),
        (Kind.UNSUBSCRIBE,),
    ),
    "start": (
        inbound(Body="START", OptOutType="START").replace(b"01&", b"04&"),
        (Kind.MESSAGE_RECEIVED,),
    ),
    "queued": (status("queued"), (Kind.STATUS,)),
    "sent": (status("sent", SmsStatus="sent"), (Kind.STATUS,)),
    "delivered": (status("delivered"), (Kind.STATUS,)),
    "undelivered": (status("undelivered", ErrorCode="30003"), (Kind.STATUS,)),
    "failed": (status("failed", ErrorCode="21610"), (Kind.STATUS,)),
}


def signature(body: bytes, secret: str, url: str = URL, algorithm: str | None = None) -> str:
    fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
    return RequestValidator(secret).compute_signature(url, fields, algorithm)


class TestTwilioWithItsToken(SignedBodyContract):
    secret = TOKEN
    next_secret = NEXT_TOKEN
    wrong_secrets = ("", TOKEN[:-1], f"{TOKEN}x")
    bodies = BODIES
    unknown = form(EventType="READ")

    def reader(self, *secrets: str) -> TwilioWebhooks:
        return TwilioWebhooks(secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        headers = {"x-twilio-signature": signature(body, secret)}
        return WebhookRequest(URL, headers, {"c": "7"}, body)


class TestTwilioWithASharedKey(SignedBodyContract):
    secret = TOKEN
    next_secret = NEXT_TOKEN
    wrong_secrets = ("", TOKEN[:-1], f"{TOKEN}x")
    bodies = BODIES
    unknown = form(EventType="READ")

    def reader(self, *secrets: str) -> TwilioWebhooks:
        return TwilioWebhooks((), shared_keys=secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        proof = {"x-twilio-signature": signature(body, secret, algorithm="HMAC_SHA256")}
        return WebhookRequest(URL, proof | SHA256, {"c": "7"}, body)

    def test_a_proof_with_a_changed_or_missing_letter_is_refused(self):
        request = self.signed(self.any_body(), TOKEN)
        good = request.headers["x-twilio-signature"]
        for other in (good[:-1], f"{good}x", "é", "\udcff"):
            headers = {**request.headers, "x-twilio-signature": other}
            self.refuses(self.reader(TOKEN), replace(request, headers=headers))


READER = TwilioWebhooks((TOKEN,), shared_keys=(TOKEN,))


def only(body: bytes) -> InboundEvent:
    (event,) = READER.read(body, received_at=ARRIVED)
    return event


@pytest.mark.parametrize(("proof", "settings"), [(VECTOR_SHA1, {}), (VECTOR_SHA256, SHA256)])
def test_the_published_signatures_pass(proof, settings):
    headers = {"x-twilio-signature": proof} | settings
    READER.verify(WebhookRequest(URL, headers, {"c": "7"}, VECTOR), now=NOW)


@pytest.mark.parametrize("settings", ["key=k1,algorithm=HMAC_SHA3", "key=k1", ""])
def test_an_unknown_algorithm_is_refused(settings):
    headers = {
        "x-twilio-signature": VECTOR_SHA1,
        "x-twilio-webhooks-signature-settings": settings,
    }
    with pytest.raises(WebhookRefused):
        READER.verify(WebhookRequest(URL, headers, {"c": "7"}, VECTOR), now=NOW)


@pytest.mark.parametrize(
    ("signed_for", "known_as"),
    [
        ("https://h.test:443/sms", "https://h.test/sms"),
        ("https://h.test/sms", "https://h.test:443/sms"),
        ("http://h.test:80/sms", "http://h.test/sms"),
        ("https://h.test/sms", "https://h.test:8443/sms"),
    ],
)
def test_the_port_may_be_written_or_not(signed_for, known_as):
    headers = {"x-twilio-signature": signature(VECTOR, TOKEN, signed_for)}
    READER.verify(WebhookRequest(known_as, headers, {}, VECTOR), now=NOW)


def test_another_address_is_refused():
    headers = {"x-twilio-signature": VECTOR_SHA1}
    other = URL.replace("c=7", "c=8")
    with pytest.raises(WebhookRefused):
        READER.verify(WebhookRequest(other, headers, {"c": "8"}, VECTOR), now=NOW)


def test_a_field_that_comes_twice_is_signed_with_each_of_its_values():
    class Several(dict[str, list[str]]):
        def getlist(self, name: str) -> list[str]:
            return self[name]

    body = b"MessageSid=SM1&MediaUrl=b&MediaUrl=a&MediaUrl=b"
    fields = Several(MessageSid=["SM1"], MediaUrl=["b", "a", "b"])
    proof = RequestValidator(TOKEN).compute_signature(URL, fields)
    headers = {"x-twilio-signature": proof}
    READER.verify(WebhookRequest(URL, headers, {"c": "7"}, body), now=NOW)


def test_a_json_body_is_believed_by_its_hash_in_the_address():
    body = json.dumps({"MessageSid": SID, "MessageStatus": "sent"}).encode()
    hashed = hashlib.sha256(body).hexdigest()
    url = f"{URL}&bodySHA256={hashed}"
    validator = RequestValidator(TOKEN)
    proof = validator.compute_signature(url, {})
    assert validator.validate(url, body.decode(), proof)
    request = WebhookRequest(
        url, {"x-twilio-signature": proof}, {"c": "7", "bodySHA256": hashed}, body
    )
    READER.verify(request, now=NOW)
    with pytest.raises(WebhookRefused, match="bodySHA256"):
        READER.verify(replace(request, body=body + b" "), now=NOW)
    assert only(body).kind is Kind.STATUS


def test_a_text_is_read_whole_and_happened_when_it_arrived():
    event = only(BODIES["text"][0])
    assert (event.account, event.contact.phone, event.text) == (OURS, LEAD, MARKER)
    assert (event.external_id, event.at, event.channel) == (SID, ARRIVED, "SMS")


def test_a_picture_can_be_fetched():
    event = only(BODIES["picture"][0])
    assert event.media == (InboundMedia("image", "image/jpeg", url="https://m.test/1"),)
    assert event.message_type == "image"


def test_a_stop_is_an_unsubscription_of_whoever_wrote_it():
    event = only(BODIES["stop"][0])
    assert (event.kind, event.contact.phone, event.text) == (Kind.UNSUBSCRIBE, LEAD, "STOP")


@pytest.mark.parametrize(
    ("name", "word", "code", "meaning"),
    [
        ("queued", "unknown", None, None),
        ("sent", "sent", None, None),
        ("delivered", "delivered", None, None),
        ("undelivered", "failed", 30003, "REFUSED"),
        ("failed", "failed", 21610, "OPTED_OUT"),
    ],
)
def test_what_became_of_a_message(name, word, code, meaning):
    event = only(BODIES[name][0])
    assert (event.account, event.contact.phone) == (OURS, LEAD)
    assert event.delivery is not None
    told = (event.delivery.status, event.delivery.code, event.delivery.meaning)
    assert told == (word, code, meaning)


def test_a_short_code_is_no_telephone_number_but_still_somebody():
    event = only(inbound(Body="x", From="12345"))
    assert (event.contact.phone, event.contact.key) == (None, "12345")
