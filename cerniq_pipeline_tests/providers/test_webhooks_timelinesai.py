"""TimelinesAI's webhooks: believed by a token, read whatever shape they come in."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cerniq_pipeline.domain.events import Contact, InboundMedia, Kind, WebhookRequest
from cerniq_pipeline.domain.history import RecentChat
from cerniq_pipeline.errors import UnreadableWebhook
from cerniq_pipeline.providers.timelinesai.webhooks import (
    TimelinesAIWebhooks,
    Told,
    message_event,
)
from cerniq_pipeline_tests.providers.webhook_contract import (
    ARRIVED,
    HOOK,
    MARKER,
    NOW,
    SignedBodyContract,
    WebhookContract,
)

NOON = datetime(2026, 1, 15, 10, 0, 0, tzinfo=UTC)
LEAD, OURS = "+40722123456", "+40731000001"
TOKEN, NEXT_TOKEN = "a-long-random-token-0001", "a-long-random-token-0002"

CHAT = {
    "full_name": "Ana Pop",
    "chat_url": "https://app.timelines.ai/chat/123456/messages/",
    "chat_id": 123456,
    "is_group": False,
    "phone": LEAD,
    "responsible_name": "Op",
    "responsible_email": "op@example.test",
}
BARE_CHAT = {"full_name": "Ana Pop", "chat_id": 123456, "chat_type": "direct", "phone": LEAD[1:]}
ACCOUNT = {"full_name": "Vanzari", "email": "op@example.test", "phone": OURS}
FILE = {
    "temporary_download_url": "https://files.example.test/a",
    "filename": "a.pdf",
    "size": 1234,
    "mimetype": "application/pdf",
}
MESSAGE = {
    "text": MARKER,
    "direction": "received",
    "origin": "WhatsApp",
    "timestamp": "2026-01-15 12:00:00 +0200",
    "received_timestamp": "2026-01-15 12:00:01 +0200",
    "message_uid": "c7ec509d-0171-4ead-a84b-c6943a644768",
    "reply_to_uid": None,
    "sender": {"full_name": "Ana Pop", "phone": LEAD},
    "recipient": {"full_name": "Vanzari", "phone": OURS},
    "attachments": [FILE],
}
SENT = MESSAGE | {
    "direction": "sent",
    "message_uid": "c7ec509d-0171-4ead-a84b-c6943a644769",
    "sender": MESSAGE["recipient"],
    "recipient": MESSAGE["sender"],
    "attachments": [],
}
REACTION = {
    "message_uid": "c7ec",
    "action": "set",
    "emoji": "👍",
    "reactor": {"full_name": "Ana Pop", "phone": LEAD[1:]},
    "timestamp": "2026-01-15 12:01:00 +0200",
    "reactions": {"👍": 1},
}
CALL = {
    "duration": None,
    "direction": "incoming",
    "is_video": False,
    "status": "Missed",
    "timestamp": "2026-01-15 12:02:00 +0200",
    "message_uid": "d8",
    "caller": {"full_name": "Ana Pop", "phone": LEAD},
    "recipient": {"full_name": "Vanzari", "phone": OURS},
}
LINE = {
    "id": f"{OURS[1:]}@s.whatsapp.net",
    "phone": OURS,
    "connected_on": "2026-01-01 09:00:00 +0200",
    "disconnected_on": "2026-01-15 12:00:00 +0200",
    "status": "disconnected",
    "account_name": "Vanzari",
}
WABA = {
    "account": {"id": 4821, "phone": "+40312345678", "account_name": "Business"},
    "chat": {"id": 90155, "waba_account_id": 4821, "service_window_is_open": False},
}


def told(event_type: str, **parts: Any) -> bytes:
    return json.dumps({"event_type": event_type, **parts}).encode()


def message_body(event_type: str = "message:received:new", **changes: Any) -> bytes:
    return told(event_type, chat=CHAT, whatsapp_account=ACCOUNT, message=MESSAGE | changes)


def waba(word: str, **changes: Any) -> bytes:
    message = {
        "message_uid": "e9",
        "direction": "sent",
        "status": word,
        "timestamp": "2026-01-15 12:00:00 +0200",
        "text": MARKER,
    }
    return told(f"waba:message:{word}", **WABA, message=message | changes)


def line(word: str) -> bytes:
    return told(f"whatsapp:account:{word}", whatsapp_account=LINE)


FAILURE = {"code": 131047, "title": "Re-engagement message", "details": "…"}

BODIES = {
    "received": (message_body(), (Kind.MESSAGE_RECEIVED,)),
    "sent": (
        told("message:sent:new", chat=CHAT, whatsapp_account=ACCOUNT, message=SENT),
        (Kind.MESSAGE_SENT_ELSEWHERE,),
    ),
    "new and received": (message_body("message:new"), (Kind.MESSAGE_RECEIVED,)),
    "new and sent": (
        told("message:new", chat=CHAT, whatsapp_account=ACCOUNT, message=SENT),
        (Kind.MESSAGE_SENT_ELSEWHERE,),
    ),
    "reaction": (
        told("message:reaction", chat=BARE_CHAT, whatsapp_account=ACCOUNT, reaction=REACTION),
        (Kind.REACTION,),
    ),
    "missed call": (
        told("call:incoming:missed", chat=BARE_CHAT, whatsapp_account=ACCOUNT, call_details=CALL),
        (Kind.CALL,),
    ),
    "connected": (line("connected"), (Kind.ACCOUNT_CONNECTED,)),
    "resumed": (line("resumed"), (Kind.ACCOUNT_CONNECTED,)),
    "disconnected": (line("disconnected"), (Kind.ACCOUNT_DISCONNECTED,)),
    "suspended": (line("suspended"), (Kind.ACCOUNT_SUSPENDED,)),
    "waba received": (
        waba("received", direction="received", message_uid="e8"),
        (Kind.MESSAGE_RECEIVED,),
    ),
    "waba delivered": (waba("delivered"), (Kind.STATUS,)),
    "waba read": (waba("read"), (Kind.STATUS,)),
    "waba failed": (waba("failed", failure_reason=FAILURE), (Kind.STATUS,)),
    "chat": (
        told(
            "chat:incoming:new",
            chat={"id": 123456, "name": "Ana Pop", "phone": LEAD, "closed": False, "labels": []},
            whatsapp_account=LINE,
        ),
        (Kind.UNKNOWN,),
    ),
}


def with_token(body: bytes, token: str) -> WebhookRequest:
    return WebhookRequest(f"{HOOK}?token={token}", {}, {"token": token}, body)


class TestTimelinesAIWithAToken(WebhookContract):
    secret = TOKEN
    next_secret = NEXT_TOKEN
    wrong_secrets = ("", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "vendor")
    bodies = BODIES
    unknown = told("chat:responsible:assigned", chat=CHAT)

    def reader(self, *secrets: str) -> TimelinesAIWebhooks:
        return TimelinesAIWebhooks(secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        return with_token(body, secret)


class TestTimelinesAIWithASignature(SignedBodyContract):
    """A relay of ours signs on the way; the token alone is then not enough."""

    secret = "our-own-hmac-secret-1"
    next_secret = "our-own-hmac-secret-2"
    wrong_secrets = ("", "our-own-hmac-secret-", "our-own-hmac-secret-11")
    bodies = BODIES
    unknown = told("chat:responsible:assigned", chat=CHAT)

    def reader(self, *secrets: str) -> TimelinesAIWebhooks:
        return TimelinesAIWebhooks((TOKEN,) if secrets else (), signing_secrets=secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return replace(with_token(body, TOKEN), headers={"x-signature": signature})

    def test_without_a_secret_of_ours_nobody_is_believed(self):
        self.refuses(self.reader(), self.signed(self.any_body(), self.secret))

    def test_an_empty_proof_does_not_fit_an_empty_secret(self):
        request = self.signed(self.any_body(), self.secret)
        blank = replace(request, headers={"x-signature": ""})
        self.refuses(self.reader(self.secret), blank)

    def test_a_right_signature_does_not_make_up_for_a_wrong_token(self):
        signed = self.signed(self.any_body(), self.secret)
        self.refuses(self.reader(self.secret), replace(signed, query={"token": "x"}))


READER = TimelinesAIWebhooks((TOKEN,))


def only(body: bytes) -> Any:
    (event,) = READER.read(body, received_at=ARRIVED)
    return event


def test_a_token_may_stand_at_the_end_of_the_path():
    READER.verify(WebhookRequest(f"{HOOK}/{TOKEN}", {}, {}, b"{}"), now=NOW)


def test_a_received_message_is_read_whole():
    event = only(message_body(reply_to_uid="our-uid"))
    assert event.account == OURS
    assert event.contact == Contact(phone=LEAD, name="Ana Pop")
    assert event.at == NOON
    assert (event.external_id, event.chat_id) == (MESSAGE["message_uid"], "123456")
    assert (event.text, event.reply_to, event.message_type) == (MARKER, "our-uid", "document")
    assert event.media == (
        InboundMedia("document", "application/pdf", "a.pdf", "https://files.example.test/a"),
    )


@pytest.mark.parametrize(
    ("origin", "by_api"), [("Public API", True), ("WhatsApp", False), (None, False)]
)
def test_a_sent_message_says_whether_a_program_sent_it(origin, by_api):
    sent = SENT | {"origin": origin}
    event = only(told("message:sent:new", chat=CHAT, whatsapp_account=ACCOUNT, message=sent))
    assert (event.by_api, event.contact.phone, event.account) == (by_api, LEAD, OURS)


def test_a_body_wrapped_in_data_reads_the_same_and_has_the_same_key():
    plain = json.loads(message_body())
    for wrapped in (
        {"event_type": plain["event_type"], "data": {**plain}},
        {"data": plain},
    ):
        body = json.dumps(wrapped).encode()
        assert only(body) == only(message_body())
        assert READER.envelope(body) == READER.envelope(message_body())


def test_a_single_attachment_counts_as_one():
    alone = MESSAGE | {"attachment": FILE | {"mimetype": "image/jpeg"}}
    del alone["attachments"]
    event = only(told("message:received:new", chat=CHAT, message=alone))
    assert [file.kind for file in event.media] == ["image"]


@pytest.mark.parametrize("name", ["reaction", "missed call"])
def test_numbers_without_a_plus_get_one(name):
    event = only(BODIES[name][0])
    assert (event.contact.phone, event.account, event.chat_id) == (LEAD, OURS, "123456")


@pytest.mark.parametrize(
    ("written", "contact"),
    [
        (LEAD, Contact(phone=LEAD)),
        (f"{LEAD[1:]}@s.whatsapp.net", Contact(phone=LEAD)),
        (f"{LEAD[1:]}:12@c.us", Contact(phone=LEAD)),
        ("123456789012345@lid", Contact(user_id="123456789012345@lid")),
        ("123456789012345:2@LID", Contact(user_id="123456789012345@lid")),
        ("120363041234567890@g.us", Contact()),
        ("40722123456@example.test", Contact()),
        ("ana@lid", Contact()),
    ],
)
def test_only_a_number_is_taken_for_one(written: str, contact: Contact):
    chat, nameless = {"chat_id": 1, "phone": written}, {"phone": written}
    told: dict[str, Any] = {
        "message:received:new": {"chat": chat, "message": {"sender": nameless}},
        "message:sent:new": {"chat": chat, "message": {"recipient": nameless}},
        "waba:message:read": {"message": {"message_uid": "u", "recipient": nameless}},
        "message:reaction": {"chat": chat, "reaction": {"reactor": nameless}},
        "call:incoming:missed": {"chat": chat, "call_details": {"caller": nameless}},
        "chat:renamed": {"chat": chat},
    }
    for event_type, body in told.items():
        raw = json.dumps({"event_type": event_type, **body}).encode()
        (event,) = TimelinesAIWebhooks((TOKEN,)).read(raw, received_at=NOON)
        assert event.contact == contact, event_type
        names = tuple(filter(None, [contact.phone, contact.user_id]))
        assert TimelinesAIWebhooks((TOKEN,)).envelope(raw).people == names


def test_a_reaction_names_the_message_it_is_about():
    event = only(BODIES["reaction"][0])
    assert (event.text, event.reply_to, event.detail) == ("👍", "c7ec", "set")


def test_a_reaction_that_is_taken_back_is_another_event():
    gone = REACTION | {"action": "removed"}
    body = told("message:reaction", chat=BARE_CHAT, reaction=gone)
    assert READER.envelope(body).event_key != READER.envelope(BODIES["reaction"][0]).event_key


def test_a_number_that_goes_twice_is_two_events():
    again = told(
        "whatsapp:account:disconnected",
        whatsapp_account=LINE | {"disconnected_on": "2026-01-16 12:00:00 +0200"},
    )
    first = line("disconnected")
    assert READER.envelope(again).event_key != READER.envelope(first).event_key
    assert only(first).at == NOON
    assert only(line("connected")).at == ARRIVED


def test_a_failure_carries_its_code_title_and_meaning():
    delivery = only(BODIES["waba failed"][0]).delivery
    assert (delivery.external_id, delivery.status, delivery.at) == ("e9", "failed", NOON)
    assert (delivery.code, delivery.title) == (131047, "Re-engagement message")
    assert delivery.meaning == "WINDOW_CLOSED"


@pytest.mark.parametrize("word", ["delivered", "read"])
def test_a_status_is_taken_from_the_events_name(word):
    assert only(waba(word, status="odd")).delivery.status == word


def test_a_message_of_the_history_has_the_key_of_its_webhook():
    message = Told(
        uid="c7ec509d",
        from_us=False,
        text="Buna",
        status="Read",
        origin="WhatsApp",
        sender=LEAD,
        sender_name="Ana",
        recipient=OURS,
        recipient_name="Vanzari",
        timestamp="2026-01-15 12:00:00 +0200",
        received_timestamp="2026-01-15 12:00:01 +0200",
        attachments=(),
    )
    copy = message_event(message, RecentChat("123456", OURS, LEAD, NOON))
    kept = READER.envelope(copy.body)
    assert (kept.event_key, kept.event_type) == (copy.event_key, copy.event_type)
    assert (kept.account, kept.contact) == (copy.account, copy.contact)


def test_a_message_without_an_id_or_a_time_is_still_heard():
    event = only(told("message:received:new", chat=CHAT, message={"text": "stop"}))
    assert (event.kind, event.text, event.at) == (Kind.MESSAGE_RECEIVED, "stop", ARRIVED)
    assert event.contact.phone == LEAD


def test_what_postgres_cannot_hold_is_left_out_of_a_text():
    assert only(message_body(text="st\0op \ud800!")).text == "stop ?!"


def test_a_body_without_a_type_is_unreadable():
    with pytest.raises(UnreadableWebhook, match="event_type"):
        READER.envelope(b'{"chat":{}}')
