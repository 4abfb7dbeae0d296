"""What people write to our phones, what we type by hand, what our phones tell each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PHONE = "+40731000001"
OTHER_PHONE = "+40731000002"
LEAD = "+40722123456"
API = "/integrations/api"


def send(
    sandbox: RunningSandbox, text: str = "Bună ziua", *, phone: str = PHONE, to: str = LEAD
) -> str:
    body = {"phone": to, "whatsapp_account_phone": phone, "text": text}
    answer = sandbox.client.post(f"{API}/messages", json=body)
    return answer.raise_for_status().json()["data"]["message_uid"]


def data(sandbox: RunningSandbox, path: str, **query: str) -> Any:
    answer = sandbox.client.get(f"{API}{path}", params=query)
    return answer.raise_for_status().json()["data"]


def history(sandbox: RunningSandbox, chat_id: int, **query: str) -> list[dict[str, Any]]:
    return data(sandbox, f"/chats/{chat_id}/messages", **query)["messages"]


def texts(sandbox: RunningSandbox, chat_id: int, **query: str) -> list[str]:
    return [message["text"] for message in history(sandbox, chat_id, **query)]


def test_a_reply_stands_in_the_chat_with_the_ends_the_other_way_round(sandbox: RunningSandbox):
    send(sandbox)
    heard = sandbox.inbound(PHONE, LEAD, "Da, mă interesează")
    newest, first = history(sandbox, heard["chat_id"])
    assert first["from_me"] is True
    assert newest.pop("timestamp")
    assert newest.pop("received_timestamp")
    assert newest == {
        "uid": heard["message_uid"],
        "chat_id": first["chat_id"],
        "sender_phone": LEAD,
        "sender_name": LEAD,
        "recipient_phone": PHONE,
        "recipient_name": PHONE,
        "from_me": False,
        "text": "Da, mă interesează",
        "attachment_url": None,
        "attachment_filename": None,
        "status": "Read",
        "origin": "WhatsApp",
        "has_attachment": False,
        "message_type": "whatsapp",
        "data": {},
        "created_by": "",
    }
    assert data(sandbox, f"/messages/{heard['message_uid']}")["text"] == "Da, mă interesează"


def test_a_reply_is_a_line_of_the_journal_and_no_accepted_message(sandbox: RunningSandbox):
    heard = sandbox.inbound(PHONE, LEAD, "Bună")
    (line,) = sandbox.received()
    assert (line["account"], line["contact"]) == (PHONE, LEAD)
    assert (line["sender"], line["recipient"]) == (LEAD, PHONE)
    assert (line["message_uid"], line["n"]) == (heard["message_uid"], heard["n"])
    assert (line["provider"], line["from_me"], line["copy_of"]) == ("timelinesai", False, None)
    assert sandbox.accepted() == sandbox.journal("request") == []
    assert sandbox.client.get("/_sandbox/health").json()["accepted"] == 0


def test_a_stranger_who_writes_opens_a_chat(sandbox: RunningSandbox):
    heard = sandbox.inbound(PHONE, LEAD, "Cine sunteți?")
    (chat,) = data(sandbox, "/chats", with_msg="true")["chats"]
    assert (chat["id"], chat["phone"]) == (heard["chat_id"], LEAD)
    assert chat["whatsapp_account_id"] == "40731000001@s.whatsapp.net"
    assert (chat["last_message"]["text"], chat["read"], chat["unattended"]) == (
        "Cine sunteți?",
        False,
        True,
    )
    (account,) = data(sandbox, "/whatsapp_accounts")["whatsapp_accounts"]
    assert (account["phone"], account["status"]) == (PHONE, "active")


def test_a_reply_brings_its_chat_to_the_top(sandbox: RunningSandbox):
    send(sandbox, to="+40722000001")
    send(sandbox, to="+40722000002")
    sandbox.inbound(PHONE, "+40722000001", "Da")
    chats = data(sandbox, "/chats")["chats"]
    assert [chat["phone"] for chat in chats] == ["+40722000001", "+40722000002"]
    assert len(data(sandbox, "/chats", read="false")["chats"]) == 1
    assert len(data(sandbox, "/chats", read="true")["chats"]) == 1


def test_history_is_filtered_by_who_wrote(sandbox: RunningSandbox):
    send(sandbox, "noi")
    chat_id = sandbox.inbound(PHONE, LEAD, "ei")["chat_id"]
    assert texts(sandbox, chat_id) == ["ei", "noi"]
    assert texts(sandbox, chat_id, from_me="true") == ["noi"]
    assert texts(sandbox, chat_id, from_me="false") == ["ei"]


def test_a_message_told_late_stands_where_it_was_written(sandbox: RunningSandbox):
    now = datetime.now(UTC)
    send(sandbox, "acum")
    heard = sandbox.inbound(PHONE, LEAD, "ieri", at=now - timedelta(days=1))
    sandbox.inbound(PHONE, LEAD, "alaltăieri", at=now - timedelta(days=2))
    chat_id = heard["chat_id"]
    assert texts(sandbox, chat_id) == ["acum", "ieri", "alaltăieri"]
    after = (now - timedelta(hours=36)).isoformat()
    assert texts(sandbox, chat_id, after=after) == ["acum", "ieri"]
    assert texts(sandbox, chat_id, before=after) == ["alaltăieri"]
    assert texts(sandbox, chat_id, after_message=heard["message_uid"]) == ["acum"]
    told = data(sandbox, f"/messages/{heard['message_uid']}")
    assert told["timestamp"] < told["received_timestamp"]


def test_what_a_person_types_on_our_handset_is_ours_but_not_the_apis(sandbox: RunningSandbox):
    send(sandbox, "prin API")
    chat_id = sandbox.inbound(PHONE, LEAD, "de mână", by_hand=True)["chat_id"]
    newest, first = history(sandbox, chat_id)
    assert (newest["from_me"], newest["origin"]) == (True, "WhatsApp")
    assert (newest["sender_phone"], newest["recipient_phone"]) == (PHONE, LEAD)
    assert (first["from_me"], first["origin"]) == (True, "Public API")
    (line,) = sandbox.received()
    assert (line["account"], line["contact"], line["from_me"]) == (PHONE, LEAD, True)


@pytest.mark.parametrize(
    ("kind", "filename"),
    [
        ("image", "photo.jpg"),
        ("video", "video.mp4"),
        ("audio", "voice.ogg"),
        ("document", "document.pdf"),
    ],
)
def test_a_person_can_send_a_file_without_words(sandbox: RunningSandbox, kind: str, filename: str):
    heard = sandbox.inbound(PHONE, LEAD, kind=kind)
    (message,) = history(sandbox, heard["chat_id"])
    assert (message["text"], message["has_attachment"]) == ("", True)
    assert message["attachment_filename"] == filename
    assert filename in message["attachment_url"]
    assert sandbox.received()[0]["attachment"]["filename"] == filename


def test_the_documents_dialect_tells_who_wrote(sandbox: RunningSandbox):
    send(sandbox, "noi")
    chat_id = sandbox.inbound(PHONE, LEAD, kind="image")["chat_id"]
    newest, first = sandbox.client.get(f"/v1/chats/{chat_id}/messages").json()["messages"]
    assert (newest["phone"], newest["recipient"]) == (LEAD, PHONE)
    assert [(one["from_me"], one["origin"], one["has_attachment"]) for one in (newest, first)] == [
        (False, "WhatsApp", True),
        (True, "Public API", False),
    ]


def test_a_history_that_lies_hides_replies_too(sandbox: RunningSandbox):
    chat_id = sandbox.inbound(PHONE, LEAD, "Da", at=datetime.now(UTC) - timedelta(hours=1))[
        "chat_id"
    ]
    sandbox.fault("history_lag", visible_after_ms=60_000, phone=PHONE, times=1)
    assert texts(sandbox, chat_id) == []  # the lag runs from when the vendor heard of it
    sandbox.fault("history_twice", phone=PHONE, times=1)
    assert texts(sandbox, chat_id) == ["Da", "Da"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([], "a message is a JSON object"),
        ({"from": LEAD, "text": "a"}, "account must be a phone"),
        ({"account": PHONE, "text": "a"}, "from must be a phone"),
        ({"account": PHONE, "from": LEAD}, "text must be"),
        ({"account": PHONE, "from": LEAD, "text": 7}, "text must be"),
        ({"account": PHONE, "from": LEAD, "text": "a", "type": "song"}, "type must be one of"),
        ({"account": PHONE, "from": LEAD, "text": "a", "by_hand": "yes"}, "by_hand must be"),
        ({"account": PHONE, "from": LEAD, "text": "a", "at": "ieri"}, "at must be a time"),
        ({"account": PHONE, "from": LEAD, "text": "a", "at": "2026-01-15"}, "with an offset"),
        ({"account": PHONE, "from": LEAD, "text": "a", "when": "now"}, "has no when"),
        ({"account": PHONE, "from": LEAD, "type": "reaction"}, "a message of this chat"),
        ({"account": PHONE, "from": LEAD, "type": "reaction", "text": "a"}, "has no text"),
        ({"account": PHONE, "from": LEAD, "type": "reaction", "emoji": ""}, "emoji must be"),
        ({"account": PHONE, "from": LEAD, "text": "a", "number_hidden": 1}, "number_hidden must"),
    ],
)
def test_a_message_asked_for_wrongly_is_explained(sandbox: RunningSandbox, wrong: Any, says: str):
    answer = sandbox.client.post("/_sandbox/inbound", json=wrong)
    assert answer.status_code == 400
    assert says in answer.json()["error"]
    assert sandbox.journal() == []


# --- our own phones ------------------------------------------------------------------------------


def test_what_one_of_our_phones_writes_to_another_is_in_both_chats(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "active", OTHER_PHONE: "active"})
    uid = send(sandbox, "probă", to=OTHER_PHONE)
    (heard,) = sandbox.received()
    assert (heard["account"], heard["contact"], heard["copy_of"]) == (OTHER_PHONE, PHONE, uid)
    account = "40731000002@s.whatsapp.net"
    (chat,) = data(sandbox, "/chats", phone=PHONE, whatsapp_account_id=account, with_msg="true")[
        "chats"
    ]
    assert (chat["last_message"]["text"], chat["last_message"]["from_me"]) == ("probă", False)
    assert chat["last_message"]["uid"] == heard["message_uid"] != uid
    assert len(data(sandbox, "/chats")["chats"]) == 2
    assert len(sandbox.accepted()) == 1


@pytest.mark.parametrize("status", [None, "disconnected"])
def test_a_phone_that_is_not_connected_hears_nothing(sandbox: RunningSandbox, status: str | None):
    if status is not None:
        sandbox.set_accounts(**{OTHER_PHONE: status})
    send(sandbox, to=OTHER_PHONE)
    assert sandbox.received() == []


def test_a_dead_phone_accepts_and_delivers_nothing(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "active", OTHER_PHONE: "active"})
    sandbox.fault("not_delivered", phone=PHONE)
    uid = send(sandbox, "probă", to=OTHER_PHONE)
    assert sandbox.accepted()[0]["delivered"] is False
    assert sandbox.received() == []
    assert data(sandbox, f"/messages/{uid}")["status"] == "Sending"
    send(sandbox, "înapoi", phone=OTHER_PHONE, to=PHONE)
    assert [line["text"] for line in sandbox.received()] == ["înapoi"]


def test_a_message_can_fail_after_it_was_accepted(sandbox: RunningSandbox):
    sandbox.set_accounts(**{OTHER_PHONE: "active"})
    sandbox.fault("fails_later", times=1)
    uid = send(sandbox, to=OTHER_PHONE)
    (status,) = sandbox.statuses()
    assert (status["message_uid"], status["status"], status["code"]) == (uid, "failed", 131026)
    steps = data(sandbox, f"/messages/{uid}/status_history")
    assert [step["status"] for step in steps] == ["Sending", "Failed"]
    assert history(sandbox, status["chat_id"])[0]["status"] == "Failed"
    assert sandbox.received() == []
