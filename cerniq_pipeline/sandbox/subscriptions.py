"""Who is to be told: the addresses that take webhooks, from a file or from the control API."""

from __future__ import annotations

import ipaddress
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from cerniq_pipeline.sandbox.room import Provider

log = logging.getLogger(__name__)

WEEK_SECONDS = 7 * 24 * 3600.0
VENDORS: tuple[Provider, ...] = ("timelinesai", "meta")


class BadSubscription(Exception):
    """An address that may not be called or makes no sense, and why; it names no secret."""


@dataclass(frozen=True)
class Subscription:
    """Where one vendor's webhooks go, how they prove themselves, and how patient the vendor is.

    After a failed attempt comes the next of `pauses_seconds`; `attempts` and `give_up_seconds` say
    when it is over for good. What falls into the same `batch_seconds` may come in one body.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    in_query: bool = False
    """Whether the token stands in the query and not at the end of the path."""
    secret: str | None = field(default=None, repr=False)
    answer_seconds: float = 5.0
    pauses_seconds: tuple[float, ...] = (1.0, 3.0)
    attempts: int | None = 3
    give_up_seconds: float = WEEK_SECONDS
    batch_seconds: float = 0.0

    @property
    def address(self) -> str:
        """The URL to post to, the token in its place."""
        if self.token is None:
            return self.url
        token = quote(self.token, safe="")
        if self.in_query:
            return f"{self.url}{'&' if '?' in self.url else '?'}token={token}"
        return f"{self.url.rstrip('/')}/{token}"

    def told_at(self, moment: float) -> float:
        """When to tell of what the vendor knows at this moment: at once, or with what gathers."""
        if not self.batch_seconds:
            return moment
        return math.ceil(moment / self.batch_seconds) * self.batch_seconds

    def pause_after(self, attempt: int, *, age_seconds: float) -> float | None:
        """How long to wait after a failed attempt, or None when it was the last."""
        if self.attempts is not None and attempt >= self.attempts:
            return None
        pause = self.pauses_seconds[min(attempt, len(self.pauses_seconds)) - 1]
        return None if age_seconds + pause > self.give_up_seconds else pause

    def described(self) -> dict[str, Any]:
        """The subscription without what only the two sides may know."""
        return {
            "url": self.url,
            "in_query": self.in_query,
            "signed": self.secret is not None,
            "answer_seconds": self.answer_seconds,
            "pauses_seconds": list(self.pauses_seconds),
            "attempts": self.attempts,
            "give_up_seconds": self.give_up_seconds,
            "batch_seconds": self.batch_seconds,
        }


Subscriptions = Mapping[Provider, Subscription]


class SubscriptionBook:
    """The subscriptions in force: those that were put last, or else those of the file."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._seen: tuple[int, ...] | None = None
        self._of_file: Subscriptions = {}
        self._put: Subscriptions | None = None
        self.trouble: str | None = None

    def put(self, content: object) -> None:
        """Take these instead of the file's; BadSubscription leaves everything as it was."""
        self._put = read_subscriptions(content)

    def forget(self) -> None:
        """Go back to the file."""
        self._put = None

    def to(self, provider: Provider) -> Subscription | None:
        """Where a vendor's webhooks go now, or None when nobody is to be called."""
        return self.all().get(provider)

    def all(self) -> Subscriptions:
        """Every subscription in force."""
        if self._put is not None:
            return self._put
        self._look_at_file()
        return self._of_file

    def _look_at_file(self) -> None:
        """Read the file again when it is another than last time."""
        if self._file is None:
            return
        try:
            found = self._file.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            seen = ()
        if seen == self._seen:
            return
        self._seen, self._of_file, self.trouble = seen, {}, None
        if not seen:
            return
        try:
            self._of_file = read_subscriptions(json.loads(self._file.read_bytes()))
        except (OSError, ValueError, RecursionError, BadSubscription) as error:
            # Not the error itself: it may quote the file, and the file has secrets.
            why = str(error) if isinstance(error, BadSubscription) else "it is not readable JSON"
            self.trouble = f"webhooks are told to nobody: {why}"
            log.warning("%s", self.trouble)


# --- reading -------------------------------------------------------------------------------------


def read_subscriptions(content: object) -> Subscriptions:
    """The subscriptions in a JSON object; BadSubscription says what is wrong with it."""
    if not isinstance(content, dict):
        raise BadSubscription("webhooks are a JSON object of vendors")
    unknown = content.keys() - set(VENDORS)
    if unknown:
        raise BadSubscription(f"nobody is called for {', '.join(sorted(map(str, unknown)))}")
    return {vendor: _read(vendor, content[vendor]) for vendor in VENDORS if vendor in content}


def _read(vendor: Provider, entry: object) -> Subscription:
    fields = entry if isinstance(entry, dict) else {}
    words = _WORDS[vendor]
    unknown = fields.keys() - {"url"} - words.keys() - _DETAILS.keys()
    if unknown:
        raise BadSubscription(f"{vendor} has no {', '.join(sorted(map(str, unknown)))}")
    taken: dict[str, Any] = {"url": _loopback_url(vendor, fields.get("url"))}
    for key, name in words.items():
        value = fields.get(key)
        if value is not None:
            if not isinstance(value, str) or not value or not value.isprintable():
                raise BadSubscription(f"{key} of {vendor} must be a text")
            taken[name] = value
    for key, (must_be, fits) in _DETAILS.items():
        if key in fields:
            if not fits(fields[key]):
                raise BadSubscription(f"{key} of {vendor} must be {must_be}")
            taken[key] = tuple(fields[key]) if isinstance(fields[key], list) else fields[key]
    return Subscription(**{**_PATIENCE[vendor], **taken})


def _loopback_url(vendor: Provider, written: object) -> str:
    try:
        target = urlsplit(written) if isinstance(written, str) else None
        host = target.hostname if target else None
        port_is_good = target is not None and target.port != 0
    except ValueError:
        target = host = None
        port_is_good = False
    if target is None or target.scheme != "http" or not host or not port_is_good:
        raise BadSubscription(f"url of {vendor} must be like http://127.0.0.1:8000/webhooks")
    if target.username is not None or not str(written).isprintable() or " " in str(written):
        raise BadSubscription(f"url of {vendor} must be plain")
    if not _is_loopback(host):
        raise BadSubscription(f"url of {vendor} leads off this machine: only loopback is called")
    return str(written)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


_WORDS: Mapping[Provider, Mapping[str, str]] = {
    "timelinesai": {"token": "token", "secret": "secret"},
    "meta": {"app_secret": "secret"},
}
_PATIENCE: Mapping[Provider, Mapping[str, Any]] = {
    "timelinesai": {},
    "meta": {
        "attempts": None,
        "pauses_seconds": (1.0, 2.0, 5.0, 15.0, 60.0),
        "batch_seconds": 0.2,
    },
}
_DETAILS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "in_query": ("true or false", lambda value: isinstance(value, bool)),
    "answer_seconds": ("seconds above 0", lambda value: _is_seconds(value) and value > 0),
    "pauses_seconds": (
        "a list of seconds",
        lambda value: isinstance(value, list) and bool(value) and all(map(_is_seconds, value)),
    ),
    "give_up_seconds": ("seconds", _is_seconds),
    "batch_seconds": ("seconds", _is_seconds),
}
