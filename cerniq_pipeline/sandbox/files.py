"""Files on their way in: multipart bodies, links, and how large a vendor lets a file be."""

from __future__ import annotations

import hashlib
import mimetypes
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote, unquote, urlsplit

from cerniq_pipeline.sandbox.room import Attachment, Form

MEBIBYTE = 1024 * 1024
MEDIA_LIMIT = 16 * MEBIBYTE
DOCUMENT_LIMIT = 100 * MEBIBYTE
UPLOAD_BODY_LIMIT = DOCUMENT_LIMIT + MEBIBYTE
"""The largest document and the multipart around it."""

_SAMPLES: Mapping[Form, tuple[str, str]] = {
    "image": ("photo.jpg", "image/jpeg"),
    "video": ("video.mp4", "video/mp4"),
    "audio": ("voice.ogg", "audio/ogg; codecs=opus"),
    "document": ("document.pdf", "application/pdf"),
    "sticker": ("sticker.webp", "image/webp"),
}
_PLAIN = "application/octet-stream"
_BOUNDARY = re.compile(r'boundary="?([^";,]+)"?', re.IGNORECASE)
_PARAMETER = re.compile(r'\b(name|filename)="([^"]*)"')


@dataclass(frozen=True)
class Part:
    """One part of a multipart body; a `filename` makes it a file."""

    content: bytes
    filename: str | None
    content_type: str | None


def parts_of(headers: Mapping[str, str], body: bytes) -> dict[str, Part] | None:
    """The parts of a multipart body by name, or None when the body is no such thing.

    The bytes of the parts are cut out whole: a parser made for mail would take many seconds for a
    large video, and every phone would wait for it.
    """
    content_type = headers.get("content-type", "")
    boundary = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/form-data") or boundary is None:
        return None
    sections = (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode("latin-1"))
    if len(sections) < 3 or not sections[-1].startswith(b"--"):
        return None  # the closing line is missing: it was cut off on its way
    parts: dict[str, Part] = {}
    for section in sections[1:-1]:
        head, blank, content = section.partition(b"\r\n\r\n")
        name, part = _part(head.decode("utf-8", "replace"), content)
        if not blank or name is None:
            return None
        parts[name] = part
    return parts


def _part(head: str, content: bytes) -> tuple[str | None, Part]:
    lines = [line.partition(":") for line in head.split("\r\n")]
    fields = {name.strip().lower(): value.strip() for name, _, value in lines}
    words: dict[str, str] = dict(_PARAMETER.findall(fields.get("content-disposition", "")))
    filename = words.get("filename")
    part = Part(content, filename and filename.replace("%22", '"'), fields.get("content-type"))
    return words.get("name"), part


def new_file(
    part: Part,
    *,
    filename: str | None = None,
    mimetype: str | None = None,
    new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> Attachment:
    """The file in a part of an upload, under a new id."""
    name = filename or part.filename or "file"
    return Attachment(
        uid=new_uid(),
        filename=name,
        mimetype=mimetype or part.content_type or guessed_type(name),
        size=len(part.content),
        sha256=hashlib.sha256(part.content).hexdigest(),
    )


def linked_file(
    url: str, *, filename: str | None = None, mimetype: str | None = None
) -> Attachment | None:
    """The file that a link points to, or None when it is no link.

    The same link is always the same file. It is not fetched: nothing leaves this machine.
    """
    try:
        target = urlsplit(url)
    except ValueError:
        return None
    if target.scheme not in ("http", "https") or not target.hostname:
        return None
    name = filename or PurePosixPath(unquote(target.path)).name or "file"
    return Attachment(
        uid=str(uuid.uuid5(uuid.NAMESPACE_URL, url)),
        filename=name,
        mimetype=mimetype or guessed_type(name),
        size=0,
        sha256=None,
        source_url=url,
    )


def sample_file(form: Form, *, filename: str | None = None) -> Attachment | None:
    """A small file as a person might send it, or None for what is no file."""
    if form not in _SAMPLES:
        return None
    usual, mimetype = _SAMPLES[form]
    name = filename or usual
    return new_file(Part(name.encode(), name, mimetype if filename is None else None))


def guessed_type(filename: str) -> str:
    """The type that a file's name suggests."""
    return mimetypes.guess_type(filename)[0] or _PLAIN


def too_large(file: Attachment) -> bool:
    """Whether a file is over the limit for its type: 16 MB for media, 100 MB for documents."""
    media = file.mimetype.split("/")[0] in ("image", "audio", "video")
    return file.size > (MEDIA_LIMIT if media else DOCUMENT_LIMIT)


def download_url(file: Attachment) -> str:
    """Where the vendor would offer the file; here it leads nowhere, as no content is kept."""
    return f"https://files.invalid/{file.uid}/{quote(file.filename)}"
