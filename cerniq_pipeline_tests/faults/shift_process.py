"""Shifts and dispatches in processes of their own, which a test may kill, stop and continue.

Each is forked from a server that has imported everything already, so that one more costs
milliseconds; it is a real process all the same, with its own pid, connections and lease. Before it
begins it waits for a word, so that several can be started in the same moment.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import c_double
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any, Protocol

import httpcore  # noqa: F401 (httpx and SQLAlchemy load these two late, in every process anew)
import psutil
import psycopg  # noqa: F401
from redis import Redis
from sqlalchemy import Connection as SqlConnection
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from cerniq_pipeline.providers.timelinesai.channel import DIALECTS, TimelinesAI, open_client
from cerniq_pipeline.services import checkpoints
from cerniq_pipeline.services.dispatch import Request, fill_outbox, plan_batch, select_leads
from cerniq_pipeline.services.leasing import this_process
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline.store.database import Begin, DatabaseClock, connect
from cerniq_pipeline.store.quotas import QuotaGate
from cerniq_pipeline_tests.builders import SECRET

HELD = "another shift holds this phone"
SPEED = 1000.0
"""How much faster than life phones are paced: 30 s between two sends become 30 ms."""

_PATIENCE = 30.0
"""Seconds after which a test stops waiting for a process; reached only when something is wrong."""

_forkserver = multiprocessing.get_context("forkserver")
_forkserver.set_forkserver_preload(["__main__", __name__])


@dataclass(frozen=True)
class Servers:
    """Where the database, Redis and the sandbox are, and how far the test has moved time.

    `patience`: how many seconds a provider may take to answer, where the product's own time would
    be too long for a test. `log`: the file that takes what processes write about themselves.
    """

    database_url: str
    redis_url: str
    sandbox_url: str
    patience: float | None = None
    log: str | None = None
    moved: c_double = field(default_factory=lambda: _forkserver.RawValue(c_double, 0.0))

    def move_time(self, by: timedelta) -> None:
        """Let time pass for every process at once, also for those that stand still."""
        self.moved.value += by.total_seconds()

    def desk(self, engine: Engine, *, nap: float = 1.0) -> Desk:
        """All that a shift brings along, as the product puts it together."""
        redis = Redis.from_url(self.redis_url, socket_timeout=5, socket_connect_timeout=3)
        client = open_client(self.sandbox_url, "sandbox-token")
        if self.patience is not None:
            client.timeout = self.patience
        return Desk(
            begin=engine.begin,
            gate=QuotaGate(redis),
            channels={"timelinesai": TimelinesAI(client, DIALECTS["public"]())},
            histories={},
            clock=MovedClock(engine, self.moved, nap=nap),
            luck=lambda: 0.0,
            secret=SECRET,
            speed=SPEED,
            sends_per_minute=1000,
        )


class MovedClock(DatabaseClock):
    """The database's clock, as far ahead as the test has moved it; waits are cut short.

    Waking early is always allowed: who wakes looks again, and sleeps again if need be.
    """

    def __init__(self, engine: Engine, moved: c_double, *, nap: float) -> None:
        super().__init__(engine)
        self._moved = moved
        self._nap = nap

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._moved.value)

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, self._nap))


@dataclass(frozen=True)
class Trap:
    """Send this signal to oneself when a checkpoint is passed for the n-th time."""

    point: str
    nth: int = 1
    number: signal.Signals = signal.SIGKILL

    def arm(self) -> None:
        """From now on lie in wait at the checkpoint."""
        left = self.nth

        def reach(name: str) -> None:
            nonlocal left
            if name != self.point:
                return
            left -= 1
            if left == 0:
                os.kill(os.getpid(), self.number)

        checkpoints.reach = reach


class Deaf:
    """Transactions of which the n-th commits, and nobody hears that it did."""

    def __init__(self, begin: Begin, nth: int) -> None:
        self._begin = begin
        self._left = nth

    @contextmanager
    def begin(self) -> Iterator[SqlConnection]:
        with self._begin() as conn:
            yield conn
        self._left -= 1
        if self._left == 0:
            raise OperationalError("COMMIT", {}, Exception("the connection was lost"))


@dataclass(frozen=True)
class ShiftOrder:
    """One shift of one phone.

    `unheard`: lose the answer to this commit. `insists`: come back until nobody else holds the
    phone. `time_zone`: what the machine takes for its own.
    """

    phone_id: str = "acme-01"
    trap: Trap | None = None
    unheard: int | None = None
    longest: timedelta = timedelta(minutes=2)
    nap: float = 0.05
    insists: bool = False
    time_zone: str | None = None

    def carry_out(self, servers: Servers, go: Callable[[], object]) -> dict[str, Any]:
        """Work the shift; says how it ended."""
        if self.time_zone is not None:
            os.environ["TZ"] = self.time_zone
            time.tzset()
        engine = connect(servers.database_url)
        desk = servers.desk(engine, nap=self.nap)
        desk.clock.now()  # connected: from here to the first lock it is a short way
        if self.trap is not None:
            self.trap.arm()
        if self.unheard is not None:
            desk = replace(desk, begin=Deaf(desk.begin, self.unheard).begin)
        go()
        while True:
            me = this_process(f"shift-{os.getpid()}")
            shift = work_shift(desk, self.phone_id, me, longest=self.longest)
            if not (self.insists and shift.ended == HELD):
                return {"ended": shift.ended, "outcomes": dict(shift.outcomes)}
            time.sleep(0.005)


@dataclass(frozen=True)
class DispatchOrder:
    """One dispatch of one tenant."""

    tenant_id: str = "acme"
    request: Request = field(default_factory=Request)

    def carry_out(self, servers: Servers, go: Callable[[], object]) -> dict[str, Any]:
        """Dispatch; says how many messages were written."""
        desk = servers.desk(connect(servers.database_url))
        return {"written": self.dispatch(desk, go)}

    def dispatch(self, desk: Desk, go: Callable[[], object]) -> int:
        """Select and plan, wait for the word, and only then write; returns how many messages."""
        now, name = desk.clock.now(), f"dispatch-{os.getpid()}"
        batch_id, _ = select_leads(
            desk.begin, self.tenant_id, self.request, by=name, secret=desk.secret, now=now
        )
        plan_batch(desk.begin, batch_id, now=now)
        go()
        written, _ = fill_outbox(desk.begin, batch_id, by=name, now=now)
        return written


class Order(Protocol):
    """What a process is told to do. It must be importable from a module, to reach the process."""

    def carry_out(self, servers: Servers, go: Callable[[], object]) -> dict[str, Any]:
        """Get ready, call `go`, do it, and report."""
        ...


def _run(order: Order, servers: Servers, line: Connection) -> None:
    """What the process does: get ready, wait for the word, carry out its order, report."""

    def go() -> None:
        line.send("ready")
        line.recv()

    if servers.log is not None:
        with open(servers.log, "a") as log:
            os.dup2(log.fileno(), sys.stderr.fileno())
    line.send(order.carry_out(servers, go))


@dataclass(frozen=True)
class End:
    """How a process ended, and what it had to report if it lived to report it."""

    exit_code: int
    report: dict[str, Any]

    @property
    def ended(self) -> str:
        """Why a shift stopped; empty when it died."""
        return self.report.get("ended", "")

    @property
    def outcomes(self) -> dict[str, int]:
        """What became of the messages that a shift handled."""
        return self.report.get("outcomes", {})


class Running:
    """One process of a crew."""

    def __init__(self, order: Order, servers: Servers) -> None:
        self._line, theirs = _forkserver.Pipe()
        self._process = _forkserver.Process(target=_run, args=(order, servers, theirs))
        self._process.start()
        theirs.close()
        if not self._line.poll(_PATIENCE):
            raise TimeoutError("a process did not get ready")
        self._line.recv()

    @property
    def pid(self) -> int:
        """The process to aim signals at."""
        assert self._process.pid is not None
        return self._process.pid

    def go(self) -> None:
        """Give the word to begin."""
        self._line.send("go")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; one that is gone hears nothing."""
        if self._process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stops(self) -> bool:
        """Wait until it stands still in a trap (True) or has ended (False)."""
        until = time.monotonic() + _PATIENCE
        while self._process.exitcode is None:
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(self.pid).status() == psutil.STATUS_STOPPED:
                    return True
            if time.monotonic() > until:
                raise TimeoutError("a process neither stopped nor ended")
            time.sleep(0.005)
        return False

    def wait_until_stopped(self) -> None:
        """Wait until it has fallen into a trap that stops it."""
        assert self.stops(), "a process did not stop where it should"

    def wait(self, seconds: float = _PATIENCE) -> End:
        """Wait until it has ended."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            raise TimeoutError("a process did not end")
        report: dict[str, Any] = {}
        with suppress(EOFError, ConnectionResetError):
            report = self._line.recv()
        return End(code, report)

    def reap(self) -> None:
        """Have it gone, whatever state it is in."""
        self.signal(signal.SIGKILL)
        self._process.join(_PATIENCE)
        self._line.close()


class Crew:
    """Starts processes on one set of servers, and leaves none behind."""

    def __init__(self, servers: Servers, *, pool_size: int = 20) -> None:
        self.servers = servers
        self.engine = connect(servers.database_url, pool_size=pool_size)
        self.desk = servers.desk(self.engine)
        self._started: list[Running] = []

    def ready(self, order: Order) -> Running:
        """A process that waits for the word to begin."""
        process = Running(order, self.servers)
        self._started.append(process)
        return process

    def start(self, phone_id: str = "acme-01", **order: Any) -> Running:
        """A shift under way."""
        process = self.ready(replace(ShiftOrder(phone_id), **order))
        process.go()
        return process

    def work(self, phone_id: str = "acme-01", **order: Any) -> End:
        """A shift from beginning to end."""
        return self.start(phone_id, **order).wait()

    def come_to_rest(self) -> None:
        """Start shifts and look-ups until nothing is due and nothing is in doubt."""
        for _ in range(8):
            busy = self.busy()
            if not busy:
                return
            for phone_id in busy:
                self.work(phone_id)
            settle_unconfirmed(self.desk, settle_time=timedelta(), who="test")
        raise AssertionError(f"{self.busy()} did not come to rest")

    def busy(self) -> Sequence[str]:
        """The phones with something due, in flight or in doubt."""
        with self.engine.connect() as conn:
            return conn.execute(_UNFINISHED, {"now": self.desk.clock.now()}).scalars().all()

    def dismiss(self) -> None:
        """End and collect every process that was started."""
        for process in self._started:
            process.reap()
        self.engine.dispose()


_UNFINISHED = text("""
    SELECT DISTINCT phone_id FROM outbox_messages
    WHERE state IN ('sending', 'unconfirmed')
       OR state IN ('planned', 'deferred') AND due_at <= :now
""")
