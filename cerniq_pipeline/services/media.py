"""Media: checked once when it is added, and sent as the very bytes that were checked."""

from __future__ import annotations

import hashlib
import stat
from datetime import datetime
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.address import KNOWN_VARIABLES
from cerniq_pipeline.domain.media import (
    LARGEST,
    LONGEST_CAPTION,
    CheckedMedia,
    Fetcher,
    MediaFile,
    check,
    checked_name,
    megabytes,
    web_address,
)
from cerniq_pipeline.domain.names import no_such
from cerniq_pipeline.domain.templates import problems
from cerniq_pipeline.errors import MediaRefused, NotFound
from cerniq_pipeline.logs import event
from cerniq_pipeline.store import leads, media, outbox, tenants
from cerniq_pipeline.store.database import Begin


def add_file(begin: Begin, path: Path, *, tenant_id: str, name: str | None = None) -> MediaFile:
    """Check a file of this machine and keep it; the same bytes under the same name are one file.

    Raises MediaRefused, and nothing is kept; NotFound when there is no such tenant.
    """
    name = checked_name(name or path.name)
    _check_tenant(begin, tenant_id)
    checked = check(path.name, None, _read(path))
    return _keep(begin, checked, tenant_id=tenant_id, name=name, source_url=None)


def add_address(
    begin: Begin, fetcher: Fetcher, url: str, *, tenant_id: str, name: str | None = None
) -> MediaFile:
    """Fetch a file from the web, check it and keep it; see `add_file`.

    The address is kept without its query, which may carry a key.
    """
    if name is not None:
        name = checked_name(name)
    _check_tenant(begin, tenant_id)
    fetched = fetcher.fetch(url)  # no transaction is open while a stranger takes its time
    checked = check(fetched.filename, fetched.declared_type, fetched.content)
    source = web_address(url, plain=True).source
    return _keep(
        begin, checked, tenant_id=tenant_id, name=name or checked.filename, source_url=source
    )


def content_of(begin: Begin, media_id: int) -> bytes:
    """The bytes to hand over: those that were checked, or nothing.

    Raises NotFound, or MediaRefused when the bytes are not those that were checked.
    """
    with begin() as conn:
        found = media.content(conn, media_id)
    if found is None:
        raise NotFound(f"no media {media_id}; `cerniq media list` shows what there is")
    content, sha256 = found
    if hashlib.sha256(content).hexdigest() != sha256:
        raise MediaRefused(
            f"media {media_id} is not what was checked when it was added; add it again under "
            "another name"
        )
    return content


def use_in_template(begin: Begin, *, tenant_id: str, name: str, template: str) -> MediaFile:
    """Let a template bring a file along, with its text as the caption; replaces another file.

    Raises NotFound, or MediaRefused when the text is too long for a caption.
    """
    _check_tenant(begin, tenant_id)
    with begin() as conn:
        found = _named(conn, tenant_id, name)
        content = media.template_text(conn, tenant_id, template)
        if content is None:
            names = media.template_names(conn, tenant_id)
            there = f"there are: {', '.join(names) or 'none'}"
            raise no_such("template", template, names, see=there)
        faults = problems(
            content, known=KNOWN_VARIABLES, first_message=False, max_length=LONGEST_CAPTION
        )
        too_long = [fault.message for fault in faults if fault.code == "too_long"]
        if too_long:
            raise MediaRefused(
                f"the text of {template!r} would be the caption of {name!r}, and it is too long: "
                f"{too_long[0]}"
            )
        media.attach(conn, tenant_id, template, found.id)
    event("media", "used", tenant=tenant_id, media=found.id)
    return found


def plan_file(
    begin: Begin,
    *,
    tenant_id: str,
    lead_id: UUID,
    name: str,
    caption: str,
    by: str,
    now: datetime,
) -> int:
    """Plan one file into one lead's chat; returns the message. The rules of sending hold for it.

    Raises NotFound, or MediaRefused when nothing can or need be sent.
    """
    if len(caption) > LONGEST_CAPTION:
        raise MediaRefused(f"the caption has {len(caption)} characters, at most {LONGEST_CAPTION}")
    with begin() as conn:
        file = _named(conn, tenant_id, name)
        if not leads.has_been_written_to(conn, lead_id):
            raise MediaRefused("this lead was never written to, and a file opens no conversation")
        message_id = outbox.plan_file(
            conn, lead_id, media_id=file.id, caption=caption, by=by, now=now
        )
    if message_id is None:
        raise MediaRefused(f"{name!r} was sent to this lead before, or is on its way")
    event(
        "media", "planned", tenant=tenant_id, media=file.id, lead=str(lead_id), message=message_id
    )
    return message_id


def _named(conn: Connection, tenant_id: str, name: str) -> MediaFile:
    found = media.named(conn, tenant_id, name)
    if found is None:
        names = [file.name for file in media.every(conn, tenant_id)]
        there = f"there are: {', '.join(names) or 'none'}"
        raise no_such("media", name, names, see=there)
    return found


def _check_tenant(begin: Begin, tenant_id: str) -> None:
    with begin() as conn:
        tenants.get(conn, tenant_id)


def _read(path: Path) -> bytes:
    """The whole file, or MediaRefused; never more than the largest that may be sent."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise MediaRefused(f"{path.name}: this is not a file")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise MediaRefused(f"{path.name}: cannot be read ({error.strerror})") from error
    if len(content) > LARGEST:
        raise MediaRefused(
            f"{path.name}: it has more than the {megabytes(LARGEST)} that are allowed"
        )
    return content


def _keep(
    begin: Begin, checked: CheckedMedia, *, tenant_id: str, name: str, source_url: str | None
) -> MediaFile:
    with begin() as conn:
        kept = media.keep(conn, checked, tenant_id=tenant_id, name=name, source_url=source_url)
    if kept.sha256 != checked.sha256:
        raise MediaRefused(
            f"tenant {tenant_id} already has another file under the name {name!r}, and messages "
            "may be on their way with it; add this one under another name (--name) and let the "
            "templates use that (`cerniq media use`)"
        )
    event("media", "kept", tenant=tenant_id, media=kept.media.id, kind=kept.media.kind)
    return kept.media
