"""Media is checked once, kept, and handed over as the bytes that were checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cerniq_pipeline.cli import context
from cerniq_pipeline.cli.media import media as command
from cerniq_pipeline.domain.media import Fetched, refused_address
from cerniq_pipeline.errors import MediaRefused, NotFound
from cerniq_pipeline.providers.web.fetching import WebFetcher
from cerniq_pipeline.services.media import add_address, add_file, content_of, use_in_template
from cerniq_pipeline_tests.builders import a_world, rows, run_sql, the_row
from cerniq_pipeline_tests.providers.web_server import WebServer, answering
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PDF = b"%PDF-1.7\nhello\n%%EOF\n"
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"
URL = "https://files.example.com/oferta.pdf?key=secret"


@pytest.fixture
def begin(database: Engine):
    with database.begin() as conn:
        a_world(conn)
    return database.begin


def a_file(folder: Path, name: str = "oferta.pdf", content: bytes = PDF) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


class Giving:
    """A fetcher that has the file already, and counts who asks."""

    def __init__(self, content: bytes = PDF, declared: str | None = "application/pdf") -> None:
        self.asked = 0
        self._fetched = Fetched("oferta.pdf", declared, content)

    def fetch(self, url: str) -> Fetched:
        self.asked += 1
        return self._fetched


def kept(database: Engine) -> int:
    return len(rows(database, "SELECT 1 FROM media_files"))


# ── Adding ────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_kept_and_handed_over_as_it_was(begin, tmp_path: Path):
    path = a_file(tmp_path)
    found = add_file(begin, path, tenant_id="acme")
    path.write_bytes(b"%PDF-1.7 something else")
    assert content_of(begin, found.id) == PDF
    assert (found.kind, found.filename, found.size) == ("document", "oferta.pdf", len(PDF))
    assert found.source_url is None


def test_what_was_fetched_is_never_fetched_again(begin, database: Engine):
    fetcher = Giving()
    found = add_address(begin, fetcher, URL, tenant_id="acme")
    assert [content_of(begin, found.id) for _ in range(3)] == [PDF] * 3
    assert fetcher.asked == 1
    assert found.source_url == "https://files.example.com/oferta.pdf"  # its query may be a key
    assert the_row(database, "SELECT name FROM media_files")["name"] == "oferta.pdf"


def test_the_same_file_under_the_same_name_is_one(begin, tmp_path: Path, database: Engine):
    path = a_file(tmp_path)
    first = add_file(begin, path, tenant_id="acme", name="oferta")
    assert add_file(begin, path, tenant_id="acme", name="oferta") == first
    assert add_address(begin, Giving(), URL, tenant_id="acme", name="oferta") == first
    assert add_file(begin, path, tenant_id="acme", name="alta").id != first.id
    assert kept(database) == 2


def test_another_file_under_a_name_in_use_is_refused_and_the_first_stays(
    begin, tmp_path: Path, database: Engine
):
    first = add_file(begin, a_file(tmp_path), tenant_id="acme", name="oferta")
    other = a_file(tmp_path, "oferta.pdf", PDF + b"new")
    with pytest.raises(MediaRefused, match=r"already has another file.*under another name"):
        add_file(begin, other, tenant_id="acme", name="oferta")
    assert content_of(begin, first.id) == PDF
    assert kept(database) == 1


def test_nobody_is_asked_for_a_tenant_that_does_not_exist(begin, tmp_path: Path):
    fetcher = Giving()
    with pytest.raises(NotFound, match="no tenant 'nobody'; there are: acme"):
        add_address(begin, fetcher, URL, tenant_id="nobody")
    with pytest.raises(NotFound):
        add_file(begin, a_file(tmp_path), tenant_id="nobody")
    with pytest.raises(MediaRefused, match=r"U\+002F"):
        add_address(begin, fetcher, URL, tenant_id="acme", name="a/b")
    assert fetcher.asked == 0


def test_bytes_that_changed_behind_our_back_are_not_handed_over(
    begin, tmp_path: Path, database: Engine
):
    found = add_file(begin, a_file(tmp_path), tenant_id="acme")
    run_sql(database, "UPDATE media_files SET content = content || '\\x00'")
    with pytest.raises(MediaRefused, match="not what was checked"):
        content_of(begin, found.id)
    with pytest.raises(NotFound, match="no media 999"):
        content_of(begin, 999)


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("drawing.svg", b"<svg/>", "markup"),
        ("photo.jpg", PDF, "application/pdf"),
        ("setup.exe", b"MZ\x00", "Windows program"),
        ("large.jpg", JPEG.ljust(16_000_001, b"\x01"), "16.1 MB; 16.0 MB are allowed for image"),
        ("huge.pdf", 100_000_001, "more than the 100.0 MB that are allowed"),
        ("empty.pdf", b"", "empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refused_file_leaves_no_trace_and_calls_nobody(
    begin, tmp_path: Path, database: Engine, sandbox: RunningSandbox, name, content, why
):
    path = a_file(tmp_path, name, b"" if isinstance(content, int) else content)
    if isinstance(content, int):
        with path.open("r+b") as file:
            file.truncate(content)  # a hole: as large as it says, and quickly made
    with pytest.raises(MediaRefused, match=why):
        add_file(begin, path, tenant_id="acme")
    assert kept(database) == 0
    assert sandbox.journal() == []


def test_what_is_no_file_is_refused(begin, tmp_path: Path):
    with pytest.raises(MediaRefused, match="not a file"):
        add_file(begin, tmp_path, tenant_id="acme")
    with pytest.raises(MediaRefused, match="No such file"):
        add_file(begin, tmp_path / "missing.pdf", tenant_id="acme")


@pytest.mark.parametrize(
    ("host", "leads_to", "why"),
    [
        ("127.0.0.1", "", "loopback"),
        ("[::ffff:127.0.0.1]", "", "loopback"),
        ("files.example.com", "127.0.0.1", "leads to 127.0.0.1, which is loopback"),
        ("files.example.com", "::ffff:127.0.0.1", "leads to ::ffff:127.0.0.1, which is loopback"),
        ("0x7f.1", "", "programs read differently"),
        ("2130706433", "", "programs read differently"),
        ("localhost", "", "local network"),
    ],
)
def test_a_refused_address_is_never_called_and_nothing_is_kept(
    begin, database: Engine, sandbox: RunningSandbox, host: str, leads_to: str, why: str
):
    """The server that must not be reached is the sandbox, which stands for every provider."""
    fetcher = WebFetcher(
        seconds=time.monotonic, resolve=lambda _, __: [leads_to] if leads_to else [], plain=True
    )
    with WebServer(answering(PDF)) as server:
        for port in (server.port, sandbox.port):
            with pytest.raises(MediaRefused, match=why):
                add_address(begin, fetcher, f"http://{host}:{port}/a.pdf", tenant_id="acme")
        assert server.visitors() == 0
    assert kept(database) == 0
    assert sandbox.journal() == []


def test_a_redirect_inside_is_refused_and_not_followed(begin, database: Engine):
    with WebServer(answering(PDF)) as inside:
        to = f"http://127.0.0.1:{inside.port}/secret.pdf"
        with WebServer(answering(status="302 Found", Location=to)) as outside:
            fetcher = WebFetcher(
                seconds=time.monotonic,
                resolve=lambda _, __: ["127.0.0.1"],
                rule=lambda ip: None if str(ip) == "127.0.0.1" else refused_address(ip),
                plain=True,
            )
            url = f"http://files.example.com:{outside.port}/a.pdf"
            with pytest.raises(MediaRefused, match="redirects are not followed"):
                add_address(begin, fetcher, url, tenant_id="acme")
        assert inside.visitors() == 0
    assert kept(database) == 0


@pytest.mark.parametrize(
    ("declared", "content"), [("image/png", PDF), ("application/pdf", b"<html>"), (None, b"")]
)
def test_what_was_fetched_is_checked_like_a_file(begin, database: Engine, declared, content):
    with pytest.raises(MediaRefused):
        add_address(begin, Giving(content, declared), URL, tenant_id="acme")
    assert kept(database) == 0


# ── Using ─────────────────────────────────────────────────────────────────────────────────────


def test_a_template_brings_a_file_along_until_it_brings_another(
    begin, tmp_path: Path, database: Engine
):
    for name in ("a", "b"):
        add_file(begin, a_file(tmp_path, f"{name}.pdf"), tenant_id="acme", name=name)
        found = use_in_template(begin, tenant_id="acme", name=name, template="main 1")
        assert the_row(database, "SELECT media_id FROM templates")["media_id"] == found.id


def test_what_cannot_be_used_is_named_with_what_there_is(begin, tmp_path: Path):
    add_file(begin, a_file(tmp_path), tenant_id="acme")
    with pytest.raises(NotFound, match=r"no media 'b'; there are: oferta\.pdf"):
        use_in_template(begin, tenant_id="acme", name="b", template="main 1")
    with pytest.raises(NotFound, match="no template 'b'; there are: main 1"):
        use_in_template(begin, tenant_id="acme", name="oferta.pdf", template="b")


def test_a_text_that_is_too_long_for_a_caption_gets_no_file(
    begin, tmp_path: Path, database: Engine
):
    add_file(begin, a_file(tmp_path), tenant_id="acme")
    run_sql(database, "UPDATE templates SET content = :text", text="a" * 1025)
    with pytest.raises(MediaRefused, match="1025 characters, 1024 are allowed"):
        use_in_template(begin, tenant_id="acme", name="oferta.pdf", template="main 1")
    assert the_row(database, "SELECT media_id FROM templates")["media_id"] is None
    run_sql(database, "UPDATE templates SET content = :text", text="a" * 1024)
    use_in_template(begin, tenant_id="acme", name="oferta.pdf", template="main 1")


# ── The command ───────────────────────────────────────────────────────────────────────────────

Run = Callable[..., Result]


@pytest.fixture
def run(
    database: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Run]:
    """Run `cerniq media …` on this test's database."""
    with database.begin() as conn:
        a_world(conn)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERNIQ_DATABASE_URL", database_url)
    monkeypatch.setenv("CERNIQ_REDIS_URL", "redis://127.0.0.1:1/2")
    monkeypatch.setenv("CERNIQ_SECRET_KEY", "a key of the tests")
    context.settings.cache_clear()
    context.engine.cache_clear()
    yield lambda *words: CliRunner().invoke(command, list(words))
    context.engine().dispose()
    context.settings.cache_clear()
    context.engine.cache_clear()


def test_a_person_adds_lists_and_uses_a_file(run: Run, tmp_path: Path):
    assert "no media yet" in run("list").stdout
    path = a_file(tmp_path)
    added = run("add", str(path), "--tenant", "acme", "--name", "oferta [2026]")
    assert added.exit_code == 0, added.output
    assert "kept as oferta [2026]: document, 0.1 MB, application/pdf" in added.stdout
    assert run("use", "oferta [2026]", "--template", "main 1", "--tenant", "acme").exit_code == 0
    listed = run("list").stdout
    assert "oferta [2026]" in listed
    assert "main 1" in listed
    assert '"templates": [\n      "main 1"\n    ]' in run("list", "--json").stdout


def test_the_sandbox_fetches_nothing_from_outside(run: Run, database: Engine):
    for url in ("https://files.example.com/a.pdf", "HTTP://127.0.0.1/a.pdf"):
        refused = run("add", url, "--tenant", "acme")
        assert isinstance(refused.exception, MediaRefused)
        assert "sandbox mode reaches no outside host" in str(refused.exception)
    assert kept(database) == 0


def test_in_live_mode_an_address_is_read_by_the_rules(
    run: Run, database: Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CERNIQ_MODE", "live")
    monkeypatch.setenv("CERNIQ_TIMELINESAI_API_KEY", "a token of the tests")
    with WebServer(answering(PDF)) as server:
        for url, why in (
            (f"http://127.0.0.1:{server.port}/a.pdf", "only https"),
            ("https://127.0.0.1/a.pdf", "127.0.0.1 is loopback"),
            ("https://[::ffff:127.0.0.1]/a.pdf", "is loopback"),
        ):
            refused = run("add", url, "--tenant", "acme")
            assert isinstance(refused.exception, MediaRefused)
            assert why in str(refused.exception)
        assert server.visitors() == 0
    assert kept(database) == 0
