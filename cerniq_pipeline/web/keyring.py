"""Whom to believe right now: the secrets of the webhooks, read again when `.env` changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from cerniq_pipeline.domain.events import WebhookReader
from cerniq_pipeline.errors import SetupError
from cerniq_pipeline.logs import event
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline.readers import open_readers
from cerniq_pipeline.settings import Settings, each, problems

SECRETS = {
    "timelinesai": "timelinesai_webhook_token",
    "meta": "meta_app_secret",
    "instantly": "instantly_webhook_token",
    "resend": "resend_webhook_secret",
    "twilio": "twilio_auth_token",
    "vonage": "vonage_signature_secret",
    "dropcowboy": "dropcowboy_webhook_secret",
}
"""The setting without which a provider's address does not exist."""


@dataclass(frozen=True)
class Keys:
    """The secrets of one moment."""

    readers: Mapping[str, WebhookReader]
    """By provider; only those whose webhooks can be verified."""
    address_tokens: TimelinesAIWebhooks
    """Knows the tokens in our addresses and nothing else: a wrong one must not find a door."""
    handshake_words: tuple[str, ...]
    public_url: str


class Keyring:
    """The keys of this moment; `watch` keeps them fresh."""

    def __init__(
        self, told: Settings, *, load: Callable[[], Settings], env_file: Path, look_seconds: float
    ) -> None:
        self.keys = _keys(told)
        self._load = load
        self._env_file = env_file
        self._look_seconds = look_seconds

    async def watch(self) -> None:
        """Read the secrets again whenever `.env` has changed and rests; runs until cancelled.

        What stands in the process's environment wins over the file, and cannot change.
        """
        known = seen = self._state()
        while True:
            await asyncio.sleep(self._look_seconds)
            before, seen = seen, self._state()
            if seen != known and seen == before:  # not while somebody is still writing it
                known = seen
                self._read_again()

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._env_file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read_again(self) -> None:
        try:
            self.keys = _keys(self._load())
        except (ValidationError, SetupError, OSError, ValueError) as error:
            # Whoever is wrong in one line must not shut all providers out.
            why = problems(error) if isinstance(error, ValidationError) else []
            told = {"error": type(error).__name__, "why": why}
            event("web", "secrets_unreadable", level="error", **told)
        else:
            event("web", "secrets_read_again", providers=sorted(self.keys.readers))


def _keys(told: Settings) -> Keys:
    readers = open_readers(told)
    return Keys(
        readers={name: readers[name] for name, key in SECRETS.items() if each(getattr(told, key))},
        address_tokens=TimelinesAIWebhooks(each(told.timelinesai_webhook_token)),
        handshake_words=each(told.meta_verify_token),
        public_url=told.public_url.rstrip("/"),
    )
