"""Refusals that speak of the phone: whether they are the phone's fault, or the message's.

A provider may answer one odd message as if the phone that brings it were banned or offline. Passed
on from phone to phone, such a message would silence all of them. So it may stop one: whoever
refuses it after that shows that it is the message.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

PhoneStatus = Literal["OFFLINE", "BANNED"]

STOPS_A_PHONE: dict[str, PhoneStatus] = {"PHONE_BANNED": "BANNED", "PHONE_OFFLINE": "OFFLINE"}
"""Our codes of refusals that speak of the phone, and what it is from then on."""

REFUSED_BY_PHONES = "REFUSED_BY_PHONES"
"""Our code of a message that was refused like this, though it is no phone's fault."""

OTHERS_FIRST = timedelta(hours=1)
"""How long a message steps aside that its phone refuses again: what the others meet shows more."""


@dataclass(frozen=True)
class Refused:
    """One phone's refusals of one message, before this one."""

    phone_id: str
    sent_since: bool
    """Whether that phone has sent something else since."""
    still_stopped: bool
    """Whether it has been silent since, for this message alone."""


def is_the_messages_fault(before: Collection[Refused], *, phone_id: str) -> bool:
    """Whether it is the message that this phone refuses, and not the phone that is lost.

    It is when another phone refused it as well, or when this one sends everything else.
    """
    return any(one.phone_id != phone_id or one.sent_since for one in before)
