"""Where servers listen: folders for sockets that are short enough, and ports that are free."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from cerniq_pipeline.errors import SetupError

LOOPBACK = "127.0.0.1"

LONGEST_SOCKET_PATH = 100
"""The kernel stops at 104 bytes (macOS) or 108 (Linux), and says so only when binding."""

_LONGEST_SOCKET_NAME = len("/.s.PGSQL.5432.lock")


def socket_folder(home: Path) -> Path:
    """Where the sockets of `home` belong, whether or not the folder is there yet.

    It is `home/run`, or a folder of the temporary one when that path would be too long.
    """
    folder = home / "run"
    if len(os.fsencode(folder)) + _LONGEST_SOCKET_NAME <= LONGEST_SOCKET_PATH:
        return folder
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return _short_temporary_folder() / f"cerniq-{name}"


def make_socket_folder(home: Path) -> Path:
    """The same folder, made if missing, for this user alone."""
    folder = socket_folder(home)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.lstat()
    # Root may meet a folder of the user that runs Postgres for it.
    ours = os.geteuid() in {0, found.st_uid}
    if not ours or not stat.S_ISDIR(found.st_mode):
        raise SetupError(f"{folder} belongs to somebody else: remove it and start again")
    return folder


def remove_socket_folder(home: Path) -> None:
    """Leave no empty folder behind, least of all in the temporary one."""
    with suppress(OSError):
        socket_folder(home).rmdir()


def free_port(wanted: int, *, taken: frozenset[int] = frozenset()) -> int:
    """The first free loopback port from `wanted` upwards that is not in `taken`."""
    for port in range(wanted, min(wanted + 200, 65536)):
        if port not in taken and is_free(port):
            return port
    raise SetupError(f"no free port between {wanted} and {wanted + 199}: close something first")


def is_free(port: int) -> bool:
    """Whether nobody listens on this loopback port and we may."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        if probe.connect_ex((LOOPBACK, port)) == 0:
            return False
    with socket.socket() as probe:
        # Otherwise connections of the last session, still in TIME_WAIT, would push us on.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _short_temporary_folder() -> Path:
    # Not from TMPDIR first: two shells with different ones must find the same socket.
    fixed = Path("/tmp")
    return fixed if os.access(fixed, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
