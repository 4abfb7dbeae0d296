"""What every channel owes: one call, one of the known outcomes, over a real connection.

A dialect says how to build its adapter and what an odd "yes" looks like; the rest is here. Most
faults are the sandbox's own and travel over HTTP; only bodies that it does not offer are made up.
"""

from __future__ import annotations

import socket
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from cerniq_pipeline.domain.outbox import Channel, OutboxMessage, Receipt, Sighting
from cerniq_pipeline.errors import (
    PhoneUnusable,
    ProviderUnreadable,
    SendDeferred,
    SendFailed,
    SendRejected,
    SendUnconfirmed,
)
from cerniq_pipeline_tests.builders import a_message
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

TOKEN = "a-token-that-nobody-may-see"
BODY = "Bună ziua, Firma Unu! Un text pe care nu îl vede nimeni."
SENDER, OTHER_SENDER = "+40790000000", "+40790000001"
LEAD, OTHER_LEAD = "+40721000000", "+40721000001"

Handler = Callable[[httpx.Request], httpx.Response]
Fault = tuple[str, dict[str, Any]]

REFUSALS: list[tuple[str, Fault, type[SendFailed], str]] = [
    ("400", ("html_error", {"status": 400}), SendRejected, "REFUSED"),
    ("404", ("html_error", {"status": 404}), SendRejected, "REFUSED"),
    ("422", ("html_error", {"status": 422}), SendRejected, "REFUSED"),
    ("invalid number", ("invalid_number", {}), SendRejected, "INVALID_RECIPIENT_NUMBER"),
    ("401", ("unauthorized", {}), PhoneUnusable, "PHONE_AUTH_ERROR"),
    ("403", ("forbidden", {}), PhoneUnusable, "PHONE_AUTH_ERROR"),
    ("banned", ("banned", {}), PhoneUnusable, "PHONE_BANNED"),
    ("blocked", ("banned", {"status": 403, "message": "Number BLOCKED by WhatsApp"}),
     PhoneUnusable, "PHONE_BANNED"),
    ("429", ("rate_limited", {}), SendDeferred, "RATE_LIMITED"),
    ("429 in the envelope", ("rate_limited", {"shape": "envelope"}), SendDeferred, "RATE_LIMITED"),
    ("429 page", ("html_error", {"status": 429}), SendDeferred, "RATE_LIMITED"),
]  # fmt: skip

DOUBTS: list[tuple[str, Fault, int]] = [
    # (name, fault, messages that went out all the same)
    ("500", ("server_error", {"status": 500}), 0),
    ("500 after accepting", ("server_error", {"status": 500, "accepted": True}), 1),
    ("502", ("server_error", {"status": 502}), 0),
    ("503", ("server_error", {"status": 503}), 0),
    ("504 after accepting", ("server_error", {"status": 504, "accepted": True}), 1),
    ("502 page", ("html_error", {"status": 502}), 0),
    ("502 page after accepting", ("html_error", {"status": 502, "accepted": True}), 1),
    ("408", ("html_error", {"status": 408}), 0),
    ("425", ("html_error", {"status": 425}), 0),
    ("301", ("redirect", {"status": 301}), 0),
    ("302", ("redirect", {"status": 302}), 0),
    ("error in a 200", ("error_in_ok", {}), 0),
    ("error in a 200 after accepting", ("error_in_ok", {"accepted": True}), 1),
    ("cut before accepting", ("cut_before_accept", {"reset": False}), 0),
    ("reset before accepting", ("cut_before_accept", {}), 0),
    ("cut after accepting", ("accept_then_cut", {}), 1),
    ("reset after accepting", ("accept_then_cut", {"reset": True}), 1),
    ("cut after the headers", ("accept_then_cut_after_headers", {}), 1),
    ("half of the JSON", ("accept_then_truncate", {}), 1),
    ("one byte", ("accept_then_truncate", {"at_byte": 1}), 1),
    ("half of the headers", ("accept_then_truncate", {"at_byte": 40}), 1),
]

READ_FAULTS: list[Fault] = [
    ("server_error", {"status": 500}),
    ("server_error", {"status": 503}),
    ("html_error", {"status": 502}),
    ("html_error", {"status": 404}),
    ("rate_limited", {}),
    ("unauthorized", {}),
    ("forbidden", {}),
    ("error_in_ok", {}),
    ("redirect", {"status": 302}),
    ("accept_then_cut", {}),
    ("accept_then_cut", {"reset": True}),
    ("accept_then_cut_after_headers", {}),
    ("accept_then_truncate", {}),
]

ODD_BODIES: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("null", b"null"),
    ("a number", b"7"),
    ("a list", b"[]"),
    ("an empty object", b"{}"),
    ("a page", b"<html>ok</html>"),
    ("no UTF-8", b'{"status": "ok", "data": "\xff\xfe"}'),
    ("too deep", b"[" * 200_000),
    ("data that is a text", b'{"status": "ok", "data": "yes"}'),
    ("data that is a list", b'{"status": "ok", "data": [1]}'),
    ("lists that are none", b'{"status": "ok", "data": {"has_more_pages": false, '
     b'"chats": 5, "messages": 5}, "messages": 5}'),
    ("entries that are none", b'{"status": "ok", "data": {"has_more_pages": false, '
     b'"chats": [7], "messages": [7]}, "messages": [7]}'),
    ("entries without fields", b'{"status": "ok", "data": {"has_more_pages": false, '
     b'"chats": [{}], "messages": [{"from_me": true}]}, "messages": [{"from_me": true}]}'),
]  # fmt: skip


class ChannelContract:
    """Say how to build the adapter; inherit the proofs."""

    __test__ = False

    def address(self, sandbox: RunningSandbox) -> str:
        """The base address of this dialect at the sandbox."""
        raise NotImplementedError

    def channel(
        self,
        base_url: str,
        *,
        transport: httpx.BaseTransport | None = None,
        patience: float | None = None,
    ) -> Channel:
        """The adapter with `TOKEN`: over a real connection, or over a made-up transport."""
        raise NotImplementedError

    def known_chat(self, channel: Channel, receipt: Receipt) -> str | None:
        """The chat of a message that was just accepted, as this dialect lets one know it."""
        raise NotImplementedError

    # ── helpers ───────────────────────────────────────────────────────────────────────────────

    def over(self, sandbox: RunningSandbox) -> Channel:
        return self.channel(self.address(sandbox))

    def answering(self, handler: Handler) -> Channel:
        return self.channel("https://vendor.test/api", transport=httpx.MockTransport(handler))

    def message(self, **changes: object) -> OutboxMessage:
        begun = datetime.now(UTC) - timedelta(seconds=1)  # the sandbox lives in real time
        return a_message(
            **({"body": BODY, "sender": SENDER, "to": LEAD, "begun_at": begun} | changes)
        )

    def failure_of(self, channel: Channel, **changes: object) -> SendFailed:
        with pytest.raises(SendFailed) as failed:
            channel.send(self.message(**changes))
        shows_no_secret(failed.value)
        return failed.value

    def sent(self, channel: Channel, **changes: object) -> OutboxMessage:
        """Send a message that is accepted; returns it with its chat."""
        message = self.message(**changes)
        receipt = channel.send(message)
        return replace(message, chat_id=message.chat_id or self.known_chat(channel, receipt))

    # ── a yes ─────────────────────────────────────────────────────────────────────────────────

    def test_the_vendors_id_comes_back(self, sandbox: RunningSandbox):
        receipt = self.over(sandbox).send(self.message())
        (line,) = sandbox.accepted()
        assert receipt.external_id == line["message_uid"]
        assert receipt.chat_id in (None, str(line["chat_id"]))
        assert (line["sender"], line["asked_sender"]) == (SENDER, SENDER)
        assert (line["recipient"], line["text"]) == (LEAD, BODY)

    def test_a_follow_up_goes_into_the_chat_that_exists(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        first = self.sent(channel)
        receipt = channel.send(replace(first, kind="followup", body="Revin."))
        opened, followed = sandbox.accepted()
        assert (opened["kind"], followed["kind"]) == ("message", "chat_message")
        assert followed["chat_id"] == opened["chat_id"]
        assert followed["sender"] == SENDER
        assert receipt.external_id == followed["message_uid"]

    @pytest.mark.parametrize(
        "body", ["ăâîșț ȘȚ", "două\nrânduri", '"ghilimele" \\ {acolade}', "👍🏽"]
    )
    def test_a_text_arrives_letter_for_letter(self, sandbox: RunningSandbox, body: str):
        self.over(sandbox).send(self.message(body=body))
        assert [line["text"] for line in sandbox.accepted()] == [body]

    def test_every_send_is_a_connection_of_its_own(self):
        """A kept connection that has just died would make doubtful what never left."""
        busy = b"HTTP/1.1 429 Busy\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"
        taken: list[socket.socket] = []

        def refuse_twice() -> None:
            for _ in range(2):
                taken.append(server.accept()[0])
                taken[-1].recv(65_536)
                taken[-1].sendall(busy)

        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(5)
            refusing = threading.Thread(target=refuse_twice)
            refusing.start()
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            channel = self.channel(url, patience=2)
            failures = [self.failure_of(channel) for _ in range(2)]
            refusing.join()
        for connection in taken:
            connection.close()
        assert [type(failure) for failure in failures] == [SendDeferred, SendDeferred]

    # ── a no ──────────────────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize(
        ("fault", "meaning", "code"),
        [pytest.param(*case, id=name) for name, *case in REFUSALS],
    )
    def test_every_refusal_has_one_meaning(
        self, sandbox: RunningSandbox, fault: Fault, meaning: type[SendFailed], code: str
    ):
        sandbox.fault(fault[0], **fault[1])
        failure = self.failure_of(self.over(sandbox))
        assert (type(failure), failure.code) == (meaning, code)
        assert sandbox.accepted() == []
        assert len(sandbox.journal("request")) == 1

    @pytest.mark.parametrize(
        ("fault", "status"),
        [("unauthorized", "OFFLINE"), ("forbidden", "OFFLINE"), ("banned", "BANNED")],
    )
    def test_a_phone_that_must_stop_says_how(
        self, sandbox: RunningSandbox, fault: str, status: str
    ):
        sandbox.fault(fault)
        failure = self.failure_of(self.over(sandbox))
        assert isinstance(failure, PhoneUnusable)
        assert failure.status == status

    def test_a_disconnected_phone_is_the_phones_fault_and_not_the_leads(
        self, sandbox: RunningSandbox
    ):
        sandbox.set_accounts(**{SENDER: "disconnected"})
        failure = self.failure_of(self.over(sandbox))
        assert isinstance(failure, PhoneUnusable)
        assert (failure.code, failure.status) == ("PHONE_OFFLINE", "OFFLINE")
        assert SENDER not in str(failure)
        assert sandbox.accepted() == []

    @pytest.mark.parametrize(
        ("said", "wait"),
        [
            (None, None),
            (7, timedelta(seconds=7)),
            (86_400, timedelta(hours=1)),
            (10**20, timedelta(hours=1)),
        ],
    )
    def test_the_vendors_wish_to_wait_is_heard_and_bounded(
        self, sandbox: RunningSandbox, said: int | None, wait: timedelta | None
    ):
        sandbox.fault("rate_limited", retry_after=said)
        failure = self.failure_of(self.over(sandbox))
        assert isinstance(failure, SendDeferred)
        assert failure.retry_after == wait

    @pytest.mark.parametrize("written", ["soon", "-1", "1.5", "Wed, 18 Nov 2026 10:00:00 GMT", "²"])
    def test_a_wish_to_wait_that_is_no_number_is_passed_over(self, written: str):
        answer = httpx.Response(429, headers=[(b"retry-after", written.encode())])
        failure = self.failure_of(self.answering(lambda _: answer))
        assert isinstance(failure, SendDeferred)
        assert failure.retry_after is None

    # ── no answer, or one that cannot be believed ─────────────────────────────────────────────

    @pytest.mark.parametrize(
        ("fault", "went_out"), [pytest.param(*case, id=name) for name, *case in DOUBTS]
    )
    def test_a_doubtful_answer_is_unconfirmed_and_never_repeated(
        self, sandbox: RunningSandbox, fault: Fault, went_out: int
    ):
        sandbox.fault(fault[0], **fault[1])
        failure = self.failure_of(self.over(sandbox))
        assert type(failure) is SendUnconfirmed
        assert len(sandbox.accepted()) == went_out
        assert len(sandbox.journal("request")) == 1

    @pytest.mark.parametrize("status", [200, 202])
    @pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
    def test_a_yes_without_an_id_is_unconfirmed(self, status: int, body: bytes):
        failure = self.failure_of(self.answering(lambda _: httpx.Response(status, content=body)))
        assert type(failure) is SendUnconfirmed

    def test_a_yes_that_cannot_be_unpacked_is_unconfirmed(self):
        packed = {"content-encoding": "gzip"}

        def answer(_: httpx.Request) -> httpx.Response:
            return httpx.Response(200, headers=packed, stream=httpx.ByteStream(b"not gzip"))

        assert type(self.failure_of(self.answering(answer))) is SendUnconfirmed

    def test_a_vendor_that_does_not_answer_in_time_is_unconfirmed(self, sandbox: RunningSandbox):
        sandbox.fault("late", delay_ms=5_000)
        failure = self.failure_of(self.channel(self.address(sandbox), patience=0.2))
        assert type(failure) is SendUnconfirmed
        assert len(sandbox.accepted()) == 1

    def test_a_redirect_is_not_followed(self, sandbox: RunningSandbox):
        """Followed, the second request would be accepted: the fault strikes once."""
        elsewhere = f"{self.address(sandbox)}/messages"
        sandbox.fault("redirect", status=307, location=elsewhere, times=1)
        assert type(self.failure_of(self.over(sandbox))) is SendUnconfirmed
        assert len(sandbox.journal("request")) == 1
        assert sandbox.accepted() == []

    # ── nothing left this machine ─────────────────────────────────────────────────────────────

    def test_a_refused_connection_is_deferred(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        failure = self.failure_of(self.channel(f"http://127.0.0.1:{port}"))
        assert (type(failure), failure.code) == (SendDeferred, "UNREACHABLE")

    @pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout])
    def test_an_error_before_the_first_byte_is_deferred(self, error: type[httpx.TransportError]):
        def fail(_: httpx.Request) -> httpx.Response:
            raise error(f"no route for {TOKEN}")

        assert type(self.failure_of(self.answering(fail))) is SendDeferred

    @pytest.mark.parametrize(
        "error",
        [httpx.ReadTimeout, httpx.ReadError, httpx.WriteTimeout, httpx.WriteError,
         httpx.RemoteProtocolError, httpx.CloseError, httpx.DecodingError],
    )  # fmt: skip
    def test_an_error_after_the_first_byte_is_unconfirmed(self, error: type[httpx.RequestError]):
        def fail(_: httpx.Request) -> httpx.Response:
            raise error(f"silence for {TOKEN}")

        assert type(self.failure_of(self.answering(fail))) is SendUnconfirmed

    def test_a_server_that_hangs_up_without_reading_is_unconfirmed(self):
        """The connection stood, so bytes may have been read before it broke."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            hanging_up = threading.Thread(target=lambda: server.accept()[0].close())
            hanging_up.start()
            failure = self.failure_of(self.channel(f"http://127.0.0.1:{server.getsockname()[1]}"))
            hanging_up.join()
        assert type(failure) is SendUnconfirmed

    # ── secrets ───────────────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429, 500, 200])
    def test_a_vendor_that_quotes_our_request_does_not_make_us_print_it(self, status: int):
        def quote(request: httpx.Request) -> httpx.Response:
            said = f"bad request {dict(request.headers)} from {SENDER} to {LEAD}"
            content = {"status": "error", "message": said, "error": said}
            return httpx.Response(status, json=content)

        failure = self.failure_of(self.answering(quote))
        assert LEAD not in str(failure)
        assert SENDER not in str(failure)

    # ── looking up ────────────────────────────────────────────────────────────────────────────

    def test_the_history_shows_exactly_the_message_that_was_sent(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        message = self.sent(channel)
        chat = {"chat_id": message.chat_id}
        self.sent(channel, body="Alt text, aceeași discuție.", **chat)
        self.sent(channel, sender=OTHER_SENDER, account_id=f"{OTHER_SENDER[1:]}@s.whatsapp.net")
        self.sent(channel, to=OTHER_LEAD)
        (mine,) = [line for line in sandbox.accepted() if (line["sender"], line["recipient"],
                   line["text"]) == (SENDER, LEAD, BODY)]  # fmt: skip

        (found,) = channel.sightings(message)

        assert (found.external_id, found.chat_id) == (mine["message_uid"], str(mine["chat_id"]))
        accepted_at = datetime.fromisoformat(mine["at"])
        assert abs(found.sent_at - accepted_at) <= timedelta(seconds=1)  # the vendor has seconds

    def test_a_text_that_was_never_sent_is_not_found(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        message = self.sent(channel)
        assert channel.sightings(replace(message, body="Altceva.")) == ()

    def test_an_older_message_with_the_same_text_is_not_this_one(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        message = self.sent(channel)
        later = replace(message, begun_at=datetime.now(UTC) + timedelta(minutes=10))
        assert channel.sightings(later) == ()

    @pytest.mark.parametrize(("kind", "shown"), [("history_hidden", 0), ("history_twice", 2)])
    def test_a_history_is_told_as_it_is_shown(self, sandbox: RunningSandbox, kind: str, shown: int):
        channel = self.over(sandbox)
        message = self.sent(channel)
        sandbox.fault(kind)
        assert len(channel.sightings(message)) == shown

    @pytest.mark.parametrize("fault", READ_FAULTS, ids=lambda fault: f"{fault[0]} {fault[1]}")
    def test_a_failed_read_is_never_an_empty_history(self, sandbox: RunningSandbox, fault: Fault):
        channel = self.over(sandbox)
        message = self.sent(channel)
        sandbox.fault(fault[0], operation="history", **fault[1])
        with pytest.raises(ProviderUnreadable) as unread:
            channel.sightings(message)
        shows_no_secret(unread.value)

    @pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
    def test_a_history_in_an_unknown_form_is_unreadable(self, body: bytes):
        channel = self.answering(lambda _: httpx.Response(200, content=body))
        with pytest.raises(ProviderUnreadable) as unread:
            channel.sightings(self.message(chat_id="1000001"))
        shows_no_secret(unread.value)

    def test_an_unreachable_history_is_unreadable(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with pytest.raises(ProviderUnreadable):
            self.channel(f"http://127.0.0.1:{port}").sightings(self.message(chat_id="1000001"))


def shows_no_secret(error: Exception) -> None:
    """The token and the text are in no word of an error, whoever prints it."""
    for shown in (str(error), repr(error)):
        assert TOKEN not in shown
        assert BODY not in shown
    own_lines = "".join(traceback.format_exception_only(error))
    assert TOKEN not in own_lines


def ids_of(found: tuple[Sighting, ...]) -> list[str]:
    """The vendor's ids of what was found."""
    return [one.external_id for one in found]
