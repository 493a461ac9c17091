#!/usr/bin/env python3
"""What compilers say about a user's program, to whom these are no headers of the system.

  run.py refused|strict|runs --build DIR -- COMPILER [FLAG...]

refused  says in one line what is missing and stops, where the language is too old or exceptions are switched off
strict   instantiates much of the library with every warning that the compiler has, less LEFT_OUT, and behind macros that
         other headers define: none warns
runs     compiles the same with a user's usual warnings, and links and runs a small program

Exit status 77 means skipped, with the reason printed: the compiler is not here.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SKIPPED = 77
STANDARD = "-std=c++20"

# Warnings that stay on in no program that uses what they warn of, and what that is here.
LEFT_OUT = {
    "either": {
        "c++98-compat": "this is C++20",
        "c++98-compat-pedantic": "this is C++20",
        "c++20-compat": "this is C++20",
        "ctad-maybe-unsupported": "template arguments are deduced without guides",
        "float-equal": "values are compared where equality is meant",
        "padded": "structs have gaps",
        "switch-default": "the opposite of -Wcovered-switch-default; every enumerator has a case",
    },
    "clang": {
        "disabled-macro-expansion": "members of glibc's sigaction are macros",
        "exit-time-destructors": "a process has a category of errors, and caches",
        "unsafe-buffer-usage": "pointers are counted",
        "weak-vtables": "a library of headers has no file for them",
    },
    "g++": {
        "abi": "not about a program",
        "abi-tag": "not about a program",
        "aggregate-return": "functions return structs",
        "cast-align=strict": "memory is cut into types whose alignment the compiler does not know",
        "ctor-dtor-privacy": "takes no notice of nested classes, nor of objects that delete themselves",
        "effc++": "a style of programming",
        "error": "no warning",
        "fatal-errors": "no warning",
        "inline": "says what was not inlined",
        "missing-braces": "std::array does without a second pair; clang's is on",
        "multiple-inheritance": "there is some",
        "namespaces": "there are some",
        "noexcept": "says where noexcept(expression) is false",
        "suggest-final-methods": "a suggestion",
        "suggest-final-types": "a suggestion",
        "system-headers": "not about a program",
        "templates": "there are some",
        "unused-macros": "those of this test",
        "zero-as-null-pointer-constant": "g++ 12 says it of the end of every coroutine; clang's is on",
    },
}
LEVELS = ("format=2", "implicit-fallthrough=5", "catch-value=3", "shift-overflow=2", "unused-const-variable=2")


class Failure(Exception):
    pass


def compile_with(compiler, *arguments, text=None):
    command = [*compiler, STANDARD, "-I", ROOT / "include", *arguments]
    command = [str(c) for c in command]
    print("+", " ".join(command), flush=True)
    env = dict(os.environ, LC_ALL="C")
    done = subprocess.run(command, capture_output=True, text=True, input=text, env=env)
    return done.returncode, done.stdout + done.stderr


def is_clang(compiler):
    return "clang" in os.path.basename(compiler[0])


def warnings(compiler):
    """Flags for everything that the compiler can warn of, less what is left out."""
    left_out = LEFT_OUT["either"] | LEFT_OUT["clang" if is_clang(compiler) else "g++"]
    if is_clang(compiler):
        return ["-Weverything", *(f"-Wno-{name}" for name in left_out), "-Wno-unused-macros"]
    found = set()
    for of in ("c++", "common"):
        listed = subprocess.run([compiler[0], "-Q", f"--help={of}"], capture_output=True, text=True, check=True).stdout
        found |= set(re.findall(r"^\s+-W([a-z][\w+=-]*)\s+\[(?:disabled|available in C\+\+)", listed, re.MULTILINE))
    kept = {name for name in found if name not in left_out and not name.startswith(("analyzer-", "suggest-attribute="))}
    if len(kept) < 100:
        raise Failure(f"{compiler[0]} lists {len(kept)} warnings only")
    return ["-Wall", "-Wextra", "-Wpedantic", *(f"-W{name}" for name in (*sorted(kept), *LEVELS))]


def refused(compiler, work):
    cases = [
        ("-std=c++17", "tutti: needs C++20, compile with -std=c++20"),
        ("-std=gnu++14", "tutti: needs C++20, compile with -std=c++20"),
        ("-fno-exceptions", "tutti: reports errors by exceptions, compile without -fno-exceptions"),
    ]
    if "-fexperimental-library" in compiler:
        compiler = [c for c in compiler if c != "-fexperimental-library"]
        cases.append(("-O0", "tutti: needs std::stop_token; clang's libc++ has it from version 20 on, or with"))
    for header in ("tutti.hpp", "communicator.hpp", "bootstrap/threads.hpp", "grad/reducer.hpp", "train/sampler.hpp"):
        for flag, message in cases:
            _, out = compile_with(
                compiler, flag, "-fsyntax-only", "-x", "c++", "-", text=f"#include <tutti/{header}>\n"
            )
            errors = re.findall(r"^.*?: ((?:fatal )?error: .*)$", out, re.MULTILINE)
            if len(errors) != 2 or message not in errors[0] or "tutti_stops_after_the_error_above" not in errors[1]:
                raise Failure(f"<tutti/{header}> with {flag} must be refused with '{message}' alone, but got\n{out}")


def standard_headers():
    """What our headers include of others, but of those that need CUDA, NCCL or OpenSSL."""
    found = set()
    for path in (ROOT / "include/tutti").rglob("*.hpp"):
        found |= set(re.findall(r"^#include <((?!tutti)[^>]+)>", path.read_text(), re.MULTILINE))
    return sorted(name for name in found if not re.match(r"(cuda|nccl|openssl|stops)", name))


def everything(compiler, work, *flags):
    (work / "standard_headers").write_text("".join(f"#include <{name}>\n" for name in standard_headers()))
    macros = ("-DWITH_MACROS_OF_OTHERS", "-isystem", work)
    status, out = compile_with(compiler, "-fsyntax-only", *flags, *macros, HERE / "everything.cpp")
    if status or out.strip():
        first = "\n".join(out.splitlines()[:60])
        flags = sorted(set(re.findall(r"\[(-W[^\]]+)\]", out)))
        raise Failure(f"no compiler has anything to say about a program of ours, but got {' '.join(flags)}\n{first}")


def strict(compiler, work):
    everything(compiler, work, *warnings(compiler))


def runs(compiler, work):
    everything(compiler, work, "-Wall", "-Wextra")
    program = work / "program"
    status, out = compile_with(compiler, "-O0", "-pthread", ROOT / "tests/package/main.cpp", "-o", program)
    if status:
        raise Failure(out)
    out = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    if "world 1" not in out:
        raise Failure(f"a world of one must say so, but said {out}")


WAYS = {f.__name__: f for f in (refused, strict, runs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/compilers")
    parser.add_argument("compiler", nargs="+")
    args = parser.parse_args()
    if not shutil.which(args.compiler[0]):
        print(f"skipped: {args.compiler[0]} is not here")
        return SKIPPED
    work = args.build.resolve() / f"{args.way}-{'-'.join(os.path.basename(c).strip('-') for c in args.compiler)}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        return WAYS[args.way](args.compiler, work) or 0
    except (Failure, subprocess.CalledProcessError) as failure:
        print(f"compilers test '{args.way}' of {' '.join(args.compiler)} failed: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
