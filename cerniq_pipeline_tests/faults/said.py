"""What providers tell by their webhooks, in their own words; mostly TimelinesAI."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from sqlalchemy import Connection

from cerniq_pipeline.domain.events import WebhookReader
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.providers.instantly.webhooks import InstantlyWebhooks
from cerniq_pipeline.providers.meta.webhooks import MetaWebhooks
from cerniq_pipeline.providers.resend.webhooks import ResendWebhooks
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline.providers.twilio.webhooks import TwilioWebhooks
from cerniq_pipeline.store import inbox

OURS = "+40790000000"
THEIRS = "+40721000000"
TOKEN = "a-token-of-the-faults"

RESEND_SECRET = "whsec_YS1zZWNyZXQtb2YtdGhlLWZhdWx0cy0wMDAwMDE="

READERS: Mapping[str, WebhookReader] = {
    reader.provider: reader
    for reader in (
        TimelinesAIWebhooks((TOKEN,)),
        MetaWebhooks(("secret",)),
        InstantlyWebhooks((TOKEN,)),
        ResendWebhooks((RESEND_SECRET,)),
        TwilioWebhooks(("secret",)),
    )
}
SIGNED: Mapping[str, WebhookReader] = {
    **READERS,
    "timelinesai": TimelinesAIWebhooks((TOKEN,), signing_secrets=("secret",)),
}
"""Readers that believe what passes: nobody is asked whether it was really said."""


def chat_with(person: str) -> int:
    """A chat of this person's own, for who does not care which."""
    return int(person.removeprefix("+").partition("@")[0])


def a_message(
    text: str,
    *,
    uid: str = "",
    at: datetime | None = None,
    ours: str = OURS,
    theirs: str = THEIRS,
    from_us: bool = False,
    chat_id: int | None = None,
) -> bytes:
    """The event about a message that came in or, `from_us`, left our number."""
    people = [{"full_name": "Ana Pop", "phone": theirs}, {"full_name": "Vânzări", "phone": ours}]
    sender, recipient = reversed(people) if from_us else people
    return _body(
        "message:sent:new" if from_us else "message:received:new",
        ours=ours,
        theirs=theirs,
        chat_id=chat_id or chat_with(theirs),
        text=text,
        direction="sent" if from_us else "received",
        origin="WhatsApp",
        timestamp=_written(at),
        message_uid=uid or str(uuid.uuid4()),
        sender=sender,
        recipient=recipient,
        attachments=[],
    )


def a_status(
    word: str,
    uid: str,
    *,
    at: datetime | None = None,
    ours: str = OURS,
    theirs: str = THEIRS,
    failure: Mapping[str, object] | None = None,
) -> bytes:
    """The event about what became of a message of ours: delivered, read or failed."""
    return _body(
        f"waba:message:{word}",
        ours=ours,
        theirs=theirs,
        chat_id=chat_with(theirs),
        message_uid=uid,
        timestamp=_written(at),
        **({"failure_reason": failure} if failure else {}),
    )


def _body(event_type: str, *, ours: str, theirs: str, chat_id: int, **message: object) -> bytes:
    told = {
        "event_type": event_type,
        "chat": {"full_name": "Ana Pop", "chat_id": chat_id, "is_group": False, "phone": theirs},
        "whatsapp_account": {"full_name": "Vânzări", "phone": ours},
        "message": message,
    }
    return json.dumps(told, ensure_ascii=False).encode()


def _written(at: datetime | None) -> str:
    return (at or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M:%S %z")


def meta_message(text: str, *, ours: str = OURS, theirs: str = THEIRS) -> bytes:
    """Meta's event about a message that came in."""
    message = {
        "from": theirs.removeprefix("+"),
        "id": f"wamid.{uuid.uuid4().hex}",
        "timestamp": str(int(datetime.now(UTC).timestamp())),
        "type": "text",
        "text": {"body": text},
    }
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": ours.removeprefix("+"), "phone_number_id": "1065"},
        "contacts": [{"profile": {"name": "Ana"}, "wa_id": theirs.removeprefix("+")}],
        "messages": [message],
    }
    change = {"field": "messages", "value": value}
    entry = {"id": "1", "changes": [change]}
    return json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()


def twilio_stop(theirs: str) -> bytes:
    """Twilio's event about a text message that says stop."""
    sid = f"SM{uuid.uuid4().hex}"
    said = {"From": theirs, "To": "+40312345678", "Body": "STOP", "OptOutType": "STOP"}
    return urlencode({"MessageSid": sid, "AccountSid": "AC1", "NumMedia": "0", **said}).encode()


def twilio_status(code: str, *, theirs: str, sid: str | None = None) -> bytes:
    """Twilio's event about a text message that never arrived, with the code that says why."""
    told = {"MessageStatus": "undelivered", "ErrorCode": code, "AccountSid": "AC1"}
    sent = {"From": "+40312345678", "To": theirs, **({"MessageSid": sid} if sid else {})}
    return urlencode({**told, **sent}).encode()


def instantly_stop(email: str) -> bytes:
    """Instantly's event about a person who followed the link at the end of a mail."""
    told = {
        "timestamp": datetime.now(UTC).isoformat(),
        "event_type": "lead_unsubscribed",
        "lead_email": email,
        "email_account": "sales@our.test",
    }
    return json.dumps(told).encode()


def resend_complaint(email: str) -> bytes:
    """Resend's event about a person who called our mail spam."""
    at = datetime.now(UTC).isoformat()
    mail = {"created_at": at, "email_id": str(uuid.uuid4()), "from": "n@our.test", "to": [email]}
    return json.dumps({"type": "email.complained", "created_at": at, "data": mail}).encode()


def keep(
    conn: Connection,
    bodies: Collection[bytes],
    *,
    now: datetime,
    provider: str = "timelinesai",
    source: inbox.Source = "webhook",
) -> int:
    """Keep bodies in the inbox, as whoever was told them does; returns how many were new."""
    copies = []
    for body in bodies:
        told = READERS[provider].envelope(body)
        account, contact = told.account or "", told.contact or ""
        copies.append(
            InboundCopy(provider, told.event_key, told.event_type, account, contact, body)
        )
    return inbox.keep(conn, copies, source=source, now=now)
