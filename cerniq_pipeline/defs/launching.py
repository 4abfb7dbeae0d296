"""How a run is started: as Dagster does it, with the machine noted."""

from dagster._core.launcher import DefaultRunLauncher, LaunchRunContext
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation

from cerniq_pipeline.defs.running import MACHINE_TAG


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
