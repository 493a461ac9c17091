#!/usr/bin/env python3
"""delay.py NS0 NS1 MS: joins two network namespaces by a link, 10.77.0.1 and .2, on which each packet takes MS
milliseconds. For kernels without netem. Runs until it is terminated; says "ready" when the link is there. Needs root."""
import collections
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN_NO_PI = 0x400454CA, 0x1001


def device(namespace, i):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    name = f"pd{os.getpid()}{'ab'[i]}"
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN_NO_PI))
    for command in (
        f"ip link set {name} netns {namespace}",
        f"ip -n {namespace} link set {name} name peersv{i} mtu 9000 txqueuelen 5000",
        f"ip -n {namespace} addr add 10.77.0.{i + 1}/24 dev peersv{i}",
        f"ip -n {namespace} link set peersv{i} up",
    ):
        subprocess.run(command.split(), check=True)
    return fd


def main():
    ends = [device(ns, i) for i, ns in enumerate(sys.argv[1:3])]
    delay = float(sys.argv[3]) / 1000
    print("ready", flush=True)
    waiting = collections.deque()  # (when, where to, packet)
    while True:
        limit = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        for fd in select.select(ends, [], [], limit)[0]:
            due, to = time.monotonic() + delay, ends[fd == ends[0]]
            for _ in range(256):
                try:
                    waiting.append((due, to, os.read(fd, 65536)))
                except BlockingIOError:
                    break
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, to, packet = waiting.popleft()
            try:
                os.write(to, packet)
            except OSError:  # the other end is not up, or gone
                pass


if __name__ == "__main__":
    main()
