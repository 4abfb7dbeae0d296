"""The phones' health, and what was said to them: status, silence, heartbeats, missed messages."""

from datetime import datetime, timedelta

import dagster as dg
from pydantic import Field

from cerniq_pipeline.defs.resources import Database, Senders
from cerniq_pipeline.defs.running import UNFINISHED, alone, in_this_process, sensor, stoppable

SWEEP_TICK = timedelta(seconds=20)
SWEEP_RUN = timedelta(minutes=10)
FULL_SWEEP_ASKED_EVERY = timedelta(minutes=15)
BEAT_PATIENCE = timedelta(minutes=5)
HEARING = timedelta(minutes=5, seconds=30)
"""Together with the gap of one phone these stay below the instance's longest run."""


# ── Status ────────────────────────────────────────────────────────────────────────────────────


@dg.op
@stoppable
def read_phone_status(context: dg.OpExecutionContext, senders: Senders) -> None:
    """Ask the providers which phones are linked, and show how each of them is.

    - `phones`: how many were asked about
    - `unreadable`: how many gave no answer; they stay as they were
    - `statuses`: per phone the status `before`, the `status` now, the `error` of an unreadable one,
      and the health `score`, 0 to 100
    """
    from cerniq_pipeline.services.phone_health import look_after_phones
    from cerniq_pipeline.services.phone_status import sync

    desk = senders.desk()
    changes = sync(desk)
    scores = {
        one.phone_id: one.score.total for one in look_after_phones(desk.begin, now=desk.clock.now())
    }
    context.add_output_metadata(
        {
            "phones": len(changes),
            "unreadable": sum(one.error is not None for one in changes),
            "statuses": {
                one.phone_id: {
                    "before": one.before,
                    "status": one.status,
                    "error": one.error,
                    "score": scores.get(one.phone_id),
                }
                for one in changes
            },
        }
    )


@dg.job(executor_def=in_this_process, tags=alone("sync_phone_status"))
def sync_phone_status() -> None:
    """Linked or not: offline phones stop, phones that are back go on; what is unreadable stays."""
    read_phone_status()


phone_status_every_10_minutes = dg.ScheduleDefinition(
    name="phone_status_every_10_minutes",
    description="Ask the providers which phones are linked.",
    job=sync_phone_status,
    cron_schedule="*/10 * * * *",
    execution_timezone="Europe/Bucharest",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)


@sensor(
    minimum_interval_seconds=60,
    job=sync_phone_status,
)
def phone_health(database: Database) -> dg.SkipReason:
    """Notice phones that fell silent, and count unanswered messages.

    Done in the tick itself: it is a few statements, and a run would cost seconds of CPU to start.
    """
    from cerniq_pipeline.services.phone_health import look_after_phones

    seen = look_after_phones(database.begin, now=database.now())
    silent = [one.phone_id for one in seen if one.silent]
    return dg.SkipReason(f"silent: {', '.join(silent)}" if silent else "no phone is silent")


# ── Missed messages ───────────────────────────────────────────────────────────────────────────


class SweepConfig(dg.Config):
    """How far a sweep goes back."""

    full: bool = Field(False, description="Read the last 48 hours again, not only what is new.")


@dg.op
@stoppable
def read_histories(context: dg.OpExecutionContext, config: SweepConfig, senders: Senders) -> None:
    """Put messages whose webhook never came into the inbox.

    Per provider, and with `full_` before it for the part that reads everything again:

    - `…_chats`: chats that were read
    - `…_messages`: messages that were seen in them
    - `…_new`: messages that the inbox did not have
    - `…_unfinished`: why it did not come to the end, or no
    """
    from cerniq_pipeline.services.history import sweep_all, sweep_fully

    desk = senders.desk()
    until = desk.clock.now() + SWEEP_RUN
    swept = {"": sweep_all(desk, longest=SWEEP_RUN)}
    if config.full:
        swept["full_"] = sweep_fully(desk, longest=until - desk.clock.now())
    context.add_output_metadata(
        {
            f"{kind}{provider}_{name}": value
            for kind, providers in swept.items()
            for provider, one in providers.items()
            for name, value in (
                ("chats", one.chats),
                ("messages", one.read),
                ("new", one.new),
                ("unfinished", one.unfinished or "no"),
            )
        }
    )


@dg.job(executor_def=in_this_process, tags=alone("sweep_history"))
def sweep_history() -> None:
    """Find inbound messages whose webhook never came; what is found is kept as if it had."""
    read_histories()


@sensor(
    job=sweep_history,
    minimum_interval_seconds=120,
)
def missed_messages(
    context: dg.SensorEvaluationContext, senders: Senders
) -> dg.RunRequest | dg.SkipReason:
    """Sweep in the tick itself, and ask for a run only when that takes longer.

    Most sweeps are a handful of reads, which cost milliseconds; a run costs seconds of CPU to
    start. A sweep that ran out of time is taken up by the run where it stopped.
    """
    from cerniq_pipeline.services.history import full_sweep_due, sweep_all

    if context.instance.get_runs(
        dg.RunsFilter(job_name=sweep_history.name, statuses=UNFINISHED), limit=1
    ):
        return dg.SkipReason("a sweep is under way")
    desk = senders.desk()
    if not desk.listing:
        return dg.SkipReason("no provider lists its chats")
    swept = sweep_all(desk, longest=SWEEP_TICK)
    if any(one.out_of_time for one in swept.values()):
        return dg.RunRequest(tags={"cerniq/sweep": "much to read"})
    unfinished = [one.unfinished for one in swept.values() if one.unfinished]
    if unfinished:
        return dg.SkipReason(f"to be tried again: {'; '.join(unfinished)}")
    now = desk.clock.now()
    asked_at = datetime.fromisoformat(context.cursor) if context.cursor else None
    # One chat that nobody can read must not start a run every other minute.
    may_ask = asked_at is None or now - asked_at >= FULL_SWEEP_ASKED_EVERY
    if may_ask and full_sweep_due(desk):
        context.update_cursor(now.isoformat())
        return dg.RunRequest(
            run_config=dg.RunConfig(ops={read_histories.name: SweepConfig(full=True)}),
            tags={"cerniq/sweep": "full"},
        )
    found = sum(one.new for one in swept.values())
    chats = sum(one.chats for one in swept.values())
    return dg.SkipReason(f"{found} missed messages found in {chats} chats")


# ── One lead's chat ───────────────────────────────────────────────────────────────────────────


class ChatConfig(dg.Config):
    """Whose chat to fetch."""

    lead: str = Field(description="A lead's id or its beginning, a CUI, a number or an address.")


@dg.op
@stoppable
def read_chat(context: dg.OpExecutionContext, config: ChatConfig, senders: Senders) -> None:
    """Fetch every message of one lead's chats into the communication log.

    - `lead`: whose chats
    - `chats`: chats that were read
    - `messages`: messages that were seen in them
    - `new`: messages that the log did not have
    - `status_moved`: messages whose status went forward by what the chat shows
    - `oldest`, `newest`: when the first and the last of them were written
    """
    from cerniq_pipeline.services.history import fetch_chat
    from cerniq_pipeline.services.people import find_lead

    desk = senders.desk()
    _, lead_id = find_lead(desk.begin, config.lead, tenant_id=None)
    fetched = fetch_chat(desk, lead_id)
    context.add_output_metadata(
        {
            "lead": str(lead_id),
            "chats": fetched.chats,
            "messages": fetched.read,
            "new": fetched.new,
            "status_moved": fetched.moved,
            "oldest": str(fetched.oldest or "none"),
            "newest": str(fetched.newest or "none"),
        }
    )


@dg.job(executor_def=in_this_process, tags=alone("fetch_chat_history"))
def fetch_chat_history() -> None:
    """One lead's whole conversation, both sides; launch it by hand with the lead's id."""
    read_chat()


# ── Heartbeats ────────────────────────────────────────────────────────────────────────────────


@dg.op
@stoppable
def beat_and_listen(context: dg.OpExecutionContext, senders: Senders) -> None:
    """Let due phones write to each other, and wait until each message is heard or lost.

    One number per outcome. Of writing: `sent`, `not sent`, `unconfirmed`, `wrong sender`, and
    phones that were `not due`, `busy` or `replaced` by another process. Of hearing: `seen` at the
    other phone, `lost`, `not_sent`, and `undecided` at the end.
    """
    from cerniq_pipeline.services.heartbeat import beat, settle_until_quiet
    from cerniq_pipeline.services.leasing import this_process

    desk = senders.desk()
    written = beat(desk, this_process(context.run_id), patience=BEAT_PATIENCE)
    heard = settle_until_quiet(desk, longest=HEARING)
    context.add_output_metadata({**written, **heard})


@dg.job(executor_def=in_this_process, tags=alone("phone_heartbeats"))
def phone_heartbeats() -> None:
    """Messages between two of our own phones, for tenants that turned them on.

    A run and not a tick: it holds the phones' leases, and who takes over an expired lease ends
    the process that held it.
    """
    beat_and_listen()


@sensor(
    job=phone_heartbeats,
    minimum_interval_seconds=60,
)
def heartbeats_due(
    context: dg.SensorEvaluationContext, database: Database, senders: Senders
) -> dg.RunRequest | dg.SkipReason:
    """Ask for heartbeats when a phone is due and may write, or one is still to be heard."""
    from cerniq_pipeline.services.heartbeat import work_to_do
    from cerniq_pipeline.store.phone_health import wants_heartbeats

    with database.begin() as conn:
        wanted = wants_heartbeats(conn)
    if not wanted:
        return dg.SkipReason("no tenant turned heartbeats on")
    if context.instance.get_runs(
        dg.RunsFilter(job_name=phone_heartbeats.name, statuses=UNFINISHED), limit=1
    ):
        return dg.SkipReason("heartbeats are under way")
    if not work_to_do(senders.desk()):
        return dg.SkipReason("no phone is due that may write now")
    return dg.RunRequest()


defs = dg.Definitions(
    jobs=[sync_phone_status, sweep_history, fetch_chat_history, phone_heartbeats],
    schedules=[phone_status_every_10_minutes],
    sensors=[phone_health, missed_messages, heartbeats_due],
)
