"""Phone numbers and WhatsApp ids, the way the vendor reads and writes them."""

from __future__ import annotations

import re

CONTACT_SERVER = "@s.whatsapp.net"
GROUP_SERVER = "@g.us"

_DECORATION = re.compile(r"[\s().\-/]+")
_INTERNATIONAL = re.compile(r"\+[1-9]\d{6,14}")
_GROUP = re.compile(r"[\d\-]+@g\.us")


def sanitised(written: str) -> str:
    """The number without spaces and punctuation, 00 read as +."""
    bare = _DECORATION.sub("", written)
    return f"+{bare[2:]}" if bare.startswith("00") else bare


def phone_number(written: str) -> str | None:
    """The number in international form, or None when it cannot be one."""
    bare = sanitised(written)
    if bare[:1].isdigit() and bare[0] != "0":
        bare = f"+{bare}"  # the vendor lets callers leave the plus out
    return bare if _INTERNATIONAL.fullmatch(bare) else None


def jid_of(address: str) -> str:
    """The WhatsApp id of a phone number; a group's id is its own."""
    if is_group(address):
        return address
    return f"{address.removeprefix('+')}{CONTACT_SERVER}"


def address_of(jid: str) -> str | None:
    """The phone number or the group that a WhatsApp id stands for, None when it is neither."""
    if _GROUP.fullmatch(jid):
        return jid
    if jid.endswith(CONTACT_SERVER):
        return phone_number(jid.removesuffix(CONTACT_SERVER))
    return None


def account_phone(written: str) -> str | None:
    """The phone number of an account named by number or by WhatsApp id, None when it is neither."""
    return address_of(written) if written.endswith(CONTACT_SERVER) else phone_number(written)


def is_group(address: str) -> bool:
    """Whether an address is a group and not a person."""
    return address.endswith(GROUP_SERVER)


def masked(address: str) -> str:
    """The address with its middle hidden: +40*****123."""
    return f"{address[:3]}*****{address.removesuffix(GROUP_SERVER)[-3:]}"
