"""The inbox: everything that a provider told us, each event once, whoever brought it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import psycopg
from sqlalchemy import Connection, Engine, text

from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.store.leads import Person

Source = Literal["webhook", "sweep"]

BELL = "cerniq_inbox"
"""The channel on which whoever keeps an event rings."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One webhook as it is kept: its envelope, the headers worth keeping, the raw bytes."""

    provider: str
    event_key: str
    event_type: str
    account: str | None
    contact: str | None
    headers: str
    """A JSON object."""
    body: bytes
    received_at: datetime | None = None
    """By the database's clock; None: at this moment."""
    people: Sequence[str] = ()
    """Everybody it is about, by every name that it has for them."""
    correlation_id: str | None = None
    """Its caller's name for it; None: it gets one of ours."""


@dataclass(frozen=True)
class Kept:
    """What became of some webhooks: how many were new, and when that was."""

    new: int
    at: datetime


_KEEP_WEBHOOKS = """
    WITH moment AS (
      SELECT clock_timestamp() AS now
    ), kept AS (
      INSERT INTO webhook_events
        (provider, event_key, event_type, account, contact, source, headers, body, people,
         received_at, correlation_id)
      SELECT provider, event_key, event_type, account, contact, 'webhook', headers::jsonb, body,
             string_to_array(people, E'\\x1f'),
             least(received_at, now + place * interval '1 microsecond'),
             coalesce(correlation_id, gen_random_uuid()::text)
      FROM moment,
           unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[],
                  %b::bytea[], %b::text[], %b::timestamptz[], %b::text[])
             WITH ORDINALITY
             AS arrival (provider, event_key, event_type, account, contact, headers, body, people,
                         received_at, correlation_id, place)
      ORDER BY provider, event_key, place
      ON CONFLICT (provider, event_key) DO NOTHING
      RETURNING 1
    ), told AS MATERIALIZED (
      SELECT pg_notify('cerniq_inbox', '') FROM kept LIMIT 1
    )
    SELECT (SELECT count(*) FROM kept), (SELECT count(*) FROM told), now FROM moment
"""


async def keep_webhooks(conn: psycopg.AsyncConnection[Any], arrivals: Sequence[Arrival]) -> Kept:
    """Keep these webhooks in one statement and wake the drain; each event is kept once.

    Rows go in by their keys, so that two web services never wait for each other in a ring; the
    microseconds in `received_at` remember the order in which they came.
    """
    result = await conn.execute(
        _KEEP_WEBHOOKS,
        [
            [one.provider for one in arrivals],
            [one.event_key for one in arrivals],
            [one.event_type for one in arrivals],
            [one.account for one in arrivals],
            [one.contact for one in arrivals],
            [one.headers for one in arrivals],
            [one.body for one in arrivals],
            ["\x1f".join(one.people) for one in arrivals],  # Postgres has no lists of lists
            [one.received_at for one in arrivals],
            [one.correlation_id for one in arrivals],
        ],
        prepare=True,
    )
    row = await result.fetchone()
    assert row is not None
    return Kept(new=row[0], at=row[2])


def keep(conn: Connection, copies: Sequence[InboundCopy], *, source: Source, now: datetime) -> int:
    """Keep these events; returns how many of them were new.

    An event has the same key whether its webhook came or we fetched it, so it is kept once. Rows
    go in by their keys, as those of the web service do; the microseconds in `received_at` remember
    their order.
    """
    if not copies:
        return 0
    kept = conn.execute(
        text("""
            INSERT INTO webhook_events
              (provider, event_key, event_type, account, contact, source, body, people,
               received_at)
            SELECT provider, event_key, event_type, account, contact, :source, body,
                   string_to_array(people, E'\\x1f'),
                   CAST(:now AS timestamptz) + (place - 1) * interval '1 microsecond'
            FROM unnest(CAST(:providers AS text[]), CAST(:keys AS text[]), CAST(:types AS text[]),
                        CAST(:accounts AS text[]), CAST(:contacts AS text[]),
                        CAST(:people AS text[]), CAST(:bodies AS bytea[]))
              WITH ORDINALITY
              AS copy (provider, event_key, event_type, account, contact, people, body, place)
            ORDER BY provider, event_key, place
            ON CONFLICT (provider, event_key) DO NOTHING
        """),
        {
            "providers": [copy.provider for copy in copies],
            "keys": [copy.event_key for copy in copies],
            "types": [copy.event_type for copy in copies],
            "accounts": [copy.account for copy in copies],
            "contacts": [copy.contact for copy in copies],
            "people": [_names_in(copy) for copy in copies],
            "bodies": [copy.body for copy in copies],
            "source": source,
            "now": now,
        },
    )
    if kept.rowcount:
        ring(conn)
    return kept.rowcount


def confirm(conn: Connection, copies: Sequence[InboundCopy]) -> list[int]:
    """Let events that wait for their provider's word be heard in just that word; returns them.

    They wait, or lie dead because their provider did not know them yet. Whoever knows the id of a
    message can tell a lie under it: what the provider shows takes the place of what was told.
    """
    told = {
        "providers": [copy.provider for copy in copies],
        "keys": [copy.event_key for copy in copies],
    }
    # Events are locked by id where there are several, as everybody does.
    waiting = list(
        conn.execute(
            text("""
                SELECT e.id FROM webhook_events e
                JOIN unnest(CAST(:providers AS text[]), CAST(:keys AS text[]))
                  AS copy (provider, key) ON (e.provider, e.event_key) = (copy.provider, copy.key)
                WHERE e.source = 'webhook' AND (
                  e.state = 'waiting'
                  OR e.state = 'dead' AND EXISTS (
                    SELECT 1 FROM dead_letters d WHERE d.event_id = e.id
                      AND d.code = 'UNCONFIRMED_SENDER' AND d.resolved_at IS NULL))
                ORDER BY e.id FOR UPDATE OF e
            """),
            told,
        ).scalars()
    )
    if not waiting:
        return []
    conn.execute(
        text("""
            UPDATE webhook_events e
            SET source = 'sweep', body = copy.body, event_type = copy.type,
                account = copy.account, contact = copy.contact,
                people = string_to_array(copy.people, E'\x1f'),
                state = 'waiting', turn = NULL, handled_at = NULL, error = NULL,
                next_try_at = CASE WHEN e.error LIKE 'UNCONFIRMED_SENDER:%' THEN NULL
                                   ELSE e.next_try_at END,
                tries = CASE WHEN e.state = 'dead' THEN 0 ELSE e.tries END
            FROM unnest(CAST(:providers AS text[]), CAST(:keys AS text[]), CAST(:types AS text[]),
                        CAST(:accounts AS text[]), CAST(:contacts AS text[]),
                        CAST(:people AS text[]), CAST(:bodies AS bytea[]))
              AS copy (provider, key, type, account, contact, people, body)
            WHERE e.id = ANY(:ids) AND (e.provider, e.event_key) = (copy.provider, copy.key)
        """),
        {
            **told,
            "types": [copy.event_type for copy in copies],
            "accounts": [copy.account for copy in copies],
            "contacts": [copy.contact for copy in copies],
            "people": [_names_in(copy) for copy in copies],
            "bodies": [copy.body for copy in copies],
            "ids": waiting,
        },
    )
    ring(conn)
    return waiting


def _names_in(copy: InboundCopy) -> str:
    return "\x1f".join(dict.fromkeys([copy.contact, *copy.people]))


def ring(conn: Connection) -> None:
    """Wake whoever handles events, when this transaction is committed."""
    conn.execute(text("SELECT pg_notify(:bell, '')"), {"bell": BELL})


def about(conn: Connection, *, provider: str, contact: str, since: datetime) -> list[bytes]:
    """The raw events that may be about this contact, oldest first.

    For looking up a send that nobody is sure of: the provider's own word that it went out. One body
    tells of several people and numbers of ours, in any order, and may name a person by an id that
    we do not know yet: whoever is named so may be this one.
    """
    rows = conn.execute(
        text("""
            SELECT body FROM webhook_events
            WHERE provider = :provider AND received_at >= :since
              AND (:contact = ANY(people)
                   OR EXISTS (SELECT 1 FROM unnest(people) AS one WHERE one NOT LIKE '+%'))
            ORDER BY received_at, id
        """),
        {"provider": provider, "contact": contact, "since": since},
    )
    return [bytes(body) for body in rows.scalars()]


def counts(conn: Connection, *, tenant_id: str | None = None) -> dict[str, int]:
    """Events by state; of one tenant those that came to its phones."""
    rows = conn.execute(
        text("""
            SELECT state, count(*) FROM webhook_events
            WHERE CAST(:tenant AS text) IS NULL OR account IN
              (SELECT phone_number FROM wa_phone_numbers WHERE tenant_id = :tenant)
            GROUP BY state ORDER BY state
        """),
        {"tenant": tenant_id},
    )
    return {row[0]: row[1] for row in rows}


# ── Handling ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Stored:
    """An event as it came, waiting to be handled."""

    id: int
    provider: str
    event_type: str
    source: Source
    account: str | None
    body: bytes
    received_at: datetime
    tries: int
    correlation_id: str | None = None


def waiting(
    conn: Connection, *, limit: int, new: bool, besides: Collection[int] = (), now: datetime
) -> list[Stored]:
    """Events whose turn it is, in that order: those that nobody has looked at yet, or the others.

    By state and not by a cursor: ids commit out of order, and a cursor would step over a late one
    for good.
    """
    rows = conn.execute(
        text(f"""
            SELECT id, provider, event_type, source, account, body, received_at, tries,
                   correlation_id
            FROM webhook_events
            WHERE state = 'waiting' AND turn IS {"" if new else "NOT "}NULL
              AND id <> ALL(:besides)
              AND (next_try_at IS NULL OR next_try_at <= :now)
            ORDER BY turn, received_at, id LIMIT :limit
        """),  # noqa: S608 - one of two words
        {"limit": limit, "besides": list(besides), "now": now},
    )
    return [
        Stored(
            id=row.id,
            provider=row.provider,
            event_type=row.event_type,
            source=row.source,
            account=row.account,
            body=bytes(row.body),
            received_at=row.received_at,
            tries=row.tries,
            correlation_id=row.correlation_id,
        )
        for row in rows
    ]


def is_waiting(conn: Connection, *, now: datetime) -> bool:
    """Whether an event's turn has come."""
    return conn.execute(
        text("""
            SELECT EXISTS (SELECT 1 FROM webhook_events WHERE state = 'waiting'
                           AND (next_try_at IS NULL OR next_try_at <= :now))
        """),
        {"now": now},
    ).scalar_one()


def set_turns(conn: Connection, turns: Mapping[int, int]) -> None:
    """Note of events that were looked at when their turn is: the lowest comes first."""
    conn.execute(
        text("""
            UPDATE webhook_events e SET turn = t.turn
            FROM unnest(CAST(:ids AS bigint[]), CAST(:turns AS smallint[])) AS t (id, turn)
            WHERE e.id = t.id AND e.state = 'waiting'
        """),
        {"ids": list(turns), "turns": list(turns.values())},
    )


def lock(conn: Connection, event_ids: Sequence[int]) -> list[int]:
    """Lock those of these events that still wait and that nobody else is handling."""
    return list(
        conn.execute(
            text("""
                SELECT id FROM webhook_events WHERE id = ANY(:ids) AND state = 'waiting'
                ORDER BY id FOR UPDATE SKIP LOCKED
            """),
            {"ids": list(event_ids)},
        ).scalars()
    )


def finish(conn: Connection, results: Mapping[int, str], *, now: datetime) -> None:
    """Mark events as handled, each with what became of it; the caller has locked them."""
    conn.execute(
        text("""
            UPDATE webhook_events e
            SET state = 'done', result = r.result, error = NULL, next_try_at = NULL,
                handled_at = :now
            FROM unnest(CAST(:ids AS bigint[]), CAST(:results AS text[])) AS r (id, result)
            WHERE e.id = r.id
        """),
        {"ids": list(results), "results": list(results.values()), "now": now},
    )


def put_off(
    conn: Connection,
    event_id: int,
    *,
    error: str,
    until: datetime,
    tried: bool,
    source: Source,
) -> None:
    """Let an event wait for another try; one that was not really tried loses none.

    `source` is what was tried: one that the sweep has confirmed meanwhile need not wait.
    """
    conn.execute(
        text("""
            UPDATE webhook_events
            SET tries = tries + CASE WHEN :tried THEN 1 ELSE 0 END, error = :error,
                next_try_at = :until
            WHERE id = :id AND state = 'waiting' AND source = :source
        """),
        {"id": event_id, "source": source, "error": error, "until": until, "tried": tried},
    )


def give_up(conn: Connection, event_id: int, *, error: str, now: datetime, source: Source) -> bool:
    """Mark an event as one that cannot be handled; False when it is settled or confirmed by now."""
    given_up = conn.execute(
        text("""
            UPDATE webhook_events
            SET state = 'dead', tries = tries + 1, error = :error, next_try_at = NULL,
                handled_at = :now
            WHERE id = :id AND state = 'waiting' AND source = :source
        """),
        {"id": event_id, "source": source, "error": error, "now": now},
    )
    return given_up.rowcount > 0


def has_unheard(conn: Connection, tenant_id: str, person: Person) -> bool:
    """Whether this person wrote something that nobody has read yet, or that nobody could read.

    As any of their leads, on any channel, and by any name: a provider may know a person by an id
    instead of the number, as the conversations say.
    """
    return conn.execute(
        text("""
            SELECT EXISTS (
              SELECT 1 FROM webhook_events
              WHERE state <> 'done' AND people && (CAST(:names AS text[]) || ARRAY(
                SELECT unnest(ARRAY[customer_phone, customer_user_id]) FROM whatsapp_conversations
                WHERE tenant_id = :tenant
                  AND (lead_id = ANY(:leads) OR customer_phone = ANY(:names)))))
        """),
        {"tenant": tenant_id, "leads": list(person.lead_ids), "names": list(person.names)},
    ).scalar_one()


# ── Being woken ───────────────────────────────────────────────────────────────────────────────


class Bell:
    """Waits until an event is kept, on a connection of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listening: psycopg.Connection[Any] | None = None

    def wait(self, seconds: float) -> bool:
        """Sleep until somebody rings, at most so long; True when they did."""
        try:
            if self._listening is None:
                self._listening = self._listen()
            return any(self._listening.notifies(timeout=seconds, stop_after=1))
        except psycopg.OperationalError:
            self.close()
            return False  # whoever asks the database next will see that it is away

    def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _listen(self) -> psycopg.Connection[Any]:
        url = self._engine.url.set(drivername="postgresql")
        connection = psycopg.connect(
            url.render_as_string(hide_password=False), autocommit=True, connect_timeout=5
        )
        connection.execute(f"LISTEN {BELL}")
        return connection
