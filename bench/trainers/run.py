#!/usr/bin/env python3
"""Compares whole trainers: the same model, data and update with their gradients summed by MPI and by tutti.

  run.py [--build DIR] [--rounds N] [--ranks N] [--mpirun COMMAND]

DIR is a build folder whose CMake cache has TUTTI_BENCH_TRAINERS=ON. In each round every program runs once, one after the
other. Prints the median steps per second of the rounds, and the median of the ratios to MPI in the same round.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = {"gpt": (60, 8), "digits": (400, 64)}  # steps, batch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mpirun", default="mpirun --allow-run-as-root --bind-to core")
    args = parser.parse_args()

    programs = args.build / "bench"
    tutti = [args.build / "tools/tutti-run", "-n", args.ranks, "--bind", "core", "--output", "rank0", "--"]
    exchanges = {
        "MPI_Allreduce": [*shlex.split(args.mpirun), "-np", args.ranks, programs / "trainer-mpi"],
        "all_reduce": [*tutti, programs / "trainer-all-reduce"],
        "reducer": [*tutti, programs / "trainer-reducer"],
    }

    print("| model | steps/s on MPI | all_reduce | ratio | reducer | ratio |\n|---|---|---|---|---|---|")
    for model, (steps, batch) in MODELS.items():
        speeds = {name: [] for name in exchanges}
        for _ in range(args.rounds):
            for name, command in exchanges.items():
                words = [str(word) for word in [*command, "--model", model, "--steps", steps, "--batch", batch]]
                out = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE).stdout
                speeds[name].append(json.loads(out.splitlines()[-1])["steps_per_second"])
        cells = [model, f"{statistics.median(speeds['MPI_Allreduce']):.1f}"]
        for name in ("all_reduce", "reducer"):
            ratios = [ours / mpi for ours, mpi in zip(speeds[name], speeds["MPI_Allreduce"])]
            cells += [f"{statistics.median(speeds[name]):.1f}", f"{statistics.median(ratios):.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
