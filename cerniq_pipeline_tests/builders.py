"""Small builders: a test names only what it is about."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import httpx
from redis import Redis
from sqlalchemy import Connection, Engine, text

from cerniq_pipeline.domain.holds import Hold
from cerniq_pipeline.domain.outbox import OutboxMessage, State
from cerniq_pipeline.providers.meta import channel as meta
from cerniq_pipeline.providers.meta.channel import MetaCloud
from cerniq_pipeline.providers.timelinesai.channel import DIALECTS, TimelinesAI, open_client
from cerniq_pipeline.providers.timelinesai.history import HISTORIES
from cerniq_pipeline.services import claiming, recording, sending
from cerniq_pipeline.services.claiming import Nothing
from cerniq_pipeline.services.dispatch import Request, fill_outbox, plan_batch, select_leads
from cerniq_pipeline.services.leasing import LEASE, Lease, acquire, this_process
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.quotas import QuotaGate
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

SECRET = b"a secret of the tests"
NOON = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
"""A Wednesday, 12:00 in Bucharest: an open hour of a working day."""

FIRST = "Bună ziua, {{companie}}! Pasul unu."
SECOND = "Revin, {{companie}}! Pasul doi."
THIRD = "Ultimul mesaj, {{companie}}! Pasul trei."


class ManualClock:
    """A clock that stands still until it is told to move, or until somebody sleeps."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        self.move(timedelta(seconds=max(0.0, seconds)))

    def move(self, by: timedelta) -> None:
        with self._lock:
            self._now += by

    def set(self, to: datetime) -> None:
        with self._lock:
            self._now = to


@dataclass(frozen=True)
class World:
    """A tenant with phones and a sequence, ready to be dispatched."""

    tenant_id: str
    sequence_id: int
    phones: tuple[str, ...]


def a_world(
    conn: Connection,
    *,
    tenant_id: str = "acme",
    phones: int = 1,
    quota: int = 200,
    steps: tuple[str, ...] = (FIRST,),
    delay: timedelta = timedelta(days=1),
    **tenant: object,
) -> World:
    """Insert a tenant that accepts every lawful basis, its phones and its default sequence."""
    tenant = {
        "basis_policy": '{"WHATSAPP": ["consent", "existing_customer"]}',
        "alike_texts": 0,  # the texts of tests differ by a number only
    } | tenant
    columns = ", ".join(["id", "name", *tenant])
    values = ", ".join([":id", ":id", *(f":{name}" for name in tenant)])
    conn.execute(
        text(f"INSERT INTO tenants ({columns}) VALUES ({values})"), {"id": tenant_id, **tenant}
    )
    ids = tuple(f"{tenant_id}-{n:02d}" for n in range(1, phones + 1))
    for n, phone_id in enumerate(ids):
        a_phone(conn, tenant_id, phone_id, number=f"+4079000{n:04d}", quota=quota)
    sequence_id = a_sequence(conn, tenant_id, steps=steps, delay=delay)
    conn.execute(
        text("UPDATE tenants SET default_sequence_id = :s WHERE id = :t"),
        {"s": sequence_id, "t": tenant_id},
    )
    return World(tenant_id, sequence_id, ids)


def a_phone(
    conn: Connection, tenant_id: str, phone_id: str, *, number: str, quota: int = 200
) -> None:
    conn.execute(
        text("""
            INSERT INTO wa_phone_numbers
              (id, tenant_id, phone_number, timelinesai_account_id, daily_quota)
            VALUES (:id, :tenant, :number, :account, :quota)
        """),
        {
            "id": phone_id,
            "tenant": tenant_id,
            "number": number,
            "account": f"{number.lstrip('+')}@s.whatsapp.net",
            "quota": quota,
        },
    )


def a_sequence(
    conn: Connection,
    tenant_id: str,
    *,
    name: str = "main",
    steps: tuple[str, ...] = (FIRST,),
    delay: timedelta = timedelta(days=1),
) -> int:
    sequence_id = conn.execute(
        text("INSERT INTO sequences (tenant_id, name) VALUES (:t, :n) RETURNING id"),
        {"t": tenant_id, "n": name},
    ).scalar_one()
    for step, content in enumerate(steps, start=1):
        template_id = conn.execute(
            text("""
                INSERT INTO templates (tenant_id, name, channel, content)
                VALUES (:t, :n, 'WHATSAPP', :c) RETURNING id
            """),
            {"t": tenant_id, "n": f"{name} {step}", "c": content},
        ).scalar_one()
        conn.execute(
            text("""
                INSERT INTO sequence_steps (sequence_id, step, channel, template_id, delay_minutes)
                VALUES (:s, :step, 'WHATSAPP', :template, :delay)
            """),
            {
                "s": sequence_id,
                "step": step,
                "template": template_id,
                "delay": 0 if step == 1 else delay // timedelta(minutes=1),
            },
        )
    return sequence_id


def some_leads(
    conn: Connection,
    tenant_id: str = "acme",
    *,
    count: int = 1,
    basis: str | None = "consent",
    at: datetime = NOON - timedelta(hours=1),
    first: int = 0,
    **company: object,
) -> list[uuid.UUID]:
    """Insert companies with distinct numbers, and make their leads due since `at`."""
    ids = [uuid.uuid4() for _ in range(count)]
    columns = "".join(f", {name}" for name in company)
    values = "".join(f", :{name}" for name in company)
    conn.execute(
        text(f"""
            INSERT INTO gold_companies (id, tenant_id, denumire, telefon_principal{columns})
            VALUES (:id, :tenant, :name, :phone{values})
        """),
        [
            {
                "id": lead_id,
                "tenant": tenant_id,
                "name": f"Firma {first + n}",
                "phone": f"+407210{first + n:05d}",
                **company,
            }
            for n, lead_id in enumerate(ids)
        ],
    )
    conn.execute(
        text("""
            UPDATE gold_lead_journey
            SET next_action_at = :at, lawful_basis = :basis,
                lawful_basis_source = CASE WHEN CAST(:basis AS text) IS NOT NULL THEN 'test' END,
                lawful_basis_at = CASE WHEN CAST(:basis AS text) IS NOT NULL
                                       THEN CAST(:at AS timestamptz) END
            WHERE lead_id = ANY(:ids)
        """),
        {"ids": ids, "at": at, "basis": basis},
    )
    return ids


def dispatch(
    database: Engine,
    *,
    tenant_id: str = "acme",
    now: datetime = NOON,
    request: Request | None = None,
    by: str = "test",
    secret: bytes = SECRET,
) -> tuple[int, int]:
    """Run all three verbs of a dispatch: (messages written, planned before)."""
    batch_id, _ = select_leads(
        database.begin, tenant_id, request or Request(), by=by, secret=secret, now=now
    )
    plan_batch(database.begin, batch_id, now=now)
    return fill_outbox(database.begin, batch_id, by=by, now=now)


@lru_cache(maxsize=4)
def _client(url: str) -> httpx.Client:
    """One client per sandbox: it keeps no connection, and its TLS context is dear to make."""
    return open_client(url, "sandbox-token")


@lru_cache(maxsize=4)
def _meta_client(url: str) -> httpx.Client:
    return meta.open_client(url, "sandbox-token")


def a_desk(
    database: Engine,
    redis: Redis,
    sandbox: RunningSandbox,
    clock: ManualClock,
    *,
    dialect: str = "public",
    speed: float = 1.0,
    sends_per_minute: int = 10_000,
) -> Desk:
    """All that a shift brings along, over the real servers and the sandbox."""
    url = sandbox.public_url if dialect == "public" else sandbox.v1_url
    return Desk(
        begin=database.begin,
        gate=QuotaGate(redis),
        channels={
            "timelinesai": TimelinesAI(_client(url), DIALECTS[dialect]()),
            "meta": MetaCloud(_meta_client(sandbox.meta_url)),
        },
        histories={"timelinesai": HISTORIES[dialect](_client(url))},
        clock=clock,
        luck=lambda: 0.0,
        secret=SECRET,
        speed=speed,
        sends_per_minute=sends_per_minute,
    )


def a_message(**changes: object) -> OutboxMessage:
    """A claimed message, complete."""
    values: dict[str, object] = {
        "id": 1,
        "tenant_id": "acme",
        "channel": "WHATSAPP",
        "provider": "timelinesai",
        "kind": "initial",
        "lead_id": uuid.UUID(int=1),
        "phone_id": "acme-01",
        "sender": "+40790000000",
        "account_id": "40790000000@s.whatsapp.net",
        "to": "+40721000000",
        "chat_id": None,
        "body": "Bună ziua!",
        "sequence_id": 1,
        "step": 1,
        "attempt": 1,
        "fence": 1,
        "begun_at": NOON,
    }
    return OutboxMessage(**(values | changes))  # pyright: ignore[reportArgumentType]


def states(database: Engine) -> dict[str, int]:
    """Outbox messages by state."""
    with database.connect() as conn:
        rows = conn.execute(text("SELECT state, count(*) FROM outbox_messages GROUP BY 1"))
        return {row[0]: row[1] for row in rows}


def always_open(now: datetime) -> dict[str, Any]:
    """A tenant for tests on the real clock: open at every hour, and far from midnight.

    New contacts rest in the last minutes of a day, so this tenant lives where it is six o'clock.
    """
    ahead = (6 - now.hour + 12) % 24 - 12
    return {
        "opens": 0,
        "closes": 1440,
        "working_days": [1, 2, 3, 4, 5, 6, 7],
        "holiday_country": None,
        "time_zone": f"Etc/GMT{-ahead:+d}",  # these names count westwards
    }


def rows(database: Engine, sql: str, **values: object) -> list[dict[str, object]]:
    """What a query finds, row by row."""
    with database.connect() as conn:
        return [dict(row) for row in conn.execute(text(sql), values).mappings()]


def everything(database: Engine) -> dict[str, int]:
    """How many rows each table has."""
    names = rows(
        database,
        """SELECT relname AS name FROM pg_class
           WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'""",
    )
    with database.connect() as conn:
        return {
            str(row["name"]): conn.execute(text(f"SELECT count(*) FROM {row['name']}")).scalar_one()
            for row in names
        }


def run_sql(database: Engine, sql: str, **values: object) -> int:
    """Change something behind the product's back; returns how many rows were."""
    with database.begin() as conn:
        return conn.execute(text(sql), values).rowcount


@dataclass
class Office:
    """One phone at work over the real servers: its desk, its lease, and its clock."""

    database: Engine
    desk: Desk
    clock: ManualClock
    lease: Lease

    def claim(self) -> OutboxMessage | Hold | Nothing:
        return claiming.claim(self.desk, self.lease)

    def claimed(self) -> OutboxMessage:
        """The next message, when there must be one."""
        message = self.claim()
        assert isinstance(message, OutboxMessage), message
        return message

    def held(self) -> Hold:
        """What holds the next message, when something must."""
        hold = self.claim()
        assert isinstance(hold, Hold), hold
        return hold

    def send(self, message: OutboxMessage | None = None) -> State:
        """All three beats, from the claim or from a message that was claimed before."""
        message = message or self.claimed()
        return recording.record(self.desk, message, sending.call(self.desk, message), who="test")

    def send_after(self, wait: timedelta) -> State:
        """Wait, keep the lease as a shift would, and send."""
        self.wait(wait)
        return self.send()

    def wait(self, long: timedelta) -> None:
        """Let time pass under a lease that is kept."""
        self.clock.move(long)
        run_sql(
            self.database,
            "UPDATE phone_leases SET lease_until = :until WHERE phone_id = :phone",
            until=self.clock.now() + LEASE,
            phone=self.lease.phone_id,
        )


def an_office(
    database: Engine,
    redis: Redis,
    sandbox: RunningSandbox,
    *,
    now: datetime = NOON,
    leads: int = 1,
    dialect: str = "public",
    sends_per_minute: int = 10_000,
    **world: Any,
) -> Office:
    """A world with dispatched leads, and its first phone in this process's hands."""
    clock = ManualClock(now)
    with database.begin() as conn:
        phone_id = a_world(conn, **world).phones[0]
        some_leads(conn, count=leads, at=now - timedelta(hours=1))
    assert dispatch(database, now=now) == (leads, 0)
    desk = a_desk(
        database, redis, sandbox, clock, dialect=dialect, sends_per_minute=sends_per_minute
    )
    lease = acquire(database.begin, phone_id, this_process("test"), now=now)
    assert lease is not None
    return Office(database, desk, clock, lease)


def the_row(database: Engine, sql: str, **values: object) -> dict[str, object]:
    """The one row that a query finds."""
    (found,) = rows(database, sql, **values)
    return found


def wait_until_somebody_waits_for_a_lock(database: Engine) -> None:
    """Return when a connection of this database stands before a lock."""
    for _ in range(10_000):
        with database.connect() as conn:
            waiting = conn.execute(
                text("""
                    SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'
                """)
            ).scalar_one()
        if waiting:
            return
    raise AssertionError("nobody waits for a lock")


def beginning(database: Engine, before_commit: Callable[[], None]) -> Begin:
    """Transactions that let something happen just before their commit."""

    @contextmanager
    def begin() -> Iterator[Connection]:
        with database.begin() as conn:
            yield conn
            before_commit()

    return begin
