"""The control API: set faults, read the journal, set accounts, write as a person would."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cerniq_pipeline.sandbox.desk import Desk, Heard
from cerniq_pipeline.sandbox.faults import PROVIDERS, BadFault
from cerniq_pipeline.sandbox.files import sample_file
from cerniq_pipeline.sandbox.journal import EVENTS, Event
from cerniq_pipeline.sandbox.numbers import phone_number
from cerniq_pipeline.sandbox.page import overview
from cerniq_pipeline.sandbox.room import AccountStatus, Attachment, Provider
from cerniq_pipeline.sandbox.wire import Answer, Request, html_answer, json_answer

PREFIX = "/_sandbox"
_STATUSES: tuple[AccountStatus, ...] = ("active", "disconnected")
_SAMPLES = {
    "image": "photo.jpg",
    "video": "video.mp4",
    "audio": "voice.ogg",
    "document": "document.pdf",
}
_SELF_CONTAINED = (
    ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("cache-control", "no-store"),
)


@dataclass(frozen=True)
class Asked:
    """One control request: what came, and the parts of its path."""

    request: Request
    path: re.Match[str]


class BadControl(Exception):
    """A control request that makes no sense, and why."""


async def control(desk: Desk, request: Request) -> Answer:
    """The answer to a request that is not for a provider."""
    known = False
    for method, pattern, handler in _ROUTES:
        if match := pattern.fullmatch(request.path):
            known = True
            if method == request.method or (method, request.method) == ("GET", "HEAD"):
                try:
                    return await handler(desk, Asked(request, match))
                except (BadControl, BadFault) as error:
                    return json_answer(400, {"error": str(error)})
    if known:
        return json_answer(405, {"error": "method not allowed"})
    return json_answer(404, {"error": "no such address"})


async def _show_page(desk: Desk, _: Asked) -> Answer:
    return html_answer(200, overview(desk.room, desk.faults.all()), headers=_SELF_CONTAINED)


async def _health(desk: Desk, _: Asked) -> Answer:
    return json_answer(
        200,
        {
            "status": "ok",
            "accepted": desk.room.message_count(),
            "calls": dict(desk.calls),
            "faults": sum(fault.active for fault in desk.faults.all()),
            "next_n": desk.journal.next_n,
        },
    )


async def _add_fault(desk: Desk, asked: Asked) -> Answer:
    content = _json(asked.request)
    if not isinstance(content, dict):
        raise BadControl("a fault is a JSON object")
    return json_answer(200, {"id": desk.faults.add(content).id})


async def _list_faults(desk: Desk, _: Asked) -> Answer:
    return json_answer(200, {"faults": [fault.described() for fault in desk.faults.all()]})


async def _clear_faults(desk: Desk, _: Asked) -> Answer:
    return json_answer(200, {"deleted": desk.faults.clear()})


async def _delete_fault(desk: Desk, asked: Asked) -> Answer:
    if not desk.faults.remove(asked.path["id"]):
        return json_answer(404, {"error": f"no fault {asked.path['id']}"})
    return json_answer(200, {"deleted": 1})


async def _read_journal(desk: Desk, asked: Asked) -> Answer:
    return await _lines(desk, asked.request, _event(asked.request))


async def _read_statuses(desk: Desk, asked: Asked) -> Answer:
    return await _lines(desk, asked.request, "status")


async def _lines(desk: Desk, request: Request, event: Event | None) -> Answer:
    after = request.query.get("after", "0")
    if not (after.isascii() and after.isdigit()):
        raise BadControl("after must be a whole number")
    lines = await desk.journal.read(after=int(after), event=event)
    return Answer(200, b'{"lines":[' + b",".join(lines) + b"]}")


async def _reset(desk: Desk, _: Asked) -> Answer:
    await desk.reset()
    return json_answer(200, {"status": "ok"})


async def _list_accounts(desk: Desk, _: Asked) -> Answer:
    accounts = [
        {
            "phone": account.phone,
            "providers": account.providers,
            "status": account.status,
            "connected_on": account.connected_on.isoformat(timespec="microseconds"),
        }
        for account in desk.room.accounts()
    ]
    return json_answer(200, {"accounts": accounts})


async def _set_accounts(desk: Desk, asked: Asked) -> Answer:
    content = _json(asked.request)
    if not isinstance(content, list):
        raise BadControl("accounts are a JSON list")
    wanted = [_account(entry) for entry in content]
    for phone, status, provider in wanted:
        desk.set_account(phone, status, provider)
    return await _list_accounts(desk, asked)


async def _hear(desk: Desk, asked: Asked) -> Answer:
    content = _json(asked.request)
    if not isinstance(content, dict):
        raise BadControl("a message is a JSON object")
    line = desk.hear(_heard(content))
    await desk.journal.durable()
    told = ("message_uid", "chat_id", "account", "contact", "message_at", "n")
    return json_answer(200, {key: line[key] for key in told})


def link_new_accounts(desk: Desk, entries: list[Any]) -> None:
    """Link the phones of this list that were never seen; what is known of the others stays."""
    for phone, status, provider in map(_account, entries):
        if desk.room.account(phone) is None:
            desk.set_account(phone, status, provider)


def _account(entry: object) -> tuple[str, AccountStatus, Provider | None]:
    fields = entry if isinstance(entry, dict) else {}
    phone = _phone(fields, "phone")
    status = fields.get("status", "active")
    if status not in _STATUSES:
        raise BadControl(f"status must be one of {', '.join(_STATUSES)}")
    provider = fields.get("provider")
    if provider is not None and provider not in PROVIDERS:
        raise BadControl(f"provider must be one of {', '.join(PROVIDERS)}")
    return phone, status, provider


def _heard(content: dict[str, Any]) -> Heard:
    unknown = content.keys() - {"account", "from", "text", "type", "by_hand", "at"}
    if unknown:
        raise BadControl(f"a message has no {', '.join(sorted(unknown))}")
    text = content.get("text") or ""
    attachment = _sample(content.get("type", "text"))
    if not isinstance(text, str) or not (text or attachment):
        raise BadControl("text must be a text; only a file may come without one")
    by_hand = content.get("by_hand", False)
    if not isinstance(by_hand, bool):
        raise BadControl("by_hand must be true or false")
    return Heard(
        account=_phone(content, "account"),
        contact=_phone(content, "from"),
        text=text,
        by_hand=by_hand,
        at=_moment(content.get("at")),
        attachment=attachment,
    )


def _sample(kind: object) -> Attachment | None:
    """A file of the wanted kind, or None for a plain text."""
    if kind == "text":
        return None
    if not isinstance(kind, str) or kind not in _SAMPLES:
        raise BadControl(f"type must be one of text, {', '.join(_SAMPLES)}")
    return sample_file(_SAMPLES[kind])


def _phone(fields: dict[str, Any], key: str) -> str:
    written = fields.get(key)
    phone = phone_number(written) if isinstance(written, str) else None
    if phone is None:
        raise BadControl(f"{key} must be a phone number like +40700000001, not {written!r}")
    return phone


def _moment(written: object) -> datetime | None:
    if written is None:
        return None
    try:
        moment = datetime.fromisoformat(written) if isinstance(written, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadControl("at must be a time with an offset, like 2026-01-15T12:00:00+02:00")
    return moment


def _event(request: Request) -> Event | None:
    name = request.query.get("kind")
    if name is None:
        return None
    for event in EVENTS:
        if event == name:
            return event
    raise BadControl(f"kind must be one of {', '.join(EVENTS)}")


def _json(request: Request) -> Any:
    try:
        return json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise BadControl("the body is not JSON") from error


_Handler = Callable[[Desk, Asked], Awaitable[Answer]]
_ROUTES: tuple[tuple[str, re.Pattern[str], _Handler], ...] = (
    ("GET", re.compile(r"/"), _show_page),
    ("GET", re.compile(rf"{PREFIX}/health"), _health),
    ("GET", re.compile(rf"{PREFIX}/faults"), _list_faults),
    ("POST", re.compile(rf"{PREFIX}/faults"), _add_fault),
    ("DELETE", re.compile(rf"{PREFIX}/faults"), _clear_faults),
    ("DELETE", re.compile(rf"{PREFIX}/faults/(?P<id>[^/]+)"), _delete_fault),
    ("GET", re.compile(rf"{PREFIX}/journal"), _read_journal),
    ("GET", re.compile(rf"{PREFIX}/statuses"), _read_statuses),
    ("POST", re.compile(rf"{PREFIX}/inbound"), _hear),
    ("POST", re.compile(rf"{PREFIX}/reset"), _reset),
    ("GET", re.compile(rf"{PREFIX}/accounts"), _list_accounts),
    ("PUT", re.compile(rf"{PREFIX}/accounts"), _set_accounts),
)
