#!/usr/bin/env python3
"""What tutti costs to compile with g++: the umbrella header alone, and three small programs, from headers alone and with
TUTTI_SEPARATE_COMPILATION.

compile_time.py [--all] [--runs N] [--cxx G++]

Prints CPU seconds (the median of some runs), the memory that g++ allocates (the last figure of -ftime-report, the same in
every run) and the size of the object. The exit status is 1 where an umbrella takes more memory than its bound; without
--all only these are compiled.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
UMBRELLA = "#include <tutti/tutti.hpp>\n"
CALL = """#include <vector>
#include <tutti/communicator.hpp>
void sum(tutti::communicator<>& world, std::vector<float>& v) { world.all_reduce(v).wait(); }
"""
INIT = """#include <vector>
#include <tutti/tutti.hpp>
int main() {
  auto world = tutti::init();
  std::vector<float> v(100);
  world.all_reduce(v).wait();
}
"""
REDUCER = """#include <vector>
#include <tutti/tutti.hpp>
int main() {
  auto world = tutti::init();
  const std::vector<tutti::grad::parameter_shape> shapes{{"weights", 1000}, {"bias", 10}};
  tutti::grad::reducer reducer{world, shapes};
  auto pass = reducer.begin();
  pass.ready(1);
  pass.ready(0);
  tutti::sync_wait(world.engine(), pass.finish());
}
"""
CASES = {  # text, level of optimisation, bounds of memory in MB: headers alone, compiled separately
    "umbrella": (UMBRELLA, "-O0", (620, 260)),
    "all_reduce on a communicator": (CALL, "-O2", None),
    "init and all_reduce": (INIT, "-O2", None),
    "init and a reducer": (REDUCER, "-O2", None),
}


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
    parser.add_argument("--all", action="store_true", help="the programs, too")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cxx", default="g++")
    args = parser.parse_args()
    over = 0
    with tempfile.TemporaryDirectory() as folder:
        source, made = pathlib.Path(folder) / "source.cpp", pathlib.Path(folder) / "source.o"
        for name, (text, level, bounds) in CASES.items():
            if not bounds and not args.all:
                continue
            source.write_text(text)
            for kind, macro in enumerate(([], ["-DTUTTI_SEPARATE_COMPILATION"])):
                command = [args.cxx, "-std=c++20", level, *macro, f"-I{ROOT}/include", "-c", str(source), "-o", str(made)]
                megabytes = allocated_megabytes(command)
                seconds = statistics.median(cpu_seconds(command) for _ in range(args.runs))
                print(
                    f"{name}, {level}, {'compiled separately' if macro else 'headers alone'}: {seconds:.2f} s of CPU, "
                    f"{megabytes} MB, object of {made.stat().st_size // 1000} KB"
                    + (f" (at most {bounds[kind]} MB)" if bounds else "")
                )
                over |= bool(bounds) and megabytes > bounds[kind]
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
