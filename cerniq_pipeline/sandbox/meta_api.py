"""Meta's WhatsApp Cloud API, as far as a sender uses it.

Two conventions of this sandbox, where Meta hands out ids of its own. The phone-number-id of
+40790000000 is `140790000000`: a 1, then the digits. The id of a file is a 4 and fifteen digits.
"""

from __future__ import annotations

import base64
import random
import re
import uuid
from collections.abc import Mapping
from typing import Any, NoReturn

from cerniq_pipeline.sandbox.doors import (
    Act,
    ActEndpoint,
    Body,
    Door,
    Draft,
    Endpoint,
    Query,
    Read,
    ReadEndpoint,
    Refusal,
    Route,
    Sendable,
    SendEndpoint,
    html_page,
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
from cerniq_pipeline.sandbox.numbers import phone_number
from cerniq_pipeline.sandbox.room import Attachment, Message, Room
from cerniq_pipeline.sandbox.wire import Answer, Request, html_answer, json_answer

PREFIX = "/v23.0"
TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024

_MEDIA: tuple[str, ...] = ("image", "video", "document", "audio")
_TYPES: tuple[str, ...] = ("text", "template", *_MEDIA)

# What a status means when nothing more is known.
_CODES = {401: 190, 403: 10, 429: 130429}
_TRANSIENT = {4, 80007, 130429, 131000, 131016, 131056, 131057}
_INVALID, _MISSING, _NOT_ALLOWED, _BAD_MEDIA = 100, 131008, 131009, 131053
_UNKNOWN_TYPE, _NOT_REGISTERED, _SOMETHING_WRONG = 131051, 131045, 131000


# --- sending -------------------------------------------------------------------------------------


def _draft(room: Room, path: re.Match[str], body: Body) -> Draft:
    """What can be made out of a request without judging it."""
    sender = _phone_of(path["phone_id"])
    to = _words(body, "to")
    recipient = None if to is None else phone_number(to) or to
    return Draft(
        kind="message",
        sender=sender,
        asked_sender=sender,
        recipient=recipient,
        chat_id=None,
        text=_text(body),
        attachment=_attachment(room, body),
        template=_object(body, "template"),
    )


def _check(room: Room, path: re.Match[str], body: Body) -> Sendable:
    """The message to send, or a Refusal in Meta's numbers."""
    if body.get("messaging_product") != "whatsapp":
        _refuse(_INVALID, "The parameter messaging_product is required.")
    sender, recipient = _phone_of(path["phone_id"]), _recipient(body)
    kind = body.get("type", "text")
    if kind not in _TYPES:
        _refuse(_UNKNOWN_TYPE, f"Unsupported message type {kind!r}")
    if _object(body, kind) is None:
        _refuse(_MISSING, f"The parameter {kind} is required.")
    attachment = _checked_attachment(room, body, kind) if kind in _MEDIA else None
    account = room.account(sender)
    if account is not None and account.status != "active":
        _refuse(_NOT_REGISTERED, "The phone number is not connected.")
    return Sendable(
        sender,
        recipient,
        _checked_text(body, kind),
        attachment,
        needs_window=kind != "template",
        callback=_words(body, "biz_opaque_callback_data"),
    )


def _recipient(body: Body) -> str:
    written = _words(body, "to")
    if not written:
        _refuse(_MISSING, "The parameter to is required.")
    recipient = phone_number(written)
    if recipient is None:
        _refuse(_NOT_ALLOWED, "The parameter to is not a valid phone number.")
    return recipient


def _checked_text(body: Body, kind: str) -> str:
    text = _text(body) or ""
    if kind == "text" and not text:
        _refuse(_MISSING, "The parameter text['body'] is required.")
    if kind == "template" and not text:
        _refuse(_MISSING, "A template needs a name and a language code.")
    limit = TEXT_LIMIT if kind == "text" else CAPTION_LIMIT
    if kind != "template" and len(text) > limit:
        _refuse(_INVALID, f"Text must be at most {limit} characters long.")
    if kind == "audio" and text:
        _refuse(_INVALID, "An audio message has no caption.")
    return text


def _checked_attachment(room: Room, body: Body, kind: str) -> Attachment:
    media = _object(body, kind) or {}
    if (_words(media, "id") is None) == (_words(media, "link") is None):
        _refuse(_MISSING, f"The parameter {kind} needs either an id or a link.")
    attachment = _attachment(room, body)
    if attachment is None:
        _refuse(_NOT_ALLOWED, f"The {kind} was not found.")
    return attachment


def _text(body: Body) -> str | None:
    """What the person will read, as far as it stands in the request.

    Of a template the vendor has the wording and we the name: `[template intro_ro ro] Ana`.
    """
    kind = body.get("type", "text")
    content = _object(body, kind) if isinstance(kind, str) else None
    if content is None:
        return None
    if kind != "template":
        return _words(content, "body" if kind == "text" else "caption")
    name, code = _words(content, "name"), _words(_object(content, "language") or {}, "code")
    if not name or not code:
        return None
    return " ".join([f"[template {name} {code}]", ", ".join(_parameters(content))]).rstrip()


def _parameters(template: Body) -> list[str]:
    """The texts that fill the holes of a template, in order."""
    return [
        parameter["text"]
        for component in _objects(template, "components")
        for parameter in _objects(component, "parameters")
        if isinstance(parameter.get("text"), str)
    ]


def _attachment(room: Room, body: Body) -> Attachment | None:
    kind = body.get("type")
    media = _object(body, kind) if kind in _MEDIA and isinstance(kind, str) else None
    if media is None:
        return None
    if media_id := _words(media, "id"):
        return room.file(media_id, "meta")
    link = _words(media, "link")
    return linked_file(link, filename=_words(media, "filename")) if link else None


def _accepted(message: Message) -> Answer:
    digits = message.recipient.removeprefix("+")
    return json_answer(
        200,
        {
            "messaging_product": "whatsapp",
            "contacts": [{"input": digits, "wa_id": digits}],
            "messages": [{"id": message.uid, "message_status": "accepted"}],
        },
    )


def new_wamid(recipient: str) -> str:
    """An id for a message to or from this person, the way Meta makes them."""
    inside = f"{recipient.removeprefix('+')}:{uuid.uuid4().hex}".encode()
    return f"wamid.HBg{base64.b64encode(inside).decode().rstrip('=')}"


# --- files ---------------------------------------------------------------------------------------


def _upload(_: Room, path: re.Match[str], request: Request) -> Act:
    parts = parts_of(request.headers, request.body) or {}
    product = parts.get("messaging_product")
    if product is None or product.content != b"whatsapp":
        _refuse(_INVALID, "The parameter messaging_product is required.")
    if "file" not in parts:
        _refuse(_INVALID, "The parameter file is required.")
    named = parts.get("type")
    mimetype = named.content.decode("utf-8", "replace") if named else None
    file = new_file(
        parts["file"],
        mimetype=mimetype if mimetype and "/" in mimetype else None,
        new_uid=new_media_id,
    )
    if too_large(file):
        _refuse(_BAD_MEDIA, "The file is too large.")
    phone = _phone_of(path["phone_id"])
    call = Call("upload", phone=phone, provider="meta")
    fields = {"phone": phone, "attachment": file.described()}
    return Act(call, "upload", fields, json_answer(200, {"id": file.uid}))


def new_media_id() -> str:
    """An id for a file, the way this stand-in for Meta makes them."""
    return f"4{random.randrange(10**15):015}"


def _read_file(room: Room, path: re.Match[str], _: Query) -> Read:
    file = _known_file(room, path["media_id"])
    content = {
        "id": file.uid,
        "url": download_url(file),
        "mime_type": file.mimetype,
        "sha256": file.sha256,
        "file_size": file.size,
        "messaging_product": "whatsapp",
    }
    return Read(Call("upload", provider="meta"), lambda _: json_answer(200, content))


def _delete_file(room: Room, path: re.Match[str], _: Request) -> Act:
    file = _known_file(room, path["media_id"])
    answer = json_answer(200, {"success": True})
    return Act(Call("upload", provider="meta"), "deleted", {"uid": file.uid}, answer)


def _known_file(room: Room, media_id: str) -> Attachment:
    file = room.file(media_id, "meta")
    if file is None:
        _refuse(_INVALID, f"Object with ID {media_id} does not exist.")
    return file


# --- phones --------------------------------------------------------------------------------------


def _read_phone(room: Room, path: re.Match[str], _: Query) -> Read:
    phone = _phone_of(path["phone_id"])
    account = room.account(phone)
    if account is None:
        _refuse(_INVALID, f"Object with ID {path['phone_id']} does not exist.")
    content = {
        "id": path["phone_id"],
        "display_phone_number": phone,
        "verified_name": "Sandbox",
        "quality_rating": "GREEN",
        "status": "CONNECTED" if account.status == "active" else "DISCONNECTED",
    }
    call = Call("accounts", phone=phone, provider="meta")
    return Read(call, lambda _: json_answer(200, content))


def _phone_of(phone_id: str) -> str:
    return f"+{phone_id.removeprefix('1')}"


# --- yes and no ----------------------------------------------------------------------------------


def _refuse(code: int, details: str) -> NoReturn:
    raise Refusal(Failure(400, "validation_error", details, meta_code=code))


def _failure(failure: Failure) -> Answer:
    """An error as Meta words it; only a page of something in front of it looks different."""
    if failure.shape == "html":
        return html_answer(failure.status, html_page(failure), headers=failure.headers)
    status = failure.meta_status or failure.status
    code = failure.meta_code
    if code is None:
        whoever = _INVALID if 400 <= status < 500 else _SOMETHING_WRONG
        code = _CODES.get(status, whoever)
    content = {
        "error": {
            "message": f"(#{code}) {failure.message}",
            "type": "OAuthException",
            "code": code,
            "error_data": {"messaging_product": "whatsapp", "details": failure.message},
            "fbtrace_id": f"A{uuid.uuid4().hex[:22]}",
            "is_transient": code in _TRANSIENT,
        }
    }
    return json_answer(status, content, headers=failure.headers)


def _words(body: Mapping[str, Any], key: str) -> str | None:
    value = body.get(key)
    return value if isinstance(value, str) else None


def _object(body: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    value = body.get(key)
    return value if isinstance(value, dict) else None


def _objects(body: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = body.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _route(method: str, path: str, endpoint: Endpoint) -> Route:
    return Route(method, re.compile(path), endpoint)


_PHONE = r"/(?P<phone_id>1[1-9]\d{6,14})"
_FILE = r"/(?P<media_id>4\d{15})"

META_DOOR = Door(
    dialect="meta",
    provider="meta",
    prefix=PREFIX,
    routes=(
        _route("POST", rf"{_PHONE}/messages", SendEndpoint(_draft, _check)),
        _route("POST", rf"{_PHONE}/media", ActEndpoint(_upload, body_limit=UPLOAD_BODY_LIMIT)),
        _route("GET", _PHONE, ReadEndpoint(_read_phone)),
        _route("GET", _FILE, ReadEndpoint(_read_file)),
        _route("DELETE", _FILE, ActEndpoint(_delete_file)),
    ),
    failure=_failure,
    accepted=_accepted,
    new_uid=new_wamid,
)
