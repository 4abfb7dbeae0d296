"""Selection as assets: eligible_leads → dispatch_plan → outbox, every five minutes or by hand."""

from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from cerniq_pipeline.defs.resources import Database
from cerniq_pipeline.defs.running import alone, finishing, in_this_process, wordless

if TYPE_CHECKING:
    from cerniq_pipeline.services.dispatch import Planned

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


@dg.asset(group_name=GROUP, kinds={"postgres"}, output_required=False)
@wordless
def eligible_leads(
    context: dg.AssetExecutionContext, config: DispatchConfig, database: Database
) -> Iterator[dg.MaterializeResult[Any]]:
    """Leads that are due, most urgent first: one batch per tenant.

    A dry run plans them here too, leaves an observation on this asset and on `dispatch_plan`, and
    ends: neither is materialised, and the outbox is not touched.

    - `leads`: how many were read
    - `leads_by_tenant`: the same, per tenant
    - `tenants_in_trouble`: whose leads could not be read, and why; an alert is open for each
    - `tenants_without_sequence`: who has no sequence of the name that was asked for
    - `dry_run`: whether nothing was to be planned
    - `preview`: the first leads
    """
    metadata, planned = _select(context.run.run_id, config, database)
    if planned is None:
        yield dg.MaterializeResult(metadata=metadata)
        return
    context.log_event(dg.AssetObservation(eligible_leads.key, metadata=metadata))
    context.log_event(dg.AssetObservation(dispatch_plan.key, metadata=planned))


@finishing
def _select(
    run_id: str, config: DispatchConfig, database: Database
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    from cerniq_pipeline.services import dispatch
    from cerniq_pipeline.store import selection

    is_any = config.priority_filter is Priority.ALL
    request = dispatch.Request(
        batch_size=config.batch_size,
        channel_preference=config.channel_preference.value,
        priority_filter=None if is_any else config.priority_filter.value,
        sequence_filter=config.sequence_filter or None,
        dry_run=config.dry_run,
    )
    tenant = None if config.tenant == "ALL" else config.tenant
    now = database.now()
    selected = dispatch.select_all(
        database.begin, request, tenant_id=tenant, by=run_id, secret=database.secret(), now=now
    )
    planned = _plan(run_id, database)[0] if config.dry_run else None
    with database.begin() as conn:
        first = [row for batch in selected.batches for row in selection.preview(conn, batch.id)]
    return {
        "leads": sum(selected.leads.values()),
        "leads_by_tenant": selected.leads,
        "tenants_in_trouble": selected.troubles,
        "tenants_without_sequence": selected.without_sequence,
        "dry_run": config.dry_run,
        "preview": _table(first, ("position", "lead_id", "company", "stage", "step")),
    }, planned


@dg.asset(deps=[eligible_leads], group_name=GROUP, kinds={"postgres"}, output_required=False)
@wordless
def dispatch_plan(
    context: dg.AssetExecutionContext, database: Database
) -> Iterator[dg.MaterializeResult[Any]]:
    """A channel and a phone for every lead, or the reason why not.

    Launched alone, it reads the leads that are due now, as they were asked for the last time.

    - `total_eligible_leads`: leads that were looked at
    - `dispatched_to_whatsapp`, `dispatched_to_email`: leads that are planned on that channel
    - `skipped_quota_exceeded`, `skipped_outside_hours`, `skipped_no_channel`: leads passed over for
      these reasons
    - `skipped_human_review`: leads of these tenants that wait for a person, not looked at
    - `skip_reasons`: every reason, and how many leads it holds
    - `waiting_for_next_batch`: leads that were due and beyond the size of the batch
    - `leads_by_phone`: planned leads, per phone
    - `tenants_in_trouble`: whose leads could not be planned, and why; an alert is open for each
    - `dry_run`: whether nothing is written
    - `preview`: the first leads with their channel and phone, or the reason
    """
    metadata, is_dry = _plan(context.run.run_id, database)
    yield from _shown(context, dispatch_plan.key, metadata, is_dry=is_dry)


@finishing
def _plan(run_id: str, database: Database) -> tuple[dict[str, Any], bool]:
    from cerniq_pipeline.services import dispatch
    from cerniq_pipeline.store import selection

    planned = dispatch.plan_all(
        database.begin, by=run_id, secret=database.secret(), now=database.now()
    )
    with database.begin() as conn:
        first = [row for batch in planned.batches for row in selection.preview(conn, batch.id)]
        used = [selection.phones_used(conn, batch.id) for batch in planned.batches]
    columns = ("lead_id", "company", "stage", "step", "medium", "phone_id", "skip")
    metadata = _counts(planned) | {
        "leads_by_phone": {phone: n for phones in used for phone, n in phones.items()},
        "preview": _table(first, columns),
    }
    return metadata, planned.is_dry


@dg.asset(deps=[dispatch_plan], group_name=GROUP, kinds={"postgres"}, output_required=False)
@wordless
def outbox(
    context: dg.AssetExecutionContext, database: Database
) -> Iterator[dg.MaterializeResult[Any]]:
    """The planned messages, written once each; shifts send them phone by phone.

    Launched alone, it writes what the last plan still has, and nothing when that is written.

    - the counts of `dispatch_plan`, after the checks: `total_eligible_leads`,
      `dispatched_to_whatsapp`, `dispatched_to_email`, `skipped_quota_exceeded`,
      `skipped_outside_hours`, `skipped_no_channel`, `skipped_human_review`, `skip_reasons`,
      `waiting_for_next_batch`
    - `messages_created`: messages that are new in the outbox
    - `planned_before`: planned leads whose step stood in the outbox already
    - `tenants_in_trouble`: whose messages could not be written, and why; an alert is open for each
    - `dry_run`: whether nothing was to be written
    - `processing_time_ms`: milliseconds that writing took
    - `next_dispatch_at`: when the schedule dispatches again
    """
    metadata, is_dry = _fill(context.run.run_id, database)
    yield from _shown(context, outbox.key, metadata, is_dry=is_dry)


@finishing
def _fill(run_id: str, database: Database) -> tuple[dict[str, Any], bool]:
    from cerniq_pipeline.services import dispatch

    started = database.now()
    filled = dispatch.fill_all(database.begin, by=run_id, now=started)
    now = database.now()
    metadata = _counts(filled) | {
        "messages_created": filled.written,
        "planned_before": filled.before,
        "processing_time_ms": round((now - started).total_seconds() * 1000),
        "next_dispatch_at": dg.MetadataValue.text(dispatch.next_dispatch(now).isoformat()),
    }
    return metadata, filled.is_dry


def _shown(
    context: dg.AssetExecutionContext, key: dg.AssetKey, metadata: dict[str, Any], *, is_dry: bool
) -> Iterator[dg.MaterializeResult[Any]]:
    """Show what was done: of a dry run beside the materialisations, not among them."""
    if is_dry:
        context.log_event(dg.AssetObservation(key, metadata=metadata))
    else:
        yield dg.MaterializeResult(metadata=metadata)


# Each check takes whoever breaks its rule out of the plan and says so; the others go on. Only a
# plan in which somebody still breaks it stops the run.


@dg.asset_check(asset=dispatch_plan, blocking=True)
@finishing
def no_planned_lead_opted_out(
    context: dg.AssetCheckExecutionContext, database: Database
) -> dg.AssetCheckResult:
    """Nobody who said stop is in the plan.

    - `left_out`: leads that were taken out of the plan, per tenant
    - `leads`: the first of them
    - `tenants_in_trouble`: whose plan could not be checked, and why
    """
    return _checked(context, database, "OPTED_OUT")


@dg.asset_check(asset=dispatch_plan, blocking=True)
@finishing
def every_planned_lead_has_a_lawful_basis(
    context: dg.AssetCheckExecutionContext, database: Database
) -> dg.AssetCheckResult:
    """Every planned lead has a basis that its channel accepts.

    - `left_out`: leads that were taken out of the plan, per tenant
    - `leads`: the first of them
    - `tenants_in_trouble`: whose plan could not be checked, and why
    """
    return _checked(context, database, "BASIS")


@dg.asset_check(asset=dispatch_plan, blocking=True)
@finishing
def no_lead_is_planned_twice(
    context: dg.AssetCheckExecutionContext, database: Database
) -> dg.AssetCheckResult:
    """No lead stands in the plan twice, nor with a step that the outbox already has.

    - `left_out`: leads that were taken out of the plan, per tenant; an alert tells of them
    - `leads`: the first of them
    - `tenants_in_trouble`: whose plan could not be checked, and why
    """
    return _checked(context, database, "TWICE")


@dg.asset_check(asset=dispatch_plan, blocking=True)
@finishing
def no_phone_is_over_its_quota(
    context: dg.AssetCheckExecutionContext, database: Database
) -> dg.AssetCheckResult:
    """What is sent, waiting and planned today fits every phone's limit.

    - `left_out`: leads that were taken out of the plan, per tenant
    - `leads`: the first of them
    - `tenants_in_trouble`: whose plan could not be checked, and why
    """
    return _checked(context, database, "QUOTA")


def _checked(
    context: dg.AssetCheckExecutionContext, database: Database, rule: str
) -> dg.AssetCheckResult:
    from cerniq_pipeline.services import dispatch

    left = dispatch.leave_out(
        database.begin, dispatch.Rule[rule], by=context.run.run_id, now=database.now()
    )
    ids = [str(lead_id) for leads in left.leads.values() for lead_id in leads]
    return dg.AssetCheckResult(
        passed=not ids and not left.troubles,
        # Of a blocking check only an error stops what comes after it.
        severity=dg.AssetCheckSeverity.ERROR if left.still else dg.AssetCheckSeverity.WARN,
        metadata={
            "left_out": {tenant: len(leads) for tenant, leads in left.leads.items()},
            "leads": ids[:20],
            "tenants_in_trouble": left.troubles,
        },
    )


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
    description="Dispatch for all tenants, in batches of the usual size.",
    cron_schedule=EVERY_FIVE_MINUTES,
    execution_timezone="Europe/Bucharest",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)


def _counts(planned: "Planned") -> dict[str, Any]:
    """The counts of the documents, summed over tenants."""
    from cerniq_pipeline.services.dispatch import Result

    totals: dict[str, int] = {}
    skipped: dict[str, int] = {}
    for result in [Result(), *planned.results.values()]:
        for name, value in asdict(result).items():
            if isinstance(value, int):
                totals[name] = totals.get(name, 0) + value
        for reason, count in result.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + count
    return {
        **totals,
        "skip_reasons": skipped,
        "tenants_in_trouble": planned.troubles,
        "dry_run": planned.is_dry,
    }


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
