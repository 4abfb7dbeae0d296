"""Alerts: what a person must know, in words for people, and whom it is told through."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

BACKLOG = "dead_letters_many"
"""The kind of alert about a tenant with too many dead letters."""

INBOX_STUCK = "inbox_stuck"
"""About a provider whose events wait for too long."""

INBOX_DEAD = "inbox_dead"
"""About a provider with events that nobody could handle."""

RECEIVER_UNKNOWN = "receiver_unknown"
"""About a number or an address that people write to, of which nobody has said whose it is."""

SWEEP_STUCK = "sweep_stuck"
"""About a provider whose histories cannot be read to the end."""

CHAT_UNREADABLE = "chat_unreadable"
"""About a provider with chats that cannot be read, though others can."""

SENDS_UNCONFIRMED = "sends_unconfirmed"
"""About a tenant with sends of which nobody has known for long whether they left."""

SENDS_PARKED = "sends_parked"
"""About a tenant with parked sends that have waited for a person for long."""

DISPATCH_STUCK = "dispatch_stuck"
"""About a tenant whose leads cannot be dispatched; others are."""

STEPS_REPEATED = "steps_repeated"
"""About a tenant with leads whose next step went out to them before."""

AUTOMATION_STOPPED = "automation_stopped"
"""About a sensor, schedule or daemon of Dagster that does not run."""

DAGSTER_SILENT = "dagster_silent"
"""About Dagster as a whole: nothing of it gives a sign of life."""

BAD_DATA = "bad_data"
"""About a tenant with leads in whose rows stands what nobody can read."""

TENANT_UNREADABLE = "tenant_unreadable"
"""About a tenant in whose own row stands what nobody can read."""

ACCOUNT_ALERTS = ("account_suspended", "wrong_sender")
"""Kinds that end when a person lets the account go on."""

PHONE_MAY_BE_WELL = "phone_may_be_well"
"""About a phone that was stopped for a message which another phone could not send either."""

PHONE_ALERTS = ("phone_offline", "phone_banned", PHONE_MAY_BE_WELL)
"""Kinds that end when the phone is active again."""

SENTENCES = {
    "phone_offline": "Phone {subject} is offline. It sends nothing until it is linked again.",
    "phone_banned": "Phone {subject} is banned. It sends nothing, and its leads follow the rule "
    "of the tenant.",
    PHONE_MAY_BE_WELL: "Phone {subject} was stopped for a message that another phone could not "
    "send either. It may be well: look, and let it go on.",
    "phone_trouble": "Phone {subject} fails again and again. It rests until the provider answers.",
    "phone_silent": "Phone {subject} is connected, but hears fewer replies than it ever did.",
    "phone_dead": "Phone {subject} is connected, but what it writes does not arrive.",
    "provider_trouble": "{subject} fails again and again. Its phones rest until it answers.",
    "account_suspended": "The account at {subject} is suspended. None of its phones sends.",
    "wrong_sender": "{subject} sent a message from another phone than it was asked to. None of "
    "its phones sends until somebody has looked.",
    "texts_too_alike": "The texts of phone {subject} are too alike. It waits for more variety.",
    BACKLOG: "Too many dead letters of {subject} wait. See `cerniq dlq list`.",
    INBOX_STUCK: "Events of {subject} wait for too long. Who replied is not heard until they are "
    "handled.",
    INBOX_DEAD: "Events of {subject} cannot be handled. Nothing is written to these people until "
    "somebody has looked: see `cerniq dlq list`.",
    RECEIVER_UNKNOWN: "People write to {subject}, and nobody has said whose that is. Nothing is "
    "written to them until the phone is added, or `cerniq inbox assign` says it.",
    SWEEP_STUCK: "The histories of {subject} cannot be read to the end. A reply whose webhook was "
    "lost is not found until they can.",
    CHAT_UNREADABLE: "Some chats of {subject} cannot be read, though others can. A reply in them "
    "whose webhook was lost is not found until they can.",
    SENDS_UNCONFIRMED: "Sends of {subject} may have gone out, and cannot be looked up. Nothing "
    "else goes to these people until that is known.",
    SENDS_PARKED: "Parked sends of {subject} wait for a decision. Nothing else goes to these "
    "people: see `cerniq parked list`.",
    DISPATCH_STUCK: "The leads of {subject} cannot be dispatched. Those of other tenants are.",
    STEPS_REPEATED: "Leads of {subject} stand before a step that they had already. They are left "
    "out until that is corrected.",
    AUTOMATION_STOPPED: "{subject} is stopped in Dagster.",
    DAGSTER_SILENT: "{subject} gives no sign of life. Nothing is planned, sent or heard.",
    BAD_DATA: "Some leads of {subject} hold what cannot be read. Nothing is written to them until "
    "it is mended: see `cerniq reviews`, and `cerniq why` for each.",
    TENANT_UNREADABLE: "The row of tenant {subject} holds what cannot be read. Nothing is sent for "
    "it until it is mended.",
}


@dataclass(frozen=True)
class Alert:
    """Something that a person must know; `subject` is the phone, account or tenant it is about."""

    id: int
    tenant_id: str | None
    """None: it is about the whole installation."""
    kind: str
    subject: str
    detail: str
    opened_at: datetime
    notified_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None


class Messenger(Protocol):
    """Whoever brings a sentence to people."""

    def post(self, text: str) -> None:
        """Hand the sentence over, or raise what we then know (`SendFailed` and its children)."""
        ...


def sentence(alert: Alert) -> str:
    """The alert in words for people; a kind without a sentence of its own is named."""
    known = SENTENCES.get(alert.kind, alert.kind.replace("_", " ").capitalize() + ": {subject}.")
    whose = alert.tenant_id or "all tenants"
    return f"{known.format(subject=alert.subject)} ({whose}: {alert.detail})"
