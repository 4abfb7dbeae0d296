"""Log files of processes that do not rotate their own."""

from __future__ import annotations

from pathlib import Path

KEPT = 3
LARGEST_BYTES = 10_000_000


def rotate(log: Path, *, largest_bytes: int = LARGEST_BYTES) -> None:
    """Move a large log aside before it is opened again; the last few are kept as `.1`, `.2`, …"""
    if not log.exists() or log.stat().st_size <= largest_bytes:
        return
    for age in range(KEPT - 1, 0, -1):
        older = _aged(log, age)
        if older.exists():
            older.replace(_aged(log, age + 1))
    log.replace(_aged(log, 1))


def tail(log: Path, *, lines: int) -> str:
    """The last lines of a log, or nothing when there is none."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _aged(log: Path, age: int) -> Path:
    return log.with_name(f"{log.name}.{age}")
