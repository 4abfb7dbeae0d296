"""Put a desk together from the settings: the one place that knows every provider by name."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from redis import Redis

from cerniq_pipeline.providers.meta import channel as meta
from cerniq_pipeline.providers.timelinesai import channel as timelinesai
from cerniq_pipeline.providers.timelinesai.history import HISTORIES
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store.quotas import QuotaGate

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cerniq_pipeline.domain.clock import Clock
    from cerniq_pipeline.domain.outbox import Channel
    from cerniq_pipeline.settings import Settings


def open_desk(told: Settings, engine: Engine, clock: Clock) -> Desk:
    """A desk for this process, pointed at the sandbox or at the providers by the settings.

    A provider without a token is left out; its phones rest and say why.
    """
    dialect = told.timelinesai_dialect
    client = timelinesai.open_client(told.timelinesai_url, told.timelinesai_token)
    channels: dict[str, Channel] = {
        "timelinesai": timelinesai.TimelinesAI(client, timelinesai.DIALECTS[dialect]())
    }
    if told.meta_token is not None:
        channels["meta"] = meta.MetaCloud(meta.open_client(told.meta_url, told.meta_token))
    redis = Redis.from_url(told.redis_url, socket_timeout=5, socket_connect_timeout=3)
    return Desk(
        begin=engine.begin,
        gate=QuotaGate(redis),
        channels=channels,
        histories={"timelinesai": HISTORIES[dialect](client)},
        clock=clock,
        luck=random.SystemRandom().random,
        secret=told.secret,
        live=told.mode == "live",
        speed=told.speed,
        sends_per_minute=told.timelinesai_sends_per_minute,
    )
