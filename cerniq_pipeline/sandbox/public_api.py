"""The vendor's public API: paths, envelopes, filters and field names."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from cerniq_pipeline.sandbox.doors import (
    Act,
    ActEndpoint,
    Body,
    Door,
    Endpoint,
    Query,
    Read,
    ReadEndpoint,
    Refusal,
    Route,
    html_page,
    invalid,
    json_object,
    not_found,
)
from cerniq_pipeline.sandbox.faults import Call, Failure
from cerniq_pipeline.sandbox.files import (
    UPLOAD_BODY_LIMIT,
    download_url,
    linked_file,
    new_file,
    parts_of,
    too_large,
)
from cerniq_pipeline.sandbox.numbers import address_of, is_group, jid_of, sanitised
from cerniq_pipeline.sandbox.room import Account, Attachment, Chat, Message, Room, View, reached
from cerniq_pipeline.sandbox.sending import SendForm, by_form
from cerniq_pipeline.sandbox.wire import Answer, Request, html_answer, json_answer

PREFIX = "/integrations/api"
PAGE_SIZE = 50
WORKSPACE_ZONE = ZoneInfo("Europe/Bucharest")
MESSAGE_QUOTA = 1_000_000

Item = TypeVar("Item")

_SPACE_BEFORE_OFFSET = re.compile(r"\s+(?=[+-]\d{2}:?\d{2}$)")
_DATE_ONLY = re.compile(r"\d{4}-\d{2}-\d{2}")


# --- sending -------------------------------------------------------------------------------------


def _to_phone(_: re.Match[str], __: Body) -> SendForm:
    return SendForm(
        "message",
        text="text",
        recipient="phone",
        sender="whatsapp_account_phone",
        file_uid="file_uid",
    )


def _to_jid(_: re.Match[str], __: Body) -> SendForm:
    return SendForm(
        "message",
        text="text",
        recipient="jid",
        recipient_is_jid=True,
        sender="whatsapp_account_phone",
        file_uid="file_uid",
    )


def _to_chat(path: re.Match[str], _: Body) -> SendForm:
    return SendForm("chat_message", text="text", chat_id=path["chat_id"], file_uid="file_uid")


def _accepted(message: Message) -> Answer:
    return _ok({"message_uid": message.uid})


# --- files ---------------------------------------------------------------------------------------


def _upload(_: Room, __: re.Match[str], request: Request) -> Act:
    parts = parts_of(request.headers, request.body)
    if parts is None or "file" not in parts:
        raise invalid("Missing data for required field", field="file")
    named = {
        key: part.content.decode("utf-8", "replace")
        for key, part in parts.items()
        if key in ("filename", "content_type")
    }
    return _kept(
        new_file(parts["file"], filename=named.get("filename"), mimetype=named.get("content_type"))
    )


def _fetch(_: Room, __: re.Match[str], request: Request) -> Act:
    body = json_object(request.body)
    if body is None:
        raise invalid("Bad JSON format")
    words = {key: value for key, value in body.items() if isinstance(value, str) and value}
    if "download_url" not in words:
        raise invalid("Missing data for required field", field="download_url")
    file = linked_file(
        words["download_url"],
        filename=words.get("filename"),
        mimetype=words.get("content_type"),
    )
    if file is None:
        raise invalid("Not a valid URL", field="download_url")
    return _kept(replace(file, uid=str(uuid.uuid4())))


def _kept(file: Attachment) -> Act:
    if too_large(file):
        raise Refusal(Failure(413, "file_too_large", "File is too large"))
    answer = _ok(
        {
            "uid": file.uid,
            "filename": file.filename,
            "size": file.size,
            "mimetype": file.mimetype,
            "temporary_download_url": download_url(file),
        }
    )
    return Act(Call("upload"), "upload", {"attachment": file.described()}, answer)


# --- reading -------------------------------------------------------------------------------------


def _read_history(room: Room, path: re.Match[str], query: Query) -> Read:
    chat = _known_chat(room, path)
    page = _page(query)
    keep = _history_filter(room, query)
    oldest_first = _choice(query, "sorting_order", ("asc", "desc"), default="desc") == "asc"

    def answer(view: View) -> Answer:
        messages = [message for message in view.of(room.history(chat.id)) if keep(message)]
        if not oldest_first:
            messages.reverse()
        shown, more = _page_of(messages, page)
        told = [message_info(message, now=view.now) for message in shown]
        return _ok({"has_more_pages": more, "messages": told})

    return Read(Call("history", phone=chat.account, recipient=chat.recipient), answer)


def _read_chats(room: Room, _: re.Match[str], query: Query) -> Read:
    page = _page(query)
    keep = _chat_filter(query)
    with_message = _flag(query, "with_msg") or False
    read = _flag(query, "read")
    accounts = _listed(query, "whatsapp_account_id")

    def answer(view: View) -> Answer:
        found: list[tuple[Chat, Message]] = []
        for chat in room.chats():
            shown = view.of(room.history(chat.id)) if keep(chat) else []
            if shown and read in (None, shown[-1].from_me):
                found.append((chat, shown[-1]))
        found.sort(key=lambda pair: pair[0].recipient)
        found.sort(key=lambda pair: pair[1].at, reverse=True)
        shown, more = _page_of(found, page)
        told = [
            chat_info(room, chat, last, now=view.now, with_message=with_message)
            for chat, last in shown
        ]
        return _ok({"has_more_pages": more, "chats": told})

    only = address_of(accounts[0]) if accounts and len(accounts) == 1 else None
    phone = query.get("phone", "")
    return Read(Call("chats", phone=only, recipient=phone or None), answer)


def _read_chat(room: Room, path: re.Match[str], _: Query) -> Read:
    chat = _known_chat(room, path)

    def answer(view: View) -> Answer:
        last = room.history(chat.id)[-1]
        return _ok(chat_info(room, chat, last, now=view.now, with_message=True))

    return Read(Call("chats", phone=chat.account, recipient=chat.recipient), answer)


def _read_message(room: Room, path: re.Match[str], _: Query) -> Read:
    message = _known_message(room, path["uid"])
    call = Call("history", phone=message.account, recipient=message.contact)
    return Read(call, lambda view: _ok(message_info(message, now=view.now)))


def _read_statuses(room: Room, path: re.Match[str], _: Query) -> Read:
    message = _known_message(room, path["uid"])

    def answer(view: View) -> Answer:
        steps = reached(message, now=view.now)
        return _ok([{"status": status, "timestamp": vendor_time(at)} for at, status in steps])

    return Read(Call("history", phone=message.account, recipient=message.contact), answer)


def _read_accounts(room: Room, _: re.Match[str], __: Query) -> Read:
    def answer(_: View) -> Answer:
        linked = [one for one in room.accounts() if "timelinesai" in one.providers]
        return _ok({"whatsapp_accounts": [account_info(one) for one in linked]})

    return Read(Call("accounts"), answer)


def _read_workspace(room: Room, _: re.Match[str], __: Query) -> Read:
    def answer(_: View) -> Answer:
        used = room.message_count("timelinesai")
        return _ok(
            {
                "workspace_id": "sandbox",
                "display_name": "Sandbox",
                "plan": "Business",
                "seats": {"total": 100, "used": len(room.accounts())},
                "messaging_quota": {"total": MESSAGE_QUOTA, "used": used},
                "api_calls_quota": {"total": MESSAGE_QUOTA, "used": used},
            }
        )

    return Read(Call("accounts"), answer)


# --- the vendor's objects ------------------------------------------------------------------------


def vendor_time(at: datetime) -> str:
    """A moment as the vendor writes it, in the workspace's time zone."""
    return at.astimezone(WORKSPACE_ZONE).strftime("%Y-%m-%d %H:%M:%S %z")


def chat_url(chat_id: int) -> str:
    """Where a person would read the chat."""
    return f"https://app.timelines.ai/chat/{chat_id}/messages/"


def message_info(message: Message, *, now: datetime) -> dict[str, Any]:
    """A message as the vendor shows it."""
    group = is_group(message.contact)
    file = message.attachment
    return {
        "uid": message.uid,
        "chat_id": message.chat_id,
        "timestamp": vendor_time(message.at),
        "received_timestamp": vendor_time(message.known_at),
        "sender_phone": message.sender,
        "sender_name": message.sender,
        "recipient_phone": "" if group else message.recipient,
        "recipient_name": message.recipient,
        "from_me": message.from_me,
        "text": message.text,
        "attachment_url": file and download_url(file),
        "attachment_filename": file and file.filename,
        "status": reached(message, now=now)[-1][1],
        "origin": message.origin,
        "has_attachment": file is not None,
        "message_type": "whatsapp_call" if message.form == "call" else "whatsapp",
        "data": {},
        "created_by": "",
    }


def chat_info(
    room: Room, chat: Chat, last: Message, *, now: datetime, with_message: bool
) -> dict[str, Any]:
    """A chat as the vendor shows it, `last` being its newest visible message."""
    group = is_group(chat.recipient)
    account = room.account(chat.account)
    info: dict[str, Any] = {
        "id": chat.id,
        "name": chat.recipient,
        "phone": None if group else chat.recipient,
        "jid": jid_of(chat.recipient),
        "is_group": group,
        "closed": False,
        "read": last.from_me,
        "labels": [],
        "chatgpt_autoresponse_enabled": False,
        "responsible_email": None,
        "responsible_name": None,
        "whatsapp_account_id": jid_of(chat.account),
        "chat_url": chat_url(chat.id),
        "created_timestamp": vendor_time(chat.created_at),
        "last_message_uid": last.uid,
        "last_message_timestamp": vendor_time(last.at),
        "unattended": not last.from_me,
        "photo": "",
        "group_members": [],
        "is_allowed_to_message": account is not None and account.status == "active",
    }
    return {**info, "last_message": message_info(last, now=now)} if with_message else info


def account_info(account: Account) -> dict[str, Any]:
    """An account as the vendor shows it."""
    return {
        "id": jid_of(account.phone),
        "phone": account.phone,
        "connected_on": vendor_time(account.connected_on),
        "status": account.status,
        "owner_name": "Sandbox",
        "owner_email": "sandbox@example.test",
        "account_name": account.phone,
    }


# --- questions -----------------------------------------------------------------------------------


def _known_chat(room: Room, path: re.Match[str]) -> Chat:
    chat = room.chat(int(path["chat_id"]))
    if chat is None:
        raise not_found(f"Whatsapp chat_id {path['chat_id']} not found")
    return chat


def _known_message(room: Room, uid: str) -> Message:
    message = room.message(uid)
    if message is None or message.provider != "timelinesai":
        raise not_found(f"Message {uid} not found")
    return message


def _history_filter(room: Room, query: Query) -> Callable[[Message], bool]:
    """Whether a message passes every filter that was asked for."""
    from_me = _flag(query, "from_me")
    after, before = _moment(query, "after"), _moment(query, "before", end_of_day=True)
    after_message = _marker(room, query, "after_message")
    before_message = _marker(room, query, "before_message")

    def keep(message: Message) -> bool:
        # WhatsApp's own times have whole seconds, so that is what a filter compares.
        second = message.at.replace(microsecond=0)
        return (
            from_me in (None, message.from_me)
            and (after is None or second >= after)
            and (before is None or second <= before)
            and (after_message is None or message.at > after_message.at)
            and (before_message is None or message.at < before_message.at)
        )

    return keep


def _chat_filter(query: Query) -> Callable[[Chat], bool]:
    """Whether a chat passes every filter that was asked for."""
    phone = sanitised(query["phone"]) if query.get("phone") else None
    accounts = _listed(query, "whatsapp_account_id")
    group, closed = _flag(query, "group"), _flag(query, "closed")
    labels = _listed(query, "label")
    names = _listed(query, "name")
    after, before = _moment(query, "created_after"), _moment(query, "created_before")

    def keep(chat: Chat) -> bool:
        return (
            (phone is None or _phone_fits(chat, phone))
            and (accounts is None or jid_of(chat.account) in accounts)
            and (group is None or group == is_group(chat.recipient))
            and closed is not True
            and labels is None
            and (names is None or any(name.lower() in chat.recipient.lower() for name in names))
            and (after is None or chat.created_at >= after)
            and (before is None or chat.created_at <= before)
        )

    return keep


def _phone_fits(chat: Chat, phone: str) -> bool:
    """Exact with a plus; without one, the number is looked for inside, as the vendor does."""
    if is_group(chat.recipient):
        return False
    return chat.recipient == phone if phone.startswith("+") else phone.lstrip("0") in chat.recipient


def _page(query: Query) -> int:
    written = query.get("page", "1")
    if not (written.isascii() and written.isdigit()) or int(written) < 1:
        raise invalid("Not a valid page number", field="page")
    return int(written)


def _page_of(items: Sequence[Item], page: int) -> tuple[Sequence[Item], bool]:
    start = (page - 1) * PAGE_SIZE
    return items[start : start + PAGE_SIZE], len(items) > start + PAGE_SIZE


def _flag(query: Query, name: str) -> bool | None:
    if name not in query:
        return None
    return _choice(query, name, ("true", "false"), default="true") == "true"


def _choice(query: Query, name: str, allowed: tuple[str, ...], *, default: str) -> str:
    value = query.get(name, default).lower()
    if value not in allowed:
        raise invalid(f"Must be one of: {', '.join(allowed)}", field=name)
    return value


def _listed(query: Query, name: str) -> list[str] | None:
    written = query.get(name)
    return [part.strip() for part in written.split(",")] if written else None


def _marker(room: Room, query: Query, name: str) -> Message | None:
    uid = query.get(name)
    return _known_message(room, uid) if uid else None


def _moment(query: Query, name: str, *, end_of_day: bool = False) -> datetime | None:
    """A date or a time in ISO form or in the vendor's own; without an offset, workspace time."""
    written = query.get(name)
    if not written:
        return None
    try:
        moment = datetime.fromisoformat(_SPACE_BEFORE_OFFSET.sub("", written.strip()))
    except ValueError as error:
        raise invalid("Not a valid datetime", field=name) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=WORKSPACE_ZONE)
    if end_of_day and _DATE_ONLY.fullmatch(written.strip()):
        return moment + timedelta(days=1) - timedelta(microseconds=1)
    return moment


# --- envelopes -----------------------------------------------------------------------------------


def _ok(data: object) -> Answer:
    return json_answer(200, {"status": "ok", "data": data})


def _failure(failure: Failure) -> Answer:
    if failure.shape == "html":
        return html_answer(failure.status, html_page(failure), headers=failure.headers)
    if failure.shape == "plain":
        content = {"error": HTTPStatus(failure.status).phrase, "message": failure.message}
        return json_answer(failure.status, content, headers=failure.headers)
    content: dict[str, Any] = {
        "status": "error",
        "message": failure.message,
        "error_code": failure.code,
    }
    if failure.field is not None:
        content["errors"] = [{"fields": [failure.field], "msg": failure.message}]
    return json_answer(failure.status, content, headers=failure.headers)


def _route(method: str, path: str, endpoint: Endpoint) -> Route:
    return Route(method, re.compile(path), endpoint)


_post = partial(_route, "POST")
_get = partial(_route, "GET")

_CHAT = r"/chats/(?P<chat_id>\d+)"
_MESSAGE = r"/messages/(?P<uid>[^/]+)"

PUBLIC_DOOR = Door(
    dialect="public",
    provider="timelinesai",
    prefix=PREFIX,
    routes=(
        _post(r"/messages", by_form(_to_phone)),
        _post(r"/messages/to_jid", by_form(_to_jid)),
        _post(rf"{_CHAT}/messages", by_form(_to_chat)),
        _post(r"/files", ActEndpoint(_fetch)),
        _post(r"/files_upload", ActEndpoint(_upload, body_limit=UPLOAD_BODY_LIMIT)),
        _get(rf"{_CHAT}/messages", ReadEndpoint(_read_history)),
        _get(r"/chats", ReadEndpoint(_read_chats)),
        _get(_CHAT, ReadEndpoint(_read_chat)),
        _get(_MESSAGE, ReadEndpoint(_read_message)),
        _get(rf"{_MESSAGE}/status_history", ReadEndpoint(_read_statuses)),
        _get(r"/whatsapp_accounts", ReadEndpoint(_read_accounts)),
        _get(r"/workspace", ReadEndpoint(_read_workspace)),
    ),
    failure=_failure,
    accepted=_accepted,
)
