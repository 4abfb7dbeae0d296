"""Quota: the ledger in Postgres is the truth, Redis is the fast gate in front of it.

The gate keeps a set of lead ids per phone and day, not a counter: granting twice is harmless, and
the set can be compared with the ledger. It is believed only while it shows the ledger's epoch, so
a flushed, evicted or restored Redis is noticed before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from enum import IntEnum
from uuid import UUID

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import Connection, text

from cerniq_pipeline.domain.quotas import limit_on
from cerniq_pipeline.errors import QuotaUnknown

REBUILD_LOCK = 0x0CE2_1002
KEY_LIFE = timedelta(days=3)
EPOCH_KEY = "cerniq:quota:epoch"

_RESERVE = """
if redis.pcall('GET', KEYS[2]) ~= ARGV[3] then return -2 end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then return -2 end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 1 end
if redis.call('HLEN', KEYS[1]) + 1 > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], 'reserved')
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 1
"""
_RELEASE = """
if redis.call('HGET', KEYS[1], ARGV[1]) == 'reserved' then
  return redis.call('HDEL', KEYS[1], ARGV[1])
end
return 0
"""
_COMMIT = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], ARGV[1], 'committed')
end
return 1
"""
_RATE = """
local now, window, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then redis.call('DEL', KEYS[1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
if redis.call('ZCARD', KEYS[1]) >= most then
  return tostring(tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]) + window)
end
redis.call('ZADD', KEYS[1], now, ARGV[4])
redis.call('PEXPIRE', KEYS[1], math.ceil(window * 1000))
return '0'
"""


class Gate(IntEnum):
    """What the gate says to one more new contact; unknown: it is not what the ledger left."""

    UNKNOWN = -2
    FULL = 0
    GRANTED = 1


class QuotaGate:
    """Check and reserve in one step in Redis. Any trouble with Redis is `QuotaUnknown`: no send."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        # `register_script` falls back to EVAL when a restarted Redis has forgotten the script.
        self._reserve = redis.register_script(_RESERVE)
        self._commit = redis.register_script(_COMMIT)
        self._release = redis.register_script(_RELEASE)
        self._rate = redis.register_script(_RATE)

    def reserve(self, phone_id: str, day: date, lead: UUID, *, limit: int, epoch: int) -> Gate:
        """Reserve one new contact for this lead; granting the same lead again costs nothing."""
        with _redis_errors():
            keys = [_key(phone_id, day), EPOCH_KEY]
            life = int(KEY_LIFE.total_seconds())
            return Gate(int(self._reserve(keys=keys, args=[str(lead), limit, epoch, life])))  # pyright: ignore[reportArgumentType]

    def commit(self, phone_id: str, day: date, lead: UUID) -> None:
        """Note that the reserved contact really happened."""
        with _redis_errors():
            self._commit(keys=[_key(phone_id, day)], args=[str(lead)])

    def release(self, phone_id: str, day: date, lead: UUID) -> None:
        """Give back what was reserved for a send that certainly did not happen."""
        with _redis_errors():
            self._release(keys=[_key(phone_id, day)], args=[str(lead)])

    def used(self, phone_id: str, day: date) -> int:
        """How many new contacts the gate has let through."""
        with _redis_errors():
            return int(self._redis.hlen(_key(phone_id, day)))  # pyright: ignore[reportArgumentType]

    def replace(self, phone_id: str, day: date, leads: Mapping[UUID, str]) -> int:
        """Make the gate's set equal to the ledger's; returns how many entries differed."""
        key = _key(phone_id, day)
        with _redis_errors():
            is_set = self._redis.type(key) == b"hash"
            have = set(self._redis.hkeys(key)) if is_set else set()  # pyright: ignore[reportArgumentType]
            want = {str(lead).encode() for lead in leads}
            pipe = self._redis.pipeline(transaction=True)
            pipe.delete(key)
            if leads:
                pipe.hset(key, mapping={str(lead): state for lead, state in leads.items()})
                pipe.expire(key, KEY_LIFE)
            pipe.execute()
            return len(have ^ want)

    def show_epoch(self, epoch: int) -> None:
        """Declare the gate complete as of this epoch."""
        with _redis_errors():
            self._redis.set(EPOCH_KEY, epoch)

    def epoch(self) -> int | None:
        """The epoch that the gate shows, if any."""
        with _redis_errors():
            if self._redis.type(EPOCH_KEY) != b"string":
                return None
            value = bytes(self._redis.get(EPOCH_KEY) or b"")  # pyright: ignore[reportArgumentType]
            return int(value) if value.isdigit() else None

    def rate(
        self, name: str, *, most: int, window: timedelta, now: datetime, token: str
    ) -> datetime | None:
        """Take one place in a sliding window; None when taken, else when the next one is free."""
        with _redis_errors():
            args = [now.timestamp(), window.total_seconds(), most, token]
            free_at = float(self._rate(keys=[f"cerniq:rate:{name}"], args=args))  # pyright: ignore[reportArgumentType]
            return datetime.fromtimestamp(free_at, tz=now.tzinfo) if free_at else None


@contextmanager
def _redis_errors() -> Iterator[None]:
    """Turn every failure of Redis into the one thing it means here."""
    try:
        yield
    except (RedisError, OSError, ValueError) as error:
        raise QuotaUnknown(f"Redis cannot be asked ({type(error).__name__})") from error


def _key(phone_id: str, day: date) -> str:
    return f"cerniq:quota:{phone_id}:{day.isoformat()}"


# ── The ledger ────────────────────────────────────────────────────────────────────────────────


def used(conn: Connection, phone_id: str, day: date) -> int:
    """New contacts that count against this phone's day."""
    return conn.execute(
        text("""
            SELECT count(*) FROM quota_ledger
            WHERE phone_id = :phone AND day = :day AND state <> 'released'
        """),
        {"phone": phone_id, "day": day},
    ).scalar_one()


def reserve(
    conn: Connection, *, phone_id: str, lead_id: UUID, day: date, message_id: int, now: datetime
) -> None:
    """Write the reservation; the caller holds the phone's lease and has checked the count.

    A lead counts once a day, whichever of its messages it was. What is sent anew on another day
    counts on that one too: what the provider took, or may have taken, keeps its place.
    """
    conn.execute(
        text("""
            INSERT INTO quota_ledger (phone_id, lead_id, day, message_id, state, at)
            VALUES (:phone, :lead, :day, :message, 'reserved', :now)
            ON CONFLICT (phone_id, lead_id, day) DO UPDATE
            SET message_id = excluded.message_id, state = 'reserved', at = excluded.at
            WHERE quota_ledger.state = 'released'
        """),
        {"phone": phone_id, "lead": lead_id, "day": day, "message": message_id, "now": now},
    )


def settle(conn: Connection, *, message_id: int, state: str, now: datetime) -> date | None:
    """Commit or release what a message reserved; returns its day, or None when it reserved none."""
    return conn.execute(
        text("""
            UPDATE quota_ledger SET state = :state, at = :now
            WHERE message_id = :message AND state = 'reserved'
              AND (phone_id, lead_id) = (SELECT phone_id, lead_id FROM outbox_messages
                                         WHERE id = :message)
            RETURNING day
        """),
        {"message": message_id, "state": state, "now": now},
    ).scalar_one_or_none()


def epoch(conn: Connection) -> int:
    """The epoch that the gate must show."""
    return conn.execute(text("SELECT epoch FROM quota_gate WHERE id = 1")).scalar_one()


def counted_leads(conn: Connection, phone_id: str, day: date) -> dict[UUID, str]:
    """The leads that count against this phone's day, with the state of each."""
    rows = conn.execute(
        text("""
            SELECT lead_id, state FROM quota_ledger
            WHERE phone_id = :phone AND day = :day AND state <> 'released'
        """),
        {"phone": phone_id, "day": day},
    )
    return {row.lead_id: row.state for row in rows}


def rebuild(conn: Connection, gate: QuotaGate, *, now: datetime) -> int:
    """Fill the gate from the ledger and show a new epoch; returns the epoch.

    One at a time: who waited here finds the epoch already shown and has nothing left to do.
    """
    conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": REBUILD_LOCK})
    current = epoch(conn)
    if gate.epoch() == current:
        return current
    phones: dict[tuple[str, date], dict[UUID, str]] = {}
    for phone_id, day, lead, state in conn.execute(
        text("""
            SELECT phone_id, day, lead_id, state FROM quota_ledger
            WHERE day >= CAST(:now AS date) - 1 AND state <> 'released'
        """),
        {"now": now},
    ):
        phones.setdefault((phone_id, day), {})[lead] = state
    for (phone_id, day), leads in phones.items():
        gate.replace(phone_id, day, leads)
    # The number is used up even if this transaction fails later: a sequence would do as well, but
    # the row shows when the gate was last rebuilt.
    fresh = current + 1
    conn.execute(
        text("UPDATE quota_gate SET epoch = :epoch, rebuilt_at = :now WHERE id = 1"),
        {"epoch": fresh, "now": now},
    )
    gate.show_epoch(fresh)
    return fresh


def close_days(conn: Connection, *, tenant_id: str, before: date, now: datetime) -> int:
    """Write the figures of every ended day that has none yet; returns how many were closed."""
    ended = conn.execute(
        text("""
            SELECT q.phone_id, q.day, p.daily_quota, p.warm_up_from,
                   count(*) FILTER (WHERE q.state <> 'released') AS used
            FROM quota_ledger q JOIN wa_phone_numbers p ON p.id = q.phone_id
            LEFT JOIN quota_days d ON d.phone_id = q.phone_id AND d.day = q.day
            WHERE p.tenant_id = :tenant AND q.day < :before AND d.day IS NULL
            GROUP BY q.phone_id, q.day, p.daily_quota, p.warm_up_from
        """),
        {"tenant": tenant_id, "before": before},
    ).all()
    if ended:
        conn.execute(
            text("""
                INSERT INTO quota_days (phone_id, day, used, daily_limit, closed_at)
                VALUES (:phone, :day, :used, :limit, :now) ON CONFLICT DO NOTHING
            """),
            [
                {
                    "phone": row.phone_id,
                    "day": row.day,
                    "used": row.used,
                    "limit": limit_on(
                        row.day, quota=row.daily_quota, warm_up_from=row.warm_up_from
                    ),
                    "now": now,
                }
                for row in ended
            ],
        )
    return len(ended)
