"""`cerniq stop` is the fastest thing that the command does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import Engine

from cerniq_pipeline_tests.builders import a_world, some_leads, the_row

NEEDS_NONE_OF = ("dagster", "fastapi", "httpx", "openpyxl", "pandas", "psutil", "redis", "alembic")
SCRIPT = f"""
import sys
from cerniq_pipeline.cli import app
from cerniq_pipeline.domain import wording
app(["stop", "+40721000000"], standalone_mode=False)
print("loaded:", *sorted(set({NEEDS_NONE_OF}) & set(sys.modules)))
print("phrases:", wording._pattern.cache_info().currsize)
"""


def test_a_stop_loads_nothing_but_what_it_needs(
    database: Engine, database_url: str, tmp_path: Path
):
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn)
    settings = {
        "CERNIQ_DATABASE_URL": database_url,
        "CERNIQ_REDIS_URL": "unix:///nowhere",
        "CERNIQ_SECRET_KEY": "a key of the tests",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Loading is most of what a stop costs: with twenty phones at work it took seconds.
    assert done.stdout.splitlines()[-2:] == ["loaded:", "phrases: 0"]
    assert the_row(database, "SELECT whatsapp_opted_out FROM gold_lead_journey") == {
        "whatsapp_opted_out": True
    }
