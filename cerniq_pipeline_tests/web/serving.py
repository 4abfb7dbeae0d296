"""`python -m cerniq_pipeline_tests.web.serving`: the real web service, with limits of a test."""

from __future__ import annotations

import json
import logging
import sys

from cerniq_pipeline.settings import Settings
from cerniq_pipeline.web.limits import Limits
from cerniq_pipeline.web.service import serve


def load() -> Settings:
    return Settings()  # pyright: ignore[reportCallIssue]


def ready(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    limits = Limits(**json.loads(sys.argv[1]))
    serve(load(), host="127.0.0.1", port=int(sys.argv[2]), load=load, ready=ready, limits=limits)
