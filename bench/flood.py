#!/usr/bin/env python3
"""Measures init() of ranks on this machine, linked by TCP, while strangers flood the port at which rank 0 listens.

  flood.py [--build DIR] [--ranks N] [--rounds N] [--counts N ...] [--descriptors N] [--limit SECONDS]

The strangers hold connections from the address of the ranks or from another one, open a new one for each that is closed,
and say nothing (silent) or send what a rank would without its secret (claims). Each round starts a job for each line in
turn: rank 0, a second later, when the strangers are there, the others. A rank that takes longer than the limit counts as
the limit. Prints the median, the fastest and the slowest time of the slowest of the other ranks in ms, and how many
connections the strangers opened in each job (median). --descriptors is the limit of open files of the ranks.
"""

import argparse
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def measure(args, count, source, words):
    """Returns the milliseconds of the slowest rank, and the number of connections that the strangers opened."""
    port = free_port()
    program = args.build / "bench/bench-flood"
    flood = None
    if count:
        command = [program, "hold", str(count), source, "127.0.0.1", str(port), words]
        flood = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    environment = {**os.environ, "TUTTI_TRANSPORT": "tcp", "TUTTI_SECRET_FILE": args.secret,
                   "TUTTI_RENDEZVOUS": f"tcp://127.0.0.1:{port}", "TUTTI_WORLD_SIZE": str(args.ranks)}

    def fewer_descriptors():
        resource.setrlimit(resource.RLIMIT_NOFILE, (args.descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    def start(rank):
        return subprocess.Popen([program, "join"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**environment, "TUTTI_RANK": str(rank)}, preexec_fn=fewer_descriptors)

    host = start(0)
    time.sleep(1)
    took = 0
    for rank in [start(rank) for rank in range(1, args.ranks)]:
        try:
            out = rank.communicate(timeout=args.limit)[0]
        except subprocess.TimeoutExpired:
            rank.kill()
            out = rank.communicate()[0]
        found = re.search(r"init ([0-9.]+)", out)
        if not found:
            print(out)
        took = max(took, float(found[1]) if found else 1000 * args.limit)
    host.communicate()
    opened = 0
    if flood:
        flood.terminate()
        opened = int(re.search(r"opened (\d+)", flood.communicate()[0])[1])
    return took, opened


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--descriptors", type=int, default=1024)
    parser.add_argument("--limit", type=float, default=60)
    args = parser.parse_args()

    lines = [(0, "", "")]
    for words in ("silent", "claims"):
        for source in ("127.0.0.2", "127.0.0.1"):
            lines += [(count, source, words) for count in args.counts]
    results = {line: [] for line in lines}
    for _ in range(args.rounds):
        for line in lines:
            with tempfile.NamedTemporaryFile() as secret:
                secret.write(os.urandom(32))
                secret.flush()
                args.secret = secret.name
                results[line].append(measure(args, *line))
    print("| connections | from | they | init(), ms | fastest to slowest | opened |\n|---|---|---|---|---|---|")
    for (count, source, words), runs in results.items():
        times = sorted(took for took, _ in runs)
        opened = round(statistics.median(n for _, n in runs))
        print(f"| {count or 'none'} | {source} | {words} | {statistics.median(times):.0f} | "
              f"{times[0]:.0f} to {times[-1]:.0f} | {opened or ''} |", flush=True)


if __name__ == "__main__":
    main()
