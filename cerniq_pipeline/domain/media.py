"""A file that is sent with a message: what it may be, what it may be called, where it may be from.

Everything here is decided on bytes and texts that are at hand; nothing is opened and nobody is
asked. What is refused is refused with `MediaRefused`, in one sentence for the person who added it.
"""

from __future__ import annotations

import hashlib
import io
import ipaddress
import re
import struct
import unicodedata
import zipfile
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import urlsplit

from cerniq_pipeline.errors import MediaRefused
from cerniq_pipeline.logs import mask

Kind = Literal["image", "document", "video"]
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

SIZE_LIMITS: dict[Kind, int] = {
    "image": 16_000_000,
    "video": 16_000_000,
    "document": 100_000_000,
}
"""Bytes. A vendor's megabyte may be the larger one; the smaller one fits both."""

LARGEST = max(SIZE_LIMITS.values())
LONGEST_CAPTION = 1024
LONGEST_NAME = 120


@dataclass(frozen=True)
class MediaFile:
    """A file that was checked and kept; its content is read only when it is handed over."""

    id: int
    kind: Kind
    filename: str
    content_type: str
    size: int
    source_url: str | None


@dataclass(frozen=True)
class CheckedMedia:
    """A file that may be sent: its real type, and the bytes that were looked at."""

    kind: Kind
    filename: str
    content_type: str
    content: bytes = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Fetched:
    """What an address gave; not checked yet."""

    filename: str
    declared_type: str | None
    content: bytes = field(repr=False)


class Fetcher(Protocol):
    """Reads an address of the public web, once and as it is."""

    def fetch(self, url: str) -> Fetched:
        """The file at this address, or MediaRefused with the reason."""
        ...


# ── Types ─────────────────────────────────────────────────────────────────────────────────────

_OFFICE = "application/vnd.openxmlformats-officedocument"
_ODF = "application/vnd.oasis.opendocument"

_TYPES: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "image/jpeg": ("image", ("jpg", "jpeg")),
    "image/png": ("image", ("png",)),
    "image/webp": ("image", ("webp",)),
    "video/mp4": ("video", ("mp4", "m4v")),
    "video/3gpp": ("video", ("3gp", "3gpp")),
    "application/pdf": ("document", ("pdf",)),
    f"{_OFFICE}.wordprocessingml.document": ("document", ("docx",)),
    f"{_OFFICE}.spreadsheetml.sheet": ("document", ("xlsx",)),
    f"{_OFFICE}.presentationml.presentation": ("document", ("pptx",)),
    f"{_ODF}.text": ("document", ("odt",)),
    f"{_ODF}.spreadsheet": ("document", ("ods",)),
    f"{_ODF}.presentation": ("document", ("odp",)),
    "text/plain": ("document", ("txt",)),
    "text/csv": ("document", ("csv",)),
}
"""Content type → its kind, and the extensions that fit it."""

_BY_EXTENSION = {ending: name for name, (_, endings) in _TYPES.items() for ending in endings}
ALLOWED = ", ".join(_BY_EXTENSION)

_OTHER_NAMES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "application/x-pdf": "application/pdf",
    "application/csv": "text/csv",
    "text/x-csv": "text/csv",
}
_SAYS_NOTHING = {"", "application/octet-stream", "binary/octet-stream"}
_TEXTS = {"text/plain", "text/csv"}


def check(filename: str, declared_type: str | None, content: bytes) -> CheckedMedia:
    """The file with its real type, or MediaRefused: name, type, content and size must agree."""
    filename = checked_name(filename)
    if not content:
        raise _refusal(filename, "the file is empty")
    _check_size(filename, len(content), LARGEST)  # before anybody looks through it
    found = found_type(content)
    if found not in _TYPES:
        raise _refusal(filename, f"its content is {found}; allowed are {ALLOWED}")
    ending = filename.rpartition(".")[2].lower()
    by_name = _BY_EXTENSION.get(ending)
    if found in _TEXTS and by_name in _TEXTS:
        found = by_name  # a table in a text: only the name can tell
    if by_name != found:
        fitting = " or ".join(f".{one}" for one in _TYPES[found][1])
        raise _refusal(filename, f"its content is {found}, and such a name ends in {fitting}")
    declared = _plain_type(declared_type)
    if declared not in _SAYS_NOTHING and declared != found and not {declared, found} <= _TEXTS:
        raise _refusal(filename, f"it was declared as {_shown(declared)}, its content is {found}")
    kind = _TYPES[found][0]
    _check_size(filename, len(content), SIZE_LIMITS[kind])
    return CheckedMedia(kind, filename, found, content)


def size_limit(declared_type: str | None) -> int:
    """How many bytes a file of this declared type may have; MediaRefused when it never may."""
    declared = _plain_type(declared_type)
    if declared in _SAYS_NOTHING:
        return LARGEST
    if declared not in _TYPES:
        raise MediaRefused(f"{_shown(declared)} is not sent; allowed are {ALLOWED}")
    return SIZE_LIMITS[_TYPES[declared][0]]


def megabytes(size: int) -> str:
    """A size as people read it; never rounded down to a limit that it exceeds."""
    return f"{-(-size // 100_000) / 10:,.1f} MB"


def _check_size(filename: str, size: int, limit: int) -> None:
    if size > limit:
        kinds = " or ".join(kind for kind, most in SIZE_LIMITS.items() if most == limit)
        raise _refusal(
            filename, f"it has {megabytes(size)}; {megabytes(limit)} are allowed for {kinds}"
        )


def _plain_type(declared_type: str | None) -> str:
    plain = (declared_type or "").partition(";")[0].strip().lower()
    return _OTHER_NAMES.get(plain, plain)


# ── Contents ──────────────────────────────────────────────────────────────────────────────────

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"%PDF-", "application/pdf"),
    (b"GIF8", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"MZ", "a Windows program"),
    (b"\x7fELF", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"#!", "a script"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office file of the old kind"),
    (b"{\\rtf", "an RTF text"),
    (b"%!PS", "a PostScript program"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"Rar!", "a RAR archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x1aE\xdf\xa3", "a Matroska video"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
)
_MP4_BRANDS = {b"isom", b"avc1", b"mp41", b"mp42", b"mmp4", b"MSNV", b"M4V ", b"dash"}
_MAIN_PARTS = {
    "word/document.xml": f"{_OFFICE}.wordprocessingml.document",
    "xl/workbook.xml": f"{_OFFICE}.spreadsheetml.sheet",
    "ppt/presentation.xml": f"{_OFFICE}.presentationml.presentation",
}
_MARKUP = re.compile(
    rb"<\s*(?:!doctype|\?|!--|html|head|body|svg|script|iframe|object|embed|style|meta|math)",
    re.IGNORECASE,
)
_MARKUP_SEARCH = 4096
"""Bytes among which a viewer that guesses would look for markup, and more."""

_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_END_OF_ARCHIVE = struct.Struct("<4s4H2LH")
_DIRECTORY_LIMIT = 4_000_000


def found_type(content: bytes) -> str:
    """What these bytes really are: one of the allowed content types, or words for what else."""
    found = _by_first_bytes(content)
    if found in _TYPES and not found.startswith((_OFFICE, _ODF)) and _end_of_archive(content):
        return f"{found} with an archive hidden behind it"
    return found


def _by_first_bytes(content: bytes) -> str:
    for signature, found in _SIGNATURES:
        if content.startswith(signature):
            return found
    if content.startswith(b"RIFF"):
        return "image/webp" if content[8:12] == b"WEBP" else "a RIFF file that is no WebP image"
    if content[4:8] == b"ftyp":
        return _by_brand(content[8:12])
    if content.startswith(b"PK"):
        return _by_parts(content)
    return _as_text(content)


def _by_brand(brand: bytes) -> str:
    if brand[:3] == b"3gp":
        return "video/3gpp"
    if brand in _MP4_BRANDS or brand[:3] == b"iso":
        return "video/mp4"
    return f"a video or image of the brand {_shown(brand.decode('ascii', 'replace').strip())}"


def _by_parts(content: bytes) -> str:
    """Tell the formats apart that are archives, without unpacking anything."""
    directory = _end_of_archive(content)
    if directory is None or not content.startswith(b"PK\x03\x04"):
        return "a damaged archive"
    if directory > _DIRECTORY_LIMIT:
        return "an archive with too many parts"
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return "a damaged archive"
    # Two parts of one name: what a checker reads and what a phone reads could differ.
    if len(set(names)) < len(names):
        return "an archive that has a part twice"
    if any(name.lower().endswith("vbaproject.bin") for name in names):
        return "an Office file with macros"
    for ending in ("text", "spreadsheet", "presentation"):
        kind = f"{_ODF}.{ending}"
        # The format puts its own name first, unpacked, so that it can be found without unpacking.
        if content[30:].startswith(b"mimetype" + kind.encode() + b"PK"):
            macros = any(name.startswith(("Basic/", "Scripts/")) for name in names)
            return "an Office file with macros" if macros else kind
    if "[Content_Types].xml" not in names:
        return "an archive"
    main = [kind for part, kind in _MAIN_PARTS.items() if part in names]
    return main[0] if len(main) == 1 else "an archive that is no Office file"


def _end_of_archive(content: bytes) -> int | None:
    """The size of the directory with which an archive ends; None when there is none."""
    tail = content[-(_END_OF_ARCHIVE.size + 0xFFFF) :]
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END_OF_ARCHIVE.size:
        return None
    *_, size, _, comment = _END_OF_ARCHIVE.unpack_from(tail, at)
    starts = len(content) - len(tail) + at - size
    if at + _END_OF_ARCHIVE.size + comment > len(tail) or starts < 0:
        return None
    return size if content[starts : starts + 4] == b"PK\x01\x02" else None


def _as_text(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "a text in UTF-16; save it as UTF-8"
    if _CONTROLS.search(content):
        return "unknown"
    if _MARKUP.search(content[:_MARKUP_SEARCH]):
        return "a web page, a drawing or another kind of markup"
    return "text/plain"


# ── Names ─────────────────────────────────────────────────────────────────────────────────────

_NOT_IN_NAMES = set('/\\<>:"|?*')
_DOT_AND_SPACE = ". "


def checked_name(name: str) -> str:
    """The name in its one written form, or MediaRefused with what is wrong with it."""
    name = unicodedata.normalize("NFC", name)
    if not name.strip(_DOT_AND_SPACE):
        raise MediaRefused("a file needs a name")
    if name != name.strip() or name.startswith(".") or name.endswith("."):
        raise _refusal(name, "a name neither begins nor ends with a dot or a space")
    if len(name) > LONGEST_NAME or len(name.encode("utf-8", "replace")) > 2 * LONGEST_NAME:
        raise _refusal(name, f"the name is longer than {LONGEST_NAME} characters")
    # Invisible ones among them: one that turns the direction makes `gpj.exe` look like `exe.jpg`.
    if odd := next((char for char in name if not _may_stand_in_a_name(char)), None):
        raise _refusal(name, f"the name has a character that names may not have: U+{ord(odd):04X}")
    return name


def safe_name(raw: str, declared_type: str | None) -> str:
    """A name that passes, made of what a stranger called the file."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", raw))[-1]
    clean = "".join(char for char in last if _may_stand_in_a_name(char)).strip(_DOT_AND_SPACE)
    stem, dot, ending = clean.rpartition(".")
    if not dot or ending.lower() not in _BY_EXTENSION:
        stem = clean
        ending = _TYPES.get(_plain_type(declared_type), ("", ("",)))[1][0]
    room = LONGEST_NAME - 1 - len(ending)
    while len(stem[:room].encode("utf-8")) > 2 * (LONGEST_NAME - 1) - len(ending):
        room -= 1
    stem = stem[:room].strip(_DOT_AND_SPACE) or "file"
    return f"{stem}.{ending}" if ending else stem


def _may_stand_in_a_name(char: str) -> bool:
    return char not in _NOT_IN_NAMES and (char == " " or unicodedata.category(char)[0] in "LMNPS")


def _shown(text: str) -> str:
    """A stranger's text as it may stand in a sentence."""
    return mask("".join(char if char.isprintable() else "?" for char in text[:80]))


def _refusal(subject: str, why: str) -> MediaRefused:
    return MediaRefused(f"{_shown(subject)}: {why}")


# ── Addresses ─────────────────────────────────────────────────────────────────────────────────

LONGEST_URL = 2000

_V4 = tuple(
    (ipaddress.IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's customers"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's own metadata"),
        ("169.254.0.0/16", "link-local, where clouds keep their metadata"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "for documentation only"),
        ("192.88.99.0/24", "a relay of 6to4"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks only"),
        ("198.51.100.0/24", "for documentation only"),
        ("203.0.113.0/24", "for documentation only"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_V6 = tuple(
    (ipaddress.IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private to a site"),
        ("ff00::/8", "multicast"),
        ("2001:db8::/32", "for documentation only"),
        ("3fff::/20", "for documentation only"),
        ("2001::/32", "a Teredo tunnel"),
        ("2001::/23", "reserved for protocols"),
        ("2002::/16", "a 6to4 tunnel"),
        ("64:ff9b:1::/48", "a translation inside a network"),
    )
)
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_WRAPPERS = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
"""IPv4 written as IPv6, and IPv4 behind a translator: only the address inside counts."""

_ISATAP = {0x00005EFE, 0x02005EFE}
_LOCAL_NAMES = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home", "corp")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")


def refused_address(ip: IPAddress) -> str | None:
    """Why nothing may be fetched from this address; None when it is an ordinary public one."""
    if isinstance(ip, ipaddress.IPv4Address):
        return next((reason for network, reason in _V4 if ip in network), None)
    if ip.scope_id:
        return "bound to one network card"
    value = int(ip)
    inside = ipaddress.IPv4Address(value & 0xFFFFFFFF)
    if any(ip in wrapper for wrapper in _WRAPPERS):
        reason = refused_address(inside)
        return f"{reason} ({inside} inside)" if reason else None
    if reason := next((reason for network, reason in _V6 if ip in network), None):
        return reason
    if ip not in _PUBLIC_V6:
        return "outside of the public range"
    if value >> 32 & 0xFFFFFFFF in _ISATAP and (reason := refused_address(inside)):
        return f"{reason} ({inside} inside)"
    return None


@dataclass(frozen=True)
class WebAddress:
    """An address that may be asked, once its host's own addresses are known to be public."""

    scheme: str
    host: str
    """Lower case and ASCII; without brackets."""
    port: int
    target: str
    """Path and query, as they are sent."""
    source: str
    """The address as it may be kept: a query may carry a key."""

    @property
    def literal(self) -> IPAddress | None:
        """The host when it is a number and no name."""
        return _as_ip(self.host)


def web_address(url: str, *, plain: bool = False) -> WebAddress:
    """The parts of an address that every reader would read alike, or MediaRefused.

    `plain` also allows http and any port: for a server on this machine, never for strangers.
    """
    if len(url) > LONGEST_URL:
        raise MediaRefused(f"the address is longer than {LONGEST_URL} characters")
    if not url.isprintable() or {" ", "\\"} & set(url):
        raise MediaRefused("the address has a space, a backslash or an invisible character in it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise MediaRefused("the address cannot be read; check its host and port") from error
    if parts.scheme != "https" and not (plain and parts.scheme == "http"):
        raise MediaRefused(f"{_shown(parts.scheme) or 'no scheme'}: only https addresses are read")
    if "@" in parts.netloc:
        raise MediaRefused("an address with a user or a password in it is not read")
    usual = 443 if parts.scheme == "https" else 80
    if port is not None and port != usual and not plain:
        raise MediaRefused(f"port {port}: only port {usual} is asked")
    host = _checked_host(parts.hostname or "")
    shown = f"[{host}]" if ":" in host else host
    place = shown if port in (None, usual) else f"{shown}:{port}"
    path = _ascii(parts.path) or "/"
    return WebAddress(
        scheme=parts.scheme,
        host=host,
        port=usual if port is None else port,
        target=f"{path}?{_ascii(parts.query)}" if parts.query else path,
        source=f"{parts.scheme}://{place}{path}",
    )


def _checked_host(raw: str) -> str:
    if ":" in raw:
        if _as_ip(raw) is None or "%" in raw:
            raise MediaRefused(f"[{_shown(raw)}] is no address that can be asked")
        return raw
    try:
        host = raw.encode("idna").decode("ascii").lower()
    except UnicodeError as error:
        raise MediaRefused(f"{_shown(raw) or 'an empty host'} is no name of a host") from error
    if not raw.isascii() and "xn--" not in host:
        raise MediaRefused(f"{_shown(raw)} is {host} in disguise; write it plainly")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise MediaRefused(f"{_shown(raw) or 'an empty host'} is no name of a host")
    if _as_ip(host) is None and _NUMBER.fullmatch(labels[-1]):
        raise MediaRefused(f"{host} is a number that programs read differently; write a name")
    if labels[-1] in _LOCAL_NAMES or host.endswith("home.arpa"):
        raise MediaRefused(f"{host} is a name of a local network; only public hosts are asked")
    if len(labels) == 1:
        raise MediaRefused(f"{host} has no dot: only full names of public hosts are asked")
    return host


def _as_ip(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _ascii(text: str) -> str:
    """Path or query as it travels: letters outside ASCII as percent signs, the rest as it is."""
    return "".join(
        char if char.isascii() else "".join(f"%{byte:02X}" for byte in char.encode("utf-8"))
        for char in text
    )
