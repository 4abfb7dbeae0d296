"""`cerniq web`: the service that providers call."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from cerniq_pipeline.cli.context import console, settings


def web(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8000,
) -> None:
    """Take webhooks in until Ctrl-C; put a proxy with TLS in front of it."""
    from cerniq_pipeline.settings import Settings
    from cerniq_pipeline.web.service import serve

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )

    def ready(address: str) -> None:
        console.print(f"listening on {address}", markup=False, highlight=False, soft_wrap=True)

    def load() -> Settings:
        return Settings()  # pyright: ignore[reportCallIssue]

    serve(settings(), host=host, port=port, load=load, ready=ready)
