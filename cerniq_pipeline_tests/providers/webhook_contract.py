"""What every reader of webhooks must keep: whom it believes, what it calls the same, what it reads.

A vendor's test brings recorded bodies and a way to sign them; the suite breaks each of them in
every place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode

import pytest

from cerniq_pipeline.domain.events import InboundEvent, Kind, WebhookRequest
from cerniq_pipeline.errors import UnreadableWebhook, WebhookRefused

NOW = datetime(2026, 1, 15, 10, 0, 0, tzinfo=UTC)
"""1768471200, the moment of the signature vectors."""
ARRIVED = NOW + timedelta(seconds=3)
HOOK = "https://hooks.example.test/webhooks/vendor"
MARKER = "parola-din-corp"

GARBAGE = {
    "empty": b"",
    "spaces": b"  \n",
    "no JSON": b"<html>502</html>",
    "cut off": b'{"event_type":"mess',
    "deep list": b"[" * 10_000 + b"]" * 10_000,
    "deep object": b'{"data":' * 10_000 + b"1" + b"}" * 10_000,
    "NUL": b"\0",
    "NUL in a text": b'{"event_type":"\\u0000","type":"\\u0000","event":"\\u0000"}',
    "lone surrogate": b'{"event_type":"\\ud800","type":"\\ud800","event":"\\ud800"}',
    "no UTF-8": b'{"event_type":"\xff\xfe","type":"\xff","event":"\xff"}',
    "huge number": b'{"event_type":' + b"9" * 5_000 + b"}",
    "huge float": b'{"event_type":1e999,"timestamp":-1e999,"type":NaN}',
    "array": b"[]",
    "array of objects": b'[{"event_type":"message:new"}]',
    "text": b'"message"',
    "null": b"null",
    "empty object": b"{}",
    "bytes": bytes(range(256)),
}

ODD_VALUES = (
    None,
    [],
    {},
    1,
    "x",
    True,
    -1.5,
    float("inf"),
    10**40,
    "",
    "9" * 30,
    "a\0b",
    "\ud800",
    [None],
    [1],
    [[]],
    [{}],
    "x" * 5_000,
    "0001-01-01T00:00:00+14:00",  # before the first day there is
    "0001-01-01 00:00:00 +1400",
)


class WebhookContract:
    """Inherit it, bring the vendor's side, and keep every promise."""

    secret: ClassVar[str]
    next_secret: ClassVar[str]
    wrong_secrets: ClassVar[tuple[str, ...]]
    bodies: ClassVar[dict[str, tuple[bytes, tuple[Kind, ...]]]]
    unknown: ClassVar[bytes]

    def reader(self, *secrets: str) -> Any:
        raise NotImplementedError

    def signed(self, body: bytes, secret: str, at: datetime = NOW) -> WebhookRequest:
        """The request as the vendor would make it."""
        raise NotImplementedError

    def any_body(self) -> bytes:
        return next(iter(self.bodies.values()))[0]

    # ── Whom to believe ──────────────────────────────────────────────────────────────────────

    def test_a_good_request_passes(self):
        for body, _ in self.bodies.values():
            self.reader(self.secret).verify(self.signed(body, self.secret), now=NOW)

    def test_while_a_secret_is_rotated_the_old_and_the_new_one_pass(self):
        reader = self.reader(self.next_secret, self.secret)
        for secret in (self.secret, self.next_secret):
            reader.verify(self.signed(self.any_body(), secret), now=NOW)

    def test_after_the_rotation_the_old_secret_is_refused(self):
        self.refuses(self.reader(self.next_secret), self.signed(self.any_body(), self.secret))

    def test_another_secret_is_refused(self):
        for wrong in self.wrong_secrets:
            self.refuses(self.reader(self.secret), self.signed(self.any_body(), wrong))

    def test_without_a_secret_of_ours_nobody_is_believed(self):
        request = self.signed(self.any_body(), self.secret)
        for none in ((), ("",), (" ",)):
            self.refuses(self.reader(*none), request)

    def test_an_empty_proof_does_not_fit_an_empty_secret(self):
        request = self.signed(self.any_body(), self.secret)
        blank = replace(
            request,
            headers=dict.fromkeys(request.headers, ""),
            query=dict.fromkeys(request.query, ""),
        )
        for ours in ((), ("",), (self.secret,)):
            self.refuses(self.reader(*ours), blank)

    def test_a_request_without_its_proof_is_refused(self):
        request = self.signed(self.any_body(), self.secret)
        proofs = [name for name in request.headers if name != "content-type"]
        assert proofs or request.query
        for gone in proofs:
            rest = {name: value for name, value in request.headers.items() if name != gone}
            self.refuses(self.reader(self.secret), replace(request, headers=rest))
        bare = WebhookRequest(HOOK, {}, {}, request.body)
        self.refuses(self.reader(self.secret), bare)

    def test_a_proof_with_a_changed_or_missing_letter_is_refused(self):
        request = self.signed(self.any_body(), self.secret)
        for name, value in request.headers.items():
            if name == "content-type":
                continue
            for other in (value[:-1], f"{value}x", "é", "\udcff", value[::-1], "9" * 5_000):
                changed = {**request.headers, name: other}
                self.refuses(self.reader(self.secret), replace(request, headers=changed))

    def test_a_good_head_passes_and_what_it_proves_alone_no_body_can_undo(self):
        reader = self.reader(self.secret)
        for body, _ in self.bodies.values():
            request = self.signed(body, self.secret)
            if reader.screen(replace(request, body=b""), now=NOW):
                for other in GARBAGE.values():
                    reader.verify(replace(request, body=other), now=NOW)

    def test_a_head_without_proof_is_refused_before_its_body_is_here(self):
        request = self.signed(self.any_body(), self.secret)
        for name, value in request.headers.items():
            for other in ("", value[:-1], "é", "9" * 5_000):
                head = replace(request, headers={**request.headers, name: other}, body=b"")
                if name not in {"content-type", "svix-id"}:
                    self.screens(head)
        if "token" in request.query:
            self.screens(replace(request, query=dict.fromkeys(request.query, "x"), body=b""))

    def screens(self, head: WebhookRequest) -> None:
        with pytest.raises(WebhookRefused):
            self.reader(self.secret).screen(head, now=NOW)

    def refuses(self, reader: Any, request: WebhookRequest) -> None:
        with pytest.raises(WebhookRefused) as refusal:
            reader.verify(request, now=NOW)
        said = str(refusal.value)
        assert self.secret not in said
        assert self.next_secret not in said
        assert MARKER not in said

    # ── What is the same ─────────────────────────────────────────────────────────────────────

    def test_the_same_body_has_the_same_key_and_another_body_another(self):
        reader = self.reader(self.secret)
        keys = [reader.envelope(body).event_key for body, _ in self.bodies.values()]
        again = [reader.envelope(body).event_key for body, _ in self.bodies.values()]
        assert keys == again
        assert len(set(keys)) == len(keys)
        assert all(0 < len(key) <= 400 for key in keys)

    def test_the_envelope_names_the_two_sides_of_the_first_event(self):
        reader = self.reader(self.secret)
        for body, _ in self.bodies.values():
            first = reader.read(body, received_at=ARRIVED)[0]
            kept = reader.envelope(body)
            assert (kept.account, kept.contact) == (first.account, first.contact.key)
            assert kept.event_type

    # ── What it says ─────────────────────────────────────────────────────────────────────────

    def test_every_recorded_body_reads_as_it_should(self):
        reader = self.reader(self.secret)
        for name, (body, kinds) in self.bodies.items():
            events = reader.read(body, received_at=ARRIVED)
            assert tuple(event.kind for event in events) == kinds, name
            for event in events:
                assert event.provider == reader.provider
                is_sound(event)

    def test_an_unknown_word_is_kept_and_says_what_it_was(self):
        (event,) = self.reader(self.secret).read(self.unknown, received_at=ARRIVED)
        assert event.kind is Kind.UNKNOWN
        assert event.detail
        assert self.reader(self.secret).envelope(self.unknown).event_key

    def test_garbage_is_unreadable_or_read_but_never_an_accident(self):
        for body in GARBAGE.values():
            self.reads_soundly(body)

    def test_a_body_that_is_odd_in_any_one_place_is_no_accident(self):
        for body, _ in self.bodies.values():
            for odd in mutants(body):
                self.reads_soundly(odd)

    def reads_soundly(self, body: bytes) -> None:
        reader = self.reader(self.secret)
        try:
            kept = reader.envelope(body)
            assert 0 < len(kept.event_key) <= 400
            for written in (kept.event_key, kept.event_type, kept.account, kept.contact):
                is_storable(written)
        except UnreadableWebhook as error:
            quotes_nothing(error)
        try:
            for event in reader.read(body, received_at=ARRIVED):
                is_sound(event)
        except UnreadableWebhook as error:
            quotes_nothing(error)


class SignedBodyContract(WebhookContract):
    """For a vendor whose proof covers the body."""

    def test_a_changed_byte_is_refused(self):
        request = self.signed(self.any_body(), self.secret)
        body = request.body
        for place in range(len(body)):
            changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
            self.refuses(self.reader(self.secret), replace(request, body=changed))
        for changed in (b"", body[:-1], body + b"x"):
            self.refuses(self.reader(self.secret), replace(request, body=changed))

    def test_garbage_is_refused_and_breaks_nothing(self):
        request = self.signed(self.any_body(), self.secret)
        for body in GARBAGE.values():
            self.refuses(self.reader(self.secret), replace(request, body=body))


class TimedContract(SignedBodyContract):
    """For a vendor whose proof also covers the time."""

    stale_after: ClassVar[timedelta] = timedelta(minutes=5)

    def test_an_old_or_early_request_is_refused(self):
        reader, body = self.reader(self.secret), self.any_body()
        reader.verify(self.signed(body, self.secret, NOW - self.stale_after), now=NOW)
        reader.verify(self.signed(body, self.secret, NOW + timedelta(minutes=5)), now=NOW)
        old = NOW - self.stale_after - timedelta(seconds=1)
        for wrong in (old, NOW + timedelta(minutes=5, seconds=1)):
            self.refuses(reader, self.signed(body, self.secret, wrong))


def quotes_nothing(error: Exception) -> None:
    assert MARKER not in str(error)


def is_sound(event: InboundEvent) -> None:
    assert event.at.utcoffset() == timedelta(0)
    assert event.channel in {"WHATSAPP", "EMAIL", "SMS", "VOICE"}
    assert event.contact.phone is None or event.contact.phone.startswith("+")
    assert event.contact.email is None or event.contact.email == event.contact.email.lower()
    texts = (event.account, event.external_id, event.chat_id, event.text, event.message_type)
    told = (event.reply_to, event.detail, *vars(event.contact).values())
    files = (value for file in event.media for value in vars(file).values())
    for written in (*texts, *told, *files):
        is_storable(written)
    if event.kind is Kind.STATUS:
        assert event.delivery is not None
    if event.delivery is not None:
        assert event.delivery.at.utcoffset() == timedelta(0)
        assert event.delivery.status in {"sent", "delivered", "read", "failed", "unknown"}
        for written in (event.delivery.external_id, event.delivery.title):
            is_storable(written)


def is_storable(written: str | None) -> None:
    """Postgres holds neither a NUL nor half a character."""
    assert written is None or isinstance(written, str)
    assert "\0" not in (written or "")
    (written or "").encode()


def mutants(body: bytes) -> Iterator[bytes]:
    """The body with every one of its places made odd, or left out."""
    try:
        whole = json.loads(body)
    except ValueError:
        yield from _form_mutants(body)
        return
    for path in list(_paths(whole)):
        for odd in ODD_VALUES:
            yield _dumped(_changed(whole, path, odd))
        yield _dumped(_without(whole, path))


def _form_mutants(body: bytes) -> Iterator[bytes]:
    pairs = parse_qsl(body.decode(), keep_blank_values=True)
    for place, (name, _) in enumerate(pairs):
        rest = pairs[:place] + pairs[place + 1 :]
        yield urlencode(rest).encode()
        yield urlencode([*pairs, pairs[place]]).encode()
        for odd in ("", "x", "9" * 30, "a\0b", "1", "[]", "x" * 5_000):
            yield urlencode([*rest, (name, odd)]).encode()
        yield urlencode(rest).encode() + f"&{name}=%ff%fe".encode()


def _paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else ()
    for name, value in enumerate(node) if isinstance(node, list) else inner:
        yield (*path, name)
        yield from _paths(value, (*path, name))


def _changed(whole: Any, path: tuple[Any, ...], odd: Any) -> Any:
    copy = deepcopy(whole)
    _holder(copy, path)[path[-1]] = odd
    return copy


def _without(whole: Any, path: tuple[Any, ...]) -> Any:
    copy = deepcopy(whole)
    del _holder(copy, path)[path[-1]]
    return copy


def _holder(node: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        node = node[step]
    return node


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()
