"""Media: which files may be sent, what they may be called, and which addresses may be asked."""

from __future__ import annotations

import io
import ipaddress
import zipfile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cerniq_pipeline.domain.media import (
    LARGEST,
    LONGEST_NAME,
    SIZE_LIMITS,
    check,
    checked_name,
    found_type,
    megabytes,
    refused_address,
    safe_name,
    size_limit,
    web_address,
)
from cerniq_pipeline.errors import MediaRefused

OFFICE = "application/vnd.openxmlformats-officedocument"
ODF = "application/vnd.oasis.opendocument"

JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(64) + b"\xff\xd9"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
WEBP = b"RIFF\x40\x00\x00\x00WEBPVP8 " + bytes(64)
PDF = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n%%EOF\n"
MP4 = b"\x00\x00\x00\x18ftypisom" + bytes(64)
GP3 = b"\x00\x00\x00\x18ftyp3gp4" + bytes(64)
SVG = b'<svg xmlns="x"><script>alert(1)</script></svg>'
HTML = b"<!DOCTYPE html><html><body>x</body></html>"


def an_archive(*names: str, mimetype: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        if mimetype:
            archive.writestr("mimetype", mimetype)
        for name in names:
            archive.writestr(name, "<x/>")
    return out.getvalue()


DOCX = an_archive("[Content_Types].xml", "_rels/.rels", "word/document.xml")
XLSX = an_archive("[Content_Types].xml", "xl/workbook.xml")
PPTX = an_archive("[Content_Types].xml", "ppt/presentation.xml")
ODT = an_archive("content.xml", mimetype=f"{ODF}.text")


def short(value: object) -> str:
    """The name of a case: texts only, the bytes would fill pages."""
    return value if isinstance(value, str) else ""


# ── Files ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("filename", "content", "kind", "content_type"),
    [
        ("casa.jpg", JPEG, "image", "image/jpeg"),
        ("casa.JPEG", JPEG, "image", "image/jpeg"),
        ("plan.png", PNG, "image", "image/png"),
        ("plan.webp", WEBP, "image", "image/webp"),
        ("film.mp4", MP4, "video", "video/mp4"),
        ("film.3gp", GP3, "video", "video/3gpp"),
        ("Ofertă 2026.pdf", PDF, "document", "application/pdf"),
        ("contract.docx", DOCX, "document", f"{OFFICE}.wordprocessingml.document"),
        ("preturi.xlsx", XLSX, "document", f"{OFFICE}.spreadsheetml.sheet"),
        ("firma.pptx", PPTX, "document", f"{OFFICE}.presentationml.presentation"),
        ("contract.odt", ODT, "document", f"{ODF}.text"),
        ("citeste.txt", "Bună ziua, țară!".encode(), "document", "text/plain"),
        ("vechi.txt", "Bună".encode("cp1250"), "document", "text/plain"),
        ("lista.csv", b"a;b\n1;2\n", "document", "text/csv"),
    ],
    ids=short,
)
def test_a_file_that_is_what_it_says_may_be_sent(filename, content, kind, content_type):
    for declared in (None, content_type, f"{content_type}; charset=utf-8"):
        checked = check(filename, declared, content)
        assert (checked.kind, checked.content_type) == (kind, content_type)
        assert (checked.filename, checked.content) == (filename, content)


@pytest.mark.parametrize(
    ("filename", "declared", "content"),
    [
        ("a.jpg", "image/jpg", JPEG),
        ("a.jpg", "application/octet-stream", JPEG),
        ("a.csv", "text/plain", b"a;b"),
        ("a.csv", "application/csv", b"a;b"),
    ],
    ids=short,
)
def test_a_declared_type_may_be_vague_or_have_another_name(filename, declared, content):
    check(filename, declared, content)


@pytest.mark.parametrize(
    ("filename", "content", "named"),
    [
        ("drawing.svg", SVG, "markup"),
        ("drawing.png", SVG, "markup"),
        ("page.html", HTML, "markup"),
        ("page.txt", b"\xef\xbb\xbf \n" + HTML, "markup"),
        ("data.csv", b"a;b\n1;<script>x</script>\n", "markup"),
        ("feed.txt", b"<?xml version='1.0'?><x/>", "markup"),
        ("setup.exe", b"MZ\x90\x00", "Windows program"),
        ("photo.jpg", b"MZ\x90\x00", "Windows program"),
        ("tool.txt", b"\x7fELF\x02", "a program"),
        ("run.txt", b"#!/bin/sh\nrm -rf x\n", "a script"),
        ("anim.gif", b"GIF89a", "GIF"),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old kind"),
        ("photo.heic", b"\x00\x00\x00\x18ftypheic", "heic"),
        ("film.mov", b"\x00\x00\x00\x18ftypqt  ", "qt"),
        ("song.wav", b"RIFF\x40\x00\x00\x00WAVE", "no WebP"),
        ("all.zip", an_archive("a.txt"), "an archive"),
        ("all.docx", an_archive("a.txt"), "an archive"),
        ("all.docx", DOCX[:-30], "damaged archive"),
        ("all.docx", b"PK\x05\x06" + bytes(18), "damaged archive"),
        ("m.docx", an_archive("[Content_Types].xml", "word/document.xml", "word/vbaProject.bin"),
         "macros"),
        ("m.odt", an_archive("Basic/Standard/M.xml", mimetype=f"{ODF}.text"), "macros"),
        ("t.odt", an_archive("content.xml", mimetype=f"{ODF}.text-template"), "an archive"),
        ("two.docx", an_archive("[Content_Types].xml", "word/document.xml", "xl/workbook.xml"),
         "no Office file"),
        ("photo.jpg", JPEG + an_archive("evil.class"), "hidden"),
        ("paper.pdf", PDF + an_archive("evil.class"), "hidden"),
        ("noise.txt", bytes(range(256)), "unknown"),
        ("wide.txt", "text".encode("utf-16"), "UTF-16"),
    ],
    ids=short,
)  # fmt: skip
def test_what_is_not_allowed_is_refused_by_its_content(filename, content, named):
    with pytest.raises(MediaRefused, match=named) as refused:
        check(filename, None, content)
    assert "allowed are jpg, jpeg, png" in str(refused.value)


def test_an_archive_with_a_part_twice_is_refused():
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = an_archive("[Content_Types].xml", "word/document.xml", "word/document.xml")
    with pytest.raises(MediaRefused, match="a part twice"):
        check("two.docx", None, twice)


@pytest.mark.parametrize(
    ("filename", "declared", "content", "why"),
    [
        ("photo.png", None, JPEG, "its content is image/jpeg, and such a name ends in .jpg or"),
        ("photo", None, JPEG, "ends in .jpg or"),
        ("photo.jpg.exe", None, JPEG, "ends in .jpg or"),
        ("photo.docx", None, XLSX, "ends in .xlsx"),
        ("photo.jpg", "image/png", JPEG, "declared as image/png, its content is image/jpeg"),
        ("paper.pdf", "text/html", PDF, "declared as text/html"),
        ("lista.csv", "application/pdf", b"a;b", "declared as application/pdf"),
        ("empty.pdf", None, b"", "empty"),
    ],
    ids=short,
)
def test_name_declared_type_and_content_must_agree(filename, declared, content, why):
    with pytest.raises(MediaRefused, match=why):
        check(filename, declared, content)


@pytest.mark.parametrize(
    ("filename", "start", "kind"),
    [("a.jpg", JPEG, "image"), ("a.mp4", MP4, "video"), ("a.pdf", PDF, "document")],
    ids=short,
)
def test_each_kind_has_its_largest_size(filename, start, kind):
    most = SIZE_LIMITS[kind]
    fits = start.ljust(most, b"\x01")
    assert check(filename, None, fits).size == most
    with pytest.raises(MediaRefused, match=f"it has .* MB; {megabytes(most)} are allowed") as no:
        check(filename, None, fits + b"\x01")
    assert kind in str(no.value)


def test_a_size_over_the_limit_never_looks_like_the_limit():
    assert megabytes(16_000_000) == "16.0 MB"
    assert megabytes(16_000_001) == "16.1 MB"


@pytest.mark.parametrize(
    ("declared", "most"),
    [
        (None, LARGEST),
        ("application/octet-stream", LARGEST),
        ("IMAGE/PNG", SIZE_LIMITS["image"]),
        ("application/pdf", SIZE_LIMITS["document"]),
    ],
)
def test_a_declared_type_says_how_much_may_come(declared, most):
    assert size_limit(declared) == most


def test_a_declared_type_that_is_never_sent_is_refused_before_its_content():
    with pytest.raises(MediaRefused, match="text/html is not sent"):
        size_limit("text/html; charset=utf-8")


@given(st.binary(max_size=300))
@example(b"PK\x03\x04")
@example(b"PK\x05\x06" + b"\xff" * 40)
def test_any_bytes_have_an_answer(content):
    assert found_type(content)


@given(st.integers(0, len(DOCX) - 1), st.integers(0, 255))
def test_a_damaged_archive_has_an_answer(at, byte):
    assert found_type(DOCX[:at] + bytes([byte]) + DOCX[at + 1 :])


# ── Names ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "needs a name"),
        ("...", "needs a name"),
        ("../etc/passwd.txt", "dot or a space"),
        ("a/b.txt", r"U\+002F"),
        ("a\\b.txt", r"U\+005C"),
        ("C:b.txt", r"U\+003A"),
        ("a\nb.txt", r"U\+000A"),
        ("a\x00.txt", r"U\+0000"),
        ("photo\u202egpj.exe", r"U\+202E"),
        ("a\u200b.txt", r"U\+200B"),
        ("a\ud800.txt", r"U\+D800"),
        (".hidden.txt", "dot or a space"),
        ("a.txt ", "dot or a space"),
        ("a.txt.", "dot or a space"),
        ("a" * 117 + ".txt", "longer than 120"),
        ("😀" * 70 + ".txt", "longer than 120"),
    ],
)
def test_a_name_that_could_lead_astray_is_refused(name, why):
    with pytest.raises(MediaRefused, match=why):
        checked_name(name)
    with pytest.raises(MediaRefused):
        check(name, None, b"text")


def test_a_name_has_one_written_form():
    assert checked_name("Ofert" + "a\u0306" + ".pdf") == "Ofertă.pdf"


def test_a_refusal_does_not_show_a_telephone_number():
    with pytest.raises(MediaRefused) as refused:
        check("oferta +40721000123.pdf", None, JPEG)
    assert "721000" not in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "declared", "safe"),
    [
        ("/files/Oferta.pdf", None, "Oferta.pdf"),
        ("..\\..\\win.ini.pdf", None, "win.ini.pdf"),
        ("/download", "application/pdf", "download.pdf"),
        ("/download.php", "image/png; q=1", "download.php.png"),
        ("/download", None, "download"),
        ("/", "image/jpeg", "file.jpg"),
        ("a\x00b\u202ec.pdf", None, "abc.pdf"),
        (". .pdf", "application/pdf", "pdf.pdf"),
        ("x" * 500 + ".pdf", None, "x" * 116 + ".pdf"),
    ],
)
def test_a_strangers_name_is_made_safe(raw, declared, safe):
    assert safe_name(raw, declared) == safe


@given(st.text(), st.sampled_from([None, "image/png", "text/csv", "odd"]))
@example("😀" * 200 + ".pdf", None)
@example("a" * 115 + " .b.pdf", None)
def test_a_name_made_safe_always_passes(raw, declared):
    assert len(checked_name(safe_name(raw, declared))) <= LONGEST_NAME


# ── Addresses ─────────────────────────────────────────────────────────────────────────────────

REFUSED_IPS = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1",
                 "64:ff9b::7f00:1", "2a00::5efe:7f00:1", "2a00::200:5efe:127.0.0.1"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12::1",
                "fec0::1", "::ffff:10.1.2.3", "64:ff9b::192.168.0.1"],
    "link-local": ["169.254.1.1", "169.254.169.254", "fe80::1", "::ffff:169.254.169.254"],
    "metadata": ["169.254.169.254", "168.63.129.16"],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"],
    "carrier": ["100.64.0.1", "100.100.100.200", "100.127.255.255"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "192.0.0.192", "2001:1::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "benchmarks": ["198.18.0.1", "198.19.255.255"],
    "6to4": ["2002:7f00:1::", "2002:5db8:d822::1", "192.88.99.1"],
    "Teredo": ["2001:0:4136:e378:8000:63bf:80ff:fffe"],
    "translation": ["64:ff9b:1::7f00:1"],
    "outside": ["::127.0.0.1", "::ffff:0:127.0.0.1", "100::1", "4000::1", "5f00::1"],
    "network card": ["fe80::1%eth0", "2a00:1450::1%1"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("ip", "reason"), [(ip, reason) for reason, ips in REFUSED_IPS.items() for ip in ips]
)
def test_an_address_that_is_not_public_is_refused_with_its_reason(ip, reason):
    assert reason in str(refused_address(ipaddress.ip_address(ip)))


@pytest.mark.parametrize(
    "ip",
    [
        *("93.184.216.34", "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0"),
        *("126.255.255.255", "128.0.0.0", "169.253.255.255", "172.15.255.255", "172.32.0.0"),
        *("192.167.255.255", "192.169.0.0", "223.255.255.255"),
        *("2a00:1450:4001:82a::200e", "2606:4700::1111"),
        *("::ffff:93.184.216.34", "64:ff9b::5db8:d822"),
    ],
)
def test_a_public_address_may_be_asked(ip):
    assert refused_address(ipaddress.ip_address(ip)) is None


@given(st.ip_addresses())
def test_nothing_is_allowed_that_python_knows_to_be_local(ip):
    if refused_address(ip) is None:
        local = (ip.is_loopback, ip.is_link_local, ip.is_multicast, ip.is_unspecified)
        assert not any(local)
        if ip.version == 4:
            assert not any((ip.is_private, ip.is_reserved))


@pytest.mark.parametrize(
    "network",
    [
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    ],
)
def test_a_range_is_refused_from_its_first_address_to_its_last(network):
    whole = ipaddress.ip_network(network)
    for ip in (whole[0], whole[-1]):
        assert refused_address(ip)
        assert refused_address(ipaddress.ip_address(f"::ffff:{ip}"))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://files.example.com/a.pdf", "only https"),
        ("ftp://files.example.com/a.pdf", "only https"),
        ("file:///etc/passwd", "only https"),
        ("//files.example.com/a.pdf", "only https"),
        ("https://user@files.example.com/a.pdf", "user or a password"),
        ("https://files.example.com:p@127.0.0.1/a.pdf", "cannot be read|user or a password"),
        ("https://files.example.com:8443/a.pdf", "port 8443"),
        ("https://files.example.com:80/a.pdf", "port 80"),
        ("https://files.example.com:99999/", "cannot be read"),
        ("https://files.example.com\\@127.0.0.1/", "backslash"),
        ("https://files.example.com/a b.pdf", "space"),
        ("https://files.example.com/\r\nHost: x", "invisible"),
        ("https://files.example.com/\udc80", "invisible"),
        ("https://" + "a" * 2000, "longer than"),
        ("https://0x7f.1/", "read differently"),
        ("https://0x7f000001/", "read differently"),
        ("https://2130706433/", "read differently"),
        ("https://0177.0.0.1/", "read differently"),
        ("https://127.1/", "read differently"),
        ("https://127.0.0.01/", "read differently"),
        ("https://256.256.256.256/", "read differently"),
        ("https://1.2.3.4.5/", "read differently"),
        ("https://files.0x7f/", "read differently"),
        ("https://127.0.0.1./", "no name of a host"),
        ("https://files.example.com./", "no name of a host"),
        ("https://１２７.0.0.1/", "in disguise"),
        ("https://127。0。0。1/", "in disguise"),
        ("https://ⓛocalhost/", "in disguise"),
        ("https://localhost/", "local network"),
        ("https://api.localhost/", "local network"),
        ("https://metadata.google.internal/", "local network"),
        ("https://printer.local/", "local network"),
        ("https://intranet/", "local network|no dot"),
        ("https://server/", "no dot"),
        ("https://%31%32%37.0.0.1/", "no name of a host"),
        ("https:///a.pdf", "empty host|no name of a host"),
        ("https://[::1%25eth0]/", "no address|cannot be read"),
        ("https://[1.2.3.4]/", "cannot be read|no address|differently"),
        ("https://a..example.com/", "no name of a host"),
        ("https://-a.example.com/", "no name of a host"),
    ],
)
def test_an_address_that_could_be_read_in_two_ways_is_refused(url, why):
    with pytest.raises(MediaRefused, match=why):
        web_address(url)


def test_an_address_is_read_once_and_kept_without_its_query():
    read = web_address("https://Files.Example.com/Ofertă.pdf?key=secret#page=2")
    assert (read.scheme, read.host, read.port) == ("https", "files.example.com", 443)
    assert read.target == "/Ofert%C4%83.pdf?key=secret"
    assert read.source == "https://files.example.com/Ofert%C4%83.pdf"
    assert read.literal is None


def test_a_name_in_other_letters_is_asked_in_its_ascii_form():
    assert web_address("https://țară.example.com/").host == "xn--ar-kla13i.example.com"


@pytest.mark.parametrize(
    ("url", "ip"),
    [
        ("https://127.0.0.1/a", "127.0.0.1"),
        ("https://[::ffff:127.0.0.1]/a", "::ffff:127.0.0.1"),
        ("https://[::1]/a", "::1"),
        ("https://[0:0:0:0:0:ffff:7f00:0001]/a", "::ffff:127.0.0.1"),
    ],
)
def test_a_literal_address_is_recognised_as_one(url, ip):
    literal = web_address(url).literal
    assert literal == ipaddress.ip_address(ip)
    assert "loopback" in str(refused_address(literal))


def test_only_a_server_on_this_machine_gets_http_and_odd_ports():
    read = web_address("http://files.example.com:8080/a.pdf", plain=True)
    assert (read.scheme, read.port) == ("http", 8080)
    assert read.source == "http://files.example.com:8080/a.pdf"
    with pytest.raises(MediaRefused, match="only https"):
        web_address("ftp://files.example.com/", plain=True)
