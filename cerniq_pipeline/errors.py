"""Every error raised on purpose, as a tree.

CerniqError
├── SendFailed              what one attempt to send taught us
│   ├── SendDeferred        certainly not sent; another attempt may succeed
│   ├── SendRejected        certainly not sent, and never will be
│   ├── SendUnconfirmed     it may have gone out; never resend blindly
│   ├── PhoneUnusable       certainly not sent, in words about the phone (offline, banned)
│   └── AccountSuspended    certainly not sent; every phone of this account must stop
├── ProviderUnreadable      a read failed; never to be taken for an empty answer
│   └── ReadsUsedUp         nobody was asked: the account has no read left at this moment
├── MediaRefused            a file or an address that may not be sent, and why
├── WebhookRefused          a request that did not come from whom it says
├── UnreadableWebhook       a webhook's body in no form that we know
├── UnconfirmedEvent        an event that its provider does not know of
├── TemplateError           a template is wrong, and where
├── MissingVariable         a template needs a value that the lead does not have
├── LeaseLost               another shift owns the phone now
├── QuotaUnknown            the count cannot be known, so nothing may be sent
├── ImportRefused           a file that cannot be imported, and why
├── NotFound                no such lead, phone, tenant or template
├── IllegalMove             a state change that the table of moves does not have
└── SetupError              the machine or the settings are not ready, and what to do

Stopped is none of them: it is a wish, not a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal


class CerniqError(Exception):
    """Base of all errors raised on purpose."""


@dataclass(frozen=True)
class Exchange:
    """What was said to a provider in one call and what it answered, without secrets."""

    request: dict[str, Any]
    response: dict[str, Any] | None = None
    """None: nothing."""


class SendFailed(CerniqError):
    """One attempt to send did not end with an acceptance."""

    exchange: Exchange | None = None
    """For the record; None when nothing left this machine."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code
        self.why = why


class SendDeferred(SendFailed):
    """Certainly not sent; another attempt may succeed."""

    def __init__(self, code: str, why: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(code, why)
        self.retry_after = retry_after


class SendRejected(SendFailed):
    """Certainly not sent, and never will be."""


class SendUnconfirmed(SendFailed):
    """No usable answer: it may have gone out, so it is looked up and never resent blindly."""


class PhoneUnusable(SendFailed):
    """Certainly not sent, in words about the phone.

    It must stop until a person or a sync brings it back; unless it turns out that it is the message
    which no phone can send (`domain/refusals.py`).
    """

    def __init__(self, code: str, why: str, *, status: Literal["OFFLINE", "BANNED"]) -> None:
        super().__init__(code, why)
        self.status = status


class AccountSuspended(SendFailed):
    """Certainly not sent, and no phone of this account may send until a person lets it go on."""


class ProviderUnreadable(CerniqError):
    """A read from a provider failed; the answer is unknown, not empty."""


class ReadsUsedUp(ProviderUnreadable):
    """Nobody was asked: the account has no read left at this moment, or nobody can count them."""

    def __init__(self, why: str, *, free_at: datetime | None = None) -> None:
        super().__init__(why)
        self.free_at = free_at


class MediaRefused(CerniqError):
    """A file or an address that may not be sent; nothing was kept and nobody was called."""


class WebhookRefused(CerniqError):
    """A request that did not come from the provider it names, or is too old to be believed."""


class UnreadableWebhook(CerniqError):
    """A webhook's body that has no form we know; it is kept, and a person may look."""


class UnconfirmedEvent(CerniqError):
    """An event that nobody signed, about a message that its provider does not know."""


class UnknownReceiver(CerniqError):
    """An event came to a number or an address of which nobody has said whose it is."""

    def __init__(self, receiver: str | None) -> None:
        super().__init__(
            f"it came to {receiver}, and nobody has said whose that is"
            if receiver
            else "it does not say to which number or address of ours it came"
        )
        self.receiver = receiver


class TemplateError(CerniqError):
    """A template that cannot be used, with the place of the fault."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column


class MissingVariable(CerniqError):
    """A template asks for a value that this lead does not have."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"no value and no default for: {', '.join(names)}")
        self.names = names


class LeaseLost(CerniqError):
    """Another shift owns the phone now; this one must stop without touching anything."""


class QuotaUnknown(CerniqError):
    """The quota cannot be known right now, so nothing may be sent."""


class ImportRefused(CerniqError):
    """A file that cannot be imported; nothing was changed."""


class TenantUnreadable(CerniqError):
    """What stands in a tenant's row cannot be read, so nothing can be done for it."""


class NotFound(CerniqError):
    """No such lead, phone, tenant or template."""


class IllegalMove(CerniqError):
    """A state change that the table of legal moves does not have."""


class SetupError(CerniqError):
    """The machine or the settings are not ready; the message says what to do."""


def named(error: BaseException) -> str:
    """An error without its words, which may hold what a person wrote: what it is, and where."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}" if trace else "nowhere"
    return f"{type(error).__name__} in {where}"


class Stopped(BaseException):
    """Somebody wants this process to end, between two messages; put things away and go."""
