"""Orders are walked whole and leave nothing behind, and a difference is named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import permutations

import pytest
from redis import Redis
from sqlalchemy import Engine, text

from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline_tests.builders import NOON, Office, an_office, states
from cerniq_pipeline_tests.faults.orders import SETS, Ending, differences, endings
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

START = NOON + timedelta(hours=1)


@pytest.fixture
def office(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Office:
    return an_office(database, redis, sandbox)


def setting(stage: str) -> Callable[[Desk], None]:
    """What comes last wins: the order matters."""

    def act(desk: Desk) -> None:
        with desk.begin() as conn:
            conn.execute(
                text("UPDATE gold_lead_journey SET engagement_stage = :stage, updated_at = :now"),
                {"stage": stage, "now": desk.clock.now()},
            )

    return act


def walked(database: Engine, office: Office, *names: str, **rest: tuple[str, ...]) -> list[Ending]:
    events = {name: setting(name) for name in names}
    return list(endings(database, office.desk, events, start=START, **rest))


def test_every_order_is_walked_once_and_nothing_of_it_stays(database: Engine, office: Office):
    before = states(database)
    found = walked(database, office, "COLD", "DEAD", "WARM_REPLY", "CONVERTED")
    assert sorted(one.order for one in found) == sorted(
        permutations(["COLD", "DEAD", "WARM_REPLY", "CONVERTED"])
    )
    for one in found:
        (lead,) = one.state["gold_lead_journey"]
        assert lead["engagement_stage"] == one.order[-1]
    assert states(database) == before
    with database.connect() as conn:
        left = conn.execute(text("SELECT engagement_stage FROM gold_lead_journey")).scalar_one()
    assert left == "COLD"


def test_some_orders_are_those_that_begin_so(database: Engine, office: Office):
    found = walked(database, office, "COLD", "DEAD", "WARM_REPLY", firsts=("DEAD",))
    assert [one.order[0] for one in found] == ["DEAD", "DEAD"]


def test_a_difference_is_named_and_when_somebody_got_to_it_is_none(
    database: Engine, office: Office
):
    one, other = walked(database, office, "COLD", "DEAD")
    assert differences(one.state, one.state) == []
    assert differences(one.state, other.state) == [
        "gold_lead_journey.engagement_stage: 'DEAD' and 'COLD'"
    ]


@pytest.mark.parametrize("name", SETS)
def test_every_story_has_six_events(office: Office, name: str):
    assert len(SETS[name](office.claimed(), NOON)) == 6
