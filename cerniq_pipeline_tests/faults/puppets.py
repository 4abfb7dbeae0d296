"""Simulated workers for fault tests: the real beats of a shift, one at a time, in any order.

Each worker has a body, a real process that its lease names and that carries its calls. So
"does it live?" and "end it!" are answered by the operating system, as in production: killing the
body is a crash, stopping it is a pause, and a worker without a living body does nothing more.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from redis import Redis
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from cerniq_pipeline.domain.holds import Hold
from cerniq_pipeline.domain.outbox import Channel, OutboxMessage, Receipt, Sighting, State
from cerniq_pipeline.domain.reads import Turn
from cerniq_pipeline.errors import SendFailed
from cerniq_pipeline.providers.timelinesai.channel import (
    CLOCK_SLACK,
    PublicDialect,
    TimelinesAI,
    open_client,
)
from cerniq_pipeline.services import claiming, leasing, recording, sending
from cerniq_pipeline.services.claiming import Nothing
from cerniq_pipeline.services.leasing import Holder, Lease
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.quotas import QuotaGate
from cerniq_pipeline.store.schema import metadata
from cerniq_pipeline_tests.builders import NOON, SECRET, ManualClock
from cerniq_pipeline_tests.faults.judge import (
    OptOut,
    check_all,
    check_safety,
    journal_time,
    witnessed,
)
from cerniq_pipeline_tests.sandbox.running import Line, RunningSandbox

RELAY = Path(__file__).with_name("relay.py")
GAP = timedelta(seconds=30)
"""The least gap of a tenant; puppets have no luck, so it is also the only one."""


class StageClock(ManualClock):
    """The time of the story, which also tells at what time of the story a real moment fell.

    The sandbox is a stranger with a clock of its own. Its journal is read through this one, so a
    day of the story can pass in a millisecond.
    """

    def __init__(self, now: datetime = NOON) -> None:
        super().__init__(now)
        self._moments = [datetime.now(UTC)]
        self._shown = [now]

    def move(self, by: timedelta) -> None:
        super().move(by)
        self._note()

    def set(self, to: datetime) -> None:
        super().set(to)
        self._note()

    def at(self, moment: datetime) -> datetime:
        """What this clock showed at a real moment."""
        return self._shown[max(0, bisect_right(self._moments, moment) - 1)]

    def moment(self, shown: datetime) -> datetime:
        """The real moment at which this clock first showed a time."""
        return self._moments[bisect_left(self._shown, shown)]

    def time_of(self, line: Line) -> datetime:
        """When a line of the journal was written, in the story."""
        return self.at(journal_time(line))

    def _note(self) -> None:
        self._moments.append(datetime.now(UTC))
        self._shown.append(self.now())


@dataclass(frozen=True)
class StagedChannel:
    """The real channel, its history told in the time of the story."""

    real: Channel
    clock: StageClock
    sandbox: RunningSandbox
    asked: threading.Event = field(default_factory=threading.Event)
    """Set as soon as a call is on its way."""

    def send(self, message: OutboxMessage, *, attachment: str | None = None) -> Receipt:
        self.asked.set()
        return self.real.send(message, attachment=attachment)

    def find_chat(self, message: OutboxMessage, *, turn: Turn) -> str | None:
        self.asked.set()
        return self.real.find_chat(message, turn=turn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def sightings(self, message: OutboxMessage, *, turn: Turn) -> tuple[Sighting, ...]:
        begun = self.clock.moment(message.begun_at)
        found = self.real.sightings(replace(message, begun_at=begun), turn=turn)
        # The vendor shows whole seconds, within which a story may go on for days.
        times = {line["message_uid"]: self.clock.time_of(line) for line in self.sandbox.accepted()}
        told = [replace(one, sent_at=times[one.external_id]) for one in found]
        return tuple(one for one in told if one.sent_at >= message.begun_at - CLOCK_SLACK)


@dataclass
class Stage:
    """Where a story plays: the real servers, the clock, and what the judge must be told."""

    database: Engine
    redis: Redis
    sandbox: RunningSandbox
    limit: int = 200
    clock: StageClock = field(default_factory=StageClock)
    opt_outs: list[OptOut] = field(default_factory=list)

    def start_again(self, now: datetime) -> None:
        """Empty the servers and set the clock: much quicker than a new database."""
        tables = ", ".join(table.name for table in metadata.sorted_tables)
        with self.database.begin() as conn:
            conn.execute(text(f"TRUNCATE {tables}"))
            conn.execute(text("INSERT INTO quota_gate (id, epoch) VALUES (1, 1)"))
        self.redis.flushall()
        self.sandbox.reset()
        self.clock = StageClock(now)
        self.opt_outs = []

    def channel(self, url: str | None = None) -> StagedChannel:
        """The way to the provider, straight or over `url`."""
        client = open_client(url or self.sandbox.public_url, "sandbox-token")
        return StagedChannel(TimelinesAI(client, PublicDialect()), self.clock, self.sandbox)

    def desk(self, channel: StagedChannel | None = None) -> Desk:
        """What a shift brings along."""
        return Desk(
            begin=self.database.begin,
            gate=QuotaGate(self.redis),
            channels={"timelinesai": channel or self.channel()},
            histories={},
            clock=self.clock,
            luck=lambda: 0.0,
            secret=SECRET,
            sends_per_minute=10_000,
        )

    def opt_out(self, lead_id: UUID) -> None:
        """Let a person ask to stop, with the judge as a witness."""
        with self.database.connect() as conn:
            tenant_id, recipient = conn.execute(
                text("SELECT tenant_id, telefon_principal FROM gold_companies WHERE id = :id"),
                {"id": lead_id},
            ).one()
        opt_out(
            partial(witnessed, self.database.begin, self.sandbox, recipient, self.opt_outs),
            tenant_id=tenant_id,
            lead_id=lead_id,
            secret=SECRET,
            reason="asked to stop",
            now=self.clock.now(),
        )

    def check_safety(self) -> None:
        """What must hold at every moment."""
        check_safety(
            self.sandbox,
            self.database,
            limit=self.limit,
            gap=GAP,
            opt_outs=self.opt_outs,
            time_of=self.clock.time_of,
        )

    def check_all(self) -> None:
        """What must hold once everything came to rest."""
        check_all(
            self.sandbox,
            self.database,
            limit=self.limit,
            gap=GAP,
            opt_outs=self.opt_outs,
            now=self.clock.now(),
            time_of=self.clock.time_of,
        )


@contextmanager
def _unheard(begin: Begin) -> Iterator[Connection]:
    """A transaction that is committed, while its caller hears that the line is dead."""
    with begin() as conn:
        yield conn
    raise OperationalError("COMMIT", {}, ConnectionResetError())


class Body:
    """A real process that stands for a worker and carries its calls to the provider."""

    def __init__(self, provider_port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(RELAY), str(provider_port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid
        self.started = leasing._started(psutil.Process(self.pid))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Let it stand still."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without warning; harmless when it is gone."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Worker:
    """One shift, beat by beat. The caller decides when each beat comes, and whether it does."""

    def __init__(self, stage: Stage, name: str, *, elsewhere: bool = False) -> None:
        self.name = name
        self.elsewhere = elsewhere
        self.body = Body(stage.sandbox.port)
        self.channel = stage.channel(f"http://127.0.0.1:{self.body.port}/integrations/api")
        self.desk = stage.desk(self.channel)
        host = "another machine" if elsewhere else leasing.this_process(name).host
        self.holder = Holder(name, host=host, pid=self.body.pid, started=self.body.started)
        self.lease: Lease | None = None
        self.message: OutboxMessage | None = None
        self.outcome: Receipt | SendFailed | None = None
        self._flight: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether it can still do anything."""
        return self.body.alive

    @property
    def in_the_air(self) -> bool:
        """Whether a call is begun and held back."""
        return self._flight is not None

    def acquire(self, phone_id: str) -> bool:
        """Try to take a phone."""
        self._must_live()
        self.lease = leasing.acquire(
            self.desk.begin, phone_id, self.holder, now=self.desk.clock.now()
        )
        return self.lease is not None

    def claim(self, *, heard: bool = True) -> OutboxMessage | Hold | Nothing:
        """Take the next message, or hear what holds it."""
        self._must_live()
        assert self.lease is not None
        claimed = claiming.claim(self._desk(heard=heard), self.lease)
        if isinstance(claimed, OutboxMessage):
            self.message = claimed
        return claimed

    def call(self) -> Receipt | SendFailed:
        """Hand the message over, from the first byte to the answer."""
        self._must_live()
        assert self.message is not None
        self.outcome = sending.call(self.desk, self.message)
        return self.outcome

    def take_off(self) -> None:
        """Begin the call, and stand still before a byte arrives."""
        self._must_live()
        self.body.stop()
        self.channel.asked.clear()
        self._flight = threading.Thread(target=self._fly, daemon=True)
        self._flight.start()
        while self._flight.is_alive() and not self.channel.asked.wait(0.01):
            pass  # it still looks at the clock; from then on the story may go on

    def touch_down(self) -> None:
        """Wake up in mid-call and bring it to its end."""
        self._must_live()
        self.body.go_on()
        self.wait()

    def wait(self) -> None:
        """Wait for the end of a call; a dead body's call ends at once."""
        if self._flight is not None:
            self._flight.join()
            self._flight = None

    def record(self, *, heard: bool = True) -> State:
        """Write down what the call taught."""
        self._must_live()
        assert self.message is not None
        assert self.outcome is not None
        desk = self._desk(heard=heard)
        state = recording.record(desk, self.message, self.outcome, who=self.name)
        self.message = self.outcome = None
        return state

    def confirm(self) -> None:
        """Keep the lease while waiting."""
        self._must_live()
        assert self.lease is not None
        leasing.confirm(self.desk.begin, self.lease, now=self.desk.clock.now())

    def give_back(self) -> None:
        """End the shift in good order."""
        self._must_live()
        assert self.lease is not None
        leasing.give_back(self.desk.begin, self.lease)
        self.crash()

    def crash(self) -> None:
        """Die between two beats, or in the middle of a call."""
        self.body.kill()
        self.wait()

    def send_next(self) -> State | Hold | Nothing:
        """Claim, call and record without anything in between."""
        claimed = self.claim()
        if not isinstance(claimed, OutboxMessage):
            return claimed
        self.call()
        return self.record()

    def _desk(self, *, heard: bool) -> Desk:
        return self.desk if heard else replace(self.desk, begin=partial(_unheard, self.desk.begin))

    def _fly(self) -> None:
        assert self.message is not None
        self.outcome = sending.call(self.desk, self.message)

    def _must_live(self) -> None:
        assert self.alive, f"{self.name} is dead and cannot act"
