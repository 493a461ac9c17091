#!/usr/bin/env python3
"""Holds the headers to the floors of the house.

A header includes lower floors only, or a concept header of its own floor, or a file of its own folder. It also checks
that includes are written <tutti/...>, that they form no cycle, that optional headers stay optional, that compiler and
operating-system conditionals stay in config.hpp, that every header comes to config.hpp before it declares anything, and
that no header grows past 400 lines.

  check_includes.py [--root DIR]   checks DIR/include/tutti, prints the sizes, exit status 1 after a violation
  check_includes.py --leaves      prints the headers that the umbrella does not reach, for the linter
  check_includes.py --self-test   proves that every rule turns red
"""

import argparse
import pathlib
import re
import statistics
import sys
import tempfile

import self_tests

MAX_LINES = 400
FLOORS = {
    "config.hpp": -1, "version.hpp": -1,
    "core": 0,
    "async": 1, "os": 1, "wire": 1,
    "store": 2, "transport": 2, "watch": 2,
    "algo": 3,
    "cuda": 3,
    "backend": 4,
    "communicator": 5, "bootstrap": 5,
    "grad": 6,
    "train": 7,
    "tutti.hpp": 8,
    "interop": 9,  # a wing: nothing includes it
    "impl": 9,  # impl/src.hpp; what lies in impl/<folder>/ stands on the floor of that folder
}  # fmt: skip
CONCEPTS = {"concept.hpp", "concepts.hpp"}
# On the same floor, but above: the key may include the values.
ALSO = {"bootstrap": {"communicator"}}
# Headers that need more than a C++20 compiler. CMakeLists.txt gives each to the component that brings what it needs.
OPTIONAL = re.compile(
    r"cuda/(cuda|runtime)\.hpp|backend/nccl/api\.hpp|bootstrap/(openssl|tls|nccl)\.hpp|backend/mpi(_\w+)?\.hpp|interop/.*|.*\.cuh"
)

INCLUDE = re.compile(r"^\s*#\s*include\s*([<\"])([^>\"]+)[>\"]")
# Of the standard headers, the one that refuses an older C++ with words of its own.
NOT_BEFORE_CONFIG = "coroutine"
CONDITIONAL = re.compile(r"^\s*#\s*(?:el)?if.*$")
PLATFORM = re.compile(
    r"\b(__GNUC__|__GNUC_MINOR__|__GNUG__|__clang__|__clang_major__|_MSC_VER|__NVCC__|__CUDACC__|__CUDA_ARCH__"
    r"|__linux__|__linux|__unix__|__APPLE__|_WIN32|__x86_64__|__i386__|__aarch64__|__arm__"
    r"|__AVX\w*|__SSE\w*|__F16C__|__FMA__|__ARM_\w+|__SANITIZE_\w+"
    r"|__has_feature|__GLIBC__|__GLIBCXX__|_LIBCPP_VERSION)\b"
)


def unit_of(path):
    """The part of the house a header belongs to: its folder, or the file itself at the top."""
    first, *rest = path.split("/")
    if first == "impl" and len(rest) > 1:
        first = rest[0]
    return "communicator" if first == "communicator.hpp" else first


def forbidden(path, target):
    """Why `path` must not include `target`, or None."""
    here, there = unit_of(path), unit_of(target)
    for unit in (here, there):
        if unit not in FLOORS:
            return f"{unit} stands on no floor; scripts/check_includes.py lists them"
    if there == "interop" and here != "interop":
        return "nothing includes interop/"
    if path.endswith(".hpp") and target.endswith(".cuh"):
        return "a .hpp never includes a .cuh: a kernel enters as a template argument"
    # The umbrella includes a component's header where the component's macro says that it is linked.
    if OPTIONAL.fullmatch(target) and not OPTIONAL.fullmatch(path) and path != "tutti.hpp":
        return f"{target} is optional, so only optional headers may include it"
    if here == there:
        return None
    if FLOORS[there] < FLOORS[here] or there in ALSO.get(here, ()):
        return None
    if FLOORS[there] == FLOORS[here]:
        if target.split("/")[-1] in CONCEPTS:
            return None
        return f"{there} is on the same floor {FLOORS[here]}: only its concept header may be included"
    return f"{there} is on floor {FLOORS[there]}, above floor {FLOORS[here]}"


def find_cycle(graph):
    """One cycle of the include graph as a list of paths, or []."""
    state, stack = {}, []

    def visit(node):
        state[node] = 1
        stack.append(node)
        for nxt in sorted(graph.get(node, ())):
            if state.get(nxt) == 1:
                return stack[stack.index(nxt) :] + [nxt]
            if nxt not in state:
                cycle = visit(nxt)
                if cycle:
                    return cycle
        stack.pop()
        state[node] = 2
        return []

    for node in sorted(graph):
        if node not in state:
            cycle = visit(node)
            if cycle:
                return cycle
    return []


def read_tree(base):
    return {
        p.relative_to(base).as_posix(): p.read_text(encoding="utf-8").splitlines()
        for p in sorted(base.rglob("*"))
        if p.suffix in (".hpp", ".cuh", ".inl")
    }


def check(root):
    """Returns (violations, include graph, lines per header)."""
    files = read_tree(root / "include" / "tutti")
    violations, graph = [], {}
    for path, lines in files.items():
        graph[path] = set()
        if not path.endswith(".inl") and "#pragma once" not in lines:
            violations.append(f"{path}:1: has no #pragma once")
        if len(lines) > MAX_LINES:
            violations.append(f"{path}:{len(lines)}: is longer than {MAX_LINES} lines; split it by concept")
        if path.endswith(".hpp") and path not in ("config.hpp", "version.hpp"):
            includes = [found[2] for found in map(INCLUDE.match, lines) if found]
            first = next((i for i in includes if i.startswith("tutti/") or i == NOT_BEFORE_CONFIG), NOT_BEFORE_CONFIG)
            if first == NOT_BEFORE_CONFIG:
                violations.append(
                    f"{path}:1: must include <tutti/config.hpp>, which says what a compiler lacks, "
                    f"before <{NOT_BEFORE_CONFIG}> and before it declares anything"
                )
        for number, line in enumerate(lines, 1):
            where = f"{path}:{number}"
            found = INCLUDE.match(line)
            if found and found[1] == '"':
                violations.append(f'{where}: write <tutti/...> instead of "{found[2]}"')
            elif found and found[2].startswith("tutti/"):
                target = found[2].removeprefix("tutti/")
                if target not in files:
                    violations.append(f"{where}: includes <{found[2]}>, which does not exist")
                    continue
                graph[path].add(target)
                why = forbidden(path, target)
                if why:
                    violations.append(f"{where}: must not include <{found[2]}>: {why}")
            elif path != "config.hpp" and CONDITIONAL.match(line):
                for macro in PLATFORM.findall(line):
                    violations.append(
                        f"{where}: {macro} belongs in config.hpp, the only home of compiler and OS conditionals"
                    )
    # A header that is not compiled separately ends with its definitions, which include it.
    cycle = find_cycle({path: {t for t in targets if not t.startswith("impl/")} for path, targets in graph.items()})
    if cycle:
        violations.append("includes form a cycle: " + " -> ".join(cycle))
    return violations, graph, {path: len(lines) for path, lines in files.items()}


def reachable(graph, start):
    seen, work = set(), [start]
    while work:
        node = work.pop()
        if node in graph and node not in seen:
            seen.add(node)
            work.extend(graph[node])
    return seen


def self_test():
    """Plants one violation per rule in a tree that is clean without it."""
    clean = {
        "config.hpp": ["#if defined(__linux__)", "#endif"],
        "core/status.hpp": ["#include <vector>", "#include <tutti/config.hpp>"],
        "async/concepts.hpp": ["#include <tutti/config.hpp>"],
        "async/op.hpp": ["#include <tutti/core/status.hpp>"],
        "os/fd.hpp": ["#include <tutti/async/concepts.hpp>"],
        "store/concept.hpp": ["#include <tutti/config.hpp>"],
        "store/memory.hpp": ["#include <tutti/os/fd.hpp>"],
        "transport/shm/transport.hpp": ["#include <tutti/store/concept.hpp>"],
        "bootstrap/nccl.hpp": ["#include <tutti/cuda/event.hpp>", "#include <tutti/cuda/runtime.hpp>"],
        "cuda/event.hpp": ["#include <tutti/config.hpp>"],
        "cuda/runtime.hpp": ["#include <tutti/config.hpp>"],
        "cuda/kernels/pack.cuh": ["#include <tutti/cuda/event.hpp>", "#if defined(FEATURE)", "#endif"],
        "communicator.hpp": ["#include <tutti/async/op.hpp>"],
        "bootstrap/init.hpp": ["#include <tutti/communicator.hpp>"],
        "bootstrap/openssl.hpp": ["#include <tutti/bootstrap/init.hpp>"],
        "grad/reducer.hpp": ["#include <tutti/communicator.hpp>"],
        "train/sampler.hpp": ["#include <tutti/grad/reducer.hpp>"],
        "interop/asio.hpp": ["#include <tutti/communicator.hpp>"],
        "tutti.hpp": ["#include <tutti/grad/reducer.hpp>", "#include <tutti/bootstrap/init.hpp>"],
        "backend/composed.hpp": ["#include <tutti/impl/backend/composed.hpp>"],
        "impl/backend/composed.hpp": ["#include <tutti/backend/composed.hpp>"],
    }
    planted = [
        ("core/status.hpp", ["#include <tutti/async/op.hpp>"], "above floor 0"),
        ("async/op.hpp", ["#include <tutti/os/fd.hpp>"], "same floor 1"),
        ("os/fd.hpp", ["  #  include <tutti/async/op.hpp>"], "same floor 1"),
        ("transport/shm/transport.hpp", ["#include <tutti/store/memory.hpp>"], "same floor 2"),
        ("communicator.hpp", ["#include <tutti/bootstrap/init.hpp>"], "same floor 5"),
        ("impl/backend/composed.hpp", ["#include <tutti/grad/reducer.hpp>"], "above floor 4"),
        ("store/concept.hpp", ["#include <tutti/impl/backend/composed.hpp>"], "above floor 2"),
        ("grad/reducer.hpp", ["#include <tutti/train/sampler.hpp>"], "above floor 6"),
        ("grad/reducer.hpp", ["#include <tutti/interop/asio.hpp>"], "nothing includes interop/"),
        ("tutti.hpp", ["#include <tutti/interop/asio.hpp>"], "nothing includes interop/"),
        ("cuda/event.hpp", ["#include <tutti/cuda/kernels/pack.cuh>"], "never includes a .cuh"),
        ("communicator.hpp", ["#include <tutti/bootstrap/openssl.hpp>"], "is optional"),
        ("grad/reducer.hpp", ["#include <tutti/bootstrap/nccl.hpp>"], "is optional"),
        ("cuda/event.hpp", ["#include <tutti/cuda/runtime.hpp>"], "is optional"),
        ("async/op.hpp", ["#if defined(__clang__)", "#endif"], "__clang__ belongs in config.hpp"),
        ("os/fd.hpp", ["#ifdef __x86_64__", "#endif"], "__x86_64__ belongs in config.hpp"),
        ("cuda/kernels/pack.cuh", ["#if 1", "#elif defined(_WIN32)", "#endif"], "_WIN32 belongs in config.hpp"),
        ("cuda/event.hpp", ["#if defined(__CUDA_ARCH__)", "#endif"], "__CUDA_ARCH__ belongs in config.hpp"),
        ("store/memory.hpp", ["// filler"] * MAX_LINES, "is longer than 400 lines"),
        ("store/memory.hpp", ["#include <tutti/store/nowhere.hpp>"], "which does not exist"),
        ("store/memory.hpp", ['#include "concept.hpp"'], "write <tutti/...>"),
        ("os/pipe.hpp", ["#include <vector>"], "must include <tutti/config.hpp>"),
        ("os/pipe.hpp", ["#include <coroutine>", "#include <tutti/config.hpp>"], "must include <tutti/config.hpp>"),
        ("attic/box.hpp", ["#include <tutti/core/status.hpp>"], "stands on no floor"),
        (
            "store/concept.hpp",
            ["#include <tutti/store/memory.hpp>", "#include <tutti/store/concept.hpp>"],
            "form a cycle",
        ),
    ]

    def run(extra):
        with tempfile.TemporaryDirectory() as folder:
            base = pathlib.Path(folder) / "include" / "tutti"
            for path in {**clean, **extra}:
                file = base / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("\n".join(["#pragma once", *clean.get(path, []), *extra.get(path, [])]) + "\n")
            return check(pathlib.Path(folder))[0]

    failures = [f"the clean tree is not clean: {v}" for v in run({})]
    for path, lines, wanted in planted:
        if not any(wanted in v and (path in v) for v in run({path: lines})):
            failures.append(f"not noticed in {path}: {lines[0]} ({wanted})")
    return self_tests.report(failures, len(planted))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--leaves", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    violations, graph, sizes = check(args.root)
    if args.leaves:
        print("\n".join(sorted(set(graph) - reachable(graph, "tutti.hpp"))))
        return 0
    for violation in violations:
        print(
            f"include/tutti/{violation}" if re.search(r"\.(hpp|cuh|inl):", violation) else violation, file=sys.stderr
        )
    if sizes:
        longest = max(sizes, key=sizes.get)
        median = statistics.median(sizes.values())
        print(f"{len(sizes)} headers, median {median:.0f} lines, longest {sizes[longest]} ({longest})")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
