"""Which processes are ours, and how they end.

A pid alone is not an identity: pids are reused. Ours are known by program and working folder
(servers) or by a mark in their environment, which every descendant inherits (supervised ones).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

MARK = "CERNIQ_SUPERVISED_IN"
"""Set for every supervised process to its data folder; run workers inherit it."""

_POLL_SECONDS = 0.05
_PR_SET_CHILD_SUBREAPER = 36


def is_alive(process: psutil.Process) -> bool:
    """Whether this very process still runs; a zombie does not.

    Inside containers nobody may collect zombies, and `kill(pid, 0)` calls them alive.
    """
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def server_process(pid: int, *, program: str, home: Path) -> psutil.Process | None:
    """The live process with this pid if it runs `program` in `home`, else None."""
    try:
        process = psutil.Process(pid)
        if is_alive(process) and process.name() == program and process.cwd() == str(home):
            return process
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        pass
    return None


def working_in(home: Path, *, program: str) -> list[psutil.Process]:
    """Every live process of `program` whose working folder is `home`, also a deleted `home`."""
    homes = {str(home), f"{home} (deleted)"}
    return [
        process
        for process in psutil.process_iter(["name", "cwd"])
        if process.info["name"] == program and process.info["cwd"] in homes and is_alive(process)
    ]


def marked(data_dir: Path) -> list[psutil.Process]:
    """Every live process that a supervisor of this data folder started, directly or not."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
        ours = environment.get(MARK) == str(data_dir) and process.pid != os.getpid()
        if ours and is_alive(process):
            found.append(process)
    return found


def in_session(leader: int) -> list[psutil.Process]:
    """Every live process of the session that `leader` opened."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and is_alive(process):
                found.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    return found


def adopt_orphans() -> None:
    """From now on, descendants that lose their parent become our children; Linux only.

    Somebody must collect them when they end, and inside a container often nobody else does.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def collect_adopted(*, except_for: Collection[int] = ()) -> None:
    """Collect ended children that nobody waits for; those in `except_for` have somebody."""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid in except_for:
                return  # the others come after it was waited for
            os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return


def wait_until_gone(processes: Iterable[psutil.Process], *, seconds: float) -> list[psutil.Process]:
    """Those that still run when the time is up."""
    deadline = time.monotonic() + seconds
    left = [process for process in processes if is_alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        left = [process for process in left if is_alive(process)]
    return left


def end(
    processes: Iterable[psutil.Process],
    *,
    seconds: float,
    ask: signal.Signals = signal.SIGTERM,
) -> None:
    """End these processes: ask each, give them the time, kill what is left."""
    asked = list(processes)
    send(asked, ask)
    left = wait_until_gone(asked, seconds=seconds)
    send(left, signal.SIGKILL)
    wait_until_gone(left, seconds=5)


def send(processes: Iterable[psutil.Process], what: signal.Signals) -> None:
    """Send a signal to those that still run."""
    for process in processes:
        try:
            process.send_signal(what)
        except psutil.NoSuchProcess:
            continue
