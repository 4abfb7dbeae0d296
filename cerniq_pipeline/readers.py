"""A reader for every provider whose webhooks this installation can verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cerniq_pipeline.providers.dropcowboy.webhooks import DropCowboyWebhooks
from cerniq_pipeline.providers.instantly.webhooks import InstantlyWebhooks
from cerniq_pipeline.providers.meta.webhooks import MetaWebhooks
from cerniq_pipeline.providers.resend.webhooks import ResendWebhooks
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline.providers.twilio.webhooks import TwilioWebhooks
from cerniq_pipeline.providers.vonage.webhooks import VonageWebhooks
from cerniq_pipeline.settings import each

if TYPE_CHECKING:
    from cerniq_pipeline.domain.events import WebhookReader
    from cerniq_pipeline.settings import Settings


def open_readers(told: Settings) -> dict[str, WebhookReader]:
    """The readers by provider; each knows the secrets of the moment it was opened."""
    timelinesai = TimelinesAIWebhooks(
        each(told.timelinesai_webhook_token),
        signing_secrets=each(told.timelinesai_webhook_secret),
    )
    readers: tuple[WebhookReader, ...] = (
        timelinesai,
        MetaWebhooks(each(told.meta_app_secret)),
        InstantlyWebhooks(each(told.instantly_webhook_token)),
        ResendWebhooks(each(told.resend_webhook_secret)),
        TwilioWebhooks(each(told.twilio_auth_token)),
        VonageWebhooks(each(told.vonage_signature_secret)),
        DropCowboyWebhooks(each(told.dropcowboy_webhook_secret)),
    )
    return {reader.provider: reader for reader in readers}
