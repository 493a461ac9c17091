#!/usr/bin/env python3
"""Measures every algorithm of every collective over a network of a given rate, with one rank on each machine.

The machines are network namespaces on one bridge, each with a token bucket of --rate on its way out. Prints, for each
collective and size, the time of each algorithm and of the one that is chosen; --json FILE keeps all rows.
Needs root, iproute2 and a kernel with the tbf queueing discipline.

  bench/network.py --bench build/release/bench/tutti-bench --machines 4 --rate 1gbit
"""

import argparse
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

ALGORITHMS = {
    "all_reduce": ("ring", "recursive_doubling", "halving_doubling", "pairwise"),
    "all_reduce_coalesced": ("ring", "recursive_doubling", "pairwise"),
    "broadcast": ("tree", "chain"),
    "reduce": ("tree", "chain"),
    "reduce_scatter": ("ring", "pairwise"),
    "all_gather": ("ring", "bruck"),
    "gather": ("linear", "tree"),
    "scatter": ("linear", "tree"),
    "scan": ("recursive_doubling", "chain"),
}


class Network:
    """Namespaces joined by a bridge. Each sends with `rate` at most."""

    def __init__(self, machines, rate):
        self.names = [f"tn{os.getpid()}-{i}" for i in range(machines)]
        self.hub = f"tn{os.getpid()}-hub"
        try:
            for name in [self.hub, *self.names]:
                self.run("ip", "netns", "add", name)
                self.run("ip", "-n", name, "link", "set", "lo", "up")
            self.run("ip", "-n", self.hub, "link", "add", "br0", "type", "bridge")
            self.run("ip", "-n", self.hub, "link", "set", "br0", "up")
            for i, name in enumerate(self.names):
                self.run("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{i}",
                         "netns", self.hub)
                self.run("ip", "-n", self.hub, "link", "set", f"port{i}", "master", "br0", "up")
                self.run("ip", "-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
                self.run("ip", "-n", name, "link", "set", "eth0", "up")
                self.run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "128kb",
                         "latency", "100ms")
        except BaseException:
            self.close()
            raise

    @staticmethod
    def run(*words):
        subprocess.run(words, check=True)

    def close(self):
        for name in [self.hub, *self.names]:
            subprocess.run(("ip", "netns", "del", name), stderr=subprocess.DEVNULL, check=False)


def bench(network, program, folder, collective, algorithm, args):
    """Runs tutti-bench on all machines. Returns {bytes: microseconds}."""
    secret, out = folder / "secret", folder / "rows"
    secret.write_text("1" * 64)
    secret.chmod(0o600)
    out.unlink(missing_ok=True)
    ranks = []
    for i, name in enumerate(network.names):
        environment = dict(os.environ, TUTTI_RANK=str(i), TUTTI_WORLD_SIZE=str(len(network.names)),
                           TUTTI_RENDEZVOUS="tcp://10.78.0.1:29900", TUTTI_SECRET_FILE=str(secret))
        words = ["ip", "netns", "exec", name, "unshare", "-u", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh",
                 f"machine{i}", program, collective, "-b", args.smallest, "-e", args.largest, "-f", str(args.factor), "-n",
                 str(args.rounds), "-w", "3", "-c", "0", "--algo", algorithm]
        if i == 0:
            words += ["-J", str(out)]
        ranks.append(subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    errors = [r.communicate()[1].decode() for r in ranks]
    if any(r.returncode for r in ranks):
        raise SystemExit(f"{collective} by {algorithm}: {errors}")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {r["bytes"]: r["us"] for r in sorted(rows, key=lambda r: not r["in_place"])}  # out of place if there is both


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="path of tutti-bench")
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--smallest", default="4K")
    parser.add_argument("--largest", default="16M")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--collectives", nargs="*", default=list(ALGORITHMS))
    parser.add_argument("--json")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the namespaces go
    network = Network(args.machines, args.rate)
    lines = []
    worst = []
    try:
        with tempfile.TemporaryDirectory() as name:
            for collective in args.collectives:
                times = {}
                for _ in range(args.repeats):  # interleaved
                    for algorithm in (*ALGORITHMS[collective], "automatic"):
                        rows = bench(network, args.bench, pathlib.Path(name), collective, algorithm, args)
                        for size, time in rows.items():
                            times.setdefault(size, {}).setdefault(algorithm, []).append(time)
                for size, by in sorted(times.items()):
                    medians = {a: statistics.median(t) for a, t in by.items()}
                    best = min((a for a in medians if a != "automatic"), key=medians.get)
                    ratio = medians["automatic"] / medians[best]
                    worst.append(ratio)
                    lines.append({"collective": collective, "machines": args.machines, "rate": args.rate, "bytes": size,
                                  "us": medians, "best": best, "automatic_over_best": ratio})
                    print(f"{collective:15} {size:>9} " + " ".join(f"{a} {t:.0f}" for a, t in medians.items()) +
                          f"  best {best}, automatic {ratio:.2f}", flush=True)
    finally:
        network.close()
    print(f"geometric mean of automatic over best: {math.exp(statistics.mean(map(math.log, worst))):.3f}, "
          f"largest {max(worst):.2f}")
    if args.json:
        pathlib.Path(args.json).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
