"""Files that are sent with messages: kept once, read by whoever hands them over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, text

from cerniq_pipeline.domain.media import CheckedMedia, MediaFile
from cerniq_pipeline.store.schema import media_files

_FIELDS = [
    media_files.c[name] for name in ("id", "kind", "filename", "content_type", "size", "source_url")
]


@dataclass(frozen=True)
class KeptFile:
    """A file under its name, and the templates that bring it along."""

    tenant_id: str
    name: str
    media: MediaFile
    templates: tuple[str, ...]


@dataclass(frozen=True)
class Fingerprint:
    """What a name stands for, without its bytes."""

    media: MediaFile
    sha256: str


def keep(
    conn: Connection, checked: CheckedMedia, *, tenant_id: str, name: str, source_url: str | None
) -> Fingerprint:
    """Keep a file under a name; what already has the name stays, and is what is returned."""
    conn.execute(
        text("""
            INSERT INTO media_files
              (tenant_id, name, kind, filename, content_type, size, sha256, source_url, content)
            VALUES (:tenant, :name, :kind, :filename, :type, :size, :sha256, :source, :content)
            ON CONFLICT (tenant_id, name) DO NOTHING
        """),
        {
            "tenant": tenant_id,
            "name": name,
            "kind": checked.kind,
            "filename": checked.filename,
            "type": checked.content_type,
            "size": checked.size,
            "sha256": checked.sha256,
            "source": source_url,
            "content": checked.content,
        },
    )
    # A statement of its own: one that lost the race against another transaction does not see
    # the row it ran into.
    row = conn.execute(
        select(*_FIELDS, media_files.c.sha256).where(
            media_files.c.tenant_id == tenant_id, media_files.c.name == name
        )
    ).one()
    return Fingerprint(_media(row), row.sha256)


def get(conn: Connection, media_id: int) -> MediaFile | None:
    """One file without its bytes; None when there is no such file."""
    row = conn.execute(select(*_FIELDS).where(media_files.c.id == media_id)).one_or_none()
    return None if row is None else _media(row)


def content(conn: Connection, media_id: int) -> tuple[bytes, str] | None:
    """The bytes of a file and the hash they had when they were checked."""
    row = conn.execute(
        text("SELECT content, sha256 FROM media_files WHERE id = :id"), {"id": media_id}
    ).one_or_none()
    return None if row is None else (bytes(row.content), row.sha256)


def named(conn: Connection, tenant_id: str, name: str) -> MediaFile | None:
    """The file that has this name; None when none has."""
    row = conn.execute(
        select(*_FIELDS).where(media_files.c.tenant_id == tenant_id, media_files.c.name == name)
    ).one_or_none()
    return None if row is None else _media(row)


def every(conn: Connection, tenant_id: str | None) -> list[KeptFile]:
    """All files of one tenant or of all, by name, with the templates that use them."""
    rows = conn.execute(
        text("""
            SELECT m.id, m.kind, m.filename, m.content_type, m.size, m.source_url,
                   m.tenant_id, m.name,
                   coalesce(array_agg(t.name ORDER BY t.name) FILTER (WHERE t.id IS NOT NULL), '{}')
                     AS templates
            FROM media_files m LEFT JOIN templates t ON t.media_id = m.id
            WHERE CAST(:tenant AS text) IS NULL OR m.tenant_id = :tenant
            GROUP BY m.id ORDER BY m.tenant_id, m.name
        """),
        {"tenant": tenant_id},
    )
    return [KeptFile(row.tenant_id, row.name, _media(row), tuple(row.templates)) for row in rows]


def template_text(conn: Connection, tenant_id: str, template: str) -> str | None:
    """The text of a template, kept as it is until the end of the transaction; None: no such."""
    return conn.execute(
        text("""
            SELECT content FROM templates WHERE tenant_id = :tenant AND name = :name FOR UPDATE
        """),
        {"tenant": tenant_id, "name": template},
    ).scalar_one_or_none()


def template_names(conn: Connection, tenant_id: str) -> list[str]:
    """The templates of a tenant."""
    rows = conn.execute(
        text("SELECT name FROM templates WHERE tenant_id = :tenant ORDER BY name LIMIT 20"),
        {"tenant": tenant_id},
    )
    return list(rows.scalars())


def attach(conn: Connection, tenant_id: str, template: str, media_id: int) -> None:
    """Let a template bring this file along."""
    conn.execute(
        text("""
            UPDATE templates SET media_id = :media, updated_at = now()
            WHERE tenant_id = :tenant AND name = :name
        """),
        {"tenant": tenant_id, "name": template, "media": media_id},
    )


def _media(row: Any) -> MediaFile:
    return MediaFile(
        id=row.id,
        kind=row.kind,
        filename=row.filename,
        content_type=row.content_type,
        size=row.size,
        source_url=row.source_url,
    )
