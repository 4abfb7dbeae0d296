"""The sandbox as a vendor that calls us: what it says, how often, and what it never says."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import resource
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from cerniq_pipeline.domain.events import InboundEvent, Kind
from cerniq_pipeline.errors import WebhookRefused
from cerniq_pipeline.providers.meta.webhooks import MetaWebhooks
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline_tests.sandbox.receiver import Call, Receiver, until
from cerniq_pipeline_tests.sandbox.running import Line, RunningSandbox

PHONE = "+40731000001"
OTHER_PHONE = "+40731000002"
META_PHONE = "+40790000000"
LEAD = "+40722123456"
OTHER_LEAD = "+40722123457"
API = "/integrations/api"
TOKEN = "a-long-token-in-the-address"
APP_SECRET = "demo_app_secret"
AT_ONCE = [0.0, 0.0]
NOW = datetime.now(UTC)

NOT_ITEMS = {"messaging_product", "metadata"}
RECEIVED, SENT = "message:received:new", "message:sent:new"


@pytest.fixture
def told(sandbox: RunningSandbox, receiver: Receiver) -> Receiver:
    """A receiver that both vendors of the sandbox call."""
    sandbox.webhooks_to(receiver.url, token=TOKEN, app_secret=APP_SECRET, pauses_seconds=AT_ONCE)
    return receiver


def send(sandbox: RunningSandbox, text: str = "Bună ziua", *, to: str = LEAD) -> str:
    body = {"phone": to, "whatsapp_account_phone": PHONE, "text": text}
    answer = sandbox.client.post(f"{API}/messages", json=body)
    return answer.raise_for_status().json()["data"]["message_uid"]


def send_meta(sandbox: RunningSandbox, *, to: str = LEAD, callback: str = "lead-42") -> str:
    template = {"name": "intro_ro", "language": {"code": "ro"}}
    body = {
        "messaging_product": "whatsapp",
        "to": to.removeprefix("+"),
        "type": "template",
        "template": template,
        "biz_opaque_callback_data": callback,
    }
    phone_id = f"1{META_PHONE.removeprefix('+')}"
    answer = sandbox.client.post(f"{sandbox.meta_url}/{phone_id}/messages", json=body)
    return answer.raise_for_status().json()["messages"][0]["id"]


def link_meta(sandbox: RunningSandbox) -> None:
    account = {"phone": META_PHONE, "provider": "meta"}
    sandbox.client.put("/_sandbox/accounts", json=[account]).raise_for_status()


def read(call: Call) -> InboundEvent:
    """What our own reader makes of a call of TimelinesAI, once it believes it."""
    reader = TimelinesAIWebhooks((TOKEN,))
    reader.verify(call.as_request(), now=NOW)
    (event,) = reader.read(call.body, received_at=NOW)
    return event


def read_meta(call: Call) -> tuple[InboundEvent, ...]:
    reader = MetaWebhooks((APP_SECRET,))
    reader.verify(call.as_request(), now=NOW)
    return reader.read(call.body, received_at=NOW)


def calls_of(receiver: Receiver, event_type: str, count: int = 1) -> list[Call]:
    """The calls about one type of event, as soon as there are so many."""

    def there() -> list[Call]:
        return [call for call in list(receiver.calls) if call.event_type == event_type]

    return until(lambda: len(there()) >= count and there())


def statuses_of(receiver: Receiver) -> list[dict[str, Any]]:
    return [
        status
        for call in list(receiver.calls)
        for entry in call.told["entry"]
        for change in entry["changes"]
        for status in change["value"].get("statuses", ())
    ]


def outcomes(sandbox: RunningSandbox, uid: str) -> list[tuple[int, str]]:
    lines = sandbox.webhook_lines()
    return [(one["attempt"], one["outcome"]) for one in lines if one["message_uid"] == uid]


def settled(sandbox: RunningSandbox, count: int) -> list[Line]:
    """The lines about webhooks, once so many of them are told, dropped or given up."""

    def ended() -> list[Line]:
        return [line for line in sandbox.webhook_lines() if line["outcome"] != "again"]

    until(lambda: len(ended()) >= count)
    return sandbox.webhook_lines()


def texts_in_history(sandbox: RunningSandbox, chat_id: int) -> list[str]:
    answer = sandbox.client.get(f"{API}/chats/{chat_id}/messages")
    return [one["text"] for one in answer.raise_for_status().json()["data"]["messages"]]


# --- TimelinesAI's words -------------------------------------------------------------------------


def test_a_reply_is_told_in_the_vendors_words(sandbox: RunningSandbox, told: Receiver):
    at = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    heard = sandbox.inbound(PHONE, LEAD, "Bună", kind="document", at=at)
    (call,) = calls_of(told, RECEIVED)
    assert call.path == f"/webhooks/timelinesai/{TOKEN}"
    assert call.headers["content-type"] == "application/json"
    body = call.told
    message = body["message"]
    assert message.pop("received_timestamp") > message["timestamp"]
    (file,) = message.pop("attachments")
    assert file.pop("temporary_download_url").endswith("/document.pdf")
    assert file == {"filename": "document.pdf", "size": 12, "mimetype": "application/pdf"}
    assert body == {
        "event_type": RECEIVED,
        "chat": {
            "full_name": LEAD,
            "chat_url": f"https://app.timelines.ai/chat/{heard['chat_id']}/messages/",
            "chat_id": heard["chat_id"],
            "is_group": False,
            "phone": LEAD,
            "responsible_name": "Sandbox",
            "responsible_email": "sandbox@example.test",
        },
        "whatsapp_account": {"full_name": PHONE, "email": "sandbox@example.test", "phone": PHONE},
        "message": {
            "text": "Bună",
            "direction": "received",
            "origin": "WhatsApp",
            "timestamp": message["timestamp"],
            "message_uid": heard["message_uid"],
            "reply_to_uid": None,
            "sender": {"full_name": LEAD, "phone": LEAD},
            "recipient": {"full_name": PHONE, "phone": PHONE},
        },
    }
    event = read(call)
    assert (event.kind, event.at, event.text) == (Kind.MESSAGE_RECEIVED, at, "Bună")
    assert (event.account, event.contact.phone) == (PHONE, LEAD)
    assert (event.external_id, event.chat_id) == (heard["message_uid"], str(heard["chat_id"]))
    assert (event.message_type, event.media[0].filename) == ("document", "document.pdf")


@pytest.mark.parametrize(
    ("by_hand", "origin"), [(False, "Public API"), (True, "WhatsApp")], ids=["api", "by hand"]
)
def test_what_leaves_our_phone_is_told_too(
    sandbox: RunningSandbox, told: Receiver, by_hand: bool, origin: str
):
    if by_hand:
        uid = sandbox.inbound(PHONE, LEAD, "Vă sun eu", by_hand=True)["message_uid"]
    else:
        uid = send(sandbox, "Vă sun eu")
    (call,) = calls_of(told, SENT)
    message = call.told["message"]
    assert (message["direction"], message["origin"]) == ("sent", origin)
    assert (message["sender"]["phone"], message["recipient"]["phone"]) == (PHONE, LEAD)
    event = read(call)
    assert (event.kind, event.by_api) == (Kind.MESSAGE_SENT_ELSEWHERE, not by_hand)
    assert (event.external_id, event.contact.phone) == (uid, LEAD)


def test_a_new_chat_is_told_before_its_first_message_and_only_once(
    sandbox: RunningSandbox, told: Receiver
):
    send(sandbox)
    sandbox.inbound(PHONE, LEAD, "Da")
    heard = sandbox.inbound(PHONE, OTHER_LEAD, "Bună")
    until(lambda: len(told.calls) >= 5)
    of_first = [one.event_type for one in told.calls if LEAD in one.body.decode()]
    assert of_first == ["chat:outgoing:new", SENT, RECEIVED]
    (call,) = calls_of(told, "chat:incoming:new")
    chat, account = call.told["chat"], call.told["whatsapp_account"]
    assert chat.pop("created_timestamp")
    assert account.pop("connected_on")
    assert chat == {
        "id": heard["chat_id"],
        "name": OTHER_LEAD,
        "phone": OTHER_LEAD,
        "jid": "40722123457@s.whatsapp.net",
        "is_group": False,
        "closed": False,
        "read": False,
        "labels": [],
        "unattended_customer": False,
        "chatgpt_autoresponse_enabled": False,
        "whatsapp_account_id": "40731000001@s.whatsapp.net",
        "chat_url": f"https://app.timelines.ai/chat/{heard['chat_id']}/messages/",
    }
    assert account == {
        "id": "40731000001@s.whatsapp.net",
        "phone": PHONE,
        "status": "active",
        "account_name": PHONE,
        "owner_email": "sandbox@example.test",
        "owner_name": "Sandbox",
    }
    assert read(call).chat_id == str(heard["chat_id"])


def test_a_phone_that_goes_and_comes_is_told(sandbox: RunningSandbox, told: Receiver):
    sandbox.set_accounts(**{PHONE: "active"})
    sandbox.set_accounts(**{PHONE: "disconnected"})
    (gone,) = calls_of(told, "whatsapp:account:disconnected")
    assert gone.told["whatsapp_account"].keys() == {
        *("id", "phone", "connected_on", "disconnected_on", "status"),
        *("account_name", "owner_name", "owner_email"),
    }
    assert gone.told["whatsapp_account"]["status"] == "disconnected"
    event = read(gone)
    assert (event.kind, event.account) == (Kind.ACCOUNT_DISCONNECTED, PHONE)
    sandbox.set_accounts(**{PHONE: "active"})
    (back,) = calls_of(told, "whatsapp:account:connected")
    assert read(back).kind is Kind.ACCOUNT_CONNECTED
    assert len(told.calls) == 2  # a phone that is seen for the first time was there before


def test_a_reaction_is_told_without_the_plus(sandbox: RunningSandbox, told: Receiver):
    uid = send(sandbox)
    heard = sandbox.react(PHONE, LEAD, "❤️", reacts_to=uid)
    (call,) = calls_of(told, "message:reaction")
    body = call.told
    assert body["reaction"].pop("timestamp")
    assert body == {
        "event_type": "message:reaction",
        "chat": {
            "full_name": LEAD,
            "chat_url": f"https://app.timelines.ai/chat/{heard['chat_id']}/messages/",
            "chat_id": heard["chat_id"],
            "chat_type": "direct",
            "platform": "whatsapp",
            "phone": "40722123456",
        },
        "whatsapp_account": {
            "full_name": PHONE,
            "email": "sandbox@example.test",
            "phone": PHONE,
            "whatsapp_account_wid": "40731000001@s.whatsapp.net",
        },
        "reaction": {
            "message_uid": uid,
            "action": "set",
            "emoji": "❤️",
            "reactor": {"full_name": LEAD, "phone": LEAD},
            "reactions": {"❤️": 1},
        },
    }
    event = read(call)
    assert (event.kind, event.text, event.reply_to) == (Kind.REACTION, "❤️", uid)
    assert texts_in_history(sandbox, heard["chat_id"]) == ["Bună ziua"]
    assert sandbox.received() == []


def test_a_missed_call_is_told_and_is_no_message(sandbox: RunningSandbox, told: Receiver):
    heard = sandbox.inbound(PHONE, LEAD, kind="call")
    (call,) = calls_of(told, "call:incoming:missed")
    assert call.told["chat"]["phone"] == "40722123456"
    details = call.told["call_details"]
    assert details.pop("timestamp")
    assert details == {
        "duration": None,
        "direction": "incoming",
        "is_video": False,
        "status": "Missed",
        "message_uid": heard["message_uid"],
        "caller": {"full_name": LEAD, "phone": LEAD},
        "recipient": {"full_name": PHONE, "phone": PHONE},
    }
    event = read(call)
    assert (event.kind, event.contact.phone, event.account) == (Kind.CALL, LEAD, PHONE)
    assert sandbox.received() == []
    path = f"{API}/messages/{heard['message_uid']}"
    assert sandbox.client.get(path).json()["data"]["message_type"] == "whatsapp_call"
    v1 = sandbox.client.get(f"/v1/chats/{heard['chat_id']}/messages")
    assert v1.json()["messages"] == []  # that dialect has no word for calls


@pytest.mark.parametrize(
    ("kind", "read_as"),
    [
        ("image", "image"),
        ("video", "video"),
        ("audio", "audio"),
        ("sticker", "image"),  # the vendor has no word of its own for it
        ("location", "text"),
    ],
)
def test_what_is_no_text_is_told_as_a_file_or_a_link(
    sandbox: RunningSandbox, told: Receiver, kind: str, read_as: str
):
    sandbox.inbound(PHONE, LEAD, kind=kind)
    event = read(calls_of(told, RECEIVED)[0])
    assert event.message_type == read_as
    assert (event.text or "").startswith("https://maps.google.com/") == (kind == "location")


def test_a_message_that_does_not_leave_the_phone_is_not_told(
    sandbox: RunningSandbox, told: Receiver
):
    sandbox.fault("not_delivered", times=1)
    send(sandbox, "rămâne")
    sandbox.fault("fails_later", times=1)
    send(sandbox, "pică")
    uid = send(sandbox, "pleacă")
    (call,) = calls_of(told, SENT)
    assert call.told["message"]["message_uid"] == uid


def test_what_one_of_our_phones_hears_from_another_is_told_of_both(
    sandbox: RunningSandbox, told: Receiver
):
    sandbox.set_accounts(**{PHONE: "active", OTHER_PHONE: "active"})
    uid = send(sandbox, "probă", to=OTHER_PHONE)
    (sent,), (received,) = calls_of(told, SENT), calls_of(told, RECEIVED)
    assert sent.told["message"]["message_uid"] == uid
    assert received.told["whatsapp_account"]["phone"] == OTHER_PHONE


def test_a_signature_can_be_added_for_a_relay(sandbox: RunningSandbox, receiver: Receiver):
    sandbox.webhooks_to(receiver.url, token=TOKEN, secret="relay-secret")
    sandbox.inbound(PHONE, LEAD, "Bună")
    (call,) = calls_of(receiver, RECEIVED)
    expected = hmac.new(b"relay-secret", call.body, hashlib.sha256).hexdigest()
    assert call.headers["x-signature"] == f"sha256={expected}"
    reader = TimelinesAIWebhooks((TOKEN,), signing_secrets=("relay-secret",))
    reader.verify(call.as_request(), now=NOW)
    with pytest.raises(WebhookRefused):
        TimelinesAIWebhooks((TOKEN,), signing_secrets=("other",)).verify(call.as_request(), now=NOW)


def test_the_token_can_stand_in_the_query(sandbox: RunningSandbox, receiver: Receiver):
    entry = {"url": f"{receiver.url}/hook", "token": "a b&c", "in_query": True}
    sandbox.client.put("/_sandbox/webhooks", json={"timelinesai": entry}).raise_for_status()
    sandbox.inbound(PHONE, LEAD, "Bună")
    (call,) = calls_of(receiver, RECEIVED)
    assert call.path == "/hook?token=a%20b%26c"
    TimelinesAIWebhooks(("a b&c",)).verify(call.as_request(), now=NOW)


def test_one_connection_is_used_for_many_calls(sandbox: RunningSandbox, told: Receiver):
    for number in range(5):
        sandbox.inbound(PHONE, LEAD, f"{number}")
    calls = told.wait_for(6)
    assert len({call.client_port for call in calls}) == 1
    assert [call.told["message"]["text"] for call in calls_of(told, RECEIVED)] == list("01234")


# --- attempts ------------------------------------------------------------------------------------


def test_a_refused_webhook_is_tried_three_times_and_then_dropped_for_good(
    sandbox: RunningSandbox, told: Receiver
):
    sandbox.inbound(PHONE, LEAD, "unu", webhook=False)
    told.statuses = [500, 404, 302]
    heard = sandbox.inbound(PHONE, LEAD, "doi")
    until(lambda: len(outcomes(sandbox, heard["message_uid"])) == 3)
    assert outcomes(sandbox, heard["message_uid"]) == [(1, "again"), (2, "again"), (3, "given_up")]
    lines = [one for one in sandbox.webhook_lines() if one["message_uid"] == heard["message_uid"]]
    assert [line["status"] for line in lines] == [500, 404, 302]
    last = sandbox.inbound(PHONE, LEAD, "trei")
    until(lambda: outcomes(sandbox, last["message_uid"]) == [(1, "told")])
    told_texts = [call.told["message"]["text"] for call in calls_of(told, RECEIVED, 4)]
    assert told_texts == ["doi", "doi", "doi", "trei"]
    assert texts_in_history(sandbox, heard["chat_id"]) == ["trei", "doi", "unu"]


def test_a_second_attempt_may_succeed(sandbox: RunningSandbox, told: Receiver):
    sandbox.inbound(PHONE, LEAD, "unu", webhook=False)
    told.statuses = [503]
    uid = sandbox.inbound(PHONE, LEAD, "doi")["message_uid"]
    until(lambda: outcomes(sandbox, uid) == [(1, "again"), (2, "told")])
    bodies = {call.body for call in calls_of(told, RECEIVED, 2)}
    assert len(bodies) == 1


def test_an_answer_that_does_not_come_in_time_is_no_answer(
    sandbox: RunningSandbox, receiver: Receiver
):
    sandbox.webhooks_to(receiver.url, token=TOKEN, answer_seconds=0.05, pauses_seconds=AT_ONCE)
    receiver.hang()
    uid = sandbox.inbound(PHONE, LEAD, "Bună")["message_uid"]
    until(lambda: (3, "given_up") in outcomes(sandbox, uid))
    errors = {line["error"] for line in sandbox.webhook_lines()}
    assert errors == {"no answer within 0.05 s"}


def test_nobody_at_home_is_an_error_of_the_journal(sandbox: RunningSandbox):
    sandbox.webhooks_to("http://127.0.0.1:1", token=TOKEN, pauses_seconds=AT_ONCE)
    uid = sandbox.inbound(PHONE, LEAD, "Bună")["message_uid"]
    until(lambda: (3, "given_up") in outcomes(sandbox, uid))
    assert {line["error"] for line in sandbox.webhook_lines()} == {"ConnectionRefusedError"}


def test_the_api_does_not_wait_for_a_receiver_that_hangs(
    sandbox: RunningSandbox, receiver: Receiver
):
    sandbox.webhooks_to(receiver.url, token=TOKEN, answer_seconds=60)
    receiver.hang()
    for number in range(50):
        send(sandbox, f"{number}", to=f"+407221{number:05}")
    assert len(sandbox.accepted()) == 50  # each was answered, and no webhook has been yet
    assert sandbox.webhook_lines() == []
    receiver.go_on.set()
    assert {line["outcome"] for line in settled(sandbox, 100)} == {"told"}


def test_what_is_not_told_at_the_end_is_never_told(tmp_path: Path, receiver: Receiver):
    receiver.hang()
    with RunningSandbox(tmp_path / "journal") as own:
        own.webhooks_to(receiver.url, token=TOKEN)
        heard = own.inbound(PHONE, LEAD, "Bună")
        receiver.wait_for(1)
        assert own.stop() == 0
        receiver.go_on.set()
        own.start()
        own.webhooks_to(receiver.url, token=TOKEN)
        assert texts_in_history(own, heard["chat_id"]) == ["Bună"]
        last = own.inbound(PHONE, LEAD, "Sunteți?")
        until(lambda: outcomes(own, last["message_uid"]))
        assert outcomes(own, heard["message_uid"]) == []
    assert "Traceback" not in (tmp_path / "journal" / "sandbox.log").read_text()


def test_nobody_is_told_what_the_journal_could_not_keep(tmp_path: Path, receiver: Receiver):
    with RunningSandbox(tmp_path / "journal") as own:
        own.webhooks_to(receiver.url, token=TOKEN)
        own.inbound(PHONE, LEAD, "unu")
        settled(own, 2)
        size = (own.journal_dir / "journal.jsonl").stat().st_size
        resource.prlimit(own.pid, resource.RLIMIT_FSIZE, (size + 10, size + 10))
        with pytest.raises(httpx.TransportError):
            own.inbound(PHONE, LEAD, "doi")
        assert own.wait() == 1
    told = [one["message"]["text"] for one in receiver.events(RECEIVED)]
    assert told == ["unu"]


def test_the_journal_names_no_secret(sandbox: RunningSandbox, receiver: Receiver):
    sandbox.webhooks_to(receiver.url, token=TOKEN, secret="relay-secret", app_secret=APP_SECRET)
    sandbox.inbound(PHONE, LEAD, "Bună")
    settled(sandbox, 2)
    shown = sandbox.client.get("/_sandbox/webhooks").text
    kept = (sandbox.journal_dir / "journal.jsonl").read_text()
    for secret in (TOKEN, "relay-secret", APP_SECRET):
        assert secret not in kept
        assert secret not in shown
    assert json.loads(shown)["webhooks"]["timelinesai"]["signed"] is True
    (line,) = [one for one in sandbox.webhook_lines() if one["event_type"] == RECEIVED]
    assert (line["account"], line["contact"], line["items"]) == (PHONE, LEAD, 1)
    assert (line["status"], line["error"], line["faults"]) == (200, None, [])


# --- whom it calls -------------------------------------------------------------------------------


def test_without_a_subscription_nobody_is_called(sandbox: RunningSandbox, receiver: Receiver):
    sandbox.inbound(PHONE, LEAD, "Bună")
    sandbox.webhooks_to(receiver.url, app_secret=APP_SECRET)  # Meta only
    sandbox.inbound(PHONE, LEAD, "Bună?")
    assert sandbox.webhook_lines() == []
    assert receiver.calls == []


def test_a_reset_forgets_whom_to_call(sandbox: RunningSandbox, told: Receiver):
    sandbox.reset()
    assert sandbox.client.get("/_sandbox/webhooks").json()["webhooks"] == {}
    sandbox.inbound(PHONE, LEAD, "Bună")
    assert sandbox.webhook_lines() == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([], "a JSON object"),
        ({"twilio": {"url": "http://127.0.0.1/"}}, "nobody is called for twilio"),
        ({"meta": {}}, "url of meta must be like"),
        ({"meta": {"url": 7}}, "url of meta must be like"),
        ({"meta": {"url": "https://127.0.0.1/"}}, "url of meta must be like"),
        ({"meta": {"url": "http://127.0.0.1:99999/"}}, "url of meta must be like"),
        ({"meta": {"url": "http://example.com/hook"}}, "leads off this machine"),
        ({"meta": {"url": "http://10.0.0.1/hook"}}, "leads off this machine"),
        ({"meta": {"url": "http://0.0.0.0/hook"}}, "leads off this machine"),
        ({"meta": {"url": "http://127.0.0.1.example.com/"}}, "leads off this machine"),
        ({"meta": {"url": "http://[2001:db8::1]/"}}, "leads off this machine"),
        ({"meta": {"url": "http://localhost@example.com/"}}, "must be plain"),
        ({"meta": {"url": "http://127.0.0.1/", "token": "x"}}, "meta has no token"),
        ({"timelinesai": {"url": "http://127.0.0.1/", "token": 7}}, "token of timelinesai"),
        ({"timelinesai": {"url": "http://127.0.0.1/", "token": "a\r\nb"}}, "must be a text"),
        ({"meta": {"url": "http://127.0.0.1/", "pauses_seconds": []}}, "a list of seconds"),
        ({"meta": {"url": "http://127.0.0.1/", "answer_seconds": 0}}, "seconds above 0"),
    ],
)
def test_an_address_that_may_not_be_called_is_refused(
    sandbox: RunningSandbox, told: Receiver, wrong: Any, says: str
):
    before = sandbox.client.get("/_sandbox/webhooks").json()
    answer = sandbox.client.put("/_sandbox/webhooks", json=wrong)
    assert answer.status_code == 400
    assert says in answer.json()["error"]
    assert sandbox.client.get("/_sandbox/webhooks").json() == before


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[tuple[RunningSandbox, Path]]:
    """A sandbox that is told by a file whom to call; the file is not there yet."""
    path = tmp_path / "webhooks.json"
    with RunningSandbox(tmp_path / "journal", options=("--webhooks", str(path))) as running:
        yield running, path


def write(path: Path, content: object) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content))
    os.replace(beside, path)


def test_the_file_is_read_again_when_it_changes(
    filed: tuple[RunningSandbox, Path], receiver: Receiver
):
    sandbox, path = filed
    sandbox.inbound(PHONE, LEAD, "nimeni")
    write(path, {"timelinesai": {"url": f"{receiver.url}/unu", "token": "t"}})
    sandbox.inbound(PHONE, LEAD, "unu")
    settled(sandbox, 1)
    write(path, {"timelinesai": {"url": f"{receiver.url}/doi", "token": "t"}})
    sandbox.inbound(PHONE, LEAD, "doi")
    settled(sandbox, 2)
    path.unlink()
    sandbox.inbound(PHONE, LEAD, "iar nimeni")
    called = [(call.path, call.told["message"]["text"]) for call in receiver.calls]
    assert called == [("/unu/t", "unu"), ("/doi/t", "doi")]


def test_a_file_that_makes_no_sense_calls_nobody_and_says_so(
    filed: tuple[RunningSandbox, Path], receiver: Receiver
):
    sandbox, path = filed
    write(path, {"timelinesai": {"url": "http://example.com/", "token": "hush"}})
    sandbox.inbound(PHONE, LEAD, "nimeni")
    trouble = sandbox.client.get("/_sandbox/webhooks").json()["trouble"]
    assert "leads off this machine" in trouble
    path.write_text('{"timelinesai": {"token": "hush"')
    trouble = sandbox.client.get("/_sandbox/webhooks").json()["trouble"]
    assert "not readable JSON" in trouble
    log = (sandbox.journal_dir / "sandbox.log").read_text()
    assert "leads off this machine" in log
    assert "hush" not in log
    write(path, {"timelinesai": {"url": receiver.url, "token": "t"}})
    sandbox.inbound(PHONE, LEAD, "acum")
    settled(sandbox, 1)
    assert [call.told["message"]["text"] for call in receiver.calls] == ["acum"]


# --- on demand -----------------------------------------------------------------------------------


def test_a_dropped_webhook_is_only_in_history(sandbox: RunningSandbox, told: Receiver):
    sandbox.fault("webhook_dropped", phone=PHONE, times=1, event_type=RECEIVED)
    lost = sandbox.inbound(PHONE, LEAD, "pierdut")
    sandbox.inbound(PHONE, LEAD, "auzit")
    assert [call.told["message"]["text"] for call in calls_of(told, RECEIVED)] == ["auzit"]
    (line,) = [one for one in sandbox.webhook_lines() if one["message_uid"] == lost["message_uid"]]
    assert (line["outcome"], line["attempt"]) == ("dropped", 0)
    assert line["faults"] == ["webhook_dropped"]
    assert texts_in_history(sandbox, lost["chat_id"]) == ["auzit", "pierdut"]


def test_a_duplicated_webhook_comes_so_many_times(sandbox: RunningSandbox, told: Receiver):
    sandbox.fault("webhook_duplicated", copies=3, event_type=RECEIVED)
    uid = sandbox.inbound(PHONE, LEAD, "Bună")["message_uid"]
    calls = calls_of(told, RECEIVED, 3)
    assert len({call.body for call in calls}) == 1
    until(lambda: outcomes(sandbox, uid) == [(1, "told")] * 3)


def test_a_delayed_webhook_comes_after_what_happened_later(sandbox: RunningSandbox, told: Receiver):
    sandbox.fault("webhook_delayed", seconds=0.3, times=1, event_type=RECEIVED)
    sandbox.inbound(PHONE, LEAD, "întâi")
    sandbox.inbound(PHONE, LEAD, "apoi")
    calls = calls_of(told, RECEIVED, 2)
    assert [call.told["message"]["text"] for call in calls] == ["apoi", "întâi"]


def test_a_shuffled_webhook_waits_for_a_later_one_of_its_chat(
    sandbox: RunningSandbox, told: Receiver
):
    sandbox.fault("webhook_shuffled", seconds=60, times=1, event_type=RECEIVED)
    sandbox.inbound(PHONE, LEAD, "întâi")
    sandbox.inbound(PHONE, OTHER_LEAD, "altcineva")
    sandbox.inbound(PHONE, LEAD, "apoi")
    calls = calls_of(told, RECEIVED, 3)
    mine = [call.told["message"]["text"] for call in calls if LEAD in call.body.decode()]
    assert mine == ["apoi", "întâi"]


def test_a_shuffled_webhook_that_nothing_follows_still_comes(
    sandbox: RunningSandbox, told: Receiver
):
    sandbox.fault("webhook_shuffled", seconds=0.05, times=1, event_type=RECEIVED)
    sandbox.inbound(PHONE, LEAD, "singur")
    assert len(calls_of(told, RECEIVED)) == 1


def test_faults_of_webhooks_are_aimed_at_phone_person_vendor_and_chance(
    sandbox: RunningSandbox, told: Receiver
):
    sandbox.fault("webhook_dropped", phone=OTHER_PHONE)
    sandbox.fault("webhook_dropped", recipient=OTHER_LEAD)
    sandbox.fault("webhook_dropped", provider="meta")
    sandbox.fault("webhook_dropped", probability=0.0)
    sandbox.inbound(PHONE, LEAD, "unu")
    sandbox.inbound(PHONE, OTHER_LEAD, "doi")
    sandbox.inbound(OTHER_PHONE, LEAD, "trei")
    settled(sandbox, 6)
    assert [call.told["message"]["text"] for call in calls_of(told, RECEIVED)] == ["unu"]


@pytest.mark.parametrize(
    ("kind", "operation"),
    [("webhook_dropped", "send"), ("webhook_dropped", "any"), ("late", "webhook")],
)
def test_a_fault_cannot_be_about_the_wrong_direction(
    sandbox: RunningSandbox, kind: str, operation: str
):
    asked = {"kind": kind, "operation": operation}
    answer = sandbox.client.post("/_sandbox/faults", json=asked)
    assert answer.status_code == 400
    assert f"{kind} cannot be about {operation}" in answer.json()["error"]


def test_a_fault_of_any_operation_leaves_webhooks_alone(sandbox: RunningSandbox, told: Receiver):
    fault = sandbox.fault("server_error", operation="any")
    sandbox.inbound(PHONE, LEAD, "Bună")
    calls_of(told, RECEIVED)
    (mine,) = [one for one in sandbox.faults() if one["id"] == fault]
    assert mine["seen"] == 0


def test_a_message_can_be_written_untold_or_told_twice(sandbox: RunningSandbox, told: Receiver):
    untold = sandbox.inbound(PHONE, LEAD, "netrimis", webhook=False)
    twice = sandbox.inbound(PHONE, LEAD, "de două ori", webhook="duplicate")
    calls = calls_of(told, RECEIVED, 2)
    assert [call.told["message"]["message_uid"] for call in calls] == [twice["message_uid"]] * 2
    assert outcomes(sandbox, untold["message_uid"]) == [(0, "dropped")]
    wrong = {"account": PHONE, "from": LEAD, "text": "a", "webhook": "maybe"}
    answer = sandbox.client.post("/_sandbox/inbound", json=wrong)
    assert "webhook must be true, false or duplicate" in answer.json()["error"]


# --- Meta ----------------------------------------------------------------------------------------


def test_meta_tells_of_a_message_in_its_envelope(sandbox: RunningSandbox, told: Receiver):
    link_meta(sandbox)
    heard = sandbox.inbound(META_PHONE, LEAD, "Bună")
    (call,) = told.wait_for(1)
    assert call.path == "/webhooks/whatsapp"
    (contact,) = call.told["entry"][0]["changes"][0]["value"]["contacts"]
    user_id = contact["user_id"]
    assert user_id.startswith("RO.")
    assert call.told == {
        "object": "whatsapp_business_account",
        "entry": [
            {
                "id": "240790000000",
                "changes": [
                    {
                        "field": "messages",
                        "value": {
                            "messaging_product": "whatsapp",
                            "metadata": {
                                "display_phone_number": "40790000000",
                                "phone_number_id": "140790000000",
                            },
                            "contacts": [
                                {
                                    "profile": {"name": "Client 3456"},
                                    "wa_id": "40722123456",
                                    "user_id": user_id,
                                }
                            ],
                            "messages": [
                                {
                                    "from": "40722123456",
                                    "id": heard["message_uid"],
                                    "timestamp": str(
                                        int(datetime.fromisoformat(heard["message_at"]).timestamp())
                                    ),
                                    "type": "text",
                                    "text": {"body": "Bună"},
                                }
                            ],
                        },
                    }
                ],
            }
        ],
    }
    (event,) = read_meta(call)
    assert (event.kind, event.text) == (Kind.MESSAGE_RECEIVED, "Bună")
    assert (event.account, event.contact.phone) == (META_PHONE, LEAD)
    assert heard["message_uid"].startswith("wamid.")


def test_metas_signature_is_the_one_of_its_documents(sandbox: RunningSandbox, told: Receiver):
    link_meta(sandbox)
    sandbox.inbound(META_PHONE, LEAD, "Bună")
    (call,) = told.wait_for(1)
    digest = hmac.new(APP_SECRET.encode(), call.body, hashlib.sha256).hexdigest()
    assert call.headers["x-hub-signature-256"] == f"sha256={digest}"
    with pytest.raises(WebhookRefused):
        MetaWebhooks(("another",)).verify(call.as_request(), now=NOW)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("image", {"id", "mime_type", "sha256", "caption"}),
        ("video", {"id", "mime_type", "sha256", "caption"}),
        ("audio", {"id", "mime_type", "sha256", "voice"}),
        ("document", {"id", "mime_type", "sha256", "filename", "caption"}),
        ("sticker", {"id", "mime_type", "sha256", "animated"}),
        ("location", {"latitude", "longitude", "name", "address"}),
    ],
)
def test_meta_has_a_word_for_each_type(
    sandbox: RunningSandbox, told: Receiver, kind: str, keys: set[str]
):
    link_meta(sandbox)
    sandbox.inbound(META_PHONE, LEAD, "poza" if "caption" in keys else "", kind=kind)
    (call,) = told.wait_for(1)
    (message,) = call.told["entry"][0]["changes"][0]["value"]["messages"]
    assert message["type"] == kind
    assert message[kind].keys() == keys
    (event,) = read_meta(call)
    assert event.message_type == kind
    if "id" in keys:
        media_id = message[kind]["id"]
        told_file = sandbox.client.get(f"{sandbox.meta_url}/{media_id}").json()
        assert told_file["mime_type"] == message[kind]["mime_type"]


def test_meta_tells_of_a_reaction(sandbox: RunningSandbox, told: Receiver):
    link_meta(sandbox)
    uid = sandbox.inbound(META_PHONE, LEAD, "Bună")["message_uid"]
    told.wait_for(1)
    sandbox.react(META_PHONE, LEAD, "🙏")
    call = told.wait_for(2)[1]
    (event,) = read_meta(call)
    assert (event.kind, event.text, event.reply_to) == (Kind.REACTION, "🙏", uid)


def test_a_person_may_hide_their_number_from_meta(sandbox: RunningSandbox, told: Receiver):
    link_meta(sandbox)
    sandbox.inbound(META_PHONE, LEAD, "la vedere")
    told.wait_for(1)
    sandbox.inbound(META_PHONE, LEAD, "ascuns", number_hidden=True)
    shown, hidden = (read_meta(call)[0] for call in told.wait_for(2))
    assert LEAD.removeprefix("+") not in told.calls[1].body.decode().replace("wamid", "")
    assert (hidden.contact.phone, hidden.text) == (None, "ascuns")
    assert hidden.contact.user_id == shown.contact.user_id is not None


def test_meta_tells_what_becomes_of_a_message(sandbox: RunningSandbox, told: Receiver):
    uid = send_meta(sandbox)
    until(lambda: len(statuses_of(told)) == 2)
    statuses = statuses_of(told)
    assert [status["status"] for status in statuses] == ["sent", "delivered"]
    assert sandbox.client.get("/_sandbox/webhooks").json()["waiting"] == 1  # to be read
    assert {status["id"] for status in statuses} == {uid}
    assert statuses[1].keys() == {
        *("id", "status", "timestamp", "recipient_id"),
        *("conversation", "pricing", "biz_opaque_callback_data"),
    }
    assert statuses[1]["pricing"] == {
        "billable": True,
        "pricing_model": "PMP",
        "category": "marketing",
    }
    deliveries = [event.delivery for call in told.calls for event in read_meta(call)]
    assert {one.callback for one in deliveries if one} == {"lead-42"}


def test_meta_tells_why_a_message_failed(sandbox: RunningSandbox, told: Receiver):
    sandbox.fault("fails_later", meta_code=131049, title="Ecosystem")
    uid = send_meta(sandbox)
    (call,) = told.wait_for(1)
    (status,) = statuses_of(told)
    assert status["errors"][0].keys() == {"code", "title", "message", "error_data", "href"}
    (event,) = read_meta(call)
    assert event.delivery is not None
    assert (event.external_id, event.delivery.status) == (uid, "failed")
    assert (event.delivery.code, event.delivery.title) == (131049, "Ecosystem")


def test_meta_puts_what_waits_into_one_body(sandbox: RunningSandbox, told: Receiver):
    sandbox.webhooks_to(told.url, app_secret=APP_SECRET, batch_seconds=0)
    link_meta(sandbox)
    second = {"phone": "+40790000001", "provider": "meta"}
    sandbox.client.put("/_sandbox/accounts", json=[second]).raise_for_status()
    sandbox.fault("fails_later", times=1)
    told.hang()
    sandbox.inbound(META_PHONE, LEAD, "prima")
    told.wait_for(1)  # and while it waits for its answer, more happens
    send_meta(sandbox)
    sandbox.inbound(META_PHONE, LEAD, "unu")
    sandbox.inbound(META_PHONE, OTHER_LEAD, "doi")
    sandbox.inbound(META_PHONE, OTHER_LEAD, "ascuns", number_hidden=True)
    sandbox.inbound("+40790000001", LEAD, "trei")
    told.go_on.set()
    settled(sandbox, 6)
    _, call = told.calls
    first, other = call.told["entry"]
    parts = [sorted(change["value"].keys() - NOT_ITEMS) for change in first["changes"]]
    assert parts == [["statuses"], ["contacts", "messages"], ["contacts", "messages"]]
    assert [len(change["value"].get("messages", ())) for change in first["changes"]] == [0, 2, 1]
    assert len(other["changes"]) == 1
    events = read_meta(call)
    assert events[0].kind is Kind.STATUS
    said = [(event.text, event.contact.phone) for event in events[1:]]
    assert said == [("unu", LEAD), ("doi", OTHER_LEAD), ("ascuns", None), ("trei", LEAD)]
    assert [line["items"] for line in sandbox.webhook_lines()] == [1, 5, 5, 5, 5, 5]


def test_what_happens_in_the_same_moment_may_come_together(
    sandbox: RunningSandbox, receiver: Receiver
):
    sandbox.webhooks_to(receiver.url, app_secret=APP_SECRET, batch_seconds=0.5)
    link_meta(sandbox)
    for number in range(4):
        sandbox.inbound(META_PHONE, LEAD, f"{number}")
    settled(sandbox, 4)
    assert len(receiver.calls) < 4
    said = [event.text for call in receiver.calls for event in read_meta(call)]
    assert said == list("0123")


def test_meta_goes_on_trying(sandbox: RunningSandbox, told: Receiver):
    link_meta(sandbox)
    told.statuses = [500] * 7
    uid = sandbox.inbound(META_PHONE, LEAD, "Bună")["message_uid"]
    until(lambda: (8, "told") in outcomes(sandbox, uid))
    assert len({call.body for call in told.wait_for(8)}) == 1


def test_meta_gives_up_in_the_end(sandbox: RunningSandbox, receiver: Receiver):
    patience = {"pauses_seconds": [0.01], "give_up_seconds": 0.2}
    sandbox.webhooks_to(receiver.url, app_secret=APP_SECRET, **patience)
    link_meta(sandbox)
    receiver.statuses = [500] * 1000
    uid = sandbox.inbound(META_PHONE, LEAD, "Bună")["message_uid"]
    until(lambda: outcomes(sandbox, uid)[-1:] and outcomes(sandbox, uid)[-1][1] == "given_up")


def test_what_is_typed_on_a_handset_meta_does_not_know(sandbox: RunningSandbox, told: Receiver):
    link_meta(sandbox)
    sandbox.inbound(META_PHONE, LEAD, "de mână", by_hand=True)
    sandbox.inbound(META_PHONE, LEAD, kind="call")
    uid = sandbox.inbound(META_PHONE, LEAD, "Bună")["message_uid"]
    until(lambda: outcomes(sandbox, uid))
    assert len(sandbox.webhook_lines()) == 1


# --- the page ------------------------------------------------------------------------------------


def test_the_page_shows_both_sides_and_what_became_of_the_webhook(
    sandbox: RunningSandbox, told: Receiver
):
    send(sandbox, "Bună ziua, oferta")
    sandbox.inbound(PHONE, LEAD, "<script>alert(1)</script>")
    sandbox.inbound(PHONE, LEAD, "pierdut", webhook=False)
    sandbox.inbound(PHONE, LEAD, kind="call")
    sandbox.react(PHONE, LEAD, "👍", reacts_to=sandbox.accepted()[0]["message_uid"])
    settled(sandbox, 6)
    page = sandbox.client.get("/").text
    talks = page[page.index("conversations") : page.index("Last 20 messages")]
    assert "Bună ziua, oferta (👍)" in talks
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in talks
    assert "<script>" not in page
    for word in ("told", "dropped", "[missed call]", "+40*****456"):
        assert f"<td>{word}</td>" in talks
    assert LEAD not in page
