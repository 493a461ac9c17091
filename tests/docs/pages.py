#!/usr/bin/env python3
"""The code of README, docs and examples' pages: a reader who copies it has what it needs.

  pages.py [-- COMPILER [FLAG...]]

Every block of C++ of a page stands in its context, tests/docs/<page>.hpp, but for white space and comments; the page links to
the context, and names the headers of tutti that the context includes, but for the umbrella header. With a compiler, each
context compiles alone. The contexts are run by tests of their folders.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Pages whose blocks need CUDA, and the tests that hold them.
ELSEWHERE = {"docs/gpu.md": "tests/gpu/gpu_test.cpp", "docs/kernels.md": "tests/gpu/kernels_test.cu"}
BLOCK = re.compile(r"^```(?:cpp|c\+\+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r"^#include <tutti/([\w/]+\.hpp)>", re.MULTILINE)
NAMED = re.compile(r"[`<](?:tutti/)?([a-z_]+/[\w/]+\.hpp)[`>]")


def pages():
    folders = ("docs", "examples", "tools", "bench")
    found = [ROOT / "README.md", *(p for f in folders for p in sorted((ROOT / f).rglob("*.md")))]
    return [p for p in found if BLOCK.search(p.read_text())]


def bare(text):
    text = re.sub(r"//.*", "", text)
    return re.sub(r"\s", "", re.sub(r"^#include.*", "", text, flags=re.MULTILINE))


def faults_of(page):
    name = page.relative_to(ROOT).as_posix()
    if name in ELSEWHERE:
        if not (ROOT / ELSEWHERE[name]).exists():
            yield f"{name}: {ELSEWHERE[name]} is gone"
        return
    text = page.read_text()
    context = ROOT / "tests/docs" / re.sub(r"\.md$", ".hpp", name.removeprefix("docs/"))
    if not context.exists():
        yield f"{name}: has blocks of C++, and no context {context.relative_to(ROOT)}"
        return
    code = context.read_text()
    for block in BLOCK.finditer(text):
        if bare(block[1]) not in bare(code):
            line = text.count("\n", 0, block.start()) + 1
            yield f"{name}:{line}: this block does not stand in {context.relative_to(ROOT)}\n{block[1]}"
    link = os.path.relpath(context, page.parent)
    if f"({link})" not in text:
        yield f"{name}: does not link to its context ({link})"
    named = set(NAMED.findall(text)) | {"tutti.hpp"}
    for header in INCLUDED.findall(code):
        if header not in named:
            yield f"{name}: its code needs <tutti/{header}>, which it does not name"


def compile_alone(compiler, context):
    """What the compiler says about a file that includes nothing else."""
    flags = ["-std=c++20", "-DTUTTI_SEPARATE_COMPILATION", f"-I{ROOT}/include", "-fsyntax-only", "-x", "c++", "-"]
    program = f'#include "{context}"\n'
    done = subprocess.run([*compiler, *flags], input=program, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""


def main():
    compiler = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    faults = [fault for page in pages() for fault in faults_of(page)]
    contexts = sorted((ROOT / "tests/docs").rglob("*.hpp"))
    if compiler:
        for context in contexts:
            out = compile_alone(compiler, context)
            if out:
                faults.append(f"{context.relative_to(ROOT)} does not compile alone\n{out}")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(pages())} pages with code, {len(contexts)} contexts{' compiled' if compiler else ''}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
