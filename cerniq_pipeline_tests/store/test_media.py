"""Kept files: one per name, whoever comes first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine

from cerniq_pipeline.domain.media import CheckedMedia
from cerniq_pipeline.store import media
from cerniq_pipeline_tests.builders import (
    a_world,
    rows,
    wait_until_somebody_waits_for_a_lock,
)


def a_text(content: bytes, filename: str = "a.txt") -> CheckedMedia:
    return CheckedMedia("document", filename, "text/plain", content)


def test_a_file_is_kept_whole_and_read_back(database: Engine):
    every_byte = CheckedMedia("image", "a.png", "image/png", bytes(range(256)) * 1000)
    with database.begin() as conn:
        a_world(conn)
        source = "https://files.example.com/a.png"
        kept = media.keep(conn, every_byte, tenant_id="acme", name="logo", source_url=source)
    with database.begin() as conn:
        assert media.get(conn, kept.media.id) == kept.media
        assert media.named(conn, "acme", "logo") == kept.media
        assert media.content(conn, kept.media.id) == (every_byte.content, every_byte.sha256)
        assert media.get(conn, kept.media.id + 1) is None
        assert media.content(conn, kept.media.id + 1) is None
        assert media.named(conn, "acme", "other") is None
    assert kept.media.size == 256_000
    assert kept.media.source_url == source


def test_of_two_who_come_at_once_the_second_gets_what_the_first_kept(database: Engine):
    def second() -> media.Fingerprint:
        with database.begin() as conn:
            return media.keep(conn, a_text(b"two"), tenant_id="acme", name="n", source_url=None)

    with database.begin() as conn:
        a_world(conn)
    with ThreadPoolExecutor(1) as other:
        with database.begin() as conn:
            first = media.keep(conn, a_text(b"one"), tenant_id="acme", name="n", source_url=None)
            late = other.submit(second)
            wait_until_somebody_waits_for_a_lock(database)
        assert late.result() == first
    assert len(rows(database, "SELECT 1 FROM media_files")) == 1


def test_every_file_is_listed_with_the_templates_that_use_it(database: Engine):
    with database.begin() as conn:
        a_world(conn, steps=("Unu", "Doi"))
        a_world(conn, tenant_id="other", phones=0)
        for tenant_id, name in (("acme", "b"), ("acme", "a"), ("other", "a")):
            media.keep(conn, a_text(b"x"), tenant_id=tenant_id, name=name, source_url=None)
        used = media.named(conn, "acme", "b")
        assert used is not None
        media.attach(conn, "acme", "main 1", used.id)
        media.attach(conn, "acme", "main 2", used.id)
        found = media.every(conn, None)
        assert [(file.tenant_id, file.name, file.templates) for file in found] == [
            ("acme", "a", ()),
            ("acme", "b", ("main 1", "main 2")),
            ("other", "a", ()),
        ]
        assert media.every(conn, "other") == found[2:]
