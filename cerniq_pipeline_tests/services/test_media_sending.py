"""A file goes ahead of its message, at its own pace, and nothing is sent when it cannot."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.errors import MediaRefused
from cerniq_pipeline.services.media import add_file, plan_file
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline_tests.builders import (
    FIRST,
    SECOND,
    Office,
    an_office,
    rows,
    run_sql,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

Servers = tuple[Engine, Redis, RunningSandbox]
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR" + bytes(64)
NO_GAP = {"gap_least_seconds": 0, "gap_spread_seconds": 0}


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def with_a_picture(servers: Servers, tmp_path: Path, *, leads: int = 1, **world: object) -> Office:
    """An office whose first step brings a picture."""
    office = an_office(*servers, leads=leads, steps=(FIRST, SECOND), **world)  # pyright: ignore[reportArgumentType]
    (tmp_path / "utilaj.png").write_bytes(PNG)
    kept = add_file(servers[0].begin, tmp_path / "utilaj.png", tenant_id="acme")
    run_sql(servers[0], "UPDATE templates SET media_id = :id WHERE name = 'main 1'", id=kept.id)
    return office


def test_the_picture_that_was_checked_is_the_one_that_is_sent(servers: Servers, tmp_path: Path):
    database, _, sandbox = servers
    office = with_a_picture(servers, tmp_path)

    assert office.send() is State.SENT

    (upload,), (line,) = sandbox.uploads(), sandbox.accepted()
    assert line["attachment"]["sha256"] == upload["attachment"]["sha256"]
    assert line["attachment"]["mimetype"] == "image/png"
    assert line["text"] == "Bună ziua, Firma 0! Pasul unu."
    kept = the_row(database, "SELECT sha256 FROM media_files")
    assert line["attachment"]["sha256"] == kept["sha256"]
    logged = the_row(database, "SELECT media_type FROM gold_communication_log")
    assert logged["media_type"] == "image"


def test_a_picture_has_its_own_pause(servers: Servers, tmp_path: Path):
    database, *_ = servers
    pauses = {"gap_least_seconds": 600, "media_gap_least_seconds": 45}
    office = with_a_picture(servers, tmp_path, **pauses)
    office.send()
    phone = the_row(database, "SELECT next_send_at FROM wa_phone_numbers")
    assert phone["next_send_at"] == office.clock.now() + timedelta(seconds=45)


def test_no_more_than_ten_files_leave_in_a_minute(servers: Servers, tmp_path: Path):
    database, _, sandbox = servers
    no_pause = {"media_gap_least_seconds": 0, "media_gap_spread_seconds": 0}
    office = with_a_picture(servers, tmp_path, leads=12, **no_pause)

    assert [office.send() for _ in range(10)] == [State.SENT] * 10
    office.claim()

    held = rows(database, "SELECT reason FROM outbox_messages WHERE state = 'deferred'")
    assert {row["reason"] for row in held} == {"media_limit: 10 a minute are out"}
    assert len(sandbox.accepted()) == 10


def test_an_upload_that_fails_sends_nothing_and_is_tried_again(servers: Servers, tmp_path: Path):
    database, _, sandbox = servers
    office = with_a_picture(servers, tmp_path)
    sandbox.fault("server_error", status=502, operation="upload", times=1)

    assert office.send() is State.DEFERRED
    message = the_row(database, "SELECT reason, retries FROM outbox_messages")
    assert str(message["reason"]).startswith("UPLOAD_FAILED")
    assert message["retries"] == 1
    assert sandbox.accepted() == []
    assert office.send_after(timedelta(minutes=1)) is State.SENT


def test_a_file_that_was_changed_in_the_database_is_not_sent(servers: Servers, tmp_path: Path):
    database, _, sandbox = servers
    office = with_a_picture(servers, tmp_path)
    run_sql(database, "UPDATE media_files SET content = content || 'x'::bytea")

    assert office.send() is State.FAILED

    letter = the_row(database, "SELECT code FROM dead_letters")
    assert letter["code"] == "INVALID_MEDIA"
    assert (sandbox.uploads(), sandbox.journal("request")) == ([], [])


def test_a_picture_in_doubt_is_found_by_its_caption_and_its_file(servers: Servers, tmp_path: Path):
    database, _, sandbox = servers
    office = with_a_picture(servers, tmp_path)
    sandbox.fault("accept_then_cut", times=1)
    assert office.send() is State.UNCONFIRMED
    run_sql(database, "UPDATE outbox_messages SET begun_at = now()")  # the sandbox's real time

    counts = settle_unconfirmed(office.desk, settle_time=timedelta(), who="test")

    assert counts == {"sent": 1}
    assert states(database) == {"sent": 1, "planned": 1}


# ── One file to one lead ──────────────────────────────────────────────────────────────────────


def to_one_lead(office: Office, *, caption: str = "Broșura") -> int:
    lead = the_row(office.database, "SELECT lead_id FROM gold_lead_journey")
    return plan_file(
        office.database.begin,
        tenant_id="acme",
        lead_id=UUID(str(lead["lead_id"])),
        name="utilaj.png",
        caption=caption,
        by="ana",
        now=office.clock.now(),
    )


def test_a_person_sends_a_file_into_the_chat_and_the_sequence_goes_on(
    servers: Servers, tmp_path: Path
):
    database, _, sandbox = servers
    office = with_a_picture(servers, tmp_path, delay=timedelta(days=1))
    run_sql(database, "UPDATE templates SET media_id = NULL")
    assert office.send() is State.SENT

    message_id = to_one_lead(office)
    assert office.send_after(timedelta(minutes=3)) is State.SENT

    first, file = sandbox.accepted()
    assert (file["chat_id"], file["text"]) == (first["chat_id"], "Broșura")
    assert file["attachment"]["mimetype"] == "image/png"
    assert states(database) == {"sent": 2, "planned": 1}  # the next step waits as before
    lead = the_row(database, "SELECT open_message, sequence_step FROM gold_lead_journey")
    assert lead == {"open_message": True, "sequence_step": 1}
    cost = rows(database, "SELECT quota_cost FROM gold_communication_log WHERE job_id = :id",
                id=message_id)  # fmt: skip
    assert cost == [{"quota_cost": 0}]


def test_a_file_is_sent_to_a_lead_once(servers: Servers, tmp_path: Path):
    office = with_a_picture(servers, tmp_path)
    office.send()
    to_one_lead(office)
    with pytest.raises(MediaRefused, match="on its way"):
        to_one_lead(office)


def test_a_file_opens_no_conversation(servers: Servers, tmp_path: Path):
    database, *_ = servers
    office = with_a_picture(servers, tmp_path)
    with pytest.raises(MediaRefused, match="never written to"):
        to_one_lead(office)
    with pytest.raises(MediaRefused, match="characters"):
        to_one_lead(office, caption="x" * 1025)
    assert states(database) == {"planned": 1}


def test_a_person_may_send_a_file_into_a_conversation_but_not_after_a_stop(
    servers: Servers, tmp_path: Path
):
    database, _, sandbox = servers
    office = with_a_picture(servers, tmp_path)
    office.send()
    run_sql(database, "UPDATE gold_lead_journey SET engagement_stage = 'NEGOTIATION'")
    to_one_lead(office)
    assert office.send_after(timedelta(minutes=3)) is State.SENT

    run_sql(database, "DELETE FROM outbox_messages WHERE kind = 'followup'")
    run_sql(database, "UPDATE gold_lead_journey SET whatsapp_opted_out = true")
    run_sql(database, "UPDATE outbox_messages SET dedupe_key = NULL")
    to_one_lead(office)
    office.wait(timedelta(minutes=3))
    office.claim()
    assert len(sandbox.accepted()) == 2
    last = rows(database, "SELECT state FROM outbox_messages ORDER BY id DESC LIMIT 1")
    assert last == [{"state": "cancelled"}]
