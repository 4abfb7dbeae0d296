"""What is launched from an asset's page keeps to the limits of the dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.run_coordinator import SubmitRunContext

from cerniq_pipeline.definitions import defs
from cerniq_pipeline.defs.leads import GROUP
from cerniq_pipeline.defs.running import alone
from cerniq_pipeline.dev.product import DEFINITIONS

PROJECT = Path(__file__).parent.parent.parent


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that queues runs as ours does."""
    ours = yaml.safe_load((PROJECT / "dagster.yaml").read_text(encoding="utf-8"))
    with dg.instance_for_test({"run_coordinator": ours["run_coordinator"]}) as instance:
        yield instance


@pytest.mark.parametrize(
    ("job", "tags"),
    [("__ASSET_JOB", alone("dispatch")), ("drain_inbox", {"cerniq/single": None})],
)
def test_a_run_from_an_assets_page_waits_like_a_dispatch(
    job: str, tags: dict[str, str | None], instance: dg.DagsterInstance
):
    definition = defs.get_repository_def().get_job(job)
    server = GrpcServerCodeLocationOrigin(host="localhost", port=1, location_name="cerniq")
    origin = RemoteRepositoryOrigin(server, "__repository__").get_job_origin(job)
    code = ReconstructableJob(ReconstructableRepository.for_module(DEFINITIONS, "defs"), job)
    run = instance.create_run_for_job(
        definition, remote_job_origin=origin, job_code_origin=code.get_python_origin()
    )
    instance.run_coordinator.submit_run(SubmitRunContext(run, workspace=None))
    queued = instance.get_run_by_id(run.run_id)
    assert queued is not None
    assert queued.status is dg.DagsterRunStatus.QUEUED
    assert {key: queued.tags.get(key) for key in tags} == tags


def test_every_asset_belongs_to_the_dispatch():
    graph = defs.resolve_asset_graph()
    assert {graph.get(key).group_name for key in graph.get_all_asset_keys()} == {GROUP}
