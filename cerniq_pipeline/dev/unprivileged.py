"""As root, Postgres refuses to run: which other user runs it, and how that user gets to its files.

Nobody else gains anything: the way in is an access entry for that one user, and only the right
to pass through a folder, not to list it.
"""

from __future__ import annotations

import os
import pwd
import stat
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cerniq_pipeline.errors import SetupError


@dataclass(frozen=True)
class User:
    """A system user, by number."""

    uid: int
    gid: int


def user_for(folder: Path) -> User | None:
    """Who must run a server that keeps its data in `folder`; None when it is simply us.

    Data that another user made stays that user's, so `sudo` once does not lock them out.
    """
    if os.geteuid() != 0:
        return None
    if folder.exists() and (owner := folder.stat()).st_uid != 0:
        return User(owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(found.pw_uid, found.pw_gid)
    raise SetupError("Postgres does not run as root, and there is no user `postgres` or `nobody`")


def open_way(user: User, *paths: Path) -> bool:
    """Let `user` pass through every folder above these paths; True when one was closed."""
    folders = {parent for path in paths for parent in path.parents}
    closed = False
    for folder in sorted(folders, key=lambda folder: len(folder.parts)):
        if not _may_pass(user, folder):
            _let_pass(user, folder)
            closed = True
    return closed


def open_program(folder: Path) -> None:
    """Make an installed program readable for everybody, as installers do unless told otherwise."""
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            continue
        mode = path.stat().st_mode
        runs = stat.S_IXGRP | stat.S_IXOTH if mode & stat.S_IXUSR else 0
        wanted = mode | stat.S_IRGRP | stat.S_IROTH | runs
        if wanted != mode:
            path.chmod(stat.S_IMODE(wanted))


def _may_pass(user: User, folder: Path) -> bool:
    # Asked of the kernel as that user: modes alone do not tell, access lists count too.
    asked = subprocess.run(
        ["test", "-x", str(folder)],
        check=False,
        user=user.uid,
        group=user.gid,
        extra_groups=[],
        cwd="/",
    )
    return asked.returncode == 0


def _let_pass(user: User, folder: Path) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    try:
        current = os.getxattr(folder, _ACL)
    except (OSError, AttributeError):
        current = None
    try:
        os.setxattr(folder, _ACL, with_search_right(current, mode=mode, uid=user.uid))
    except (OSError, AttributeError):  # no access lists on this file system
        folder.chmod(mode | stat.S_IXOTH)


_ACL = "system.posix_acl_access"
_VERSION = struct.Struct("<I")
_ENTRY = struct.Struct("<HHI")  # tag, rights, id
_OWNER, _USER, _GROUP, _NAMED_GROUP, _MASK, _OTHER = 1, 2, 4, 8, 16, 32
_NO_ID = 0xFFFFFFFF
_SEARCH = 1


def with_search_right(acl: bytes | None, *, mode: int, uid: int) -> bytes:
    """This access list (or the one that `mode` stands for) with the right to search for `uid`."""
    entries: dict[tuple[int, int], int]
    if acl is None:
        entries = {
            (_OWNER, _NO_ID): mode >> 6 & 7,
            (_GROUP, _NO_ID): mode >> 3 & 7,
            (_OTHER, _NO_ID): mode & 7,
        }
    else:
        found = _ENTRY.iter_unpack(acl[_VERSION.size :])
        entries = {(tag, who): rights for tag, rights, who in found}
    # The mask bounds everyone but owner and others. It must let the new right through and wake no
    # right that it kept asleep.
    mask = entries.get((_MASK, _NO_ID), 7)
    bounded = {_USER, _GROUP, _NAMED_GROUP}
    entries = {
        key: rights & mask if key[0] in bounded else rights for key, rights in entries.items()
    }
    entries[_USER, uid] = entries.get((_USER, uid), 0) | _SEARCH
    entries[_MASK, _NO_ID] = entries.get((_MASK, _NO_ID), entries[_GROUP, _NO_ID]) | _SEARCH
    packed = (_ENTRY.pack(tag, entries[tag, who], who) for tag, who in sorted(entries))
    return _VERSION.pack(2) + b"".join(packed)
