"""The people at the other end: the same for the same seed, and silent where they should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cerniq_pipeline.domain.stop_words import asks_to_stop
from cerniq_pipeline.sandbox import voices
from cerniq_pipeline.sandbox.cast import (
    KINDS,
    MOST_TURNS,
    PlaySettings,
    Scene,
    persona_of,
    scene_of,
    stranger,
)
from cerniq_pipeline.sandbox.room import Room, reached
from cerniq_pipeline_tests.sandbox.receiver import Receiver, until
from cerniq_pipeline_tests.sandbox.running import Line, RunningSandbox

PHONE = "+40731000001"
OTHER_PHONE = "+40731000002"
META_PHONE = "+40790000000"
LEAD = "+40722123456"
API = "/integrations/api"
TOKEN = "a-long-token-in-the-address"
PEOPLE = [f"+40722{number:06}" for number in range(2000)]
FAST: dict[str, Any] = {"speed": 10_000, "most_per_second": 500, "strangers_per_hour": 0}


def send(sandbox: RunningSandbox, text: str = "Bună ziua", *, to: str = LEAD) -> str:
    body = {"phone": to, "whatsapp_account_phone": PHONE, "text": text}
    answer = sandbox.client.post(f"{API}/messages", json=body)
    return answer.raise_for_status().json()["data"]["message_uid"]


def played(sandbox: RunningSandbox) -> list[Line]:
    """What the players did, in order."""
    kinds = ("inbound", "reaction", "call")
    return [line for line in sandbox.journal() if line["event"] in kinds and "persona" in line]


def at_rest(sandbox: RunningSandbox) -> bool:
    return sandbox.client.get("/_sandbox/play").json()["waiting"] == 0


def answers_to(sandbox: RunningSandbox, uid: str) -> list[Line]:
    """What somebody did about one message, once they have done all of it."""
    until(lambda: at_rest(sandbox))
    return [line for line in played(sandbox) if line["answers"] == uid]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RunningSandbox]:
    """A sandbox of the test's own, to be killed and started again."""
    with RunningSandbox(tmp_path / "journal") as running:
        yield running


# --- who they are --------------------------------------------------------------------------------


def scenes(settings: PlaySettings, phone: str) -> list[Scene]:
    """All that a person would ever do."""
    found = [scene_of(settings, phone, turn) for turn in range(MOST_TURNS)]
    return [scene for scene in found if scene is not None]


def test_the_same_seed_gives_the_same_people():
    once, again, other = PlaySettings(seed=7), PlaySettings(seed=7), PlaySettings(seed=8)
    assert [scenes(once, one) for one in PEOPLE] == [scenes(again, one) for one in PEOPLE]
    assert [scenes(once, one) for one in PEOPLE] != [scenes(other, one) for one in PEOPLE]
    assert stranger(once, 3) == stranger(again, 3) != stranger(once, 4)


def test_most_people_stay_silent_and_every_kind_is_there():
    settings = PlaySettings()
    kinds = Counter(persona_of(settings, one).kind for one in PEOPLE)
    passive = kinds["silent"] + kinds["reads_only"]
    assert len(PEOPLE) / 2 < passive < len(PEOPLE)
    assert set(KINDS) - {"thanks"} == set(kinds)  # nobody begins with thanks
    manners = {scene.manner for one in PEOPLE for scene in scenes(settings, one)}
    assert len(manners) == 6
    acts = [act for one in PEOPLE for scene in scenes(settings, one) for act in scene.acts]
    assert any(act.by_hand for act in acts)


def test_nobody_goes_on_after_stop_or_after_a_no():
    settings = PlaySettings(answering=1)
    ends = ("says_stop", "refuses", "wrong_person", "thanks")
    for one in PEOPLE:
        kinds = [scene.kind for scene in scenes(settings, one)]
        assert not any(kind in ends for kind in kinds[:-1])


def test_answers_take_seconds_mostly_and_minutes_now_and_then():
    settings = PlaySettings(answering=1, manners=("plainly",))
    delays = sorted(
        scene.acts[0].pause.total_seconds() for one in PEOPLE for scene in scenes(settings, one)
    )
    assert 10 < delays[len(delays) // 2] < 30
    assert delays[len(delays) * 95 // 100] > 60
    faster = PlaySettings(answering=1, manners=("plainly",), speed=10)
    one = next(one for one in PEOPLE if scenes(settings, one))
    slow, fast = scenes(settings, one)[0].acts[0].pause, scenes(faster, one)[0].acts[0].pause
    assert slow.total_seconds() == pytest.approx(fast.total_seconds() * 10)


def test_there_is_enough_to_say():
    lines = [line for lines in voices.LINES.values() for line in lines]
    assert len(set(lines)) == len(lines) >= 150


@pytest.mark.parametrize("line", voices.SAYS_STOP)
def test_every_stop_is_one_that_must_be_heard(line: str):
    assert asks_to_stop(line) is not None


@pytest.mark.parametrize("mood", ["interested", "asks_price", "wants_meeting", "thanks"])
def test_nobody_who_is_interested_says_stop_by_accident(mood: str):
    said = [*voices.LINES[mood], *voices.GREETINGS, *voices.ENDINGS]
    assert [line for line in said if asks_to_stop(line)] == []


# --- what they do --------------------------------------------------------------------------------


def test_nobody_answers_unless_they_are_played(sandbox: RunningSandbox):
    send(sandbox)
    assert sandbox.client.get("/_sandbox/play").json() == {"on": False, "waiting": 0, "played": {}}
    assert sandbox.received() == []


def test_a_person_answers_the_phone_that_wrote(sandbox: RunningSandbox):
    sandbox.play(**FAST, kinds=["asks_price"], manners=["plainly"], seed=1)
    uid = send(sandbox)
    (line, *_) = answers_to(sandbox, uid)
    assert (line["account"], line["contact"], line["from_me"]) == (PHONE, LEAD, False)
    assert (line["persona"], line["manner"], line["turn"]) == ("asks_price", "plainly", 0)
    assert line["text"] in voices.ASKS_PRICE
    assert sandbox.client.get("/_sandbox/play").json()["played"]["asks_price"] == 1


def test_what_they_say_is_the_same_in_another_sandbox(sandbox: RunningSandbox, own: RunningSandbox):
    said = []
    for one in (sandbox, own):
        one.play(**FAST, seed=11)
        for person in PEOPLE[:60]:
            send(one, to=person)
        until(lambda one=one: at_rest(one))
        by_person = [(line["contact"], line["persona"], line.get("text")) for line in played(one)]
        said.append(sorted(by_person, key=lambda entry: entry[0]))  # sorting keeps each one's order
    assert said[0] == said[1]
    assert len(said[0]) > 10


@pytest.mark.parametrize("kind", ["silent", "reads_only"])
def test_whoever_stays_silent_may_still_have_read_it(sandbox: RunningSandbox, kind: str):
    sandbox.play(**FAST, kinds=[kind])
    send(sandbox)
    assert played(sandbox) == []
    (line,) = sandbox.accepted()
    assert line.get("read", True) == (kind == "reads_only")
    room = Room()
    room.apply(line)
    message = room.message(line["message_uid"])
    assert message is not None
    in_the_end = reached(message, now=message.at + timedelta(days=1))[-1][1]
    assert in_the_end == ("Read" if kind == "reads_only" else "Delivered")


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("photo_with_caption", "image"),
        ("photo", "image"),
        ("voice_note", "audio"),
        ("document", "document"),
        ("sticker", "sticker"),
        ("location", "location"),
    ],
)
def test_people_send_more_than_words(sandbox: RunningSandbox, kind: str, form: str):
    sandbox.play(**FAST, kinds=[kind], manners=["plainly"])
    (line,) = answers_to(sandbox, send(sandbox))
    assert (line["event"], line["type"]) == ("inbound", form)
    assert (line["attachment"] is None) == (form == "location")
    assert bool(line["text"]) == (kind in ("photo_with_caption", "location"))


def test_people_react_and_call(sandbox: RunningSandbox):
    sandbox.play(**FAST, kinds=["reaction"])
    uid = send(sandbox)
    (line,) = answers_to(sandbox, uid)
    assert (line["event"], line["reacts_to"]) == ("reaction", uid)
    sandbox.play(**FAST, kinds=["missed_call"])
    uid = send(sandbox, to=PEOPLE[0])
    (line,) = answers_to(sandbox, uid)
    assert (line["event"], line["contact"]) == ("call", PEOPLE[0])


def test_some_write_in_pieces(sandbox: RunningSandbox):
    sandbox.play(**FAST, kinds=["refuses"], manners=["in_pieces"])
    lines = answers_to(sandbox, send(sandbox))
    assert len(lines) in (2, 3)
    assert lines[0]["text"] in voices.GREETINGS
    assert lines[1]["text"] in voices.REFUSES


def told_texts(receiver: Receiver) -> list[str]:
    return [told["message"]["text"] for told in receiver.events("message:received:new")]


@pytest.mark.parametrize(
    ("manner", "order"),
    [("plainly", [0]), ("twice", [0, 0]), ("unheard", []), ("out_of_order", [1, 0])],
)
def test_how_we_are_told_is_part_of_the_play(
    sandbox: RunningSandbox, receiver: Receiver, manner: str, order: list[int]
):
    sandbox.webhooks_to(receiver.url, token=TOKEN)
    sandbox.play(**FAST, kinds=["refuses"], manners=[manner])
    lines = answers_to(sandbox, send(sandbox))
    until(lambda: sandbox.client.get("/_sandbox/webhooks").json()["waiting"] == 0)
    until(lambda: len(told_texts(receiver)) >= len(order))
    assert told_texts(receiver) == [lines[index]["text"] for index in order]
    history = sandbox.client.get(f"{API}/chats/{lines[0]['chat_id']}/messages").json()["data"]
    theirs = [one["text"] for one in history["messages"] if not one["from_me"]]
    assert theirs[::-1] == [line["text"] for line in lines]


def test_a_person_goes_on_when_we_write_again_but_not_for_ever(sandbox: RunningSandbox):
    settings = PlaySettings(answering=1)
    person = next(one for one in PEOPLE if len(scenes(settings, one)) == MOST_TURNS)
    sandbox.play(**FAST, answering=1)
    for _ in range(MOST_TURNS + 2):
        send(sandbox, to=person)
        until(lambda: at_rest(sandbox))
    theirs = [line for line in played(sandbox) if line["persona"] != "colleague"]
    assert {line["turn"] for line in theirs} == {0, 1, 2}
    assert len({line["answers"] for line in theirs}) == MOST_TURNS


def test_two_messages_before_an_answer_get_one_answer(sandbox: RunningSandbox):
    sandbox.play(**{**FAST, "speed": 50}, kinds=["refuses"], manners=["plainly"])
    first = send(sandbox, "unu")
    send(sandbox, "doi")
    (line,) = answers_to(sandbox, first)
    assert played(sandbox) == [line]


def test_whoever_said_stop_never_writes_again_however_they_are_played(sandbox: RunningSandbox):
    sandbox.play(**FAST, kinds=["says_stop"], manners=["plainly"])
    (line,) = answers_to(sandbox, send(sandbox))
    assert line["text"] in voices.SAYS_STOP
    for seed in range(5):
        sandbox.play(**FAST, kinds=["interested"], manners=["plainly"], seed=seed)
        send(sandbox)
        until(lambda: at_rest(sandbox))
    assert len(played(sandbox)) == 1


def test_our_own_phones_and_groups_are_nobody_to_play(sandbox: RunningSandbox):
    sandbox.set_accounts(**{PHONE: "active", OTHER_PHONE: "active"})
    sandbox.play(**FAST, kinds=["interested"])
    send(sandbox, to=OTHER_PHONE)
    group = {"jid": "123-456@g.us", "whatsapp_account_phone": PHONE, "text": "Bună"}
    sandbox.client.post(f"{API}/messages/to_jid", json=group).raise_for_status()
    sandbox.fault("not_delivered")
    send(sandbox)
    assert at_rest(sandbox)
    assert played(sandbox) == []


def test_an_answer_waits_for_a_phone_that_is_away(sandbox: RunningSandbox):
    only: dict[str, Any] = {"kinds": ["refuses"], "manners": ["plainly"]}
    settings = PlaySettings(kinds=("refuses",), manners=("plainly",))
    pause_of = {one: scenes(settings, one)[0].acts[0].pause for one in PEOPLE[:100]}
    quick = min(pause_of, key=lambda one: pause_of[one])
    slower = next(one for one in pause_of if 2 < pause_of[one] / pause_of[quick] < 4)
    sandbox.play(**{**FAST, "speed": 4}, **only)
    send(sandbox, to=quick)
    sandbox.set_accounts(**{PHONE: "disconnected"})
    other = {"phone": slower, "whatsapp_account_phone": OTHER_PHONE, "text": "Bună"}
    sandbox.client.post(f"{API}/messages", json=other).raise_for_status()
    until(lambda: played(sandbox))
    assert [line["contact"] for line in played(sandbox)] == [slower]
    sandbox.set_accounts(**{PHONE: "active"})
    until(lambda: len(played(sandbox)) == 2)
    assert played(sandbox)[1]["contact"] == quick


def test_strangers_write_first(sandbox: RunningSandbox):
    sandbox.play(**{**FAST, "strangers_per_hour": 60})
    sandbox.set_accounts(**{PHONE: "active"})  # they wait for somebody to write to
    until(lambda: len(played(sandbox)) >= 3)
    sandbox.stop_playing()
    lines = played(sandbox)
    assert {line["persona"] for line in lines} == {"stranger"}
    assert {line["account"] for line in lines} == {PHONE}
    assert len({line["contact"] for line in lines}) == len(lines)
    assert all(line["text"] in voices.STRANGERS for line in lines)


def test_a_colleague_types_on_the_handset_now_and_then(sandbox: RunningSandbox):
    sandbox.play(**FAST, kinds=["interested"], manners=["plainly"])
    for person in PEOPLE[:40]:
        send(sandbox, to=person)
    until(lambda: at_rest(sandbox))
    by_hand = [line for line in played(sandbox) if line["persona"] == "colleague"]
    assert 0 < len(by_hand) < 20
    assert all(line["from_me"] and line["text"] in voices.BY_HAND for line in by_hand)


def test_people_answer_meta_too_and_some_hide_their_number(sandbox: RunningSandbox):
    sandbox.client.put("/_sandbox/accounts", json=[{"phone": META_PHONE, "provider": "meta"}])
    sandbox.play(**FAST, answering=1)
    hidden = [one for one in PEOPLE if persona_of(PlaySettings(answering=1), one).number_hidden]
    for person in hidden[:10]:
        template = {"name": "intro_ro", "language": {"code": "ro"}}
        about = {"messaging_product": "whatsapp", "to": person.removeprefix("+")}
        sandbox.client.post(
            f"{sandbox.meta_url}/140790000000/messages",
            json={**about, "type": "template", "template": template},
        ).raise_for_status()
    until(lambda: at_rest(sandbox))
    theirs = [line for line in sandbox.received() if line["persona"] != "colleague"]
    assert theirs
    assert all(line["provider"] == "meta" and line["number_hidden"] for line in theirs)


# --- across restarts -----------------------------------------------------------------------------


def test_a_restart_answers_nothing_twice(own: RunningSandbox):
    own.play(**FAST, answering=1, manners=["plainly"])
    for person in PEOPLE[:30]:
        send(own, to=person)
    until(lambda: len(played(own)) >= 10)
    own.kill()
    before = played(own)
    own.start()
    own.play(**FAST, answering=1, manners=["plainly"])
    assert at_rest(own)
    assert played(own) == before  # what was not said by then is not said about the old message
    for person in PEOPLE[:30]:
        send(own, "Reveniți?", to=person)
    until(lambda: at_rest(own))
    turns = Counter(
        (line["contact"], line["turn"]) for line in played(own) if line["persona"] != "colleague"
    )
    assert set(turns.values()) == {1}
    answered = Counter(line["answers"] for line in played(own) if line["persona"] != "colleague")
    assert set(answered.values()) == {1}


def test_a_stop_is_remembered_after_a_restart(own: RunningSandbox):
    own.play(**FAST, kinds=["says_stop"])
    answers_to(own, send(own))
    own.stop()
    own.start()
    own.play(**FAST, kinds=["interested"], seed=99)
    send(own)
    assert at_rest(own)
    assert {line["persona"] for line in played(own)} == {"says_stop"}


def test_people_can_be_played_from_the_start(tmp_path: Path):
    options = ("--play", '{"kinds": ["refuses"], "speed": 10000, "strangers_per_hour": 0}')
    with RunningSandbox(tmp_path / "journal", options=options) as running:
        send(running)
        until(lambda: played(running))
        assert running.client.get("/_sandbox/play").json()["kinds"] == ["refuses"]


def test_the_usual_people_are_played_without_any_settings(tmp_path: Path):
    with RunningSandbox(tmp_path / "journal", options=("--play",)) as running:
        shown = running.client.get("/_sandbox/play").json()
    assert (shown["on"], shown["seed"], shown["speed"]) == (True, 7, 1.0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([], "a JSON object"),
        ({"mood": "good"}, "play has no mood"),
        ({"seed": "x"}, "seed must be"),
        ({"speed": 0}, "speed must be a number above 0"),
        ({"answering": 2}, "answering must be a number from 0 to 1"),
        ({"kinds": ["angry"]}, "kinds must be a list of"),
        ({"manners": []}, "manners must be a list of"),
    ],
)
def test_a_play_asked_for_wrongly_is_explained(sandbox: RunningSandbox, wrong: Any, says: str):
    answer = sandbox.client.put("/_sandbox/play", json=wrong)
    assert answer.status_code == 400
    assert says in answer.json()["error"]
    assert sandbox.client.get("/_sandbox/play").json()["on"] is False


def test_a_reset_ends_the_play(sandbox: RunningSandbox):
    sandbox.play(**FAST, kinds=["interested"])
    sandbox.reset()
    send(sandbox)
    assert at_rest(sandbox)
    assert sandbox.client.get("/_sandbox/play").json()["on"] is False


def test_the_page_names_the_kind_of_person(sandbox: RunningSandbox):
    sandbox.play(**FAST, kinds=["asks_price"], manners=["plainly"])
    answers_to(sandbox, send(sandbox))
    assert "<td>asks price</td>" in sandbox.client.get("/").text
