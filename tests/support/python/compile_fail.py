#!/usr/bin/env python3
"""Checks code that must not compile.

  compile_fail.py FILE.cpp -- COMPILER FLAGS...

FILE.cpp compiles as it stands. For each line `// SECTION_name: regex` it must fail with -DSECTION_name, and what the
compiler prints must match the regex. Every SECTION_name that an #if of the file mentions needs such a line.

Most of what a compilation takes is the headers, so all sections are tried at once, each in a scope of its own. A section
whose errors do not stand out there, or do not match, is tried alone.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

EXPECTED = re.compile(r"^\s*// (SECTION_\w+): (.+?)\s*$", re.MULTILINE)
USED = re.compile(r"^\s*#\s*(?:el)?if.*$", re.MULTILINE)
BLOCK = re.compile(r"^#if defined\((SECTION_\w+)\)\n((?:(?!#(?:if|el|endif)).*\n)*)#endif$", re.MULTILINE)
ERROR = re.compile(r":\d+: (?:fatal )?error: ")
# What compilers print before an error to say where it is.
PLACE = re.compile(r"^In file included from|^ +from |: (?:In|At) [\w ]+|: +required (?:from|by) |: +recursively required")


def compile_once(compiler, path, define=None):
    every = ["-ferror-limit=0"] if "clang" in os.path.basename(compiler[0]) else []  # g++ has no limit
    wanted = ["-fsyntax-only", "-fdiagnostics-color=never", *every, *([f"-D{define}"] if define else [])]
    command = [*compiler, *wanted, path]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"))
    return done.returncode, done.stdout + done.stderr


def in_scopes(text, path):
    """The file with all sections at once, and the lines of each."""
    lines = {}

    def scoped(match):
        name, body = match.groups()
        first = text.count("\n", 0, match.start(2)) + 1
        lines[name] = range(first, first + body.count("\n"))
        code = re.search(r"^(?!#)", body, re.MULTILINE)
        opening = "{" if body[code.start() :].startswith(" ") else f"namespace in_{name} {{"
        return f'{opening}\n#line {first} "{path}"\n{body}}}\n#line {lines[name].stop + 1} "{path}"'

    return f'#line 1 "{path}"\n' + BLOCK.sub(scoped, text), lines


def errors(output):
    """What the compiler prints, cut into errors, each with what belongs to it."""
    found, places = [], []
    for line in output.splitlines():
        if ERROR.search(line):
            found.append([*places, line])
            places = []
        elif PLACE.search(line):
            places.append(line)  # of the next error, or of a note about the last one
        elif found:
            found[-1] += [*places, line]
            places = []
    return ["\n".join(lines) for lines in found]


def refused_at_once(path, text, compiler, expected):
    """The sections that all at once show to be refused as they must."""
    joined, lines = in_scopes(text, path)
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "at_once.cpp")
        with open(copy, "w", encoding="utf-8") as file:
            file.write(joined)
        _, output = compile_once(compiler, copy)
    mention = re.compile(re.escape(path) + r":(\d+):")
    refused = set()
    for error in errors(output):
        numbers = {int(n) for n in mention.findall(error)}
        at = [name for name, places in lines.items() if numbers.intersection(places)]
        if len(at) == 1 and at[0] in expected and re.search(expected[at[0]], error):
            refused.add(at[0])
    return refused


def check(path, compiler):
    """Returns the list of complaints about one file."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    expected = dict(EXPECTED.findall(text))
    used = {name for line in USED.findall(text) for name in re.findall(r"\bSECTION_\w+", line)}
    complaints = [f"{name} is used but has no line '// {name}: regex'" for name in sorted(used - set(expected))]
    complaints += [f"{name} has a regex but no #if" for name in sorted(set(expected) - used)]
    if not expected:
        complaints.append("there is no section in it")
    code, output = compile_once(compiler, path)
    if code:
        return [*complaints, f"it must compile without a section:\n{output}"]
    at_once = refused_at_once(path, text, compiler, expected) if len(expected) > 1 else set()
    for name, regex in expected.items():
        if name not in used:
            continue
        if name in at_once:
            print(f"{name}: refused, matches /{regex}/")
            continue
        code, output = compile_once(compiler, path, name)
        if code == 0:
            complaints.append(f"{name} compiles, but must not")
        elif not re.search(regex, output):
            complaints.append(f"{name} fails as it must, but nothing matches /{regex}/ in\n{output}")
        else:
            print(f"{name}: refused, matches /{regex}/, alone")
    return complaints


def self_test(compiler):
    good = (
        "// SECTION_a: wrong kind of answer\n#if defined(SECTION_a)\n"
        'static_assert(sizeof(int) == 1, "wrong kind of answer");\n#endif\n'
    )
    two = good + good.replace("SECTION_a", "SECTION_b").replace("== 1", "== 2")
    cases = [
        (good, None),
        (good.replace("of answer\n#if", "of question\n#if"), "nothing matches"),
        (good.replace("== 1", "!= 1"), "compiles, but must not"),
        (good.replace("// SECTION_a", "// SECTION_b"), "has no line"),
        ("int broken(;\n" + good, "must compile without"),
        ("int fine();\n", "no section"),
        (two, None),
        (two.replace("== 2", "== 4"), "SECTION_b compiles, but must not"),
        (two.replace("SECTION_b: wrong kind", "SECTION_b: wrong sort"), "SECTION_b fails as it must, but nothing matches"),
    ]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case.cpp")
        for text, wanted in cases:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            complaints = check(path, compiler)
            right = any(wanted in c for c in complaints) if wanted else not complaints
            if not right:
                failures += 1
                print(f"self-test: wanted {wanted!r}, got {complaints} for\n{text}", file=sys.stderr)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?")
    parser.add_argument("--self-test", action="store_true")
    if "--" not in sys.argv:
        parser.error("the compiler and its flags come after --")
    split = sys.argv.index("--")
    args, compiler = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    if args.self_test:
        return 1 if self_test(compiler) else 0
    complaints = check(args.file, compiler)
    for complaint in complaints:
        print(f"{args.file}: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
