"""What to say when a server cannot be asked: one line with the cause, and what to do."""

from __future__ import annotations

import sys
from dataclasses import dataclass

UNREACHABLE = 4
"""The exit status of a command whose servers could not be asked: the same one may work later."""

LONGEST = 200


@dataclass(frozen=True)
class Failure:
    """Why a command could not do its work, and what helps."""

    why: str
    do: str

    def __str__(self) -> str:
        return f"{self.why}; {self.do}"


def explained(error: BaseException) -> Failure | None:
    """The failure of a server behind an error, or None when the error is about something else.

    Nothing is imported for it: what was never imported raised nothing.
    """
    return _of_the_database(error) or _of_redis(error)


def _of_the_database(error: BaseException) -> Failure | None:
    known = sys.modules.get("sqlalchemy.exc")
    if known is None or not isinstance(error, known.DBAPIError):
        return None
    cause = getattr(error, "orig", None)
    state = getattr(cause, "sqlstate", None) or ""
    if state in ("42P01", "42703"):  # no such table, no such column
        return Failure("the tables are not those of this release", "run `cerniq migrate`")
    if state in ("55P03", "40P01", "57014"):  # no lock in time, a deadlock, cancelled
        return Failure("somebody else is changing the same rows", "try again")
    if not isinstance(error, known.OperationalError | known.InterfaceError):
        return None
    return Failure(f"the database does not answer: {_cause(cause)}", _start("DATABASE"))


def _of_redis(error: BaseException) -> Failure | None:
    known = sys.modules.get("redis.exceptions")
    if known is None or not isinstance(error, known.ConnectionError | known.TimeoutError):
        return None
    return Failure(f"Redis does not answer: {_cause(error)}", _start("REDIS"))


def _start(server: str) -> str:
    return f"start it with `cerniq dev` or `cerniq services up`, or check CERNIQ_{server}_URL"


def _cause(error: BaseException | None) -> str:
    """The client's own words, which name the address and no password, in one line."""
    words = " ".join(str(error or "no word why").split())
    words = words.partition(" Is the server running")[0].rstrip(".")
    for opening in ("connection failed: ", "connection is bad: "):
        words = words.removeprefix(opening)
    return words[:LONGEST]
