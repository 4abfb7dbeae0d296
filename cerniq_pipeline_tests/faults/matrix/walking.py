"""What every walk does: it claims and records apart, so that other things fall between them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from cerniq_pipeline.domain.outbox import OutboxMessage
from cerniq_pipeline.services import claiming, leasing
from cerniq_pipeline.services.leasing import Lease, this_process
from cerniq_pipeline_tests.faults.matrix.stage import Stage


@dataclass
class Walking:
    """A stage, dice that make the order of things, and what is on its way."""

    stage: Stage
    dice: random.Random
    in_flight: dict[str, tuple[Lease, OutboxMessage]] = field(default_factory=dict)

    def claim(self) -> None:
        """Claim the next message of a phone that has none on the way."""
        free = [phone for phone in self.stage.phones() if phone not in self.in_flight]
        if not free:
            return
        desk, phone = self.stage.crew.desk, self.dice.choice(free)
        lease = leasing.acquire(desk.begin, phone, this_process("walk"), now=self.stage.now())
        assert lease is not None
        claimed = claiming.claim(desk, lease)
        if isinstance(claimed, OutboxMessage):
            self.in_flight[phone] = (lease, claimed)
        else:
            leasing.give_back(desk.begin, lease)
