"""The providers' side: a body of each, signed as the provider does it, with its own library."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode

import httpx
from twilio.request_validator import RequestValidator

from cerniq_pipeline.domain.events import WebhookRequest
from cerniq_pipeline_tests.providers import test_webhooks_dropcowboy as dropcowboy
from cerniq_pipeline_tests.providers import test_webhooks_instantly as instantly
from cerniq_pipeline_tests.providers import test_webhooks_meta as meta
from cerniq_pipeline_tests.providers import test_webhooks_resend as resend
from cerniq_pipeline_tests.providers import test_webhooks_timelinesai as timelinesai
from cerniq_pipeline_tests.providers import test_webhooks_vonage as vonage
from cerniq_pipeline_tests.web.running import PUBLIC_URL

Signed = Callable[[bytes, str, datetime], WebhookRequest]


@dataclass(frozen=True)
class Post:
    """A request, ready to be sent."""

    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def to(self, client: httpx.Client) -> httpx.Response:
        return client.post(self.path, content=self.body, headers=self.headers)


@dataclass(frozen=True)
class Sender:
    """One provider: its address, its secrets, and how it signs."""

    provider: str
    path: str
    setting: str
    secret: str
    next_secret: str
    sign: Callable[[bytes, str], Post]
    body: bytes

    def post(self, body: bytes | None = None, *, secret: str | None = None) -> Post:
        return self.sign(self.body if body is None else body, secret or self.secret)


def _signed(path: str, sign: Signed) -> Callable[[bytes, str], Post]:
    def signed(body: bytes, secret: str) -> Post:
        request = sign(body, secret, datetime.now(UTC))
        return Post(path, request.body, dict(request.headers))

    return signed


def _timelinesai(body: bytes, token: str) -> Post:
    return Post(f"/webhooks/timelinesai?{urlencode({'token': token})}", body)


def _twilio(body: bytes, token: str) -> Post:
    path = "/webhooks/twilio?c=7"
    fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
    signature = RequestValidator(token).compute_signature(PUBLIC_URL + path, fields)
    form = "application/x-www-form-urlencoded"
    return Post(path, body, {"x-twilio-signature": signature, "content-type": form})


SMS = urlencode(
    {"MessageSid": "SM1", "AccountSid": "AC1", "From": "+40722123456", "To": "+40312345678",
     "Body": "Bună ziua, mai multe detalii?", "NumMedia": "0"}
).encode()  # fmt: skip

TIMELINESAI = Sender(
    "timelinesai",
    "/webhooks/timelinesai",
    "timelinesai_webhook_token",
    "a-token-of-the-tests-1",
    "a-token-of-the-tests-2",
    _timelinesai,
    timelinesai.TestTimelinesAIWithAToken().any_body(),
)
META = Sender(
    "meta",
    "/webhooks/whatsapp",
    "meta_app_secret",
    meta.SECRET,
    meta.NEXT_SECRET,
    _signed("/webhooks/whatsapp", meta.TestMeta().signed),
    meta.TestMeta().any_body(),
)
RESEND = Sender(
    "resend",
    "/webhooks/resend",
    "resend_webhook_secret",
    resend.SECRET,
    resend.NEXT_SECRET,
    _signed("/webhooks/resend", resend.TestResend().signed),
    resend.TestResend().any_body(),
)
SENDERS = (
    TIMELINESAI,
    META,
    RESEND,
    Sender(
        "instantly",
        "/webhooks/instantly",
        "instantly_webhook_token",
        instantly.TOKEN,
        instantly.NEXT_TOKEN,
        _signed("/webhooks/instantly", instantly.TestInstantly().signed),
        instantly.TestInstantly().any_body(),
    ),
    Sender(
        "twilio",
        "/webhooks/twilio",
        "twilio_auth_token",
        "a-twilio-token",
        "another-twilio-token",
        _twilio,
        SMS,
    ),
    Sender(
        "vonage",
        "/webhooks/vonage",
        "vonage_signature_secret",
        vonage.SECRET,
        vonage.NEXT_SECRET,
        _signed("/webhooks/vonage", vonage.TestVonageWithAToken().signed),
        vonage.TestVonageWithAToken().any_body(),
    ),
    Sender(
        "dropcowboy",
        "/webhooks/dropcowboy",
        "dropcowboy_webhook_secret",
        dropcowboy.SECRET,
        dropcowboy.NEXT_SECRET,
        _signed("/webhooks/dropcowboy", dropcowboy.TestDropCowboy().signed),
        dropcowboy.TestDropCowboy().any_body(),
    ),
)
VERIFY_TOKEN = "a-word-for-the-handshake"
ALL_SECRETS = {one.setting: one.secret for one in SENDERS} | {"meta_verify_token": VERIFY_TOKEN}


def a_message(uid: str, text: str = "Bună ziua!") -> bytes:
    """A TimelinesAI event about a message that came in."""
    said = json.loads(TIMELINESAI.body)
    said["message"] |= {"message_uid": uid, "text": text}
    return json.dumps(said, ensure_ascii=False).encode()
