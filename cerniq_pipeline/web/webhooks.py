"""What providers call: believe it or not, keep it, answer. Nothing else happens before the answer.

This is plain ASGI and no route of FastAPI: thousands of events a second come through here, and
everything that a framework does for one of them costs as much as keeping it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import parse_qsl

from cerniq_pipeline.domain.events import Envelope, WebhookReader, WebhookRequest
from cerniq_pipeline.errors import UnreadableWebhook, WebhookRefused
from cerniq_pipeline.logs import event, mask
from cerniq_pipeline.providers.signing import matches_any
from cerniq_pipeline.store.inbox import Arrival
from cerniq_pipeline.web.answers import (
    Answer,
    Message,
    Receive,
    Scope,
    Send,
    new_request_id,
    plain,
    reply,
)
from cerniq_pipeline.web.intake import UNREADABLE, Intake, NotKept
from cerniq_pipeline.web.keyring import Keyring, Keys
from cerniq_pipeline.web.limits import Limits
from cerniq_pipeline.web.unproven import Stranger, UnprovenBodies

PREFIX = "/webhooks/"

OK = Answer(HTTPStatus.OK, b"ok")
EMPTY_TWIML = Answer(HTTPStatus.OK, b"<Response></Response>", b"text/xml")
BAD_REQUEST = plain(HTTPStatus.BAD_REQUEST)
UNAUTHORIZED = plain(HTTPStatus.UNAUTHORIZED)
FORBIDDEN = plain(HTTPStatus.FORBIDDEN)
NOT_FOUND = plain(HTTPStatus.NOT_FOUND)
METHOD_NOT_ALLOWED = plain(HTTPStatus.METHOD_NOT_ALLOWED)
TOO_LARGE = plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, close=True)
UNSUPPORTED = plain(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
UNAVAILABLE = plain(HTTPStatus.SERVICE_UNAVAILABLE)
NO_ROOM = plain(HTTPStatus.SERVICE_UNAVAILABLE, close=True)
BROKEN = plain(HTTPStatus.INTERNAL_SERVER_ERROR)


@dataclass(frozen=True)
class Door:
    """One address: whose it is, and how it answers."""

    provider: str
    answer: Answer = OK
    methods: frozenset[str] = frozenset({"POST"})
    has_token_in_path: bool = False


GET_OR_POST = frozenset({"GET", "POST"})

DOORS = {
    "timelinesai": Door("timelinesai", has_token_in_path=True),
    "instantly": Door("instantly"),
    "resend": Door("resend"),
    "twilio": Door("twilio", answer=EMPTY_TWIML),
    "vonage": Door("vonage", methods=GET_OR_POST),
    "dropcowboy": Door("dropcowboy"),
    "whatsapp": Door("meta", methods=GET_OR_POST),
}

KEPT_HEADERS = ("content-type", "user-agent", "svix-id")
"""The others may be secrets, or say nothing."""
_LONGEST_HEADER = 200
_MOST_QUERY_FIELDS = 1000


CORRELATION_HEADERS = ("x-correlation-id", "correlation-id")
_CORRELATION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class _Gone(Exception):
    """The sender went away in the middle of its request."""


class _Stopped(Exception):
    """The request was answered before it was read to its end."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


class Webhooks:
    """An ASGI application for everything below `/webhooks/`."""

    def __init__(self, keyring: Keyring, intake: Intake, limits: Limits) -> None:
        self._keyring = keyring
        self._intake = intake
        self._limits = limits
        self._held_bytes = 0
        self._unproven = UnprovenBodies(limits.unproven_bytes)
        self._refusals: Counter[tuple[str, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = new_request_id()
        is_unread = _has_body(scope)

        async def received() -> Message:
            nonlocal is_unread
            message = await receive()
            is_unread = message.get("more_body", False)
            return message

        try:
            answer = await self._answer(scope, received, request_id)
        except _Stopped as stopped:
            answer = stopped.answer
        except NotKept:
            answer = UNAVAILABLE
        except _Gone:
            return
        except Exception as error:  # noqa: BLE001 (the edge: nobody outside hears what it was)
            where = error.__traceback__ and error.__traceback__.tb_lineno
            told = {"error": type(error).__name__, "line": where, "request": request_id.decode()}
            event("web", "webhook_broken", level="error", **told)
            answer = BROKEN
        if is_unread and not answer.close:
            answer = replace(answer, close=True)
        await reply(send, answer, request_id)

    def tell_refusals(self) -> None:
        """Write down how many were refused, and why: one line each, however many there were."""
        refusals, self._refusals = self._refusals, Counter()
        for (provider, why), count in refusals.items():
            told = {"provider": provider, "why": why, "count": count}
            event("web", "webhooks_refused", level="warning", **told)

    async def _answer(self, scope: Scope, receive: Receive, request_id: bytes) -> Answer:
        name, slash, rest = scope["path"][len(PREFIX) :].partition("/")
        door = DOORS.get(name)
        if door is None or (slash and not (rest and door.has_token_in_path)):
            return NOT_FOUND
        keys = self._keyring.keys
        method = scope["method"]
        if method == "GET" and door.provider == "meta":
            return self._shake_hands(keys, scope)
        reader = keys.readers.get(door.provider)
        if reader is None:
            return NOT_FOUND
        if method not in door.methods:
            return METHOD_NOT_ALLOWED
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if headers.get("content-encoding", "identity").lower() != "identity":
            return UNSUPPORTED
        head = WebhookRequest(_address(keys, scope), headers, _query(scope), b"")
        name = correlation_id(headers) or request_id.decode()
        if method == "GET":  # the fields of its form stand in the address
            return await self._take(door, reader, keys, head, scope["query_string"], name=name)
        self._check_size(headers)
        try:
            is_proven = reader.screen(head, now=self._intake.now())
        except WebhookRefused as refusal:
            return self._refusal(door, keys, head, refusal)
        body = await self._body(receive, is_proven=is_proven)
        try:
            return await self._take(door, reader, keys, head, body, name=name, is_proven=is_proven)
        finally:
            self._held_bytes -= len(body)

    async def _take(
        self,
        door: Door,
        reader: WebhookReader,
        keys: Keys,
        head: WebhookRequest,
        body: bytes,
        *,
        name: str,
        is_proven: bool = False,
    ) -> Answer:
        if not body:
            return BAD_REQUEST
        if not is_proven:
            try:
                reader.verify(replace(head, body=body), now=self._intake.now())
            except WebhookRefused as refusal:
                return self._refusal(door, keys, head, refusal)
        envelope = self._envelope(reader, body)
        await self._intake.keep(
            Arrival(
                door.provider,
                envelope.event_key,
                envelope.event_type,
                envelope.account,
                envelope.contact,
                _kept_headers(*map(head.headers.get, KEPT_HEADERS)),
                body,
                people=envelope.people,
                correlation_id=name,
            )
        )
        return door.answer

    def _envelope(self, reader: WebhookReader, body: bytes) -> Envelope:
        """What a body calls itself. One that cannot be read is kept too: its sender was believed,
        and would otherwise send the same thing again for days."""
        try:
            if not is_too_deep(body, self._limits.depth):
                return reader.envelope(body)
        except UnreadableWebhook:
            pass
        except Exception as error:  # noqa: BLE001 (a fault of ours must not lose a reply)
            told = {"provider": reader.provider, "error": type(error).__name__}
            event("web", "envelope_broken", level="error", **told)
        return Envelope(sha256(body).hexdigest(), UNREADABLE, account=None, contact=None)

    def _refusal(
        self, door: Door, keys: Keys, head: WebhookRequest, refusal: WebhookRefused
    ) -> Answer:
        self._refusals[door.provider, str(refusal)] += 1
        if not door.has_token_in_path:
            return UNAUTHORIZED
        try:
            keys.address_tokens.screen(head, now=self._intake.now())
        except WebhookRefused:
            return NOT_FOUND  # with a wrong token in it there is no such address
        return UNAUTHORIZED

    def _shake_hands(self, keys: Keys, scope: Scope) -> Answer:
        """Meta's first call: it says a word that we gave it, and wants its number back."""
        if not keys.handshake_words:
            return NOT_FOUND
        query = _query(scope)
        word = query.get("hub.verify_token", "")
        if not matches_any(word, keys.handshake_words) or query.get("hub.mode") != "subscribe":
            self._refusals["meta", "the handshake's word is not ours"] += 1
            return FORBIDDEN
        return Answer(HTTPStatus.OK, query.get("hub.challenge", "").encode("utf-8", "replace"))

    def _check_size(self, headers: dict[str, str]) -> None:
        announced = int(headers.get("content-length") or 0)
        if announced > self._limits.body_bytes:
            raise _Stopped(TOO_LARGE)
        if not announced and "transfer-encoding" not in headers:
            raise _Stopped(BAD_REQUEST)

    async def _body(self, receive: Receive, *, is_proven: bool) -> bytes:
        """The whole body; as soon as it is too large, nobody reads on."""
        limits = self._limits
        task = None if is_proven else asyncio.current_task()
        stranger = Stranger(task) if task else None
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise _Gone
                piece = message["body"]
                pieces.append(piece)
                size += len(piece)
                self._held_bytes += len(piece)
                if size > limits.body_bytes:
                    raise _Stopped(TOO_LARGE)
                if self._held_bytes > limits.held_bytes:
                    raise _Stopped(UNAVAILABLE)
                if not message["more_body"]:
                    return piece if len(pieces) == 1 else b"".join(pieces)
                if stranger is not None:
                    self._unproven.grow(stranger, len(piece))
        except BaseException as ended:
            self._held_bytes -= size
            if stranger is not None and stranger.is_dropped:
                stranger.task.uncancel()  # it was told to end its waiting, and may still answer
                raise _Stopped(NO_ROOM) from ended
            raise
        finally:
            if stranger is not None:
                self._unproven.forget(stranger)


def correlation_id(headers: Mapping[str, str]) -> str | None:
    """The caller's name for what it tells; None for one that could be anything but a name.

    It stands in logs and beside data that outlives a person, so it may hold no number of theirs.
    """
    for header in CORRELATION_HEADERS:
        told = headers.get(header, "")
        if _CORRELATION_ID.fullmatch(told) and mask(told) == told:
            return told
    return None


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


def _address(keys: Keys, scope: Scope) -> str:
    """The address that the provider was given: what a proxy made of it does not count."""
    path, query = scope["raw_path"].decode("ascii"), scope["query_string"]
    address = keys.public_url + path
    return f"{address}?{query.decode('latin-1')}" if query else address


def _query(scope: Scope) -> dict[str, str]:
    written = scope["query_string"]
    if not written:
        return {}
    try:
        return _fields(written)
    except ValueError as error:
        raise _Stopped(BAD_REQUEST) from error


@lru_cache(maxsize=64)
def _fields(query: bytes) -> dict[str, str]:
    # A provider calls one address again and again.
    text = query.decode("latin-1")
    return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_QUERY_FIELDS))


@lru_cache(maxsize=256)
def _kept_headers(*values: str | None) -> str:
    named = zip(KEPT_HEADERS, values, strict=True)
    return json.dumps({name: value[:_LONGEST_HEADER] for name, value in named if value})


_LEVELS = bytes.maketrans(b"{[}]", b"(())")
_NO_LEVELS = bytes(sorted(set(range(256)) - set(b"{}[]")))


def is_too_deep(body: bytes, depth: int) -> bool:
    """Whether a JSON body nests deeper than this; quick for any that is not."""
    if body.count(b"{") + body.count(b"[") <= depth:
        return False
    # Between the first quote and the next there is a text, whose brackets do not count.
    without_escapes = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    levels = b"".join(without_escapes.split(b'"')[::2]).translate(_LEVELS, _NO_LEVELS)
    for _ in range(depth):  # each round takes the innermost level away
        outer = levels.replace(b"()", b"")
        if len(outer) == len(levels):
            break
        levels = outer
    return bool(levels)
