"""The fault matrix: every way to fail that we know of, at random moments, judged by the journal.

`python -m cerniq_pipeline_tests.faults.matrix --help` says how to run it; `docs/faults.md` how to
read it.
"""
