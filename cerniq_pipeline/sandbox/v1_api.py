"""The `v1` addresses of the documents: the same room through another door."""

from __future__ import annotations

import re
from datetime import datetime
from http import HTTPStatus
from typing import Any

from cerniq_pipeline.sandbox.doors import (
    Body,
    Door,
    Query,
    Read,
    ReadEndpoint,
    Route,
    html_page,
    invalid,
    not_found,
)
from cerniq_pipeline.sandbox.faults import Call, Failure
from cerniq_pipeline.sandbox.numbers import account_phone
from cerniq_pipeline.sandbox.public_api import chat_url
from cerniq_pipeline.sandbox.room import Message, Room, View, reached
from cerniq_pipeline.sandbox.sending import SendForm, by_form
from cerniq_pipeline.sandbox.wire import Answer, html_answer, json_answer

PREFIX = "/v1"
DEFAULT_LIMIT = 100


def _to_phone_or_chat(_: re.Match[str], body: Body) -> SendForm:
    if body.get("chat_id") is not None:
        return SendForm("chat_message", text="message", chat_id=body["chat_id"])
    return SendForm(
        "message", text="message", recipient="recipient", sender="phone", sender_required=True
    )


def _media(_: re.Match[str], body: Body) -> SendForm:
    return SendForm("chat_message", text="caption", chat_id=body.get("chat_id"), link="media_url")


def _accepted(message: Message) -> Answer:
    return json_answer(
        200,
        {
            "message_id": message.uid,
            "chat_id": message.chat_id,
            "chat_url": chat_url(message.chat_id),
        },
    )


def _read_history(room: Room, path: re.Match[str], query: Query) -> Read:
    chat = room.chat(int(path["chat_id"]))
    if chat is None:
        raise not_found(f"Chat {path['chat_id']} not found")
    limit = _limit(query)

    def answer(view: View) -> Answer:
        written = [message for message in room.history(chat.id) if message.form != "call"]
        newest_first = view.of(written)[::-1]
        told = [message_info(message, now=view.now) for message in newest_first[:limit]]
        return json_answer(200, {"messages": told})

    return Read(Call("history", phone=chat.account, recipient=chat.recipient), answer)


def _read_account_status(room: Room, path: re.Match[str], _: Query) -> Read:
    phone = account_phone(path["account"])
    account = None if phone is None else room.account(phone)
    if account is None:
        raise not_found(f"Account {path['account']} not found")
    content = {"connected": account.status == "active"}
    return Read(Call("accounts", phone=account.phone), lambda _: json_answer(200, content))


def message_info(message: Message, *, now: datetime) -> dict[str, Any]:
    """A message in the words that the v1 addresses use for sending."""
    return {
        "message_id": message.uid,
        "chat_id": message.chat_id,
        "phone": message.sender,
        "recipient": message.recipient,
        "message": message.text,
        "from_me": message.from_me,
        "origin": message.origin,
        "has_attachment": message.attachment is not None,
        "status": reached(message, now=now)[-1][1].lower(),
        "timestamp": message.at.isoformat(timespec="microseconds"),
    }


def _limit(query: Query) -> int:
    written = query.get("limit", str(DEFAULT_LIMIT))
    if not (written.isascii() and written.isdigit()) or int(written) < 1:
        raise invalid("limit must be a whole number, 1 or more", field="limit")
    return int(written)


def _failure(failure: Failure) -> Answer:
    if failure.shape == "html":
        return html_answer(failure.status, html_page(failure), headers=failure.headers)
    word = failure.code if failure.shape == "envelope" else HTTPStatus(failure.status).phrase
    content = {"status": "error", "error": word, "message": failure.message}
    return json_answer(failure.status, content, headers=failure.headers)


V1_DOOR = Door(
    dialect="v1",
    provider="timelinesai",
    prefix=PREFIX,
    routes=(
        Route("POST", re.compile(r"/messages/send"), by_form(_to_phone_or_chat)),
        Route("POST", re.compile(r"/messages/send-media"), by_form(_media)),
        Route("GET", re.compile(r"/chats/(?P<chat_id>\d+)/messages"), ReadEndpoint(_read_history)),
        Route(
            "GET",
            re.compile(r"/accounts/(?P<account>[^/]+)/status"),
            ReadEndpoint(_read_account_status),
        ),
    ),
    failure=_failure,
    accepted=_accepted,
)
