"""The fetcher, against a real server that misbehaves; names are resolved by the test."""

from __future__ import annotations

import gzip
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from cerniq_pipeline.domain.media import SIZE_LIMITS, IPAddress, refused_address
from cerniq_pipeline.errors import MediaRefused
from cerniq_pipeline.providers.web.fetching import WebFetcher, ask_the_system
from cerniq_pipeline_tests.providers.web_server import Script, Visit, WebServer, answering

NAME = "files.example.com"
PDF = b"%PDF-1.7\nhello\n%%EOF\n"
PUBLIC = "93.184.216.34"

Serve = Callable[[Script], WebServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that live as long as the test."""
    running: list[WebServer] = []

    def start(script: Script) -> WebServer:
        running.append(WebServer(script).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__(None, None, None)


def only_this_server(ip: IPAddress) -> str | None:
    """The rule of the product, but for the one address at which the test's server is."""
    return None if str(ip) == "127.0.0.1" else refused_address(ip)


class Names:
    """A name server that gives its answers in turn, and remembers what it was asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self._answers.pop(0)


def a_fetcher(names: Names | None = None, *, deadline: float = 10.0) -> WebFetcher:
    """A fetcher that may reach the test's server, and nothing else that is not public."""
    return WebFetcher(
        seconds=time.monotonic,
        resolve=names or Names(["127.0.0.1"]),
        rule=only_this_server,
        plain=True,
        deadline=deadline,
    )


def address(server: WebServer, path: str = "/oferta.pdf") -> str:
    return f"http://{NAME}:{server.port}{path}"


# ── The good path ─────────────────────────────────────────────────────────────────────────────


def test_a_file_is_read_as_it_is(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody is there: it must not be asked
    server = serve(answering(PDF, Content_Type="application/pdf"))
    fetched = a_fetcher().fetch(address(server, "/files/Ofert%C4%83.pdf?key=1"))
    assert fetched.content == PDF
    assert (fetched.filename, fetched.declared_type) == ("Ofertă.pdf", "application/pdf")
    (head,) = server.heads
    assert head.startswith("GET /files/Ofert%C4%83.pdf?key=1 HTTP/1.1\r\n")
    assert f"Host: {NAME}:{server.port}\r\n" in head
    assert "Accept-Encoding: identity\r\n" in head


@pytest.mark.parametrize(
    ("disposition", "filename"),
    [
        ('attachment; filename="lista.pdf"', "lista.pdf"),
        ('attachment; filename="../../etc/lista.pdf"', "lista.pdf"),
        ("attachment; filename*=UTF-8''ofert%C4%83.pdf", "ofertă.pdf"),
        ('attachment; filename="ofertă.pdf"', "ofertă.pdf"),
        ('attachment; filename="lista"', "lista.pdf"),
        ("attachment", "x.pdf"),
        ("attachment; filename*=klingon''%ff.pdf", "ÿ.pdf"),
    ],
)
def test_the_servers_name_for_the_file_is_used_but_not_trusted(
    serve: Serve, disposition: str, filename: str
):
    server = serve(answering(PDF, Content_Type="application/pdf", Content_Disposition=disposition))
    assert a_fetcher().fetch(address(server, "/x")).filename == filename


def test_a_body_without_a_length_is_read_to_its_end(serve: Serve):
    def in_chunks(visit: Visit) -> None:
        visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (PDF[:5], PDF[5:]):
            visit.say(b"%x\r\n%s\r\n" % (len(part), part))
        visit.say(b"0\r\n\r\n")

    assert a_fetcher().fetch(address(serve(in_chunks))).content == PDF


def test_an_address_that_is_dead_is_passed_over(serve: Serve):
    server = serve(answering(PDF))
    fetcher = WebFetcher(
        seconds=time.monotonic,
        resolve=Names(["127.0.0.2", "127.0.0.1"]),  # nobody listens at the first
        rule=lambda _: None,
        plain=True,
    )
    assert fetcher.fetch(address(server)).content == PDF


# ── Where it must not go ──────────────────────────────────────────────────────────────────────


def strict(names: Names) -> WebFetcher:
    """The rules of the product; http and any port, so that nothing else can refuse."""
    return WebFetcher(seconds=time.monotonic, resolve=names, plain=True)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"],
)
def test_a_loopback_address_is_refused_before_any_connection(serve: Serve, host: str):
    server = serve(answering(PDF))
    names = Names()
    with pytest.raises(MediaRefused, match=r"is loopback.*; only public addresses are read"):
        strict(names).fetch(f"http://{host}:{server.port}/oferta.pdf")
    assert names.asked == []
    assert server.visitors() == 0


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        [PUBLIC, "127.0.0.1"],
        ["127.0.0.1", PUBLIC],
        ["::ffff:127.0.0.1"],
        ["::1"],
        ["169.254.169.254"],
        ["10.0.0.1"],
        ["fe80::1%lo"],
        ["100.64.0.1"],
        ["0.0.0.0"],
    ],
)
def test_a_name_that_leads_inside_is_refused_before_any_connection(serve: Serve, answer: list[str]):
    server = serve(answering(PDF))
    with pytest.raises(MediaRefused, match=f"{NAME} leads to .*; only public addresses are read"):
        strict(Names(answer)).fetch(address(server))
    assert server.visitors() == 0


def test_the_name_is_asked_once_and_the_connection_goes_where_it_led(serve: Serve):
    """A second answer could be another one: that is how a checked name leads inside."""
    server = serve(answering(PDF))
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    assert a_fetcher(names).fetch(address(server)).content == PDF
    assert names.asked == [NAME]


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 T", "308 P", "304 N"])
def test_a_redirect_is_a_refusal(serve: Serve, status: str):
    inside = serve(answering(PDF))
    location = f"http://127.0.0.1:{inside.port}/secret.pdf"
    server = serve(answering(status=status, Location=location))
    with pytest.raises(MediaRefused, match=rf"redirect \({status[:3]}\)") as refused:
        a_fetcher().fetch(address(server))
    assert "use the address of the file itself" in str(refused.value)
    assert inside.visitors() == 0


@pytest.mark.parametrize("url", ["https://0x7f.1/", "https://2130706433/", "https://u@a.com/"])
def test_a_malformed_address_is_refused_before_any_name_is_asked(url: str):
    names = Names()
    with pytest.raises(MediaRefused):
        strict(names).fetch(url)
    assert names.asked == []


def test_a_name_without_an_address_is_refused():
    def nobody(host: str, port: int) -> list[str]:
        raise OSError("unknown")

    for resolve in (nobody, lambda host, port: []):
        with pytest.raises(MediaRefused, match="has no address"):
            WebFetcher(seconds=time.monotonic, resolve=resolve).fetch(f"https://{NAME}/")


def test_the_system_gives_each_address_once():
    assert ask_the_system("127.0.0.1", 443) == ["127.0.0.1"]


# ── What it must not swallow ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (answering(status="404 Not Found"), "answers 404"),
        (answering(status="500 Oops"), "answers 500"),
        (answering(PDF, status="206 Partial"), "answers 206"),
        (answering(PDF, Content_Type="text/html"), "text/html is not sent"),
        (answering(gzip.compress(PDF), Content_Encoding="gzip"), "packed"),
        (answering(PDF, Content_Encoding="br"), "packed"),
        (answering(PDF, length=10_000), "could not be read to the end"),
        (answering(b"x", length=10**12), "more than the 100.0 MB"),
        (lambda visit: visit.say(b"SSH-2.0-OpenSSH\r\n"), "could not be read to the end"),
        (lambda visit: None, "could not be read to the end"),
        (answering(b"x", length=16_000_001, Content_Type="image/png"), "more than the 16.0 MB"),
    ],
)
def test_anything_but_a_plain_whole_file_is_refused(serve: Serve, script: Script, why: str):
    with pytest.raises(MediaRefused, match=why):
        a_fetcher().fetch(address(serve(script)))


def test_a_length_that_is_too_small_hides_nothing(serve: Serve):
    """The rest would be another answer: it is not read."""
    server = serve(answering(PDF + b"more", length=len(PDF)))
    assert a_fetcher().fetch(address(server)).content == PDF


@pytest.mark.parametrize("framing", ["", "Transfer-Encoding: chunked\r\n"])
def test_an_endless_body_is_cut_off_at_the_limit(serve: Serve, framing: str):
    block = bytes(1_000_000)
    sent = 0

    def endless(visit: Visit) -> None:
        nonlocal sent
        visit.say(f"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n{framing}\r\n".encode())
        while sent < 10 * SIZE_LIMITS["image"]:
            visit.say(b"%x\r\n%s\r\n" % (len(block), block) if framing else block)
            sent += len(block)

    with pytest.raises(MediaRefused, match=r"more than the 16\.0 MB"):
        a_fetcher().fetch(address(serve(endless)))
    assert sent < 10 * SIZE_LIMITS["image"]


def drip(visit: Visit, data: bytes) -> None:
    """A byte now and then: no single read is slow."""
    for byte in data:
        if visit.wait(0.02):
            return
        visit.say(bytes([byte]))


@pytest.mark.parametrize(
    "script",
    [
        lambda visit: visit.wait(20),
        lambda visit: drip(visit, b"HTTP/1.1 200 OK\r\nX: " + b"x" * 400),
        lambda visit: (
            visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n"),
            drip(visit, bytes(400)),
        ),
        lambda visit: [
            visit.say(b"HTTP/1.1 100 Continue\r\n\r\n") for _ in range(400) if not visit.wait(0.02)
        ],
    ],
    ids=["silence", "slow headers", "slow body", "endless promises"],
)
def test_the_deadline_holds_for_everything_together(serve: Serve, script: Script):
    with pytest.raises(MediaRefused, match=r"took longer than 0\.3 seconds"):
        a_fetcher(deadline=0.3).fetch(address(serve(script)))


def test_a_slow_name_service_uses_up_the_same_deadline(serve: Serve):
    server = serve(answering(PDF))
    ticks = iter([0.0, 10.0])  # it begins, and after the name was found the time is over
    fetcher = WebFetcher(
        seconds=lambda: next(ticks),
        resolve=Names(["127.0.0.1"]),
        rule=only_this_server,
        plain=True,
    )
    with pytest.raises(MediaRefused, match="took longer than 10 seconds"):
        fetcher.fetch(address(server))
    assert server.visitors() == 0


# ── The certificate ───────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Somebody whom only this test trusts."""
    return trustme.CA()


@pytest.fixture
def secure(authority: trustme.CA) -> Iterator[WebServer]:
    identity = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME).configure_cert(identity)
    with WebServer(answering(PDF), identity=identity) as server:
        yield server


def over_tls(trust: ssl.SSLContext | None) -> WebFetcher:
    return WebFetcher(
        seconds=time.monotonic,
        resolve=lambda host, port: ["127.0.0.1"],
        rule=only_this_server,
        plain=True,
        trust=trust,
    )


def test_the_certificate_is_checked_against_the_name_although_a_number_is_called(
    secure: WebServer, authority: trustme.CA
):
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    read = over_tls(trust).fetch(f"https://{NAME}:{secure.port}/oferta.pdf")
    assert read.content == PDF
    with pytest.raises(MediaRefused, match="Hostname mismatch"):
        over_tls(trust).fetch(f"https://other.example.com:{secure.port}/oferta.pdf")


def test_a_certificate_that_nobody_vouches_for_is_refused(
    secure: WebServer, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))  # it is not asked
    with pytest.raises(MediaRefused, match="CERTIFICATE_VERIFY_FAILED"):
        over_tls(None).fetch(f"https://{NAME}:{secure.port}/oferta.pdf")
