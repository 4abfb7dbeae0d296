"""Starts processes in order, waits until each is healthy, restarts what dies, ends them all.

Every child leads a session of its own, so that Ctrl-C in the terminal reaches only the supervisor,
which then stops the children in order. Every child carries a mark that its descendants inherit, so
that nothing is missed at the end, and the next supervisor finds what a killed one left behind.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

from cerniq_pipeline.dev.embedded import EmbeddedServer
from cerniq_pipeline.dev.logs import rotate, tail
from cerniq_pipeline.dev.processes import (
    MARK,
    adopt_orphans,
    collect_adopted,
    end,
    in_session,
    is_alive,
    marked,
    send,
)
from cerniq_pipeline.errors import CerniqError, SetupError

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEATHS_BEFORE_GIVING_UP = 3
_LONGEST_PAUSE_SECONDS = 30.0
_TICK_SECONDS = 0.5
_CHECK_EVERY_SECONDS = 5.0
_STOP_SECONDS = 5.0
"""For children to end by themselves; a busy machine adds to it, and 15 s are promised in all."""


@dataclass(frozen=True)
class Service:
    """One row of the table of processes."""

    name: str
    command: tuple[str, ...]
    is_healthy: Callable[[float], bool]
    """Told when the process was started (seconds since 1970); must answer within 2 s."""
    address: str = ""
    needs: tuple[str, ...] = ()
    start_seconds: float = 120.0
    patience_seconds: float = 60.0
    """How long it may be unwell before it is restarted: a busy machine is not a broken one."""
    stop_turn: int = 1
    """Those of an earlier turn are gone before it is stopped: they may be talking to it."""
    killed_at_stop: bool = False
    """Ended without a word, its children after it: it would take their end for a failure."""
    before_first_start: Callable[[], None] | None = None


@dataclass
class _Child:
    service: Service
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    began_waiting: float = field(default_factory=time.monotonic)
    healthy: bool = False
    last_healthy: float = 0.0
    next_check: float = 0.0
    start_not_before: float = 0.0
    deaths: int = 0


class Supervisor:
    """Runs services until told to stop; use it once."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        root: Path,
        data_dir: Path,
        environment: Mapping[str, str],
        servers: Sequence[EmbeddedServer] = (),
        say: Callable[[str], None],
    ) -> None:
        self._children = [_Child(service) for service in services]
        self._root = root
        self._data_dir = data_dir
        self._environment = {**os.environ, **environment, MARK: str(data_dir)}
        self._servers = servers
        self._tell = say
        self._stop = threading.Event()
        self._hurry = threading.Event()

    def run(self, when_healthy: Callable[[], None]) -> None:
        """Start all, call back once all are healthy, then watch until a stop signal comes.

        However this ends, no process is left. Raises SetupError when something does not start.
        """
        with _handled_by(self._asked_to_stop):
            try:
                if self._start_all():
                    when_healthy()
                    while not self._stop.wait(_TICK_SECONDS):
                        self._look_after_servers()
                        self._look_after_children()
                        collect_adopted(except_for=self._own_pids())
            finally:
                self._say("stopping …")
                self._end_all()

    def _say(self, line: str) -> None:
        with suppress(OSError):  # the terminal may be gone; that must not keep us from stopping
            self._tell(line)

    def _start_all(self) -> bool:
        while not all(child.healthy for child in self._children):
            if self._stop.is_set():
                return False
            self._look_after_children()
            for child in self._children:
                self._give_up_on(child)
            self._stop.wait(0.2)
        return not self._stop.is_set()

    def _look_after_children(self) -> None:
        healthy = {child.service.name for child in self._children if child.healthy}
        for child in self._children:
            if self._stop.is_set():
                return
            if child.process is None:
                if healthy.issuperset(child.service.needs) or child.deaths:
                    self._start(child)
            elif (code := child.process.poll()) is not None:
                self._bury(child, f"ended with {_exit_words(code)}")
            elif time.monotonic() >= child.next_check:
                self._check(child)

    def _own_pids(self) -> set[int]:
        return {child.process.pid for child in self._children if child.process is not None}

    def _look_after_servers(self) -> None:
        for server in self._servers:
            if server.pid() is None:
                self._say(f"{server.name} died; starting it again")
                try:
                    server.start()
                except CerniqError as error:
                    self._say(f"{server.name}: {error}")

    def _start(self, child: _Child) -> None:
        if time.monotonic() < child.start_not_before:
            return
        service = child.service
        if not child.deaths and service.before_first_start is not None:
            service.before_first_start()
        path = self._log_of(service)
        path.parent.mkdir(parents=True, exist_ok=True)
        rotate(path)
        with path.open("ab") as output:
            child.process = subprocess.Popen(
                service.command,
                cwd=self._root,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        child.started_at = time.time()
        child.began_waiting = child.last_healthy = time.monotonic()

    def _check(self, child: _Child) -> None:
        well = child.service.is_healthy(child.started_at)
        now = time.monotonic()
        child.next_check = now + (_CHECK_EVERY_SECONDS if child.healthy else _TICK_SECONDS)
        if well:
            if child.deaths and not child.healthy:
                self._say(f"{child.service.name} is healthy again")
            if child.healthy and now - child.began_waiting > _LONGEST_PAUSE_SECONDS:
                child.deaths = 0
            child.healthy, child.last_healthy = True, now
        elif child.healthy and now - child.last_healthy > child.service.patience_seconds:
            # Its leader only: run workers in its session are safe on their own and may finish.
            assert child.process is not None
            end([psutil.Process(child.process.pid)], seconds=3)
            child.process.wait()
            self._bury(child, "did not answer")

    def _bury(self, child: _Child, why: str) -> None:
        child.process = None
        child.healthy = False
        pause = min(2.0**child.deaths, _LONGEST_PAUSE_SECONDS)
        child.deaths += 1
        child.start_not_before = time.monotonic() + pause
        self._say(f"{child.service.name} {why}; starting it again in {pause:.0f} s")

    def _give_up_on(self, child: _Child) -> None:
        waited = time.monotonic() - child.began_waiting
        too_long = child.process is not None and waited > child.service.start_seconds
        if child.deaths >= _DEATHS_BEFORE_GIVING_UP or (too_long and not child.healthy):
            path = self._log_of(child.service)
            raise SetupError(
                f"{child.service.name} does not start; the end of {path}:\n{tail(path, lines=15)}"
            )

    def _end_all(self) -> None:
        for turn in sorted({child.service.stop_turn for child in self._children}):
            self._end_turn(turn)
        self._end(marked(self._data_dir), seconds=1)
        for server in self._servers:
            server.stop()
        collect_adopted()

    def _end_turn(self, turn: int) -> None:
        """End the children of this turn, with what they started.

        What is in no child's session any more, as a run worker whose code server was replaced, goes
        with those that are killed, which are the ones that leave such behind.
        """
        leaving = [
            (child.process, child.service.killed_at_stop)
            for child in self._children
            if child.process is not None and child.service.stop_turn == turn
        ]
        strays = self._strays() if any(is_mute for _, is_mute in leaving) else []
        members = [one for process, _ in leaving for one in in_session(process.pid)]
        for leader in (psutil.Process(process.pid) for process, is_mute in leaving if is_mute):
            with suppress(psutil.NoSuchProcess):
                send([*leader.children(), leader], signal.SIGKILL)
        self._end([*members, *strays])
        for process, _ in leaving:
            process.wait()

    def _strays(self) -> list[psutil.Process]:
        known = {one.pid for each in self._own_pids() for one in in_session(each)}
        return [process for process in marked(self._data_dir) if process.pid not in known]

    def _end(self, processes: Sequence[psutil.Process], *, seconds: float = _STOP_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        send(processes, signal.SIGTERM)
        while any(map(is_alive, processes)) and time.monotonic() < deadline:
            if self._hurry.wait(0.05):
                break
        end(processes, seconds=0, ask=signal.SIGKILL)

    def _log_of(self, service: Service) -> Path:
        return self._data_dir / "logs" / f"{service.name}.log"

    def _asked_to_stop(self, _signal: int, _frame: FrameType | None) -> None:
        (self._hurry if self._stop.is_set() else self._stop).set()


@contextmanager
def only_supervisor(data_dir: Path) -> Iterator[None]:
    """Hold the data folder for this process; SetupError when another supervisor has it.

    From then on this process also looks after orphans, those of the servers it starts included.
    """
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (data_dir / "dev.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            pid = lock.read().strip()
            raise SetupError(
                f"`cerniq dev` already runs on {data_dir} (pid {pid}): stop it first"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        adopt_orphans()
        yield


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Let every stop signal raise KeyboardInterrupt, so that `finally` blocks run."""

    def asked(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled_by(asked):
        yield


def end_leftovers(data_dir: Path) -> int:
    """End what a supervisor that was killed left running; the caller holds the data folder."""
    left = marked(data_dir)
    end(left, seconds=5)
    return len(left)


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # Also undoes an inherited "ignore SIGINT" (a shell's `&` gives one): Dagster would take it over
    # and then ignore SIGTERM too.
    before = {caught: signal.signal(caught, handler) for caught in _STOP_SIGNALS}
    try:
        yield
    finally:
        for caught, previous in before.items():
            signal.signal(caught, previous)


def _exit_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
