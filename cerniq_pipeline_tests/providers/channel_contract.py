"""What every channel owes: one call, one of the known outcomes, over a real connection.

An adapter says how it is built, where it is reached and what it is able to; the rest is here. Most
faults are the sandbox's own and travel over HTTP; only bodies that it does not offer are made up.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from cerniq_pipeline.domain.media import Kind, MediaFile
from cerniq_pipeline.domain.outbox import Channel, Line, OutboxMessage, Receipt, Sighting
from cerniq_pipeline.domain.reads import What
from cerniq_pipeline.errors import (
    AccountSuspended,
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
    ("401", ("unauthorized", {}), AccountSuspended, "ACCOUNT_AUTH"),
    ("403", ("forbidden", {}), AccountSuspended, "ACCOUNT_AUTH"),
    ("403 page", ("html_error", {"status": 403}), SendDeferred, "RATE_LIMITED"),
    ("413 page", ("html_error", {"status": 413}), SendRejected, "FILE_TOO_LARGE"),
    ("suspended", ("suspended", {}), AccountSuspended, "ACCOUNT_SUSPENDED"),
    ("window closed", ("refuse", {"status": 409, "code": "service_window_closed",
     "message": "The service window is closed", "meta_code": 131047}),
     SendDeferred, "WINDOW_CLOSED"),
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
    ("an error with empty lists", b'{"status": "error", "message": "No.", "messages": [], '
     b'"data": {"has_more_pages": false, "chats": [], "messages": []}}'),
    ("data that is a text", b'{"status": "ok", "data": "yes"}'),
    ("data that is a list", b'{"status": "ok", "data": [1]}'),
    ("lists that are none", b'{"status": "ok", "data": {"has_more_pages": false, '
     b'"chats": 5, "messages": 5}, "messages": 5}'),
    ("entries that are none", b'{"status": "ok", "data": {"has_more_pages": false, '
     b'"chats": [7], "messages": [7]}, "messages": [7]}'),
    ("entries without fields", b'{"status": "ok", "data": {"has_more_pages": false, '
     b'"chats": [{}], "messages": [{"from_me": true}]}, "messages": [{"from_me": true}]}'),
]  # fmt: skip


UPLOAD_DOUBTS: list[Fault] = [
    ("server_error", {"status": 500}),
    ("server_error", {"status": 503, "accepted": True}),
    ("html_error", {"status": 502}),
    ("error_in_ok", {}),
    ("redirect", {"status": 302}),
    ("cut_before_accept", {}),
    ("accept_then_cut", {}),
    ("accept_then_cut_after_headers", {}),
    ("accept_then_truncate", {}),
]

FILES: list[tuple[Kind, str, str]] = [
    ("image", "poză.png", "image/png"),
    ("video", "film.mp4", "video/mp4"),
    ("document", "ofertă de preț.pdf", "application/pdf"),
]
CONTENT = bytes(range(256)) * 40 + b"\r\n--boundary--\r\n"
FILE_ADDRESS = "https://files.example.test/a.pdf"

Test = Callable[..., None]


def needs(capability: str) -> Callable[[Test], Test]:
    """Only for adapters that are able to do this."""
    return _asking(capability, able=True)


def lacks(capability: str) -> Callable[[Test], Test]:
    """Only for adapters that are not able to do this: they owe an honest nothing."""
    return _asking(capability, able=False)


def _asking(capability: str, *, able: bool) -> Callable[[Test], Test]:
    def marked(test: Test) -> Test:
        test.__dict__["asks"] = (capability, able)
        return test

    return marked


class ChannelContract:
    """Say how to build the adapter and what it is able to; inherit the proofs."""

    __test__ = False

    sends_to: str
    """The path that takes a message from `SENDER`."""
    has_chats = False
    """A chat has an id of its own, and a message can be put into it."""
    looks_up_chats = False
    """A chat can be found by its two ends."""
    shows_history = False
    """What was sent can be read again."""
    tells_sender = False
    """The phone that a message left from can be read."""
    takes_files = False
    """A file is handed over before its message; otherwise the vendor fetches it."""
    has_quota = False
    """The vendor counts what the account sends, and stops it."""
    asks_each_phone = False
    """Whether a phone is linked is asked phone by phone, so one may stay unknown."""

    def __init_subclass__(cls) -> None:
        for name, test in vars(ChannelContract).items():
            if asks := getattr(test, "asks", None):
                capability, able = asks
                setattr(cls, name, test if getattr(cls, capability) is able else None)

    def address(self, sandbox: RunningSandbox) -> str:
        """The base address of this adapter at the sandbox."""
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

    def account_of(self, number: str) -> str:
        """The vendor's own id of one of our phones."""
        raise NotImplementedError

    def chat_of(self, line: dict[str, Any]) -> str:
        """The chat of a message in the sandbox's journal, as the adapter names it."""
        raise NotImplementedError

    def complaint(self, said: str) -> dict[str, Any]:
        """The body of a refusal in which the vendor says this."""
        raise NotImplementedError

    # ── helpers ───────────────────────────────────────────────────────────────────────────────

    def over(self, sandbox: RunningSandbox) -> Channel:
        return self.channel(self.address(sandbox))

    def answering(self, handler: Handler) -> Channel:
        return self.channel("https://vendor.test/api", transport=httpx.MockTransport(handler))

    def message(self, **changes: object) -> OutboxMessage:
        begun = datetime.now(UTC) - timedelta(seconds=1)  # the sandbox lives in real time
        values = {"body": BODY, "sender": SENDER, "to": LEAD, "begun_at": begun} | changes
        return a_message(**({"account_id": self.account_of(str(values["sender"]))} | values))

    def file_message(self, kind: Kind = "document", **changes: object) -> OutboxMessage:
        """A message with a file."""
        ((filename, of_type),) = [(name, mime) for one, name, mime in FILES if one == kind]
        media = MediaFile(1, kind, filename, of_type, len(CONTENT), FILE_ADDRESS)
        return self.message(media=media, **changes)

    def line(self, number: str, phone_id: str) -> Line:
        return Line(phone_id, number, self.account_of(number))

    def failure_of(self, channel: Channel, **changes: object) -> SendFailed:
        with pytest.raises(SendFailed) as failed:
            channel.send(self.message(**changes))
        shows_no_secret(failed.value)
        return failed.value

    def upload_failure(self, channel: Channel) -> SendFailed:
        with pytest.raises(SendFailed) as failed:
            channel.upload(self.file_message(), CONTENT)
        shows_no_secret(failed.value)
        return failed.value

    def sent(self, channel: Channel, **changes: object) -> OutboxMessage:
        """Send a message that is accepted; returns it with its chat, if the answer named one."""
        message = self.message(**changes)
        receipt = channel.send(message)
        return replace(message, chat_id=message.chat_id or receipt.chat_id)

    def opened(self, channel: Channel) -> str | None:
        """Send a first message, and return the chat that it has opened."""
        first = self.sent(channel)
        return first.chat_id or channel.find_chat(first, turn=at_once)

    # ── a yes ─────────────────────────────────────────────────────────────────────────────────

    def test_the_vendors_id_comes_back(self, sandbox: RunningSandbox):
        receipt = self.over(sandbox).send(self.message())
        (line,) = sandbox.accepted()
        assert receipt.external_id == line["message_uid"]
        assert receipt.chat_id in (None, self.chat_of(line))
        assert (line["sender"], line["asked_sender"]) == (SENDER, SENDER)
        assert (line["recipient"], line["text"]) == (LEAD, BODY)

    def test_a_follow_up_goes_into_the_chat_that_exists(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        chat_id = self.opened(channel)
        receipt = channel.send(self.message(kind="followup", body="Revin.", chat_id=chat_id))
        opened, followed = sandbox.accepted()
        assert (followed["sender"], followed["recipient"]) == (SENDER, LEAD)
        assert followed["chat_id"] == opened["chat_id"]
        assert self.chat_of(followed) == chat_id
        assert receipt.external_id == followed["message_uid"]

    @needs("has_chats")
    def test_a_follow_up_names_the_chat_and_not_the_person(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        channel.send(self.message(kind="followup", chat_id=self.opened(channel)))
        assert [line["kind"] for line in sandbox.accepted()] == ["message", "chat_message"]

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

    def test_a_banned_phone_must_stop_as_banned(self, sandbox: RunningSandbox):
        sandbox.fault("banned")
        failure = self.failure_of(self.over(sandbox))
        assert isinstance(failure, PhoneUnusable)
        assert failure.status == "BANNED"

    @needs("has_quota")
    @pytest.mark.parametrize("status", [403, 429])
    def test_a_quota_that_is_used_up_stops_the_account(self, sandbox: RunningSandbox, status: int):
        sandbox.fault("quota_exceeded", status=status)
        failure = self.failure_of(self.over(sandbox))
        assert (type(failure), failure.code) == (AccountSuspended, "ACCOUNT_QUOTA")
        assert sandbox.accepted() == []

    @lacks("has_quota")
    @pytest.mark.parametrize("status", [403, 429])
    def test_a_vendor_that_sells_no_quota_only_asks_to_wait(
        self, sandbox: RunningSandbox, status: int
    ):
        sandbox.fault("quota_exceeded", status=status)
        failure = self.failure_of(self.over(sandbox))
        assert (type(failure), failure.code) == (SendDeferred, "RATE_LIMITED")
        assert sandbox.accepted() == []

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
        elsewhere = f"{self.address(sandbox)}{self.sends_to}"
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
            said = f"{BODY} from {SENDER} to {LEAD} with {dict(request.headers)}"
            return httpx.Response(status, json=self.complaint(said))

        failure = self.failure_of(self.answering(quote))
        assert LEAD not in str(failure)
        assert SENDER not in str(failure)

    # ── looking up ────────────────────────────────────────────────────────────────────────────

    @needs("shows_history")
    def test_the_history_shows_exactly_the_message_that_was_sent(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        message = self.sent(channel)
        self.sent(channel, body="Alt text, aceeași discuție.", chat_id=message.chat_id)
        self.sent(channel, sender=OTHER_SENDER)
        self.sent(channel, to=OTHER_LEAD)
        (mine,) = [line for line in sandbox.accepted() if (line["sender"], line["recipient"],
                   line["text"]) == (SENDER, LEAD, BODY)]  # fmt: skip

        (found,) = channel.sightings(message, turn=at_once)

        assert (found.external_id, found.chat_id) == (mine["message_uid"], self.chat_of(mine))
        accepted_at = datetime.fromisoformat(mine["at"])
        assert abs(found.sent_at - accepted_at) <= timedelta(seconds=1)  # the vendor has seconds

    @needs("shows_history")
    def test_a_text_that_was_never_sent_is_not_found(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        message = self.sent(channel)
        assert channel.sightings(replace(message, body="Altceva."), turn=at_once) == ()

    @needs("shows_history")
    def test_an_older_message_with_the_same_text_is_not_this_one(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        message = self.sent(channel)
        later = replace(message, begun_at=datetime.now(UTC) + timedelta(minutes=10))
        assert channel.sightings(later, turn=at_once) == ()

    @needs("shows_history")
    def test_a_file_is_found_and_not_taken_for_its_caption(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        message = self.file_message(chat_id=self.opened(channel), body="Oferta.")
        receipt = channel.send(message, attachment=channel.upload(message, CONTENT))
        assert ids_of(channel.sightings(message, turn=at_once)) == [receipt.external_id]
        assert channel.sightings(replace(message, media=None), turn=at_once) == ()

    @needs("shows_history")
    @pytest.mark.parametrize(("kind", "shown"), [("history_hidden", 0), ("history_twice", 2)])
    def test_a_history_is_told_as_it_is_shown(self, sandbox: RunningSandbox, kind: str, shown: int):
        channel = self.over(sandbox)
        chat_id = self.opened(channel)
        sandbox.fault(kind, operation="history")
        assert len(channel.sightings(self.message(chat_id=chat_id), turn=at_once)) == shown

    @needs("shows_history")
    @pytest.mark.parametrize("fault", READ_FAULTS, ids=lambda fault: f"{fault[0]} {fault[1]}")
    def test_a_failed_read_is_never_an_empty_history(self, sandbox: RunningSandbox, fault: Fault):
        channel = self.over(sandbox)
        message = self.sent(channel)
        sandbox.fault(fault[0], operation="history", **fault[1])
        with pytest.raises(ProviderUnreadable) as unread:
            channel.sightings(message, turn=at_once)
        shows_no_secret(unread.value)

    @needs("shows_history")
    @pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
    def test_a_history_in_an_unknown_form_is_unreadable(self, body: bytes):
        channel = self.answering(lambda _: httpx.Response(200, content=body))
        with pytest.raises(ProviderUnreadable) as unread:
            channel.sightings(self.message(chat_id="1000001"), turn=at_once)
        shows_no_secret(unread.value)

    @needs("shows_history")
    def test_an_unreachable_history_is_unreadable(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with pytest.raises(ProviderUnreadable):
            self.channel(f"http://127.0.0.1:{port}").sightings(
                self.message(chat_id="1000001"), turn=at_once
            )

    @lacks("shows_history")
    def test_without_a_history_nobody_is_asked_and_nothing_is_seen(self):
        channel = self.answering(_never_called)
        assert channel.sightings(self.message(), turn=at_once) == ()
        assert channel.sightings(self.message(chat_id="1000001"), turn=at_once) == ()

    # ── which chat ────────────────────────────────────────────────────────────────────────────

    @needs("looks_up_chats")
    def test_a_chat_is_found_by_both_of_its_ends(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        for sender, to in [(SENDER, LEAD), (SENDER, OTHER_LEAD), (OTHER_SENDER, LEAD)]:
            channel.send(self.message(sender=sender, to=to))
        chats = {
            (line["sender"], line["recipient"]): self.chat_of(line) for line in sandbox.accepted()
        }
        assert len(set(chats.values())) == 3
        for (sender, to), chat_id in chats.items():
            assert channel.find_chat(self.message(sender=sender, to=to), turn=at_once) == chat_id
        assert (
            channel.find_chat(self.message(sender=OTHER_SENDER, to=OTHER_LEAD), turn=at_once)
            is None
        )

    @needs("looks_up_chats")
    def test_no_chat_is_no_sighting(self, sandbox: RunningSandbox):
        assert self.over(sandbox).sightings(self.message(), turn=at_once) == ()

    @needs("looks_up_chats")
    @pytest.mark.parametrize("fault", READ_FAULTS, ids=lambda fault: f"{fault[0]} {fault[1]}")
    def test_a_failed_read_is_never_a_missing_chat(self, sandbox: RunningSandbox, fault: Fault):
        channel = self.over(sandbox)
        channel.send(self.message())
        sandbox.fault(fault[0], operation="chats", **fault[1])
        with pytest.raises(ProviderUnreadable) as unread:
            channel.find_chat(self.message(), turn=at_once)
        shows_no_secret(unread.value)
        with pytest.raises(ProviderUnreadable):
            channel.sightings(self.message(), turn=at_once)

    @needs("looks_up_chats")
    @pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
    def test_chats_in_an_unknown_form_are_unreadable(self, body: bytes):
        channel = self.answering(lambda _: httpx.Response(200, content=body))
        with pytest.raises(ProviderUnreadable):
            channel.find_chat(self.message(), turn=at_once)

    @lacks("looks_up_chats")
    def test_without_a_way_to_ask_for_a_chat_nobody_is_asked(self, sandbox: RunningSandbox):
        channel = self.over(sandbox)
        chat_id = self.sent(channel).chat_id
        assert self.answering(_never_called).find_chat(self.message(), turn=at_once) in (
            None,
            chat_id,
        )

    # ── which phone ───────────────────────────────────────────────────────────────────────────

    @needs("tells_sender")
    @pytest.mark.parametrize("wrong", [False, True])
    def test_the_phone_that_a_message_really_left_from_is_told(
        self, sandbox: RunningSandbox, wrong: bool
    ):
        if wrong:
            sandbox.fault("wrong_phone", as_phone=OTHER_SENDER)
        channel, message = self.over(sandbox), self.message()
        told = channel.sender_of(message, channel.send(message), turn=at_once)
        assert told == (OTHER_SENDER if wrong else SENDER)
        assert [line["sender"] for line in sandbox.accepted()] == [told]

    @needs("tells_sender")
    @pytest.mark.parametrize("fault", READ_FAULTS, ids=lambda fault: f"{fault[0]} {fault[1]}")
    def test_a_failed_check_is_no_proof_of_a_wrong_phone(
        self, sandbox: RunningSandbox, fault: Fault
    ):
        channel, message = self.over(sandbox), self.message()
        receipt = channel.send(message)
        sandbox.fault(fault[0], operation="history", **fault[1])
        assert channel.sender_of(message, receipt, turn=at_once) is None

    @needs("tells_sender")
    @pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
    def test_a_check_in_an_unknown_form_proves_nothing(self, body: bytes):
        channel = self.answering(lambda _: httpx.Response(200, content=body))
        assert channel.sender_of(self.message(), Receipt("u-1", "1000001"), turn=at_once) is None

    @lacks("tells_sender")
    def test_a_phone_that_nobody_can_tell_is_not_guessed(self):
        channel = self.answering(_never_called)
        assert channel.sender_of(self.message(), Receipt("u-1", "1000001"), turn=at_once) is None

    # ── whether a phone is linked ─────────────────────────────────────────────────────────────

    def test_a_linked_phone_is_told_from_one_that_is_not(self, sandbox: RunningSandbox):
        sandbox.set_accounts(**{SENDER: "active", OTHER_SENDER: "disconnected"})
        lines = [self.line(SENDER, "one"), self.line(OTHER_SENDER, "two")]
        found = self.over(sandbox).connections(lines, turn=at_once)
        assert {phone_id: one.connected for phone_id, one in found.items()} == {
            "one": True,
            "two": False,
        }

    def test_no_phones_have_no_connections(self, sandbox: RunningSandbox):
        assert self.over(sandbox).connections([], turn=at_once) == {}

    @pytest.mark.parametrize("fault", READ_FAULTS, ids=lambda fault: f"{fault[0]} {fault[1]}")
    def test_a_failed_read_is_never_a_lost_connection(self, sandbox: RunningSandbox, fault: Fault):
        sandbox.set_accounts(**{SENDER: "active", OTHER_SENDER: "active"})
        sandbox.fault(fault[0], operation="accounts", **fault[1])
        with pytest.raises(ProviderUnreadable) as unread:
            self.over(sandbox).connections(
                [self.line(SENDER, "a"), self.line(OTHER_SENDER, "b")], turn=at_once
            )
        shows_no_secret(unread.value)
        assert SENDER[1:] not in str(unread.value)

    @pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
    def test_connections_in_an_unknown_form_are_unreadable(self, body: bytes):
        channel = self.answering(lambda _: httpx.Response(200, content=body))
        with pytest.raises(ProviderUnreadable):
            channel.connections([self.line(SENDER, "one")], turn=at_once)

    @needs("asks_each_phone")
    def test_one_phone_that_cannot_be_read_leaves_the_others_known(self, sandbox: RunningSandbox):
        sandbox.set_accounts(**{SENDER: "active", OTHER_SENDER: "active"})
        sandbox.fault("server_error", operation="accounts", phone=OTHER_SENDER)
        lines = [self.line(SENDER, "one"), self.line(OTHER_SENDER, "two")]
        found = self.over(sandbox).connections(lines, turn=at_once)
        assert (found["one"].connected, found["two"].connected) == (True, None)
        assert "500" in found["two"].detail
        assert OTHER_SENDER[1:] not in found["two"].detail

    # ── files ─────────────────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize("kind", [kind for kind, _, _ in FILES])
    def test_a_file_arrives_with_its_caption(self, sandbox: RunningSandbox, kind: Kind):
        channel = self.over(sandbox)
        message = self.file_message(kind, chat_id=self.opened(channel), body="Iată: ăâîșț.")
        receipt = channel.send(message, attachment=channel.upload(message, CONTENT))
        opened, line = sandbox.accepted()
        assert receipt.external_id == line["message_uid"]
        assert (line["sender"], line["recipient"]) == (SENDER, LEAD)
        assert line["chat_id"] == opened["chat_id"]
        assert line["text"] == "Iată: ăâîșț."
        assert line["attachment"] is not None

    @needs("takes_files")
    @pytest.mark.parametrize(("kind", "filename", "of_type"), FILES)
    def test_the_bytes_that_were_checked_are_the_bytes_that_arrive(
        self, sandbox: RunningSandbox, kind: Kind, filename: str, of_type: str
    ):
        channel = self.over(sandbox)
        message = self.file_message(kind)
        channel.send(message, attachment=channel.upload(message, CONTENT))
        (line,) = sandbox.accepted()
        file = line["attachment"]
        assert file["sha256"] == hashlib.sha256(CONTENT).hexdigest()
        assert (file["size"], file["mimetype"]) == (len(CONTENT), of_type)
        assert file["filename"] == filename

    @needs("takes_files")
    @pytest.mark.parametrize("fault", UPLOAD_DOUBTS, ids=lambda fault: f"{fault[0]} {fault[1]}")
    def test_an_upload_in_doubt_is_deferred_for_nothing_has_gone_out(
        self, sandbox: RunningSandbox, fault: Fault
    ):
        sandbox.fault(fault[0], operation="upload", **fault[1])
        failure = self.upload_failure(self.over(sandbox))
        assert (type(failure), failure.code) == (SendDeferred, "UPLOAD_FAILED")
        assert sandbox.accepted() == []

    @needs("takes_files")
    @pytest.mark.parametrize(
        ("fault", "meaning", "code"), [pytest.param(*case, id=name) for name, *case in REFUSALS]
    )
    def test_a_refused_upload_means_what_a_refused_message_means(
        self, sandbox: RunningSandbox, fault: Fault, meaning: type[SendFailed], code: str
    ):
        sandbox.fault(fault[0], operation="upload", **fault[1])
        failure = self.upload_failure(self.over(sandbox))
        assert (type(failure), failure.code) == (meaning, code)
        assert sandbox.accepted() == []

    @needs("takes_files")
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (httpx.ConnectError, "UNREACHABLE"),
            (httpx.ReadTimeout, "UPLOAD_FAILED"),
            (httpx.WriteError, "UPLOAD_FAILED"),
        ],
    )
    def test_silence_in_an_upload_is_deferred(self, error: type[httpx.TransportError], code: str):
        def fail(_: httpx.Request) -> httpx.Response:
            raise error(f"silence for {TOKEN}")

        failure = self.upload_failure(self.answering(fail))
        assert (type(failure), failure.code) == (SendDeferred, code)

    @needs("takes_files")
    @pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES])
    def test_an_upload_without_an_id_is_deferred(self, body: bytes):
        channel = self.answering(lambda _: httpx.Response(200, content=body))
        failure = self.upload_failure(channel)
        assert (type(failure), failure.code) == (SendDeferred, "UPLOAD_FAILED")

    @lacks("takes_files")
    def test_a_file_that_the_vendor_fetches_needs_an_address(self):
        channel, message = self.answering(_never_called), self.file_message()
        assert channel.upload(message, CONTENT) == FILE_ADDRESS
        assert message.media is not None
        homeless = replace(message, media=replace(message.media, source_url=None))
        with pytest.raises(SendRejected) as refused:
            channel.upload(homeless, CONTENT)
        assert refused.value.code == "MEDIA_NEEDS_ADDRESS"

    def test_a_file_message_never_goes_out_without_its_file(self):
        with pytest.raises(SendDeferred) as failed:
            self.answering(_never_called).send(self.file_message(chat_id="1000001"))
        assert failed.value.code == "UPLOAD_FAILED"


def at_once(_: What) -> None:
    """A turn that nobody has to wait for."""


def _never_called(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"nobody should be asked {request.url}")


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
