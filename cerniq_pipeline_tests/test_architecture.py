"""The shape of the package: who may import whom, who may write what, and who may ask the time.

Each rule is a small reader of syntax trees, tried on samples of what it must notice.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "cerniq_pipeline"
MIGRATIONS = PACKAGE / "store" / "migrations" / "versions"

SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
    if MIGRATIONS not in path.parents
}

# ── Who imports whom ──────────────────────────────────────────────────────────────────────────


def test_imports_point_one_way():
    """In a process of its own: the linter reconfigures logging for everybody in its process."""
    lint = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run([lint, "--no-cache"], cwd=PROJECT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


def test_every_module_stands_on_a_floor():
    """A new folder that no contract knows could import anything."""
    contracts = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    named = set(re.findall(r"cerniq_pipeline\.(\w+)", contracts))
    there = {name.partition("/")[0].removesuffix(".py") for name in SOURCES} - {"__init__"}
    assert there <= named


# ── What nobody does ──────────────────────────────────────────────────────────────────────────


def prints(source: str) -> list[int]:
    """Lines that print."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("print", "pprint")
    ]


def test_nothing_prints():
    assert prints("def f():\n    print('x')") == [2]
    assert {name: prints(source) for name, source in SOURCES.items() if prints(source)} == {}


def test_every_module_is_named_after_what_it_holds():
    shapeless = {"utils", "util", "helpers", "helper", "misc", "common"}
    assert [name for name in SOURCES if shapeless & set(re.split(r"[/.]", name))] == []


def test_no_import_is_relative():
    relative = [
        name
        for name, source in SOURCES.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_definitions_do_not_postpone_their_annotations():
    """Dagster reads the annotations of an op to find its configuration, and must find classes."""
    postponed = re.compile(r"^from __future__ import .*annotations", re.MULTILINE)
    there = [name for name in SOURCES if name.startswith("defs/")]
    assert there
    assert [name for name in there if postponed.search(SOURCES[name])] == []


_STORED = re.compile(r"^dg\.(op|asset|asset_check|sensor|schedule)\b")
_CAREFUL = {"wordless", "stoppable", "finishing"}


def careless(source: str) -> list[str]:
    """Functions whose errors Dagster stores as they come, with whatever a person wrote in them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            if any(map(_STORED.match, marks)) and not _CAREFUL & set(marks):
                found.append(node.name)
    return found


def test_no_error_reaches_dagster_with_its_words():
    assert careless("@dg.sensor(job=x)\ndef tick(): ...") == ["tick"]
    assert careless("@dg.op\n@stoppable\ndef work(): ...") == []
    there = {name: careless(source) for name, source in SOURCES.items() if careless(source)}
    assert there == {}


# ── Who moves a message ───────────────────────────────────────────────────────────────────────

MAY_WRITE_MESSAGES = {
    "store/outbox.py",  # every move of one message
    "store/selection.py",  # plans thousands in one statement
    "store/failover.py",  # gives waiting ones to another phone
    "store/person_data.py",  # takes a person out of messages that came to their end
    "store/replacements.py",  # puts a new one in the place of one that came to its end
}
_WRITES = re.compile(
    r"\b(insert\s+into|update|delete\s+from|merge\s+into|copy)\s+outbox_messages\b", re.IGNORECASE
)


def writes_messages(source: str) -> list[int]:
    """Lines with SQL that changes outbox messages, or that take hold of their table."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(sql)) if _WRITES.search(sql):
                found.append(node.lineno)
            case ast.Name(id="outbox_messages") | ast.Attribute(attr="outbox_messages"):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "source",
    [
        "text('UPDATE outbox_messages SET state = 1')",
        'f"""\n  insert  into\n  outbox_messages ({columns})"""',
        "'DELETE FROM outbox_messages'",
        "update(outbox_messages)",
        "schema.outbox_messages.delete()",
    ],
)
def test_a_write_to_the_outbox_is_noticed(source: str):
    assert writes_messages(source)


def test_only_these_modules_write_messages():
    writers = {name for name, source in SOURCES.items() if writes_messages(source)}
    assert writers - {"store/schema.py"} == MAY_WRITE_MESSAGES  # the schema has the table, no rows


# ── Who asks the time ─────────────────────────────────────────────────────────────────────────

CLOCKS = {
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"),
    *("datetime.date.today", "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns"),
    *("time.perf_counter", "time.perf_counter_ns", "time.localtime", "time.gmtime", "time.sleep"),
}
BELOW_DEFS = ("domain/", "store/", "services/", "providers/")
MAY_ASK = {
    # DatabaseClock: whether this machine's clock jumped; and the real sleep.
    "store/database.py": {"time.time", "time.sleep"},
    # A benchmark measures the machine, not the business.
    "services/bench_dispatch.py": {"time.perf_counter"},
}


def clocks_asked(source: str) -> set[str]:
    """The system clocks that a module asks, however it spells them."""
    tree = ast.parse(source)
    names = dict(_imported_names(tree))
    asked = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            head, dot, rest = ast.unparse(node).partition(".")
            asked.add(names.get(head, head) + dot + rest)
    return asked & CLOCKS


def _imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (
                (alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names
            )


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime\ndatetime.now(UTC)",
        "import datetime\ndatetime.datetime.now()",
        "import datetime as dt\ndt.datetime.utcnow()",
        "from datetime import datetime as moment\nmoment.now()",
        "from datetime import date\ndate.today()",
        "import time\ntime.time()",
        "import time as t\nt.sleep(1)",
        "from time import monotonic\nmonotonic()",
        "from time import time as seconds\nclock = seconds",
    ],
)
def test_a_look_at_the_system_clock_is_noticed(source: str):
    assert clocks_asked(source)


def test_arithmetic_with_instants_is_no_look_at_a_clock():
    assert clocks_asked("from datetime import datetime\ndatetime.fromtimestamp(7)") == set()
    assert clocks_asked("def f(clock):\n    return clock.now(), clock.sleep(1)") == set()


def test_nothing_below_the_definitions_reads_the_system_clock():
    asked = {
        name: clocks_asked(source)
        for name, source in SOURCES.items()
        if name.startswith(BELOW_DEFS) and clocks_asked(source)
    }
    assert asked == MAY_ASK
