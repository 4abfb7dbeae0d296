"""Instants for people: as the tenant's clock shows them, with the offset from UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from cerniq_pipeline.domain.calendar import local

if TYPE_CHECKING:
    from sqlalchemy import Connection


class LocalTimes:
    """Says when something was or will be; what is nobody's is said in the zone all tenants share.

    Where they share none, that is UTC.
    """

    def __init__(self, zones: Mapping[str, str]) -> None:
        self._zones = zones
        shared = set(zones.values())
        self._shared = shared.pop() if len(shared) == 1 else "UTC"

    @classmethod
    def of(cls, conn: Connection) -> LocalTimes:
        """Those of this installation."""
        from cerniq_pipeline.store import tenants

        return cls(tenants.time_zones(conn))

    def at(
        self, instant: datetime | None, tenant_id: str | None = None, *, seconds: bool = False
    ) -> str:
        """The instant with its offset; nothing where there is none."""
        if instant is None:
            return ""
        return local(instant, self._zones.get(tenant_id or "", self._shared), seconds=seconds)
