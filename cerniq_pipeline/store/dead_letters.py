"""Dead letters: messages that failed for good, and events that nobody could handle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.contacts import canonical_address
from cerniq_pipeline.domain.refusals import REFUSED_BY_PHONES
from cerniq_pipeline.store import inbox

EventCode = Literal[
    "UNREADABLE_WEBHOOK", "UNHANDLED_EVENT", "UNCONFIRMED_SENDER", "UNKNOWN_RECEIVER"
]
EVENT_CODES: frozenset[EventCode] = frozenset(get_args(EventCode))
"""Why an event lies here: nobody can read it; it failed too often; its provider disowns it; nobody
has said whose the number or address is that it came to."""

REVIEW_REQUIRED = frozenset(
    {"PHONE_BANNED", "ACCOUNT_SUSPENDED", "INVALID_LEAD", REFUSED_BY_PHONES, *EVENT_CODES}
)
"""Codes of failures that come back unless a person has looked at their cause."""


@dataclass(frozen=True)
class Letter:
    """A dead letter about a message or an event.

    `settled` says how and by whom, or is None while it is open.
    """

    id: int
    message_id: int | None
    event_id: int | None
    code: str
    review_required: bool
    settled: str | None


def bury(
    conn: Connection, *, message_id: int, tenant_id: str, code: str, detail: str, now: datetime
) -> None:
    """Put a failed message on the dead-letter list."""
    conn.execute(
        text("""
            INSERT INTO dead_letters (tenant_id, message_id, code, detail, review_required, at)
            VALUES (:tenant, :message, :code, :detail, :review, :now)
            ON CONFLICT (message_id) DO NOTHING
        """),
        {
            "tenant": tenant_id,
            "message": message_id,
            "code": code,
            "detail": detail,
            "review": code in REVIEW_REQUIRED,
            "now": now,
        },
    )


def bury_event(
    conn: Connection,
    *,
    event_id: int,
    tenant_id: str | None,
    code: EventCode,
    detail: str,
    receiver: str | None = None,
    now: datetime,
) -> None:
    """Put an event on the list; one that a person settled before comes back onto it."""
    conn.execute(
        text("""
            INSERT INTO dead_letters
              (tenant_id, event_id, code, detail, receiver, review_required, at)
            VALUES (:tenant, :event, :code, :detail, :receiver, :review, :now)
            ON CONFLICT (event_id) DO UPDATE
            SET tenant_id = coalesce(excluded.tenant_id, dead_letters.tenant_id),
                code = excluded.code, detail = excluded.detail, at = excluded.at,
                receiver = excluded.receiver,
                review_required = excluded.review_required,
                resolved_at = NULL, resolved_by = NULL, resolution = NULL
            WHERE dead_letters.resolved_at IS NOT NULL
        """),
        {
            "tenant": tenant_id,
            "event": event_id,
            "code": code,
            "detail": detail,
            "receiver": receiver and canonical_address(receiver),
            "review": code in REVIEW_REQUIRED,
            "now": now,
        },
    )


def open_letters(
    conn: Connection, *, tenant_id: str | None = None, code: str | None = None
) -> list[dict[str, Any]]:
    """The letters that wait for a person, oldest first, with what it takes to judge them."""
    rows = conn.execute(
        text("""
            SELECT d.id, CASE WHEN d.event_id IS NULL THEN 'message' ELSE 'event' END AS kind,
                   d.tenant_id, d.code, d.detail, d.review_required, d.at, d.message_id, d.event_id,
                   c.denumire AS company, coalesce(o.phone_id, p.id) AS phone_id, o.step,
                   coalesce(o.attempts, e.tries) AS attempts,
                   coalesce(e.provider, p.provider) AS provider, e.event_type,
                   coalesce(e.account, p.phone_number) AS account,
                   coalesce(e.contact, o.recipient) AS contact, e.source, e.received_at
            FROM dead_letters d
            LEFT JOIN outbox_messages o ON o.id = d.message_id
            LEFT JOIN gold_companies c ON c.id = o.lead_id
            LEFT JOIN webhook_events e ON e.id = d.event_id
            LEFT JOIN wa_phone_numbers p ON p.id = o.phone_id OR p.phone_number = e.account
            WHERE d.resolved_at IS NULL
              AND (CAST(:tenant AS text) IS NULL OR d.tenant_id = :tenant)
              AND (CAST(:code AS text) IS NULL OR d.code = :code)
            ORDER BY d.at, d.id
        """),
        {"tenant": tenant_id, "code": code},
    ).mappings()
    return [dict(row) for row in rows]


def message_ids(conn: Connection, letter_ids: Sequence[int]) -> list[int]:
    """The messages that these letters are about."""
    return list(
        conn.execute(
            text("""
                SELECT message_id FROM dead_letters
                WHERE id = ANY(:ids) AND message_id IS NOT NULL
            """),
            {"ids": list(letter_ids)},
        ).scalars()
    )


def lock_events(conn: Connection, letter_ids: Sequence[int]) -> dict[int, str]:
    """Lock the events that these letters are about, and say in which state each is.

    Events come before leads, messages and letters: that is the order of whoever handles them.
    """
    rows = conn.execute(
        text("""
            SELECT id, state FROM webhook_events
            WHERE id IN (SELECT event_id FROM dead_letters WHERE id = ANY(:ids))
            ORDER BY id FOR UPDATE
        """),
        {"ids": list(letter_ids)},
    )
    return {row.id: row.state for row in rows}


def put_back(conn: Connection, event_ids: Sequence[int]) -> None:
    """Let these events be handled as if they had just come; the caller has locked them."""
    conn.execute(
        text("""
            UPDATE webhook_events
            SET state = 'waiting', tries = 0, next_try_at = NULL, error = NULL, handled_at = NULL
            WHERE id = ANY(:ids)
        """),
        {"ids": list(event_ids)},
    )
    inbox.ring(conn)


def about_events(conn: Connection, event_ids: Sequence[int]) -> list[int]:
    """The open letters about these events; the caller has locked the events."""
    return list(
        conn.execute(
            text("""
                SELECT id FROM dead_letters WHERE event_id = ANY(:ids) AND resolved_at IS NULL
                ORDER BY id FOR UPDATE
            """),
            {"ids": list(event_ids)},
        ).scalars()
    )


def lock(conn: Connection, letter_ids: Sequence[int]) -> dict[int, Letter]:
    """Lock these letters; who needs their events or messages too locks those first."""
    rows = conn.execute(
        text("""
            SELECT id, message_id, event_id, code, review_required,
                   CASE WHEN resolved_at IS NOT NULL
                        THEN concat_ws(' by ', coalesce(resolution, 'settled'), resolved_by) END
                     AS settled
            FROM dead_letters WHERE id = ANY(:ids) ORDER BY id FOR UPDATE
        """),
        {"ids": list(letter_ids)},
    )
    return {row.id: Letter(*row) for row in rows}


def resolve(conn: Connection, resolutions: Mapping[int, str], *, by: str, now: datetime) -> None:
    """Take these letters off the list, each with what became of it; the caller has locked them."""
    conn.execute(
        text("""
            UPDATE dead_letters d
            SET resolved_at = :now, resolved_by = :by, resolution = r.resolution
            FROM unnest(CAST(:ids AS bigint[]), CAST(:said AS text[])) AS r (id, resolution)
            WHERE d.id = r.id AND d.resolved_at IS NULL
        """),
        {
            "ids": list(resolutions),
            "said": list(resolutions.values()),
            "by": by,
            "now": now,
        },
    )


def expire(conn: Connection, *, before: datetime, resolution: str, by: str, now: datetime) -> int:
    """Settle every open letter about a message from before an instant; returns how many.

    An event stays: it may be a reply that nobody has read, and it holds its person's messages back.
    """
    expired = conn.execute(
        text("""
            UPDATE dead_letters SET resolved_at = :now, resolved_by = :by, resolution = :said
            WHERE id IN (SELECT id FROM dead_letters
                         WHERE resolved_at IS NULL AND at < :before AND event_id IS NULL
                         ORDER BY id FOR UPDATE)
        """),
        {"before": before, "said": resolution, "by": by, "now": now},
    )
    return expired.rowcount


def backlog(conn: Connection, *, above: int) -> dict[str | None, int]:
    """The tenants with more open letters than this, and how many; None: those of no tenant."""
    rows = conn.execute(
        text("""
            SELECT tenant_id, count(*) FROM dead_letters WHERE resolved_at IS NULL
            GROUP BY tenant_id HAVING count(*) > :above
        """),
        {"above": above},
    )
    return {row[0]: row[1] for row in rows}


def dead_events(conn: Connection) -> dict[str, int]:
    """How many events of each provider wait on the list for a person to look at them."""
    rows = conn.execute(
        text("""
            SELECT e.provider, count(*)
            FROM dead_letters d JOIN webhook_events e ON e.id = d.event_id
            WHERE d.resolved_at IS NULL AND d.receiver IS NULL GROUP BY 1 ORDER BY 1
        """)
    )
    return {row[0]: row[1] for row in rows}


def unknown_receivers(conn: Connection) -> dict[str, int]:
    """The numbers and addresses of nobody to which events came, and how many wait for each."""
    rows = conn.execute(
        text("""
            SELECT receiver, count(*) FROM dead_letters
            WHERE resolved_at IS NULL AND receiver IS NOT NULL GROUP BY 1 ORDER BY 1
        """)
    )
    return {row[0]: row[1] for row in rows}


def of_known_receivers(conn: Connection, *, limit: int) -> list[int]:
    """The open letters of which it has been said by now whose receiver it is."""
    return list(
        conn.execute(
            text("""
                SELECT id FROM dead_letters
                WHERE resolved_at IS NULL AND receiver IS NOT NULL
                  AND (receiver IN (SELECT phone_number FROM wa_phone_numbers)
                       OR receiver IN (SELECT address FROM receivers))
                ORDER BY id LIMIT :limit
            """),
            {"limit": limit},
        ).scalars()
    )


def waiting_since(conn: Connection) -> dict[str, datetime]:
    """Since when the oldest unhandled event of each provider waits.

    What a person put back waits since then, however long ago it came; and what its provider does
    not know yet waits for that, and not for us, until it is to be asked again.
    """
    rows = conn.execute(
        text("""
            SELECT e.provider, min(greatest(
              e.received_at, d.resolved_at,
              CASE WHEN e.error LIKE 'UNCONFIRMED_SENDER:%' THEN e.next_try_at END))
            FROM webhook_events e LEFT JOIN dead_letters d ON d.event_id = e.id
            WHERE e.state = 'waiting' GROUP BY 1 ORDER BY 1
        """)
    )
    return {row[0]: row[1] for row in rows}
