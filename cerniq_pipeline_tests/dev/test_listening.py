"""Ports that are free and socket folders that are short."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cerniq_pipeline.dev.listening import (
    LONGEST_SOCKET_PATH,
    free_port,
    is_free,
    make_socket_folder,
    remove_socket_folder,
    socket_folder,
)


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_busy_port_is_passed_over_for_the_next_free_one(busy_port: int) -> None:
    chosen = free_port(busy_port)
    assert chosen > busy_port
    assert is_free(chosen)


def test_a_port_that_was_promised_to_another_is_not_given_twice(busy_port: int) -> None:
    first = free_port(busy_port)
    assert free_port(busy_port, taken=frozenset({first})) > first


def test_a_port_of_all_addresses_counts_as_busy() -> None:
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        assert not is_free(listener.getsockname()[1])


def test_a_socket_folder_lies_in_its_home_and_is_private(tmp_path: Path) -> None:
    home = tmp_path / "h"
    folder = make_socket_folder(home)
    assert folder == home / "run"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_long_path_gets_a_short_folder_and_always_the_same(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    folder = make_socket_folder(home)
    try:
        assert len(os.fsencode(folder / ".s.PGSQL.5432")) <= LONGEST_SOCKET_PATH
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert socket_folder(home) == folder
        assert socket_folder(home.with_name("long" * 31)) != folder
    finally:
        remove_socket_folder(home)
    assert not folder.exists()
