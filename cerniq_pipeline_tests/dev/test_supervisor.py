"""The supervisor, as a real process over real children: healthy, restarted, stopped, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cerniq_pipeline.dev.embedded import EmbeddedRedis
from cerniq_pipeline.dev.listening import free_port
from cerniq_pipeline.dev.processes import marked
from cerniq_pipeline.dev.supervisor import end_leftovers

PROJECT = Path(__file__).parents[2]
LIMIT_SECONDS = 30


class Running:
    """One supervisor over stand-in children."""

    def __init__(self, data_dir: Path, kind: str, *ports: int) -> None:
        self.data_dir = data_dir
        data_dir.mkdir(exist_ok=True)
        self._log = (data_dir / "said").open("w+")
        command = ["-m", "cerniq_pipeline_tests.dev.stand_in", str(data_dir), kind]
        self.process = subprocess.Popen(
            [sys.executable, *command, *map(str, ports)],
            cwd=PROJECT,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # As a shell's `&` would: children must not inherit it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )

    def said(self) -> str:
        return (self.data_dir / "said").read_text()

    def wait_for(self, line: str) -> None:
        until(lambda: line in self.said() or self.process.poll() is not None)
        assert line in self.said()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=15)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()
        end_leftovers(self.data_dir)
        EmbeddedRedis(self.data_dir / "redis").stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def starter(kind: str, *ports: int) -> Running:
        started.append(Running(tmp_path / "data", kind, *ports))
        return started[-1]

    yield starter
    for running in reversed(started):
        running.close()


def two_ports() -> tuple[int, int]:
    # Apart from each other per test process, which run at the same time.
    first = free_port(20000 + os.getpid() % 20000)
    return first, free_port(first + 1)


def children(data_dir: Path, port: int) -> list[psutil.Process]:
    return [process for process in marked(data_dir) if str(port) in process.cmdline()]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_leaves_no_process_and_keeps_the_data(
    start: Callable[..., Running], how: signal.Signals
) -> None:
    ports = two_ports()
    running = start("two", *ports)
    running.wait_for("all healthy")
    assert len(marked(running.data_dir)) == 6  # two children, each with two of its own
    server = children(running.data_dir, ports[0])[0]
    assert server.environ()["GREETING"] == "hello"
    assert os.getsid(server.pid) == server.pid
    redis = EmbeddedRedis(running.data_dir / "redis")
    known = [redis.pid() or 0, *(process.pid for process in marked(running.data_dir))]

    assert running.stop(how) == 0

    # Not even as zombies, where the system lets us collect them.
    assert not [pid for pid in known if psutil.pid_exists(pid)] or sys.platform != "linux"
    assert marked(running.data_dir) == []
    assert redis.pid() is None
    assert (redis.folder / "appendonly.aof").exists()


def test_what_dies_is_started_again(start: Callable[..., Running]) -> None:
    ports = two_ports()
    running = start("two", *ports)
    running.wait_for("all healthy")
    redis = EmbeddedRedis(running.data_dir / "redis")
    killed = children(running.data_dir, ports[0])[0]
    redis_pid = redis.pid()

    killed.kill()
    redis.kill()

    running.wait_for("first is healthy again")
    assert children(running.data_dir, ports[0])[0].pid != killed.pid
    until(redis.is_running)
    assert redis.pid() != redis_pid
    assert running.stop() == 0
    # The first one's own children were in no living child's session any more.
    assert marked(running.data_dir) == []


def test_what_no_longer_answers_is_started_again(start: Callable[..., Running]) -> None:
    ports = two_ports()
    running = start("two", *ports)
    running.wait_for("all healthy")
    urllib_status(f"http://127.0.0.1:{ports[1]}/fall-ill")
    running.wait_for("second did not answer")
    running.wait_for("second is healthy again")


def test_a_second_signal_kills_what_ignores_the_first(start: Callable[..., Running]) -> None:
    running = start("stubborn", two_ports()[0])
    running.wait_for("all healthy")
    running.process.send_signal(signal.SIGINT)
    running.wait_for("stopping")
    assert running.stop(signal.SIGINT) == 0
    assert marked(running.data_dir) == []


def test_what_does_not_start_is_reported_with_the_end_of_its_log(
    start: Callable[..., Running],
) -> None:
    running = start("broken", two_ports()[0])
    assert running.process.wait(timeout=LIMIT_SECONDS) == 1
    assert "second does not start" in running.said()
    assert "no such luck" in running.said()
    assert marked(running.data_dir) == []


def test_a_stop_signal_while_starting_leaves_no_process(start: Callable[..., Running]) -> None:
    running = start("broken", two_ports()[0])
    running.wait_for("second ended with exit code 1")
    assert running.stop() == 0
    assert marked(running.data_dir) == []


def test_one_folder_has_one_supervisor(start: Callable[..., Running]) -> None:
    ports = two_ports()
    first = start("two", *ports)
    first.wait_for("all healthy")
    refused = subprocess.run(
        [
            *(sys.executable, "-m", "cerniq_pipeline_tests.dev.stand_in"),
            *(str(first.data_dir), "two", *map(str, ports)),
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert f"pid {first.process.pid}" in refused.stderr
    assert first.process.poll() is None


def test_what_a_killed_supervisor_left_is_ended_by_the_next_one(
    start: Callable[..., Running],
) -> None:
    ports = two_ports()
    killed = start("two", *ports)
    killed.wait_for("all healthy")
    left = marked(killed.data_dir)
    killed.process.kill()
    killed.process.wait()
    assert marked(killed.data_dir) == left

    next_one = start("two", *ports)
    next_one.wait_for("all healthy")
    assert f"leftovers: {len(left)}" in next_one.said()
    assert not {process.pid for process in left} & {p.pid for p in marked(next_one.data_dir)}
    assert next_one.stop() == 0


def urllib_status(url: str) -> None:
    with pytest.raises(OSError, match="503"):
        urllib.request.urlopen(url, timeout=5)
