"""The fault matrix in short: every row that is over in seconds, once, with a seed of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from cerniq_pipeline_tests.builders import run_sql
from cerniq_pipeline_tests.faults import mutants
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix import stops
from cerniq_pipeline_tests.faults.matrix.runner import Violation, play, play_all
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery, Scenario, chosen
from cerniq_pipeline_tests.faults.matrix.stage import House, Scale, Stage
from cerniq_pipeline_tests.faults.matrix.table import SCENARIOS
from cerniq_pipeline_tests.faults.mutants import Mutant

PLAYS = {40: 5, 42: 5}
"""Of the rows in which time decides, and no seed, whether a message is on its way when the
protection is needed. All others must break their promise in the first play."""

BRIEF = [scenario for scenario in SCENARIOS if scenario.brief]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Servers that scenarios may break."""
    folder = tmp_path_factory.mktemp("matrix")
    with House(folder, Scale(brief=True)) as house:
        yield house


@pytest.mark.xdist_group("matrix")
@pytest.mark.parametrize("scenario", BRIEF, ids=lambda scenario: f"row {scenario.row}")
def test_no_fault_breaks_a_promise(scenario: Scenario, house: House, tmp_path: Path):
    seed = random.SystemRandom().randrange(10**6)

    played = play(scenario, house, seed=seed, keep_in=tmp_path)

    assert isinstance(played, Recovery), (
        f"{played}\nplay it again: make faults ROWS={scenario.row} SEED={seed} REPEATS=1 BRIEF=1"
    )


# ── The judges ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.xdist_group("matrix")
@pytest.mark.parametrize(
    ("row", "mutant", "broken"),
    [
        (25, mutants.the_last_message_has_the_window, "ORDER MATTERS: an answer"),
        (26, mutants.the_sweep_skips_the_handset, "LOST"),
        (30, mutants.a_token_is_proof_enough, "BELIEVED"),
        (35, mutants.claim_asks_nobody, "AFTER OPT-OUT"),
        (35, mutants.claim_does_not_wait_for_the_inbox, "AFTER OPT-OUT"),
        (35, mutants.claim_takes_no_lock, "AFTER OPT-OUT"),
        (36, mutants.one_spelling_only, "AFTER OPT-OUT"),
        (37, mutants.no_hash_is_kept, "REMEMBERED"),
        (40, mutants.a_told_stop_needs_a_record, "AFTER OPT-OUT"),
        (41, mutants.every_phone_believes_it_is_lost, "SILENCED"),
        (42, mutants.a_reply_leaves_no_mark, "AFTER REPLY"),
        (45, mutants.bad_data_is_not_seen, "UNSEEN"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_without_a_protection_its_row_breaks_a_promise(
    row: int,
    mutant: Mutant,
    broken: str,
    house: House,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    database: Engine,
):
    (scenario,) = [one for one in SCENARIOS if one.row == row]
    mutant(monkeypatch, database)
    monkeypatch.setattr(stops, "BRIEF_RACES", 60)
    for seed in range(7, 7 + PLAYS.get(row, 1)):
        played = play(scenario, house, seed=seed, keep_in=tmp_path)
        if isinstance(played, Violation):
            break
    assert isinstance(played, Violation), f"nobody noticed: {played}"
    assert broken in played.what


# ── The runner ────────────────────────────────────────────────────────────────────────────────


def a_scenario(row: int = 99, **changes: object) -> Scenario:
    return replace(
        Scenario(row, "none", sends_one_and_denies_it, House.stage, repeats=2), **changes
    )


def sends_one_and_denies_it(stage: Stage, dice: random.Random) -> Recovery:
    stage.plan(leads=1, limit=1)
    stage.come_to_rest()
    run_sql(stage.crew.engine, "DELETE FROM gold_communication_log")
    return stage.recovery()


@pytest.mark.xdist_group("matrix")
def test_a_broken_promise_is_counted_and_leaves_journal_dump_and_seed(house: House, tmp_path: Path):
    said: list[str] = []

    (row,) = play_all(
        [a_scenario()],
        house,
        seed=7,
        repeats=None,
        keep_in=tmp_path,
        say=said.append,
    )

    assert [violation.seed for violation in row.violations] == [7, 8]
    kept = tmp_path / "row-99-seed-8"
    assert str(kept) in "\n".join(said)
    assert '"accepted"' in (kept / "journal.jsonl").read_text()
    assert "COPY public.outbox_messages" in (kept / "database.sql").read_text()
    assert "DISAGREEMENT" in (kept / "violation.txt").read_text()


@contextmanager
def nowhere(house: object) -> Iterator[Nowhere]:
    yield Nowhere()


class Nowhere:
    """A ground on which nothing can be broken but what a scenario says itself."""

    def check(self) -> None:
        """All is well."""

    def keep(self, folder: Path) -> None:
        folder.mkdir()


def test_the_same_seed_draws_the_same_faults(tmp_path: Path):
    def draws(ground: Nowhere, dice: random.Random) -> Recovery:
        return Recovery(dice.random())

    scenario = a_scenario(run=draws, ground=nowhere)
    first, again, other = (play(scenario, None, seed=seed, keep_in=tmp_path) for seed in (5, 5, 6))

    assert first == again != other


@pytest.mark.parametrize("failure", [Broken("STUCK", "here"), TimeoutError("never ended")])
def test_a_wait_that_never_ends_is_a_violation_and_the_run_goes_on(
    tmp_path: Path, failure: Exception
):
    def fails(ground: Nowhere, dice: random.Random) -> Recovery:
        raise failure

    def holds(ground: Nowhere, dice: random.Random) -> Recovery:
        return Recovery(1.5)

    scenarios = [a_scenario(run=fails, ground=nowhere), a_scenario(run=holds, ground=nowhere)]
    broken, well = play_all(
        scenarios, None, seed=0, repeats=1, keep_in=tmp_path, say=lambda _: None
    )

    assert [type(one) for one in broken.violations] == [Violation]
    assert well.recoveries == [Recovery(1.5)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [("", [1, 2, 3, 5]), ("2", [2]), ("1-3", [1, 2, 3]), ("5, 1-2", [1, 2, 5]), ("3-9", [3, 5])],
)
def test_rows_are_chosen_by_number_and_range(rows: str, expected: list[int]):
    scenarios = [a_scenario(row) for row in (1, 2, 3, 5)]
    assert [scenario.row for scenario in chosen(scenarios, rows)] == expected


def test_a_row_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no such row: 6"):
        chosen([a_scenario(5)], "4-5,6")


def test_every_row_stands_once_in_the_table_and_in_order():
    numbers = [scenario.row for scenario in SCENARIOS]
    assert numbers == sorted(set(numbers))
