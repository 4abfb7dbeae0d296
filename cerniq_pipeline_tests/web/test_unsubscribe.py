"""The unsubscribe page over the real service: a look changes nothing, the button ends it all."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, text

from cerniq_pipeline.dev.embedded import EmbeddedPostgres
from cerniq_pipeline.domain.unsubscribing import Subscription, token_of
from cerniq_pipeline.services.person_data import erase, find
from cerniq_pipeline.store.database import connect
from cerniq_pipeline.store.schema import metadata
from cerniq_pipeline_tests.builders import (
    ManualClock,
    a_world,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.web.running import RunningWeb

KEY = b"a key of the tests"  # as the running service has it
NASTY = '<script>alert(1)</script> & "Fiii" SRL'


@pytest.fixture
def lead(inbox: Engine) -> Iterator[uuid.UUID]:
    """A lead with a planned message, in the database of the running service."""
    with inbox.begin() as conn:
        a_world(conn)
        (lead_id,) = some_leads(conn, email_principal="ana@firma.ro")
        conn.execute(text("UPDATE tenants SET name = :n"), {"n": NASTY})
    assert dispatch(inbox) == (1, 0)
    yield lead_id
    with inbox.begin() as conn:
        conn.execute(text("TRUNCATE tenants CASCADE"))
        conn.execute(text("TRUNCATE outbox_messages CASCADE"))


def page_of(lead_id: uuid.UUID, tenant_id: str = "acme") -> str:
    return f"/u/{token_of(KEY, Subscription(tenant_id, lead_id))}"


def everything(database: Engine) -> dict[str, list[str]]:
    """Every row of every table."""
    with database.connect() as conn:
        return {
            table.name: sorted(conn.execute(text(f"SELECT t::text FROM {table.name} t")).scalars())
            for table in metadata.sorted_tables
        }


def is_out(database: Engine) -> bool:
    found = the_row(
        database, "SELECT whatsapp_opted_out AND email_opted_out AS out FROM gold_lead_journey"
    )
    return bool(found["out"])


def test_looking_at_the_page_changes_nothing_however_often(
    web: RunningWeb, inbox: Engine, lead: uuid.UUID
):
    before = everything(inbox)
    for _ in range(10):
        shown = web.client.get(page_of(lead))
        assert shown.status_code == 200
        assert "Nu mai doriți mesaje de la noi?" in shown.text
        assert web.client.head(page_of(lead)).status_code == 200
    assert everything(inbox) == before


def test_the_button_opts_out_on_every_channel_and_says_so(
    web: RunningWeb, inbox: Engine, lead: uuid.UUID
):
    shown = web.client.post(page_of(lead))
    assert shown.status_code == 200
    assert "Sunteți dezabonat" in shown.text
    assert is_out(inbox)
    assert states(inbox) == {"cancelled": 1}
    assert {row["reason"] for row in rows(inbox, "SELECT reason FROM suppressions")} == {
        "unsubscribed by link"
    }
    assert "Sunteți dezabonat" in web.client.get(page_of(lead)).text
    once = everything(inbox)["suppressions"]
    assert web.client.post(page_of(lead)).status_code == 200
    assert everything(inbox)["suppressions"] == once


def test_one_click_of_a_mail_program_answers_in_few_words(
    web: RunningWeb, inbox: Engine, lead: uuid.UUID
):
    said = web.client.post(page_of(lead), data={"List-Unsubscribe": "One-Click"})
    assert (said.status_code, said.text) == (200, "dezabonat\n")
    assert said.headers["content-type"].startswith("text/plain")
    assert is_out(inbox)


def test_one_click_may_come_as_a_form_of_many_parts(
    web: RunningWeb, inbox: Engine, lead: uuid.UUID
):
    parts = {"List-Unsubscribe": (None, "One-Click")}
    assert web.client.post(page_of(lead), files=parts).text == "dezabonat\n"
    assert is_out(inbox)


def test_a_long_body_is_not_waited_for(web: RunningWeb, inbox: Engine, lead: uuid.UUID):
    assert web.client.post(page_of(lead), content=b"x" * 100_000).status_code == 200
    assert is_out(inbox)


def test_who_was_erased_is_told_that_they_are_out(web: RunningWeb, inbox: Engine, lead: uuid.UUID):
    person = find(inbox.begin, str(lead), tenant_id="acme", secret=KEY)
    erase(
        inbox.begin,
        person,
        readers={},
        secret=KEY,
        reason="asked",
        who="test",
        clock=ManualClock(),
    )
    before = everything(inbox)
    for answer in (web.client.get(page_of(lead)), web.client.post(page_of(lead))):
        assert answer.status_code == 200
        assert "Sunteți dezabonat" in answer.text
    assert everything(inbox) == before


@pytest.mark.parametrize(
    "path",
    [
        "/u/x",
        "/u/" + "A" * 64,
        "/u/" + "A" * 5000,
        "/u/%00",
        "/u/ș",
        f"/u/{token_of(b'another key', Subscription('acme', uuid.UUID(int=1)))}",
        f"/u/{token_of(KEY, Subscription('gone', uuid.UUID(int=1)))}",  # no such tenant
    ],
)
def test_a_wrong_token_is_told_nothing(web: RunningWeb, inbox: Engine, lead: uuid.UUID, path: str):
    before = everything(inbox)
    for answer in (web.client.get(path), web.client.post(path)):
        assert answer.status_code == 404
        assert "Pagina nu există" in answer.text
        assert "Fiii" not in answer.text
    assert everything(inbox) == before


def test_a_token_of_one_tenant_says_nothing_about_anothers_lead(
    web: RunningWeb, inbox: Engine, lead: uuid.UUID
):
    run_sql(inbox, "INSERT INTO tenants (id, name) VALUES ('beta', 'Beta SRL')")
    answer = web.client.post(page_of(lead, "beta"))
    assert "Beta SRL" in answer.text  # a link that only we can make, for a lead that is not there
    assert not is_out(inbox)


def test_the_page_runs_nothing_and_is_framed_and_kept_by_nobody(web: RunningWeb, lead: uuid.UUID):
    for answer in (
        web.client.get(page_of(lead)),
        web.client.post(page_of(lead)),
        web.client.get("/u/x"),
    ):
        assert_is_safe(answer)
    shown = web.client.get(page_of(lead)).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;Fiii&quot; SRL" in shown
    assert "<script" not in shown
    assert "721000000" not in shown
    assert "ana@" not in shown


def assert_is_safe(answer: httpx.Response) -> None:
    policies = answer.headers.get_list("content-security-policy")
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policies == [
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in answer.headers


def test_the_token_is_in_no_log(web: RunningWeb, lead: uuid.UUID):
    web.client.post(page_of(lead))
    assert page_of(lead).removeprefix("/u/") not in web.log


def test_while_the_database_is_away_nobody_is_told_that_it_is_done(tmp_path: Path):
    server = EmbeddedPostgres(tmp_path / "postgres", durable=False)
    server.start()
    server.create_database("away")
    from cerniq_pipeline.store.migrations import upgrade

    upgrade(server.url("away"))
    engine = connect(server.url("away"))
    with engine.begin() as conn:
        a_world(conn)
        (lead_id,) = some_leads(conn)
    engine.dispose()
    with RunningWeb(tmp_path / "web", server.url("away")) as web:
        assert web.client.get(page_of(lead_id)).status_code == 200
        server.stop()
        for answer in (web.client.get(page_of(lead_id)), web.client.post(page_of(lead_id))):
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "60"
            assert "Încercați din nou" in answer.text
        server.start()
        assert web.client.post(page_of(lead_id)).status_code == 200
    engine = connect(server.url("away"))
    assert is_out(engine)
    engine.dispose()
    server.stop()
