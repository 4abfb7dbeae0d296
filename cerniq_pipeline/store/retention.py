"""What may be forgotten after its time, kind by kind, and how to forget a few rows of it.

Each batch is one short transaction over one table, and passes over what somebody else has locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.retention import Kind

_FINAL = """
    EXISTS (SELECT 1 FROM outbox_messages o
            WHERE o.id = t.message_id AND o.state IN ('sent', 'failed', 'cancelled'))
"""

_IN_DOUBT = """
    EXISTS (SELECT 1 FROM outbox_messages o
            WHERE o.state IN ('sending', 'unconfirmed', 'parked')
              AND o.begun_at - interval '1 day' <= t.received_at)
"""
"""Whether an event may be the proof of a send in doubt: those are looked up in the inbox."""


@dataclass(frozen=True)
class _Rule:
    """Which rows of a table are of this kind and old enough (`old`, asked with :before).

    `key` gives the order in which they go. `emptied` says what is taken out of a row; without it
    the row is deleted.
    """

    table: str
    key: str
    old: str
    emptied: str | None = None


_RULES: dict[Kind, _Rule] = {
    "letters": _Rule("dead_letters", "id", "t.resolved_at < :before"),
    "webhook_bodies": _Rule(
        "webhook_events",
        "id",
        f"""t.state = 'done' AND octet_length(t.body) > 0 AND t.received_at < :before
            AND t.handled_at < :before AND NOT {_IN_DOUBT}""",
        # The key stays: a replay of the same event is still known.
        emptied="body = '', headers = '{}', contact = NULL, people = '{}'",
    ),
    "webhook_keys": _Rule(
        "webhook_events",
        "id",
        f"""t.state = 'done' AND t.received_at < :before AND t.handled_at < :before
            AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.event_id = t.id)
            AND NOT {_IN_DOUBT}""",  # noqa: S608 - a constant of this page
    ),
    "raw_calls": _Rule(
        "send_attempts",
        "message_id",
        "t.raw_request IS NOT NULL AND t.outcome IS NOT NULL AND t.begun_at < :before",
        emptied="raw_request = NULL, raw_response = NULL",
    ),
    "logged_raw_calls": _Rule(
        "gold_communication_log",
        "id",
        "t.raw_request IS NOT NULL AND t.sent_at < :before",
        emptied="raw_request = NULL, raw_response = NULL",
    ),
    "attempts": _Rule(
        "send_attempts",
        "message_id",
        f"t.outcome IS NOT NULL AND t.begun_at < :before AND {_FINAL}",
    ),
    "changes": _Rule("outbox_changes", "id", f"t.at < :before AND {_FINAL}"),
    "alerts": _Rule("alerts", "id", "t.closed_at < :before"),
    "heartbeats": _Rule(
        "heartbeats",
        "id",
        """t.settled_at < :before AND EXISTS (
             SELECT 1 FROM heartbeats h WHERE h.phone_id = t.phone_id
               AND h.to_phone_id = t.to_phone_id AND h.begun_at > t.begun_at)""",
    ),
    "early_deliveries": _Rule("early_deliveries", "external_id", "t.told_at < :before"),
}

KINDS: tuple[Kind, ...] = tuple(_RULES)
"""In the order in which they are forgotten: a letter goes before its event."""


def first_key(kind: Kind) -> object:
    """What stands before every key of this kind."""
    if kind == "logged_raw_calls":
        return UUID(int=0)
    return "" if kind == "early_deliveries" else 0


def count(conn: Connection, kind: Kind, *, before: datetime) -> int:
    """How many rows of this kind are older than this."""
    rule = _RULES[kind]
    return conn.execute(
        text(f"SELECT count(*) FROM {rule.table} t WHERE {rule.old}"),  # noqa: S608 - constants
        {"before": before},
    ).scalar_one()


def forget_some(
    conn: Connection, kind: Kind, *, before: datetime, after: object, most: int
) -> tuple[int, object]:
    """Forget at most so many rows of this kind, those behind the key `after`; (how many, last key).

    Starting behind the last key, no batch walks over what an earlier one left behind.
    """
    rule = _RULES[kind]
    change = (
        f"UPDATE {rule.table} t SET {rule.emptied} FROM old"  # noqa: S608 - constants of this page
        if rule.emptied
        else f"DELETE FROM {rule.table} t USING old"  # noqa: S608 - a constant of this page
    )
    allow_forgetting(conn)
    rows = conn.execute(
        text(f"""
            WITH old AS MATERIALIZED (
              SELECT t.ctid AS place, t.{rule.key} AS key FROM {rule.table} t
              WHERE t.{rule.key} > :after AND {rule.old}
              ORDER BY t.{rule.key} LIMIT :most FOR UPDATE OF t SKIP LOCKED
            )
            {change} WHERE t.ctid = old.place RETURNING old.key
        """),  # noqa: S608 - constants of this page
        {"before": before, "after": after, "most": most},
    )
    keys: list[Any] = list(rows.scalars())
    return len(keys), max(keys, default=after)


def allow_forgetting(conn: Connection) -> None:
    """Let this transaction delete from the tables that are append only."""
    conn.execute(text("SELECT set_config('cerniq.forgetting', 'on', true)"))
