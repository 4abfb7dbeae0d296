"""Every environment variable, typed, on one page.

No secret has a default; every number carries its unit in its type or its name. `docs/settings.md`
describes each one, and a test compares the two.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from cerniq_pipeline.domain.holds import Installation
from cerniq_pipeline.domain.retention import Kind
from cerniq_pipeline.providers import signing

LIVE_TIMELINESAI = {
    "public": "https://app.timelines.ai/integrations/api",
    "v1": "https://api.timelines.ai/v1",
}
SANDBOX_TIMELINESAI = {"public": "/integrations/api", "v1": "/v1"}
LIVE_META = "https://graph.facebook.com/v23.0"
SANDBOX_META = "/v23.0"
SANDBOX_SLACK = "/slack/services/sandbox"
ADMITTING = (
    "secret_key",
    "timelinesai_webhook_token",
    "timelinesai_webhook_secret",
    "meta_app_secret",
    "meta_verify_token",
    "instantly_webhook_token",
    "resend_webhook_secret",
    "twilio_auth_token",
    "vonage_signature_secret",
    "dropcowboy_webhook_secret",
)
"""Whoever guesses one of these is believed: as a provider, or as somebody who unsubscribes."""


class Settings(BaseSettings):
    """What this process was told; read once, at the edge."""

    model_config = SettingsConfigDict(
        env_prefix="CERNIQ_", env_file=".env", extra="ignore", hide_input_in_errors=True
    )

    mode: Literal["sandbox", "live"] = Field(
        "sandbox", description="`sandbox` keeps every provider on this machine; `live` needs keys."
    )
    data_dir: Path = Field(
        Path(".cerniq"), description="Where embedded servers, logs and the sandbox journal live."
    )
    database_url: str = Field(
        description="Postgres for leads and the outbox; written by `cerniq services up`."
    )
    dagster_database_url: str = Field(
        "", description="Postgres for Dagster's own storage, read by `dagster.yaml` (psycopg2)."
    )
    redis_url: str = Field(description="Redis for the quota gate; use database index 2.")
    secret_key: SecretStr = Field(
        min_length=1,
        description="Key of the suppression hashes; written once by `cerniq services up`, keep it.",
    )
    sandbox_url: str = Field(
        "http://127.0.0.1:8900", description="Where the sandbox listens; loopback only."
    )
    timelinesai_dialect: Literal["public", "v1"] = Field(
        "public", description="Which TimelinesAI addresses to speak."
    )
    timelinesai_base_url: str = Field(
        "", description="Overrides the address of TimelinesAI; in sandbox mode loopback only."
    )
    timelinesai_api_key: SecretStr | None = Field(
        None, description="TimelinesAI token; required in live mode."
    )
    timelinesai_sends_per_minute: PositiveInt = Field(
        50, description="TimelinesAI's limit of sends per account and minute."
    )
    timelinesai_webhook_token: SecretStr | None = Field(
        None,
        description="The token at the end of the address that TimelinesAI calls; several, divided "
        "by commas, while one is being replaced. Without it the address does not exist.",
    )
    timelinesai_webhook_secret: SecretStr | None = Field(
        None,
        description="Also asks for the HMAC of the body in `X-Signature`; TimelinesAI signs "
        "nothing by itself, a relay may. Several as above.",
    )
    meta_base_url: str = Field(
        "", description="Overrides the address of Meta's Cloud API; in sandbox mode loopback only."
    )
    meta_access_token: SecretStr | None = Field(
        None, description="System-user token of Meta; without it, phones at Meta rest in live mode."
    )
    meta_app_secret: SecretStr | None = Field(
        None, description="The secret with which Meta signs its webhooks; several as above."
    )
    meta_verify_token: SecretStr | None = Field(
        None, description="The word that Meta says when it first calls `/webhooks/whatsapp`."
    )
    instantly_webhook_token: SecretStr | None = Field(
        None,
        description="The token that Instantly sends along in `X-Outreach-Token`; several as above.",
    )
    resend_webhook_secret: SecretStr | None = Field(
        None, description="The secret (`whsec_…`) with which Resend signs its webhooks."
    )
    twilio_auth_token: SecretStr | None = Field(
        None, description="The token with which Twilio signs its webhooks."
    )
    vonage_signature_secret: SecretStr | None = Field(
        None, description="The secret with which Vonage signs its webhooks."
    )
    dropcowboy_webhook_secret: SecretStr | None = Field(
        None, description="The secret with which Drop Cowboy signs its webhooks."
    )
    public_url: str = Field(
        "http://127.0.0.1:8000",
        description="Where the world reaches the web service: what providers were told to call, "
        "and where links in messages lead.",
    )
    slack_webhook_url: SecretStr | None = Field(
        None,
        description="Where alerts are told: a Slack incoming webhook; in sandbox mode loopback "
        "only. Sandbox: told to the sandbox. Live: told to nobody.",
    )
    pacing_speed: PositiveFloat | None = Field(
        None,
        description="How much faster than life the gaps between sends run: sandbox 20, "
        "live always 1.",
    )
    shift_minutes: PositiveInt = Field(
        10, le=12, description="Longest time one shift works before it hands over to the next."
    )
    settle_minutes: PositiveInt | None = Field(
        None,
        description="How long an unconfirmed send waits before 'not in the history' counts: "
        "live 15, sandbox 1.",
    )

    keep_webhook_bodies_days: PositiveInt = Field(
        90, ge=7, description="What providers told us: its words and people, once it was handled."
    )
    keep_webhook_keys_days: PositiveInt = Field(
        400,
        ge=400,
        description="That they told us: without its key a replay would be news.",
    )
    keep_raw_calls_days: PositiveInt = Field(
        30, description="What was said to a provider in each call, and what it answered."
    )
    keep_attempts_days: PositiveInt = Field(
        365, ge=7, description="Attempts to send, of messages that came to their end."
    )
    keep_changes_days: PositiveInt = Field(365, ge=30, description="The audit of their moves.")
    keep_letters_days: PositiveInt = Field(365, ge=7, description="Dead letters, once settled.")
    keep_alerts_days: PositiveInt = Field(180, ge=7, description="Alerts, once closed.")
    keep_heartbeats_days: PositiveInt = Field(
        30, description="Messages between our own phones; the last of each two phones stays."
    )
    keep_early_deliveries_days: PositiveInt = Field(
        30, ge=7, description="Words about messages that the log does not have."
    )

    @field_validator("database_url")
    @classmethod
    def _ours_is_psycopg3(cls, url: str) -> str:
        # A bare scheme means psycopg2 or psycopg 3 depending on SQLAlchemy's version: say which.
        scheme, _, rest = url.partition("://")
        if scheme not in {"postgresql", "postgres", "postgresql+psycopg"}:
            raise ValueError("must be a postgresql:// address")
        return f"postgresql+psycopg://{rest}"

    @field_validator("resend_webhook_secret")
    @classmethod
    def _has_keys_within(cls, secrets: SecretStr | None) -> SecretStr | None:
        for one in each(secrets):
            signing.svix_key(one)
        return secrets

    @model_validator(mode="after")
    def _sandbox_stays_here_and_live_has_keys(self) -> Self:
        if self.mode == "sandbox":
            if not is_loopback(self.sandbox_url):
                raise ValueError("sandbox_url must be a loopback address in sandbox mode")
            slack = self.slack_webhook_url
            addresses = {
                "timelinesai_base_url": self.timelinesai_base_url,
                "meta_base_url": self.meta_base_url,
                "slack_webhook_url": slack.get_secret_value() if slack else "",
            }
            for name, address in addresses.items():
                if address and not is_loopback(address):
                    raise ValueError(f"{name} must be a loopback address in sandbox mode")
        else:
            key = self.timelinesai_api_key
            if key is None or not key.get_secret_value().strip():
                raise ValueError("live mode needs CERNIQ_TIMELINESAI_API_KEY")
            if self.pacing_speed not in (None, 1):
                raise ValueError("live mode never speeds up pacing: unset CERNIQ_PACING_SPEED")
            for name in self.weak_secrets:
                # The key is looked at when it is first taken: another one would know no "stop".
                if name != "secret_key":
                    raise ValueError(f"CERNIQ_{name.upper()} can be guessed: {signing.STRONG}")
        return self

    @property
    def secret(self) -> bytes:
        """The key that addresses are hashed with."""
        return self.secret_key.get_secret_value().encode()

    @property
    def kept(self) -> Mapping[Kind, timedelta]:
        """How long each kind is kept; what came in a call is kept as long wherever it stands."""
        days: dict[Kind, int] = {
            "webhook_bodies": self.keep_webhook_bodies_days,
            "webhook_keys": self.keep_webhook_keys_days,
            "raw_calls": self.keep_raw_calls_days,
            "logged_raw_calls": self.keep_raw_calls_days,
            "attempts": self.keep_attempts_days,
            "changes": self.keep_changes_days,
            "letters": self.keep_letters_days,
            "alerts": self.keep_alerts_days,
            "heartbeats": self.keep_heartbeats_days,
            "early_deliveries": self.keep_early_deliveries_days,
        }
        return {kind: timedelta(days=count) for kind, count in days.items()}

    @property
    def weak_secrets(self) -> tuple[str, ...]:
        """The names of those settings by whose value somebody could be let in who guesses it."""
        return tuple(
            name for name in ADMITTING if any(map(signing.is_weak, self._keys_within(name)))
        )

    def _keys_within(self, name: str) -> list[bytes]:
        written: SecretStr | None = getattr(self, name)
        if name == "secret_key":  # one, whatever stands in it
            return [self.secret_key.get_secret_value().encode()]
        if name == "resend_webhook_secret":
            return list(map(signing.svix_key, each(written)))
        return [one.encode() for one in each(written)]

    @property
    def timelinesai_url(self) -> str:
        """The address that sends go to in this mode and dialect."""
        if self.timelinesai_base_url:
            return self.timelinesai_base_url
        if self.mode == "live":
            return LIVE_TIMELINESAI[self.timelinesai_dialect]
        return self.sandbox_url.rstrip("/") + SANDBOX_TIMELINESAI[self.timelinesai_dialect]

    @property
    def timelinesai_token(self) -> str:
        """The token for TimelinesAI in this mode; a secret. The sandbox takes any."""
        key = self.timelinesai_api_key
        return key.get_secret_value() if key else "sandbox"

    @property
    def meta_token(self) -> str | None:
        """The token for Meta in this mode; a secret. None: nothing is sent through Meta."""
        if self.meta_access_token is not None:
            return self.meta_access_token.get_secret_value()
        return None if self.mode == "live" else "sandbox"

    @property
    def meta_url(self) -> str:
        """The address of Meta in this mode."""
        if self.meta_base_url:
            return self.meta_base_url
        return LIVE_META if self.mode == "live" else self.sandbox_url.rstrip("/") + SANDBOX_META

    @property
    def slack_url(self) -> str | None:
        """Where alerts are told in this mode; a secret."""
        if self.slack_webhook_url is not None:
            return self.slack_webhook_url.get_secret_value()
        return None if self.mode == "live" else self.sandbox_url.rstrip("/") + SANDBOX_SLACK

    @property
    def installation(self) -> Installation:
        """What may be sent at all: for whom, and through which providers."""
        meta = {"meta"} if self.meta_token else set()
        return Installation(self.mode == "live", frozenset({"timelinesai"} | meta))

    @property
    def speed(self) -> float:
        """The factor by which pacing runs faster than life."""
        return self.pacing_speed or (20.0 if self.mode == "sandbox" else 1.0)

    @property
    def settle_time_minutes(self) -> int:
        """How long an unconfirmed send waits before its absence counts."""
        return self.settle_minutes or (1 if self.mode == "sandbox" else 15)


def problems(error: ValidationError) -> list[str]:
    """What is wrong with the settings, one line each; no value of any is quoted."""
    return [
        f"CERNIQ_{'_'.join(map(str, problem['loc'])).upper()}: {problem['msg']}"
        if problem["loc"]
        else problem["msg"]
        for problem in error.errors()
    ]


def each(secrets: SecretStr | None) -> tuple[str, ...]:
    """The secrets that stand in one setting, divided by commas."""
    written = secrets.get_secret_value() if secrets else ""
    return tuple(one.strip() for one in written.split(",") if one.strip())


def is_loopback(url: str) -> bool:
    """Whether this address can only mean this machine; names other than localhost do not count.

    A user part or a backslash has no use here, and clients disagree on which host it leads to.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in {"http", "https"} or {"@", "\\"} & set(parts.netloc):
            return False
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
