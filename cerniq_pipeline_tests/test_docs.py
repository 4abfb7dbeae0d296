"""The documents say what the code does: names, defaults, commands and statements are tried."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import pytest
import typer
from fastapi.routing import APIRoute
from redis import Redis
from sqlalchemy import Engine, Table, make_url

from cerniq_pipeline import demo_content
from cerniq_pipeline.cli import app
from cerniq_pipeline.definitions import defs
from cerniq_pipeline.dev.embedded import _postgres_install
from cerniq_pipeline.domain import address, templates
from cerniq_pipeline.domain.alerts import SENTENCES
from cerniq_pipeline.domain.contacts import canonical_address
from cerniq_pipeline.domain.conversations import MEANINGS
from cerniq_pipeline.domain.events import Kind, WebhookReader
from cerniq_pipeline.domain.outbox import LEGAL_MOVES
from cerniq_pipeline.domain.pacing import RETRY_RULES, RetryRule
from cerniq_pipeline.domain.refusals import REFUSED_BY_PHONES
from cerniq_pipeline.domain.selection import Skip
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline.sandbox.faults import KINDS as FAULTS
from cerniq_pipeline.services import checkpoints
from cerniq_pipeline.services.drain import FIRST_PAUSE, TRIES, handle_waiting
from cerniq_pipeline.services.history import sweep_all
from cerniq_pipeline.services.phone_status import sync
from cerniq_pipeline.settings import Settings
from cerniq_pipeline.store import dead_letters, schema
from cerniq_pipeline.web.keyring import SECRETS
from cerniq_pipeline.web.pages import ROUTERS
from cerniq_pipeline.web.webhooks import DOORS, PREFIX
from cerniq_pipeline_tests.builders import (
    NOON,
    ManualClock,
    a_desk,
    an_office,
    rows,
    some_leads,
    the_row,
)
from cerniq_pipeline_tests.faults.matrix.table import SCENARIOS
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PROJECT = Path(__file__).parent.parent
TESTS = PROJECT / "cerniq_pipeline_tests"
PAGES = {
    path.relative_to(PROJECT).as_posix(): path.read_text(encoding="utf-8")
    for path in [PROJECT / "README.md", PROJECT / "CHANGELOG.md", *PROJECT.glob("docs/**/*.md")]
}

# ── Reading Markdown ──────────────────────────────────────────────────────────────────────────

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def part(page: str, heading: str) -> str:
    """The text below one heading, up to the next one of the same depth or higher."""
    found = re.search(rf"^(#+) {re.escape(heading)}$", PAGES[page], re.MULTILINE)
    assert found, f"{page} has no heading {heading!r}"
    rest = PAGES[page][found.end() :]
    depth = len(found[1])
    end = re.search(rf"^#{{1,{depth}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def table(text: str, first_column: str) -> list[dict[str, str]]:
    """The rows of the table whose first column has this name."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(f"| {first_column} |"):
            names = _cells(line)
            next(lines)
            found = []
            for row in lines:
                if not row.startswith("|"):
                    break
                found.append(dict(zip(names, _cells(row), strict=True)))
            return found
    raise AssertionError(f"no table with a column {first_column!r}")


def _cells(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    return [cell.strip().replace(r"\|", "|") for cell in cells]


def code(cell: str) -> list[str]:
    """What stands in backticks."""
    return _SPAN.findall(cell)


def blocks(text: str, language: str) -> list[str]:
    """Code blocks of one language."""
    return [body for kind, body in _FENCE.findall(text) if kind == language]


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# ── Settings ──────────────────────────────────────────────────────────────────────────────────


def documented_settings() -> dict[str, dict[str, str]]:
    found = table(part("docs/settings.md", "Environment"), "variable")
    return {code(row["variable"])[0]: row for row in found}


def shown_default(default: object) -> str:
    if default is None:
        return "unset"
    return f"`{default}`" if str(default) else "empty"


def test_every_setting_is_documented_and_nothing_else_is():
    names = [f"CERNIQ_{name.upper()}" for name in Settings.model_fields]
    assert list(documented_settings()) == names


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_has_its_default_its_values_and_a_meaning(name: str):
    field, row = Settings.model_fields[name], documented_settings()[f"CERNIQ_{name.upper()}"]
    assert row["default"] == ("required" if field.is_required() else shown_default(field.default))
    if choices := [*_choices(field.annotation)]:
        assert code(row["type"]) == choices
    is_number = not {int, float}.isdisjoint(_types(field.annotation))
    assert bool(row["unit"]) == is_number, "a number has a unit, and nothing else has"
    assert row["meaning"].endswith(".")


def _choices(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _types(inner)


def test_every_setting_that_a_page_names_exists():
    known = set(documented_settings())
    for page, text in PAGES.items():
        named = set(re.findall(r"CERNIQ_[A-Z_]*[A-Z]", text))
        assert named <= known, page


@pytest.mark.parametrize(
    ("heading", "described"),
    [("Per tenant", schema.tenants), ("Per phone", schema.wa_phone_numbers)],
)
def test_a_column_that_can_be_set_has_the_default_of_the_schema(heading: str, described: Table):
    for row in table(part("docs/settings.md", heading), "column"):
        (name,) = code(row["column"])
        assert row["default"] == shown_server_default(described, name), name
        assert row["meaning"]


def test_every_rule_of_a_tenant_is_documented():
    listed = [
        code(row["column"])[0] for row in table(part("docs/settings.md", "Per tenant"), "column")
    ]
    assert sorted(listed) == sorted(
        column.name
        for column in schema.tenants.columns
        if column.name not in ("id", "name", "created_at")
    )


def shown_server_default(described: Table, name: str) -> str:
    default = described.columns[name].server_default
    if default is None:
        return "null"
    written = str(default.arg)  # pyright: ignore[reportAttributeAccessIssue]
    return f"`{written.strip(chr(39))}`"


# ── Coverage ──────────────────────────────────────────────────────────────────────────────────

_IDS = re.compile(r"\S+")
WORKS = _IDS.findall(
    "A1 A2 A3 A4 B5 B6 B7 B8 C9 C10 C11 C12 C13 C14 C15 F24 F25 F26 G27 G28 G29 G30 H31 H32 "
    "I35 I36 K44 K45 M1 M2 M3 M5 M6 X1 X2"
)
LATER = _IDS.findall(
    "D16 D17 D18 D19 D20 E21 E22 E23 H33 H34 I37 "
    "J38 J39 J40 K41 K42 K43 K46 L47 L48-49 L50 P51 P52 M4 T1 T2 T3 T4 T5 T6"
)


def test_every_part_of_the_documents_is_listed_once():
    assert [row["id"] for row in table(part("docs/coverage.md", "Works"), "id")] == WORKS
    later = table(part("docs/coverage.md", "Later"), "id")
    assert [row["id"] for row in later] == LATER
    assert {row["state"] for row in later} == {"later"}


@pytest.mark.parametrize(
    "row", table(part("docs/coverage.md", "Works"), "id"), ids=lambda row: row["id"]
)
def test_what_works_names_a_module_a_definition_and_a_test_that_exist(row: dict[str, str]):
    modules = code(row["module"])
    definitions = code(row["Dagster definition, command or address"])
    tests = code(row["test"])
    assert modules
    assert definitions
    assert tests
    assert [path for path in modules if not (PROJECT / path).is_file()] == []
    for name in definitions:
        if name.startswith("cerniq "):
            resolve_command(shlex.split(name)[1:])
        elif "/" in name:
            assert name in addresses()
        else:
            assert name in dagster_names()
    for test in tests:
        path, _, name = test.partition("::")
        assert name in functions_of(TESTS / path), test


def dagster_names() -> set[str]:
    repository = defs.get_repository_def()
    graph = defs.resolve_asset_graph()
    return {
        *(job.name for job in repository.get_all_jobs()),
        *(schedule.name for schedule in repository.schedule_defs),
        *(sensor.name for sensor in repository.sensor_defs),
        *(key.to_user_string() for key in graph.get_all_asset_keys()),
        *(key.name for key in graph.asset_check_keys),
    }


def addresses() -> set[str]:
    """What the world may call: a method and a path for each."""
    doors = {f"{method} {PREFIX}{name}" for name, door in DOORS.items() for method in door.methods}
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return doors | {f"{method} {route.path}" for route in routes for method in route.methods or ()}


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


# ── Commands ──────────────────────────────────────────────────────────────────────────────────


def resolve_command(words: list[str]) -> None:
    """Follow these words to a command; fails when there is none, or when it lacks an option."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and not rest[0].startswith("-") and (commands := getattr(command, "commands", None)):
        assert rest[0] in commands, f"there is no command {rest[0]!r}"
        command = commands[rest.pop(0)]
    known = {option for param in command.params for option in param.opts}
    used = {word.partition("=")[0] for word in rest if word.startswith("--")} - {"--help"}
    assert used <= known, f"{command.name} has no option {used - known}"


def mentioned_commands(text: str) -> Iterator[list[str]]:
    """Every call of `cerniq` in code: in the line, and in blocks for a shell."""
    whole = [block.replace("\\\n", " ") for block in blocks(text, "bash")]
    lines = [line for block in whole for line in block.splitlines()]
    for line in [*lines, *_SPAN.findall(_FENCE.sub("", text))]:
        words = shlex.split(line, comments=True)
        if len(words) > 1 and words[0] in ("cerniq", ".venv/bin/cerniq"):
            yield words[1:]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_mentions_exists(page: str):
    for words in mentioned_commands(PAGES[page]):
        resolve_command(words)


def test_every_command_is_mentioned_somewhere():
    mentioned = {
        tuple(words[:2]) for text in PAGES.values() for words in mentioned_commands(text)
    } | {tuple(words[:1]) for text in PAGES.values() for words in mentioned_commands(text)}
    assert [words for words in every_command() if words not in mentioned] == []


def every_command() -> Iterator[tuple[str, ...]]:
    """The words of every command that does something itself."""
    for name, command in typer.main.get_command(app).commands.items():  # pyright: ignore
        inner = getattr(command, "commands", None)
        if inner is None:
            yield (name,)
        else:
            yield from ((name, each) for each in inner)


def test_a_command_that_does_not_exist_is_noticed():
    (words,) = mentioned_commands("Type `cerniq conjure --all` and wait.")
    with pytest.raises(AssertionError, match="conjure"):
        resolve_command(words)
    with pytest.raises(AssertionError, match="--all"):
        resolve_command(["status", "--all"])


def test_the_readme_has_the_two_commands():
    assert [
        line.split("#")[0].strip() for line in blocks(PAGES["README.md"], "bash")[0].splitlines()
    ] == [
        "make dev",
        "make test",
    ]


def test_every_make_target_that_a_page_mentions_exists():
    targets = set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    for page, text in PAGES.items():
        spans = [*_SPAN.findall(_FENCE.sub("", text)), *blocks(text, "bash")]
        named = {
            name for span in spans for name in re.findall(r"^make ([a-z]+)", span, re.MULTILINE)
        }
        assert named <= targets, page


# ── Links, paths and addresses ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str):
    for target in _LINK.findall(_FENCE.sub("", PAGES[page])):
        path, _, anchor = target.partition("#")
        goal = (PROJECT / page).parent / path if path else PROJECT / page
        assert goal.exists(), f"{page}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", goal.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_no_page_shows_a_machine_or_an_address_outside(page: str):
    text = PAGES[page]
    assert re.findall(r"(?<![\w.$}])/(?:home|root|work|tmp|Users|usr|var|opt|mnt)/\S*", text) == []
    hosts = {urlsplit(url).hostname for url in re.findall(r"https?://[^\s`)>|]+", text)}
    assert hosts <= {"127.0.0.1"}
    assert re.findall(r"(?i)pypi|pythonhosted|index-url|artifactory", text) == []


def test_every_decision_is_in_the_index():
    pages = sorted(path.name for path in PROJECT.glob("docs/adr/0*.md"))
    assert _LINK.findall(PAGES["docs/adr/README.md"]) == pages
    assert [name[:4] for name in pages] == [f"{n:04d}" for n in range(1, len(pages) + 1)]
    for name in pages:
        headings = re.findall(r"^#+ (.+)$", PAGES[f"docs/adr/{name}"], re.MULTILINE)
        assert headings[0].startswith(name[:4])
        assert headings[1:] == ["Trouble", "Decision", "What follows"]


# ── What the pages say about the core ─────────────────────────────────────────────────────────


def test_the_states_and_moves_are_those_of_the_code():
    shown = {
        row["from"]: {state for state in row["to"].split(", ") if state}
        for row in table(part("docs/architecture.md", "The states of a message"), "from")
    }
    assert shown == {state.value: {s.value for s in moves} for state, moves in LEGAL_MOVES.items()}


def test_every_point_at_which_a_process_may_die_is_described():
    found = table(part("docs/architecture.md", "When a process dies"), "it dies at")
    points = [code(row["it dies at"])[0] for row in found]
    assert sorted(points) == sorted(checkpoints.NAMES)


def test_every_way_to_try_again_is_described():
    found = table(part("docs/architecture.md", "The three beats of a send"), "code")
    shown = {
        code(row["code"])[0]: RetryRule(
            retries=int(row["tries after the first"]),
            first_delay=timedelta(seconds=int(row["first wait"].removesuffix(" s"))),
            factor={"the same": 1, "doubled": 2}[row["then"]],
        )
        for row in found
    }
    assert shown == RETRY_RULES


def test_every_schedule_and_sensor_is_in_the_architecture():
    repository = defs.get_repository_def()
    ticking = [*repository.schedule_defs, *repository.sensor_defs]
    page = PAGES["docs/architecture.md"]
    assert [each.name for each in ticking if not re.search(rf"\b{each.name}\b", page)] == []


def test_every_row_of_the_fault_matrix_is_described():
    described = [int(row["row"]) for row in table(part("docs/faults.md", "The rows"), "row")]
    assert described == [scenario.row for scenario in SCENARIOS]


def calls(*names: str) -> Iterator[ast.Call]:
    """Every call in the package to something of these names."""
    for path in (PROJECT / "cerniq_pipeline").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if called in names and "sandbox" not in path.parts:
                    yield node


def constants(nodes: Iterator[ast.expr]) -> set[str]:
    """The words that stand there as they are, also as one of two choices."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.IfExp):
            found |= constants(iter((node.body, node.orelse)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_every_rule_that_why_can_name_is_in_the_runbook():
    explained = set(code(part("docs/runbook.md", "Read `cerniq why`")))
    literal = constants(call.args[0] for call in calls("Hold"))
    put_together = {"person_pressure", "company_pressure"}
    put_together |= {"rate_limit", "retry_limit", "media_limit"}
    put_together |= {meaning.ends for meaning in MEANINGS.values() if meaning.ends}
    reasons = constants(
        keyword.value
        for call in calls("after_message", "end_sequence", "end_automation")
        for keyword in call.keywords
        if keyword.arg in ("reason", "hold_reason")
    )
    assert {"pacing", "parked", "breaker_open", "too_alike", "unheard_reply"} <= literal
    assert {"failed", "opted_out"} <= reasons
    assert {"reply", "human_takeover"} <= put_together
    skips = {skip.value for skip in Skip}
    assert (literal | put_together | reasons | skips) - explained == set()


def test_every_alert_is_in_the_runbook():
    found = table(part("docs/runbook.md", "Alerts"), "alert")
    shown = [kind for row in found for kind in code(row["alert"])]
    assert sorted(shown) == sorted(SENTENCES)
    opened = constants(
        keyword.value
        for call in calls("open_once")
        for keyword in call.keywords
        if keyword.arg == "kind"
    )
    assert "texts_too_alike" in opened
    assert opened <= set(shown)


def test_every_code_of_a_dead_letter_is_in_the_runbook():
    found = table(part("docs/runbook.md", "Dead letters"), "code")
    shown = {name for row in found for name in code(row["code"])}
    refused = constants(call.args[0] for call in calls("never", "SendRejected") if call.args)
    buried = constants(
        keyword.value
        for call in calls("bury")
        for keyword in call.keywords
        if keyword.arg == "code"
    )
    assert {"INVALID_RECIPIENT_NUMBER", "INVALID_MEDIA"} <= refused
    assert "INVALID_LEAD" in buried
    of_slack = {"BAD_ADDRESS"}
    later = {"RETRIES_EXHAUSTED", "FAILED_LATER", REFUSED_BY_PHONES}
    assert (refused | buried | dead_letters.EVENT_CODES | later) - of_slack == shown
    assert set(code(part("docs/runbook.md", "Dead letters"))) >= dead_letters.REVIEW_REQUIRED


# ── What the pages say about replies ──────────────────────────────────────────────────────────


def webhooks_in_the_runbook() -> dict[str, dict[str, str]]:
    """By address: what the runbook says of connecting a provider."""
    found = table(part("docs/runbook.md", "Connect a provider's webhooks"), "provider")
    return {code(row["tell it this address"])[0]: row for row in found}


def test_every_address_that_providers_call_is_in_the_runbook():
    assert sorted(webhooks_in_the_runbook()) == sorted(f"{PREFIX}{name}" for name in DOORS)


@pytest.mark.parametrize("name", DOORS)
def test_an_address_is_listed_with_the_secret_without_which_it_does_not_exist(name: str):
    row = webhooks_in_the_runbook()[f"{PREFIX}{name}"]
    assert f"CERNIQ_{SECRETS[DOORS[name].provider].upper()}" in code(row["and set"])
    assert row["how it is believed"]


def test_every_kind_of_event_is_described_and_nothing_else_is():
    found = table(part("docs/architecture.md", "The inbox"), "kind")
    assert [kind for row in found for kind in code(row["kind"])] == list(Kind)
    assert all(row["what follows"] for row in found)


def test_the_pauses_between_the_tries_of_an_event_are_those_of_the_code():
    *first, last = [FIRST_PAUSE * 4**tries // timedelta(seconds=1) for tries in range(TRIES - 1)]
    said = f"after {', '.join(map(str, first))} and {last} seconds"
    assert said in " ".join(part("docs/architecture.md", "The inbox").split())


def test_the_readme_lets_anybody_be_the_person(sandbox: RunningSandbox):
    (curl,) = [block for block in blocks(PAGES["README.md"], "bash") if "/inbound" in block]
    *asked, address_of_it, _, body = shlex.split(curl.replace("\\\n", " "))
    assert asked == ["curl", "-X", "POST"]
    assert json.loads(body)["account"] in demo_content.PHONES
    sandbox.client.post(urlsplit(address_of_it).path, json=json.loads(body)).raise_for_status()


def test_the_runbook_knows_how_to_play_with_the_sandbox(sandbox: RunningSandbox):
    (play,) = blocks(part("docs/runbook.md", "Play with the sandbox"), "bash")
    box, *calls_of_it = play.splitlines()
    prefix = urlsplit(box.removeprefix("BOX=")).path
    for line in calls_of_it:
        words = shlex.split(line.replace("$BOX", prefix), comments=True)[1:]
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        path = next(word for word in words if word.startswith(prefix))
        content = words[words.index("-d") + 1] if "-d" in words else None
        sandbox.client.request(method, path, content=content).raise_for_status()
    kinds = re.findall(r"webhook_[a-z]+", part("docs/runbook.md", "Play with the sandbox"))
    assert sorted(set(kinds)) == sorted(name for name in FAULTS if FAULTS[name].webhook)


# ── The runbook's statements, tried on a real database ────────────────────────────────────────

READERS: dict[str, WebhookReader] = {"timelinesai": TimelinesAIWebhooks(("token",))}


def psql(database_url: str, script: str, **values: object) -> str:
    """Run a block as it would be pasted, with other values in its \\set lines."""
    for name, value in values.items():
        script, changed = re.subn(
            rf"^\\set {name} .*$", f"\\\\set {name} '{value}'", script, flags=re.M
        )
        assert changed, f"no \\set {name}"
    url = make_url(database_url)
    ran = subprocess.run(
        [str(_postgres_install() / "bin" / "psql"), "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1",
         "-h", str(url.query["host"]), "-U", str(url.username), "-d", str(url.database)],
        input=script, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def sql(heading: str) -> list[str]:
    return blocks(part("docs/runbook.md", heading), "sql")


def test_the_switch_stops_sending(
    database: Engine, database_url: str, redis: Redis, sandbox: RunningSandbox
):
    office = an_office(database, redis, sandbox)
    (stop,) = sql("Stop everything")
    psql(database_url, stop)
    assert office.held().rule == "switched_off"


def test_what_people_wrote_is_listed(
    database: Engine, database_url: str, redis: Redis, sandbox: RunningSandbox
):
    office = an_office(database, redis, sandbox)
    message = office.claimed()
    sandbox.inbound(message.sender, message.to, "STOP, vă rog", at=office.clock.now())
    sandbox.inbound(message.sender, message.to, "Sigur", by_hand=True, at=office.clock.now())
    sweep_all(office.desk, longest=timedelta(minutes=1))
    handle_waiting(office.desk, READERS)
    (show,) = sql("Somebody asks not to be contacted")
    (line,) = psql(database_url, show).splitlines()
    assert line.endswith(f"|{message.sender}|{canonical_address(message.to)}|STOP, vă rog")


def test_a_restored_database_has_nothing_waiting(
    database: Engine, database_url: str, redis: Redis, sandbox: RunningSandbox
):
    office = an_office(database, redis, sandbox, leads=3)
    with database.begin() as conn:
        some_leads(conn, count=2, first=50)
    (clear,) = sql("Back up and restore")
    psql(database_url, clear)
    assert {row["state"] for row in rows(database, "SELECT state FROM outbox_messages")} == {
        "cancelled"
    }
    assert rows(database, "SELECT 1 FROM gold_lead_journey WHERE next_action_at IS NOT NULL") == []
    assert len(rows(database, "SELECT 1 FROM outbox_changes")) == 3
    assert not hasattr(office.claim(), "body")


def prepare_a_tenant(database_url: str) -> None:
    (prepare,) = sql("Prepare a tenant of your own")
    psql(database_url, prepare)


def test_a_tenant_is_prepared_with_texts_that_pass_their_validation(
    database: Engine, database_url: str
):
    prepare_a_tenant(database_url)
    steps = rows(
        database,
        """SELECT s.step, t.content FROM tenants n
           JOIN sequence_steps s ON s.sequence_id = n.default_sequence_id
           JOIN templates t ON t.id = s.template_id WHERE n.id = 'agro' ORDER BY 1""",
    )
    assert [row["step"] for row in steps] == [1, 2]
    known = address.values_for(
        company_name="Firma", contact_name=None, county=None, city=None, custom={}
    )
    for row in steps:
        found = templates.problems(str(row["content"]), known=known, first_message=row["step"] == 1)
        assert found == ()


def test_the_sandbox_is_told_of_new_phones_and_finds_them_linked(
    database: Engine, database_url: str, redis: Redis, sandbox: RunningSandbox
):
    prepare_a_tenant(database_url)
    (at_meta,) = sql("A number at Meta")
    psql(database_url, at_meta)
    desk = a_desk(database, redis, sandbox, ManualClock(NOON))
    before = {change.phone_id: change for change in sync(desk)}
    assert before["agro-01"].status == "OFFLINE"
    assert before["agro-02"].error  # Meta has never heard of it, and says nothing about it

    (curl,) = blocks(part("docs/runbook.md", "Prepare a tenant of your own"), "bash")
    *asked, address_of_it, _, body = shlex.split(curl.replace("\\\n", " "))
    assert asked == ["curl", "-X", "PUT"]
    accounts = [*json.loads(body), {"phone": "+40712345679", "provider": "meta"}]
    sandbox.client.put(urlsplit(address_of_it).path, json=accounts).raise_for_status()

    desk = a_desk(database, redis, sandbox, ManualClock(NOON + timedelta(minutes=10)))
    assert {(change.status, change.error) for change in sync(desk)} == {("ACTIVE", None)}
    template = the_row(database, "SELECT * FROM templates WHERE approved_name IS NOT NULL")
    assert set(template["approved_parameters"]) <= set(address.KNOWN_VARIABLES)  # pyright: ignore
