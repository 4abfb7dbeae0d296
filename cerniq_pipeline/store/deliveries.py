"""What became of messages that went out, and what was said of those that the log has not yet.

Lock order: leads, messages, dead letters, rows of the log, and last of all the word about a
message: an advisory lock on channel and provider's id. It stands between the question whether the
log has a message and the keeping of what was said too early.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Row, text

from cerniq_pipeline.domain.deliveries import Delivery, Standing, Told
from cerniq_pipeline.domain.outbox import OPEN, WINDOWED, State

Key = tuple[str, str]
"""Channel, and the provider's id of a message."""

_LARGEST_CODE = 2**31 - 1


@dataclass(frozen=True)
class Sent:
    """A message of the outbox that a provider took."""

    message_id: int
    tenant_id: str
    lead_id: UUID
    has_approved_form: bool
    """Whether another form of it can go; elsewhere it would be the same text again, for ever."""


@dataclass(frozen=True)
class Logged:
    """A message that left, as the log has it; `sent` is None for what never was in the outbox."""

    log_id: UUID
    key: Key
    standing: Standing
    sent: Sent | None


def find(conn: Connection, keys: Collection[Key]) -> list[Logged]:
    """The messages that the log has under these keys, not locked.

    A provider does not name the tenant; asking for each keeps to the one index that the log has.
    """
    rows = conn.execute(
        text("""
            SELECT l.id, l.channel, l.external_message_id, l.status, l.status_at, l.delivered_at,
                   l.read_at, l.failed_at, l.error_code, l.error_title,
                   o.id AS message_id, o.tenant_id, o.lead_id, t.approved_name, p.provider
            FROM unnest(CAST(:channels AS text[]), CAST(:ids AS text[])) AS told (channel, id)
            CROSS JOIN tenants n
            JOIN gold_communication_log l ON l.tenant_id = n.id AND l.channel = told.channel
              AND l.external_message_id = told.id
            LEFT JOIN outbox_messages o ON o.external_id = l.external_message_id
              AND o.tenant_id = l.tenant_id AND o.channel = l.channel AND o.state = 'sent'
            LEFT JOIN templates t ON t.id = o.template_id
            LEFT JOIN wa_phone_numbers p ON p.id = o.phone_id
            WHERE l.direction = 'OUTBOUND'
        """),
        _arrays(keys),
    )
    return [
        Logged(
            log_id=row.id,
            key=(row.channel, row.external_message_id),
            standing=_standing(row),
            sent=None
            if row.message_id is None
            else Sent(
                row.message_id,
                row.tenant_id,
                row.lead_id,
                has_approved_form=row.approved_name is not None and row.provider in WINDOWED,
            ),
        )
        for row in rows
    ]


def whose(
    conn: Connection, key: Key, *, provider: str | None = None, our_id: int | None = None
) -> list[tuple[str, UUID]]:
    """The tenants and leads of a message under this key, or with our id of it at this provider.

    What is on its way, unconfirmed or parked has no key yet; its id was told to the provider.
    """
    channel, external_id = key
    rows = conn.execute(
        text("""
            SELECT l.tenant_id, l.lead_journey_id
            FROM tenants n JOIN gold_communication_log l
              ON l.tenant_id = n.id AND l.channel = :channel AND l.external_message_id = :external
            WHERE l.direction = 'OUTBOUND' AND l.lead_journey_id IS NOT NULL
            UNION
            SELECT o.tenant_id, o.lead_id
            FROM outbox_messages o JOIN wa_phone_numbers p ON p.id = o.phone_id
            WHERE o.id = :ours AND o.channel = :channel AND p.provider = :provider
              AND o.begun_at IS NOT NULL
            ORDER BY 1, 2
        """),
        {"channel": channel, "external": external_id, "ours": our_id, "provider": provider},
    )
    return [(row[0], row[1]) for row in rows]


def lock_consequences(conn: Connection, messages: Iterable[Sent]) -> None:
    """Lock all that a failure of these messages may change: leads, their messages, dead letters."""
    chosen = {message.message_id: message.lead_id for message in messages}
    values = {"ids": list(chosen), "leads": list(chosen.values())}
    conn.execute(
        text("""
            SELECT 1 FROM gold_lead_journey WHERE lead_id = ANY(:leads)
            ORDER BY lead_id FOR UPDATE
        """),
        values,
    )
    conn.execute(
        text("""
            SELECT 1 FROM outbox_messages
            WHERE lead_id = ANY(:leads)
              AND (id = ANY(:ids) OR state IN ('planned', 'deferred'))
            ORDER BY id FOR UPDATE
        """),
        values,
    )
    conn.execute(
        text("SELECT 1 FROM dead_letters WHERE message_id = ANY(:ids) ORDER BY id FOR UPDATE"),
        values,
    )


def lock_standings(conn: Connection, log_ids: Collection[UUID]) -> dict[UUID, Standing]:
    """Lock these rows of the log and say how they stand now; those that are gone are left out."""
    rows = conn.execute(
        text("""
            SELECT id, status, status_at, delivered_at, read_at, failed_at, error_code, error_title
            FROM gold_communication_log WHERE id = ANY(:ids)
            ORDER BY external_message_id, id FOR UPDATE
        """),
        {"ids": list(log_ids)},
    )
    return {row.id: _standing(row) for row in rows}


def _standing(row: Row[tuple[object, ...]]) -> Standing:
    return Standing(
        status=row.status,
        status_at=row.status_at,
        delivered_at=row.delivered_at,
        read_at=row.read_at,
        failed_at=row.failed_at,
        error_code=row.error_code,
        error_title=row.error_title,
    )


def write(conn: Connection, standings: Mapping[UUID, Standing]) -> None:
    """Write how these locked messages stand."""
    stand = standings.values()
    conn.execute(
        text("""
            UPDATE gold_communication_log l
            SET status = s.status, status_at = s.status_at, delivered_at = s.delivered_at,
                read_at = s.read_at, failed_at = s.failed_at, error_code = s.error_code,
                error_title = s.error_title
            FROM unnest(CAST(:ids AS uuid[]), CAST(:statuses AS text[]),
                        CAST(:times AS timestamptz[]), CAST(:delivered AS timestamptz[]),
                        CAST(:read AS timestamptz[]), CAST(:failed AS timestamptz[]),
                        CAST(:codes AS text[]), CAST(:titles AS text[]))
              AS s (id, status, status_at, delivered_at, read_at, failed_at, error_code,
                    error_title)
            WHERE l.id = s.id
        """),
        {
            "ids": list(standings),
            "statuses": [one.status for one in stand],
            "times": [one.status_at for one in stand],
            "delivered": [one.delivered_at for one in stand],
            "read": [one.read_at for one in stand],
            "failed": [one.failed_at for one in stand],
            "codes": [one.error_code for one in stand],
            "titles": [one.error_title for one in stand],
        },
    )


# ── A failure that was none ───────────────────────────────────────────────────────────────────


def open_letters(conn: Connection, message_ids: Collection[int]) -> list[int]:
    """The dead letters of these messages that nobody has settled."""
    found = conn.execute(
        text("SELECT id FROM dead_letters WHERE message_id = ANY(:ids) AND resolved_at IS NULL"),
        {"ids": list(message_ids)},
    )
    return list(found.scalars())


@dataclass(frozen=True)
class Replacement:
    """A message that waits to go in the place of another."""

    message_id: int
    state: State
    lead_id: UUID
    has_others: bool
    """Whether its lead has other messages under way."""


def waiting_replacements(conn: Connection, message_ids: Collection[int]) -> list[Replacement]:
    """What was planned in the place of these locked messages and has not begun."""
    rows = conn.execute(
        text("""
            SELECT r.id, r.state, r.lead_id,
                   EXISTS (SELECT 1 FROM outbox_messages u
                           WHERE u.lead_id = r.lead_id AND u.id <> r.id AND u.state = ANY(:open))
            FROM outbox_messages o JOIN outbox_messages r ON r.id = o.replaced_by
            WHERE o.id = ANY(:ids) AND r.state IN ('planned', 'deferred') ORDER BY r.id
        """),
        {"ids": list(message_ids), "open": list(OPEN)},
    )
    return [Replacement(row[0], State(row[1]), row[2], row[3]) for row in rows]


# ── What comes too early ──────────────────────────────────────────────────────────────────────


def lock_words(conn: Connection, keys: Collection[Key]) -> None:
    """Let nobody else decide about these messages whether the log has them, until the commit."""
    conn.execute(
        text("""
            SELECT pg_advisory_xact_lock(word) FROM (
              SELECT DISTINCT hashtextextended('delivery ' || channel || ' ' || id, 0) AS word
              FROM unnest(CAST(:channels AS text[]), CAST(:ids AS text[])) AS told (channel, id)
              ORDER BY word
            ) AS words
        """),
        _arrays(keys),
    )


def keep_early(conn: Connection, told: Collection[Told], *, now: datetime) -> None:
    """Keep what was said of messages that the log does not have; once per message and status.

    The caller holds the lock on their keys, and brings no two words of one status.
    """
    words = [one.delivery for one in told]
    conn.execute(
        text("""
            INSERT INTO early_deliveries AS known
              (channel, external_id, status, at, code, title, meaning, correlation_id, told_at)
            SELECT channel, external_id, status, at, code, title, meaning, cause, :now
            FROM unnest(CAST(:channels AS text[]), CAST(:ids AS text[]), CAST(:statuses AS text[]),
                        CAST(:times AS timestamptz[]), CAST(:codes AS integer[]),
                        CAST(:titles AS text[]), CAST(:meanings AS text[]),
                        CAST(:causes AS text[]))
              AS told (channel, external_id, status, at, code, title, meaning, cause)
            ON CONFLICT (channel, external_id, status) DO UPDATE
            SET at = excluded.at, code = excluded.code, title = excluded.title,
                meaning = excluded.meaning, correlation_id = excluded.correlation_id
            WHERE (excluded.code IS NULL, excluded.at) < (known.code IS NULL, known.at)
        """),
        {
            **_arrays([one.key for one in told]),
            "statuses": [word.status for word in words],
            "times": [word.at for word in words],
            "codes": [
                word.code if abs(word.code or 0) <= _LARGEST_CODE else None for word in words
            ],
            "titles": [word.title for word in words],
            "meanings": [word.meaning for word in words],
            "causes": [word.correlation_id for word in words],
            "now": now,
        },
    )


def take_early(conn: Connection, key: Key) -> list[Told]:
    """What was said too early of this message, which the log has now; the caller holds its lock."""
    channel, external_id = key
    rows = conn.execute(
        text("""
            DELETE FROM early_deliveries WHERE channel = :channel AND external_id = :id
            RETURNING status, at, code, title, meaning, correlation_id
        """),
        {"channel": channel, "id": external_id},
    )
    return [
        Told(channel, Delivery(external_id, *row[:5], callback=None, correlation_id=row[5]))
        for row in rows
    ]


def _arrays(keys: Collection[Key]) -> dict[str, object]:
    return {"channels": [channel for channel, _ in keys], "ids": [id for _, id in keys]}
