"""Every way the sandbox can be told to fail: what the client sees, and what was really accepted."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from cerniq_pipeline.sandbox.faults import KINDS
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PHONE = "+40731000001"
OTHER_PHONE = "+40731000002"
LEAD = "+40722123456"
API = "/integrations/api"


def post(
    sandbox: RunningSandbox,
    text: str = "Bună",
    *,
    phone: str = PHONE,
    to: str = LEAD,
    timeout: float = 10,
) -> httpx.Response:
    body = {"phone": to, "whatsapp_account_phone": phone, "text": text}
    return sandbox.client.post(f"{API}/messages", json=body, timeout=timeout)


def read_in_parts(sandbox: RunningSandbox, got: bytearray) -> None:
    """Send one message and collect whatever of the answer's body arrives."""
    body = {"phone": LEAD, "whatsapp_account_phone": PHONE, "text": "Bună"}
    with sandbox.client.stream("POST", f"{API}/messages", json=body) as answer:
        for part in answer.iter_bytes():
            got += part


def post_v1(sandbox: RunningSandbox) -> httpx.Response:
    body = {"phone": PHONE, "recipient": LEAD, "message": "Bună"}
    return sandbox.client.post("/v1/messages/send", json=body)


def history(sandbox: RunningSandbox, chat_id: int = 1000001) -> list[str]:
    answer = sandbox.client.get(f"{API}/chats/{chat_id}/messages")
    return [message["text"] for message in answer.raise_for_status().json()["data"]["messages"]]


def chats(sandbox: RunningSandbox) -> list[str]:
    answer = sandbox.client.get(f"{API}/chats", params={"with_msg": "true"})
    listed = answer.raise_for_status().json()["data"]["chats"]
    return [chat["last_message"]["text"] for chat in listed]


def how_it_ended(sandbox: RunningSandbox) -> str:
    return sandbox.journal("answered")[-1]["how"]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "status", "code", "says"),
    [
        ({"kind": "server_error"}, 500, "internal_error", "Internal"),
        ({"kind": "server_error", "status": 503}, 503, "internal_error", "Internal"),
        ({"kind": "unauthorized"}, 401, "invalid_token", "token"),
        ({"kind": "forbidden"}, 403, "permission_denied", "denied"),
        ({"kind": "banned"}, 400, "validation_error", "banned"),
        (
            {"kind": "banned", "status": 403, "message": "Number blocked"},
            403,
            "validation_error",
            "blocked",
        ),
        ({"kind": "invalid_number"}, 400, "validation_error", "invalid"),
        ({"kind": "error_in_ok"}, 200, "internal_error", "wrong"),
        (
            {"kind": "rate_limited", "shape": "envelope"},
            429,
            "rate_limit_exceeded",
            "Rate limit exceeded",
        ),
    ],
)
def test_a_refusal_is_worded_by_each_dialect_and_accepts_nothing(
    sandbox: RunningSandbox, fault: dict[str, Any], status: int, code: str, says: str
):
    sandbox.fault(**fault)
    answer, answer_v1 = post(sandbox), post_v1(sandbox)
    assert answer.status_code == answer_v1.status_code == status
    assert (answer.json()["status"], answer.json()["error_code"]) == ("error", code)
    assert (answer_v1.json()["status"], answer_v1.json()["error"]) == ("error", code)
    assert says in answer.json()["message"]
    assert says in answer_v1.json()["message"]
    assert sandbox.accepted() == []
    assert [line["status"] for line in sandbox.journal("refused")] == [status, status]
    assert [line["status"] for line in sandbox.journal("answered")] == [status, status]
    assert sandbox.journal("refused")[0]["faults"] == [fault["kind"]]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, "validation_error", "Phone number invalid"),
        (400, "validation_error", "Bad JSON format"),
        (401, "missing_credentials", "Authentication credentials were not provided"),
        (401, "invalid_token", "Invalid token"),
        (403, "permission_denied", "Permission denied"),
        (403, "member_not_found", "Member not found"),
        (403, "insufficient_scope", "Insufficient scope"),
        (403, "plan_feature_unavailable", "Not in your plan"),
        (403, "quota_exceeded", "Quota exceeded"),
        (404, "not_found", "Whatsapp chat_id 7 not found"),
        (405, "not_supported", "Method not allowed"),
        (409, "account_inactive", "Account is inactive"),
        (409, "service_window_closed", "Service window closed"),
        (413, "file_too_large", "File is too large"),
        (422, "template_variables_mismatch", "Variables do not match"),
        (429, "rate_limit_exceeded", "Too many"),
        (500, "internal_error", "Internal server error"),
        (504, "internal_error", "Gateway timeout"),
    ],
)
def test_every_row_of_the_vendors_table_can_be_played(
    sandbox: RunningSandbox, status: int, code: str, message: str
):
    sandbox.fault("refuse", status=status, code=code, message=message)
    answer, answer_v1 = post(sandbox), post_v1(sandbox)
    assert answer.status_code == answer_v1.status_code == status
    assert answer.json() == {"status": "error", "message": message, "error_code": code}
    assert answer_v1.json() == {"status": "error", "message": message, "error": code}
    assert sandbox.accepted() == []
    assert [line["status"] for line in sandbox.journal("refused")] == [status, status]


def test_a_refusal_can_have_another_shape(sandbox: RunningSandbox):
    sandbox.fault("refuse", status=429, message="Slow down", shape="plain", times=1, retry_after=9)
    answer = post(sandbox)
    assert answer.json() == {"error": "Too Many Requests", "message": "Slow down"}
    assert answer.headers["retry-after"] == "9"
    sandbox.fault("refuse", status=404, message="Not Found", shape="html", times=1)
    answer = post(sandbox)
    assert answer.status_code == 404
    assert "<h1>404 Not Found</h1>" in answer.text


@pytest.mark.parametrize(
    ("fault", "status", "code", "says"),
    [
        ({"kind": "suspended"}, 403, "permission_denied", "suspended"),
        ({"kind": "quota_exceeded"}, 403, "quota_exceeded", "quota exceeded"),
        ({"kind": "quota_exceeded", "status": 429}, 429, "quota_exceeded", "quota exceeded"),
    ],
)
def test_a_workspace_can_run_out_of_money_or_messages(
    sandbox: RunningSandbox, fault: dict[str, Any], status: int, code: str, says: str
):
    sandbox.fault(**fault)
    answer = post(sandbox)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert says in answer.json()["message"]
    assert sandbox.accepted() == []


@pytest.mark.parametrize("kind", ["server_error", "html_error", "error_in_ok"])
def test_an_error_can_hide_a_message_that_was_accepted(sandbox: RunningSandbox, kind: str):
    sandbox.fault(kind, accepted=True)
    assert "message_uid" not in post(sandbox).text
    assert len(sandbox.accepted()) == 1
    assert sandbox.journal("refused") == []
    assert history(sandbox) == ["Bună"]


@pytest.mark.parametrize(("retry_after", "header"), [(None, None), (7, "7")])
def test_too_many_requests_come_with_or_without_a_wait(
    sandbox: RunningSandbox, retry_after: int | None, header: str | None
):
    sandbox.fault("rate_limited", retry_after=retry_after)
    answer = post(sandbox)
    assert answer.status_code == 429
    assert answer.headers.get("retry-after") == header
    assert answer.json().keys() == {"error", "message"}  # the other documented shape
    assert answer.json()["error"] == "Too Many Requests"
    assert sandbox.accepted() == []


@pytest.mark.parametrize("status", [403, 502, 599])
def test_an_html_page_can_stand_in_for_an_answer(sandbox: RunningSandbox, status: int):
    sandbox.fault("html_error", status=status)
    for answer in (post(sandbox), post_v1(sandbox)):
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("text/html")
        assert "<html>" in answer.text
    assert sandbox.accepted() == []


def test_a_redirect_points_to_another_host(sandbox: RunningSandbox):
    sandbox.fault("redirect")
    answer = post(sandbox)
    assert answer.status_code == 301
    assert answer.headers["location"] == "https://elsewhere.invalid/"
    assert sandbox.accepted() == []


# --- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "accepted"),
    [
        ({"kind": "accept_then_cut"}, httpx.RemoteProtocolError, 1),
        ({"kind": "accept_then_cut", "reset": True}, httpx.ReadError, 1),
        ({"kind": "accept_then_cut_after_headers"}, httpx.RemoteProtocolError, 1),
        ({"kind": "accept_then_truncate"}, httpx.RemoteProtocolError, 1),
        ({"kind": "accept_then_truncate", "at_byte": 9}, httpx.RemoteProtocolError, 1),
        ({"kind": "cut_before_accept"}, httpx.ReadError, 0),
        ({"kind": "cut_before_accept", "reset": False}, httpx.RemoteProtocolError, 0),
    ],
)
def test_a_cut_connection_says_nothing_about_what_was_accepted(
    sandbox: RunningSandbox, fault: dict[str, Any], error: type[Exception], accepted: int
):
    sandbox.fault(times=1, **fault)
    with pytest.raises(error):
        post(sandbox)
    assert len(sandbox.accepted()) == accepted
    assert sandbox.journal("refused") == []
    assert how_it_ended(sandbox) == "cut"
    assert post(sandbox, "din nou").status_code == 200


@pytest.mark.parametrize(
    ("kind", "part"),
    [("accept_then_cut", 0), ("accept_then_cut_after_headers", 0), ("accept_then_truncate", 0.5)],
)
def test_a_cut_leaves_exactly_the_promised_part_of_the_body(
    sandbox: RunningSandbox, kind: str, part: float
):
    whole = post(sandbox).content
    sandbox.fault(kind, times=1)
    got = bytearray()
    with pytest.raises(httpx.RemoteProtocolError):
        read_in_parts(sandbox, got)
    assert len(got) == int(len(whole) * part)


def test_a_late_answer_comes_after_an_immediate_acceptance(sandbox: RunningSandbox):
    sandbox.fault("late", delay_ms=60_000)
    with pytest.raises(httpx.ReadTimeout):
        post(sandbox, timeout=0.2)
    assert len(sandbox.accepted()) == 1
    assert history(sandbox) == ["Bună"]


def test_a_client_that_gave_up_does_not_overlap_with_its_next_request(sandbox: RunningSandbox):
    sandbox.fault("late", delay_ms=60_000, times=3)
    for number in range(3):
        with pytest.raises(httpx.ReadTimeout):
            post(sandbox, str(number), timeout=0.1)
    assert post(sandbox, "gata").status_code == 200
    ends = [line["how"] for line in sandbox.journal("answered")]
    assert ends == ["client_gone", "client_gone", "client_gone", "answered"]
    assert sandbox.overlaps() == []


def test_a_short_delay_still_ends_in_an_answer(sandbox: RunningSandbox):
    sandbox.fault("late", delay_ms=30)
    assert post(sandbox).status_code == 200
    assert how_it_ended(sandbox) == "answered"


def test_two_requests_of_one_phone_at_once_are_an_overlap(sandbox: RunningSandbox):
    sandbox.fault("late", delay_ms=150)
    with ThreadPoolExecutor(3) as pool:
        for phone in (PHONE, PHONE, OTHER_PHONE):
            pool.submit(post, sandbox, phone=phone)
    ((first, second),) = sandbox.overlaps()
    assert first["sender"] == second["sender"] == PHONE


def test_the_same_text_to_the_same_person_is_a_duplicate(sandbox: RunningSandbox):
    post(sandbox)
    post(sandbox, "altceva")
    assert sandbox.duplicates() == []
    post(sandbox, phone=OTHER_PHONE)
    ((first, second),) = sandbox.duplicates()
    assert (first["sender"], second["sender"]) == (PHONE, OTHER_PHONE)
    assert sandbox.duplicates(key=lambda line: line["message_uid"]) == []


# --- the wrong phone -----------------------------------------------------------------------------


def test_a_message_can_leave_from_the_wrong_phone(sandbox: RunningSandbox):
    sandbox.fault("wrong_phone", phone=PHONE, as_phone=OTHER_PHONE, times=1)
    uid = post(sandbox).json()["data"]["message_uid"]
    info = sandbox.client.get(f"{API}/messages/{uid}").json()["data"]
    assert info["sender_phone"] == OTHER_PHONE
    (line,) = sandbox.accepted()
    assert (line["asked_sender"], line["sender"]) == (PHONE, OTHER_PHONE)
    (chat,) = sandbox.client.get(f"{API}/chats").json()["data"]["chats"]
    assert chat["whatsapp_account_id"] == "40731000002@s.whatsapp.net"


def test_a_follow_up_can_leave_from_the_wrong_phone_too(sandbox: RunningSandbox):
    post(sandbox)
    sandbox.fault("wrong_phone", as_phone=OTHER_PHONE)
    sandbox.client.post(f"{API}/chats/1000001/messages", json={"text": "Revin"})
    line = sandbox.accepted()[-1]
    assert (line["asked_sender"], line["sender"]) == (PHONE, OTHER_PHONE)
    assert line["chat_id"] == 1000002


# --- history that lies ---------------------------------------------------------------------------


def test_a_lagging_history_shows_a_message_only_later(sandbox: RunningSandbox):
    lag = sandbox.fault("history_lag", visible_after_ms=60_000)
    uid = post(sandbox).json()["data"]["message_uid"]
    assert history(sandbox) == chats(sandbox) == []
    assert sandbox.client.get(f"{API}/messages/{uid}").status_code == 200  # ids do not lag
    sandbox.lift(lag)
    assert history(sandbox) == chats(sandbox) == ["Bună"]


def test_a_lag_ends_by_itself(sandbox: RunningSandbox):
    sandbox.fault("history_lag", visible_after_ms=100)
    post(sandbox)
    deadline = time.monotonic() + 5
    while not history(sandbox) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert history(sandbox) == ["Bună"]


def test_one_single_message_can_be_hidden_for_good(sandbox: RunningSandbox):
    post(sandbox, "unu")
    hidden = sandbox.fault("history_hidden", operation="send", times=1)
    post(sandbox, "doi")
    post(sandbox, "trei")
    sandbox.lift(hidden)
    assert history(sandbox) == ["trei", "unu"]
    assert len(sandbox.accepted()) == 3


def test_history_can_hide_all_of_one_phone(sandbox: RunningSandbox):
    sandbox.fault("history_hidden", phone=PHONE)
    post(sandbox, "unu")
    post(sandbox, "doi", phone=OTHER_PHONE)
    assert history(sandbox, 1000001) == []
    assert history(sandbox, 1000002) == chats(sandbox) == ["doi"]


def test_history_can_show_a_message_twice(sandbox: RunningSandbox):
    post(sandbox)
    sandbox.fault("history_twice", operation="history", times=1)
    assert history(sandbox) == ["Bună", "Bună"]
    assert history(sandbox) == ["Bună"]
    sandbox.fault("history_twice", operation="send", copies=3, times=1)
    post(sandbox, "de trei ori")
    assert history(sandbox) == ["de trei ori"] * 3 + ["Bună"]


def test_a_cut_and_a_hidden_message_can_come_together(sandbox: RunningSandbox):
    sandbox.fault("accept_then_cut", times=1)
    sandbox.fault("history_hidden")
    with pytest.raises(httpx.RemoteProtocolError):
        post(sandbox)
    assert len(sandbox.accepted()) == 1
    assert history(sandbox) == []


# --- aim -----------------------------------------------------------------------------------------


def test_a_fault_hits_only_its_phone_and_its_operation(sandbox: RunningSandbox):
    post(sandbox, phone=PHONE)
    post(sandbox, phone=OTHER_PHONE)
    sandbox.fault("server_error", phone=PHONE, operation="history")
    statuses = [
        sandbox.client.get(f"{API}/chats/{chat_id}/messages").status_code
        for chat_id in (1000001, 1000002)
    ]
    assert statuses == [500, 200]
    assert post(sandbox).status_code == 200
    assert sandbox.client.get(f"{API}/chats").status_code == 200


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("history", f"{API}/chats/1000001/messages"),
        ("history", "/v1/chats/1000001/messages"),
        ("chats", f"{API}/chats"),
        ("chats", f"{API}/chats/1000001"),
        ("accounts", f"{API}/whatsapp_accounts"),
        ("accounts", f"/v1/accounts/{PHONE}/status"),
        ("any", f"{API}/workspace"),
    ],
)
def test_reads_can_fail_as_well(sandbox: RunningSandbox, operation: str, path: str):
    post(sandbox)
    sandbox.fault("html_error", operation=operation, times=1)
    assert sandbox.client.get(path).status_code == 502
    sandbox.fault("accept_then_truncate", operation=operation, times=1)
    with pytest.raises(httpx.RemoteProtocolError):
        sandbox.client.get(path)
    assert sandbox.client.get(path).status_code == 200


def test_a_fault_can_be_aimed_at_one_vendor(sandbox: RunningSandbox):
    sandbox.fault("server_error", provider="meta")
    assert post(sandbox).status_code == 200
    sandbox.fault("server_error", provider="timelinesai")
    assert post(sandbox).status_code == 500


def test_a_fault_can_be_aimed_at_one_person(sandbox: RunningSandbox):
    sandbox.fault("server_error", recipient=LEAD)
    assert post(sandbox, to="+40722000000").status_code == 200
    assert post(sandbox, to=LEAD).status_code == 500


def test_a_fault_skips_strikes_and_is_spent(sandbox: RunningSandbox):
    sandbox.fault("server_error", after=1, times=2)
    assert [post(sandbox).status_code for _ in range(5)] == [200, 500, 500, 200, 200]
    (fault,) = sandbox.faults()
    assert (fault["seen"], fault["fired"], fault["active"]) == (3, 2, False)


def test_chance_follows_the_seed(sandbox: RunningSandbox):
    def outcomes(seed: int) -> list[int]:
        fault = sandbox.fault("server_error", probability=0.5, seed=seed)
        statuses = [post(sandbox).status_code for _ in range(20)]
        sandbox.lift(fault)
        return statuses

    first = outcomes(1)
    assert outcomes(1) == first
    assert outcomes(2) != first
    assert {200, 500} == set(first)


def test_a_chance_of_nothing_never_strikes(sandbox: RunningSandbox):
    sandbox.fault("server_error", probability=0)
    assert {post(sandbox).status_code for _ in range(10)} == {200}


# --- the control API -----------------------------------------------------------------------------


def test_faults_can_be_listed_and_lifted(sandbox: RunningSandbox):
    first = sandbox.fault("late", delay_ms=5, phone=PHONE)
    sandbox.fault("forbidden")
    assert [(one["kind"], one["phone"], one["operation"]) for one in sandbox.faults()] == [
        ("late", PHONE, "send"),
        ("forbidden", None, "send"),
    ]
    assert sandbox.faults()[0]["delay_ms"] == 5
    sandbox.lift(first)
    assert [one["kind"] for one in sandbox.faults()] == ["forbidden"]
    assert sandbox.client.delete(f"/_sandbox/faults/{first}").status_code == 404
    sandbox.lift()
    assert sandbox.faults() == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"kind": "earthquake"}, "kind must be one of"),
        ({}, "kind must be one of"),
        ({"kind": "late", "delay": 5}, "late has no parameter delay"),
        ({"kind": "late", "delay_ms": -1}, "delay_ms must be"),
        ({"kind": "late", "times": True}, "times must be"),
        ({"kind": "late", "probability": 1.1}, "probability must be"),
        ({"kind": "late", "operation": "sned"}, "operation must be one of"),
        ({"kind": "late", "phone": "0731"}, "phone must be"),
        ({"kind": "server_error", "status": 404}, "status must be"),
        ({"kind": "server_error", "accepted": 1}, "accepted must be"),
        ({"kind": "wrong_phone"}, "as_phone is missing"),
        ({"kind": "refuse", "status": 200}, "status must be"),
        ({"kind": "refuse", "shape": "round"}, "shape must be one of envelope, plain, html"),
        ({"kind": "quota_exceeded", "status": 400}, "status must be 403 or 429"),
        ({"kind": "late", "provider": "acme"}, "provider must be one of"),
        ([], "a fault is a JSON object"),
    ],
)
def test_a_fault_asked_for_wrongly_is_explained(sandbox: RunningSandbox, wrong: Any, says: str):
    answer = sandbox.client.post("/_sandbox/faults", json=wrong)
    assert answer.status_code == 400
    assert says in answer.json()["error"]
    assert sandbox.faults() == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_works_with_its_defaults(sandbox: RunningSandbox, kind: str):
    required = {"as_phone": OTHER_PHONE} if kind == "wrong_phone" else {}
    fault = sandbox.fault(kind, **required)
    assert [one["id"] for one in sandbox.faults()] == [fault]


def test_the_journal_can_be_read_from_a_point_and_by_kind(sandbox: RunningSandbox):
    post(sandbox, "unu")
    last = sandbox.journal()[-1]["n"]
    post(sandbox, "doi")
    assert [line["text"] for line in sandbox.journal("accepted")] == ["unu", "doi"]
    assert [line["text"] for line in sandbox.journal("accepted", after=last)] == ["doi"]
    assert [line["n"] for line in sandbox.journal(after=last)] == [last + 1, last + 2, last + 3]
    assert sandbox.journal(after=last + 1000) == []
    answer = sandbox.client.get("/_sandbox/journal", params={"kind": "sent"})
    assert answer.status_code == 400


def test_a_reset_forgets_everything(sandbox: RunningSandbox):
    post(sandbox)
    sandbox.fault("forbidden")
    sandbox.reset()
    assert sandbox.faults() == sandbox.journal() == []
    assert chats(sandbox) == []
    assert sandbox.client.get("/_sandbox/accounts").json() == {"accounts": []}
    assert (sandbox.journal_dir / "journal.jsonl").read_bytes() == b""
    assert post(sandbox).status_code == 200


def test_a_request_from_before_a_reset_leaves_no_trace_after_it(sandbox: RunningSandbox):
    sandbox.fault("late", delay_ms=300)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, sandbox)
        while not sandbox.accepted():
            time.sleep(0.01)
        sandbox.reset()
        assert waiting.result().status_code == 200
    assert sandbox.journal() == []


def test_accounts_can_be_set_and_are_checked(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "active", OTHER_PHONE: "disconnected"})
    accounts = sandbox.client.get("/_sandbox/accounts").json()["accounts"]
    assert [(one["phone"], one["status"]) for one in accounts] == [
        (PHONE, "active"),
        (OTHER_PHONE, "disconnected"),
    ]
    for wrong in ({}, [{"phone": "x"}], [{"phone": PHONE, "status": "asleep"}], ["x"]):
        assert sandbox.client.put("/_sandbox/accounts", json=wrong).status_code == 400


def test_health_counts_calls(sandbox: RunningSandbox):
    post(sandbox)
    history(sandbox)
    health = sandbox.client.get("/_sandbox/health").json()
    assert health["status"] == "ok"
    assert health["accepted"] == 1
    assert health["calls"] == {"send": 1, "history": 1}


def test_the_page_shows_counts_masked_messages_and_faults(sandbox: RunningSandbox):
    post(sandbox, "<script>alert(1)</script>")
    sandbox.fault("late", phone=PHONE)
    answer = sandbox.client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "SANDBOX — nothing leaves this machine" in answer.text
    assert f'<td>{PHONE}</td><td>active</td><td class="number">1</td>' in answer.text
    assert "+40*****456" in answer.text
    assert LEAD not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "<script" not in answer.text
    assert f"<td>late</td><td>send of {PHONE}</td>" in answer.text
    assert 'http-equiv="refresh" content="2"' in answer.text
    assert "src=" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_page_shows_what_was_received_and_by_which_vendor(sandbox: RunningSandbox):
    sandbox.fault("not_delivered", times=1)
    post(sandbox, "blocat")
    sandbox.inbound(PHONE, LEAD, "Da", kind="image")
    sandbox.inbound(PHONE, LEAD, "manual", by_hand=True)
    template = {"name": "intro_ro", "language": {"code": "ro"}}
    meta = {"messaging_product": "whatsapp", "to": "40722123456", "type": "template"}
    sandbox.client.post("/v23.0/140731000009/messages", json={**meta, "template": template})
    sandbox.client.post(sandbox.slack_url, json={"text": "Telefon <mort>"})
    page = sandbox.client.get("/").text
    person = "+40*****456"
    for row in (
        f"<td>TimelinesAI</td><td>stuck</td><td>{PHONE}</td><td>{person}</td><td>blocat</td>",
        f"<td>received</td><td>{person}</td><td>{PHONE}</td><td>[photo.jpg] Da</td>",
        f"<td>by hand</td><td>{PHONE}</td><td>{person}</td><td>manual</td>",
        f"<td>Meta</td><td>accepted</td><td>+40731000009</td><td>{person}</td>",
        f'<td>{PHONE}</td><td>active</td><td class="number">1</td><td class="number">1</td>',
        "<td>Telefon &lt;mort&gt;</td>",
    ):
        assert row in page
    assert LEAD not in page


def test_an_unknown_control_address_is_not_found(sandbox: RunningSandbox):
    assert sandbox.client.get("/_sandbox/nothing").status_code == 404
    assert sandbox.client.post("/_sandbox/health").status_code == 405
