"""Whom to believe: what the readers of signed webhooks share."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from datetime import datetime, timedelta

from cerniq_pipeline.errors import WebhookRefused
from cerniq_pipeline.providers.bodies import unix_time

PATIENCE = timedelta(minutes=5)


def usable(secrets: Iterable[str]) -> tuple[str, ...]:
    """The secrets that can prove something: an empty one would let everybody in."""
    return tuple(secret for secret in secrets if secret.strip())


def matches_any(given: str, expected: Iterable[str]) -> bool:
    """Whether it is one of these; all are compared, so the time taken does not tell which."""
    seen = _bytes(given)
    verdicts = [hmac.compare_digest(seen, _bytes(one)) for one in expected]
    return any(verdicts)


def hmac_hex(secret: str, content: bytes, algorithm: str = "sha256") -> str:
    """The HMAC of some content under a secret, in lower-case hex."""
    return hmac.new(_bytes(secret), content, algorithm).hexdigest()


def refused(provider: str, why: str) -> WebhookRefused:
    """The error for a request that nobody should believe; it quotes nothing of the request."""
    return WebhookRefused(f"a request in the name of {provider} was refused: {why}")


def require_fresh(
    provider: str,
    written: object,
    *,
    now: datetime,
    past: timedelta = PATIENCE,
    ahead: timedelta = PATIENCE,
) -> None:
    """Pass by when these Unix seconds are near enough to now; raises WebhookRefused otherwise."""
    at = unix_time(written)
    if at is None:
        raise refused(provider, "it does not say when it was signed")
    if not -ahead <= now - at <= past:
        raise refused(provider, "it was signed too long ago, or a clock is wrong")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
