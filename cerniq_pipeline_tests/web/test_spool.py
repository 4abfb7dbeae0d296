"""The spool's files: what is in them is on the disk, what is torn is skipped, a lock is a lock."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cerniq_pipeline.store.inbox import Arrival
from cerniq_pipeline.web.spool import Spool

AT = datetime(2026, 11, 18, 10, 0, 0, 123456, tzinfo=UTC)


def an_arrival(key: str, *, body: bytes = bytes(range(256)), **more: object) -> Arrival:
    fields = {"account": "+40790000000", "contact": None, "headers": '{"a": "ă\\n"}'} | more
    return Arrival("timelinesai", key, "message:new\n", body=body, **fields)  # pyright: ignore


def everything(spool: Spool) -> list[Arrival]:
    found: list[Arrival] = []
    while spool.has_events:
        chunk = spool.next_chunk(most=2)
        found += chunk.arrivals
        spool.done(chunk)
    return found


def test_what_was_appended_is_replayed_in_its_order_and_then_gone(tmp_path: Path):
    spool = Spool(tmp_path / "deep" / "spool")
    assert not spool.has_events
    told = [an_arrival(str(n), received_at=AT if n % 2 else None) for n in range(5)]
    spool.append(told[:3])
    spool.append(told[3:])
    assert spool.is_writing
    assert spool.bytes() > 5 * 256
    assert everything(spool) == told
    assert (spool.is_writing, spool.bytes()) == (False, 0)
    spool.append(told[:1])
    assert everything(spool) == told[:1]


def test_events_that_come_during_the_replay_are_replayed_too(tmp_path: Path):
    spool = Spool(tmp_path)
    spool.append([an_arrival("a")])
    chunk = spool.next_chunk(most=10)
    spool.append([an_arrival("b")])
    spool.done(chunk)
    assert [one.event_key for one in everything(spool)] == ["b"]


def test_a_dead_process_leaves_its_file_to_the_next_and_a_living_one_does_not(tmp_path: Path):
    first, second = Spool(tmp_path), Spool(tmp_path)
    first.append([an_arrival("a")])
    second.append([an_arrival("b")])
    assert second.adopt() == 0
    first.close()  # as the end of its process would
    assert (second.adopt(), second.adopt()) == (1, 0)
    assert [one.event_key for one in everything(second)] == ["a", "b"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [1, 10, 100, 400])
def test_a_torn_last_line_is_skipped(tmp_path: Path, cut: int):
    spool = Spool(tmp_path)
    spool.append([an_arrival("a"), an_arrival("b")])
    spool.close()
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-cut])
    assert spool.adopt() == 1
    assert [one.event_key for one in everything(spool)] == ["a"]
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_line_costs_one_event(tmp_path: Path):
    spool = Spool(tmp_path)
    spool.append([an_arrival(key) for key in "abc"])
    spool.close()
    (file,) = tmp_path.iterdir()
    written = file.read_bytes()
    file.write_bytes(written.replace(b'"event_key": "b"', b'"event_key": "x"'))
    spool.adopt()
    assert [one.event_key for one in everything(spool)] == ["a", "c"]


def test_a_file_that_is_no_spool_at_all_ends_too(tmp_path: Path):
    (tmp_path / "1.spool").write_bytes(b"\0" * 5000)
    (tmp_path / "2.spool").write_bytes(b"")
    (tmp_path / "3.spool").write_bytes(b"\n\n\nxyz {}\n00000000 []\n")
    spool = Spool(tmp_path)
    assert spool.adopt() == 3
    assert everything(spool) == []
    assert list(tmp_path.iterdir()) == []


def test_the_spool_has_an_end(tmp_path: Path):
    spool = Spool(tmp_path, most_bytes=2000)
    spool.append([an_arrival("a")])
    with pytest.raises(OSError, match="full"):
        spool.append([an_arrival("b", body=b"x" * 2000)])
    spool.append([an_arrival("c")])
    assert [one.event_key for one in everything(spool)] == ["a", "c"]


def test_large_events_are_replayed_in_several_chunks(tmp_path: Path):
    spool = Spool(tmp_path)
    spool.append([an_arrival(str(n), body=b"x" * 1024 * 1024) for n in range(5)])
    first = spool.next_chunk(most=100)
    assert 0 < len(first.arrivals) < 5
    assert [one.event_key for one in everything(spool)] == list("01234")


def test_only_its_owner_may_read_it(tmp_path: Path):
    spool = Spool(tmp_path / "spool")
    spool.append([an_arrival("a")])
    (file,) = (tmp_path / "spool").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
