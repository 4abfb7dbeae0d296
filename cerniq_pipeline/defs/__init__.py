"""Dagster's side of Cerniq: assets, jobs, sensors, schedules, and what they need."""

import warnings

from dagster_shared.utils.warnings import BetaWarning

# `dg.sensor` hands on a parameter that is in beta, also when nobody gives it: every process would
# warn of each sensor at its start.
warnings.filterwarnings(
    "ignore", message=r"Parameter `owners` of initializer `SensorDefinition", category=BetaWarning
)
