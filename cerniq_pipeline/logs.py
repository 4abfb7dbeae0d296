"""Structured events: one JSON object a line, ids only. No message text, no secret, no full number."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Literal

Level = Literal["debug", "info", "warning", "error"]

_NUMBER = re.compile(r"(?<![\w-])(\+?\d{2})(\d{4,10})(\d{3})(?![\w-])")
_BROKEN = {ord(char): f"\\x{ord(char):02x}" for char in map(chr, [*range(32), 127])}


def event(worker: str, action: str, *, level: Level = "info", **fields: object) -> None:
    """Write one event; fields that are None are left out.

    Fields in use: job, lead, phone, channel, duration_ms, error (code and message), and counts.
    """
    record = {"level": level, "worker": worker, "action": action}
    record |= {name: _clean(value) for name, value in fields.items() if value is not None}
    logger = logging.getLogger(f"cerniq.{worker}")
    logger.log(logging.getLevelNamesMapping()[level.upper()], json.dumps(record, default=str))


def mask(text: str) -> str:
    """The text with every telephone number in it reduced to prefix and last three digits."""
    return _NUMBER.sub(lambda found: f"{found[1]}*****{found[3]}", text)


def configure(level: str) -> None:
    """Send events to standard error, for processes that Dagster does not log for."""
    root = logging.getLogger("cerniq")
    root.setLevel(level)
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        root.addHandler(handler)


def _clean(value: object) -> object:
    if isinstance(value, str):
        return mask(value).translate(_BROKEN)
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return value
