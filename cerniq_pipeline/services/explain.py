"""Why nothing is being sent now: the same rules as the claim, asked without changing anything."""

from __future__ import annotations

from datetime import datetime

from cerniq_pipeline.domain.holds import hold_on_phone
from cerniq_pipeline.services.work_shift import LINGER
from cerniq_pipeline.store import phones
from cerniq_pipeline.store.database import Begin


def phones_needing_a_shift(begin: Begin, *, now: datetime) -> list[str]:
    """Phones with work to do that no rule keeps silent for longer than a shift would wait."""
    with begin() as conn:
        needing = []
        for phone_id, left_behind in phones.with_work(conn, now=now):
            hold = hold_on_phone(phones.get(conn, phone_id).facts, now=now)
            soon = hold is None or (hold.until is not None and hold.until - now <= LINGER)
            if soon or left_behind:
                needing.append(phone_id)
        return needing
