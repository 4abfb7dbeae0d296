"""Meta's webhooks: signed with the app's secret, and full of entries, changes and messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pywa.utils import webhook_updates_validator

from cerniq_pipeline.domain.events import Contact, InboundEvent, InboundMedia, Kind, WebhookRequest
from cerniq_pipeline.providers.meta.webhooks import MetaWebhooks, read_statuses
from cerniq_pipeline.providers.signing import hmac_hex
from cerniq_pipeline_tests.providers.webhook_contract import (
    ARRIVED,
    HOOK,
    MARKER,
    NOW,
    SignedBodyContract,
)

LEAD, OURS = "+40722123456", "+40312345678"
SECRET, NEXT_SECRET = "demo_app_secret", "demo_app_secret_2"
VECTOR = b'{"object":"whatsapp_business_account","entry":[]}'
VECTOR_SIGNATURE = "sha256=650a7ec4c57b1d45d68231c8825bb556bcfb240069c6cbf98a34a177ce9e909a"

ANA = {
    "profile": {"name": "Ana", "username": "ana.p"},
    "wa_id": "40722123456",
    "user_id": "RO.1349",
}
UNSUPPORTED = {
    "code": 131051,
    "title": "Message type unknown",
    "message": "Message type unknown",
    "error_data": {"details": "Message type is currently not supported."},
}
CONTEXT = {"from": "40312345678", "id": "wamid.A"}


def message(id: str, type: str, content: Any = None, **more: Any) -> dict[str, Any]:
    base = {"from": "40722123456", "id": id, "timestamp": "1768471200", "type": type}
    return base | ({} if content is None else {type: content}) | more


TEXT = message("wamid.A", "text", {"body": MARKER})
FILE = {"id": "1003", "mime_type": "image/jpeg", "sha256": "SfIn=", "caption": "poza"}
DELIVERED = {
    "id": "wamid.A",
    "status": "delivered",
    "timestamp": "1768471260",
    "recipient_id": "40722123456",
    "conversation": {"id": "c1", "origin": {"type": "marketing"}},
    "pricing": {"billable": True, "pricing_model": "PMP", "category": "marketing"},
    "biz_opaque_callback_data": "lead-42",
}
FAILED = {
    "id": "wamid.A",
    "status": "failed",
    "timestamp": "1768471260",
    "recipient_id": "40722123456",
    "errors": [{"code": 131047, "title": "Re-engagement message", "message": "…"}],
}


def change(
    *messages: Any, statuses: tuple[Any, ...] = (), contacts: tuple[Any, ...] = (ANA,)
) -> dict[str, Any]:
    value: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "40312345678", "phone_number_id": "1065"},
    }
    if messages:
        value |= {"contacts": list(contacts), "messages": list(messages)}
    if statuses:
        value["statuses"] = list(statuses)
    return {"field": "messages", "value": value}


def body(*changes: Any, **others: Any) -> bytes:
    entries = [{"id": "waba", "changes": list(changes)}]
    whole = {"object": "whatsapp_business_account", "entry": entries}
    return json.dumps(whole | others).encode()


def one(*args: Any, **kwargs: Any) -> bytes:
    return body(change(*args, **kwargs))


BATCH = json.dumps(
    {
        "object": "whatsapp_business_account",
        "entry": [
            {"id": "1", "changes": [change(TEXT, message("wamid.B", "image", FILE))]},
            {
                "id": "2",
                "changes": [
                    change(statuses=(DELIVERED, FAILED)),
                    change(message("wamid.C", "text", {"body": "Da"}), statuses=(DELIVERED,)),
                ],
            },
        ],
    }
).encode()

RECEIVED = (Kind.MESSAGE_RECEIVED,)
CASES = {
    "text": TEXT,
    "image": message("wamid.B", "image", FILE),
    "audio": message("wamid.C", "audio", {"id": "1003", "mime_type": "audio/ogg", "voice": True}),
    "location": message(
        "wamid.D",
        "location",
        {"latitude": 44.43, "longitude": 26.1, "name": "Birou", "address": "Bucuresti"},
    ),
    "button": message(
        "wamid.F",
        "button",
        {"payload": "Unsubscribe", "text": "Unsubscribe"},
        context=CONTEXT,
    ),
    "interactive": message(
        "wamid.G",
        "interactive",
        {"type": "button_reply", "button_reply": {"id": "da", "title": "Da"}},
        context=CONTEXT,
    ),
    "list": message(
        "wamid.L",
        "interactive",
        {"type": "list_reply", "list_reply": {"id": "2", "title": "Marti", "description": "…"}},
    ),
    "contacts": message("wamid.K", "contacts", [{"name": {"formatted_name": "Dan Ionescu"}}]),
    "unsupported": message("wamid.H", "unsupported", errors=[UNSUPPORTED]),
    "brand new": message("wamid.N", "hologram", {"id": "1"}),
    "edit": message(
        "wamid.M",
        "edit",
        {"original_message_id": "wamid.A", "message": {"type": "text", "text": {"body": "stop"}}},
    ),
}
BODIES = {name: (one(told), RECEIVED) for name, told in CASES.items()} | {
    "reaction": (
        one(message("wamid.E", "reaction", {"message_id": "wamid.A", "emoji": "👍"})),
        (Kind.REACTION,),
    ),
    "system": (
        one(message("wamid.S", "system", {"body": "A changed", "type": "user_changed_number"})),
        (Kind.UNKNOWN,),
    ),
    "delivered": (one(statuses=(DELIVERED,)), (Kind.STATUS,)),
    "failed": (one(statuses=(FAILED,)), (Kind.STATUS,)),
    "batch": (
        BATCH,
        (*RECEIVED * 2, Kind.STATUS, Kind.STATUS, Kind.MESSAGE_RECEIVED, Kind.STATUS),
    ),
    "template": (
        body({"field": "message_template_status_update", "value": {"event": "APPROVED"}}),
        (Kind.UNKNOWN,),
    ),
}


class TestMeta(SignedBodyContract):
    secret = SECRET
    next_secret = NEXT_SECRET
    wrong_secrets = ("", SECRET[:-1], f"{SECRET}x")
    bodies = BODIES
    unknown = body({"field": "account_update", "value": {"event": "DISABLED_UPDATE"}})

    def reader(self, *secrets: str) -> MetaWebhooks:
        return MetaWebhooks(secrets)

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        signature = f"sha256={hmac_hex(secret, body)}"
        assert webhook_updates_validator(secret, body, signature)
        return WebhookRequest(HOOK, {"x-hub-signature-256": signature}, {}, body)


READER = MetaWebhooks((SECRET,))


def only(content: bytes) -> InboundEvent:
    (event,) = READER.read(content, received_at=ARRIVED)
    return event


def test_the_published_signature_passes():
    assert webhook_updates_validator(SECRET, VECTOR, VECTOR_SIGNATURE)
    headers = {"x-hub-signature-256": VECTOR_SIGNATURE}
    READER.verify(WebhookRequest(HOOK, headers, {}, VECTOR), now=NOW)


def test_a_text_is_read_whole():
    assert only(BODIES["text"][0]) == InboundEvent(
        kind=Kind.MESSAGE_RECEIVED,
        provider="meta",
        channel="WHATSAPP",
        at=NOW,
        account=OURS,
        contact=Contact(phone=LEAD, user_id="RO.1349", name="Ana"),
        external_id="wamid.A",
        chat_id="40722123456",
        text=MARKER,
    )


@pytest.mark.parametrize(
    ("name", "message_type", "text"),
    [
        ("image", "image", "poza"),
        ("audio", "audio", None),
        ("location", "location", "Birou; Bucuresti; 44.43, 26.1"),
        ("button", "button", "Unsubscribe"),
        ("interactive", "button", "Da"),
        ("list", "button", "Marti"),
        ("contacts", "contacts", "Dan Ionescu"),
        ("edit", "edit", "stop"),
        ("unsupported", "unsupported", None),
        ("brand new", "unsupported", None),
    ],
)
def test_each_type_gives_what_a_person_would_read(name, message_type, text):
    event = only(BODIES[name][0])
    assert (event.message_type, event.text) == (message_type, text)


def test_a_file_can_be_fetched_by_its_id():
    assert only(BODIES["image"][0]).media == (
        InboundMedia("image", "image/jpeg", provider_id="1003"),
    )


@pytest.mark.parametrize("name", ["button", "interactive"])
def test_an_answer_names_the_message_it_answers(name):
    assert only(BODIES[name][0]).reply_to == "wamid.A"


def test_an_unsupported_message_keeps_its_errors():
    assert "131051 Message type unknown" in only(BODIES["unsupported"][0]).detail
    assert only(BODIES["brand new"][0]).detail == "hologram"


def test_a_reaction_without_an_emoji_was_taken_back():
    event = only(one(message("wamid.E", "reaction", {"message_id": "wamid.A"})))
    assert (event.kind, event.reply_to, event.detail) == (Kind.REACTION, "wamid.A", "removed")


def test_a_person_without_a_number_is_known_by_the_user_id():
    hidden = {name: value for name, value in TEXT.items() if name != "from"}
    person = {name: value for name, value in ANA.items() if name != "wa_id"}
    content = one(hidden, contacts=(person,))
    event = only(content)
    assert event.contact == Contact(user_id="RO.1349", name="Ana")
    assert event.chat_id == "RO.1349"
    assert READER.envelope(content).contact == "RO.1349"


def test_of_several_people_each_message_gets_its_own():
    dan = {"profile": {"name": "Dan"}, "wa_id": "40722000002", "user_id": "RO.2"}
    his = TEXT | {"from": "40722000002", "id": "wamid.D"}
    events = READER.read(one(TEXT, his, contacts=(dan, ANA)), received_at=ARRIVED)
    assert [event.contact.name for event in events] == ["Ana", "Dan"]


def test_nobody_is_guessed_among_several_people():
    hidden = {name: value for name, value in TEXT.items() if name != "from"}
    event = only(one(hidden, contacts=(ANA, ANA | {"user_id": "RO.2"})))
    assert event.contact == Contact()


def test_a_status_is_what_read_statuses_makes_of_it():
    for name in ("delivered", "failed"):
        content = BODIES[name][0]
        event = only(content)
        assert (event.delivery,) == read_statuses(content)
        assert (event.external_id, event.contact.phone) == ("wamid.A", LEAD)
    assert event.delivery is not None
    assert (event.delivery.code, event.delivery.meaning) == (131047, "WINDOW_CLOSED")
    assert event.at == datetime(2026, 1, 15, 10, 1, tzinfo=UTC)


def test_one_odd_status_does_not_lose_the_messages_beside_it():
    odd = {"id": "wamid.Z", "status": "delivered", "timestamp": "9" * 20}
    events = READER.read(one(TEXT, statuses=(odd, DELIVERED)), received_at=ARRIVED)
    kinds = [event.kind for event in events]
    assert kinds == [Kind.MESSAGE_RECEIVED, Kind.UNKNOWN, Kind.STATUS]


def test_the_key_of_a_batch_does_not_depend_on_the_order_of_its_items():
    second = message("wamid.B", "image", FILE)
    one_way, other_way = one(TEXT, second), one(second, TEXT)
    assert READER.envelope(one_way).event_key == READER.envelope(other_way).event_key
    assert READER.envelope(one_way).event_key != READER.envelope(one(TEXT)).event_key


def test_each_step_of_a_message_has_its_own_key():
    keys = {
        READER.envelope(one(statuses=(DELIVERED | {"status": word},))).event_key
        for word in ("sent", "delivered", "read", "failed", "a new word", "another new word")
    }
    assert len(keys) == 6


def test_a_body_without_entries_says_nothing_and_is_no_accident():
    assert READER.read(VECTOR, received_at=ARRIVED) == ()
    assert READER.envelope(VECTOR).event_key
