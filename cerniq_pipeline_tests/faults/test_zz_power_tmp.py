"""Run the state machine under each mutant: how soon is it found?"""
import os, sys, time
import pytest
from hypothesis import settings, HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test
from cerniq_pipeline_tests.faults import mutants
from cerniq_pipeline_tests.faults.puppets import Stage
from cerniq_pipeline_tests.faults.test_state_machine import Outreach, DAILY_LIMIT
NAMES = os.environ.get("MUT","retry_on_silence rescue_sends_again nobody_rescues takeover_spares_the_holder no_lease crash_forgets_the_gap silence_costs_no_quota redis_is_the_truth opt_out_stops_planning_only opt_out_cancels_only absent_is_sent_again").split()
N = int(os.environ.get("N","40"))
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", NAMES)
def test_power(name, database, redis, sandbox, monkeypatch):
    getattr(mutants, name)(monkeypatch, database)
    runs = [0]
    class Here(Outreach):
        def __init__(self):
            runs[0]+=1
            super().__init__(Stage(database, redis, sandbox, limit=DAILY_LIMIT))
    t=time.time()
    try:
        run_state_machine_as_test(Here, settings=settings(max_examples=N, stateful_step_count=40, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)))
    except BaseException as e:
        m = str(e)[:60].replace("\n"," ")
        sys.__stderr__.write(f"\n{name}: FOUND after {runs[0]} runs {time.time()-t:.0f}s {type(e).__name__} {m}\n")
    else:
        sys.__stderr__.write(f"\n{name}: not found in {runs[0]} runs {time.time()-t:.0f}s\n")
