"""As root, Postgres runs as somebody else, who may pass through folders and nothing more."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from cerniq_pipeline.dev.unprivileged import User, open_program, open_way, with_search_right

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs servers as another user")

NO_ID = 0xFFFFFFFF


def entries(acl: bytes) -> list[tuple[int, int, int]]:
    return list(struct.iter_unpack("<HHI", acl[4:]))


def test_a_plain_mode_becomes_a_list_with_one_more_entry() -> None:
    granted = with_search_right(None, mode=0o750, uid=101)
    assert entries(granted) == [
        (1, 7, NO_ID),
        (2, 1, 101),  # the newcomer may pass
        (4, 5, NO_ID),
        (16, 5, NO_ID),
        (32, 0, NO_ID),
    ]


def test_a_second_newcomer_leaves_the_first_one_in() -> None:
    once = with_search_right(None, mode=0o700, uid=101)
    twice = with_search_right(once, mode=0o710, uid=102)
    assert [entry for entry in entries(twice) if entry[0] == 2] == [(2, 1, 101), (2, 1, 102)]
    assert with_search_right(twice, mode=0o710, uid=101) == twice


def test_a_right_that_the_mask_kept_asleep_is_not_woken() -> None:
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *entry)
        for entry in [(1, 7, NO_ID), (2, 7, 5), (4, 7, NO_ID), (16, 0, NO_ID), (32, 0, NO_ID)]
    )
    granted = {
        (tag, who): rights for tag, rights, who in entries(with_search_right(acl, mode=0, uid=9))
    }
    assert granted[2, 5] & granted[16, NO_ID] == 0
    assert granted[4, NO_ID] & granted[16, NO_ID] == 0
    assert granted[2, 9] & granted[16, NO_ID] == 1


@as_root
def test_the_user_gets_through_a_closed_folder_but_cannot_list_it(tmp_path: Path) -> None:
    user = User(65534, 65534)
    closed = tmp_path / "closed"
    inside = closed / "inside"
    inside.mkdir(parents=True)
    closed.chmod(0o700)

    assert open_way(user, inside / "file")

    def succeeds(*command: str) -> bool:
        tried = subprocess.run(
            command, check=False, user=user.uid, group=user.gid, extra_groups=[], cwd="/"
        )
        return tried.returncode == 0

    assert succeeds("test", "-x", str(inside))
    assert not succeeds("test", "-r", str(closed))
    assert not succeeds("test", "-w", str(closed))
    assert not closed.stat().st_mode & stat.S_IRWXO


def test_a_program_becomes_runnable_for_others_and_a_data_file_only_readable(
    tmp_path: Path,
) -> None:
    program, data = tmp_path / "program", tmp_path / "data"
    for path, mode in ((program, 0o700), (data, 0o600)):
        path.touch()
        path.chmod(mode)
    open_program(tmp_path)
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    assert stat.S_IMODE(data.stat().st_mode) == 0o644
