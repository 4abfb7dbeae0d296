"""The link that ends it all: a signed token for one lead, and the mail headers that name it.

A token carries a tenant and a lead and nothing about the person. Nobody without the key can make
one, and it never expires: who finds an old message may still unsubscribe with it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from uuid import UUID

PURPOSE = b"cerniq unsubscribe 1"
"""Makes this key another one than that of the suppression hashes, out of the same secret."""

LONGEST = 400
"""No token of ours is longer, so nothing longer is looked at."""

_SIGNED = 20
_LEAD = 16


@dataclass(frozen=True)
class Subscription:
    """Who hears from whom."""

    tenant_id: str
    lead_id: UUID


def token_of(secret: bytes, subscription: Subscription) -> str:
    """The token of one lead: the same every time, and safe in an address."""
    said = subscription.lead_id.bytes + subscription.tenant_id.encode()
    key = hmac.digest(secret, PURPOSE, hashlib.sha256)
    signature = hmac.digest(key, said, hashlib.sha256)[:_SIGNED]
    return base64.urlsafe_b64encode(signature + said).rstrip(b"=").decode()


def read_token(secret: bytes, token: str) -> Subscription | None:
    """Whose token this is; None for one that we did not make."""
    if len(token) > LONGEST:
        return None
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        said = base64.b64decode(padded, altchars=b"-_", validate=True)[_SIGNED:]
        claimed = Subscription(said[_LEAD:].decode(), UUID(bytes=said[:_LEAD]))
    except (binascii.Error, ValueError):
        return None
    # The whole token and not only its signature: each lead has one, in one spelling.
    return claimed if hmac.compare_digest(token_of(secret, claimed), token) else None


def unsubscribe_address(public_url: str, secret: bytes, tenant_id: str, lead_id: UUID) -> str:
    """Where this lead unsubscribes, for a text or a header."""
    token = token_of(secret, Subscription(tenant_id, lead_id))
    return f"{public_url.rstrip('/')}/u/{token}"


def list_unsubscribe_headers(
    public_url: str, secret: bytes, tenant_id: str, lead_id: UUID
) -> dict[str, str]:
    """The headers by which a mail program unsubscribes with one click (RFC 2369 and 8058).

    Both must be covered by the DKIM signature of the mail, and the address must be https.
    """
    address = unsubscribe_address(public_url, secret, tenant_id, lead_id)
    return {
        "List-Unsubscribe": f"<{address}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }
