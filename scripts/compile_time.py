#!/usr/bin/env python3
"""What one line, #include <tutti/tutti.hpp>, costs to compile with g++ at -O0.

compile_time.py [--budget MB] [--runs N] [--cxx G++]

The gate is the memory that g++ allocates (the last figure of -ftime-report): it is the same in every run, however busy
the machine, and the time follows it. The best time of some runs is printed beside it.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cpu_seconds(command):
    before = os.times()
    subprocess.run(command, check=True)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def allocated_megabytes(command):
    ran = subprocess.run(command + ["-ftime-report"], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    total = re.search(r"^ TOTAL .*?(\d+)M\s*$", ran.stderr, re.MULTILINE)
    if not total:
        sys.exit(f"compile_time.py: {command[0]} -ftime-report names no total; it takes a g++")
    return int(total.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=334, help="of memory (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cxx", default="g++")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "umbrella.cpp"
        source.write_text("#include <tutti/tutti.hpp>\n")
        command = [args.cxx, "-std=c++20", "-O0", f"-I{ROOT}/include", "-c", str(source), "-o", f"{folder}/umbrella.o"]
        megabytes = allocated_megabytes(command)
        best = min(cpu_seconds(command) for _ in range(args.runs))
    print(f"#include <tutti/tutti.hpp> with {args.cxx} -O0: {megabytes} MB, budget {args.budget} MB; {best:.2f} s of CPU")
    return 0 if megabytes <= args.budget else 1


if __name__ == "__main__":
    sys.exit(main())
