"""What a process may be told: sandbox mode cannot reach out, live mode needs its keys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from cerniq_pipeline.settings import Settings, is_loopback

NEEDED = {
    "CERNIQ_DATABASE_URL": "postgresql://cerniq@localhost/cerniq",
    "CERNIQ_REDIS_URL": "redis://localhost/2",
    "CERNIQ_SECRET_KEY": "the key of the suppression hashes",
}
TOKEN = "a-token-nobody-may-see"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this machine and no `.env` file reaches a test."""
    for name in os.environ:
        if name.startswith("CERNIQ_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def told(monkeypatch: pytest.MonkeyPatch, **changes: str) -> Settings:
    """The settings of a process with these variables beside the needed ones."""
    for name, value in (
        NEEDED | {f"CERNIQ_{name.upper()}": v for name, v in changes.items()}
    ).items():
        monkeypatch.setenv(name, value)
    return Settings()  # pyright: ignore[reportCallIssue]


# ── Which mode may reach whom ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8900",
        "http://127.0.0.1",
        "http://127.8.9.10:1/x",
        "http://localhost:8900/integrations/api",
        "http://LocalHost:8900",
        "http://[::1]:8900",
    ],
)
def test_these_addresses_can_only_mean_this_machine(url: str):
    assert is_loopback(url)


TRICKY = [
    "",
    "https://app.timelines.ai/integrations/api",
    "http://0.0.0.0:8900",  # every interface, and elsewhere not this machine
    "http://10.0.0.1",
    "http://169.254.169.254/latest/meta-data",
    "http://127.0.0.1.evil.example",
    "http://127.0.0.1.nip.io",
    "http://localhost.evil.example",
    "http://evil.example/127.0.0.1",
    "http://evil.example?localhost",
    "http://evil.example#@127.0.0.1",
    "http://127.0.0.1@evil.example",
    "http://127.0.0.1:8900@evil.example",
    "http://localhost:80@evil.example:80",
    "http://evil.example\\@127.0.0.1",  # clients disagree on whom this reaches
    "http://user:word@127.0.0.1",
    "http://2130706433",  # 127.0.0.1 to some resolvers, a name to others
    "http://0x7f.1",
    "http://0177.0.0.1",
    "http://127.1",
    "http://127.0.0.1\u3002evil.example",
    "http://127.0.0.1%00.evil.example",
    "http://[::ffff:8.8.8.8]",
    "http://[::]",
    "http://[::1",
    "http://ⓛocalhost",
    "127.0.0.1:8900",
    "//127.0.0.1",
    "file:///etc/hosts",
    "ftp://127.0.0.1",
    "http://127.0.0.1\n.evil.example",
    "http://127.0.0.1 .evil.example",
]


@pytest.mark.parametrize("url", TRICKY)
def test_these_addresses_may_mean_another_machine(url: str):
    assert not is_loopback(url)


@pytest.mark.parametrize("url", [url for url in TRICKY if url])
@pytest.mark.parametrize(
    "name", ["sandbox_url", "timelinesai_base_url", "meta_base_url", "slack_webhook_url"]
)
def test_sandbox_mode_refuses_every_address_outside(
    monkeypatch: pytest.MonkeyPatch, name: str, url: str
):
    with pytest.raises(ValidationError, match=f"{name} must be a loopback address"):
        told(monkeypatch, **{name: url})


def test_an_empty_sandbox_address_is_refused_too(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValidationError, match="sandbox_url must be a loopback address"):
        told(monkeypatch, sandbox_url="")


@pytest.mark.parametrize(
    ("changes", "url"),
    [
        ({}, "http://127.0.0.1:8900/integrations/api"),
        ({"timelinesai_dialect": "v1"}, "http://127.0.0.1:8900/v1"),
        ({"sandbox_url": "http://localhost:1234/"}, "http://localhost:1234/integrations/api"),
        ({"timelinesai_base_url": "http://[::1]:7/api"}, "http://[::1]:7/api"),
        (
            {"mode": "live", "timelinesai_api_key": TOKEN},
            "https://app.timelines.ai/integrations/api",
        ),
        (
            {"mode": "live", "timelinesai_api_key": TOKEN, "timelinesai_dialect": "v1"},
            "https://api.timelines.ai/v1",
        ),
        (
            {
                "mode": "live",
                "timelinesai_api_key": TOKEN,
                "timelinesai_base_url": "https://x.test",
            },
            "https://x.test",
        ),
    ],
)
def test_sends_go_to_the_address_of_mode_and_dialect(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], url: str
):
    assert told(monkeypatch, **changes).timelinesai_url == url


@pytest.mark.parametrize("key", [None, "", "   "])
def test_live_mode_refuses_to_start_without_a_key(monkeypatch: pytest.MonkeyPatch, key: str | None):
    keys = {} if key is None else {"timelinesai_api_key": key}
    with pytest.raises(ValidationError, match="CERNIQ_TIMELINESAI_API_KEY"):
        told(monkeypatch, mode="live", **keys)


@pytest.mark.parametrize("speed", ["20", "1.5", "0.5"])
def test_live_mode_refuses_to_change_the_pace(monkeypatch: pytest.MonkeyPatch, speed: str):
    with pytest.raises(ValidationError, match="CERNIQ_PACING_SPEED"):
        told(monkeypatch, mode="live", timelinesai_api_key=TOKEN, pacing_speed=speed)


@pytest.mark.parametrize(
    ("changes", "speed", "settle_minutes"),
    [
        ({}, 20.0, 1),
        ({"pacing_speed": "3", "settle_minutes": "7"}, 3.0, 7),
        ({"mode": "live", "timelinesai_api_key": TOKEN}, 1.0, 15),
        ({"mode": "live", "timelinesai_api_key": TOKEN, "pacing_speed": "1"}, 1.0, 15),
    ],
)
def test_only_the_sandbox_runs_faster_than_life(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], speed: float, settle_minutes: int
):
    settings = told(monkeypatch, **changes)
    assert (settings.speed, settings.settle_time_minutes) == (speed, settle_minutes)


@pytest.mark.parametrize("speed", ["0", "-1", "fast"])
def test_a_pace_is_a_positive_number(monkeypatch: pytest.MonkeyPatch, speed: str):
    with pytest.raises(ValidationError, match="pacing_speed"):
        told(monkeypatch, pacing_speed=speed)


# ── The database, and secrets ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql://u:p@h:5/d?x=1", "postgresql+psycopg://u:p@h:5/d?x=1"),
        ("postgres://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql+psycopg://u@/d?host=/tmp/x", "postgresql+psycopg://u@/d?host=/tmp/x"),
    ],
)
def test_our_own_database_is_always_reached_with_psycopg_3(
    monkeypatch: pytest.MonkeyPatch, given: str, used: str
):
    assert told(monkeypatch, database_url=given).database_url == used


@pytest.mark.parametrize(
    "given", ["", "mysql://u@h/d", "postgresql+psycopg2://u@h/d", "sqlite:///x", "h/d"]
)
def test_another_kind_of_database_is_refused(monkeypatch: pytest.MonkeyPatch, given: str):
    with pytest.raises(ValidationError, match="must be a postgresql:// address"):
        told(monkeypatch, database_url=given)


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_what_has_no_default_must_be_told(monkeypatch: pytest.MonkeyPatch, name: str):
    for other in NEEDED.keys() - {name}:
        monkeypatch.setenv(other, NEEDED[other])
    with pytest.raises(ValidationError, match=name.removeprefix("CERNIQ_").lower()):
        Settings()  # pyright: ignore[reportCallIssue]


def test_an_empty_key_of_the_suppression_hashes_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValidationError, match="secret_key"):
        told(monkeypatch, secret_key="")


ADMITTING = (
    "dropcowboy_webhook_secret",
    "instantly_webhook_token",
    "meta_app_secret",
    "meta_verify_token",
    "timelinesai_webhook_secret",
    "timelinesai_webhook_token",
    "twilio_auth_token",
    "vonage_signature_secret",
)
LIVE = {"mode": "live", "timelinesai_api_key": TOKEN}


@pytest.mark.parametrize("name", ADMITTING)
def test_live_mode_refuses_a_secret_that_can_be_guessed_and_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str
):
    strong = "a1b2c3d4e5f60718293a4b5c6d7e8f90"  # as long as what vendors issue
    assert told(monkeypatch, **LIVE, **{name: strong}).weak_secrets == ()
    for weak in ("a1b2c3d4e5f607", "ababababababababababababababab", f"{strong},a1b2"):
        assert told(monkeypatch, mode="sandbox", **{name: weak}).weak_secrets == (name,)
        with pytest.raises(ValidationError, match=f"CERNIQ_{name.upper()} can be guessed") as said:
            told(monkeypatch, **LIVE, **{name: weak})
        assert weak not in str(said.value)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_ ", "whsec_!!!", "whsec_,whsec_AAAA", "===="])
def test_a_secret_of_resend_with_no_key_in_it_is_refused_in_every_mode(
    monkeypatch: pytest.MonkeyPatch, secret: str
):
    with pytest.raises(ValidationError, match="resend_webhook_secret"):
        told(monkeypatch, resend_webhook_secret=secret)


def test_of_a_secret_in_base64_the_key_within_counts(monkeypatch: pytest.MonkeyPatch):
    short, long = "whsec_MTIzNDU2Nzg5MDEyMw==", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert told(monkeypatch, resend_webhook_secret=short).weak_secrets == ("resend_webhook_secret",)
    with pytest.raises(ValidationError, match="CERNIQ_RESEND_WEBHOOK_SECRET can be guessed"):
        told(monkeypatch, **LIVE, resend_webhook_secret=short)
    assert told(monkeypatch, **LIVE, resend_webhook_secret=long).weak_secrets == ()


def test_a_key_by_which_stops_are_known_is_named_and_never_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    assert told(monkeypatch, **LIVE, secret_key="a short key").weak_secrets == ("secret_key",)


def test_secrets_do_not_print(monkeypatch: pytest.MonkeyPatch):
    settings = told(monkeypatch, mode="live", timelinesai_api_key=TOKEN)
    for shown in (repr(settings), str(settings), str(settings.model_dump())):
        assert TOKEN not in shown
        assert NEEDED["CERNIQ_SECRET_KEY"] not in shown
    assert settings.timelinesai_api_key is not None
    assert settings.timelinesai_api_key.get_secret_value() == TOKEN


def test_an_error_about_settings_does_not_show_a_secret(monkeypatch: pytest.MonkeyPatch):
    database = "postgresql://cerniq:a-database-word@h/d"
    with pytest.raises(ValidationError) as refused:
        told(
            monkeypatch,
            mode="live",
            timelinesai_api_key=TOKEN,
            pacing_speed="20",
            database_url=database,
        )
    said = str(refused.value)
    assert "CERNIQ_PACING_SPEED" in said
    assert TOKEN not in said
    assert NEEDED["CERNIQ_SECRET_KEY"] not in said
    assert "a-database-word" not in said
