"""Compiles tests for aarch64, where the reduction kernels are NEON, and runs them in an emulator.

    aarch64.py OUT -- SOURCE... -- OPTION...

Exits with 77, which ctest takes for skipped, where a tool is missing, and says which.
"""

import pathlib
import shutil
import subprocess
import sys

NEEDED = {  # what is looked for, and Debian's package that has it
    "clang++-19": "clang-19",
    "qemu-aarch64": "qemu-user",
    "aarch64-linux-gnu-ld": "binutils-aarch64-linux-gnu",
    "/usr/aarch64-linux-gnu/include/stdio.h": "libc6-dev-arm64-cross",
    "/usr/aarch64-linux-gnu/include/c++/12/span": "libstdc++-12-dev-arm64-cross",
}


def main():
    out, rest = sys.argv[1], sys.argv[3:]
    end = rest.index("--")
    sources, options = rest[:end], rest[end + 1:]
    missing = [package for what, package in NEEDED.items() if not (pathlib.Path(what).exists() or shutil.which(what))]
    if missing:
        print("skipped: needs Debian's " + " ".join(missing))
        return 77
    compile_ = ["clang++-19", "--target=aarch64-linux-gnu", "-std=c++20", "-O1", "-static", *options, *sources, "-o", out]
    return subprocess.run(compile_).returncode or subprocess.run(["qemu-aarch64", out]).returncode


if __name__ == "__main__":
    sys.exit(main())
