"""How a run is queued and started: as Dagster does it, with a tag and the machine noted."""

from dagster._core.definitions.assets.job.asset_job import is_reserved_asset_job_name
from dagster._core.launcher import DefaultRunLauncher, LaunchRunContext
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext
from dagster._core.storage.dagster_run import DagsterRun

from cerniq_pipeline.defs.running import MACHINE_TAG, alone


class TaggingRunCoordinator(QueuedRunCoordinator):
    """Gives a run that is launched from an asset's page the tags of the job that it is a part of.

    Such a run belongs to a job that Dagster makes up and that nobody can give tags. All our assets
    are the dispatch's, so it waits for a dispatch to end, and goes before shifts.
    """

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        run = context.dagster_run
        if is_reserved_asset_job_name(run.job_name):
            missing = {key: tag for key, tag in alone("dispatch").items() if key not in run.tags}
            self._instance.add_run_tags(run.run_id, missing)
        return super().submit_run(context)


class NotingRunLauncher(DefaultRunLauncher):
    """Notes on which machine a run is started, before anything of it can die.

    A code server behind a socket is on this machine; of any other nothing is known.
    """

    def launch_run(self, context: LaunchRunContext) -> None:
        from cerniq_pipeline.services.leasing import machine

        origin = context.dagster_run.remote_job_origin
        if context.workspace is not None and origin is not None:
            location = context.workspace.get_code_location(origin.location_name)
            if isinstance(location, GrpcServerCodeLocation) and location.socket is not None:
                tags = {MACHINE_TAG: machine()}
                self._instance.add_run_tags(context.dagster_run.run_id, tags)
        super().launch_run(context)
