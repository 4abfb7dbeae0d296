"""The code location: everything Dagster shows and runs."""

import dagster as dg

from cerniq_pipeline.defs import (
    failover,
    health,
    leads,
    phones,
    replies,
    resources,
    retention,
    sending,
    upkeep,
)
from cerniq_pipeline.defs.running import in_this_process

defs = dg.Definitions.merge(
    resources.defs,
    leads.defs,
    sending.defs,
    phones.defs,
    replies.defs,
    failover.defs,
    health.defs,
    upkeep.defs,
    retention.defs,
    # Also for what is launched ad hoc from the UI: a process per step costs seconds each.
    dg.Definitions(executor=in_this_process),
)
