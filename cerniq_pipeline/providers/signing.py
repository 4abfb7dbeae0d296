"""Whom to believe: what the readers of signed webhooks share."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from cerniq_pipeline.errors import WebhookRefused
from cerniq_pipeline.providers.bodies import unix_time

PATIENCE = timedelta(minutes=5)


SHA256_HEX = re.compile("sha256=[0-9a-f]{64}")

LEAST_BYTES, LEAST_DIFFERENT = 16, 8
"""Of a key that nobody guesses. What vendors issue is longer: 32 hex digits, or 24 bytes."""

STRONG = (
    f"in live mode a secret has at least {LEAST_BYTES} characters, {LEAST_DIFFERENT} of them "
    "different (in base64, so many bytes); `openssl rand -hex 32` makes one"
)


def is_weak(key: bytes) -> bool:
    """Whether somebody could guess this key, and then speak in the name of whoever has it."""
    return len(key) < LEAST_BYTES or len(set(key)) < LEAST_DIFFERENT


def svix_key(secret: str) -> bytes:
    """The key within a secret of Svix's form (`whsec_…`); raises ValueError when there is none."""
    try:
        key = base64.b64decode(secret.strip().removeprefix("whsec_").strip(), validate=True)
    except binascii.Error:
        raise ValueError("it is no base64; copy it again") from None
    if not key:  # with an empty key everybody could sign
        raise ValueError("there is no key in it; copy it again")
    return key


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


def require_form(provider: str, given: str, form: re.Pattern[str], header: str) -> None:
    """Pass by when this could be a signature at all; raises WebhookRefused otherwise."""
    if not form.fullmatch(given):
        raise refused(provider, f"{header} has not the form of a signature")


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
