"""How to take a stranger's body apart.

A body is asked for what it should hold. Whatever is missing or of another form is None, so that
one odd field never loses the reply beside it; only a body without any form is unreadable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from cerniq_pipeline.domain.contacts import normalise_email
from cerniq_pipeline.domain.deliveries import OPTED_OUT, Delivery
from cerniq_pipeline.domain.events import Envelope, InboundEvent, Kind
from cerniq_pipeline.errors import UnreadableWebhook

NO_TIME = datetime.min.replace(tzinfo=UTC)
"""Stands for the time of arrival where nobody will look at it."""

_LONGEST_ID = 255
_LONGEST_KEY = 400
_LONGEST_ADDRESS = 1000
_MOST_FIELDS = 1000


@dataclass(frozen=True)
class Fields:
    """One object of a body; a field that is missing or of another form reads as None or empty."""

    values: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        """A text that the store can hold: no NUL, no half of a character."""
        value = self.values.get(name)
        return storable(value) if isinstance(value, str) else None

    def word(self, name: str) -> str | None:
        """An id or a short word, written as text or as a whole number."""
        return word(self.values.get(name))

    def phone(self, name: str) -> str | None:
        """A number in E.164."""
        return e164(self.values.get(name))

    def hidden_id(self, name: str) -> str | None:
        """The id by which WhatsApp knows a person who hides the number."""
        return hidden_id(self.values.get(name))

    def email(self, name: str) -> str | None:
        """An address in lower case, without the name beside it; of several the first."""
        value = self.values.get(name)
        first = value[0] if isinstance(value, list) and value else value
        return normalise_email(first[:_LONGEST_ADDRESS]) if isinstance(first, str) else None

    def part(self, name: str) -> Fields:
        """The object of this name; an empty one when there is none."""
        value = self.values.get(name)
        return Fields(value if isinstance(value, dict) else {})

    def parts(self, name: str) -> tuple[Fields, ...]:
        """The objects of a list; whatever is no object is left out."""
        value = self.values.get(name)
        items = value if isinstance(value, list) else ()
        return tuple(Fields(item) for item in items if isinstance(item, dict))

    def whole(self, name: str) -> int | None:
        """A whole number of a sensible size, written as such or as text."""
        return whole(self.values.get(name))

    def is_true(self, name: str) -> bool:
        """Whether this is plainly true."""
        return self.values.get(name) is True

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __bool__(self) -> bool:
        return bool(self.values)


def json_fields(provider: str, body: bytes) -> Fields:
    """The object that a JSON body holds; raises UnreadableWebhook for anything else."""
    try:
        # A byte that is no UTF-8 costs one letter, not the message.
        read = json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError) as error:
        raise unreadable(provider, f"it is no JSON ({type(error).__name__})") from error
    if not isinstance(read, dict):
        raise unreadable(provider, f"it holds a {type(read).__name__} and no object")
    return Fields(read)


def form_pairs(body: bytes) -> list[tuple[str, str]]:
    """Every field of a form, in its order; raises ValueError when there are too many."""
    text = body.decode("utf-8", "replace")
    return parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)


def form_or_json_fields(provider: str, body: bytes) -> Fields:
    """The fields of a form or of a JSON object; raises UnreadableWebhook for anything else."""
    if body.lstrip()[:1] in (b"{", b"["):
        return json_fields(provider, body)
    try:
        return Fields(dict(form_pairs(body)))
    except ValueError as error:
        raise unreadable(provider, "it is a form of too many fields") from error


def unreadable(provider: str, why: str) -> UnreadableWebhook:
    """The error for a body without any form that we know; it quotes nothing of the body."""
    return UnreadableWebhook(f"a body from {provider} cannot be read: {why}")


def storable(text: str) -> str:
    """The text without what Postgres cannot hold: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def word(value: object) -> str | None:
    """An id or a short word, written as text or as a whole number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    written = storable(str(value)).strip()
    return written if 0 < len(written) <= _LONGEST_ID else None


def whole(value: object) -> int | None:
    """A whole number of a sensible size, written as such or as text; None for anything else."""
    written = word(value) or ""
    plain = written.removeprefix("-")
    return int(written) if plain.isascii() and plain.isdigit() and len(plain) <= 15 else None


_SEPARATORS = str.maketrans("", "", " .-()")


_HOSTS_OF_NUMBERS = frozenset({"s.whatsapp.net", "c.us"})
_HIDDEN = "lid"


def e164(value: object) -> str | None:
    """A number, with or without plus, scheme or JID's host, as plus and digits; or None.

    The digits before any other host are no number, however much they look like one: WhatsApp's
    ids of hidden numbers and of groups.
    """
    local, _, host = (word(value) or "").partition("@")
    if host and host.lower() not in _HOSTS_OF_NUMBERS:
        return None
    # A colon divides a scheme from its number, and a JID's number from its device.
    bare = local.partition(":")[0] if host else local.rpartition(":")[2]
    digits = bare.translate(_SEPARATORS).removeprefix("+")
    real = digits.isascii() and digits.isdigit() and 7 <= len(digits) <= 15
    return f"+{digits}" if real and not digits.startswith("0") else None


def hidden_id(value: object) -> str | None:
    """WhatsApp's id of a person who hides the number, as `digits@lid`; None for anything else."""
    local, _, host = (word(value) or "").partition("@")
    digits = local.partition(":")[0]
    hidden = host.lower() == _HIDDEN and digits.isascii() and digits.isdigit()
    return f"{digits}@{_HIDDEN}" if hidden else None


def unix_time(value: object, *, per_second: int = 1) -> datetime | None:
    """A moment written in seconds (or their parts) since 1970; None for anything else."""
    count = whole(value)
    try:
        return None if count is None else datetime.fromtimestamp(count / per_second, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(value: object) -> datetime | None:
    """A moment in ISO form; without a zone it is UTC. None for anything else."""
    try:
        at = datetime.fromisoformat(word(value) or "")
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def media_kind(content_type: str | None) -> str:
    """Our word for a file of this type."""
    family = (content_type or "").partition("/")[0].lower()
    return family if family in ("image", "video", "audio") else "document"


def status_of(told: Delivery | None) -> tuple[Kind, Delivery | None]:
    """What kind of event a status is, and the status where it is one.

    One that names no message says nothing, but for a request to stop: that is about a person.
    """
    if told is None or told.external_id:
        return (Kind.UNKNOWN if told is None else Kind.STATUS), told
    return (Kind.UNSUBSCRIBE if told.meaning == OPTED_OUT else Kind.UNKNOWN), None


# ── What makes two bodies the same ────────────────────────────────────────────────────────────


def key_of(*pieces: str | None) -> str:
    """A key out of what tells one event from another; a long one is folded."""
    key = ":".join(piece or "" for piece in pieces)
    return key if len(key) <= _LONGEST_KEY else f"{pieces[0]}:{fold(key.encode())}"[:_LONGEST_KEY]


def fold(content: bytes) -> str:
    """The SHA-256 of some content: the key of a body that has no id."""
    return hashlib.sha256(content).hexdigest()


def envelope(event_key: str, event_type: str, events: tuple[InboundEvent, ...]) -> Envelope:
    """A key, the two sides of the first event of a body, and everybody it is about."""
    first = events[0] if events else None
    people = (
        name
        for event in events
        for name in (event.contact.phone, event.contact.email, event.contact.user_id)
    )
    return Envelope(
        event_key=event_key,
        event_type=event_type,
        account=None if first is None else first.account,
        contact=None if first is None else first.contact.key,
        people=tuple(dict.fromkeys(filter(None, people))),
    )
