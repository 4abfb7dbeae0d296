"""A file that is sent with a message: which kinds there are, and how large each may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["image", "document", "video"]


@dataclass(frozen=True)
class MediaFile:
    """A file that was checked and kept; its content is read only when it is handed over."""

    id: int
    kind: Kind
    filename: str
    content_type: str
    size: int
    source_url: str | None
