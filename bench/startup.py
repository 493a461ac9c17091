#!/usr/bin/env python3
"""Measures how long launchers take to start ranks on this machine: until their world is usable, and in all.

  startup.py [--build DIR] [--ranks N ...] [--rounds N] [--ways NAME ...] [--gloo-ranks N]

A world is usable once rank 0 has left its first barrier. Ways, of which those that are installed run, in turns:

  tutti-run        bench-startup: init() and a barrier
  Open MPI         MPI_Init and a barrier (mpirun.openmpi and mpicc.openmpi: openmpi-bin, libopenmpi-dev)
  MPICH            the same (mpiexec.hydra and mpicc.mpich: mpich, libmpich-dev)
  torchrun         bench-startup, under Debian's python3-torch
  torchrun, Gloo   init_process_group("gloo") and a barrier, in Python; up to --gloo-ranks ranks

Prints a row for each number of ranks and way: medians of the two times, fastest and slowest, in milliseconds.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLOO = """\
import time
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    print("usable", time.time_ns(), flush=True)
dist.destroy_process_group()
"""


def torch_python():
    for python in ("/usr/bin/python3", sys.executable):
        if subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True).returncode == 0:
            return python
    return None


def ways_here(build, folder):
    """Returns, by name, what gives the command for n ranks; and says which ways are not here."""
    ours = build / "bench/bench-startup"
    ways = {"tutti-run": lambda n: [build / "tools/tutti-run", "-n", n, "--", ours]}
    for name, compiler, launch in (
        ("Open MPI", "mpicc.openmpi", ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]),
        ("MPICH", "mpicc.mpich", ["mpiexec.hydra"]),
    ):
        if not shutil.which(compiler) or not shutil.which(launch[0]):
            print(f"left out: {name}, as {compiler} or {launch[0]} is not here", file=sys.stderr)
            continue
        program = folder / compiler
        subprocess.run([compiler, "-O2", "-o", program, ROOT / "bench/startup_mpi.c"], check=True)
        ways[name] = lambda n, launch=launch, program=program: [*launch, "-n", n, program]
    if not (python := torch_python()):
        print("left out: torchrun, as no python3 here has torch (Debian: python3-torch)", file=sys.stderr)
        return ways
    script = folder / "gloo.py"
    script.write_text(GLOO)
    torchrun = [python, "-m", "torch.distributed.run", "-r", "1", "-t", "1", "--log_dir", folder / "logs",
                "--monitor_interval", "0.1"]  # fmt: skip
    ways["torchrun"] = lambda n: [*torchrun, "--nproc_per_node", n, "--no_python", ours]
    ways["torchrun, Gloo"] = lambda n: [*torchrun, "--nproc_per_node", n, script]
    return ways


def measure(command, limit):
    """Returns the milliseconds until the world was usable, and until the launcher had ended."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    began, started = time.time_ns(), time.monotonic()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env, timeout=limit)
    whole = 1e3 * (time.monotonic() - started)
    said = re.search(r"usable (\d+)", done.stdout)
    if done.returncode != 0 or not said:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return (int(said[1]) - began) / 1e6, whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+")
    parser.add_argument("--gloo-ranks", type=int, default=8)
    parser.add_argument("--limit", type=float, default=300, help="seconds for each launch")
    args = parser.parse_args()
    print("| ranks | way | usable, ms | from, to | whole program, ms | from, to |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ways = ways_here(args.build.resolve(), pathlib.Path(folder))
        for n in args.ranks:
            here = {name: way for name, way in ways.items() if not args.ways or name in args.ways}
            if n > args.gloo_ranks:
                here.pop("torchrun, Gloo", None)
            runs = {name: [] for name in here}
            for _ in range(args.rounds):
                for name, way in here.items():
                    runs[name].append(measure(way(n), args.limit))
            for name, times in runs.items():
                usable, whole = zip(*times)
                cells = (f"{statistics.median(t):.0f} | {min(t):.0f}, {max(t):.0f}" for t in (usable, whole))
                print(f"| {n} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
