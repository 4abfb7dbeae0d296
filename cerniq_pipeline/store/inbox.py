"""The inbox: everything that a provider told us, each event once, whoever brought it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.history import InboundCopy

Source = Literal["webhook", "sweep"]


def keep(conn: Connection, copies: Sequence[InboundCopy], *, source: Source, now: datetime) -> int:
    """Keep these events in their order; returns how many of them were new.

    An event has the same key whether its webhook came or we fetched it, so it is kept once.
    """
    if not copies:
        return 0
    kept = conn.execute(
        text("""
            INSERT INTO webhook_events
              (provider, event_key, event_type, account, contact, source, body, received_at)
            SELECT provider, event_key, event_type, account, contact, :source, body, :now
            FROM unnest(CAST(:providers AS text[]), CAST(:keys AS text[]), CAST(:types AS text[]),
                        CAST(:accounts AS text[]), CAST(:contacts AS text[]),
                        CAST(:bodies AS bytea[]))
              WITH ORDINALITY
              AS copy (provider, event_key, event_type, account, contact, body, place)
            ORDER BY place
            ON CONFLICT (provider, event_key) DO NOTHING
        """),
        {
            "providers": [copy.provider for copy in copies],
            "keys": [copy.event_key for copy in copies],
            "types": [copy.event_type for copy in copies],
            "accounts": [copy.account for copy in copies],
            "contacts": [copy.contact for copy in copies],
            "bodies": [copy.body for copy in copies],
            "source": source,
            "now": now,
        },
    )
    return kept.rowcount


def between(
    conn: Connection, *, provider: str, account: str, contact: str, since: datetime
) -> list[bytes]:
    """The raw events about our number and this contact, oldest first.

    For looking up a send that nobody is sure of: the provider's own word that it went out.
    """
    rows = conn.execute(
        text("""
            SELECT body FROM webhook_events
            WHERE account = :account AND contact = :contact AND received_at >= :since
              AND provider = :provider
            ORDER BY received_at, id
        """),
        {"provider": provider, "account": account, "contact": contact, "since": since},
    )
    return [bytes(body) for body in rows.scalars()]


def counts(conn: Connection) -> dict[str, int]:
    """Events by state."""
    rows = conn.execute(
        text("SELECT state, count(*) FROM webhook_events GROUP BY state ORDER BY state")
    )
    return {row[0]: row[1] for row in rows}
