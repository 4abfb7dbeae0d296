"""Vonage's webhooks: the older ones with a sig among their fields, the newer ones with a JWT."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jwt
import pytest

from cerniq_pipeline.domain.events import InboundEvent, InboundMedia, Kind, WebhookRequest
from cerniq_pipeline.errors import WebhookRefused
from cerniq_pipeline.providers.vonage.webhooks import VonageWebhooks
from cerniq_pipeline_tests.providers.webhook_contract import (
    ARRIVED,
    HOOK,
    MARKER,
    NOW,
    TimedContract,
)

LEAD, OURS = "+40722123456", "+40312345678"
SECRET, NEXT_SECRET = "demo_sig_secret_of_thirty_two_bytes", "demo_sig_secret_of_thirty_two_bytes_2"
VECTOR = {
    "messageId": "0A00000000000001",
    "msisdn": "40722123456",
    "nonce": "n1",
    "text": "a&b=c",
    "timestamp": "1768471200",
    "to": "40312345678",
}
VECTOR_SIG = "f557ee983d9023aa66c862580a194c9b21556962194ce0d51e0aef54ef4a6853"

INBOUND = VECTOR | {
    "api-key": "abcd1234",
    "text": MARKER,
    "type": "text",
    "message-timestamp": "2026-01-15 10:00:00",
}
DLR = {
    "msisdn": "40722123456",
    "to": "OurBrand",
    "network-code": "22601",
    "messageId": "0A01",
    "price": "0.03",
    "status": "delivered",
    "scts": "2601151200",
    "err-code": "0",
    "client-ref": "x",
    "message-timestamp": "2026-01-15 10:00:00",
    "timestamp": "1768471200",
}
PART = {"concat": "true", "concat-ref": "1", "concat-total": "3", "concat-part": "2"}


def compact(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


OLDER = {
    "text": (compact(INBOUND), (Kind.MESSAGE_RECEIVED,)),
    "text as a form": (
        urlencode(INBOUND | {"messageId": "0A02"}).encode(),
        (Kind.MESSAGE_RECEIVED,),
    ),
    "part": (compact(INBOUND | PART | {"messageId": "0A03"}), (Kind.MESSAGE_RECEIVED,)),
    "delivered": (compact(DLR), (Kind.STATUS,)),
    "opted out": (compact(DLR | {"status": "rejected", "err-code": "9"}), (Kind.STATUS,)),
    "delivered as a form": (urlencode(DLR | {"messageId": "0A04"}).encode(), (Kind.STATUS,)),
}

STATUS = {
    "message_uuid": "aaaa",
    "to": "40722123456",
    "from": "OurBrand",
    "timestamp": "2026-01-15T10:00:00.000Z",
    "status": "delivered",
    "channel": "sms",
    "client_ref": "lead-42",
    "usage": {"currency": "EUR", "price": "0.0333"},
}
MESSAGE = {
    "channel": "sms",
    "message_uuid": "bbbb",
    "to": "40312345678",
    "from": "40722123456",
    "timestamp": "2026-01-15T10:00:00.000Z",
    "message_type": "text",
    "text": MARKER,
    "sms": {"num_messages": "1", "keyword": "STOP"},
}
PICTURE = {
    "message_uuid": "cccc",
    "message_type": "image",
    "image": {"url": "https://m.test/1", "caption": "poza", "name": "a.jpg"},
}
ERROR = {"type": "https://e.test", "title": "1170", "detail": "Invalid number", "instance": "i"}
NEWER = {
    "text": (compact(MESSAGE), (Kind.MESSAGE_RECEIVED,)),
    "picture": (
        compact({k: v for k, v in MESSAGE.items() if k != "text"} | PICTURE),
        (Kind.MESSAGE_RECEIVED,),
    ),
    "delivered": (compact(STATUS), (Kind.STATUS,)),
    "read": (compact(STATUS | {"status": "read"}), (Kind.STATUS,)),
    "rejected": (compact(STATUS | {"status": "rejected", "error": ERROR}), (Kind.STATUS,)),
}


def sig(fields: dict[str, Any], secret: str, algorithm: str = "sha256") -> str:
    cleaned = {name: value.replace("&", "_").replace("=", "_") for name, value in fields.items()}
    joined = "".join(f"&{name}={cleaned[name]}" for name in sorted(cleaned)).encode()
    if algorithm == "md5hash":
        return hashlib.md5(joined + secret.encode()).hexdigest()
    return hmac.new(secret.encode(), joined, algorithm).hexdigest()


class TestVonageWithASig(TimedContract):
    secret = SECRET
    next_secret = NEXT_SECRET
    wrong_secrets = ("", SECRET[:-1], f"{SECRET}x")
    stale_after = timedelta(hours=24, minutes=5)
    bodies = OLDER
    unknown = compact({"messageId": "0A05", "msisdn": "40722123456"})

    def reader(self, *secrets: str) -> VonageWebhooks:
        return VonageWebhooks(secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        is_json = body.startswith(b"{")
        fields = json.loads(body) if is_json else dict(parse_qsl(body.decode()))
        fields["timestamp"] = str(int(at.timestamp()))
        fields["sig"] = sig(fields, secret)
        written = compact(fields) if is_json else urlencode(fields).encode()
        return WebhookRequest(HOOK, {}, {}, written)

    def test_an_empty_proof_does_not_fit_an_empty_secret(self):
        blank = WebhookRequest(HOOK, {}, {}, compact(INBOUND | {"sig": ""}))
        for ours in ((), ("",), (SECRET,)):
            self.refuses(self.reader(*ours), blank)

    def test_a_request_without_its_proof_is_refused(self):
        for fields in (INBOUND, {name: INBOUND[name] for name in INBOUND if name != "timestamp"}):
            bare = WebhookRequest(HOOK, {}, {}, compact(fields))
            self.refuses(self.reader(SECRET), bare)

    def test_a_sig_without_a_time_is_refused(self):
        fields = {name: INBOUND[name] for name in INBOUND if name != "timestamp"}
        fields["sig"] = sig(fields, SECRET)
        self.refuses(self.reader(SECRET), WebhookRequest(HOOK, {}, {}, compact(fields)))

    def test_a_changed_sig_is_refused(self):
        good = sig(INBOUND, SECRET)
        for other in (good[:-1], f"{good}0", good[::-1], "é", "\ud800"):
            body = compact(INBOUND | {"sig": other})
            self.refuses(self.reader(SECRET), WebhookRequest(HOOK, {}, {}, body))


class TestVonageWithAToken(TimedContract):
    secret = SECRET
    next_secret = NEXT_SECRET
    wrong_secrets = (SECRET[:-1], f"{SECRET}x")
    stale_after = timedelta(hours=24, minutes=5)
    bodies = NEWER
    unknown = compact({"message_uuid": "dddd", "from": "40722123456"})

    def reader(self, *secrets: str) -> VonageWebhooks:
        return VonageWebhooks(secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        claims = {
            "iat": int(at.timestamp()),
            "jti": "j1",
            "iss": "Vonage",
            "payload_hash": hashlib.sha256(body).hexdigest(),
            "api_key": "abcd1234",
        }
        return bearing(jwt.encode(claims, secret, algorithm="HS256"), body)


def bearing(token: str, body: bytes) -> WebhookRequest:
    return WebhookRequest(HOOK, {"authorization": f"Bearer {token}"}, {}, body)


READER = VonageWebhooks((SECRET,))


def only(body: bytes) -> InboundEvent:
    (event,) = READER.read(body, received_at=ARRIVED)
    return event


@pytest.mark.parametrize("spelling", [VECTOR_SIG, VECTOR_SIG.upper()])
def test_the_published_signature_passes(spelling):
    request = WebhookRequest(HOOK, {}, {}, urlencode(VECTOR | {"sig": spelling}).encode())
    VonageWebhooks(("demo_sig_secret",)).verify(request, now=NOW)


@pytest.mark.parametrize("algorithm", ["md5hash", "md5", "sha1", "sha256", "sha512"])
def test_each_algorithm_is_taken_only_where_it_is_set(algorithm):
    body = compact(VECTOR | {"sig": sig(VECTOR, SECRET, algorithm)})
    request = WebhookRequest(HOOK, {}, {}, body)
    VonageWebhooks((SECRET,), algorithm=algorithm).verify(request, now=NOW)
    other = "sha1" if algorithm == "sha256" else "sha256"
    with pytest.raises(WebhookRefused):
        VonageWebhooks((SECRET,), algorithm=other).verify(request, now=NOW)


CLAIMS = {"iat": 1768471200, "payload_hash": hashlib.sha256(NEWER["text"][0]).hexdigest()}


@pytest.mark.parametrize(
    ("claims", "algorithm"),
    [
        (CLAIMS, "HS512"),
        (CLAIMS, "none"),
        ({"iat": CLAIMS["iat"]}, "HS256"),
        ({"payload_hash": CLAIMS["payload_hash"]}, "HS256"),
        (CLAIMS | {"payload_hash": "0" * 64}, "HS256"),
    ],
)
def test_a_token_that_proves_less_is_refused(claims, algorithm):
    token = jwt.encode(claims, None if algorithm == "none" else SECRET * 3, algorithm=algorithm)
    reader = VonageWebhooks((SECRET * 3,))
    with pytest.raises(WebhookRefused):
        reader.verify(bearing(token, NEWER["text"][0]), now=NOW)


def test_another_algorithm_named_over_a_good_signature_is_refused():
    head, payload, _ = jwt.encode(CLAIMS, SECRET * 3, algorithm="HS512").split(".")
    digest = hmac.digest((SECRET * 3).encode(), f"{head}.{payload}".encode(), "sha256")
    token = f"{head}.{payload}.{jwt.utils.base64url_encode(digest).decode()}"
    with pytest.raises(WebhookRefused, match="HS256"):
        VonageWebhooks((SECRET * 3,)).verify(bearing(token, NEWER["text"][0]), now=NOW)


def test_the_hash_may_be_of_the_compact_form_of_the_body():
    token = jwt.encode(CLAIMS, SECRET, algorithm="HS256")
    spaced = json.dumps(MESSAGE, indent=1).encode()
    READER.verify(bearing(token, spaced), now=NOW)


def test_a_token_is_not_made_up_for_by_a_sig():
    body = compact(INBOUND | {"sig": sig(INBOUND, SECRET)})
    good = WebhookRequest(HOOK, {}, {}, body)
    READER.verify(good, now=NOW)
    with pytest.raises(WebhookRefused):
        READER.verify(replace(good, headers={"authorization": "Bearer x.y.z"}), now=NOW)


@pytest.mark.parametrize("body", [OLDER["text"][0], OLDER["text as a form"][0], NEWER["text"][0]])
def test_a_text_has_the_same_sides_in_either_form(body):
    event = only(body)
    assert (event.account, event.contact.phone, event.text) == (OURS, LEAD, MARKER)
    assert (event.at, event.channel, event.message_type) == (NOW, "SMS", "text")


@pytest.mark.parametrize("written", ["0722123456", "12345", "Firma"])
def test_whatever_is_no_international_number_is_still_somebody(written):
    contact = only(compact(INBOUND | {"msisdn": written})).contact
    assert (contact.phone, contact.key) == (None, written)


def test_a_part_of_a_long_text_says_which_one_it_is():
    assert only(OLDER["part"][0]).detail == "part 2 of 3, reference 1"


def test_a_picture_can_be_fetched():
    event = only(NEWER["picture"][0])
    assert event.media == (InboundMedia("image", filename="a.jpg", url="https://m.test/1"),)
    assert (event.text, event.message_type) == ("poza", "image")


@pytest.mark.parametrize(
    ("body", "word", "code", "meaning"),
    [
        (OLDER["delivered"][0], "delivered", None, None),
        (OLDER["opted out"][0], "failed", 9, "OPTED_OUT"),
        (NEWER["delivered"][0], "delivered", None, None),
        (NEWER["read"][0], "read", None, None),
        (NEWER["rejected"][0], "failed", 1170, "REFUSED"),
        (compact(STATUS | {"status": "submitted"}), "sent", None, None),
        (compact(STATUS | {"status": "a new word"}), "unknown", None, None),
    ],
)
def test_what_became_of_a_message(body, word, code, meaning):
    event = only(body)
    assert (event.account, event.contact.phone, event.at) == ("OurBrand", LEAD, NOW)
    assert event.delivery is not None
    told = (event.delivery.status, event.delivery.code, event.delivery.meaning)
    assert told == (word, code, meaning)
