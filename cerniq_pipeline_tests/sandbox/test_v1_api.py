"""The documents' dialect: other words, the same room."""

from __future__ import annotations

import pytest

from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PHONE = "+40731000001"
LEAD = "+40722123456"


def body(text: str = "Bună ziua", phone: str = PHONE) -> dict[str, str]:
    return {"phone": phone, "recipient": LEAD, "message": text}


@pytest.mark.parametrize("sender", [PHONE, "40731000001", "40731000001@s.whatsapp.net"])
def test_a_message_is_sent_from_an_account_named_by_phone_or_by_id(
    sandbox: RunningSandbox, sender: str
):
    answer = sandbox.client.post("/v1/messages/send", json=body(phone=sender))
    assert answer.status_code == 200
    (line,) = sandbox.accepted()
    assert (line["dialect"], line["kind"], line["sender"]) == ("v1", "message", PHONE)
    assert answer.json() == {
        "message_id": line["message_uid"],
        "chat_id": line["chat_id"],
        "chat_url": f"https://app.timelines.ai/chat/{line['chat_id']}/messages/",
    }


@pytest.mark.parametrize("as_text", [False, True])
def test_a_follow_up_goes_into_the_chat(sandbox: RunningSandbox, as_text: bool):
    chat_id = sandbox.client.post("/v1/messages/send", json=body()).json()["chat_id"]
    named = str(chat_id) if as_text else chat_id
    follow_up = {"chat_id": named, "message": "Revin"}
    answer = sandbox.client.post("/v1/messages/send", json=follow_up)
    assert answer.json()["chat_id"] == chat_id
    line = sandbox.accepted()[-1]
    assert (line["kind"], line["sender"], line["recipient"]) == ("chat_message", PHONE, LEAD)


def test_history_comes_newest_first_and_limited(sandbox: RunningSandbox):
    for text in ("unu", "doi", "trei"):
        answer = sandbox.client.post("/v1/messages/send", json=body(text))
    path = f"/v1/chats/{answer.json()['chat_id']}/messages"
    messages = sandbox.client.get(path, params={"limit": "2"}).json()["messages"]
    assert [one["message"] for one in messages] == ["trei", "doi"]
    assert messages[0].keys() == {
        "message_id",
        "chat_id",
        "phone",
        "recipient",
        "message",
        "from_me",
        "origin",
        "has_attachment",
        "status",
        "timestamp",
    }
    assert len(sandbox.client.get(path).json()["messages"]) == 3
    assert sandbox.client.get(path, params={"limit": "all"}).status_code == 400


def test_an_account_says_whether_it_is_connected(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "disconnected", "+40731000002": "active"})
    connected = [
        sandbox.client.get(f"/v1/accounts/{account}/status").json()["connected"]
        for account in (PHONE, "40731000001@s.whatsapp.net", "+40731000002")
    ]
    assert connected == [False, False, True]
    assert sandbox.client.get("/v1/accounts/+40731000003/status").status_code == 404


def test_both_dialects_share_one_room(sandbox: RunningSandbox):
    chat_id = sandbox.client.post("/v1/messages/send", json=body()).json()["chat_id"]
    public = {"phone": LEAD, "whatsapp_account_phone": PHONE, "text": "Și eu"}
    sandbox.client.post("/integrations/api/messages", json=public).raise_for_status()
    messages = sandbox.client.get(f"/v1/chats/{chat_id}/messages").json()["messages"]
    assert [one["message"] for one in messages] == ["Și eu", "Bună ziua"]
    info = sandbox.client.get(f"/integrations/api/chats/{chat_id}").json()["data"]
    assert info["last_message_uid"] == messages[0]["message_id"]


@pytest.mark.parametrize(
    ("wrong", "status", "message"),
    [
        ({"recipient": LEAD, "message": "a"}, 400, "Missing data for required field"),
        ({"phone": "?", "recipient": LEAD, "message": "a"}, 400, "WhatsApp account not found"),
        ({"phone": PHONE, "recipient": "0722", "message": "a"}, 400, "Phone number invalid"),
        ({"chat_id": 7, "message": "a"}, 404, "Whatsapp chat_id 7 not found"),
        ({"chat_id": [], "message": "a"}, 404, "Whatsapp chat_id [] not found"),
    ],
)
def test_a_bad_send_is_refused_in_the_words_of_this_dialect(
    sandbox: RunningSandbox, wrong: dict[str, object], status: int, message: str
):
    answer = sandbox.client.post("/v1/messages/send", json=wrong)
    assert answer.status_code == status
    assert answer.json()["message"] == message
    assert answer.json()["error"] in ("validation_error", "not_found")
    assert sandbox.accepted() == []
