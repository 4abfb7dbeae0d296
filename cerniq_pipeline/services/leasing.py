"""Take, keep and give back a phone: one process at a time, provably.

A provider cannot check our fence, so a fence alone does not stop a holder that wakes up late and
sends. Therefore who takes over an expired lease first ends the process that held it.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import psutil

from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.errors import LeaseLost
from cerniq_pipeline.services import checkpoints
from cerniq_pipeline.store import leases, outbox, phones
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.leases import Holder

LEASE = timedelta(seconds=60)
FOREIGN_GRACE = timedelta(seconds=60)
"""How long after its end the lease of a process on another machine, which cannot be ended from
here, is still respected: longer than any call may take."""


@dataclass(frozen=True)
class Lease:
    """The right to send from one phone, under one fence."""

    phone_id: str
    fence: int
    holder: Holder


def this_process(name: str) -> Holder:
    """This process, named so that another one on this machine can tell whether it still lives."""
    return Holder(name=name, host=machine(), pid=os.getpid(), started=_started(psutil.Process()))


def acquire(begin: Begin, phone_id: str, me: Holder, *, now: datetime) -> Lease | None:
    """Take a phone, or None when somebody holds it rightly.

    Whatever the last holder left in flight becomes unconfirmed: it may have gone out, so it is
    looked up and never sent again by itself.
    """
    with begin() as conn:
        row = leases.lock(conn, phone_id)
        if row.holder and row.until and not _may_take_over(row.holder, row.until, now=now):
            return None
        fence = row.fence + 1
        leases.grant(conn, phone_id, to=me, fence=fence, until=now + LEASE)
        for message_id, attempt in outbox.abandoned(conn, phone_id, below_fence=fence):
            why = "its sender died in mid-flight"
            outbox.move(
                conn,
                message_id,
                current=State.SENDING,
                target=State.UNCONFIRMED,
                why=why,
                who=me.name,
                now=now,
            )
            outbox.finish_attempt(
                conn, message_id=message_id, n=attempt, outcome="unconfirmed", code="DIED",
                detail=why, now=now,
            )  # fmt: skip
            phones.restart_gap(conn, message_id, now=now)
        checkpoints.reach("lease_before_commit")
    checkpoints.reach("lease_committed")
    return Lease(phone_id, fence, me)


def confirm(begin: Begin, lease: Lease, *, now: datetime) -> None:
    """Extend the lease while waiting; raises LeaseLost when it is no longer ours."""
    with begin() as conn:
        check(leases.lock(conn, lease.phone_id), lease, now=now)
        leases.extend(conn, lease.phone_id, until=now + LEASE)


def check(row: leases.LeaseRow, lease: Lease, *, now: datetime) -> None:
    """Refuse to go on under a fence that is not the newest, or after the lease ran out."""
    if row.fence != lease.fence or row.until is None or row.until <= now:
        raise LeaseLost(f"{lease.phone_id} has fence {row.fence}, this shift has {lease.fence}")


def give_back(begin: Begin, lease: Lease) -> None:
    """Free the phone for the next shift."""
    with begin() as conn:
        leases.release(conn, lease.phone_id, fence=lease.fence)
    checkpoints.reach("lease_released")


def is_alive(holder: Holder) -> bool:
    """Whether the very process that took the lease still runs on this machine."""
    try:
        process = psutil.Process(holder.pid)
        same = abs(_started(process) - holder.started) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_in_use(pid: int) -> bool:
    """Whether any process on this machine has this pid, and is not only a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_here(holder: Holder) -> bool:
    """Whether the holder's process can be seen, and ended, from this one."""
    return holder.host == machine()


def machine() -> str:
    """This machine since its last boot, and this pid namespace: where a pid means something."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        boot, namespace = str(int(psutil.boot_time())), 0
    return f"{socket.gethostname()}/{boot}/{namespace}"


def _may_take_over(holder: Holder, until: datetime, *, now: datetime) -> bool:
    if not is_here(holder):
        return now > until + FOREIGN_GRACE
    if not is_alive(holder):
        return True
    if now <= until or holder.pid == os.getpid():
        return False
    return _end(holder)


def _end(holder: Holder) -> bool:
    """Kill the process that overstayed, and be sure that it is gone."""
    try:
        process = psutil.Process(holder.pid)
        process.kill()
        process.wait(timeout=5)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return not is_alive(holder)
    return True


def _started(process: psutil.Process) -> float:
    """When a process began, in seconds since the machine did, where that can be read.

    psutil adds the machine's start by today's wall clock: set that clock by a second, and a living
    holder looks like somebody else and is replaced without being ended.
    """
    try:
        after_name = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return process.create_time()
    return int(after_name.split()[19]) / os.sysconf("SC_CLK_TCK")
