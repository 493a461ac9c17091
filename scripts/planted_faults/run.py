#!/usr/bin/env python3
"""Plants the faults of this folder, one at a time, and reports which are found by the tests that should find them.

run.py --check            only whether every patch still applies; exit status 1 if one does not
run.py [NAME ...]         plants these faults (all without a name) and runs their tests
    --scratch FOLDER      where the copy of the sources and its builds lie (build/planted_faults)
    --jobs N              of a build (all processors)
    --fast                does not look whether the tests pass without the fault
    --limit SECONDS       after which a test case counts as one that hangs, and thus as failed (300)

A fault is a unified diff with a head of its own:

    Fault: what is wrong, in a sentence
    Command: dev test, or dev check: which of the two runs the test that finds it
    Entry: the name of that test in ctest
    Files: a regular expression; only test files that match it are compiled (optional: all of the entry's folder)
    Preset: asan-ubsan or tsan (optional: dev)
    Target: what to build (optional: the program of the entry's folder)

A fault counts as found where its test fails with it, and passes without it. The copy is a git worktree of what is
committed here. Tests are compiled without optimisation and do not link tutti::compiled, so that a fault costs the
compiling of one test file. The exit status is 1 where a fault was not found.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SKIPPED = 77  # what ctest takes for "skipped"
KEYS = {"Fault", "Command", "Entry", "Files", "Preset", "Target"}
COMMANDS = {"dev test": "reduced", "dev check": "full"}  # and the grid that it runs


@dataclasses.dataclass
class Fault:
    path: pathlib.Path
    fault: str = ""
    command: str = ""
    entry: str = ""
    files: str = ""
    preset: str = "dev"
    target: str = ""

    @property
    def name(self):
        return self.path.stem


def read_fault(path):
    found = Fault(path)
    for line in path.read_text().splitlines():
        if line.startswith("--- "):
            break
        key, colon, value = line.partition(": ")
        if not colon or key not in KEYS:
            sys.exit(f"{path.name}: '{line}' is no line of its head; it has {', '.join(sorted(KEYS))}")
        setattr(found, key.lower(), value.strip())
    if not found.fault or not found.entry or found.command not in COMMANDS:
        sys.exit(f"{path.name}: its head lacks Fault, Entry, or a Command of {' or '.join(COMMANDS)}")
    folder = re.sub(r"\.(grid|bench)$", "", found.entry)
    if not found.target and any((ROOT / "tests" / folder).glob("**/*_test.cpp")):
        found.target = f"tutti_test_{folder}"
    return found


def run(*command, cwd=None, env=None):
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def must(*command, cwd=None):
    done = run(*command, cwd=cwd)
    if done.returncode != 0:
        sys.exit(f"this failed: {' '.join(str(word) for word in command)}\n{done.stdout}")
    return done.stdout


def check(faults):
    """The names of the patches that do not apply to the sources as they are here, or name no test file of theirs."""
    bad = []
    tests = [path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("*_test.cpp")]
    for fault in faults:
        done = run("git", "apply", "--check", fault.path, cwd=ROOT)
        if done.returncode != 0:
            bad.append(fault.name)
            print(f"{fault.path.name} does not apply any more; plant that fault in the code as it is now\n{done.stdout}")
        elif fault.files and not any(re.search(fault.files, test) for test in tests):
            bad.append(fault.name)
            print(f"{fault.path.name}: no file of tests/ matches {fault.files}")
    return bad


class Ground:
    """A copy of the sources in which faults are planted, and its builds."""

    def __init__(self, scratch, asked):
        self.tree, self.builds = scratch / "tree", scratch / "builds"
        self.jobs, self.limit, self.fast = asked.jobs, asked.limit, asked.fast
        self.sound = {}  # whether a test passes without any fault
        head = must("git", "rev-parse", "HEAD", cwd=ROOT).strip()
        if (self.tree / ".git").exists():
            must("git", "reset", "-q", "--hard", cwd=self.tree)
            must("git", "checkout", "-q", "--detach", head, cwd=self.tree)
        else:
            must("git", "worktree", "prune", cwd=ROOT)
            must("git", "worktree", "add", "-q", "--detach", self.tree, head, cwd=ROOT)

    def build(self, fault):
        """The build folder, and what the build said if it failed."""
        folder = self.builds / fault.preset
        how = [
            "-DTUTTI_LINK_COMPILED=OFF",
            "-DTUTTI_NO_DEBUG_INFO=ON",
            "-DTUTTI_TESTS_TOGETHER=OFF",
            "-DTUTTI_BUILD_KERNELS=OFF",
            f"-DTUTTI_TEST_FILES={fault.files}",
        ]
        if fault.preset == "dev":
            how.append("-DCMAKE_CXX_FLAGS_DEBUG=-O0 -foptimize-sibling-calls")
        must("cmake", "-S", self.tree, "--preset", fault.preset, "-B", folder, *how, cwd=self.tree)
        if not fault.target:
            return folder, None
        done = run("cmake", "--build", folder, "-j", self.jobs, "--target", fault.target)
        return folder, done.stdout if done.returncode != 0 else None

    def test(self, fault):
        """'passed', or 'failed' and the name of the test case, or 'not built' and what the compiler said."""
        folder, failure = self.build(fault)
        if failure is not None:
            return "not built", failure
        grid = {"TUTTI_TEST_GRID": COMMANDS[fault.command], "TUTTI_TEST_LIMIT": str(self.limit)}
        entry = "^" + re.escape(fault.entry) + "$"
        words = ["ctest", "--test-dir", folder, "-R", entry, "--output-on-failure", "--no-tests=error"]
        done = run(*words, cwd=self.tree, env=os.environ | grid)
        if "***Skipped" in done.stdout or "No tests were found" in done.stdout:
            return "not run", done.stdout
        if done.returncode == 0:
            return "passed", ""
        case = re.search(
            r"^TEST CASE: +(.*)$|watchdog: giving up in test case (.*?) \(|^SUMMARY: (\w+Sanitizer: [a-z -]+[a-z])",
            done.stdout,
            re.MULTILINE,
        )
        return "failed", next(filter(None, case.groups())).strip() if case else ""

    def plant(self, fault):
        """What became of it, and whether that is what should."""
        must("git", "apply", fault.path, cwd=self.tree)
        try:
            outcome, words = self.test(fault)
        finally:
            must("git", "apply", "-R", fault.path, cwd=self.tree)
        if outcome in ("not built", "not run"):
            return f"{outcome.upper()}\n{words}", False
        if outcome == "passed":
            return f"NOT FOUND by {fault.entry}", False
        if not self.fast and not self.is_sound(fault):
            return f"UNKNOWN: {fault.entry} does not pass without it", False
        return f"found by {fault.entry}" + (f', "{words}"' if words else ""), True

    def is_sound(self, fault):
        """Whether its test passes without it."""
        same_test = (fault.preset, fault.entry, fault.files, fault.command)
        if same_test not in self.sound:
            self.sound[same_test] = self.test(fault)[0] == "passed"
        return self.sound[same_test]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--scratch", type=pathlib.Path, default=ROOT / "build" / "planted_faults")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--limit", type=int, default=300)
    asked = parser.parse_args()

    faults = [read_fault(path) for path in sorted(HERE.glob("*.patch"))]
    if unknown := set(asked.names) - {fault.name for fault in faults}:
        sys.exit(f"no such fault: {', '.join(sorted(unknown))}")
    faults = [fault for fault in faults if not asked.names or fault.name in asked.names]
    if asked.check:
        if not shutil.which("git"):
            return SKIPPED
        bad = check(faults)
        print(f"{len(faults) - len(bad)} of {len(faults)} planted faults apply")
        return 1 if bad else 0

    ground = Ground(asked.scratch.resolve(), asked)
    found = {command: 0 for command in COMMANDS}
    for fault in faults:
        words, good = ground.plant(fault)
        found[fault.command] += good
        print(f"{fault.name}: {words}", flush=True)
    told = ", ".join(f"{n} by ./{command}" for command, n in found.items())
    print(f"{sum(found.values())} of {len(faults)} faults found: {told}")
    return 0 if sum(found.values()) == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
