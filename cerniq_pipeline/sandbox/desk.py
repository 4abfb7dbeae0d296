"""What happens to one call: check it, apply the faults in force, record it, answer it."""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cerniq_pipeline.sandbox.doors import (
    Dialect,
    Door,
    ReadEndpoint,
    Refusal,
    SendEndpoint,
    authorise,
    json_object,
)
from cerniq_pipeline.sandbox.faults import Call, Failure, FaultBook, Plan
from cerniq_pipeline.sandbox.journal import Event, Journal, Line
from cerniq_pipeline.sandbox.public_api import PUBLIC_DOOR
from cerniq_pipeline.sandbox.room import AccountStatus, Message, Room, View, Visibility
from cerniq_pipeline.sandbox.sending import Draft, Sendable, checked, draft_of, sha256_of
from cerniq_pipeline.sandbox.v1_api import V1_DOOR
from cerniq_pipeline.sandbox.wire import Answer, How, Reply, Request

DOORS = (PUBLIC_DOOR, V1_DOOR)

_BAD_JSON = Failure(400, "validation_error", "Bad JSON format")
_NO_FAULTS = Plan()


@dataclass(frozen=True)
class Latency:
    """How long an answer takes without any fault."""

    shortest: timedelta = timedelta()
    longest: timedelta = timedelta()

    def drawn(self, dice: random.Random) -> timedelta:
        """One delay between the two, all equally likely."""
        return self.shortest + dice.random() * (self.longest - self.shortest)


class Desk:
    """Serves both doors; owns the room, the journal and the faults."""

    def __init__(self, journal: Journal, latency: Latency) -> None:
        self.journal = journal
        self.room = Room()
        self.faults = FaultBook()
        self.calls: Counter[str] = Counter()
        self._latency = latency
        self._dice = random.Random()
        self._remember()

    async def serve(self, door: Door, request: Request) -> Reply:
        """The reply to one call to the provider; what it changed stands in the journal's queue."""
        try:
            endpoint, path = door.find(request)
        except Refusal as refusal:
            return Reply(door.failure(refusal.failure), delay=self._delay())
        if isinstance(endpoint, ReadEndpoint):
            return self._read(door, endpoint, path, request)
        await _let_closed_connections_be_seen()
        return self._send(door, endpoint, path, request)

    def set_account(self, phone: str, status: AccountStatus) -> None:
        """Record that a phone is linked or not; a phone that comes back connects anew."""
        known = self.room.account(phone)
        if known is not None and known.status == status:
            return
        since = datetime.now(UTC)
        if known is not None and status == "disconnected":
            since = known.connected_on
        fields = {
            "provider": "timelinesai",
            "phone": phone,
            "status": status,
            "connected_on": since.isoformat(timespec="microseconds"),
        }
        self.room.apply(self.journal.append("account", fields))

    async def reset(self) -> None:
        """Forget faults, state and journal."""
        await self.journal.clear()
        self.faults.clear()
        self.calls.clear()
        self.room = Room()

    def _remember(self) -> None:
        """Rebuild the room, and close the requests that an earlier crash left open."""
        open_requests: dict[str, Line] = {}
        for line in self.journal.replay():
            self.room.apply(line)
            if line["event"] == "request":
                open_requests[line["request"]] = line
            elif line["event"] == "answered":
                open_requests.pop(line["request"], None)
        for line in open_requests.values():
            fields = {key: line[key] for key in line if key not in ("n", "at", "event")}
            self.journal.append("answered", {**fields, "how": "cut", "status": None})

    def _read(
        self, door: Door, endpoint: ReadEndpoint, path: re.Match[str], request: Request
    ) -> Reply:
        try:
            authorise(request.headers)
            read = endpoint.open(self.room, path, request.query)
        except Refusal as refusal:
            return Reply(door.failure(refusal.failure), delay=self._delay())
        self.calls[read.call.operation] += 1
        plan = self.faults.plan(read.call)
        view = View(datetime.now(UTC), plan.view)
        answer = door.failure(plan.failure) if plan.failure else read.answer(view)
        return Reply(answer, delay=self._delay(plan), cut=plan.cut)

    def _send(
        self, door: Door, endpoint: SendEndpoint, path: re.Match[str], request: Request
    ) -> Reply:
        self.calls["send"] += 1
        body = json_object(request.body)
        form = endpoint.form(path, body or {})
        record = _Record(self.journal, door.dialect, draft_of(form, body or {}, self.room))
        try:
            authorise(request.headers)
            if body is None:
                raise Refusal(_BAD_JSON)
            wanted = checked(form, body, self.room)
        except Refusal as refusal:
            return self._refused(door, record, refusal.failure, _NO_FAULTS)
        self._see(wanted.sender)
        plan = self.faults.plan(Call("send", phone=wanted.sender, recipient=wanted.recipient))
        if not plan.accepted:
            return self._refused(door, record, plan.failure, plan)
        message = self._accept(record, wanted, plan)
        answer = door.failure(plan.failure) if plan.failure else door.accepted(message)
        return self._reply(answer, record, plan)

    def _refused(self, door: Door, record: _Record, failure: Failure | None, plan: Plan) -> Reply:
        """Refuse with an answer, or without one when the connection is to be cut."""
        if failure is None:
            return self._reply(Answer(500, b""), record, plan)
        record.write("refused", {"status": failure.status, "faults": plan.faults})
        return self._reply(door.failure(failure), record, plan)

    def _accept(self, record: _Record, wanted: Sendable, plan: Plan) -> Message:
        sender = plan.as_phone or wanted.sender
        self._see(sender)
        visibility = _marked(plan)
        shown_after = visibility.shown_after
        line = record.write(
            "accepted",
            {
                "sender": sender,
                "recipient": wanted.recipient,
                "chat_id": self.room.chat_id_for(sender, wanted.recipient),
                "text": wanted.text,
                "text_sha256": sha256_of(wanted.text),
                "message_uid": str(uuid.uuid4()),
                "shown_after_ms": None
                if shown_after is None
                else shown_after // timedelta(milliseconds=1),
                "copies": visibility.copies,
                "faults": plan.faults,
            },
        )
        self.room.apply(line)
        return self.room.latest(1)[0]

    def _reply(self, answer: Answer, record: _Record, plan: Plan) -> Reply:
        def ended(how: How) -> None:
            told = answer.status if how == "answered" else None
            record.write("answered", {"how": how, "status": told, "faults": plan.faults})

        return Reply(answer, delay=self._delay(plan), cut=plan.cut, ended=ended)

    def _see(self, phone: str) -> None:
        """A phone that sends is an account, told or not."""
        if self.room.account(phone) is None:
            self.set_account(phone, "active")

    def _delay(self, plan: Plan = _NO_FAULTS) -> timedelta:
        return self._latency.drawn(self._dice) + plan.delay


class _Record:
    """The lines of one send; each line shows all that is known by then."""

    def __init__(self, journal: Journal, dialect: Dialect, draft: Draft) -> None:
        self._journal = journal
        self._epoch = journal.epoch
        self._known: Line = draft.described(dialect, uuid.uuid4().hex)
        self.write("request", {})

    def write(self, event: Event, fields: Line) -> Line:
        """Append one line, unless the journal has been reset since the request came."""
        outcome = ("how", "status", "faults", "shown_after_ms", "copies")
        line = {**self._known, **fields}
        self._known = {key: value for key, value in line.items() if key not in outcome}
        if self._journal.epoch != self._epoch:
            return line
        return self._journal.append(event, line)


def _marked(plan: Plan) -> Visibility:
    """How lists will show the message that this plan accepts."""
    rules = [rule.visibility for rule in plan.view]
    lags = [rule.shown_after for rule in rules]
    hidden = any(lag is None for lag in lags)
    longest = max((lag for lag in lags if lag is not None), default=timedelta())
    copies = max((rule.copies for rule in rules), default=1)
    return Visibility(None if hidden else longest, copies)


async def _let_closed_connections_be_seen() -> None:
    """Give way until a connection that its client closed before this request has been noticed.

    Both may become readable in the same moment and in either order; without this, a client that
    gave up and went on would look as if it had two requests open.
    """
    for _ in range(3):
        await asyncio.sleep(0)
