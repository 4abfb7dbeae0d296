"""`python -m cerniq_pipeline.sandbox`: a local stand-in for the outside vendors."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from cerniq_pipeline.sandbox.cast import BadPlay, PlaySettings
from cerniq_pipeline.sandbox.control import BadControl
from cerniq_pipeline.sandbox.desk import Latency
from cerniq_pipeline.sandbox.journal import JournalBroken
from cerniq_pipeline.sandbox.server import Options, run

DEFAULT_PORT = 8900


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until told to stop; prints one line with the port when ready."""
    options = _options(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(run(options))
    except (JournalBroken, BadControl, OSError, ValueError) as error:
        sys.exit(f"sandbox: {error}")


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m cerniq_pipeline.sandbox",
        description="A stand-in for TimelinesAI, Meta and Slack. Nothing leaves this machine.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 picks a free one")
    parser.add_argument("--journal", type=Path, required=True, help="folder of the journal")
    parser.add_argument(
        "--accounts", type=Path, help="JSON list of phones that are linked from the beginning"
    )
    parser.add_argument(
        "--latency-ms",
        type=_latency,
        default=Latency(),
        metavar="MIN-MAX",
        help="how long an answer takes without any fault",
    )
    parser.add_argument(
        "--webhooks", type=Path, help="JSON file of who takes webhooks; read again when it changes"
    )
    parser.add_argument(
        "--play",
        type=_play,
        nargs="?",
        const=PlaySettings(),
        metavar="JSON",
        help='let people answer; how, as in {"seed": 7, "speed": 2}',
    )
    taken = parser.parse_args(arguments)
    return Options(
        host=taken.host,
        port=taken.port,
        journal=taken.journal,
        latency=taken.latency_ms,
        accounts=taken.accounts,
        webhooks=taken.webhooks,
        play=taken.play,
    )


def _play(written: str) -> PlaySettings:
    try:
        return PlaySettings.from_json(json.loads(written))
    except (ValueError, BadPlay) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _latency(written: str) -> Latency:
    shortest, dash, longest = written.partition("-")
    if not (shortest.isdigit() and (longest.isdigit() if dash else True)):
        raise argparse.ArgumentTypeError("like 20-200, or one number")
    low, high = int(shortest), int(longest if dash else shortest)
    if high < low:
        raise argparse.ArgumentTypeError("the smaller number comes first")
    return Latency(timedelta(milliseconds=low), timedelta(milliseconds=high))


if __name__ == "__main__":
    main()
