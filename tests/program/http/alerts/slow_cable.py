"""A cable between the switches s0 and s1 that carries only so many bytes of TCP per second in each direction, and
everything else at once. It ends when its standard input does.

    slow_cable.py BYTES_PER_SECOND

Two TAP devices, and this between them: a kernel need not be able to shape traffic.
"""

import collections
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
# Bytes that wait per direction; what is beyond that is dropped, as a router does.
QUEUE_BYTES_MAX = 64 << 10


def tap(name: str, switch: str) -> int:
    """A device, plugged into that switch."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    subprocess.run(["ip", "link", "set", name, "master", switch, "up"], check=True)
    return file


def is_tcp(frame: bytes) -> bool:
    """Of IPv4."""
    return frame[12:14] == b"\x08\x00" and frame[23] == 6


class Direction:
    """From one device to the other."""

    def __init__(self, source: int, target: int, rate: float):
        self.source, self.target, self.rate = source, target, rate
        self.queue: collections.deque = collections.deque()
        self.bytes = 0
        self.free_at = 0.0

    def send(self, frame: bytes) -> None:
        """At once."""
        try:
            os.write(self.target, frame)
        except OSError:
            pass  # as if it were lost on the way

    def receive(self) -> None:
        """Takes in what has come."""
        while True:
            try:
                frame = os.read(self.source, 65536)
            except BlockingIOError:
                return
            if not is_tcp(frame):
                self.send(frame)
            elif self.bytes + len(frame) <= QUEUE_BYTES_MAX:
                self.queue.append(frame)
                self.bytes += len(frame)

    def work(self) -> float:
        """Sends what it is time for; gives the seconds until there is more to do."""
        while self.queue:
            now = time.monotonic()
            if now < self.free_at:
                return self.free_at - now
            frame = self.queue.popleft()
            self.bytes -= len(frame)
            self.free_at = max(now, self.free_at) + len(frame) / self.rate
            self.send(frame)
        return 60.0


def main() -> None:
    """See the module."""
    rate = float(sys.argv[1])
    left, right = tap("slow0", "s0"), tap("slow1", "s1")
    both = (Direction(left, right, rate), Direction(right, left, rate))
    print("ready", flush=True)
    while True:
        patience = min(direction.work() for direction in both)
        readable, _, _ = select.select([left, right, sys.stdin], [], [], patience)
        if sys.stdin in readable:
            return
        for direction in both:
            direction.receive()


main()
