"""The part of `.env` that is ours: a marked block. Every other line is yours and stays."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values

from cerniq_pipeline.errors import SetupError

BEGIN = "# >>> written by `cerniq services up`: it is rewritten, put your own lines outside >>>"
END = "# <<< written by `cerniq services up` <<<"

_NEEDS_NO_QUOTES = re.compile(r"[\w./:@%+-]*")


def with_block(text: str, values: Mapping[str, str]) -> str:
    """This `.env` with these values in the marked block; all other lines as they were."""
    before, _, after = _parts(text)
    if before and not before.endswith("\n"):
        before += "\n"
    lines = [
        BEGIN,
        *(f"{name}={_written(value)}" for name, value in values.items()),
        END,
    ]
    return before + "".join(f"{line}\n" for line in lines) + after


def in_block(text: str) -> dict[str, str]:
    """The values that the marked block holds."""
    return _values(_parts(text)[1])


def outside_block(text: str) -> dict[str, str]:
    """The values that a person wrote."""
    before, _, after = _parts(text)
    return _values(before + after)


def read(path: Path) -> str:
    """The whole file, or nothing when there is none."""
    try:
        # newline="" keeps foreign line endings as they are.
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def write(path: Path, text: str) -> None:
    """Replace the file in one step, readable for its owner alone: it holds a key."""
    target = path.resolve()
    descriptor, fresh = tempfile.mkstemp(dir=target.parent, prefix=".env.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(fresh).replace(target)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


def _parts(text: str) -> tuple[str, str, str]:
    lines = text.splitlines(keepends=True)
    marks = [line.strip() for line in lines]
    if BEGIN not in marks and END not in marks:
        return text, "", ""
    if marks.count(BEGIN) != 1 or marks.count(END) != 1 or marks.index(BEGIN) > marks.index(END):
        raise SetupError(
            "the marked block in .env is damaged: it needs its first and its last line once each; "
            "remove both and what is between them, keeping CERNIQ_SECRET_KEY, and start again"
        )
    first, last = marks.index(BEGIN), marks.index(END)
    inside = lines[first + 1 : last]
    return "".join(lines[:first]), "".join(inside), "".join(lines[last + 1 :])


def _values(text: str) -> dict[str, str]:
    found = dotenv_values(stream=io.StringIO(text), interpolate=False)
    return {name: value for name, value in found.items() if value is not None}


def _written(value: str) -> str:
    if _NEEDS_NO_QUOTES.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
