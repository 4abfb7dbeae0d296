"""The marked block of `.env`: ours is replaced, everything else stays."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from dotenv import dotenv_values

from cerniq_pipeline.dev import envfile
from cerniq_pipeline.dev.envfile import BEGIN, END, in_block, outside_block, with_block
from cerniq_pipeline.errors import SetupError

OURS = f"{BEGIN}\nA=1\n{END}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", OURS),
        ("MINE=x\n", f"MINE=x\n{OURS}"),
        ("MINE=x", f"MINE=x\n{OURS}"),  # a last line without its end
        (OURS, OURS),
        (f"{BEGIN}\nOLD=9\nA=0\n{END}\n", OURS),
        (f"# mine\n\nM=1\n{BEGIN}\nA=0\n{END}\nN=2\n", f"# mine\n\nM=1\n{OURS}N=2\n"),
        (f"M=1\r\n{BEGIN}\r\nA=0\r\n{END}\r\nN=2\r\n", f"M=1\r\n{OURS}N=2\r\n"),
        (f"M='a\nb'\n{OURS}", f"M='a\nb'\n{OURS}"),  # a value over two lines
    ],
)
def test_only_the_block_is_replaced(before: str, after: str) -> None:
    assert with_block(before, {"A": "1"}) == after


@pytest.mark.parametrize(
    "damaged",
    [f"{BEGIN}\nA=1\nMINE=2\n", f"A=1\n{END}\n", f"{END}\nA=1\n{BEGIN}\n", OURS + OURS],
)
def test_a_damaged_block_is_refused_before_a_line_of_yours_is_lost(damaged: str) -> None:
    with pytest.raises(SetupError, match="damaged"):
        with_block(damaged, {"A": "1"})


def test_what_is_yours_and_what_is_ours_is_told_apart() -> None:
    text = f"MINE='with space'\n{OURS}export B=2\nEMPTY\n"
    assert in_block(text) == {"A": "1"}
    assert outside_block(text) == {"MINE": "with space", "B": "2"}


@pytest.mark.parametrize(
    "value",
    [
        "postgresql+psycopg://a:b%40c@/d?host=/tmp/x&sslmode=off",
        "/home/Ana Pop/cerniq",
        "it's # not a comment",
        "back\\slash",
        "",
    ],
)
def test_every_value_is_read_back_as_it_was_written(tmp_path: Path, value: str) -> None:
    file = tmp_path / ".env"
    envfile.write(file, with_block("", {"V": value}))
    assert dotenv_values(file) == {"V": value}
    assert in_block(envfile.read(file)) == {"V": value}


def test_the_file_is_for_its_owner_alone_also_when_it_was_not(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("MINE=1\n")
    file.chmod(0o644)
    envfile.write(file, envfile.read(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [".env"]
