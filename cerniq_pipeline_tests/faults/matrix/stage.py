"""Where scenarios play: servers that may be broken, and one fresh campaign per repeat."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import threading
import time
import uuid
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psutil
from redis import Redis
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

from cerniq_pipeline.dev.embedded import EmbeddedPostgres, EmbeddedRedis, _postgres_install
from cerniq_pipeline.dev.processes import send
from cerniq_pipeline.domain.calendar import Calendar
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.store.database import Unavailable
from cerniq_pipeline.store.migrations import upgrade
from cerniq_pipeline_tests.builders import rows, states
from cerniq_pipeline_tests.faults.campaign import LIMIT, check, plan
from cerniq_pipeline_tests.faults.judge import check_hours, check_silence, journal_time
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.shift_process import Crew, Servers
from cerniq_pipeline_tests.sandbox.running import Line, RunningSandbox

T = TypeVar("T")

TEMPLATE = "cerniq_template"
ANSWER_WITHIN = 5.0
"""Seconds that a provider has to answer here; the product waits longer, a test need not."""

SHIFT = timedelta(seconds=20)


@dataclass(frozen=True)
class Scale:
    """How much is played: `brief` is what a test run has time for, `most_sends` caps a campaign
    that is about sheer numbers."""

    brief: bool = False
    most_sends: int = 600

    @property
    def sends(self) -> int:
        """The size of a campaign that is about sheer numbers."""
        return min(120, self.most_sends) if self.brief else self.most_sends

    def pick(self, brief: int, full: int) -> int:
        """One of two sizes."""
        return brief if self.brief else full


class Stopwatch:
    """Measures how long the system takes to come back after each fault."""

    def __init__(self) -> None:
        self._over: list[datetime] = []
        self._rests: list[datetime] = []

    def fault_over(self) -> None:
        """From here on the time to recover is counted."""
        self._over.append(datetime.now(UTC))

    def at_rest(self) -> None:
        """Nothing is due and nothing in doubt."""
        self._rests.append(datetime.now(UTC))

    def longest(self, sandbox: RunningSandbox) -> float:
        """Seconds from the end of a fault to the next send, or to rest, at the worst."""
        well = [*self._rests, *(journal_time(line) for line in sandbox.accepted())]
        waits = [min(at for at in well if at > over) - over for over in self._over]
        return max(waits, default=timedelta()).total_seconds()


class House:
    """Postgres, Redis and a sandbox in a folder of their own, for scenarios to break."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self.folder = folder
        self.scale = scale
        self.log = folder / "processes.log"
        self.postgres = EmbeddedPostgres(folder / "postgres", durable=False)
        self.redis = EmbeddedRedis(folder / "redis")
        self.sandbox = RunningSandbox(folder / "sandbox")
        self._servers = ExitStack()
        self._guests = ExitStack()
        self._invited: dict[type, Any] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._servers as servers:
            servers.callback(self.postgres.stop)
            self.postgres.start()
            self._have_commits_timed()
            servers.callback(self.redis.stop)
            self.redis.start()
            servers.enter_context(self.sandbox)
            self.postgres.create_database(TEMPLATE)
            upgrade(self.postgres.url(TEMPLATE))
            servers.enter_context(_written_to(self.log))
            self._servers = servers.pop_all()  # all is well: they stay
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wake()
        self.see_off()
        self._servers.close()

    def guest(self, kind: type[T], start: Callable[[], AbstractContextManager[T]]) -> T:
        """Something dear to start, which stays until a scenario wants the house for itself."""
        if kind not in self._invited:
            self._invited[kind] = self._guests.enter_context(start())
        return self._invited[kind]

    def see_off(self) -> None:
        """End every guest."""
        self._invited.clear()
        self._guests.close()

    def wake(self) -> None:
        """Let every server that was stopped go on."""
        for pid in (self.postgres.pid(), self.redis.pid(), self.sandbox.pid):
            if pid is not None:
                signal_tree(pid, signal.SIGCONT)

    def mend(self) -> None:
        """Have every server running."""
        self.wake()
        self.postgres.start()
        self.redis.start()

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        """An empty database, Redis and sandbox, whatever the scenario before has left."""
        self.see_off()
        self.mend()
        self.redis.stop()  # what it was told is forgotten
        self.redis.start()
        with Redis.from_url(self.redis.url()) as client:
            client.flushall()
        self.sandbox.reset()
        self.log.write_text("")
        name = f"t_{uuid.uuid4().hex[:12]}"
        self._in_postgres(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        stage = Stage(self, name)
        try:
            yield stage
        finally:
            stage.crew.dismiss()
            self.mend()
            self._in_postgres(f"DROP DATABASE {name} WITH (FORCE)")

    def _have_commits_timed(self) -> None:
        """Let Postgres remember when each transaction was committed: races are judged by it."""
        self._in_postgres("ALTER SYSTEM SET track_commit_timestamp = on")
        self.postgres.stop()
        self.postgres.start()

    def _in_postgres(self, statement: str) -> None:
        admin = create_engine(self.postgres.url("postgres"), isolation_level="AUTOCOMMIT")
        with admin.connect() as conn:
            conn.execute(text(statement))
        admin.dispose()


class Stage:
    """One repeat: a campaign over real servers, and what its judge must be told."""

    def __init__(self, house: House, database: str) -> None:
        self.house = house
        self.scale = house.scale
        self.postgres, self.redis, self.sandbox = house.postgres, house.redis, house.sandbox
        self.limit = LIMIT
        self.calendar: Calendar | None = None
        self.erased: set[str] = set()
        self.logs = [house.log, self.sandbox.journal_dir / "sandbox.log"]
        self._moments = [datetime.min.replace(tzinfo=UTC)]
        self._moved = [0.0]
        self._watch = Stopwatch()
        self.fault_over = self._watch.fault_over
        servers = Servers(
            self.postgres.url(database),
            self.redis.url(),
            self.sandbox.public_url,
            patience=ANSWER_WITHIN,
            log=str(house.log),
        )
        self.crew = Crew(servers, pool_size=80)

    def plan(self, *, leads: int, limit: int, **more: Any) -> None:
        """Plan a first message for every lead, on phones that may open `limit` a day."""
        self.limit = limit
        # These texts are alike by design; that phones stop for it is another test's business.
        plan(self.crew, leads=leads, limit=limit, alike_texts=0, **more)

    @property
    def database_url(self) -> str:
        """Where this repeat's database is."""
        return self.crew.servers.database_url

    def phones(self) -> list[str]:
        """Every phone of the campaign."""
        return self._of_phones("id")

    def calls(self, operation: str) -> int:
        """How often the provider was asked for this, reads included."""
        health = self.sandbox.client.get("/_sandbox/health").raise_for_status().json()
        return health["calls"].get(operation, 0)

    def senders(self) -> list[str]:
        """The numbers of these phones."""
        return self._of_phones("phone_number")

    def _of_phones(self, column: str) -> list[str]:
        found = self.ask(f"SELECT {column} AS it FROM wa_phone_numbers ORDER BY id")
        return [str(row["it"]) for row in found]

    def ask(self, sql: str, **values: object) -> list[dict[str, object]]:
        """What a query finds, row by row."""
        return rows(self.crew.engine, sql, **values)

    def states(self) -> dict[str, int]:
        """Outbox messages by state."""
        return states(self.crew.engine)

    # ── Work ──────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def shifts_open(self, *, longest: timedelta = SHIFT) -> Iterator[OpenShifts]:
        """Have a shift open for every phone with work, as the sensor would; then come to rest."""
        shifts = OpenShifts(self.crew, self.phones(), longest=longest)
        try:
            yield shifts
        finally:
            shifts.close()
        self.come_to_rest()

    def look_up(self, *, settle_time: timedelta = timedelta()) -> Counter[str]:
        """Look up what nobody is sure of, as the product does once in a while."""
        return settle_unconfirmed(self.crew.desk, settle_time=settle_time, who="matrix")

    def come_to_rest(self) -> None:
        """Work and look up until nothing is due and nothing is in doubt.

        A phone whose last holder died, or ran out of time, must let the next shift have it.
        """
        self.crew.come_to_rest()
        for row in self.ask("SELECT phone_id FROM phone_leases WHERE holder IS NOT NULL"):
            self.crew.work(str(row["phone_id"]))
        self._watch.at_rest()

    # ── Time ──────────────────────────────────────────────────────────────────────────────────

    def now(self) -> datetime:
        """The system's time."""
        return self.crew.desk.clock.now()

    def move_time(self, by: timedelta) -> None:
        """Let time pass for every process at once; backwards too."""
        self.crew.servers.move_time(by)
        self._moments.append(datetime.now(UTC))
        self._moved.append(self.crew.servers.moved.value)

    def go_to(self, instant: datetime) -> None:
        """Make it this late."""
        self.move_time(instant - self.now())

    def time_of(self, line: Line) -> datetime:
        """When a line of the journal was written, by the system's clock."""
        at = journal_time(line)
        return at + timedelta(seconds=self._moved[bisect_right(self._moments, at) - 1])

    # ── Faults ────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def silence(self, *, in_flight: int, sender: str | None = None) -> Iterator[None]:
        """While this lasts nothing may be begun, from one phone or from all: fail closed."""
        since = datetime.now(UTC)
        yield
        until = datetime.now(UTC)
        check_silence(self.sandbox, since, until, in_flight=in_flight, sender=sender)

    def recovery(self, note: str = "") -> Recovery:
        """How long it took at worst from the end of a fault to the next send, or to rest."""
        moved = timedelta(seconds=max(map(abs, self._moved)))
        return Recovery(self._watch.longest(self.sandbox), moved, note)

    # ── Judgement ─────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Every promise, by the journal and the database."""
        check(self.crew, self.sandbox, limit=self.limit, time_of=self.time_of, erased=self.erased)
        if self.calendar is not None:
            check_hours(self.sandbox, self.calendar, time_of=self.time_of)

    def keep(self, folder: Path) -> None:
        """Put what happened here into a folder: the journal, a dump, and what processes wrote."""
        self.house.mend()
        keep_evidence(
            folder,
            journal=self.sandbox.journal_dir / "journal.jsonl",
            database_url=self.database_url,
            logs=self.logs,
        )


class OpenShifts:
    """One process per phone at a time, and another one whenever it ends while work is left."""

    def __init__(self, crew: Crew, phones: Sequence[str], *, longest: timedelta) -> None:
        self._running: dict[str, psutil.Process] = {}
        self._crew = crew
        self._longest = longest
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_open, args=[phone_id]) for phone_id in phones
        ]
        for thread in self._threads:
            thread.start()

    def any_work_left(self) -> bool:
        """Whether some phone has something due, in flight or in doubt."""
        return bool(self._crew.busy())

    def kill(self, phone_id: str) -> bool:
        """Kill the shift of this phone; False when it had none."""
        process = self._running.get(phone_id)
        if process is None:
            return False
        send([process], signal.SIGKILL)
        return True

    def memory(self) -> int:
        """Bytes that the largest shift process holds."""
        held = [0]
        for process in list(self._running.values()):
            with suppress(psutil.NoSuchProcess):
                held.append(process.memory_info().rss)
        return max(held)

    def close(self) -> None:
        """Open no more, and wait until those that are open have ended."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _keep_open(self, phone_id: str) -> None:
        while not self._over.wait(0.02):
            # A server may be down just now: then there is no process, or no answer.
            with suppress(*Unavailable, EOFError, TimeoutError):
                if phone_id in self._crew.busy():
                    self._work(phone_id)

    def _work(self, phone_id: str) -> None:
        process = self._crew.start(phone_id, longest=self._longest, nap=0.2)
        # By psutil: the exit code of a `Running` may be asked for by one thread only.
        with suppress(psutil.NoSuchProcess):
            self._running[phone_id] = psutil.Process(process.pid)
        try:
            process.wait()
        finally:
            self._running.pop(phone_id, None)


def signal_tree(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and all that it started, the parent first: it starts no more."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        send([parent, *parent.children(recursive=True)], number)


@contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """A server that stands still: nobody is refused, and nobody is answered."""
    assert pid is not None, "the server does not run"
    signal_tree(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_tree(pid, signal.SIGCONT)


def pause(seconds: float) -> None:
    """Let the system work, or suffer, for so long."""
    time.sleep(seconds)


def keep_evidence(folder: Path, *, journal: Path, database_url: str, logs: Sequence[Path]) -> None:
    """Copy journal and logs into a folder, and dump the database beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (journal, *logs):
        if path.exists():
            shutil.copy(path, folder)
    _dump(make_url(database_url).set(drivername="postgresql"), folder / "database.sql")


def _dump(url: URL, to: Path) -> None:
    """Dump a database; a server that cannot be asked any more leaves a note in its place."""
    program = _postgres_install() / "bin" / "pg_dump"
    address = url.render_as_string(hide_password=False)
    try:
        subprocess.run(
            [program, "--no-owner", "--file", to, "--dbname", address],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
    except subprocess.SubprocessError as error:
        to.with_suffix(".failed").write_text(f"{error}\n{getattr(error, 'stderr', '')}\n")


@contextmanager
def _written_to(path: Path) -> Iterator[None]:
    """What our code logs in this process goes into a file, not over the table."""
    handler = logging.FileHandler(path)
    logger = logging.getLogger("cerniq")
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
        handler.close()
