"""What happens to one call: check it, apply the faults in force, record it, answer it."""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cerniq_pipeline.sandbox.cast import Cast
from cerniq_pipeline.sandbox.doors import (
    ActEndpoint,
    Door,
    Draft,
    ReadEndpoint,
    Refusal,
    Sendable,
    SendEndpoint,
    json_object,
    new_uuid,
    sha256_of,
)
from cerniq_pipeline.sandbox.faults import (
    TOLD_ONCE,
    Call,
    Failure,
    FaultBook,
    LateFailure,
    Plan,
    Telling,
)
from cerniq_pipeline.sandbox.journal import Event, Journal, Line
from cerniq_pipeline.sandbox.meta_api import META_DOOR, new_media_id, new_wamid
from cerniq_pipeline.sandbox.public_api import PUBLIC_DOOR
from cerniq_pipeline.sandbox.room import (
    AccountStatus,
    Attachment,
    Form,
    Message,
    Provider,
    Room,
    View,
    Visibility,
)
from cerniq_pipeline.sandbox.slack_api import SLACK_DOOR
from cerniq_pipeline.sandbox.v1_api import V1_DOOR
from cerniq_pipeline.sandbox.wire import BODY_LIMIT, Answer, How, Reply, Request

DOORS = (PUBLIC_DOOR, V1_DOOR, META_DOOR, SLACK_DOOR)

_BAD_JSON = Failure(400, "validation_error", "Bad JSON format")
_WINDOW_CLOSED = LateFailure(131047, "Re-engagement message")
_NO_FAULTS = Plan()


def door_for(path: str) -> Door | None:
    """The door that a path leads to, or None when it is for the control API."""
    for door in DOORS:
        if path.startswith(f"{door.prefix}/"):
            return door
    return None


def body_limit(method: str, path: str) -> int:
    """How long a body may be there; only uploads may be really long."""
    door = door_for(path)
    if door is None:
        return BODY_LIMIT
    try:
        endpoint, _ = door.find(method, path)
    except Refusal:
        return BODY_LIMIT
    return endpoint.body_limit if isinstance(endpoint, ActEndpoint) else BODY_LIMIT


@dataclass(frozen=True)
class Heard:
    """What a phone's WhatsApp shows that no API sent: from a person, or typed `by_hand`."""

    account: str
    contact: str
    text: str
    by_hand: bool = False
    at: datetime | None = None
    form: Form = "text"
    attachment: Attachment | None = None
    place: Mapping[str, Any] | None = None
    number_hidden: bool = False
    copy_of: str | None = None
    """The message of one of our own phones that this is the other end of."""
    telling: Telling = TOLD_ONCE
    role: Mapping[str, Any] | None = None
    """Who a player plays here, for the journal."""


@dataclass(frozen=True)
class Reaction:
    """An emoji that the other end of a chat puts on one of its messages."""

    message: Message
    emoji: str
    telling: Telling = TOLD_ONCE
    role: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Latency:
    """How long an answer takes without any fault."""

    shortest: timedelta = timedelta()
    longest: timedelta = timedelta()

    def drawn(self, dice: random.Random) -> timedelta:
        """One delay between the two, all equally likely."""
        return self.shortest + dice.random() * (self.longest - self.shortest)


class Desk:
    """Serves all doors; owns the room, the journal, the faults and the cast.

    Whoever is in `watchers` hears of each line that changed the room, after the fact.
    """

    def __init__(self, journal: Journal, latency: Latency) -> None:
        self.journal = journal
        self.room = Room()
        self.cast = Cast()
        self.faults = FaultBook()
        self.watchers: list[Callable[[Line], None]] = []
        self.calls: Counter[str] = Counter()
        self._latency = latency
        self._dice = random.Random()
        self._remember()

    async def serve(self, door: Door, request: Request) -> Reply:
        """The reply to one call to the provider; what it changed stands in the journal's queue."""
        try:
            endpoint, path = door.find(request.method, request.path)
        except Refusal as refusal:
            return Reply(door.failure(refusal.failure), delay=self._delay())
        if isinstance(endpoint, ReadEndpoint):
            return self._read(door, endpoint, path, request)
        if isinstance(endpoint, ActEndpoint):
            return self._act(door, endpoint, path, request)
        await _let_closed_connections_be_seen()
        return self._send(door, endpoint, path, request)

    def set_account(
        self, phone: str, status: AccountStatus, provider: Provider | None = None
    ) -> None:
        """Record that a phone is linked or not; a phone that comes back connects anew.

        Without a provider it stays with the one it was seen at; TimelinesAI when never seen.
        """
        known = self.room.account(phone)
        where = provider or (known.home if known else "timelinesai")
        if known is not None and known.status == status and where in known.providers:
            return
        since = datetime.now(UTC)
        if known is not None and status in (known.status, "disconnected"):
            since = known.connected_on
        fields = {
            "provider": where,
            "phone": phone,
            "status": status,
            "connected_on": since.isoformat(timespec="microseconds"),
            "changed": known is not None and known.status != status,
        }
        self._tell(self._take("account", fields))

    def hear(self, heard: Heard) -> Line:
        """Record a message or a call that WhatsApp brought, and return its line of the journal."""
        provider = self._home_of(heard.account)
        ends = (heard.contact, heard.account)
        sender, recipient = reversed(ends) if heard.by_hand else ends
        at = heard.at or datetime.now(UTC)
        attachment = heard.attachment
        if attachment is not None and provider == "meta":
            attachment = replace(attachment, uid=new_media_id())
        line = self._take(
            "call" if heard.form == "call" else "inbound",
            {
                "provider": provider,
                "account": heard.account,
                "contact": heard.contact,
                "sender": sender,
                "recipient": recipient,
                "chat_id": self.room.chat_id_for(heard.account, heard.contact, provider),
                "type": heard.form,
                "text": heard.text,
                "text_sha256": sha256_of(heard.text),
                "message_uid": _new_uid(provider, heard.contact),
                "message_at": at.isoformat(timespec="microseconds"),
                "from_me": heard.by_hand,
                "origin": "WhatsApp",
                "attachment": attachment and attachment.described(),
                "copy_of": heard.copy_of,
                **({} if heard.place is None else {"place": heard.place}),
                **({"number_hidden": True} if heard.number_hidden else {}),
                **_staging(heard.telling, heard.role),
            },
        )
        self._tell(line)
        return line

    def see_reaction(self, reaction: Reaction) -> Line:
        """Record that a person put an emoji on a message, and return its line of the journal."""
        message = reaction.message
        line = self._take(
            "reaction",
            {
                "provider": message.provider,
                "account": message.account,
                "contact": message.contact,
                "chat_id": message.chat_id,
                "message_uid": _new_uid(message.provider, message.contact),
                "message_at": datetime.now(UTC).isoformat(timespec="microseconds"),
                "reacts_to": message.uid,
                "emoji": reaction.emoji,
                **_staging(reaction.telling, reaction.role),
            },
        )
        self._tell(line)
        return line

    async def reset(self) -> None:
        """Forget faults, state and journal."""
        await self.journal.clear()
        self.faults.clear()
        self.calls.clear()
        self.room = Room()
        self.cast = Cast()

    def _home_of(self, phone: str) -> Provider:
        """The vendor through which a phone hears; one that was never seen is linked now."""
        if self.room.account(phone) is None:
            self.set_account(phone, "active")
        account = self.room.account(phone)
        return account.home if account else "timelinesai"

    def _take(self, event: Event, fields: Line) -> Line:
        """Write one line and take it in."""
        line = self.journal.append(event, fields)
        self._apply(line)
        return line

    def _apply(self, line: Line) -> None:
        self.room.apply(line)
        self.cast.apply(line)

    def _tell(self, line: Line) -> None:
        for watch in self.watchers:
            watch(line)

    def _remember(self) -> None:
        """Rebuild the room, and close the requests that an earlier crash left open."""
        open_requests: dict[str, Line] = {}
        for line in self.journal.replay():
            self._apply(line)
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
            door.authorise(request.headers)
            read = endpoint.open(self.room, path, request.query)
        except Refusal as refusal:
            return Reply(door.failure(refusal.failure), delay=self._delay())
        self.calls[read.call.operation] += 1
        plan = self.faults.plan(read.call)
        view = View(datetime.now(UTC), plan.view)
        answer = door.failure(plan.failure) if plan.failure else read.answer(view)
        return Reply(answer, delay=self._delay(plan), cut=plan.cut)

    def _act(
        self, door: Door, endpoint: ActEndpoint, path: re.Match[str], request: Request
    ) -> Reply:
        try:
            door.authorise(request.headers)
            act = endpoint.open(self.room, path, request)
        except Refusal as refusal:
            return Reply(door.failure(refusal.failure), delay=self._delay())
        self.calls[act.call.operation] += 1
        plan = self.faults.plan(act.call)
        if plan.accepted:
            where = {"provider": door.provider, "dialect": door.dialect}
            fields = {**where, **act.fields, "faults": plan.faults}
            self._tell(self._take(act.event, fields))
        answer = door.failure(plan.failure) if plan.failure else act.answer
        return Reply(answer, delay=self._delay(plan), cut=plan.cut)

    def _send(
        self, door: Door, endpoint: SendEndpoint, path: re.Match[str], request: Request
    ) -> Reply:
        self.calls["send"] += 1
        body = json_object(request.body)
        draft = endpoint.draft(self.room, path, body or {})
        record = _Record(self.journal, door, draft)
        try:
            door.authorise(request.headers)
            if body is None:
                raise Refusal(_BAD_JSON)
            wanted = endpoint.check(self.room, path, body)
        except Refusal as refusal:
            return self._refused(door, record, refusal.failure, _NO_FAULTS)
        self._see(wanted.sender, door.provider)
        plan = self._plan(door, wanted)
        if not plan.accepted:
            return self._refused(door, record, plan.failure, plan)
        message = self._accept(door, record, wanted, plan)
        answer = door.failure(plan.failure) if plan.failure else door.accepted(message)
        return self._reply(answer, record, plan)

    def _plan(self, door: Door, wanted: Sendable) -> Plan:
        """What the faults make of a send, and what the 24-hour window makes of it then."""
        sender, recipient = wanted.sender, wanted.recipient
        call = Call("send", phone=sender, recipient=recipient, provider=door.provider)
        plan = self.faults.plan(call)
        as_phone = plan.as_phone or sender
        if (
            not plan.accepted
            or not wanted.needs_window
            or self.room.window_open(as_phone, recipient, now=datetime.now(UTC))
        ):
            return plan
        if not plan.window_closed_at_once:
            return replace(plan, fails_later=_WINDOW_CLOSED)
        code, title = _WINDOW_CLOSED.code, _WINDOW_CLOSED.title
        failure = Failure(400, "service_window_closed", title, meta_code=code)
        return replace(plan, accepted=False, failure=failure)

    def _refused(self, door: Door, record: _Record, failure: Failure | None, plan: Plan) -> Reply:
        """Refuse with an answer, or without one when the connection is to be cut."""
        if failure is None:
            return self._reply(Answer(500, b""), record, plan)
        answer = door.failure(failure)
        record.write("refused", {"status": answer.status, "faults": plan.faults})
        return self._reply(answer, record, plan)

    def _accept(self, door: Door, record: _Record, wanted: Sendable, plan: Plan) -> Message:
        sender = plan.as_phone or wanted.sender
        self._see(sender, door.provider)
        visibility = _marked(plan)
        shown_after = visibility.shown_after
        uid = door.new_uid(wanted.recipient)
        line = record.write(
            "accepted",
            {
                "sender": sender,
                "recipient": wanted.recipient,
                "chat_id": self.room.chat_id_for(sender, wanted.recipient, door.provider),
                "text": wanted.text,
                "text_sha256": sha256_of(wanted.text),
                "message_uid": uid,
                "attachment": wanted.attachment and wanted.attachment.described(),
                "shown_after_ms": None
                if shown_after is None
                else shown_after // timedelta(milliseconds=1),
                "copies": visibility.copies,
                "delivered": plan.delivered,
                "faults": plan.faults,
                **({} if self.cast.reads(wanted.recipient) else {"read": False}),
                **({} if wanted.callback is None else {"callback": wanted.callback}),
            },
        )
        self._apply(line)
        if plan.fails_later is not None:
            self._fail_later(line, plan.fails_later)
        else:
            self._tell(line)
            if plan.delivered:
                self._bring(line, wanted)
        message = self.room.message(uid)
        assert message is not None
        return message

    def _fail_later(self, accepted: Line, why: LateFailure) -> None:
        told = ("request", "provider", "dialect", "sender", "recipient", "chat_id", "message_uid")
        fields = {key: accepted[key] for key in told}
        about = {"status": "failed", "code": why.code, "title": why.title}
        self._tell(self._take("status", {**fields, **about}))

    def _bring(self, accepted: Line, wanted: Sendable) -> None:
        """Let the other end hear a message, if it is another of our phones and connected."""
        account = self.room.account(wanted.recipient)
        if account is None or account.status != "active" or account.phone == accepted["sender"]:
            return
        heard = Heard(
            account=wanted.recipient,
            contact=accepted["sender"],
            text=wanted.text,
            form=_form_of(wanted.attachment),
            attachment=wanted.attachment,
            copy_of=accepted["message_uid"],
        )
        self.hear(heard)

    def _reply(self, answer: Answer, record: _Record, plan: Plan) -> Reply:
        def ended(how: How) -> None:
            told = answer.status if how == "answered" else None
            record.write("answered", {"how": how, "status": told, "faults": plan.faults})

        return Reply(answer, delay=self._delay(plan), cut=plan.cut, ended=ended)

    def _see(self, phone: str, provider: Provider) -> None:
        """A phone that sends is an account of that vendor, told or not."""
        known = self.room.account(phone)
        self.set_account(phone, known.status if known else "active", provider)

    def _delay(self, plan: Plan = _NO_FAULTS) -> timedelta:
        return self._latency.drawn(self._dice) + plan.delay


class _Record:
    """The lines of one send; each line shows all that is known by then."""

    def __init__(self, journal: Journal, door: Door, draft: Draft) -> None:
        self._journal = journal
        self._epoch = journal.epoch
        self._known: Line = draft.described(door, uuid.uuid4().hex)
        self.write("request", {})

    def write(self, event: Event, fields: Line) -> Line:
        """Append one line, unless the journal has been reset since the request came."""
        outcome = ("how", "status", "faults", "shown_after_ms", "copies", "delivered", "read")
        line = {**self._known, **fields}
        self._known = {key: value for key, value in line.items() if key not in outcome}
        if self._journal.epoch != self._epoch:
            return line
        return self._journal.append(event, line)


def _new_uid(provider: Provider, contact: str) -> str:
    return new_wamid(contact) if provider == "meta" else new_uuid(contact)


def _form_of(file: Attachment | None) -> Form:
    """The form in which a file reaches the other end."""
    if file is None:
        return "text"
    kinds: dict[str, Form] = {"image": "image", "video": "video", "audio": "audio"}
    return kinds.get(file.mimetype.split("/")[0], "document")


def _staging(telling: Telling, role: Mapping[str, Any] | None) -> Line:
    """What a line says of how it is told and who plays it, where that is anything special."""
    told = {} if telling == TOLD_ONCE else {"webhook": telling.in_line()}
    return {**told, **(role or {})}


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
