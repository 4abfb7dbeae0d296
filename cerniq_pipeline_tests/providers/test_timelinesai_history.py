"""TimelinesAI's history: every recent chat, and both sides of it to the last page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import httpx
import pytest

from cerniq_pipeline.domain.events import Contact
from cerniq_pipeline.domain.history import History, HistoryMessage, RecentChat
from cerniq_pipeline.domain.reads import What
from cerniq_pipeline.errors import ProviderUnreadable
from cerniq_pipeline.providers.timelinesai.channel import DIALECTS, TimelinesAI, open_client
from cerniq_pipeline.providers.timelinesai.history import HISTORIES
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline_tests.builders import a_message
from cerniq_pipeline_tests.providers.channel_contract import (
    BODY,
    LEAD,
    ODD_BODIES,
    OTHER_LEAD,
    OTHER_SENDER,
    READ_FAULTS,
    SENDER,
    TOKEN,
    Fault,
    shows_no_secret,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
CHAT = RecentChat("1000001", SENDER, LEAD, LONG_AGO)
HOUR = timedelta(hours=1)


class Turns:
    """Counts the requests that were announced."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, what: What) -> None:
        self.taken += 1


@pytest.fixture
def client(sandbox: RunningSandbox) -> Iterator[httpx.Client]:
    with open_client(sandbox.public_url, TOKEN) as opened:
        yield opened


@pytest.fixture
def history(client: httpx.Client) -> History:
    return HISTORIES["public"](client)


def made_up(answer: Callable[[httpx.Request], httpx.Response], dialect: str = "public") -> History:
    transport = httpx.MockTransport(answer)
    return HISTORIES[dialect](httpx.Client(base_url="https://vendor.test", transport=transport))


def pages_of(**fields: Any) -> History:
    body = {"status": "ok", "data": {"has_more_pages": False, **fields}}
    return made_up(lambda _: httpx.Response(200, json=body))


def recent(history: History, since: datetime = LONG_AGO) -> list[RecentChat]:
    return listed(history, since=since, turn=Turns())


def listed(history: History, *, since: datetime, turn: Turns) -> list[RecentChat]:
    """Every chat of every page."""
    chats: list[RecentChat] = []
    for number in count(1):
        page = history.recent_chats(since=since, turn=turn, page=number)
        chats += page.chats
        if page.is_last:
            break
    return chats


def said(history: History, chat: RecentChat, since: datetime | None = None) -> list[HistoryMessage]:
    told = list(history.messages(chat, since=since, turn=Turns()))
    assert None not in told
    return [one for one in told if one is not None]


def send(client: httpx.Client, to: str = LEAD, text: str = BODY) -> str:
    channel = TimelinesAI(client, DIALECTS["public"]())
    return channel.send(a_message(to=to, body=text)).external_id


# ── chats ─────────────────────────────────────────────────────────────────────────────────────


def test_chats_come_newest_first_with_both_ends(sandbox: RunningSandbox, history: History):
    now = datetime.now(UTC)
    older = sandbox.inbound(SENDER, LEAD, "Da.", at=now - HOUR)
    newer = sandbox.inbound(OTHER_SENDER, OTHER_LEAD, "Nu.", at=now)
    assert [(chat.chat_id, chat.account, chat.contact) for chat in recent(history)] == [
        (str(newer["chat_id"]), OTHER_SENDER, OTHER_LEAD),
        (str(older["chat_id"]), SENDER, LEAD),
    ]
    assert recent(history)[1].last_at == (now - HOUR).replace(microsecond=0)


def test_only_chats_since_then_are_recent(sandbox: RunningSandbox, history: History):
    now = datetime.now(UTC)
    sandbox.inbound(SENDER, LEAD, "Demult.", at=now - HOUR)
    sandbox.inbound(SENDER, OTHER_LEAD, "Acum.", at=now)
    assert [chat.contact for chat in recent(history, now - HOUR / 2)] == [OTHER_LEAD]
    # The vendor has whole seconds; a message in the same second is not lost.
    assert [chat.contact for chat in recent(history, now)] == [OTHER_LEAD]


def test_the_list_is_read_up_to_the_first_page_with_one_that_is_too_old(
    sandbox: RunningSandbox, history: History
):
    now = datetime.now(UTC)
    for n in range(110):  # a page has 50
        at = now if n < 20 else now - HOUR
        sandbox.inbound(SENDER, f"+40721{n:06d}", "Da.", at=at)
    turns = Turns()
    found = listed(history, since=now - HOUR / 2, turn=turns)
    assert (len(found), turns.taken) == (20, 1)
    turns = Turns()
    assert len(listed(history, since=LONG_AGO, turn=turns)) == 110
    assert turns.taken == 3


def a_chat(**changes: Any) -> dict[str, Any]:
    return {
        "id": 7,
        "whatsapp_account_id": f"{SENDER[1:]}@s.whatsapp.net",
        "phone": LEAD,
        "is_group": False,
        "last_message_timestamp": "2026-01-15 12:00:00 +0200",
    } | changes


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 1),
        ({"is_group": True}, 0),
        ({"phone": None}, 0),  # it does not say with whom
        ({"phone": LEAD[1:]}, 1),
        ({"last_message_timestamp": None}, 0),  # nobody has said anything
        ({"last_message_timestamp": "2019-01-15 12:00:00 +0200"}, 0),
    ],
)
def test_a_chat_is_with_a_person_who_has_a_number(change: dict[str, Any], count: int):
    found = recent(pages_of(chats=[a_chat(**change)]))
    assert [chat.contact for chat in found] == [LEAD] * count


HIDDEN = "123456789012345@lid"


@pytest.mark.parametrize("chat", [{"phone": HIDDEN}, {"phone": None, "jid": HIDDEN}])
def test_the_id_of_a_person_who_hides_the_number_is_never_taken_for_one(chat: dict[str, Any]):
    (shown,) = recent(pages_of(chats=[a_chat(**chat)]))
    assert shown.contact == HIDDEN
    theirs = a_told(sender_phone=HIDDEN, sender_name="Ana", recipient_phone=SENDER)
    (told,) = said(pages_of(messages=[theirs]), shown)
    assert (told.account, told.contact) == (SENDER, HIDDEN)
    assert told.event.people == (HIDDEN,)
    (read,) = TimelinesAIWebhooks(("t",)).read(told.event.body, received_at=LONG_AGO)
    assert read.contact == Contact(user_id=HIDDEN, name="Ana")


def test_a_chat_that_moves_while_we_read_is_told_once():
    assert len(recent(pages_of(chats=[a_chat(), a_chat()]))) == 1


# ── messages ──────────────────────────────────────────────────────────────────────────────────


def test_both_sides_of_a_chat_are_told(
    sandbox: RunningSandbox, client: httpx.Client, history: History
):
    ours = send(client)
    theirs = sandbox.inbound(SENDER, LEAD, "Da, vreau.")
    typed = sandbox.inbound(SENDER, LEAD, "Vă sun eu.", by_hand=True)
    (chat,) = recent(history)

    told = {one.external_id: one for one in said(history, chat)}

    assert [*told] == [typed["message_uid"], theirs["message_uid"], ours]
    assert {(one.account, one.contact, one.chat_id) for one in told.values()} == {
        (SENDER, LEAD, chat.chat_id)
    }
    api, reply, by_hand = told[ours], told[theirs["message_uid"]], told[typed["message_uid"]]
    assert (api.from_us, api.by_api, api.text, api.status) == (True, True, BODY, "sending")
    assert (reply.from_us, reply.by_api, reply.text) == (False, False, "Da, vreau.")
    assert (by_hand.from_us, by_hand.by_api, by_hand.text) == (True, False, "Vă sun eu.")
    at = datetime.fromisoformat(theirs["message_at"])
    assert reply.at == at.astimezone(UTC).replace(microsecond=0)


def test_a_file_is_told_with_its_name(sandbox: RunningSandbox, history: History):
    sandbox.inbound(SENDER, LEAD, kind="image")
    (chat,) = recent(history)
    (told,) = said(history, chat)
    assert (told.has_media, told.text) == (True, "")
    (file,) = json.loads(told.event.body)["message"]["attachments"]
    assert file["filename"]
    assert file["temporary_download_url"].startswith("https://")


def test_a_long_chat_is_told_to_its_last_page(sandbox: RunningSandbox, history: History):
    now = datetime.now(UTC)
    heard = [
        sandbox.inbound(SENDER, LEAD, f"Nr. {n}", at=now - n * timedelta(minutes=1))
        for n in range(120)  # a page has 50
    ]
    (chat,) = recent(history)
    turns = Turns()
    told = list(history.messages(chat, since=None, turn=turns))
    assert [one and one.external_id for one in told] == [line["message_uid"] for line in heard]
    assert turns.taken == 3
    young = said(history, chat, now - timedelta(minutes=9))
    assert [one.text for one in young] == [f"Nr. {n}" for n in range(10)]


def a_told(**changes: Any) -> dict[str, Any]:
    return {
        "uid": "u-1",
        "from_me": False,
        "message_type": "whatsapp",
        "status": "Read",
        "sender_phone": LEAD,
        "sender_name": "Ana Pop",
        "recipient_phone": SENDER,
        "recipient_name": "Vânzări",
        "text": "Bună!",
        "origin": "WhatsApp",
        "has_attachment": False,
        "timestamp": "2026-01-15 12:00:00 +0200",
        "received_timestamp": "2026-01-15 12:00:01 +0200",
    } | changes


@pytest.mark.parametrize("kind", ["whatsapp_call", "note", "email", "summary"])
def test_only_whatsapp_messages_are_told(kind: str):
    told = said(pages_of(messages=[a_told(message_type=kind), a_told(uid="u-2")]), CHAT)
    assert [one.external_id for one in told] == ["u-2"]


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("Sending", "sending"),
        ("pending", "sending"),
        ("queued", "sending"),
        ("Sent", "sent"),
        ("DELIVERED", "delivered"),
        ("read", "read"),
        ("Failed", "failed"),
        ("Something new", "sent"),
    ],
)
def test_the_words_of_a_status_become_ours(word: str, status: str):
    (told,) = said(pages_of(messages=[a_told(status=word)]), CHAT)
    assert told.status == status


def test_a_message_is_also_told_as_the_webhook_would_have():
    (told,) = said(pages_of(messages=[a_told()]), CHAT)
    event = told.event
    assert (event.provider, event.event_type) == ("timelinesai", "message:received:new")
    assert event.event_key == "message:received:new:u-1"
    assert (event.account, event.contact) == (SENDER, LEAD)
    assert json.loads(event.body) == {
        "event_type": "message:received:new",
        "chat": {
            "full_name": "Ana Pop",
            "chat_id": 1000001,
            "is_group": False,
            "phone": LEAD,
        },
        "whatsapp_account": {"full_name": "Vânzări", "phone": SENDER},
        "message": {
            "text": "Bună!",
            "direction": "received",
            "origin": "WhatsApp",
            "timestamp": "2026-01-15 12:00:00 +0200",
            "received_timestamp": "2026-01-15 12:00:01 +0200",
            "message_uid": "u-1",
            "reply_to_uid": None,
            "sender": {"full_name": "Ana Pop", "phone": LEAD},
            "recipient": {"full_name": "Vânzări", "phone": SENDER},
            "attachments": [],
        },
    }


def test_a_message_of_ours_is_told_as_sent():
    ours = a_told(from_me=True, sender_phone=SENDER, recipient_phone=LEAD)
    (told,) = said(pages_of(messages=[ours]), CHAT)
    body = json.loads(told.event.body)
    assert told.event.event_key == "message:sent:new:u-1"
    assert (body["event_type"], body["message"]["direction"]) == ("message:sent:new", "sent")
    assert body["whatsapp_account"]["phone"] == SENDER
    assert body["chat"]["phone"] == LEAD


# ── what cannot be read ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", READ_FAULTS, ids=lambda fault: f"{fault[0]} {fault[1]}")
def test_a_failed_read_is_never_silence(sandbox: RunningSandbox, history: History, fault: Fault):
    sandbox.inbound(SENDER, LEAD, "Da.")
    (chat,) = recent(history)
    for operation, read in [
        ("chats", lambda: recent(history)),
        ("history", lambda: said(history, chat)),
    ]:
        sandbox.fault(fault[0], operation=operation, **fault[1])
        with pytest.raises(ProviderUnreadable) as unread:
            read()
        shows_no_secret(unread.value)


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
def test_an_answer_in_an_unknown_form_is_unreadable(body: bytes):
    history = made_up(lambda _: httpx.Response(200, content=body))
    with pytest.raises(ProviderUnreadable):
        recent(history)
    with pytest.raises(ProviderUnreadable):
        said(history, CHAT)


def test_a_failure_on_a_later_page_keeps_what_was_told_and_says_so():
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.params["page"] == "2":
            return httpx.Response(500)
        page = {"has_more_pages": True, "messages": [a_told()]}
        return httpx.Response(200, json={"status": "ok", "data": page})

    told = made_up(answer).messages(CHAT, since=None, turn=Turns())
    first = next(iter(told))
    assert first is not None
    assert first.external_id == "u-1"
    with pytest.raises(ProviderUnreadable):
        next(iter(told))


# ── the other dialect ─────────────────────────────────────────────────────────────────────────


def test_v1_tells_the_messages_of_a_known_chat(sandbox: RunningSandbox, client: httpx.Client):
    ours = send(client)
    reply = sandbox.inbound(SENDER, LEAD, "Da.")
    chat = RecentChat(str(reply["chat_id"]), SENDER, LEAD, LONG_AGO)
    turns = Turns()
    with open_client(sandbox.v1_url, TOKEN) as v1:
        told = list(HISTORIES["v1"](v1).messages(chat, since=None, turn=turns))
        later = HISTORIES["v1"](v1).messages(chat, since=datetime.now(UTC) + HOUR, turn=turns)
        assert list(later) == []
    assert [one and (one.external_id, one.from_us, one.by_api, one.text) for one in told] == [
        (reply["message_uid"], False, False, "Da."),
        (ours, True, True, BODY),
    ]
    assert told[0] is not None
    assert told[0].event.event_key == f"message:received:new:{reply['message_uid']}"
    assert turns.taken == 2


def test_v1_cannot_list_chats():
    with pytest.raises(ProviderUnreadable, match="cannot list chats"):
        recent(made_up(lambda _: httpx.Response(200, json={}), dialect="v1"))


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
def test_v1_in_an_unknown_form_is_unreadable(body: bytes):
    with pytest.raises(ProviderUnreadable):
        said(made_up(lambda _: httpx.Response(200, content=body), dialect="v1"), CHAT)
