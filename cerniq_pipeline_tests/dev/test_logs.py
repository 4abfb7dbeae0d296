"""Logs that are moved aside when they have grown."""

from __future__ import annotations

from pathlib import Path

from cerniq_pipeline.dev.logs import KEPT, rotate, tail


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("short")
    rotate(log, largest_bytes=5)
    assert log.read_text() == "short"


def test_a_large_log_moves_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for content in "abcde":
        log.write_text(content * 10)
        rotate(log, largest_bytes=5)
    assert not log.exists()
    kept = [log.with_name(f"a.log.{age}").read_text()[0] for age in range(1, KEPT + 1)]
    assert kept == ["e", "d", "c"]
    assert len(list(tmp_path.iterdir())) == KEPT


def test_the_tail_of_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert tail(tmp_path / "none.log", lines=3) == ""
