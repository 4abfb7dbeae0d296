"""An incoming webhook of Slack: takes a text, answers in plain words."""

from __future__ import annotations

import re
from typing import NoReturn

from cerniq_pipeline.sandbox.doors import Act, ActEndpoint, Door, Refusal, Route, json_object
from cerniq_pipeline.sandbox.faults import Call, Failure
from cerniq_pipeline.sandbox.room import Room
from cerniq_pipeline.sandbox.wire import Answer, Request

PREFIX = "/slack"

_WORDS = {429: "rate_limited", 500: "rollup_error"}


def _post(_: Room, __: re.Match[str], request: Request) -> Act:
    body = json_object(request.body)
    if body is None:
        _refuse("invalid_payload")
    text, blocks = body.get("text"), body.get("blocks")
    if not (isinstance(text, str) and text) and not blocks:
        _refuse("no_text")
    fields = {"text": text if isinstance(text, str) else "", "blocks": blocks}
    return Act(Call("slack", provider="slack"), "slack", fields, _plain(200, "ok"))


def _refuse(word: str) -> NoReturn:
    raise Refusal(Failure(400, word, word))


def _failure(failure: Failure) -> Answer:
    """One word that says why; the status alone is for programs."""
    word = _WORDS.get(failure.status, failure.code or failure.message)
    return _plain(failure.status, word, headers=failure.headers)


def _plain(status: int, word: str, *, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    return Answer(status, word.encode(), "text/plain; charset=utf-8", headers)


SLACK_DOOR = Door(
    dialect="slack",
    provider="slack",
    prefix=PREFIX,
    routes=(Route("POST", re.compile(r"/services/.+"), ActEndpoint(_post)),),
    failure=_failure,
    authorise=lambda _: None,  # whoever knows the address may write
)
