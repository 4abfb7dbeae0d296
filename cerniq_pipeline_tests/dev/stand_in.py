"""A supervisor over small stand-in children, run as a process of its own by the tests."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

from cerniq_pipeline.dev.embedded import EmbeddedRedis
from cerniq_pipeline.dev.supervisor import (
    Service,
    Supervisor,
    end_leftovers,
    only_supervisor,
)
from cerniq_pipeline.errors import SetupError

# Answers /health with 200 until it is told to be unwell, and has children of its own: one in its
# session, one that left it, as a run worker whose code server was replaced.
SERVER = """
import http.server, signal, subprocess, sys
port, stubborn = int(sys.argv[1]), sys.argv[2] == "stubborn"
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"])
subprocess.Popen(["sleep", "601"], start_new_session=True)

class Handler(http.server.BaseHTTPRequestHandler):
    well = True
    def do_GET(self):
        if self.path == "/fall-ill":
            Handler.well = False
        self.send_response(200 if Handler.well else 503)
        self.end_headers()
    def log_message(self, *_):
        pass

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def is_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def server(name: str, port: int, *, needs: tuple[str, ...] = (), manner: str = "polite") -> Service:
    return Service(
        name,
        (sys.executable, "-c", SERVER, str(port), manner),
        lambda _: is_ok(f"http://127.0.0.1:{port}/health"),
        address=f"http://127.0.0.1:{port}",
        needs=needs,
        patience_seconds=0,
    )


def broken(name: str) -> Service:
    return Service(
        name, (sys.executable, "-c", "raise SystemExit('no such luck')"), lambda _: False
    )


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(data_dir: Path, kind: str, *ports: str) -> None:
    services = {
        "two": lambda a, b: [server("first", a), server("second", b, needs=("first",))],
        "stubborn": lambda a: [server("stubborn", a, manner="stubborn")],
        "broken": lambda a: [server("first", a), broken("second")],
    }[kind](*map(int, ports))
    redis = EmbeddedRedis(data_dir / "redis")
    with only_supervisor(data_dir):
        say(f"leftovers: {end_leftovers(data_dir)}")
        redis.start()
        Supervisor(
            services,
            root=data_dir,
            data_dir=data_dir,
            environment={"GREETING": "hello"},
            servers=[redis],
            say=say,
        ).run(lambda: say("all healthy"))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), *sys.argv[2:])
    except SetupError as error:
        sys.exit(str(error))
