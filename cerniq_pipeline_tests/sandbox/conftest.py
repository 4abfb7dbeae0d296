"""One sandbox for a whole module of tests, emptied before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cerniq_pipeline_tests.sandbox.receiver import Receiver
from cerniq_pipeline_tests.sandbox.running import RunningSandbox


@pytest.fixture(scope="module")
def shared_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    with RunningSandbox(tmp_path_factory.mktemp("sandbox")) as running:
        yield running


@pytest.fixture
def sandbox(shared_sandbox: RunningSandbox) -> RunningSandbox:
    shared_sandbox.reset()
    return shared_sandbox


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A web service of the test's own."""
    with Receiver() as listening:
        yield listening
