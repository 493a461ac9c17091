#!/usr/bin/env python3
"""Holds the comments of the headers to plain technical English.

A function's comment begins with a verb ("Reduces ..."), a type's with a noun: no sentence of a comment begins with one of
OPENERS, and none contains one of PHRASES, or a word of RETIRED, for which the glossary in docs/architecture.md has
another; nor does an identifier, between its underscores. A phrase is found across line breaks, too; what stands in
quotes or backquotes is not looked at.

  check_words.py [--root DIR]   checks DIR/include/tutti, exit status 1 after a violation
  check_words.py --self-test   proves that every rule turns red
"""

import argparse
import pathlib
import re
import sys
import tempfile

import self_tests

OPENERS = ("What", "Who", "Whom", "Where", "Whether", "Of", "How", "Which")
PHRASES = ("so many", "so much", "so long", "of which", "of whom")

RETIRED = ("aloft", "blame", "board", "condemn", "crowd", "culprit", "displaced", "farewell", "hall", "inflow",
           "ledger", "lent", "loan", "meeting", "nap", "pledge", "road", "suspicion", "turnstile", "vouched",
           "weighing", "wish", "witness")

COMMENT = re.compile(r"^\s*(//+)(?: (.*)|)$")
TRAILING = re.compile(r"\s(//+<?) (.*)$")
OPENER = re.compile(rf"(?:^|[.:;!?] )({'|'.join(OPENERS)})\b")
PHRASE = re.compile(rf"\b({'|'.join(p.replace(' ', chr(92) + 's') for p in PHRASES)})\b", re.IGNORECASE)
RETIRED_WORD = re.compile(rf"\b({'|'.join(RETIRED)})s?\b", re.IGNORECASE)
RETIRED_PART = re.compile(rf"(?<![a-z])({'|'.join(RETIRED)})s?(?![a-z])", re.IGNORECASE)
CODE_ONLY = re.compile(r'"[^"]*"|//.*|^\s*#include.*')
QUOTED = re.compile(r'"[^"]*"|`[^`]*`')


def comments(lines):
    """Yields (number of the first line, lines of the comment); lines that follow each other are one comment."""
    block, first, marker = [], 0, None
    for number, line in enumerate(lines, 1):
        found = COMMENT.match(line)
        if block and (not found or found[1] != marker):
            yield first, block
            block = []
        if found:
            if not block:
                first, marker = number, found[1]
            block.append(found[2] or "")
        elif trailing := TRAILING.search(QUOTED.sub(lambda m: "_" * len(m[0]), line)):
            yield number, [trailing[2]]
    if block:
        yield first, block


def check_comment(first, block):
    """Returns (line, what is wrong) for every violation of one comment."""
    found = []
    text = "\n".join(block)
    plain = QUOTED.sub(lambda m: re.sub(r"[^\n]", "_", m[0]), text)

    def line_of(at):
        return first + text.count("\n", 0, at)

    # An empty line ends a sentence; a line break does not.
    for paragraph in re.finditer(r"[^\n]+(?:\n[^\n]+)*", plain):
        joined = paragraph[0].replace("\n", " ")
        for m in OPENER.finditer(joined):
            where = line_of(paragraph.start() + m.start(1))
            found.append((where, f'a sentence begins with "{m[1]}"; name its subject, and begin with a verb or a noun'))
    for m in PHRASE.finditer(plain):
        found.append((line_of(m.start()), f'"{" ".join(m[1].split())}"; say how many of what in plain words'))
    for m in RETIRED_WORD.finditer(plain):
        found.append((line_of(m.start()), f'"{m[0]}"; take the word of the glossary in docs/architecture.md'))
    return sorted(found)


def check_code(lines):
    """Returns (line, what is wrong) for every identifier that has a retired word."""
    return [(number, f'an identifier with "{m[1]}"; take the word of the glossary in docs/architecture.md')
            for number, line in enumerate(lines, 1) for m in RETIRED_PART.finditer(CODE_ONLY.sub("", line))]


def check(root):
    """Returns (violations, number of headers that were checked)."""
    base = root / "include" / "tutti"
    violations, headers = [], 0
    for path in sorted(base.rglob("*")):
        if path.suffix not in (".hpp", ".cuh", ".inl"):
            continue
        headers += 1
        name = path.relative_to(base).as_posix()
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [f for first, block in comments(lines) for f in check_comment(first, block)] + check_code(lines)
        violations += [f"include/tutti/{name}:{line}: {why}" for line, why in found]
    return violations, headers


def self_test():
    """Plants one violation per rule, and texts that are none."""
    planted = [(["/// " + word + " it is."], 1) for word in OPENERS]
    planted += [(["int i;  ///< for " + phrase + " bytes"], 1) for phrase in PHRASES]
    planted += [(["/// Frees the " + word + " of a group."], 1) for word in RETIRED]
    planted += [(["int " + name + " = 0;"], 1) for word in RETIRED for name in (word + "s_", "a_" + word)]
    planted += [
        (["// Returns it. Where there is none, null."], 1),
        (["/// Returns the bytes of", "/// which it is."], 1),
        (["/// Returns it.", "///", "/// Whether it is there."], 3),
    ]
    allowed = [
        ["/// Returns how many there are, where there are any."],
        ['/// Returns "What is wrong" and `so many`.'],
        ['auto s = "// Who";  // of the whole'],
        ['auto s = "board";  // of the whole', "int snapshot_ = boarding;"],
        ["/// Ranks in the order in which they came.", "/// Offset of a block."],
    ]

    def run(lines):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "include" / "tutti" / "core" / "a.hpp"
            file.parent.mkdir(parents=True)
            file.write_text("\n".join(lines) + "\n")
            return check(pathlib.Path(folder))[0]

    failures = [f"not noticed: {lines}" for lines, at in planted if not any(f"a.hpp:{at}:" in v for v in run(lines))]
    failures += [f"noticed: {lines}: {run(lines)}" for lines in allowed if run(lines)]
    return self_tests.report(failures, len(planted))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    violations, headers = check(args.root)
    for violation in violations:
        print(violation, file=sys.stderr)
    print(f"comments and identifiers of {headers} headers: {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
