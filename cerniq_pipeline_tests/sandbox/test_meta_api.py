"""Meta's Cloud API: its answers, its numbers for errors, and its 24-hour window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PHONE = "+40731000001"
PHONE_ID = "140731000001"
LEAD = "+40722123456"
TEMPLATE = {
    "name": "intro_ro",
    "language": {"code": "ro"},
    "components": [
        {"type": "header", "parameters": [{"type": "image", "image": {"id": "4"}}]},
        {"type": "body", "parameters": [{"type": "text", "text": "Ana"}]},
    ],
}


def post(sandbox: RunningSandbox, *, phone_id: str = PHONE_ID, **fields: object) -> httpx.Response:
    body = {"messaging_product": "whatsapp", "to": "40722123456", **fields}
    return sandbox.client.post(f"{sandbox.meta_url}/{phone_id}/messages", json=body)


def post_text(sandbox: RunningSandbox, text: str = "Bună") -> httpx.Response:
    return post(sandbox, type="text", text={"body": text, "preview_url": False})


def post_template(sandbox: RunningSandbox) -> httpx.Response:
    return post(sandbox, type="template", template=TEMPLATE)


def upload(sandbox: RunningSandbox, content: bytes = b"poza", **fields: str) -> httpx.Response:
    return sandbox.client.post(
        f"{sandbox.meta_url}/{PHONE_ID}/media",
        data={"messaging_product": "whatsapp", **fields},
        files={"file": ("poza.jpg", content, "image/jpeg")},
    )


def get(sandbox: RunningSandbox, object_id: str) -> httpx.Response:
    return sandbox.client.get(f"{sandbox.meta_url}/{object_id}")


def error(answer: httpx.Response) -> tuple[int, int]:
    return answer.status_code, answer.json()["error"]["code"]


# --- sending -------------------------------------------------------------------------------------


def test_a_text_is_accepted_with_a_wamid(sandbox: RunningSandbox):
    sandbox.inbound(PHONE, LEAD, "Salut")
    answer = post_text(sandbox)
    assert answer.status_code == 200
    (line,) = sandbox.accepted()
    assert answer.json() == {
        "messaging_product": "whatsapp",
        "contacts": [{"input": "40722123456", "wa_id": "40722123456"}],
        "messages": [{"id": line["message_uid"], "message_status": "accepted"}],
    }
    assert line["message_uid"].startswith("wamid.")
    assert (line["provider"], line["dialect"], line["kind"]) == ("meta", "meta", "message")
    assert (line["sender"], line["asked_sender"], line["recipient"]) == (PHONE, PHONE, LEAD)
    assert (line["text"], line["attachment"], len(line["text_sha256"])) == ("Bună", None, 64)
    assert "template" not in line
    mine = [one["event"] for one in sandbox.journal() if one.get("request") == line["request"]]
    assert mine == ["request", "accepted", "answered"]


def test_a_template_is_readable_in_the_journal(sandbox: RunningSandbox):
    assert post_template(sandbox).status_code == 200
    (line,) = sandbox.accepted()
    assert line["text"] == "[template intro_ro ro] Ana"
    assert line["template"] == TEMPLATE
    assert sandbox.statuses() == []


def test_a_template_without_holes_has_no_more_than_its_name(sandbox: RunningSandbox):
    post(sandbox, type="template", template={"name": "salut", "language": {"code": "ro"}})
    assert sandbox.accepted()[0]["text"] == "[template salut ro]"


@pytest.mark.parametrize("kind", ["image", "video", "document", "audio"])
@pytest.mark.parametrize("by_link", [False, True])
def test_media_go_by_id_or_by_link(sandbox: RunningSandbox, kind: str, by_link: bool):
    uploaded = upload(sandbox).json()["id"]
    named = {"link": "https://exemplu.test/oferta.pdf"} if by_link else {"id": uploaded}
    caption = {} if kind == "audio" else {"caption": "Oferta"}
    media: dict[str, Any] = {"type": kind, kind: {**named, **caption}}
    assert post(sandbox, **media).status_code == 200
    (line,) = sandbox.accepted()
    assert line["text"] == caption.get("caption", "")
    if by_link:
        assert line["attachment"]["source_url"] == named["link"]
    else:
        assert line["attachment"] == sandbox.uploads()[0]["attachment"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"messaging_product": "sms", "type": "text", "text": {"body": "a"}}, 100),
        ({"to": None, "type": "text", "text": {"body": "a"}}, 131008),
        ({"to": "0722", "type": "text", "text": {"body": "a"}}, 131009),
        ({"type": "sticker", "sticker": {"id": "4"}}, 131051),
        ({"type": ["text"]}, 131051),
        ({"type": "text"}, 131008),
        ({"type": "text", "text": {}}, 131008),
        ({"type": "text", "text": {"body": "a" * 4097}}, 100),
        ({"type": "template", "template": {"name": "intro_ro"}}, 131008),
        ({"type": "image", "image": {}}, 131008),
        ({"type": "image", "image": {"id": "4", "link": "https://x.test/a.jpg"}}, 131008),
        ({"type": "image", "image": {"id": "4000000000000000"}}, 131009),
        ({"type": "image", "image": {"link": "poza"}}, 131009),
        ({"type": "image", "image": {"link": "https://x.test/a", "caption": "a" * 1025}}, 100),
        ({"type": "audio", "audio": {"link": "https://x.test/a", "caption": "a"}}, 100),
    ],
)
def test_a_bad_send_is_refused_with_a_number(
    sandbox: RunningSandbox, fields: dict[str, Any], code: int
):
    assert error(post(sandbox, **fields)) == (400, code)
    assert sandbox.accepted() == []
    assert sandbox.journal("refused")[0]["status"] == 400


def test_a_body_that_is_not_json_and_a_call_without_a_token_are_refused(sandbox: RunningSandbox):
    url = f"{sandbox.meta_url}/{PHONE_ID}/messages"
    assert error(sandbox.client.post(url, content=b"{")) == (400, 100)
    assert error(httpx.post(url, json={}, trust_env=False)) == (401, 190)


def test_an_error_has_the_form_of_the_vendors(sandbox: RunningSandbox):
    sandbox.fault("rate_limited")
    told = post_template(sandbox).json()["error"]
    assert told.pop("fbtrace_id")
    assert told == {
        "message": "(#130429) Rate limit exceeded. Please retry after a short delay.",
        "type": "OAuthException",
        "code": 130429,
        "error_data": {
            "messaging_product": "whatsapp",
            "details": "Rate limit exceeded. Please retry after a short delay.",
        },
        "is_transient": True,
    }


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ({"kind": "unauthorized"}, 401, 190),
        ({"kind": "forbidden"}, 403, 10),
        ({"kind": "banned"}, 403, 131031),
        ({"kind": "invalid_number"}, 400, 131026),
        ({"kind": "rate_limited"}, 429, 130429),
        ({"kind": "server_error"}, 500, 131000),
        ({"kind": "server_error", "status": 503}, 503, 131000),
        ({"kind": "suspended"}, 403, 131042),
        ({"kind": "quota_exceeded", "status": 429}, 429, 80007),
        ({"kind": "error_in_ok"}, 200, 131000),
        ({"kind": "refuse", "status": 400, "meta_code": 131056}, 400, 131056),
        ({"kind": "refuse", "status": 429, "meta_code": 131048}, 429, 131048),
        ({"kind": "refuse", "status": 400}, 400, 100),
        ({"kind": "refuse", "status": 404, "shape": "plain"}, 404, 100),
    ],
)
def test_every_fault_has_its_number(
    sandbox: RunningSandbox, fault: dict[str, Any], status: int, code: int
):
    sandbox.fault(**fault)
    assert error(post_template(sandbox)) == (status, code)
    assert sandbox.accepted() == []
    assert sandbox.journal("refused")[0]["status"] == status


@pytest.mark.parametrize("kind", ["accept_then_cut", "accept_then_truncate"])
def test_a_cut_after_the_acceptance_leaves_the_message(sandbox: RunningSandbox, kind: str):
    sandbox.fault(kind, times=1)
    with pytest.raises(httpx.RemoteProtocolError):
        post_template(sandbox)
    assert len(sandbox.accepted()) == 1


def test_a_fault_is_aimed_at_the_phone_behind_the_id(sandbox: RunningSandbox):
    sandbox.fault("server_error", phone=PHONE)
    assert post_template(sandbox).status_code == 500
    other = post(sandbox, phone_id="140731000002", type="template", template=TEMPLATE)
    assert other.status_code == 200


# --- the window ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "failed"), [(None, 1), (timedelta(hours=25), 1), (timedelta(hours=23), 0)]
)
def test_free_text_outside_the_window_is_accepted_and_then_fails(
    sandbox: RunningSandbox, age: timedelta | None, failed: int
):
    if age is not None:
        sandbox.inbound(PHONE, LEAD, "Da", at=datetime.now(UTC) - age)
    assert post_text(sandbox).status_code == 200
    assert len(sandbox.accepted()) == 1
    assert len(sandbox.statuses()) == failed


def test_the_failure_is_told_in_the_journal(sandbox: RunningSandbox):
    uid = post_text(sandbox).json()["messages"][0]["id"]
    (line,) = sandbox.statuses()
    assert (line["message_uid"], line["status"]) == (uid, "failed")
    assert (line["code"], line["title"]) == (131047, "Re-engagement message")
    assert (line["provider"], line["sender"], line["recipient"]) == ("meta", PHONE, LEAD)
    answer = sandbox.client.get("/_sandbox/statuses", params={"after": str(line["n"] - 1)})
    assert answer.json()["lines"] == [line]
    later = sandbox.client.get("/_sandbox/statuses", params={"after": str(line["n"])})
    assert later.json()["lines"] == []


def test_media_need_the_window_too_and_our_own_writing_does_not_open_it(sandbox: RunningSandbox):
    sandbox.inbound(PHONE, LEAD, "scris de mână", by_hand=True)
    sandbox.inbound("+40731000002", LEAD, "Da")  # to another of our numbers
    sandbox.inbound(PHONE, "+40722000000", "Da")  # from somebody else
    post(sandbox, type="image", image={"link": "https://exemplu.test/a.jpg"})
    assert len(sandbox.statuses()) == 1


def test_the_window_can_refuse_at_once(sandbox: RunningSandbox):
    sandbox.fault("window_closed_at_once")
    assert error(post_text(sandbox)) == (400, 131047)
    assert sandbox.accepted() == sandbox.statuses() == []
    assert sandbox.journal("refused")[0]["faults"] == ["window_closed_at_once"]
    assert post_template(sandbox).status_code == 200
    sandbox.inbound(PHONE, LEAD, "Da")
    assert post_text(sandbox).status_code == 200


def test_a_template_can_fail_later_as_well(sandbox: RunningSandbox):
    sandbox.fault("fails_later", meta_code=131049, title="Limit", phone=PHONE)
    assert post_template(sandbox).status_code == 200
    assert [(one["code"], one["title"]) for one in sandbox.statuses()] == [(131049, "Limit")]


# --- files ---------------------------------------------------------------------------------------


def test_a_file_is_kept_told_and_deleted(sandbox: RunningSandbox):
    media_id = upload(sandbox).raise_for_status().json()["id"]
    told = get(sandbox, media_id).json()
    assert told.pop("url").startswith("https://")
    (line,) = sandbox.uploads()
    assert (line["provider"], line["phone"]) == ("meta", PHONE)
    assert told == {
        "id": media_id,
        "mime_type": "image/jpeg",
        "sha256": line["attachment"]["sha256"],
        "file_size": 4,
        "messaging_product": "whatsapp",
    }
    deleted = sandbox.client.delete(f"{sandbox.meta_url}/{media_id}")
    assert deleted.json() == {"success": True}
    assert error(get(sandbox, media_id)) == (400, 100)
    assert error(post(sandbox, type="image", image={"id": media_id})) == (400, 131009)


def test_an_upload_can_name_its_type(sandbox: RunningSandbox):
    media_id = upload(sandbox, type="image/png").json()["id"]
    assert get(sandbox, media_id).json()["mime_type"] == "image/png"


def test_a_bad_upload_is_refused(sandbox: RunningSandbox):
    url = f"{sandbox.meta_url}/{PHONE_ID}/media"
    assert error(sandbox.client.post(url, files={"file": ("a.jpg", b"x")})) == (400, 100)
    assert error(sandbox.client.post(url, json={"messaging_product": "whatsapp"})) == (400, 100)
    too_large = bytes(16 * 1024 * 1024 + 1)
    assert error(upload(sandbox, too_large)) == (400, 131053)
    sandbox.fault("server_error", operation="upload", phone=PHONE)
    assert error(upload(sandbox)) == (500, 131000)
    assert sandbox.uploads() == []


def test_the_vendors_do_not_see_each_others_files(sandbox: RunningSandbox):
    media_id = upload(sandbox).json()["id"]
    body = {"phone": LEAD, "whatsapp_account_phone": PHONE, "file_uid": media_id}
    answer = sandbox.client.post(f"{sandbox.public_url}/messages", json=body)
    assert answer.status_code == 400


# --- phones --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "told"), [("active", "CONNECTED"), ("disconnected", "DISCONNECTED")]
)
def test_a_phone_tells_whether_it_is_connected(sandbox: RunningSandbox, status: str, told: str):
    sandbox.set_accounts(**{PHONE: status})
    assert get(sandbox, PHONE_ID).json() == {
        "id": PHONE_ID,
        "display_phone_number": PHONE,
        "verified_name": "Sandbox",
        "quality_rating": "GREEN",
        "status": told,
    }


def test_an_unknown_phone_does_not_exist(sandbox: RunningSandbox):
    assert error(get(sandbox, PHONE_ID)) == (400, 100)


def test_a_disconnected_phone_sends_nothing(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "disconnected"})
    assert error(post_template(sandbox)) == (400, 131045)
    assert sandbox.accepted() == []


def test_reading_a_phone_can_fail(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "active"})
    sandbox.fault("unauthorized", operation="accounts", phone=PHONE)
    assert error(get(sandbox, PHONE_ID)) == (401, 190)


def test_the_vendors_do_not_see_each_others_phones_and_chats(sandbox: RunningSandbox):
    post_template(sandbox)
    (line,) = sandbox.accepted()
    public = sandbox.public_url
    accounts = sandbox.client.get(f"{public}/whatsapp_accounts").json()["data"]
    assert accounts["whatsapp_accounts"] == []
    assert sandbox.client.get(f"{public}/chats").json()["data"]["chats"] == []
    for path in (f"/chats/{line['chat_id']}/messages", f"/messages/{line['message_uid']}"):
        assert sandbox.client.get(f"{public}{path}").status_code == 404
    used = sandbox.client.get(f"{public}/workspace").json()["data"]["messaging_quota"]["used"]
    assert used == 0


def test_one_number_can_be_with_both_vendors(sandbox: RunningSandbox):
    post_template(sandbox)
    body = {"phone": LEAD, "whatsapp_account_phone": PHONE, "text": "Bună"}
    sandbox.client.post(f"{sandbox.public_url}/messages", json=body).raise_for_status()
    (account,) = sandbox.client.get("/_sandbox/accounts").json()["accounts"]
    assert account["providers"] == ["meta", "timelinesai"]
    first, second = sandbox.accepted()
    assert first["chat_id"] != second["chat_id"]
    (chat,) = sandbox.client.get(f"{sandbox.public_url}/chats").json()["data"]["chats"]
    assert chat["id"] == second["chat_id"]


def test_what_a_meta_number_writes_to_another_of_our_phones_is_heard_there(
    sandbox: RunningSandbox,
):
    sandbox.set_accounts(**{LEAD: "active"})
    post_template(sandbox)
    (heard,) = sandbox.received()
    assert (heard["provider"], heard["account"], heard["contact"]) == ("timelinesai", LEAD, PHONE)
    post_text(sandbox)  # the window is closed: this one never arrives
    assert len(sandbox.received()) == 1
