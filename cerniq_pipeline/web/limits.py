"""How much anybody may send us, and how slowly."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """What the web service takes from the world before it stops listening."""

    body_bytes: int = MIB
    head_bytes: int = 16 * KIB
    wire_bytes: int = 8 * MIB
    """Of one request in all: a body cut into single bytes is six times as long on the wire."""
    held_bytes: int = 64 * MIB
    """Of all bodies that are being received or stored."""
    unproven_share: float = 1 / 8
    """Of these, how much may be bodies that still come in from whoever has proven nothing."""
    depth: int = 64
    """Of a JSON body."""
    receive_seconds: float = 10.0
    """From the first byte of a request, or from the connection, to the last byte."""
    idle_seconds: float = 30.0
    answer_seconds: float = 60.0
    connections: int = 512
    """When there are more, the one that has kept us waiting longest is closed."""
    stop_seconds: float = 3.0
    """For requests that are under way when we are told to stop."""

    @property
    def unproven_bytes(self) -> int:
        """When there are more, the slowest of them is dropped."""
        return int(self.held_bytes * self.unproven_share)
