"""Failover: the leads of a lost phone follow their tenant's rule."""

import dagster as dg

from cerniq_pipeline.defs.resources import Database
from cerniq_pipeline.defs.running import sensor
from cerniq_pipeline.defs.sending import phone_shift


@sensor(
    job=phone_shift,
    minimum_interval_seconds=10,
)
def lost_phones(database: Database) -> dg.SkipReason:
    """Move what waits on banned, disabled or long offline phones, as their tenants want it.

    Done in the tick itself: with no phone lost it is one small query, and a run would take longer
    to start than the move. The phones that get the work are opened by `open_shifts`.
    """
    from cerniq_pipeline.services.failover import fail_over, phones_to_fail_over

    now = database.now()
    lost = phones_to_fail_over(database.begin, now=now)
    moved = [fail_over(database.begin, phone_id, now=now, who="lost_phones") for phone_id in lost]
    if not moved:
        return dg.SkipReason("nothing waits on a lost phone that could go elsewhere")
    return dg.SkipReason(
        "; ".join(f"{each.total} leads left {each.phone_id}, {each.left} wait" for each in moved)
    )


defs = dg.Definitions(sensors=[lost_phones])
