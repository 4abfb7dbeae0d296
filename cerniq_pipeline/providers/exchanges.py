"""What was said in a call and what was answered, as it may be kept: without secrets, and short."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import httpx

from cerniq_pipeline.errors import Exchange
from cerniq_pipeline.providers.bodies import storable

LONGEST = 8_000
"""Characters of one body; whatever is longer is cut and kept as text."""

_SECRET = re.compile(r"token|secret|passw|authorization|api[-_]?key|signature|credential", re.I)
_HIDDEN = "***"


def exchange_of(request: httpx.Request, answer: httpx.Response | None = None) -> Exchange:
    """The record of one call. Headers and queries are left out: that is where secrets are."""
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    said = {
        "method": request.method,
        "path": request.url.path,
        "body": _sent(request, token),
    }
    if answer is None:
        return Exchange(said)
    return Exchange(said, {"status": answer.status_code, "body": _read(answer.text, token)})


def _sent(request: httpx.Request, token: str) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind == "application/json":
        return _read(request.content.decode("utf-8", "replace"), token)
    # A file: its bytes are kept where it was checked.
    return {"content_type": kind, "bytes": request.headers.get("content-length")} if kind else None


def _read(body: str, token: str) -> Any:
    """A body as JSON, if it is any and not too long; its beginning as text otherwise."""
    if token:
        body = body.replace(token, _HIDDEN)
    try:
        plain = _plain(json.loads(body))
        written = json.dumps(plain, ensure_ascii=False)
    except (ValueError, RecursionError):
        plain, written = {"text": storable(body[:LONGEST])}, ""
    if len(written) <= LONGEST:
        return plain
    return {"text": written[:LONGEST], "cut": True}


def _plain(value: Any) -> Any:
    """The value as the store can hold it, with whatever is called a secret taken out."""
    if isinstance(value, dict):
        return {
            storable(name): _HIDDEN if _SECRET.search(name) and item else _plain(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
