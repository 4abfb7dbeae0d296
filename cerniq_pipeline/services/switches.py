"""Kill switches by name: what is paused exists, or nobody is told that it is off."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection

from cerniq_pipeline.domain.alerts import ACCOUNT_ALERTS
from cerniq_pipeline.domain.names import no_such, read_name
from cerniq_pipeline.domain.selection import Medium
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.store import alerts, overview, phones, tenants
from cerniq_pipeline.store.database import Begin

KINDS = ("global", "tenant", "channel", "account", "phone")
SCOPES = "global, tenant:ID, channel:WHATSAPP, account:PROVIDER or phone:ID"
CHANNELS = frozenset(medium.channel for medium in Medium)


def pause(
    begin: Begin, scope: str, *, accounts: Collection[str], reason: str, by: str, now: datetime
) -> str:
    """Stop all sending in a scope; returns its name as it is known here.

    `accounts` are the providers of this installation. Raises NotFound, with the nearest names, for
    what does not exist: whoever reads "off" believes that nothing is sent any more.
    """
    with begin() as conn:
        kind, key = _existing(conn, scope, accounts=accounts)
        phones.switch_off(conn, scope=kind, key=key, reason=reason, by=by, now=now)
    return _said(kind, key)


def resume(begin: Begin, scope: str, *, accounts: Collection[str], now: datetime) -> str:
    """Let sending go on in a scope; returns its name. Raises NotFound when it is not off.

    What was switched off under a name that nothing has any more can be let go on under it.
    """
    kind, _, key = scope.strip().partition(":")
    with begin() as conn:
        if not phones.switch_on(conn, scope=kind, key=key):
            kind, key = _existing(conn, scope, accounts=accounts)
            if not phones.switch_on(conn, scope=kind, key=key):
                off = [_said(each["scope"], each["key"]) for each in overview.switches(conn)]
                are = f"off are: {', '.join(off)}" if off else "nothing is"
                raise NotFound(f"{_said(kind, key)} is not off; {are}")
        if kind == "account":
            alerts.close(conn, kinds=ACCOUNT_ALERTS, subjects=[key], now=now)
    return _said(kind, key)


def the_phone(conn: Connection, typed: str) -> str:
    """The id of the phone with this id or number; raises NotFound with the nearest ids."""
    phone_id = overview.find_phone(conn, read_name(typed), tenant_id=None)
    if phone_id is None:
        raise no_such("phone", typed, phones.ids(conn), see="`cerniq status` lists them")
    return phone_id


def _existing(conn: Connection, scope: str, *, accounts: Collection[str]) -> tuple[str, str]:
    """The scope that is meant, in its own spelling."""
    kind, _, key = scope.strip().partition(":")
    match kind:
        case "global" if not key:
            pass
        case "tenant" if key:
            tenants.get(conn, key)
        case "phone" if key:
            key = the_phone(conn, key)
        case "channel" if key:
            if key.upper() not in CHANNELS:
                raise no_such("channel", key, CHANNELS, see=_list(CHANNELS))
            key = key.upper()
        case "account" if key:
            known = {*accounts, *(provider for _, provider in phones.numbers(conn))}
            if key.lower() not in known:
                raise no_such("account", key, known, see=_list(known))
            key = key.lower()
        case _:
            named = [f"phone:{one}" for one in phones.ids(conn) if one == scope]
            named += [f"tenant:{one}" for one in tenants.all_ids(conn) if one == scope]
            hint = f"did you mean {' or '.join(named)}?" if named else f"give {SCOPES}"
            raise NotFound(f"{scope!r} is not a scope; {hint}")
    return kind, key


def _list(known: Collection[str]) -> str:
    return f"there are: {', '.join(sorted(known)) or 'none'}"


def _said(kind: str, key: str) -> str:
    return f"{kind}:{key}" if key else kind
