"""TimelinesAI keeps the contract of a channel in both dialects, and what is its own beside it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import httpx
import pytest

from cerniq_pipeline.domain.outbox import Channel, Line, Receipt, Sighting
from cerniq_pipeline.errors import (
    AccountSuspended,
    PhoneUnusable,
    ProviderUnreadable,
    SendDeferred,
    SendFailed,
    SendRejected,
    SendUnconfirmed,
)
from cerniq_pipeline.providers.timelinesai.channel import DIALECTS, TimelinesAI, open_client
from cerniq_pipeline.providers.timelinesai.reading import MOST_PAGES
from cerniq_pipeline_tests.providers.channel_contract import (
    CONTENT,
    FILE_ADDRESS,
    LEAD,
    OTHER_SENDER,
    SENDER,
    TOKEN,
    ChannelContract,
    at_once,
    ids_of,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

ERROR_TABLE: list[tuple[int, dict[str, Any] | None, type[SendFailed], str]] = [
    # Input that is wrong.
    (400, {"error_code": "validation_error"}, SendRejected, "REFUSED"),
    (400, {"message": "Bad JSON format"}, SendRejected, "REFUSED"),
    (400, {"message": "Phone number invalid"}, SendRejected, "INVALID_RECIPIENT_NUMBER"),
    (400, {"message": "Invalid phone number"}, SendRejected, "INVALID_RECIPIENT_NUMBER"),
    (400, None, SendRejected, "REFUSED"),
    (404, {"error_code": "not_found", "message": "Whatsapp chat_id 7 not found"}, SendRejected,
     "REFUSED"),
    (404, None, SendRejected, "REFUSED"),
    (405, {"error_code": "not_supported"}, SendRejected, "REFUSED"),
    (413, {}, SendRejected, "FILE_TOO_LARGE"),
    (413, None, SendRejected, "FILE_TOO_LARGE"),
    # The account: one token serves all phones.
    (401, {"error_code": "missing_credentials"}, AccountSuspended, "ACCOUNT_AUTH"),
    (401, {"error_code": "invalid_token"}, AccountSuspended, "ACCOUNT_AUTH"),
    (401, None, AccountSuspended, "ACCOUNT_AUTH"),
    (403, {"error_code": "permission_denied"}, AccountSuspended, "ACCOUNT_AUTH"),
    (403, {"error_code": "member_not_found"}, AccountSuspended, "ACCOUNT_AUTH"),
    (403, {"error_code": "insufficient_scope"}, AccountSuspended, "ACCOUNT_AUTH"),
    (403, {"error": "insufficient_scope", "message": "No."}, AccountSuspended, "ACCOUNT_AUTH"),
    (403, {"error_code": "plan_feature_unavailable"}, AccountSuspended, "ACCOUNT_AUTH"),
    (403, {"error_code": "quota_exceeded"}, AccountSuspended, "ACCOUNT_QUOTA"),
    (429, {"error_code": "quota_exceeded"}, AccountSuspended, "ACCOUNT_QUOTA"),
    (429, {"error": "quota_exceeded", "message": "Wait."}, AccountSuspended, "ACCOUNT_QUOTA"),
    (403, {"message": "Workspace is suspended"}, AccountSuspended, "ACCOUNT_SUSPENDED"),
    (402, {"message": "Billing: payment required"}, AccountSuspended, "ACCOUNT_SUSPENDED"),
    # The phone.
    (400, {"message": "WhatsApp account is banned"}, PhoneUnusable, "PHONE_BANNED"),
    (400, {"message": "Account was banned and disconnected"}, PhoneUnusable, "PHONE_BANNED"),
    (403, {"error_code": "account_banned"}, PhoneUnusable, "PHONE_BANNED"),
    (400, {"message": "Number is banned, contact support"}, PhoneUnusable, "PHONE_BANNED"),
    (400, {"message": "Contact support: this account was blocked"}, PhoneUnusable, "PHONE_BANNED"),
    (400, {"message": "Message not sent because the account is banned"}, PhoneUnusable,
     "PHONE_BANNED"),
    (429, {"message": "Too many: number blocked"}, PhoneUnusable, "PHONE_BANNED"),
    (409, {"error_code": "account_inactive"}, PhoneUnusable, "PHONE_OFFLINE"),
    (400, {"message": "WhatsApp account not found"}, PhoneUnusable, "PHONE_OFFLINE"),
    (400, {"message": "WhatsApp account +40790000000 not found"}, PhoneUnusable, "PHONE_OFFLINE"),
    (400, {"message": "Account disconnected"}, PhoneUnusable, "PHONE_OFFLINE"),
    (400, {"message": "No connected WhatsApp account"}, PhoneUnusable, "PHONE_OFFLINE"),
    # The recipient, or the text.
    (400, {"message": "You were blocked by this user"}, SendRejected, "RECIPIENT_REFUSED"),
    (403, {"message": "The user has blocked you"}, SendRejected, "RECIPIENT_REFUSED"),
    (400, {"message": "Recipient account is banned"}, SendRejected, "RECIPIENT_REFUSED"),
    (403, {"message": "Contact's number is blocked"}, SendRejected, "RECIPIENT_REFUSED"),
    (400, {"message": "Recipient account not found"}, SendRejected, "RECIPIENT_REFUSED"),
    (409, {"error_code": "recipient_blocked"}, SendRejected, "RECIPIENT_REFUSED"),
    (403, {"message": "Recipient's account is suspended"}, SendRejected, "RECIPIENT_REFUSED"),
    (400, {"message": "Message blocked: banned words"}, SendRejected, "REFUSED"),
    (403, {"message": "Content was blocked by a filter"}, SendRejected, "REFUSED"),
    (422, {"error_code": "blocked"}, SendRejected, "REFUSED"),
    # Words that say less than their status.
    (401, {"error_code": "invalid_token", "message": "BLOCKED"}, AccountSuspended, "ACCOUNT_AUTH"),
    (429, {"message": "Too many requests: blocked"}, SendDeferred, "RATE_LIMITED"),
    # Another day.
    (429, {"error_code": "rate_limit_exceeded"}, SendDeferred, "RATE_LIMITED"),
    (429, {"error": "Too Many Requests", "message": "Slow down."}, SendDeferred, "RATE_LIMITED"),
    (429, None, SendDeferred, "RATE_LIMITED"),
    (403, None, SendDeferred, "RATE_LIMITED"),
    (403, {}, SendDeferred, "RATE_LIMITED"),
    (403, {"error_code": "a_new_word"}, SendDeferred, "RATE_LIMITED"),
    (409, {"error_code": "service_window_closed"}, SendDeferred, "WINDOW_CLOSED"),
    # WhatsApp business rules.
    (409, {"error_code": "template_paused"}, SendRejected, "REFUSED"),
    (409, {"error_code": "template_not_approved"}, SendRejected, "REFUSED"),
    (422, {"error_code": "template_variables_mismatch"}, SendRejected, "REFUSED"),
    # Doubt.
    (500, {"error_code": "internal_error"}, SendUnconfirmed, "ODD_STATUS"),
    (502, None, SendUnconfirmed, "ODD_STATUS"),
    (503, {"message": "The account is banned"}, SendUnconfirmed, "ODD_STATUS"),
    (504, None, SendUnconfirmed, "ODD_STATUS"),
    (402, {}, SendUnconfirmed, "ODD_STATUS"),
    (408, {}, SendUnconfirmed, "ODD_STATUS"),
    (425, None, SendUnconfirmed, "ODD_STATUS"),
    (301, None, SendUnconfirmed, "ODD_STATUS"),
]  # fmt: skip


@lru_cache(maxsize=4)
def _client(base_url: str) -> httpx.Client:
    """One client per address: what makes a client dear is its TLS context, not its connections."""
    return open_client(base_url, TOKEN)


class TimelinesAIContract(ChannelContract):
    dialect: str
    has_chats = True
    shows_history = True
    tells_sender = True
    has_quota = True

    def channel(
        self,
        base_url: str,
        *,
        transport: httpx.BaseTransport | None = None,
        patience: float | None = None,
    ) -> Channel:
        if transport is not None:
            token = {"Authorization": f"Bearer {TOKEN}"}
            client = httpx.Client(base_url=base_url, headers=token, transport=transport)
        elif patience is not None:
            client = open_client(base_url, TOKEN)
            client.timeout = httpx.Timeout(patience)
        else:
            client = _client(base_url)
        return TimelinesAI(client, DIALECTS[self.dialect]())

    def account_of(self, number: str) -> str:
        return f"{number[1:]}@s.whatsapp.net"

    def chat_of(self, line: dict[str, Any]) -> str:
        return str(line["chat_id"])

    def complaint(self, said: str) -> dict[str, Any]:
        return {"status": "error", "message": said, "error": said}

    @pytest.mark.parametrize(("status", "said", "kind", "code"), ERROR_TABLE)
    def test_every_row_of_the_vendors_error_table_has_one_meaning(
        self, status: int, said: dict[str, Any] | None, kind: type[SendFailed], code: str
    ):
        page = httpx.Response(status, html="<html>Sorry, you have been blocked</html>")
        answer = page if said is None else httpx.Response(status, json=said)
        failure = self.failure_of(self.answering(lambda _: answer))
        assert (type(failure), failure.code) == (kind, code)


SHOWN = {
    "uid": "u-1",
    "from_me": True,
    "message_type": "whatsapp",
    "status": "Sent",
    "sender_phone": SENDER,
    "text": "Bună ziua!",
    "has_attachment": False,
    "timestamp": "2126-01-15 12:00:00 +0200",
}


class TestPublicDialect(TimelinesAIContract):
    __test__ = True
    dialect = "public"
    sends_to = "/messages"
    looks_up_chats = True
    takes_files = True

    def address(self, sandbox: RunningSandbox) -> str:
        return sandbox.public_url

    def test_a_phone_that_is_not_listed_is_not_connected(self, sandbox: RunningSandbox):
        sandbox.set_accounts(**{SENDER: "active"})
        (found,) = (
            self.over(sandbox).connections([self.line(OTHER_SENDER, "two")], turn=at_once).values()
        )
        assert (found.connected, found.detail) == (False, "not listed")

    @pytest.mark.parametrize(
        ("account", "connected"),
        [
            ({"id": "40790000000@s.whatsapp.net", "phone": None, "status": "active"}, True),
            ({"id": "another", "phone": SENDER, "status": "Active"}, True),
            ({"id": "another", "phone": SENDER, "status": "disconnected"}, False),
            ({"id": "another", "phone": OTHER_SENDER, "status": "active"}, False),
        ],
    )
    def test_a_phone_is_found_by_its_id_or_its_number(
        self, account: dict[str, Any], connected: bool
    ):
        body = {"status": "ok", "data": {"whatsapp_accounts": [account]}}
        channel = self.answering(lambda _: httpx.Response(200, json=body))
        line = Line("one", SENDER, "40790000000@s.whatsapp.net")
        assert channel.connections([line], turn=at_once)["one"].connected is connected

    @pytest.mark.parametrize(
        ("shown", "told"),
        [
            (SENDER, SENDER),
            (SENDER[1:], SENDER),  # a missing plus is no other phone
            ("", None),
            (None, None),
            ("hidden", None),
        ],
    )
    def test_a_sender_that_is_not_shown_is_not_a_wrong_one(
        self, shown: str | None, told: str | None
    ):
        body = {"status": "ok", "data": {"sender_phone": shown}}
        channel = self.answering(lambda _: httpx.Response(200, json=body))
        assert channel.sender_of(self.message(), Receipt("u-1"), turn=at_once) == told

    def test_a_long_history_is_read_to_its_last_page(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        oldest = self.sent(channel)
        (line,) = sandbox.accepted()
        for n in range(55):  # a page has 50, newest first
            sandbox.client.post(
                f"/integrations/api/chats/{line['chat_id']}/messages", json={"text": f"Nr. {n}"}
            ).raise_for_status()
        assert ids_of(channel.sightings(oldest, turn=at_once)) == [line["message_uid"]]

    def test_a_history_without_an_end_is_unreadable_and_not_cut_short(self):
        page = {"status": "ok", "data": {"has_more_pages": True, "messages": []}}
        asked: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            return httpx.Response(200, json=page)

        with pytest.raises(ProviderUnreadable, match="pages"):
            self.answering(answer).sightings(self.message(chat_id="1000001"), turn=at_once)
        assert len(asked) == MOST_PAGES

    @pytest.mark.parametrize(
        ("change", "found"),
        [
            ({}, 1),
            ({"status": "Failed"}, 0),  # it never went out
            ({"status": "failed"}, 0),
            ({"from_me": False}, 0),
            ({"message_type": "note"}, 0),
            ({"text": None}, 0),
            ({"has_attachment": True}, 0),  # a picture with the same words
            ({"sender_phone": OTHER_SENDER}, 0),  # the vendor used another phone
            ({"text": f"  {'Bună ziua!'}\n"}, 1),  # trimmed on the way
        ],
    )
    def test_only_a_living_message_of_this_phone_counts(self, change: dict[str, Any], found: int):
        assert len(self._sightings(SHOWN | change)) == found

    @pytest.mark.parametrize(
        "odd",
        [
            None,
            {},
            SHOWN | {"text": 5},
            SHOWN | {"timestamp": "soon"},
            SHOWN | {"timestamp": "0001-01-01 00:00:00 +0200"},  # before there were years
        ],
    )
    def test_an_odd_row_hides_no_message_and_makes_none_absent(self, odd: Any):
        assert ids_of(self._sightings(odd, SHOWN)) == ["u-1"]
        with pytest.raises(ProviderUnreadable):
            self._sightings(odd, SHOWN | {"text": "Altceva"})

    def _sightings(self, *shown: Any) -> tuple[Sighting, ...]:
        data = {"has_more_pages": False, "messages": list(shown)}
        channel = self.answering(lambda _: httpx.Response(200, json={"status": "ok", "data": data}))
        return channel.sightings(self.message(chat_id="1000001", body="Bună ziua!"), turn=at_once)


class TestV1Dialect(TimelinesAIContract):
    __test__ = True
    dialect = "v1"
    sends_to = "/messages/send"
    asks_each_phone = True

    def address(self, sandbox: RunningSandbox) -> str:
        return sandbox.v1_url

    def test_a_chat_cannot_be_looked_up(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        channel.send(self.message())
        assert channel.find_chat(self.message(), turn=at_once) is None
        assert channel.sightings(self.message(), turn=at_once) == ()

    def test_a_sender_is_told_only_by_a_chat_that_is_known(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        receipt = channel.send(self.message())
        nameless = Receipt(receipt.external_id)
        assert channel.sender_of(self.message(), nameless, turn=at_once) is None
        assert (
            channel.sender_of(self.message(chat_id=receipt.chat_id), nameless, turn=at_once)
            == SENDER
        )

    @pytest.mark.parametrize("said", [{}, {"connected": None}, {"connected": "yes"}])
    def test_a_phone_of_which_nothing_is_said_is_unknown(self, said: dict[str, Any]):
        def answer(request: httpx.Request) -> httpx.Response:
            known = SENDER[1:] in request.url.path
            return httpx.Response(200, json={"connected": False} if known else said)

        lines = [self.line(SENDER, "one"), self.line(OTHER_SENDER, "two")]
        found = self.answering(answer).connections(lines, turn=at_once)
        assert (found["one"].connected, found["two"].connected) == (False, None)

    def test_a_file_goes_by_its_address_into_a_known_chat(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        message = self.file_message(chat_id=self.opened(channel))
        channel.send(message, attachment=channel.upload(message, CONTENT))
        assert sandbox.accepted()[-1]["attachment"]["source_url"] == FILE_ADDRESS

        with pytest.raises(SendRejected) as refused:
            channel.send(self.file_message(to=LEAD), attachment=FILE_ADDRESS)
        assert refused.value.code == "MEDIA_NEEDS_CHAT"
        assert len(sandbox.accepted()) == 2


def test_a_client_takes_no_proxy_from_its_surroundings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    client = open_client("http://127.0.0.1:1", TOKEN)
    assert not client.trust_env
    assert not client.follow_redirects
    assert TOKEN not in repr(client.headers)
    client.close()
