#!/usr/bin/env python3
"""Counts the instructions of a call with what watches it on and off. Needs valgrind.

  instructions.py [--build DIR] [--calls N]

Valgrind counts the instructions of bench-instructions with N calls and with 3 N; the difference per call is printed.
"""

import argparse
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def instructions(program, calls, environment):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, str(calls)]
    run = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", run.stderr)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--calls", type=int, default=1000)
    args = parser.parse_args()
    outside = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    variants = {"the recorder, which is always on": None, "its memory is a file": "TUTTI_FLIGHT_DIR",
                "metrics, too": "TUTTI_METRICS_DIR", "a trace, too": "TUTTI_TRACE_DIR"}
    print("| watched by | instructions per call |\n|---|---|")
    for title, variable in variants.items():
        with tempfile.TemporaryDirectory() as folder:
            environment = outside | ({variable: folder} if variable else {})
            program = args.build / "bench/bench-instructions"
            few, many = (instructions(program, n, environment) for n in (args.calls, 3 * args.calls))
        print(f"| {title} | {(many - few) / (2 * args.calls):.0f} |")


main()
