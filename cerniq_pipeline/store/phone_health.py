"""How the phones are: whether they are linked, what they sent and heard, and their heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.health import Traffic
from cerniq_pipeline.domain.outbox import Connection as Link
from cerniq_pipeline.domain.outbox import Line
from cerniq_pipeline.store import tenants

# ── Linked or not ─────────────────────────────────────────────────────────────────────────────


def lines(conn: Connection) -> dict[str, list[Line]]:
    """Every phone as its provider knows it, by provider."""
    found: dict[str, list[Line]] = {}
    for row in conn.execute(
        text("""
            SELECT provider, id, phone_number,
                   coalesce(meta_phone_number_id, timelinesai_account_id) AS account_id
            FROM wa_phone_numbers ORDER BY provider, id
        """)
    ):
        found.setdefault(row.provider, []).append(Line(row.id, row.phone_number, row.account_id))
    return found


@dataclass(frozen=True)
class Change:
    """One phone before and after a look at its connection."""

    phone_id: str
    tenant_id: str
    before: str
    status: str
    error: str | None


def apply_links(
    conn: Connection, links: Mapping[str, Link], *, asked_at: datetime, now: datetime
) -> list[Change]:
    """Bring the phones' statuses in line with what a provider said; returns each of them.

    A phone that a send or a person changed after we asked is left alone: that word is newer. A
    banned phone stays banned. What could not be read changes nothing but its error.
    """
    rows = conn.execute(
        text("""
            WITH seen AS MATERIALIZED (
              SELECT p.id, p.status AS before, l.connected, l.detail,
                CASE WHEN l.connected IS NULL OR p.status_changed_at >= :asked THEN p.status
                     WHEN p.status = 'ACTIVE' AND NOT l.connected THEN 'OFFLINE'
                     WHEN p.status = 'OFFLINE' AND l.connected THEN 'ACTIVE'
                     ELSE p.status END AS status
              FROM unnest(CAST(:ids AS text[]), CAST(:connected AS boolean[]),
                          CAST(:details AS text[])) AS l (id, connected, detail)
              JOIN wa_phone_numbers p ON p.id = l.id
              ORDER BY p.id FOR UPDATE OF p
            )
            UPDATE wa_phone_numbers p
            SET status = s.status,
                status_reason = CASE WHEN s.status <> s.before THEN s.detail
                                     ELSE p.status_reason END,
                status_changed_at = CASE WHEN s.status <> s.before THEN :now
                                         ELSE p.status_changed_at END,
                is_online = CASE WHEN s.connected IS NULL THEN p.is_online
                                 ELSE s.status = 'ACTIVE' END,
                last_health_check_at = :now,
                last_sync_error = CASE WHEN s.connected IS NULL THEN s.detail END,
                updated_at = :now
            FROM seen s WHERE p.id = s.id
            RETURNING p.id, p.tenant_id, s.before, p.status, p.last_sync_error
        """),
        {
            "ids": list(links),
            "connected": [link.connected for link in links.values()],
            "details": [link.detail for link in links.values()],
            "asked": asked_at,
            "now": now,
        },
    )
    return sorted((Change(*row) for row in rows), key=lambda change: change.phone_id)


# ── What they sent and heard ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class PhoneRecord:
    """What the log and the attempts say of one phone."""

    phone_id: str
    tenant_id: str
    active: bool
    attempts: int
    failed: int
    traffic: Traffic


_ZONES = "unnest(CAST(:tenants AS text[]), CAST(:zones AS text[])) AS t (id, time_zone)"
"""The time zone of every tenant as it was read: of one that there is not Postgres knows nothing."""


def _zones(conn: Connection) -> dict[str, list[str]]:
    zones = tenants.time_zones(conn)
    return {"tenants": list(zones), "zones": list(zones.values())}


_PHONES = f"""
    phone AS MATERIALIZED (
      SELECT p.id, p.tenant_id, p.status = 'ACTIVE' AND p.is_online AS active, t.time_zone,
             CAST(:now AS timestamptz) AT TIME ZONE t.time_zone AS here,
             reply.at AT TIME ZONE t.time_zone AS reply_here, reply.at AS reply_at
      FROM wa_phone_numbers p JOIN {_ZONES} ON t.id = p.tenant_id
      LEFT JOIN LATERAL (
        SELECT l.sent_at AS at FROM gold_communication_log l
        WHERE l.phone_id = p.id AND l.direction = 'INBOUND' AND l.sent_at <= :now
        ORDER BY l.sent_at DESC LIMIT 1
      ) reply ON true
    )
"""  # noqa: S608 - a constant of this page
"""Every phone, with what its tenant's clock shows now and showed at its last reply."""

_UNANSWERED = """
    l.direction = 'OUTBOUND' AND l.channel = 'WHATSAPP' AND l.lead_journey_id IS NOT NULL
    AND NOT EXISTS (
      SELECT 1 FROM gold_communication_log r
      WHERE r.lead_journey_id = l.lead_journey_id AND r.sent_at >= l.sent_at AND r.sent_at <= :now
        AND r.direction = 'INBOUND' AND r.channel = 'WHATSAPP' AND r.status <> 'FAILED'
        AND r.phone_id IS NOT NULL)
"""
"""A message is answered when its person wrote anything after it, to whichever of our phones."""


def add_up_days(conn: Connection, *, history: int, now: datetime) -> int:
    """Bring `phone_days` in line with the log; returns how many days were added up.

    A day is added up once when it is over, and again when a word of that day changed since: a late
    failure, a reply, a message that a history brought. Those that the figures below ask for are
    there then: this month's, and the days of `history` before a phone's last reply.
    """
    zones = _zones(conn)
    # One at a time: of two, the slower one could write down what the other knew better.
    conn.execute(text("LOCK TABLE phone_days IN SHARE ROW EXCLUSIVE MODE"))
    conn.execute(
        text("""
            WITH changed AS (
              DELETE FROM phone_day_changes RETURNING phone_id, at
            )
            DELETE FROM phone_days d USING changed c
            WHERE d.phone_id = c.phone_id AND d.day = CAST(c.at AT TIME ZONE d.time_zone AS date)
        """)
    )
    conn.execute(
        text(f"""
            DELETE FROM phone_days d USING wa_phone_numbers p, {_ZONES}
            WHERE p.id = d.phone_id AND t.id = p.tenant_id AND d.time_zone <> t.time_zone
        """),  # noqa: S608 - a constant of this page
        zones,
    )
    added = conn.execute(
        text(f"""
            WITH {_PHONES}, missing AS (
              SELECT p.id, p.time_zone, CAST(each AS date) AS day,
                     each AT TIME ZONE p.time_zone AS begins,
                     (each + interval '1 day') AT TIME ZONE p.time_zone AS ends
              FROM phone p CROSS JOIN LATERAL generate_series(
                least(date_trunc('month', p.here),
                      date_trunc('day', p.reply_here) - make_interval(days => :history - 1)),
                date_trunc('day', p.here) - interval '1 day', interval '1 day') AS each
              WHERE NOT EXISTS (SELECT 1 FROM phone_days d
                                WHERE d.phone_id = p.id AND d.day = CAST(each AS date))
            )
            INSERT INTO phone_days (phone_id, day, time_zone, sent, unanswered, repliers)
            SELECT m.id, m.day, m.time_zone, said.sent, said.unanswered, said.repliers
            FROM missing m CROSS JOIN LATERAL (
              SELECT count(*) FILTER (WHERE l.direction = 'OUTBOUND') AS sent,
                     count(*) FILTER (WHERE {_UNANSWERED}) AS unanswered,
                     coalesce(array_agg(DISTINCT coalesce(CAST(l.lead_journey_id AS text),
                                                          l.thread_id))
                       FILTER (WHERE l.direction = 'INBOUND'
                               AND coalesce(CAST(l.lead_journey_id AS text), l.thread_id)
                                   IS NOT NULL), '{{}}') AS repliers
              FROM gold_communication_log l
              WHERE l.phone_id = m.id AND l.status <> 'FAILED'
                AND l.sent_at >= m.begins AND l.sent_at < m.ends
            ) said
            ON CONFLICT DO NOTHING
        """),  # noqa: S608 - constants of this page
        {"now": now, "history": history, **zones},
    )
    return added.rowcount


def records(conn: Connection, *, history: int, now: datetime) -> list[PhoneRecord]:
    """Every phone's attempts of the last 24 hours, and its traffic around its last reply.

    Before it counts the day of the reply with the `history` - 1 days before it. Whole days come
    from `phone_days`; only today and the day of the reply are read from the log.
    """
    rows = conn.execute(
        text(f"""
            WITH {_PHONES}
            SELECT p.id, p.tenant_id, p.active, a.attempts, a.failed,
                   coalesce(d.before, 0) + r.before AS sent_before,
                   k.replies AS replies_before,
                   coalesce(d.since, 0) + r.since + n.since AS sent_since
            FROM phone p
            CROSS JOIN LATERAL (
              SELECT count(*) AS attempts,
                     count(*) FILTER (WHERE outcome IN ('rejected', 'failed', 'unconfirmed'))
                       AS failed
              FROM send_attempts WHERE phone_id = p.id AND begun_at > :now - interval '1 day'
            ) a
            CROSS JOIN LATERAL (
              SELECT date_trunc('day', p.reply_here) AT TIME ZONE p.time_zone AS begins,
                     (date_trunc('day', p.reply_here) + interval '1 day') AT TIME ZONE p.time_zone
                       AS ends,
                     date_trunc('day', p.here) AT TIME ZONE p.time_zone AS today,
                     CAST(p.reply_here AS date) AS day
            ) of
            CROSS JOIN LATERAL (
              SELECT sum(sent) FILTER (WHERE day < of.day AND day > of.day - :history) AS before,
                     sum(sent) FILTER (WHERE day > of.day AND day < CAST(p.here AS date)) AS since
              FROM phone_days WHERE phone_id = p.id AND day > of.day - :history
            ) d
            CROSS JOIN LATERAL (
              SELECT count(*) FILTER (WHERE sent_at <= p.reply_at) AS before,
                     count(*) FILTER (WHERE sent_at > p.reply_at) AS since
              FROM gold_communication_log
              WHERE phone_id = p.id AND direction = 'OUTBOUND' AND status <> 'FAILED'
                AND sent_at >= of.begins AND sent_at < of.ends AND sent_at <= :now
            ) r
            CROSS JOIN LATERAL (
              SELECT count(*) AS since FROM gold_communication_log
              WHERE phone_id = p.id AND direction = 'OUTBOUND' AND status <> 'FAILED'
                AND sent_at >= of.today AND sent_at >= of.ends AND sent_at <= :now
            ) n
            CROSS JOIN LATERAL (
              SELECT count(DISTINCT who) AS replies FROM (
                SELECT unnest(repliers) AS who FROM phone_days
                WHERE phone_id = p.id AND day < of.day AND day > of.day - :history
                UNION ALL
                SELECT coalesce(CAST(lead_journey_id AS text), thread_id)
                FROM gold_communication_log
                WHERE phone_id = p.id AND direction = 'INBOUND' AND status <> 'FAILED'
                  AND sent_at >= of.begins AND sent_at < of.ends AND sent_at <= :now
              ) heard
            ) k
            ORDER BY p.id
        """),  # noqa: S608 - a constant of this page
        {"now": now, "history": history, **_zones(conn)},
    )
    return [
        PhoneRecord(
            phone_id=row.id,
            tenant_id=row.tenant_id,
            active=row.active,
            attempts=row.attempts,
            failed=row.failed,
            traffic=Traffic(int(row.sent_before), row.replies_before, int(row.sent_since)),
        )
        for row in rows
    ]


def count_unanswered(conn: Connection, *, now: datetime) -> int:
    """Count each phone's messages of the tenant's month without a reply; returns what changed."""
    changed = conn.execute(
        text(f"""
            WITH phone AS MATERIALIZED (
              SELECT p.id, t.time_zone, CAST(:now AS timestamptz) AT TIME ZONE t.time_zone AS here
              FROM wa_phone_numbers p JOIN {_ZONES} ON t.id = p.tenant_id
            ), counted AS (
              SELECT p.id, coalesce(d.unanswered, 0) + today.unanswered AS unanswered
              FROM phone p
              CROSS JOIN LATERAL (
                SELECT sum(unanswered) AS unanswered FROM phone_days
                WHERE phone_id = p.id AND day >= CAST(date_trunc('month', p.here) AS date)
                  AND day < CAST(p.here AS date)
              ) d
              CROSS JOIN LATERAL (
                SELECT count(*) AS unanswered FROM gold_communication_log l
                WHERE l.phone_id = p.id AND l.status <> 'FAILED' AND l.sent_at <= :now
                  AND l.sent_at >= date_trunc('day', p.here) AT TIME ZONE p.time_zone
                  AND {_UNANSWERED}
              ) today
            )
            UPDATE wa_phone_numbers w SET unanswered_this_month = c.unanswered
            FROM counted c
            WHERE w.id = c.id AND w.unanswered_this_month IS DISTINCT FROM c.unanswered
        """),  # noqa: S608 - a constant of this page
        {"now": now, **_zones(conn)},
    )
    return changed.rowcount


# ── Heartbeats ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Pair:
    """A phone that is to write, and the phone of ours that is to hear it."""

    phone_id: str
    to_phone_id: str


@dataclass(frozen=True)
class Heartbeat:
    """A message between two of our phones that was begun and not seen yet."""

    id: int
    tenant_id: str
    phone_id: str
    sender: str
    sender_provider: str
    receiver: str
    receiver_provider: str
    body: str
    begun_at: datetime


def wants_heartbeats(conn: Connection) -> bool:
    """Whether any tenant turned heartbeats on."""
    return conn.execute(
        text("SELECT EXISTS (SELECT 1 FROM tenants WHERE heartbeat_minutes > 0)")
    ).scalar_one()


def due_heartbeats(
    conn: Connection,
    *,
    providers: Sequence[str],
    now: datetime,
    phone_id: str | None = None,
) -> list[Pair]:
    """Active phones whose tenant wants heartbeats and that are due, with whom each writes to.

    One at a time per phone; the phone that waited longest comes first, and it writes to the one
    that it has not written to for longest.
    """
    rows = conn.execute(
        text("""
            WITH able AS (
              SELECT p.id, p.tenant_id, t.heartbeat_minutes
              FROM wa_phone_numbers p JOIN tenants t ON t.id = p.tenant_id
              WHERE t.heartbeat_minutes > 0 AND t.status = 'active'
                AND p.status = 'ACTIVE' AND p.is_enabled AND p.provider = ANY(:providers)
            )
            SELECT a.id, partner.id AS to_id
            FROM able a
            LEFT JOIN LATERAL (
              SELECT max(begun_at) AS at, bool_or(outcome IS NULL) AS under_way
              FROM heartbeats h WHERE h.phone_id = a.id
            ) last ON true
            CROSS JOIN LATERAL (
              SELECT o.id FROM able o
              WHERE o.tenant_id = a.tenant_id AND o.id <> a.id
              ORDER BY (SELECT max(begun_at) FROM heartbeats h
                        WHERE h.phone_id = a.id AND h.to_phone_id = o.id) NULLS FIRST, o.id
              LIMIT 1
            ) partner
            WHERE (CAST(:phone AS text) IS NULL OR a.id = :phone)
              AND last.under_way IS NOT TRUE
              AND (last.at IS NULL OR last.at + make_interval(mins => a.heartbeat_minutes) <= :now)
            ORDER BY last.at NULLS FIRST, a.id
        """),
        {"providers": list(providers), "now": now, "phone": phone_id},
    )
    return [Pair(row.id, row.to_id) for row in rows]


def begin_heartbeat(
    conn: Connection, *, tenant_id: str, pair: Pair, body: str, now: datetime
) -> int:
    """Write down a heartbeat; only when this is committed may a byte leave."""
    return conn.execute(
        text("""
            INSERT INTO heartbeats (tenant_id, phone_id, to_phone_id, body, begun_at)
            VALUES (:tenant, :phone, :to, :body, :now) RETURNING id
        """),
        {
            "tenant": tenant_id,
            "phone": pair.phone_id,
            "to": pair.to_phone_id,
            "body": body,
            "now": now,
        },
    ).scalar_one()


def open_heartbeats(conn: Connection) -> list[Heartbeat]:
    """Heartbeats that were begun and not settled, oldest first."""
    rows = conn.execute(
        text("""
            SELECT h.id, h.tenant_id, h.phone_id, s.phone_number, s.provider,
                   r.phone_number, r.provider, h.body, h.begun_at
            FROM heartbeats h
            JOIN wa_phone_numbers s ON s.id = h.phone_id
            JOIN wa_phone_numbers r ON r.id = h.to_phone_id
            WHERE h.outcome IS NULL ORDER BY h.begun_at, h.id
        """)
    )
    return [Heartbeat(*row) for row in rows]


def settle_heartbeat(conn: Connection, heartbeat_id: int, *, outcome: str, now: datetime) -> bool:
    """Say what became of a heartbeat; False when somebody else has said it."""
    settled = conn.execute(
        text("""
            UPDATE heartbeats SET outcome = :outcome, settled_at = :now
            WHERE id = :id AND outcome IS NULL
        """),
        {"id": heartbeat_id, "outcome": outcome, "now": now},
    )
    return settled.rowcount > 0
