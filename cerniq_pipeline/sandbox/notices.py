"""From a line of the journal to what a vendor tells of it by webhook."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cerniq_pipeline.sandbox import meta_events, timelinesai_events
from cerniq_pipeline.sandbox.faults import TOLD_ONCE, Telling
from cerniq_pipeline.sandbox.journal import Line
from cerniq_pipeline.sandbox.meta_events import Item
from cerniq_pipeline.sandbox.room import Message, Provider, Room, stages


@dataclass(frozen=True)
class Notice:
    """One thing to tell: what it is about, and its words; `after` is when the vendor would know.

    TimelinesAI gives every event a body of its own, Meta puts several items into one.
    """

    provider: Provider
    event_type: str
    account: str
    contact: str | None
    message_uid: str | None
    content: bytes | Item
    after: timedelta = timedelta()
    telling: Telling = TOLD_ONCE

    @property
    def chat(self) -> tuple[Provider, str, str | None]:
        """The conversation that it belongs to."""
        return self.provider, self.account, self.contact


def notices_of(room: Room, line: Line) -> list[Notice]:
    """What is to be told of a line that the room has just taken in."""
    tell = _TELLERS.get((line["event"], line["provider"])) if "provider" in line else None
    return [] if tell is None else list(tell(room, line))


# --- TimelinesAI ---------------------------------------------------------------------------------


def _message_and_new_chat(room: Room, line: Line) -> Iterator[Notice]:
    message = _message(room, line)
    chat, account = room.chat(message.chat_id), room.account(message.account)
    if chat is None or account is None or not message.delivered or message.failed_at is not None:
        return
    telling = _telling(line)
    if len(room.history(chat.id)) == 1 and telling.times:
        yield _event(message, timelinesai_events.chat_event(message, chat, account), uid=None)
    event = timelinesai_events.message_event(message, chat)
    yield _event(message, event, uid=message.uid, telling=telling)


def _missed_call(room: Room, line: Line) -> Iterator[Notice]:
    call = _message(room, line)
    chat = room.chat(call.chat_id)
    if chat is not None:
        event = timelinesai_events.missed_call_event(call, chat)
        yield _event(call, event, uid=call.uid, telling=_telling(line))


def _reaction(room: Room, line: Line) -> Iterator[Notice]:
    chat = room.chat(line["chat_id"])
    if chat is not None:
        event = timelinesai_events.reaction_event(
            chat,
            message_uid=line["reacts_to"],
            emoji=line["emoji"],
            at=datetime.fromisoformat(line["message_at"]),
        )
        yield Notice(
            "timelinesai",
            event["event_type"],
            chat.account,
            chat.recipient,
            line["message_uid"],
            _bytes(event),
            telling=_telling(line),
        )


def _account(room: Room, line: Line) -> Iterator[Notice]:
    account = room.account(line["phone"])
    if account is not None and line.get("changed", False):
        event = timelinesai_events.account_event(account, at=datetime.fromisoformat(line["at"]))
        kind = event["event_type"]
        yield Notice("timelinesai", kind, account.phone, None, None, _bytes(event))


def _event(
    message: Message, event: dict[str, Any], *, uid: str | None, telling: Telling = TOLD_ONCE
) -> Notice:
    return Notice(
        "timelinesai",
        event["event_type"],
        message.account,
        message.contact,
        uid,
        _bytes(event),
        telling=telling,
    )


def _bytes(event: dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode("utf-8", "backslashreplace")


# --- Meta ----------------------------------------------------------------------------------------


def _received(room: Room, line: Line) -> Iterator[Notice]:
    message = _message(room, line)
    if not message.from_me:  # a number of the Cloud API has no handset to tell of
        item = meta_events.message_item(message)
        yield _item(item, message.contact, message.uid, telling=_telling(line))


def _reaction_to_meta(room: Room, line: Line) -> Iterator[Notice]:
    item = meta_events.reaction_item(
        account=line["account"],
        contact=line["contact"],
        uid=line["message_uid"],
        reacts_to=line["reacts_to"],
        emoji=line["emoji"],
        at=datetime.fromisoformat(line["message_at"]),
    )
    yield _item(item, line["contact"], line["message_uid"], telling=_telling(line))


def _statuses(room: Room, line: Line) -> Iterator[Notice]:
    message = _message(room, line)
    if not message.delivered or message.failed_at is not None:
        return
    for at, status in stages(message)[1:]:
        item = meta_events.status_item(message, status.lower(), at)
        yield _item(item, message.contact, message.uid, after=at - message.at)


def _failed(room: Room, line: Line) -> Iterator[Notice]:
    message = _message(room, line)
    error = line["code"], line["title"]
    at = datetime.fromisoformat(line["at"])
    item = meta_events.status_item(message, line["status"], at, error=error)
    yield _item(item, message.contact, message.uid)


def _item(
    item: Item,
    contact: str,
    uid: str,
    *,
    after: timedelta = timedelta(),
    telling: Telling = TOLD_ONCE,
) -> Notice:
    return Notice("meta", item.part, item.account, contact, uid, item, after, telling)


def _message(room: Room, line: Line) -> Message:
    message = room.message(line["message_uid"])
    assert message is not None, "the room took the line in"
    return message


def _telling(line: Line) -> Telling:
    """How whoever let the person write wants it told."""
    wanted = line.get("webhook")
    return TOLD_ONCE if wanted is None else Telling.from_line(wanted)


_Teller = Callable[[Room, Line], Iterator[Notice]]
_TELLERS: Mapping[tuple[str, str], _Teller] = {
    ("accepted", "timelinesai"): _message_and_new_chat,
    ("inbound", "timelinesai"): _message_and_new_chat,
    ("call", "timelinesai"): _missed_call,
    ("reaction", "timelinesai"): _reaction,
    ("account", "timelinesai"): _account,
    ("accepted", "meta"): _statuses,
    ("inbound", "meta"): _received,
    ("reaction", "meta"): _reaction_to_meta,
    ("status", "meta"): _failed,
}
