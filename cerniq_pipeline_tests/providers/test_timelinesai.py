"""TimelinesAI keeps the contract of a channel in both dialects, and what is its own beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import httpx
import pytest

from cerniq_pipeline.domain.outbox import Channel, Receipt
from cerniq_pipeline.errors import PhoneUnusable, ProviderUnreadable, SendRejected
from cerniq_pipeline.providers.timelinesai.channel import (
    DIALECTS,
    MOST_PAGES,
    TimelinesAI,
    meaning,
    open_client,
)
from cerniq_pipeline_tests.providers.channel_contract import (
    LEAD,
    ODD_BODIES,
    OTHER_LEAD,
    OTHER_SENDER,
    READ_FAULTS,
    SENDER,
    TOKEN,
    ChannelContract,
    Fault,
    ids_of,
    shows_no_secret,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox


@lru_cache(maxsize=4)
def _client(base_url: str) -> httpx.Client:
    """One client per address: what makes a client dear is its TLS context, not its connections."""
    return open_client(base_url, TOKEN)


class TimelinesAIContract(ChannelContract):
    dialect: str

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


class TestPublicDialect(TimelinesAIContract):
    __test__ = True
    dialect = "public"

    def address(self, sandbox: RunningSandbox) -> str:
        return sandbox.public_url

    def known_chat(self, channel: Channel, receipt: Receipt) -> str | None:
        """An acceptance names no chat; the history of an unknown chat is found by its ends."""
        return None

    def test_a_follow_up_goes_into_the_chat_that_exists(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        first = self.sent(channel)
        chat_id = channel.find_chat(self.message())
        channel.send(replace(first, kind="followup", body="Revin.", chat_id=chat_id))
        opened, followed = sandbox.accepted()
        assert (opened["kind"], followed["kind"]) == ("message", "chat_message")
        assert str(followed["chat_id"]) == str(opened["chat_id"]) == chat_id

    def test_a_chat_is_found_by_both_of_its_ends(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        for sender, to in [(SENDER, LEAD), (SENDER, OTHER_LEAD), (OTHER_SENDER, LEAD)]:
            channel.send(self.message(sender=sender, to=to))
        chats = {
            (line["sender"], line["recipient"]): str(line["chat_id"]) for line in sandbox.accepted()
        }
        assert len(set(chats.values())) == 3
        for (sender, to), chat_id in chats.items():
            assert channel.find_chat(self.message(sender=sender, to=to)) == chat_id
        assert channel.find_chat(self.message(sender=OTHER_SENDER, to=OTHER_LEAD)) is None

    def test_no_chat_is_no_sighting(self, sandbox: RunningSandbox):
        assert self.over(sandbox).sightings(self.message()) == ()

    @pytest.mark.parametrize("fault", READ_FAULTS, ids=lambda fault: f"{fault[0]} {fault[1]}")
    def test_a_failed_read_is_never_a_missing_chat(self, sandbox: RunningSandbox, fault: Fault):
        channel = self.over(sandbox)
        message = self.sent(channel)
        sandbox.fault(fault[0], operation="chats", **fault[1])
        with pytest.raises(ProviderUnreadable) as unread:
            channel.find_chat(self.message())
        shows_no_secret(unread.value)
        with pytest.raises(ProviderUnreadable):
            channel.sightings(message)

    @pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
    def test_chats_in_an_unknown_form_are_unreadable(self, body: bytes):
        channel = self.answering(lambda _: httpx.Response(200, content=body))
        with pytest.raises(ProviderUnreadable):
            channel.find_chat(self.message())

    def test_a_long_history_is_read_to_its_last_page(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        oldest = self.sent(channel)
        (line,) = sandbox.accepted()
        for n in range(55):  # a page has 50, newest first
            sandbox.client.post(
                f"/integrations/api/chats/{line['chat_id']}/messages", json={"text": f"Nr. {n}"}
            ).raise_for_status()
        assert ids_of(channel.sightings(oldest)) == [line["message_uid"]]

    def test_a_history_without_an_end_is_unreadable_and_not_cut_short(self):
        page = {"status": "ok", "data": {"has_more_pages": True, "messages": []}}
        asked: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            return httpx.Response(200, json=page)

        with pytest.raises(ProviderUnreadable, match="pages"):
            self.answering(answer).sightings(self.message(chat_id="1000001"))
        assert len(asked) == MOST_PAGES

    @pytest.mark.parametrize(
        ("change", "found"),
        [
            ({}, 1),
            ({"status": "Failed"}, 0),  # it never went out
            ({"status": "failed"}, 0),
            ({"from_me": False}, 0),
            ({"message_type": "note"}, 0),
            ({"text": None}, 0),  # a picture
            ({"sender_phone": OTHER_SENDER}, 0),  # the vendor used another phone
            ({"text": f"  {'Bună ziua!'}\n"}, 1),  # trimmed on the way
        ],
    )
    def test_only_a_living_message_of_this_phone_counts(self, change: dict[str, Any], found: int):
        entry = {
            "uid": "u-1",
            "from_me": True,
            "message_type": "whatsapp",
            "status": "Sent",
            "sender_phone": SENDER,
            "text": "Bună ziua!",
            "timestamp": "2126-01-15 12:00:00 +0200",
        }
        data = {"has_more_pages": False, "messages": [entry | change]}
        channel = self.answering(lambda _: httpx.Response(200, json={"status": "ok", "data": data}))
        message = self.message(chat_id="1000001", body="Bună ziua!")
        assert len(channel.sightings(message)) == found


class TestV1Dialect(TimelinesAIContract):
    __test__ = True
    dialect = "v1"

    def address(self, sandbox: RunningSandbox) -> str:
        return sandbox.v1_url

    def known_chat(self, channel: Channel, receipt: Receipt) -> str | None:
        """An acceptance names its chat."""
        assert receipt.chat_id is not None
        return receipt.chat_id

    def test_a_chat_cannot_be_looked_up(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        message = replace(self.sent(channel), chat_id=None)
        assert channel.find_chat(self.message()) is None
        assert channel.sightings(message) == ()


@pytest.mark.parametrize(
    ("status", "said", "kind", "code"),
    [
        (409, {"error_code": "account_inactive"}, PhoneUnusable, "PHONE_OFFLINE"),
        (400, {"message": "WhatsApp account not found"}, PhoneUnusable, "PHONE_OFFLINE"),
        (400, {"message": "Account disconnected"}, PhoneUnusable, "PHONE_OFFLINE"),
        (400, {"message": "Account was banned and disconnected"}, PhoneUnusable, "PHONE_BANNED"),
        (404, {"error_code": "not_found", "message": "chat_id 7 not found"}, SendRejected,
         "REFUSED"),
        (409, {"error_code": "template_paused"}, SendRejected, "REFUSED"),
        (413, {}, SendRejected, "REFUSED"),
    ],
)  # fmt: skip
def test_the_vendors_words_are_understood(
    status: int, said: dict[str, str], kind: type[Exception], code: str
):
    request = httpx.Request("POST", "https://vendor.test/messages")
    failure = meaning(httpx.Response(status, json=said, request=request))
    assert (type(failure), failure.code) == (kind, code)


def test_a_client_takes_no_proxy_from_its_surroundings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    client = open_client("http://127.0.0.1:1", TOKEN)
    assert not client.trust_env
    assert not client.follow_redirects
    assert TOKEN not in repr(client.headers)
    client.close()
