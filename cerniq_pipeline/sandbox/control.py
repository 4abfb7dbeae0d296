"""The control API: faults, journal, accounts, webhooks, players, and to write as a person would."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from cerniq_pipeline.sandbox.cast import BadPlay, PlaySettings
from cerniq_pipeline.sandbox.desk import Desk, Heard, Reaction
from cerniq_pipeline.sandbox.faults import PROVIDERS, TOLD_ONCE, BadFault, Telling
from cerniq_pipeline.sandbox.files import sample_file
from cerniq_pipeline.sandbox.house import House
from cerniq_pipeline.sandbox.journal import EVENTS, Event, Line
from cerniq_pipeline.sandbox.numbers import phone_number
from cerniq_pipeline.sandbox.page import overview
from cerniq_pipeline.sandbox.room import AccountStatus, Form, Provider
from cerniq_pipeline.sandbox.subscriptions import BadSubscription
from cerniq_pipeline.sandbox.wire import Answer, Request, html_answer, json_answer

PREFIX = "/_sandbox"
_STATUSES: tuple[AccountStatus, ...] = ("active", "disconnected")
_FORMS: tuple[Form, ...] = get_args(Form)
_PLACE = {"latitude": 44.4323, "longitude": 26.1063, "name": "Birou", "address": "București"}
_MAP_LINK = "https://maps.google.com/?q=44.4323,26.1063"
_TELLINGS: tuple[tuple[object, Telling], ...] = (
    (True, TOLD_ONCE),
    (False, Telling(times=0)),
    ("duplicate", Telling(times=2)),
)
_MESSAGE_KEYS = {"account", "from", "text", "type", "by_hand", "at", "webhook", "number_hidden"}
_REACTION_KEYS = {"account", "from", "type", "emoji", "reacts_to", "webhook"}
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


async def control(house: House, request: Request) -> Answer:
    """The answer to a request that is not for a provider."""
    known = False
    for method, pattern, handler in _ROUTES:
        if match := pattern.fullmatch(request.path):
            known = True
            if method == request.method or (method, request.method) == ("GET", "HEAD"):
                try:
                    return await handler(house, Asked(request, match))
                except (BadControl, BadFault, BadPlay, BadSubscription) as error:
                    return json_answer(400, {"error": str(error)})
    if known:
        return json_answer(405, {"error": "method not allowed"})
    return json_answer(404, {"error": "no such address"})


async def _show_page(house: House, _: Asked) -> Answer:
    page = overview(house.desk.room, house.desk.faults.all())
    return html_answer(200, page, headers=_SELF_CONTAINED)


async def _health(house: House, _: Asked) -> Answer:
    return json_answer(
        200,
        {
            "status": "ok",
            "accepted": house.desk.room.message_count(),
            "calls": dict(house.desk.calls),
            "faults": sum(fault.active for fault in house.desk.faults.all()),
            "next_n": house.desk.journal.next_n,
        },
    )


async def _add_fault(house: House, asked: Asked) -> Answer:
    content = _json(asked.request)
    if not isinstance(content, dict):
        raise BadControl("a fault is a JSON object")
    return json_answer(200, {"id": house.desk.faults.add(content).id})


async def _list_faults(house: House, _: Asked) -> Answer:
    return json_answer(200, {"faults": [fault.described() for fault in house.desk.faults.all()]})


async def _clear_faults(house: House, _: Asked) -> Answer:
    return json_answer(200, {"deleted": house.desk.faults.clear()})


async def _delete_fault(house: House, asked: Asked) -> Answer:
    if not house.desk.faults.remove(asked.path["id"]):
        return json_answer(404, {"error": f"no fault {asked.path['id']}"})
    return json_answer(200, {"deleted": 1})


async def _read_journal(house: House, asked: Asked) -> Answer:
    return await _lines(house, asked.request, _event(asked.request))


async def _read_statuses(house: House, asked: Asked) -> Answer:
    return await _lines(house, asked.request, "status")


async def _lines(house: House, request: Request, event: Event | None) -> Answer:
    after = request.query.get("after", "0")
    if not (after.isascii() and after.isdigit()):
        raise BadControl("after must be a whole number")
    lines = await house.desk.journal.read(after=int(after), event=event)
    return Answer(200, b'{"lines":[' + b",".join(lines) + b"]}")


async def _reset(house: House, _: Asked) -> Answer:
    await house.reset()
    return json_answer(200, {"status": "ok"})


async def _list_accounts(house: House, _: Asked) -> Answer:
    accounts = [
        {
            "phone": account.phone,
            "providers": account.providers,
            "status": account.status,
            "connected_on": account.connected_on.isoformat(timespec="microseconds"),
        }
        for account in house.desk.room.accounts()
    ]
    return json_answer(200, {"accounts": accounts})


async def _set_accounts(house: House, asked: Asked) -> Answer:
    content = _json(asked.request)
    if not isinstance(content, list):
        raise BadControl("accounts are a JSON list")
    wanted = [_account(entry) for entry in content]
    for phone, status, provider in wanted:
        house.desk.set_account(phone, status, provider)
    return await _list_accounts(house, asked)


async def _hear(house: House, asked: Asked) -> Answer:
    content = _json(asked.request)
    if not isinstance(content, dict):
        raise BadControl("a message is a JSON object")
    if content.get("type") == "reaction":
        line = _reacted(house.desk, content)
    else:
        line = house.desk.hear(_heard(content))
    await house.desk.journal.durable()
    told = ("message_uid", "chat_id", "account", "contact", "message_at", "n")
    return json_answer(200, {key: line[key] for key in told})


async def _show_webhooks(house: House, _: Asked) -> Answer:
    hooks = house.hooks
    told = {vendor: one.described() for vendor, one in hooks.subscriptions.all().items()}
    trouble = hooks.subscriptions.trouble
    return json_answer(200, {"webhooks": told, "waiting": hooks.waiting(), "trouble": trouble})


async def _put_webhooks(house: House, asked: Asked) -> Answer:
    house.hooks.subscriptions.put(_json(asked.request))
    return await _show_webhooks(house, asked)


async def _show_play(house: House, _: Asked) -> Answer:
    return json_answer(200, house.players.described())


async def _put_play(house: House, asked: Asked) -> Answer:
    house.players.play(PlaySettings.from_json(_json(asked.request)))
    return json_answer(200, house.players.described())


async def _stop_play(house: House, _: Asked) -> Answer:
    house.players.stop()
    return json_answer(200, house.players.described())


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
    _check_keys(content, _MESSAGE_KEYS)
    form = _form(content.get("type", "text"))
    text = content.get("text") or ("" if form != "location" else _MAP_LINK)
    if not isinstance(text, str) or not (text or form != "text"):
        raise BadControl("text must be a text; only a file may come without one")
    flags = {key: content.get(key, False) for key in ("by_hand", "number_hidden")}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise BadControl(f"{key} must be true or false")
    return Heard(
        account=_phone(content, "account"),
        contact=_phone(content, "from"),
        text=text,
        at=_moment(content.get("at")),
        form=form,
        attachment=sample_file(form),
        place=_PLACE if form == "location" else None,
        telling=_telling(content),
        **flags,
    )


def _reacted(desk: Desk, content: dict[str, Any]) -> Line:
    """Let a person put an emoji on a message: on the one that is named, or on the chat's last."""
    _check_keys(content, _REACTION_KEYS)
    account, contact = _phone(content, "account"), _phone(content, "from")
    emoji = content.get("emoji", "👍")
    if not isinstance(emoji, str) or not emoji:
        raise BadControl("emoji must be a text")
    known = desk.room.account(account)
    provider = known.home if known else "timelinesai"
    history = desk.room.history(desk.room.chat_id_for(account, contact, provider))
    uid = content.get("reacts_to", history[-1].uid if history else None)
    for message in history:
        if message.uid == uid:
            return desk.see_reaction(Reaction(message, emoji, _telling(content)))
    raise BadControl("reacts_to must be the id of a message of this chat")


def _check_keys(content: dict[str, Any], allowed: set[str]) -> None:
    unknown = content.keys() - allowed
    if unknown:
        raise BadControl(f"a message has no {', '.join(sorted(unknown))}")


def _form(written: object) -> Form:
    for form in _FORMS:
        if form == written:
            return form
    raise BadControl(f"type must be one of {', '.join(_FORMS)}, reaction")


def _telling(content: dict[str, Any]) -> Telling:
    wanted = content.get("webhook", True)
    for word, telling in _TELLINGS:
        if wanted is word or (isinstance(word, str) and wanted == word):
            return telling
    raise BadControl("webhook must be true, false or duplicate")


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


_Handler = Callable[[House, Asked], Awaitable[Answer]]
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
    ("GET", re.compile(rf"{PREFIX}/webhooks"), _show_webhooks),
    ("PUT", re.compile(rf"{PREFIX}/webhooks"), _put_webhooks),
    ("GET", re.compile(rf"{PREFIX}/play"), _show_play),
    ("PUT", re.compile(rf"{PREFIX}/play"), _put_play),
    ("DELETE", re.compile(rf"{PREFIX}/play"), _stop_play),
    ("POST", re.compile(rf"{PREFIX}/reset"), _reset),
    ("GET", re.compile(rf"{PREFIX}/accounts"), _list_accounts),
    ("PUT", re.compile(rf"{PREFIX}/accounts"), _set_accounts),
)
