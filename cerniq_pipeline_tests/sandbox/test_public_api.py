"""The vendor's public API, as its documents describe it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from cerniq_pipeline.sandbox.room import Message, Visibility, reached
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PHONE = "+40731000001"
OTHER_PHONE = "+40731000002"
LEAD = "+40722123456"
API = "/integrations/api"
VENDOR_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0[23]00")


def send(
    sandbox: RunningSandbox, text: str = "Bună ziua", *, phone: str = PHONE, to: str = LEAD
) -> str:
    """Send one message and return its uid."""
    body = {"phone": to, "whatsapp_account_phone": phone, "text": text}
    answer = sandbox.client.post(f"{API}/messages", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]["message_uid"]


def data(sandbox: RunningSandbox, path: str, **query: str) -> Any:
    """What a reading endpoint tells."""
    answer = sandbox.client.get(f"{API}{path}", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "ok"
    return answer.json()["data"]


def chat_of(sandbox: RunningSandbox, uid: str) -> int:
    return data(sandbox, f"/messages/{uid}")["chat_id"]


def texts(sandbox: RunningSandbox, chat_id: int, **query: str) -> list[str]:
    return [one["text"] for one in data(sandbox, f"/chats/{chat_id}/messages", **query)["messages"]]


def test_a_message_to_a_phone_is_accepted_with_an_envelope(sandbox: RunningSandbox):
    body = {"phone": LEAD, "whatsapp_account_phone": PHONE, "text": "Bună ziua"}
    answer = sandbox.client.post(f"{API}/messages", json=body)
    assert answer.status_code == 200
    (line,) = sandbox.accepted()
    assert answer.json() == {"status": "ok", "data": {"message_uid": line["message_uid"]}}


def test_the_journal_tells_a_send_from_request_to_answer(sandbox: RunningSandbox):
    uid = send(sandbox)
    lines = [line for line in sandbox.journal() if line["event"] != "account"]
    assert [line["event"] for line in lines] == ["request", "accepted", "answered"]
    assert len({line["request"] for line in lines}) == 1
    assert [line["n"] for line in lines] == sorted({line["n"] for line in lines})
    for line in lines:
        assert datetime.fromisoformat(line["at"]).utcoffset() == timedelta()
        assert (line["provider"], line["dialect"], line["kind"]) == (
            "timelinesai",
            "public",
            "message",
        )
        assert (line["sender"], line["asked_sender"], line["recipient"]) == (PHONE, PHONE, LEAD)
        assert line["text"] == "Bună ziua"
        assert len(line["text_sha256"]) == 64
    assert lines[1]["message_uid"] == uid
    assert (lines[2]["how"], lines[2]["status"]) == ("answered", 200)


def test_message_info_has_the_documented_fields(sandbox: RunningSandbox):
    uid = send(sandbox)
    info = data(sandbox, f"/messages/{uid}")
    assert VENDOR_TIME.fullmatch(info.pop("timestamp"))
    assert VENDOR_TIME.fullmatch(info.pop("received_timestamp"))
    assert info.pop("status") in ("Sending", "Sent")
    assert info == {
        "uid": uid,
        "chat_id": 1000001,
        "sender_phone": PHONE,
        "sender_name": PHONE,
        "recipient_phone": LEAD,
        "recipient_name": LEAD,
        "from_me": True,
        "text": "Bună ziua",
        "attachment_url": None,
        "attachment_filename": None,
        "origin": "Public API",
        "has_attachment": False,
        "message_type": "whatsapp",
        "data": {},
        "created_by": "",
    }


def test_status_history_begins_with_sending(sandbox: RunningSandbox):
    first = data(sandbox, f"/messages/{send(sandbox)}/status_history")[0]
    assert first["status"] == "Sending"
    assert VENDOR_TIME.fullmatch(first["timestamp"])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "Sending"), (1, "Sent"), (2.9, "Sent"), (3, "Delivered"), (10, "Read"), (9999, "Read")],
)
def test_a_status_follows_from_the_age_of_a_message(seconds: float, expected: str):
    accepted_at = datetime.fromisoformat("2026-01-15T10:00:00+00:00")
    message = Message("uid", 1, PHONE, LEAD, "text", accepted_at, Visibility())
    assert reached(message, now=accepted_at + timedelta(seconds=seconds))[-1][1] == expected


@pytest.mark.parametrize(
    ("fate", "expected"),
    [
        ({"delivered": False}, ["Sending"]),
        ({"failed_at": datetime.fromisoformat("2026-01-15T10:00:00+00:00")}, ["Sending", "Failed"]),
        ({"from_me": False}, ["Read"]),
    ],
)
def test_some_messages_never_get_further(fate: dict[str, Any], expected: list[str]):
    at = datetime.fromisoformat("2026-01-15T10:00:00+00:00")
    message = Message("uid", 1, PHONE, LEAD, "text", at, Visibility(), **fate)
    steps = reached(message, now=at + timedelta(days=1))
    assert [status for _, status in steps] == expected


def test_the_same_two_people_always_meet_in_the_same_chat(sandbox: RunningSandbox):
    first, again = send(sandbox, "unu"), send(sandbox, "doi")
    elsewhere = send(sandbox, "trei", phone=OTHER_PHONE)
    assert chat_of(sandbox, first) == chat_of(sandbox, again) == 1000001
    assert chat_of(sandbox, elsewhere) == 1000002


def test_a_chat_message_leaves_from_the_phone_of_the_chat(sandbox: RunningSandbox):
    chat_id = chat_of(sandbox, send(sandbox))
    send(sandbox, phone=OTHER_PHONE)
    answer = sandbox.client.post(f"{API}/chats/{chat_id}/messages", json={"text": "Revin"})
    assert answer.status_code == 200
    line = sandbox.accepted()[-1]
    assert (line["kind"], line["chat_id"]) == ("chat_message", chat_id)
    assert (line["sender"], line["recipient"]) == (PHONE, LEAD)


def test_a_message_to_a_jid_reaches_the_same_chat_as_one_to_the_phone(sandbox: RunningSandbox):
    chat_id = chat_of(sandbox, send(sandbox))
    body = {"jid": "40722123456@s.whatsapp.net", "whatsapp_account_phone": PHONE, "text": "Salut"}
    answer = sandbox.client.post(f"{API}/messages/to_jid", json=body)
    assert chat_of(sandbox, answer.json()["data"]["message_uid"]) == chat_id


def test_a_group_has_a_chat_without_a_phone(sandbox: RunningSandbox):
    body = {"jid": "120363000000000000@g.us", "whatsapp_account_phone": PHONE, "text": "Salut"}
    sandbox.client.post(f"{API}/messages/to_jid", json=body).raise_for_status()
    (chat,) = data(sandbox, "/chats", group="true")["chats"]
    assert (chat["is_group"], chat["phone"], chat["jid"]) == (True, None, body["jid"])
    assert data(sandbox, "/chats", group="false")["chats"] == []


@pytest.mark.parametrize("misnamed", [{}, {"whatsapp_account_id": "40731000001@s.whatsapp.net"}])
def test_without_a_sender_the_most_recently_connected_phone_is_used(
    sandbox: RunningSandbox, misnamed: dict[str, str]
):
    sandbox.set_accounts(**{PHONE: "active", OTHER_PHONE: "active"})
    body = {"phone": LEAD, "text": "Bună", **misnamed}
    sandbox.client.post(f"{API}/messages", json=body).raise_for_status()
    (line,) = sandbox.accepted()
    assert (line["sender"], line["asked_sender"]) == (OTHER_PHONE, None)


def test_a_phone_that_connects_again_becomes_the_most_recent(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "active", OTHER_PHONE: "active"})
    sandbox.set_accounts(**{PHONE: "disconnected"})
    sandbox.set_accounts(**{PHONE: "active"})
    sandbox.client.post(f"{API}/messages", json={"phone": LEAD, "text": "Bună"})
    assert sandbox.accepted()[0]["sender"] == PHONE


def test_a_disconnected_phone_cannot_send(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "disconnected"})
    body = {"phone": LEAD, "whatsapp_account_phone": PHONE, "text": "Bună"}
    answer = sandbox.client.post(f"{API}/messages", json=body)
    assert answer.status_code == 400
    assert "not connected" in answer.json()["message"]
    assert sandbox.accepted() == []


def test_history_comes_newest_first_in_pages_of_fifty(sandbox: RunningSandbox):
    uids = [send(sandbox, f"mesaj {number}") for number in range(52)]
    chat_id = chat_of(sandbox, uids[0])
    first = data(sandbox, f"/chats/{chat_id}/messages")
    assert first["has_more_pages"] is True
    assert [one["uid"] for one in first["messages"]] == uids[:1:-1]
    second = data(sandbox, f"/chats/{chat_id}/messages", page="2")
    assert second["has_more_pages"] is False
    assert [one["uid"] for one in second["messages"]] == [uids[1], uids[0]]
    assert texts(sandbox, chat_id, sorting_order="asc")[0] == "mesaj 0"


def test_history_can_be_filtered(sandbox: RunningSandbox):
    uids = [send(sandbox, text) for text in ("unu", "doi", "trei")]
    chat_id = chat_of(sandbox, uids[0])
    at = data(sandbox, f"/messages/{uids[0]}")["timestamp"]
    assert texts(sandbox, chat_id, after_message=uids[1]) == ["trei"]
    assert texts(sandbox, chat_id, before_message=uids[1]) == ["unu"]
    assert texts(sandbox, chat_id, from_me="true") == ["trei", "doi", "unu"]
    assert texts(sandbox, chat_id, from_me="false") == []
    assert texts(sandbox, chat_id, after=at) == ["trei", "doi", "unu"]  # inclusive
    assert "unu" in texts(sandbox, chat_id, before=at)
    assert texts(sandbox, chat_id, after="2099-01-01") == []
    assert texts(sandbox, chat_id, before="2020-01-01T00:00:00Z") == []


@pytest.mark.parametrize(
    "query",
    [{"after": "ieri"}, {"from_me": "da"}, {"sorting_order": "random"}, {"page": "0"}],
)
def test_a_bad_filter_is_refused_with_its_name(sandbox: RunningSandbox, query: dict[str, str]):
    chat_id = chat_of(sandbox, send(sandbox))
    answer = sandbox.client.get(f"{API}/chats/{chat_id}/messages", params=query)
    assert answer.status_code == 400
    assert answer.json()["error_code"] == "validation_error"
    assert answer.json()["errors"][0]["fields"] == list(query)


def test_chats_come_with_the_newest_message_first(sandbox: RunningSandbox):
    send(sandbox, "unu", to="+40722000001")
    send(sandbox, "doi", to="+40722000002")
    send(sandbox, "trei", to="+40722000001")
    chats = data(sandbox, "/chats", with_msg="true")["chats"]
    assert [(chat["phone"], chat["last_message"]["text"]) for chat in chats] == [
        ("+40722000001", "trei"),
        ("+40722000002", "doi"),
    ]
    assert "last_message" not in data(sandbox, "/chats")["chats"][0]


def test_chats_are_found_by_phone_and_by_account(sandbox: RunningSandbox):
    send(sandbox)
    send(sandbox, phone=OTHER_PHONE)
    send(sandbox, to="+40722999999")
    assert len(data(sandbox, "/chats")["chats"]) == 3
    assert len(data(sandbox, "/chats", phone=LEAD)["chats"]) == 2
    assert data(sandbox, "/chats", phone="+4072212345")["chats"] == []  # a plus means exactly
    assert len(data(sandbox, "/chats", phone="072212345")["chats"]) == 2
    account = "40731000002@s.whatsapp.net"
    (chat,) = data(sandbox, "/chats", phone=LEAD, whatsapp_account_id=account)["chats"]
    assert chat["whatsapp_account_id"] == account
    assert data(sandbox, f"/chats/{chat['id']}")["id"] == chat["id"]


def test_chat_info_has_the_documented_fields(sandbox: RunningSandbox):
    uid = send(sandbox)
    (chat,) = data(sandbox, "/chats")["chats"]
    assert VENDOR_TIME.fullmatch(chat["created_timestamp"])
    assert VENDOR_TIME.fullmatch(chat["last_message_timestamp"])
    assert chat["id"] == 1000001
    assert chat["jid"] == "40722123456@s.whatsapp.net"
    assert chat["whatsapp_account_id"] == "40731000001@s.whatsapp.net"
    assert chat["last_message_uid"] == uid
    assert chat["chat_url"].endswith("/chat/1000001/messages/")
    assert (chat["closed"], chat["is_group"], chat["is_allowed_to_message"]) == (False, False, True)


def test_accounts_are_listed_with_their_status(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "disconnected"})
    send(sandbox, phone=OTHER_PHONE)
    accounts = data(sandbox, "/whatsapp_accounts")["whatsapp_accounts"]
    assert [(one["id"], one["phone"], one["status"]) for one in accounts] == [
        ("40731000001@s.whatsapp.net", PHONE, "disconnected"),
        ("40731000002@s.whatsapp.net", OTHER_PHONE, "active"),
    ]
    assert VENDOR_TIME.fullmatch(accounts[0]["connected_on"])
    assert {"owner_name", "owner_email", "account_name"} <= accounts[0].keys()


def test_the_workspace_counts_the_messages_used(sandbox: RunningSandbox):
    send(sandbox)
    workspace = data(sandbox, "/workspace")
    assert workspace["messaging_quota"]["used"] == 1
    assert {"workspace_id", "plan", "api_calls_quota"} <= workspace.keys()


@pytest.mark.parametrize(
    ("body", "message", "field"),
    [
        (b"{", "Bad JSON format", None),
        (b"[]", "Bad JSON format", None),
        (b'{"phone":NaN}', "Bad JSON format", None),
        (b'{"phone":"\xff"}', "Bad JSON format", None),
        (b"[" * 100_000, "Bad JSON format", None),
        (b'{"phone":"0722","text":"a"}', "Phone number invalid", None),
        (b'{"phone":"+40abc","text":"a"}', "Phone number invalid", None),
        (b'{"text":"a"}', "Missing data for required field", "phone"),
        (b'{"phone":"+40722123456"}', "Message must have a text or an attachment", "text"),
        (b'{"phone":"+40722123456","text":7}', "Not a valid string", "text"),
        (
            b'{"phone":"+40722123456","text":"%s"}' % (b"a" * 2001),
            "Longer than maximum length 2000",
            "text",
        ),
        (
            b'{"phone":"+40722123456","text":"a\\u0000b"}',
            "NUL characters are not allowed",
            "text",
        ),
        (b'{"phone":"+40722123456","text":"\\ud800"}', "not valid UTF-8", "text"),
        (b'{"phone":"+40722123456","text":"a","file_uid":"x"}', "Attachment x not found", None),
    ],
)
def test_a_bad_send_is_refused_and_recorded(
    sandbox: RunningSandbox, body: bytes, message: str, field: str | None
):
    sandbox.set_accounts(**{PHONE: "active"})
    answer = sandbox.client.post(f"{API}/messages", content=body)
    assert answer.status_code == 400
    told = answer.json()
    assert (told["status"], told["error_code"]) == ("error", "validation_error")
    assert told["message"] == message
    assert told.get("errors") == (field and [{"fields": [field], "msg": message}])
    events = [line["event"] for line in sandbox.journal() if line["event"] != "account"]
    assert events == ["request", "refused", "answered"]
    assert sandbox.journal("refused")[0]["status"] == 400


def test_two_thousand_characters_are_still_accepted(sandbox: RunningSandbox):
    send(sandbox, "ș" * 2000)
    assert sandbox.accepted()[0]["text"] == "ș" * 2000


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/chats/7/messages"),
        ("POST", "/chats/7/messages"),
        ("GET", "/chats/7"),
        ("GET", "/messages/nobody"),
        ("GET", "/messages/nobody/status_history"),
    ],
)
def test_an_unknown_id_is_not_found(sandbox: RunningSandbox, method: str, path: str):
    body = {"text": "Bună"} if method == "POST" else None
    answer = sandbox.client.request(method, f"{API}{path}", json=body)
    assert answer.status_code == 404
    assert answer.json()["error_code"] == "not_found"


def test_an_unknown_chat_is_named_in_the_refusal(sandbox: RunningSandbox):
    answer = sandbox.client.post(f"{API}/chats/7/messages", json={"text": "Bună"})
    assert answer.json()["message"] == "Whatsapp chat_id 7 not found"


@pytest.mark.parametrize("path", ["/messages/", "/chats/", "/nowhere"])
def test_a_trailing_slash_or_an_unknown_path_gets_an_html_page(sandbox: RunningSandbox, path: str):
    answer = sandbox.client.get(f"{API}{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "<html>" in answer.text


def test_a_wrong_method_is_not_supported(sandbox: RunningSandbox):
    answer = sandbox.client.get(f"{API}/messages")
    assert (answer.status_code, answer.json()["error_code"]) == (405, "not_supported")


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer"}, {"authorization": "Basic x"}])
def test_a_call_without_a_token_is_refused(sandbox: RunningSandbox, headers: dict[str, str]):
    body = {"phone": LEAD, "whatsapp_account_phone": PHONE, "text": "Bună"}
    for method, path in (("POST", "/messages"), ("GET", "/whatsapp_accounts")):
        answer = httpx.request(
            method, f"{sandbox.public_url}{path}", headers=headers, json=body, trust_env=False
        )
        assert answer.status_code == 401
        assert answer.json()["error_code"] == "missing_credentials"
    assert sandbox.accepted() == []
    assert sandbox.journal("refused")[0]["status"] == 401
