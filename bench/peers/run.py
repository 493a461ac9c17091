#!/usr/bin/env python3
"""Measures tutti and its peers, side by side, on this machine.

  ./run.py                      limits, peers, ddp, startup (about 40 minutes)
  ./run.py peers --n 2 --ops all_reduce --add ours=/path/to/adaptor
  ./run.py peers --ops reduce,gather,scatter,all_to_all,scan    tutti and MPI; not among the default operations
  ./run.py limits | ddp | startup | hosts

See README.md.
"""
import argparse
import collections
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import report

HERE = os.path.dirname(os.path.abspath(__file__))
CORES = os.cpu_count()
PACKAGES = ["g++", "openmpi-bin", "libopenmpi-dev", "mpich", "libmpich-dev", "libgloo-dev", "python3-torch"]
PYTHON = "/usr/bin/python3"  # the one that has Debian's torch
SIZES = [4, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 25 << 20, 64 << 20, 256 << 20]
OPS = ["all_reduce", "broadcast", "barrier", "reduce_scatter", "all_gather"]
ALL_OPS = OPS + ["gather", "scatter", "all_to_all", "reduce", "scan"]  # the added ones run only where --ops names them


def sh(cmd, **kw):
    return subprocess.run(cmd, shell=isinstance(cmd, str), **kw)


def install():
    missing = [p for p in PACKAGES if sh(["dpkg", "-s", p], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode]
    if missing:
        print("installing:", *missing, flush=True)
        root = ["env", "DEBIAN_FRONTEND=noninteractive"] if os.geteuid() == 0 else ["sudo", "DEBIAN_FRONTEND=noninteractive"]
        sh([*root, "apt-get", "update"], stdout=subprocess.DEVNULL)
        sh([*root, "apt-get", "install", "-y", "--no-install-recommends", *missing], stdout=subprocess.DEVNULL, check=True)


def build(out):
    os.makedirs(out, exist_ok=True)
    flags = "-std=c++20 -O3 -march=native"
    for cmd in (
        f"mpicxx.openmpi {flags} -o {out}/mpi_openmpi peer_mpi.cpp",
        f"mpicxx.mpich {flags} -o {out}/mpi_mpich peer_mpi.cpp",
        f"g++ {flags} -w -o {out}/gloo peer_gloo.cpp -lgloo -lpthread",
        f"g++ {flags} -o {out}/floor floor.cpp",
        f"g++ {flags} -o {out}/floor_tcp floor_tcp.cpp",
        f"g++ {flags} -o {out}/limits limits.cpp",
        f"g++ -std=c++20 -O3 -I ../../include -pthread -o {out}/tutti peer_tutti.cpp",
        f"g++ -std=c++20 -O3 -I ../../include -pthread -o {out}/ddp_tutti peer_ddp_tutti.cpp",
        f"g++ -std=c++20 -O3 -I ../../include -pthread -shared -fPIC -o {out}/libtutti_torch.so ../../examples/torch_ddp/tutti_torch.cpp",
        f"g++ {flags} -shared -fPIC -o {out}/libharness.so harness_c.cpp",
        f"g++ {flags} -shared -fPIC -o {out}/libpace.so pace.cpp -ldl",
    ):
        sh(cmd, cwd=HERE, check=True)


class Peer:
    """How to start n ranks of a peer. launch: 'ompi', 'mpich' or 'fork'."""

    def __init__(self, name, launch, exe, flags=(), env=None, ops=OPS, ranks=lambda n: True, pin=True, spin=True):
        self.name, self.launch, self.exe, self.flags, self.env = name, launch, exe, list(flags), env or {}
        self.ops, self.ranks, self.pin, self.spin = ops, ranks, pin, spin


def by_connections(out, numbers):
    """tutti over TCP with so many connections to each peer."""
    return [Peer(f"tutti-tcp{k}", "fork", f"{out}/tutti", env={"PEER_VARIANT": "tcp", "TUTTI_CONNECTIONS": str(k)}, ops=ALL_OPS) for k in numbers]


def peers(out, added):
    two, over = (lambda n: n == 2), (lambda n: n > CORES)
    ompi, mpich, gloo, floor = f"{out}/mpi_openmpi", f"{out}/mpi_mpich", f"{out}/gloo", f"{out}/floor"
    rg = {f"MPIR_CVAR_{op}_POSIX_INTRA_ALGORITHM": "release_gather" for op in ("ALLREDUCE", "BCAST", "BARRIER")}
    # Open MPI allocates a temporary for every call; this keeps malloc from returning it to the system.
    keep = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_TOP_PAD_": str(256 << 20)}
    threads = dict(pin=False, spin=False)  # peers with helper threads
    tutti = f"{out}/tutti"
    return [
        Peer("tutti", "fork", tutti, ops=ALL_OPS),
        Peer("tutti-sym", "fork", tutti, env={"PEER_VARIANT": "symmetric"}, ops=ALL_OPS),
        Peer("tutti-reg", "fork", tutti, env={"PEER_VARIANT": "registered"}, ops=ALL_OPS),
        Peer("tutti-tcp", "fork", tutti, env={"PEER_VARIANT": "tcp"}, ops=ALL_OPS),
        Peer("ompi", "ompi", ompi, ops=ALL_OPS),
        Peer("ompi-nocma", "ompi", ompi, ["--mca", "btl_vader_single_copy_mechanism", "none"], ops=ALL_OPS, ranks=two),
        Peer("ompi-malloc", "ompi", ompi, env=keep, ops=ALL_OPS),
        Peer("ompi-tcp", "ompi", ompi, ["--mca", "btl", "self,tcp", "--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", "lo"], ops=ALL_OPS),
        Peer("ompi-yield", "ompi", ompi, ["--mca", "mpi_yield_when_idle", "1"], ops=["all_reduce", "barrier"], ranks=over),
        Peer("ompi-noyield", "ompi", ompi, ["--mca", "mpi_yield_when_idle", "0"], ops=["all_reduce", "barrier"], ranks=over),
        Peer("mpich", "mpich", mpich, ops=ALL_OPS),
        Peer("mpich-rg", "mpich", mpich, env=rg, ops=["all_reduce", "broadcast", "barrier"], ranks=two),
        Peer("mpich-tcp", "mpich", mpich, env={"UCX_TLS": "tcp,self", "MPIR_CVAR_NOLOCAL": "1"}, ops=ALL_OPS, ranks=two),
        Peer("gloo-ring", "fork", gloo, env={"PEER_VARIANT": "ring"}, ops=[o for o in OPS if o != "reduce_scatter"], **threads),
        Peer("gloo-bcube", "fork", gloo, env={"PEER_VARIANT": "bcube"}, ops=["all_reduce"], **threads),
        Peer("gloo-hd", "fork", gloo, env={"PEER_VARIANT": "hd"}, ops=["all_reduce", "reduce_scatter"], **threads),
        Peer("torch", "fork", [PYTHON, f"{HERE}/peer_torch.py"], **threads),
        Peer("floor-plain", "fork", floor, env={"PEER_VARIANT": "plain"}, ranks=two),
        Peer("floor-cma", "fork", floor, env={"PEER_VARIANT": "cma"}),
        Peer("floor-shm", "fork", floor, env={"PEER_VARIANT": "shm"}),
        Peer("floor-zc", "fork", floor, env={"PEER_VARIANT": "zc"}),
        Peer("floor-tcp", "fork", f"{out}/floor_tcp", ops=["all_reduce", "broadcast", "reduce_scatter", "all_gather", "reduce"], ranks=two),
    ] + [Peer(n, "fork", c.split(), ops=ALL_OPS) for n, c in (a.split("=", 1) for a in added)]


def command(peer, n, rank=None):
    exe = peer.exe if isinstance(peer.exe, list) else [peer.exe]
    if peer.launch == "ompi":
        bind = "core" if n <= CORES else "none"
        return ["mpirun.openmpi", "--allow-run-as-root", "-np", str(n), "--oversubscribe", "--bind-to", bind, *peer.flags, *exe]
    if peer.launch == "mpich":
        return ["mpiexec.mpich", "-np", str(n), *(["-bind-to", "core"] if n <= CORES else []), *peer.flags, *exe]
    return (["taskset", "-c", str(rank)] if peer.pin and n <= CORES else []) + exe


def launch(peer, n, out, args, timeout=180, wrap=lambda rank: [], rank_env=lambda rank: {}):
    """Runs n ranks; returns the JSON lines they print and the wall time."""
    work = tempfile.mkdtemp(prefix="peers-", dir="/dev/shm")
    env = dict(os.environ, PEER_SHM=work + "/harness", PEER_DIR=work, PEER_SIZE=str(n), OMP_NUM_THREADS="1",
               PEER_HARNESS=f"{out}/libharness.so", **peer.env)
    if not peer.spin:
        env["PEER_SPIN"] = "0"
    open(env["PEER_SHM"], "wb").close()
    start = time.monotonic()
    ranks = range(n) if peer.launch == "fork" else [None]
    procs = []
    for r in ranks:
        e = dict(env, PEER_RANK=str(r), **rank_env(r)) if r is not None else env
        procs.append(subprocess.Popen(wrap(r) + command(peer, n, r) + args, env=e, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    lines, failed = [], ""
    try:
        for p in procs:
            o, err = p.communicate(timeout=max(1, timeout - (time.monotonic() - start)))
            lines += [json.loads(x) for x in o.splitlines() if x.startswith("{")]
            if p.returncode:
                failed = err[-500:] or f"exit status {p.returncode}"
    except subprocess.TimeoutExpired:
        failed = "timeout"
        for p in procs:
            p.terminate()
            p.wait()
    if failed:
        print(f"  {peer.name} n={n}: {failed}", file=sys.stderr)
    wall = time.monotonic() - start
    shutil.rmtree(work, ignore_errors=True)
    return lines, wall


def wait_quiet(limit=60):
    """Waits until other programs leave the machine alone."""
    def busy():
        v = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        return sum(v) - v[3] - v[4], sum(v)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        a = busy()
        time.sleep(0.5)
        b = busy()
        if (b[0] - a[0]) <= 0.05 * (b[1] - a[1]):
            return
    print("  (the machine is not quiet)", file=sys.stderr)


def save(a, results):
    with open(a.json, "w") as f:
        json.dump(results, f, indent=0)


def table(rows, value, busy=25):
    """Prints one table per (op, n, placement): sizes by peers, medians over the rounds."""
    cells = collections.defaultdict(list)
    for r in rows:
        if r["ok"] and r["other_pct"] < busy:
            cells[r["op"], r["n"], report.kind(r), r["bytes"], r["peer"]].append(r)
    names = list(dict.fromkeys(r["peer"] for r in rows))
    for op, n, k in sorted({c[:3] for c in cells}, key=lambda c: (ALL_OPS.index(c[0]), c[1], c[2])):
        if k == "mixed":
            continue
        here = [p for p in names if any(c[:3] == (op, n, k) and c[4] == p for c in cells)]
        print(f"\n{op}, {n} ranks, {k}: {value}")
        print("| size | " + " | ".join(here) + " |\n|---|" + "---|" * len(here))
        for b in sorted({c[3] for c in cells if c[:3] == (op, n, k)}):
            out = []
            for p in here:
                rs = cells.get((op, n, k, b, p))
                if not rs:
                    out.append("")
                    continue
                us = statistics.median(r["loop_us" if value.startswith("loop") else "call_us"] for r in rs)
                if value.startswith("GB/s"):
                    out.append(f"{b / us / 1e3:.2f}" if b else "")
                else:
                    out.append(f"{us:.2f}" if us < 100 else f"{us:.0f}")
            print(f"| {report.label(b)} | " + " | ".join(out) + " |")


def run_peers(a, out, results):
    rows = results.setdefault("peers", [])
    chosen = by_connections(out, a.connections) + [p for p in peers(out, a.add) if not a.peers or p.name in a.peers or any(x.startswith(p.name + "=") for x in a.add)]
    for rnd in range(a.rounds):
        for n in a.n:
            if n > 4 and rnd >= 2:
                continue
            for p in chosen:
                ops = [o for o in (a.ops or OPS) if o in p.ops and (n == 2 or o not in ("reduce_scatter", "all_gather"))]
                if not ops or not p.ranks(n):
                    continue
                sizes = [s for s in a.sizes if n <= 4 or s <= 64 << 20]
                wait_quiet(a.quiet)
                args = ["--ops", ",".join(ops), "--sizes", ",".join(map(str, sizes)), "--budget", str(a.budget), "--rest", str(a.rest)]
                got, wall = launch(p, n, out, args)
                rows += [dict(r, peer=p.name, round=rnd) for r in got]
                save(a, results)
                bad = sum(not r["ok"] for r in got)
                kinds = collections.Counter(report.kind(r) for r in got)
                print(f"  round {rnd} n={n} {p.name}: {len(got)} cells in {wall:.0f} s, {dict(kinds)}"
                      + (f", {bad} WRONG RESULTS" if bad else ""), file=sys.stderr, flush=True)
    table(rows, "us per call, median", a.busy)
    table(rows, "loop, us per call back to back", a.busy)
    table(rows, "GB/s (bytes / call time)", a.busy)
    report.print_ratios(rows)
    report.plot_all(rows, os.path.splitext(a.json)[0] + "-plots")


def run_limits(a, out, results):
    rows = results.setdefault("limits", [])
    for rnd in range(a.rounds):
        wait_quiet()
        o = sh([f"{out}/limits"], stdout=subprocess.PIPE, text=True, timeout=900).stdout
        rows += [dict(json.loads(x), round=rnd) for x in o.splitlines() if x.startswith("{")]
    groups = collections.defaultdict(list)
    for r in rows:
        groups[r["limit"], r["bytes"], r["unit"]].append(r)
    print("\n| limit | size | near | far | unit |\n|---|---|---|---|---|")
    for (name, b, unit), rs in groups.items():
        v = {k: [r["value"] for r in rs if report.kind(r) == k] for k in ("near", "far")}
        print(f"| {name} | {report.label(b)} | " + " | ".join(f"{statistics.median(v[k]):.4g}" if v[k] else "" for k in ("near", "far")) + f" | {unit} |")


def run_ddp(a, out, results):
    ours = Peer("tutti-ddp", "fork", f"{out}/ddp_tutti", pin=False, spin=False)
    torch = Peer("torch-ddp", "fork", [PYTHON, f"{HERE}/peer_ddp.py"], pin=False, spin=False)
    rows = results.setdefault("ddp", [])
    for rnd in range(a.rounds):
        for compute in a.compute:
            for p in (ours, torch):
                wait_quiet()
                env = {"PEER_COMPUTE": compute, "PEER_STEPS": str(a.steps), "PEER_TUTTI_TORCH": f"{out}/libtutti_torch.so"}
                got, _ = launch(p, 2, out, [], timeout=900, rank_env=lambda r: env)
                rows += [dict(r, round=rnd, compute=compute) for r in got]
                save(a, results)
    report.print_ddp(rows)


def run_startup(a, out, results):
    rows = results.setdefault("startup", [])
    true = Peer("true", "fork", "true", pin=False)
    ranks = {"tutti": [2, 4, 8, 16, 32], "ompi": [2, 4, 8], "mpich": [2, 4, 8], "gloo-ring": [2, 4, 8, 16, 32], "torch": [2, 4, 8]}
    listed = [(true, [2, 8, 32], [])] + [(p, ranks[p.name], ["--startup"]) for p in peers(out, []) if p.name in ranks]
    for p, ns, args in listed:
        for n in ns:
            for _ in range(5 if p.name != "torch" else 3):
                wait_quiet(20)
                got, wall = launch(p, n, out, args)
                rows.append(dict(got[0] if got else {}, peer=p.name, n=n, wall_ms=wall * 1e3))
    print("\n| peer | ranks | whole command, ms | connect or init, ms |\n|---|---|---|---|")
    for p, n in dict.fromkeys((r["peer"], r["n"]) for r in rows):
        rs = [r for r in rows if (r["peer"], r["n"]) == (p, n)]
        inner = [r.get("connect_ms", r.get("init_ms")) for r in rs if "connect_ms" in r or "init_ms" in r]
        print(f"| {p} | {n} | {statistics.median(r['wall_ms'] for r in rs):.0f} | " + (f"{statistics.median(inner):.1f}" if inner else "") + " |")


def run_hosts(a, out, results):
    """Two emulated hosts, with half of the CPUs each: network namespaces joined by a veth pair, at a limited rate, or by a link with a delay."""
    link = None
    rows = results.setdefault("hosts", [])
    host = lambda r, n: r * 2 // n if a.placed == "blocks" else r % 2
    # Ranks that wait for each other's CPUs do not measure the link.
    mine = sorted(os.sched_getaffinity(0))
    half = len(mine) // 2
    cpus = [",".join(map(str, part or mine)) for part in (mine[:half], mine[half:])]
    ns = [f"peers{os.getpid()}-{i}" for i in range(2)]
    names = a.peers or ["tutti", "gloo-ring", "gloo-bcube", "gloo-hd", "torch"]
    chosen = by_connections(out, a.connections) + [p for p in peers(out, a.add) if p.name in names or any(x.startswith(p.name + "=") for x in a.add)]
    for p in chosen:
        p.pin = False  # to a CPU of its host, not to one of all
    pace = {"LD_PRELOAD": f"{out}/libpace.so", "PEER_PACE": str(int(a.pace * 125e6))} if a.pace else {}
    def net(cmd):
        sh(cmd, check=True)
    for x in ns:
        sh(["ip", "netns", "del", x], stderr=subprocess.DEVNULL)
    try:
        for x in ns:
            net(["ip", "netns", "add", x])
        if a.delay:
            link = subprocess.Popen([sys.executable, f"{HERE}/delay.py", *ns, str(a.delay)], stdout=subprocess.PIPE, text=True)
            assert link.stdout.readline() == "ready\n", "no link with a delay"
        else:
            net(f"ip link add peersv0 netns {ns[0]} type veth peer name peersv1 netns {ns[1]}")
        for i, x in enumerate(ns):
            net(f"ip -n {x} link set lo up")
            if a.delay:
                continue
            net(f"ip -n {x} addr add 10.77.0.{i + 1}/24 dev peersv{i} && ip -n {x} link set peersv{i} up")
            if a.rate:
                net(f"tc -n {x} qdisc add dev peersv{i} root tbf rate {a.rate} burst 512kb latency 50ms")
        for rnd, n, p in itertools.product(range(a.rounds), a.n, chosen):
            wait_quiet(a.quiet)
            got, _ = launch(p, n, out, ["--ops", ",".join(a.ops or ["all_reduce", "barrier"]), "--sizes", ",".join(map(str, a.sizes)), "--budget", str(a.budget)],
                            wrap=lambda r: ["ip", "netns", "exec", ns[host(r, n)], "taskset", "-c", cpus[host(r, n)]],
                            rank_env=lambda r: {"PEER_ADDR": f"10.77.0.{host(r, n) + 1}", "GLOO_SOCKET_IFNAME": f"peersv{host(r, n)}", **pace})
            rows += [dict(r, peer=p.name, round=rnd, rate=a.rate, placed=a.placed) for r in got]
    finally:
        if link:
            link.terminate()
            link.wait()
        for x in ns:
            sh(["ip", "netns", "del", x])
    print(f"\ntwo emulated hosts, {f'{a.delay:g} ms each way' if a.delay else a.rate or 'unlimited'}" + (f", each connection {a.pace:g} Gbit/s" if a.pace else ""))
    table([dict(r, hop_ns=0, hop2_ns=0) for r in rows], "us per call, median", a.busy)
    table([dict(r, hop_ns=0, hop2_ns=0) for r in rows], "GB/s (bytes / call time)", a.busy)


def main():
    ints = lambda s: [int(x) for x in s.split(",")]
    words = lambda s: s.split(",")
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", nargs="*", default=["limits", "peers", "ddp", "startup"], help="limits, peers, ddp, startup, hosts")
    ap.add_argument("--n", type=ints, default=[], help="numbers of ranks: 2, 4 and 8, or 2 of hosts")
    ap.add_argument("--sizes", type=ints, default=SIZES, help="bytes")
    ap.add_argument("--ops", type=words, default=[],
                    help=f"peers, hosts: of {', '.join(ALL_OPS)}; default: the first {len(OPS)}, of hosts all_reduce and barrier")
    ap.add_argument("--peers", type=words, default=[], help="only these")
    ap.add_argument("--add", action="append", default=[], metavar="NAME=COMMAND", help="our own adaptor, or any other")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--budget", type=float, default=0.15, help="seconds for each of the two phases of a cell")
    ap.add_argument("--compute", type=words, default=["none"], help="ddp: what the backward pass computes; none, busy, idle")
    ap.add_argument("--steps", type=int, default=9, help="ddp: steps of each round")
    ap.add_argument("--rest", type=float, default=0, help="seconds of sleep before each cell")
    ap.add_argument("--connections", type=ints, default=[], help="hosts, peers: also tutti over TCP with so many to each peer")
    ap.add_argument("--pace", type=float, default=0, help="hosts: Gbit/s that each connection sends at most, 0 for no limit")
    ap.add_argument("--delay", type=float, default=0, help="hosts: milliseconds each way instead of a rate")
    ap.add_argument("--busy", type=float, default=25, help="per cent of the machine that others may use during a cell that counts")
    ap.add_argument("--quiet", type=float, default=60, help="seconds to wait for others to leave the machine alone")
    ap.add_argument("--no-build", action="store_true", help="what is in --build already")
    ap.add_argument("--placed", choices=["turns", "blocks"], default="turns", help="hosts: which ranks are on which")
    ap.add_argument("--rate", default="10gbit", help="hosts: link rate, '' for unlimited")
    ap.add_argument("--json", default="results.json")
    ap.add_argument("--build", default=os.path.join(tempfile.gettempdir(), "peers-build"))
    a = ap.parse_args()
    ranks = a.n
    if not a.no_build:
        install()
        build(a.build)
    model = next((x.split(":")[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), "")
    results = {"machine": {"cpu": model, "cores": CORES, "kernel": platform.release()}, "argv": sys.argv[1:]}
    for what in a.what:
        print(f"\n== {what}", flush=True)
        a.n = ranks or ([2] if what == "hosts" else [2, 4, 8])
        {"limits": run_limits, "peers": run_peers, "ddp": run_ddp, "startup": run_startup, "hosts": run_hosts}[what](a, a.build, results)
        save(a, results)
    print("\nwrote", a.json)


if __name__ == "__main__":
    main()
