"""Two hosts with a bad network between them: network namespaces whose packets go through
this process, which loses some and holds the others back."""
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import threading
import time

from hosts import Hosts
from measure import run

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
LARGEST_PACKET = 65536
libc = ctypes.CDLL(None, use_errno=True)


def enter(namespace):
    """Moves this thread into a namespace."""
    with open(namespace, "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


def make_tunnel(namespace, name):
    """Makes a network interface in a namespace; returns the descriptor of its packets."""
    enter(f"/run/netns/{namespace}")
    try:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUNSETIFF,
                    struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        return fd
    finally:
        enter(f"/proc/{os.getpid()}/ns/net")


class LossyHosts(Hosts):
    """`loss`: share of packets in each direction; `delay`: seconds in each direction."""

    def __init__(self, loss, delay):
        super().__init__(2)
        self.loss, self.delay = loss, delay
        self.lost = self.passed = 0
        self.ends = []
        self.stop = threading.Event()
        self.relay = threading.Thread(target=self._relay)

    def _set_up(self):
        self._write_token()
        for host, (name, link) in enumerate(zip(self.names, self.links)):
            run(["ip", "netns", "add", name])
            self.ends.append(make_tunnel(name, link))
            self._bring_up(host)
        self.relay.start()

    def _take_down(self):
        self.stop.set()
        if self.relay.ident:
            self.relay.join()
        for end in self.ends:
            os.close(end)
        super()._take_down()

    def _relay(self):
        waiting, numbers = [], itertools.count()
        while not self.stop.is_set():
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, end, packet = heapq.heappop(waiting)
                os.write(end, packet)
            soon = waiting[0][0] - now if waiting else 0.1
            for end in select.select(self.ends, [], [], soon)[0]:
                packet = os.read(end, LARGEST_PACKET)
                if random.random() < self.loss:
                    self.lost += 1
                    continue
                self.passed += 1
                other = self.ends[1 - self.ends.index(end)]
                heapq.heappush(waiting, (time.monotonic() + self.delay, next(numbers),
                                         other, packet))
