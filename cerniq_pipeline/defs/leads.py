"""Selection as assets: eligible_leads → dispatch_plan → outbox, every five minutes or by hand."""

from dataclasses import asdict
from enum import Enum
from typing import Any

import dagster as dg
from pydantic import Field

from cerniq_pipeline.defs.resources import Database, settings
from cerniq_pipeline.defs.running import alone, finishing, in_this_process

GROUP = "dispatch"
EVERY_FIVE_MINUTES = "*/5 * * * *"


class ChannelPreference(Enum):
    """Which channels a dispatch may use."""

    AUTO = "AUTO"
    WHATSAPP = "WHATSAPP"
    EMAIL = "EMAIL"


class Priority(Enum):
    """Which leads a dispatch looks at."""

    ALL = "ALL"
    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"


class DispatchConfig(dg.Config):
    """What one dispatch is asked to do."""

    tenant: str = Field("ALL", description="One tenant's id, or ALL active tenants.")
    batch_size: int = Field(100, ge=1, le=50_000, description="Most leads to plan per tenant.")
    channel_preference: ChannelPreference = Field(
        ChannelPreference.AUTO, description="Narrows the choice; never lifts a refusal."
    )
    priority_filter: Priority = Field(Priority.ALL, description="Only leads of this priority.")
    sequence_filter: str = Field("", description="Only leads of this sequence, by name or id.")
    dry_run: bool = Field(False, description="Show what would be planned, and plan nothing.")


@dg.asset(group_name=GROUP, kinds={"postgres"})
@finishing
def eligible_leads(
    context: dg.AssetExecutionContext, config: DispatchConfig, database: Database
) -> dg.Output[list[int]]:
    """Leads that are due, most urgent first: one batch per tenant."""
    from cerniq_pipeline.services import dispatch
    from cerniq_pipeline.store import selection, tenants

    request = dispatch.Request(
        batch_size=config.batch_size,
        channel_preference=config.channel_preference.value,
        priority_filter=None
        if config.priority_filter is Priority.ALL
        else config.priority_filter.value,
        sequence_filter=config.sequence_filter or None,
        dry_run=config.dry_run,
    )
    with database.begin() as conn:
        chosen = tenants.active_ids(conn) if config.tenant == "ALL" else [config.tenant]
    now = database.now()
    batches = {
        tenant: dispatch.select_leads(
            database.begin,
            tenant,
            request,
            by=context.run.run_id,
            secret=settings().secret_key.get_secret_value().encode(),
            now=now,
        )
        for tenant in chosen
    }
    with database.begin() as conn:
        first = [row for batch, _ in batches.values() for row in selection.preview(conn, batch)]
    ids = [batch for batch, _ in batches.values()]
    return dg.Output(
        ids,
        metadata={
            "leads": sum(count for _, count in batches.values()),
            "leads_by_tenant": {tenant: count for tenant, (_, count) in batches.items()},
            "dry_run": config.dry_run,
            "preview": _table(first, ("position", "lead_id", "company", "stage", "step")),
        },
    )


@dg.asset(group_name=GROUP, kinds={"postgres"})
@finishing
def dispatch_plan(database: Database, eligible_leads: list[int]) -> dg.Output[list[int]]:
    """A channel and a phone for every lead, or the reason why not."""
    from cerniq_pipeline.services import dispatch
    from cerniq_pipeline.store import selection

    now = database.now()
    results = [dispatch.plan_batch(database.begin, batch, now=now) for batch in eligible_leads]
    with database.begin() as conn:
        first = [row for batch in eligible_leads for row in selection.preview(conn, batch)]
        used = [selection.phones_used(conn, batch) for batch in eligible_leads]
    metadata: dict[str, Any] = _counts(results)
    columns = ("lead_id", "company", "stage", "step", "medium", "phone_id", "skip")
    return dg.Output(
        eligible_leads,
        metadata=metadata
        | {
            "leads_by_phone": {phone: n for phones in used for phone, n in phones.items()},
            "preview": _table(first, columns),
        },
    )


@dg.asset(group_name=GROUP, kinds={"postgres"})
@finishing
def outbox(
    context: dg.AssetExecutionContext, database: Database, dispatch_plan: list[int]
) -> dg.Output[None]:
    """The planned messages, written once each; shifts send them phone by phone."""
    from cerniq_pipeline.services import dispatch
    from cerniq_pipeline.store import selection

    started = database.now()
    filled = [
        dispatch.fill_outbox(database.begin, batch, by=context.run.run_id, now=started)
        for batch in dispatch_plan
    ]
    with database.begin() as conn:
        results = [dispatch.result_of(conn, batch) for batch in dispatch_plan]
        dry_run = [selection.batch(conn, batch)[1]["dry_run"] for batch in dispatch_plan]
    now = database.now()
    return dg.Output(
        None,
        metadata=_counts(results)
        | {
            "dry_run": any(dry_run),
            "messages_created": sum(written for written, _ in filled),
            "planned_before": sum(before for _, before in filled),
            "processing_time_ms": round((now - started).total_seconds() * 1000),
            "next_dispatch_at": dg.MetadataValue.text(dispatch.next_dispatch(now).isoformat()),
        },
    )


@dg.asset_check(asset=dispatch_plan, blocking=True)
@finishing
def no_planned_lead_opted_out(database: Database, dispatch_plan: list[int]) -> dg.AssetCheckResult:
    """Nobody who said stop is in the plan."""
    from cerniq_pipeline.store import selection

    with database.begin() as conn:
        return _none_of(selection.planned_though_opted_out(conn, b) for b in dispatch_plan)


@dg.asset_check(asset=dispatch_plan, blocking=True)
@finishing
def every_planned_lead_has_a_lawful_basis(
    database: Database, dispatch_plan: list[int]
) -> dg.AssetCheckResult:
    """Every planned lead has a basis that its channel accepts."""
    from cerniq_pipeline.store import selection

    with database.begin() as conn:
        return _none_of(selection.planned_without_basis(conn, b) for b in dispatch_plan)


@dg.asset_check(asset=dispatch_plan, blocking=True)
@finishing
def no_lead_is_planned_twice(database: Database, dispatch_plan: list[int]) -> dg.AssetCheckResult:
    """No lead stands in the plan twice, nor with a step that the outbox already has."""
    from cerniq_pipeline.store import selection

    with database.begin() as conn:
        return _none_of(selection.planned_twice(conn, b) for b in dispatch_plan)


@dg.asset_check(asset=dispatch_plan, blocking=True)
@finishing
def no_phone_is_over_its_quota(database: Database, dispatch_plan: list[int]) -> dg.AssetCheckResult:
    """What is sent, waiting and planned today fits every phone's limit."""
    from cerniq_pipeline.store import selection

    with database.begin() as conn:
        now = database.now()
        return _none_of(len(selection.phones_over_quota(conn, b, now=now)) for b in dispatch_plan)


dispatch_job = dg.define_asset_job(
    "dispatch",
    selection=dg.AssetSelection.groups(GROUP),
    description="Choose leads, plan them, fill the outbox.",
    executor_def=in_this_process,
    tags=alone("dispatch"),
)

dispatch_every_5_minutes = dg.ScheduleDefinition(
    name="dispatch_every_5_minutes",
    job=dispatch_job,
    cron_schedule=EVERY_FIVE_MINUTES,
    execution_timezone="Europe/Bucharest",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)


def _counts(results: list[Any]) -> dict[str, Any]:
    """The counts of the documents, summed over tenants."""
    totals: dict[str, int] = {}
    skipped: dict[str, int] = {}
    for result in results:
        for name, value in asdict(result).items():
            if isinstance(value, int):
                totals[name] = totals.get(name, 0) + value
        for reason, count in result.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + count
    return {**totals, "skip_reasons": skipped}


def _none_of(counts: Any) -> dg.AssetCheckResult:
    found = sum(counts)
    return dg.AssetCheckResult(passed=found == 0, metadata={"violations": found})


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> dg.MetadataValue:
    """The first rows as a table that the UI can show; ids and names only."""
    if not rows:
        return dg.MetadataValue.md("nothing to show")
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for row in rows[:20]:
        cells = (str(row[column] if row[column] is not None else "") for column in columns)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return dg.MetadataValue.md("\n".join(lines))


defs = dg.Definitions(
    assets=[eligible_leads, dispatch_plan, outbox],
    asset_checks=[
        no_planned_lead_opted_out,
        every_planned_lead_has_a_lawful_basis,
        no_lead_is_planned_twice,
        no_phone_is_over_its_quota,
    ],
    jobs=[dispatch_job],
    schedules=[dispatch_every_5_minutes],
)
