"""What Meta's webhooks tell of messages that were sent: every status in a body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.errors import ProviderUnreadable
from cerniq_pipeline.providers.meta.meanings import code_of_failure

STATUSES = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "played": "read",
    "failed": "failed",
}


def read_statuses(body: bytes) -> tuple[Delivery, ...]:
    """Every status in a webhook's body, in its order; raises ProviderUnreadable for a bad form."""
    try:
        return tuple(_statuses(json.loads(body)))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        form = f"meta's webhook has an unknown form ({type(error).__name__})"
        raise ProviderUnreadable(form) from error


def _statuses(body: dict[str, Any]) -> Iterator[Delivery]:
    for entry in body["entry"]:
        for change in entry["changes"]:
            for told in change["value"].get("statuses", ()):
                yield _status(told)


def _status(told: dict[str, Any]) -> Delivery:
    error = next(iter(told.get("errors") or ()), None)
    code, title = (None, "") if error is None else (int(error["code"]), str(error["title"]))
    callback = told.get("biz_opaque_callback_data")
    return Delivery(
        external_id=str(told["id"]),
        status=STATUSES.get(told["status"], "unknown"),
        at=datetime.fromtimestamp(int(told["timestamp"]), UTC),
        code=code,
        title=title,
        meaning=None if code is None else code_of_failure(code),
        callback=None if callback is None else str(callback),
    )
