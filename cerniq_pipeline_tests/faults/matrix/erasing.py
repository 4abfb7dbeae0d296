"""Row 37: a person is erased on the way, and comes back with the next file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from functools import partial
from pathlib import Path

from sqlalchemy import text

from cerniq_pipeline.domain.contacts import basis_on, phone_key
from cerniq_pipeline.domain.leads import LawfulBasis
from cerniq_pipeline.services.import_leads import ImportOptions, import_leads
from cerniq_pipeline.services.person_data import erase, find
from cerniq_pipeline_tests.builders import SECRET, dispatch, run_sql
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.listening import hear_all
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage
from cerniq_pipeline_tests.faults.said import SIGNED, a_message, keep

TWO_DAYS = timedelta(days=2)
PERIOD = timedelta(hours=1)


def erased_on_the_way(stage: Stage, dice: random.Random) -> Recovery:
    """Erase people whose message waits, is in doubt, or was answered a moment ago.

    Their data is gone at once, and the next file brings all of them back: nobody writes to them.
    """
    each = stage.scale.pick(2, 8)
    stage.plan(leads=4 * each, limit=8 * each, follow_up=True, delay=TWO_DAYS)
    people = [
        str(row["recipient"])
        for row in stage.ask("SELECT recipient FROM outbox_messages ORDER BY due_at, id")
    ]
    queued, in_doubt, replying, others = (people[n::4] for n in range(4))
    later = "UPDATE outbox_messages SET due_at = :at WHERE recipient = ANY(:people)"
    run_sql(stage.crew.engine, later, at=stage.now() + PERIOD, people=queued)
    for person in in_doubt:
        stage.sandbox.fault("accept_then_cut", recipient=person, times=1)
    stage.crew.work()
    stage.sandbox.lift()
    found = stage.states()
    assert found.get("unconfirmed") == each, f"{each} were cut: {found}"
    stage.erased = {*queued, *in_doubt, *replying}
    _erase_all(stage, dice, queued, in_doubt, replying)
    stage.fault_over()
    _check_gone(stage)
    last = stage.sandbox.journal()[-1]["n"]
    _bring_back(stage, dice)
    for _ in range(3):
        stage.move_time(TWO_DAYS / 2)
        dispatch(stage.crew.engine, now=stage.now())
        stage.come_to_rest()
    after = [line for line in stage.sandbox.journal("request") if line["n"] > last]
    if wrong := [line for line in after if line["recipient"] in stage.erased]:
        raise Broken("AFTER OPT-OUT", f"written to after being erased: {wrong}")
    if len(after) != len(others):
        raise Broken("STUCK", f"{len(after)} follow-ups for the {len(others)} who stayed")
    return stage.recovery(f"{len(stage.erased)} people")


def _erase_all(
    stage: Stage,
    dice: random.Random,
    queued: Sequence[str],
    in_doubt: Sequence[str],
    replying: Sequence[str],
) -> None:
    """Erase everybody in any order, those who reply while their reply is being handled."""
    desk = stage.crew.desk
    order = [*queued, *in_doubt, *replying]
    dice.shuffle(order)
    with ThreadPoolExecutor(2) as pool:
        for person in order:
            if person in replying:
                with desk.begin() as conn:
                    keep(conn, [a_message("Da, sunt eu", theirs=person)], now=stage.now())
            handled = pool.submit(hear_all, stage, desk, SIGNED)
            erased = pool.submit(partial(_erase, stage, person))
            erased.result()
            handled.result()


def _erase(stage: Stage, person: str) -> None:
    desk = stage.crew.desk
    meant = find(desk.begin, person, tenant_id="acme", secret=SECRET)
    erased = erase(
        desk.begin,
        meant,
        readers=SIGNED,
        secret=SECRET,
        reason="asked to be forgotten",
        who="matrix",
        clock=desk.clock,
    )
    if not erased.is_complete:
        raise Broken("REMEMBERED", f"{erased}")


def _check_gone(stage: Stage) -> None:
    """No table holds a digit of them."""
    keys = sorted(key for key in map(phone_key, stage.erased) if key)
    tables = stage.ask("""
        SELECT table_name AS name FROM information_schema.tables
        WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
    """)
    with stage.crew.engine.connect() as conn:
        for table in tables:
            rows = conn.execute(
                text(f"""
                    SELECT CAST(t AS text)
                    FROM {table["name"]} t, unnest(CAST(:keys AS text[])) AS their (digits)
                    WHERE strpos(CAST(t AS text), digits) > 0
                       OR strpos(CAST(t AS text), encode(convert_to(digits, 'UTF8'), 'hex')) > 0
                """),
                {"keys": keys},
            )
            if left := rows.scalars().first():
                raise Broken("REMEMBERED", f"{table['name']}: {left}")


def _bring_back(stage: Stage, dice: random.Random) -> None:
    """Import a file with all of them, in the spellings of spreadsheets."""
    path = Path(stage.house.folder) / "again.csv"
    spelt = [dice.choice(["+40{}", "0040{}", "0{}", "{}"]) for _ in stage.erased]
    numbers = [form.format(phone_key(who)) for form, who in zip(spelt, stage.erased, strict=True)]
    rows = [f"Firma revenită {n};{number}" for n, number in enumerate(numbers)]
    path.write_text("\n".join(["denumire;telefon", *rows, ""]))
    summary = import_leads(
        stage.crew.engine,
        path,
        tenant_id="acme",
        options=ImportOptions(basis=basis_on(LawfulBasis.CONSENT, "form", date(2025, 1, 1))),
        secret=SECRET,
        now=stage.now(),
        progress=lambda done, total: None,
    )
    if (summary.new, summary.suppressed) != (len(rows), len(rows)):
        raise Broken("REMEMBERED", f"{len(rows)} erased people came back as {summary}")
