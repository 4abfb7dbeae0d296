"""How the vendor is read: a read either answers or raises, and is never taken for empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import httpx

from cerniq_pipeline.errors import ProviderUnreadable
from cerniq_pipeline.logs import mask
from cerniq_pipeline.providers.outcomes import json_of

MOST_PAGES = 100


class NotThere(ProviderUnreadable):
    """The vendor says that it does not know what was asked for."""


def read(
    client: httpx.Client,
    path: str,
    query: dict[str, str] | None = None,
    *,
    turn: Callable[[], None],
    timeout: httpx.Timeout | None = None,
) -> Any:
    """The body of a good answer; anything else raises ProviderUnreadable.

    Every read of the vendor comes by here, and takes its turn first.
    """
    turn()
    patience = client.timeout if timeout is None else timeout
    try:
        answer = client.get(path, params=query, timeout=patience)
    except httpx.RequestError as error:
        raise _unreadable(path, type(error).__name__) from error
    if answer.status_code == 404:
        raise NotThere(f"timelinesai {mask(path)}: 404")
    body = json_of(answer)
    if answer.status_code != 200 or not isinstance(body, dict) or body.get("status") == "error":
        raise _unreadable(path, str(answer.status_code))
    return body


def data_of(body: Any) -> Any:
    """What the public dialect's envelope holds; None when it is no good news."""
    ok = isinstance(body, dict) and body.get("status") == "ok"
    return body.get("data") if ok else None


@dataclass(frozen=True)
class Page:
    """One page of a list, and whether there are more."""

    data: dict[str, Any]
    more: bool


def one_page(
    client: httpx.Client,
    path: str,
    query: dict[str, str],
    *,
    turn: Callable[[], None],
    page: int,
    most: int = MOST_PAGES,
) -> Page:
    """A page of a list; a list without an end is unreadable, not cut short."""
    if page > most:
        raise _unreadable(path, f"more than {most} pages")
    with odd_answers_are_unreadable():
        data = data_of(read(client, path, query | {"page": str(page)}, turn=turn))
        return Page(data, bool(data["has_more_pages"]))


def pages(
    client: httpx.Client, path: str, query: dict[str, str], *, turn: Callable[[], None]
) -> Iterator[dict[str, Any]]:
    """Every page of a list."""
    for number in count(1):
        page = one_page(client, path, query, turn=turn, page=number)
        yield page.data
        if not page.more:
            return


ODD_FORMS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What an answer of an unknown form may raise; the last two come from impossible times and depths.
"""


@contextmanager
def odd_answers_are_unreadable() -> Iterator[None]:
    """Turn an answer whose form we do not know into the one thing it means: we could not read."""
    try:
        yield
    except ODD_FORMS as error:
        form = f"timelinesai answered in an unknown form ({type(error).__name__})"
        raise ProviderUnreadable(form) from error


def moment(written: str) -> datetime:
    """The vendor's time: `2026-01-15 12:00:00 +0200`, in whole seconds."""
    return datetime.strptime(written, "%Y-%m-%d %H:%M:%S %z").astimezone(UTC)


def _unreadable(path: str, why: str) -> ProviderUnreadable:
    return ProviderUnreadable(f"timelinesai {mask(path)}: {why}")
