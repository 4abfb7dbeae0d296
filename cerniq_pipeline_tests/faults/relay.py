"""A process that carries the calls of one simulated worker to the provider.

Stopped, it holds a call back before a byte arrives; killed, it takes the call with it. It stands
alone: `python -I -S relay.py PORT` starts in a few milliseconds, writes the port that it listens
on, passes connections on to PORT one at a time, and ends when its standard input does.
"""

from __future__ import annotations

import select
import socket
import sys

HOST = "127.0.0.1"


def main(port: int) -> None:
    """Carry connections until standard input ends."""
    listener = socket.create_server((HOST, 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        caller, _ = listener.accept()
        with caller, socket.socket() as provider:
            try:
                provider.connect((HOST, port))
                carry(caller, provider)
            except OSError:
                continue  # one end was cut; closing the other tells it so


def carry(caller: socket.socket, provider: socket.socket) -> None:
    """Pass bytes both ways until one end closes."""
    other = {caller: provider, provider: caller}
    while True:
        ready, _, _ = select.select(list(other), [], [])
        for end in ready:
            data = end.recv(65536)
            if not data:
                return
            other[end].sendall(data)


if __name__ == "__main__":
    main(int(sys.argv[1]))
