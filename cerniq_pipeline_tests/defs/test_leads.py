"""Dispatch as a person launches it: the whole, each asset alone, and what goes wrong for one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from cerniq_pipeline.definitions import defs
from cerniq_pipeline.defs import leads, resources
from cerniq_pipeline.store import selection
from cerniq_pipeline.store.database import DatabaseClock
from cerniq_pipeline_tests.builders import (
    SECRET,
    a_sequence,
    a_world,
    always_open,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.faults.spoiling import without_tenant_checks

LONG_AGO = datetime(2026, 1, 5, tzinfo=UTC)
ASSETS = ["eligible_leads", "dispatch_plan", "outbox"]
CHECKS = [
    "every_planned_lead_has_a_lawful_basis",
    "no_lead_is_planned_twice",
    "no_phone_is_over_its_quota",
    "no_planned_lead_opted_out",
]


@pytest.fixture
def world(database: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A tenant with three leads that are due, and the resources of this process open on it."""
    with database.begin() as conn:
        a_world(conn, **always_open(datetime.now(UTC)))
        some_leads(conn, count=3, at=LONG_AGO)
    monkeypatch.setattr(resources, "_engine", lambda: database)
    monkeypatch.setattr(resources, "_clock", lambda: DatabaseClock(database))
    monkeypatch.setattr(resources.Database, "secret", lambda _: SECRET)
    return database


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def launch(
    instance: dg.DagsterInstance, *assets: str, raise_on_error: bool = True, **config: Any
) -> dg.ExecuteInProcessResult:
    """Launch these assets with their checks, or all of them, as the UI does."""
    ops = {"eligible_leads": {"config": config}} if "eligible_leads" in (assets or ASSETS) else {}
    return dg.materialize(
        [leads.eligible_leads, leads.dispatch_plan, leads.outbox, *(leads.defs.asset_checks or [])],
        selection=dg.AssetSelection.assets(*(assets or ASSETS)),
        resources={"database": resources.Database()},
        run_config={"ops": ops},
        instance=instance,
        raise_on_error=raise_on_error,
    )


def told(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    """The metadata of an asset's materialisation in this run."""
    (made,) = result.asset_materializations_for_node(asset)
    return {name: value.value for name, value in made.metadata.items()}


def checks(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {each.check_name: each for each in result.get_asset_check_evaluations()}


def test_every_metadata_key_is_explained_in_the_assets_description(
    world: Engine, instance: dg.DagsterInstance
):
    result = launch(instance)
    graph = defs.resolve_asset_graph()
    for asset in ASSETS:
        words = graph.get(dg.AssetKey(asset)).description or ""
        assert [key for key in told(result, asset) if f"`{key}`" not in words] == []
    for key in graph.asset_check_keys:
        words = graph.get_check_spec(key).description or ""
        shown = checks(result)[key.name].metadata
        assert [name for name in shown if f"`{name}`" not in words] == []


# ── Each asset alone, again and again ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("asset", ASSETS)
def test_every_asset_can_be_launched_alone_again_and_again(
    asset: str, world: Engine, instance: dg.DagsterInstance
):
    for _ in range(2):  # before anything else was, too
        assert launch(instance, asset).success
    assert launch(instance).success
    for _ in range(2):
        assert launch(instance, asset).success
    assert states(world) == {"planned": 3}


def test_assets_that_are_launched_one_after_the_other_make_a_dispatch(
    world: Engine, instance: dg.DagsterInstance
):
    assert told(launch(instance, "eligible_leads"), "eligible_leads")["leads"] == 3
    result = launch(instance, "dispatch_plan")
    assert told(result, "dispatch_plan")["dispatched_to_whatsapp"] == 3
    assert all(check.passed for check in checks(result).values())
    assert states(world) == {}
    assert told(launch(instance, "outbox"), "outbox")["messages_created"] == 3
    assert told(launch(instance, "outbox"), "outbox")["messages_created"] == 0
    assert states(world) == {"planned": 3}


def test_a_plan_that_is_made_alone_reads_the_leads_anew(
    world: Engine, instance: dg.DagsterInstance
):
    launch(instance, "eligible_leads", batch_size=2)
    run_sql(
        world,
        "UPDATE gold_companies SET telefon_principal = '+40722' || right(telefon_principal, 6)",
    )
    launch(instance, "dispatch_plan")
    launch(instance, "outbox")
    numbers = {row["recipient"] for row in rows(world, "SELECT recipient FROM outbox_messages")}
    assert len(numbers) == 2  # asked as the last time
    assert all(str(number).startswith("+40722") for number in numbers)


def test_an_old_plan_is_checked_again_before_it_is_written(
    world: Engine, instance: dg.DagsterInstance
):
    launch(instance, "eligible_leads", "dispatch_plan")
    run_sql(world, "UPDATE gold_lead_journey SET lawful_basis = NULL")
    assert told(launch(instance, "outbox"), "outbox")["skip_reasons"] == {"no_lawful_basis": 3}
    assert states(world) == {}


def test_what_was_written_once_puts_nobody_off_a_second_time(
    world: Engine, instance: dg.DagsterInstance
):
    run_sql(world, "UPDATE gold_lead_journey SET lawful_basis = NULL")
    launch(instance)
    run_sql(
        world, "UPDATE gold_lead_journey SET hold_reason = NULL, next_action_at = :t", t=LONG_AGO
    )
    launch(instance, "outbox")
    assert the_row(world, "SELECT DISTINCT hold_reason, next_action_at FROM gold_lead_journey") == {
        "hold_reason": None,
        "next_action_at": LONG_AGO,
    }


# ── Dry runs ──────────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_is_shown_and_is_no_materialisation(world: Engine, instance: dg.DagsterInstance):
    result = launch(instance, dry_run=True)
    assert result.success
    seen = {
        event.event_specific_data.asset_observation.asset_key.to_user_string(): {
            name: value.value
            for name, value in event.event_specific_data.asset_observation.metadata.items()
        }
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION
    }
    assert seen["eligible_leads"]["leads"] == 3
    assert seen["dispatch_plan"]["dispatched_to_whatsapp"] == 3
    launch(instance, "dispatch_plan")  # as it was asked for the last time: dry
    launch(instance, "outbox")
    assert [instance.get_latest_materialization_event(dg.AssetKey(name)) for name in ASSETS] == [
        None
    ] * 3
    assert states(world) == {}


# ── What is wrong with one costs that one ─────────────────────────────────────────────────────


def test_a_lead_whose_step_was_set_back_is_left_out_and_told_and_the_others_go(
    world: Engine, instance: dg.DagsterInstance
):
    launch(instance)
    run_sql(world, "UPDATE outbox_messages SET state = 'sent'")
    odd = rows(world, "SELECT lead_id FROM outbox_messages")[0]["lead_id"]
    run_sql(
        world,
        "UPDATE gold_lead_journey SET open_message = false, next_action_at = :t"
        " WHERE lead_id = :odd",
        t=LONG_AGO,
        odd=odd,
    )
    with world.begin() as conn:
        some_leads(conn, count=2, first=10, at=LONG_AGO)
    result = launch(instance)
    assert told(result, "outbox")["messages_created"] == 2
    assert told(result, "outbox")["skip_reasons"] == {"step_repeated": 1}
    twice = checks(result)["no_lead_is_planned_twice"]
    assert (twice.passed, twice.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert twice.metadata["left_out"].value == {"acme": 1}
    assert twice.metadata["leads"].value == [str(odd)]
    alert = (
        "SELECT tenant_id, subject FROM alerts WHERE kind = 'steps_repeated' AND closed_at IS NULL"
    )
    assert rows(world, alert) == [{"tenant_id": "acme", "subject": "acme"}]
    held = the_row(world, "SELECT hold_reason FROM gold_lead_journey WHERE lead_id = :l", l=odd)
    assert held == {"hold_reason": "step_repeated"}
    # It stays told while the lead waits, and no longer than that.
    launch(instance)
    assert len(rows(world, alert)) == 1
    run_sql(
        world,
        "UPDATE gold_lead_journey SET sequence_step = 1, next_action_at = :t WHERE lead_id = :l",
        t=LONG_AGO,
        l=odd,
    )
    launch(instance)
    assert rows(world, alert) == []


def another_tenant(database: Engine, tenant_id: str = "beta", **tenant: object) -> None:
    with database.begin() as conn:
        a_world(conn, tenant_id=tenant_id, phones=0, **always_open(datetime.now(UTC)) | tenant)
        conn.execute(
            text("""
                INSERT INTO wa_phone_numbers (id, tenant_id, phone_number, timelinesai_account_id)
                VALUES (:t || '-01', :t, '+4079100000' || length(:t), 'x')
            """),
            {"t": tenant_id},
        )
        some_leads(conn, tenant_id, count=2, first=50, at=LONG_AGO)


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ("time_zone = 'Mars/Phobos'", "TenantUnreadable: tenants.time_zone"),
        ("""basis_policy = '{"WHATSAPP": 7}'""", "TenantUnreadable: tenants.basis_policy"),
    ],
)
def test_a_tenant_that_cannot_be_dispatched_is_told_and_the_others_go(
    trouble: str, why: str, world: Engine, instance: dg.DagsterInstance
):
    another_tenant(world)
    without_tenant_checks(world)
    right = the_row(world, "SELECT time_zone, basis_policy::text FROM tenants WHERE id = 'beta'")
    run_sql(world, f"UPDATE tenants SET {trouble} WHERE id = 'beta'")
    result = launch(instance)
    assert told(result, "outbox")["messages_created"] == 3
    assert why in told(result, "eligible_leads")["tenants_in_trouble"]["beta"]
    alert = "SELECT subject, detail FROM alerts WHERE kind = 'dispatch_stuck' AND closed_at IS NULL"
    assert why in str(the_row(world, alert)["detail"])
    assert launch(instance).success  # and it stays so
    run_sql(
        world,
        "UPDATE tenants SET time_zone = :time_zone, basis_policy = CAST(:basis_policy AS jsonb)"
        " WHERE id = 'beta'",
        **right,
    )
    assert told(launch(instance), "outbox")["messages_created"] == 2
    assert rows(world, alert) == []


def test_when_nobody_can_be_dispatched_the_run_fails(world: Engine, instance: dg.DagsterInstance):
    without_tenant_checks(world)
    run_sql(world, "UPDATE tenants SET time_zone = 'Mars/Phobos'")
    assert not launch(instance, raise_on_error=False).success


def test_a_sequence_of_one_tenant_can_be_asked_for_with_all_tenants(
    world: Engine, instance: dg.DagsterInstance
):
    another_tenant(world, "aaaa")
    with world.begin() as conn:
        sequence_id = a_sequence(conn, "acme", name="toamna")
        conn.execute(
            text("UPDATE gold_lead_journey SET current_sequence_id = :s WHERE tenant_id = 'acme'"),
            {"s": sequence_id},
        )
    result = launch(instance, sequence_filter="toamna")
    assert told(result, "eligible_leads")["tenants_without_sequence"] == ["aaaa"]
    assert told(result, "outbox")["messages_created"] == 3
    assert rows(world, "SELECT 1 FROM alerts") == []
    assert not launch(instance, raise_on_error=False, sequence_filter="iarna").success


@pytest.mark.parametrize("number", ["+40721000000", None])
def test_a_step_by_mail_is_never_planned_for_a_telephone_number(
    number: str | None, world: Engine, instance: dg.DagsterInstance
):
    with world.begin() as conn:
        conn.execute(
            text(
                "UPDATE tenants SET channels = '{WHATSAPP,EMAIL}', basis_policy ="
                """ '{"WHATSAPP": ["consent"], "EMAIL": ["consent"]}'"""
            )
        )
        mail = a_sequence(conn, "acme", name="mail")
        conn.execute(
            text("UPDATE sequence_steps SET channel = 'EMAIL' WHERE sequence_id = :s"), {"s": mail}
        )
        conn.execute(
            text("""
                UPDATE gold_companies SET email_principal = 'a@b.ro', email_status = 'valid',
                  hlr_reachable = false, telefon_principal = :number WHERE denumire = 'Firma 0'
            """),
            {"number": number},
        )
        conn.execute(
            text("""
                UPDATE gold_lead_journey SET current_sequence_id = :s
                WHERE lead_id = (SELECT id FROM gold_companies WHERE denumire = 'Firma 0')
            """),
            {"s": mail},
        )
    result = launch(instance)
    assert told(result, "outbox")["messages_created"] == 2
    assert told(result, "outbox")["skip_reasons"] == {"channel_unavailable": 1}
    assert rows(world, "SELECT 1 FROM outbox_messages WHERE channel = 'EMAIL'") == []


def stops_while_it_is_planned(database: Engine) -> None:
    """The first lead says stop in the moment in which its plan is written."""
    run_sql(
        database,
        """
        CREATE FUNCTION say_stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          UPDATE gold_lead_journey SET whatsapp_opted_out = true WHERE lead_id = NEW.lead_id;
          RETURN NULL;
        END $$
        """,
    )
    run_sql(
        database,
        """
        CREATE TRIGGER stops AFTER INSERT ON dispatch_plans FOR EACH ROW
        WHEN (NEW.position = 1) EXECUTE FUNCTION say_stop()
        """,
    )


def test_who_stops_between_plan_and_check_stops_nobody_else(
    world: Engine, instance: dg.DagsterInstance
):
    stops_while_it_is_planned(world)
    result = launch(instance)
    assert told(result, "outbox")["messages_created"] == 2
    assert told(result, "outbox")["skip_reasons"] == {"opted_out": 1}
    passed = {name: check.passed for name, check in checks(result).items()}
    assert passed == dict.fromkeys(CHECKS, True) | {"no_planned_lead_opted_out": False}


def test_a_plan_that_stays_unsound_stops_the_run(
    world: Engine, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
):
    stops_while_it_is_planned(world)
    monkeypatch.setattr(selection, "leave_out", lambda *_: None)  # as if it had no effect
    result = launch(instance, raise_on_error=False)
    assert not result.success
    assert checks(result)["no_planned_lead_opted_out"].severity is dg.AssetCheckSeverity.ERROR
    assert states(world) == {}
