"""Meta's Cloud API keeps the contract of a channel, and what is its own beside it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import httpx
import pytest

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.outbox import ApprovedText, Channel
from cerniq_pipeline.errors import (
    AccountSuspended,
    PhoneUnusable,
    ProviderUnreadable,
    SendDeferred,
    SendFailed,
    SendRejected,
    SendUnconfirmed,
)
from cerniq_pipeline.providers.meta.channel import MetaCloud, open_client
from cerniq_pipeline.providers.meta.webhooks import read_statuses
from cerniq_pipeline_tests.builders import a_message
from cerniq_pipeline_tests.providers.channel_contract import (
    CONTENT,
    LEAD,
    SENDER,
    TOKEN,
    ChannelContract,
    at_once,
    ids_of,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

ERROR_TABLE: list[tuple[tuple[int, ...], type[SendFailed], str]] = [
    ((0, 3, 10, 190, 200, 219, 299, 131005), AccountSuspended, "ACCOUNT_AUTH"),
    ((131042,), AccountSuspended, "ACCOUNT_SUSPENDED"),
    ((4, 80007, 130429, 131056), SendDeferred, "RATE_LIMITED"),
    ((131048, 368, 131031), PhoneUnusable, "PHONE_BANNED"),
    ((131037, 131045, 133010), PhoneUnusable, "PHONE_OFFLINE"),
    ((131026,), SendRejected, "INVALID_RECIPIENT_NUMBER"),
    ((130497,), SendRejected, "RECIPIENT_REFUSED"),
    ((131047,), SendDeferred, "WINDOW_CLOSED"),
    ((131049,), SendDeferred, "MARKETING_LIMIT"),
    ((131050,), SendRejected, "OPTED_OUT"),
    ((131052, 131053), SendDeferred, "UPLOAD_FAILED"),
    ((131064, 132000, 132001, 132005, 132007, 132008, 132012, 132015, 132016), SendRejected,
     "TEMPLATE_REFUSED"),
    ((130472, 131051, 131008, 131009, 131021, 131030, 100), SendRejected, "REFUSED"),
    ((131062, 131063, 137000, 999_999), SendRejected, "REFUSED"),
    ((1, 2, 131000, 131016, 131057, 135000), SendUnconfirmed, "ODD_STATUS"),
]  # fmt: skip
CODES = [(code, kind, ours) for codes, kind, ours in ERROR_TABLE for code in codes]


@lru_cache(maxsize=4)
def _client(base_url: str) -> httpx.Client:
    """One client per address: what makes a client dear is its TLS context, not its connections."""
    return open_client(base_url, TOKEN)


class TestMetaCloud(ChannelContract):
    __test__ = True
    sends_to = "/140790000000/messages"
    takes_files = True
    asks_each_phone = True

    def address(self, sandbox: RunningSandbox) -> str:
        return sandbox.meta_url

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
        return MetaCloud(client)

    def account_of(self, number: str) -> str:
        return f"1{number[1:]}"

    def chat_of(self, line: dict[str, Any]) -> str:
        return line["recipient"][1:]

    def complaint(self, said: str) -> dict[str, Any]:
        return {"error": {"message": said, "code": 100, "error_data": {"details": said}}}

    # ── the vendor's table ────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize(("code", "kind", "ours"), CODES)
    def test_every_row_of_the_vendors_error_table_has_one_meaning(
        self, code: int, kind: type[SendFailed], ours: str
    ):
        said = {"error": {"message": f"(#{code}) No.", "code": code, "error_data": {}}}
        failure = self.failure_of(self.answering(lambda _: httpx.Response(400, json=said)))
        assert (type(failure), failure.code) == (kind, ours)
        assert str(code) in failure.why

    @pytest.mark.parametrize(("code", "kind", "ours"), CODES)
    def test_a_broken_server_is_doubt_whatever_its_code_says(
        self, code: int, kind: type[SendFailed], ours: str
    ):
        said = {"error": {"message": "No.", "code": code}}
        failure = self.failure_of(self.answering(lambda _: httpx.Response(503, json=said)))
        assert type(failure) is SendUnconfirmed

    @pytest.mark.parametrize("said", [{}, {"error": "no"}, {"error": {"code": "190"}}, []])
    @pytest.mark.parametrize(
        ("status", "kind", "ours"),
        [
            (400, SendRejected, "REFUSED"),
            (401, AccountSuspended, "ACCOUNT_AUTH"),
            (403, SendDeferred, "RATE_LIMITED"),
            (404, SendRejected, "REFUSED"),
            (408, SendUnconfirmed, "ODD_STATUS"),
            (413, SendRejected, "FILE_TOO_LARGE"),
            (425, SendUnconfirmed, "ODD_STATUS"),
            (429, SendDeferred, "RATE_LIMITED"),
            (302, SendUnconfirmed, "ODD_STATUS"),
        ],
    )
    def test_a_refusal_without_a_code_goes_by_its_status(
        self, said: object, status: int, kind: type[SendFailed], ours: str
    ):
        failure = self.failure_of(self.answering(lambda _: httpx.Response(status, json=said)))
        assert (type(failure), failure.code) == (kind, ours)

    @pytest.mark.parametrize(
        ("status", "ours"),
        [(401, "ACCOUNT_AUTH"), (403, "RATE_LIMITED"), (429, "RATE_LIMITED"), (400, "REFUSED")],
    )
    def test_a_code_that_nobody_knows_goes_by_its_status(self, status: int, ours: str):
        said = {"error": {"message": "New.", "code": 999_999}}
        failure = self.failure_of(self.answering(lambda _: httpx.Response(status, json=said)))
        assert failure.code == ours

    def test_a_person_with_enough_marketing_rests_for_a_day(self):
        said = {"error": {"message": "Enough.", "code": 131049}}
        failure = self.failure_of(self.answering(lambda _: httpx.Response(400, json=said)))
        assert isinstance(failure, SendDeferred)
        assert failure.retry_after == timedelta(hours=24)

    def test_a_text_after_the_window_has_closed_is_deferred(self, sandbox: RunningSandbox):
        sandbox.fault("window_closed_at_once")
        failure = self.failure_of(self.over(sandbox))
        assert (type(failure), failure.code) == (SendDeferred, "WINDOW_CLOSED")
        sandbox.inbound(SENDER, LEAD, "Da?")
        assert self.over(sandbox).send(self.message()).external_id

    # ── what is sent ──────────────────────────────────────────────────────────────────────────

    def body_of(self, **changes: object) -> dict[str, Any]:
        """What is posted for a message."""
        posted: list[dict[str, Any]] = []

        def take(request: httpx.Request) -> httpx.Response:
            assert request.url.path == "/api/140790000000/messages"
            posted.append(json.loads(request.content))
            return httpx.Response(200, json={"messages": [{"id": "wamid.A"}]})

        attachment = "449" if changes.get("media") else None
        receipt = self.answering(take).send(self.message(**changes), attachment=attachment)
        assert (receipt.external_id, receipt.chat_id) == ("wamid.A", LEAD[1:])
        (body,) = posted
        return body

    def test_a_text_is_sent_without_a_preview_and_with_our_id(self):
        assert self.body_of(id=42, body="Bună!") == {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": "40721000000",
            "type": "text",
            "text": {"body": "Bună!", "preview_url": False},
            "biz_opaque_callback_data": "42",
        }

    def test_an_approved_text_is_sent_by_its_name(self):
        body = self.body_of(approved=ApprovedText("intro_ro", "ro", ("Ana", "Cluj")))
        assert body["type"] == "template"
        assert "text" not in body
        assert body["template"] == {
            "name": "intro_ro",
            "language": {"code": "ro"},
            "components": [
                {
                    "type": "body",
                    "parameters": [
                        {"type": "text", "text": "Ana"},
                        {"type": "text", "text": "Cluj"},
                    ],
                }
            ],
        }

    def test_an_approved_text_without_values_has_no_components(self):
        body = self.body_of(approved=ApprovedText("salut", "ro", ()))
        assert body["template"] == {"name": "salut", "language": {"code": "ro"}}

    def test_an_approved_text_carries_its_file_at_its_head(self):
        media = self.file_message("image").media
        body = self.body_of(approved=ApprovedText("poza", "ro", ()), media=media)
        (head,) = body["template"]["components"]
        assert head == {
            "type": "header",
            "parameters": [{"type": "image", "image": {"id": "449"}}],
        }

    def test_an_approved_text_is_accepted_outside_the_window(self, sandbox: RunningSandbox):
        sandbox.fault("window_closed_at_once")
        approved = ApprovedText("intro_ro", "ro", ("Ana",))
        self.over(sandbox).send(self.message(approved=approved))
        (line,) = sandbox.accepted()
        assert (line["template"]["name"], line["text"]) == (
            "intro_ro",
            "[template intro_ro ro] Ana",
        )

    def test_only_a_document_shows_its_name(self):
        document = self.body_of(media=self.file_message("document").media, body="Oferta.")
        assert document["document"] == {
            "id": "449",
            "filename": "ofertă de preț.pdf",
            "caption": "Oferta.",
        }
        image = self.body_of(media=self.file_message("image").media, body="")
        assert image["image"] == {"id": "449"}

    def test_a_person_is_one_chat(self):
        assert self.answering(_nobody).find_chat(self.message(), turn=at_once) == LEAD[1:]

    def test_a_file_is_left_with_the_phone_that_will_send_it(self, sandbox: RunningSandbox):
        self.over(sandbox).upload(self.file_message(), CONTENT)
        assert [line["phone"] for line in sandbox.uploads()] == [SENDER]

    # ── phones ────────────────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize(
        ("status", "connected"),
        [
            ("CONNECTED", True),
            ("RESTRICTED", True),
            ("BANNED", False),
            ("DISCONNECTED", False),
            ("PENDING", False),
        ],
    )
    def test_a_status_says_whether_the_phone_is_linked(self, status: str, connected: bool):
        channel = self.answering(lambda _: httpx.Response(200, json={"status": status}))
        (found,) = channel.connections([self.line(SENDER, "one")], turn=at_once).values()
        assert (found.connected, found.detail) == (connected, status.lower())

    def test_a_status_that_nobody_knows_says_nothing(self):
        def answer(request: httpx.Request) -> httpx.Response:
            known = request.url.path.endswith("140790000000")
            return httpx.Response(200, json={"status": "CONNECTED" if known else "DREAMING"})

        lines = [self.line(SENDER, "one"), self.line("+40790000001", "two")]
        found = self.answering(answer).connections(lines, turn=at_once)
        assert (found["one"].connected, found["two"].connected) == (True, None)


def _nobody(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"nobody should be asked {request.url}")


# ── statuses ──────────────────────────────────────────────────────────────────────────────────


def a_webhook(*batches: list[dict[str, Any]]) -> bytes:
    """A body in which every batch of statuses is an entry of its own."""
    entries = [
        {"id": "1", "changes": [{"field": "messages", "value": {"statuses": batch}}]}
        for batch in batches
    ]
    return json.dumps({"object": "whatsapp_business_account", "entry": entries}).encode()


DELIVERED = {
    "id": "wamid.A",
    "status": "delivered",
    "timestamp": "1768471260",
    "recipient_id": "40722123456",
    "biz_opaque_callback_data": "42",
}
FAILED = {
    "id": "wamid.B",
    "status": "failed",
    "timestamp": "1768471261",
    "errors": [{"code": 131047, "title": "Re-engagement message"}],
}
AT = datetime(2026, 1, 15, 10, 1, tzinfo=UTC)


def test_every_status_of_every_entry_is_read():
    told = read_statuses(a_webhook([DELIVERED, FAILED], [], [DELIVERED | {"id": "wamid.C"}]))
    delivered = Delivery("wamid.A", "delivered", AT, None, "", None, "42")
    title = "Re-engagement message"
    failed = Delivery(
        "wamid.B", "failed", AT + timedelta(seconds=1), 131047, title, "WINDOW_CLOSED", None
    )
    assert told[:2] == (delivered, failed)
    assert [one.external_id for one in told] == ["wamid.A", "wamid.B", "wamid.C"]


@pytest.mark.parametrize(
    ("word", "ours"), [("sent", "sent"), ("read", "read"), ("played", "read"), ("new", "unknown")]
)
def test_the_words_of_a_status_become_ours(word: str, ours: str):
    (told,) = read_statuses(a_webhook([DELIVERED | {"status": word}]))
    assert told.status == ours


@pytest.mark.parametrize(("code", "kind", "ours"), CODES)
def test_a_code_in_a_status_means_what_it_means_in_an_answer(
    code: int, kind: type[SendFailed], ours: str
):
    errors = [{"code": code, "title": "No."}]
    (told,) = read_statuses(a_webhook([FAILED | {"errors": errors}]))
    # A status is no doubt: the message failed.
    assert told.meaning == ("REFUSED" if kind is SendUnconfirmed else ours)


def test_an_event_that_nobody_can_read_hides_no_proof_beside_it():
    events = [b"[]", a_webhook([{"id": "wamid.Z"}]), a_webhook([DELIVERED])]
    channel = MetaCloud(httpx.Client())
    assert ids_of(channel.recognise(a_message(id=42), events)) == ["wamid.A"]


def test_a_webhook_with_messages_only_has_no_statuses():
    value = {"messages": [{"from": "40722123456", "id": "wamid.Z"}]}
    body = {"entry": [{"id": "1", "changes": [{"field": "messages", "value": value}]}]}
    assert read_statuses(json.dumps(body).encode()) == ()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 200_000,
        b'{"entry": 5}',
        b'{"entry": [{}]}',
        a_webhook([{"id": "wamid.A"}]),
        a_webhook([DELIVERED | {"timestamp": "soon"}]),
    ],
)
def test_a_body_in_an_unknown_form_is_unreadable(body: bytes):
    with pytest.raises(ProviderUnreadable):
        read_statuses(body)
