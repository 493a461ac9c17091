#!/usr/bin/env python3
"""Holds the comments of the headers to plain technical English.

A function's comment begins with a verb ("Reduces ..."), a type's with a noun: no sentence of a comment begins with one of
OPENERS, and none contains one of PHRASES. A phrase is found across line breaks, too. Folders that have not been
rewritten yet stand in PENDING; the end of the output names those that may leave it.

  check_words.py [--root DIR]   checks DIR/include/tutti, exit status 1 after a violation
  check_words.py --self-test   proves that every rule turns red
"""

import argparse
import pathlib
import re
import sys
import tempfile

import self_tests

# Folders, or files at the top, of include/tutti that are not checked yet.
PENDING = ()

OPENERS = ("What", "Who", "Whom", "Where", "Whether", "Of", "How", "Which")
PHRASES = ("so many", "so much", "so long", "of which", "of whom")

COMMENT = re.compile(r"^\s*(//+)(?: (.*)|)$")
TRAILING = re.compile(r"\s(//+<?) (.*)$")
OPENER = re.compile(rf"(?:^|[.:;!?] )({'|'.join(OPENERS)})\b")
PHRASE = re.compile(rf"\b({'|'.join(p.replace(' ', chr(92) + 's') for p in PHRASES)})\b", re.IGNORECASE)
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
    return sorted(found)


def check(root, pending):
    """Returns (violations, units of include/tutti that are checked, pending units without a violation)."""
    base = root / "include" / "tutti"
    violations, checked, clean = [], set(), set(pending)
    for path in sorted(base.rglob("*")):
        if path.suffix not in (".hpp", ".cuh", ".inl"):
            continue
        name = path.relative_to(base).as_posix()
        unit = name.split("/")[0]
        found = [
            (line, why)
            for first, block in comments(path.read_text(encoding="utf-8").splitlines())
            for line, why in check_comment(first, block)
        ]
        if unit in pending:
            if found:
                clean.discard(unit)
            continue
        checked.add(unit)
        violations += [f"include/tutti/{name}:{line}: {why}" for line, why in found]
    return violations, checked, sorted(clean)


def self_test():
    """Plants one violation per rule, and texts that are none."""
    planted = [(["/// " + word + " it is."], 1) for word in OPENERS]
    planted += [(["int i;  ///< for " + phrase + " bytes"], 1) for phrase in PHRASES]
    planted += [
        (["// Returns it. Where there is none, null."], 1),
        (["/// Returns the bytes of", "/// which it is."], 1),
        (["/// Returns it.", "///", "/// Whether it is there."], 3),
    ]
    allowed = [
        ["/// Returns how many there are, where there are any."],
        ['/// Returns "What is wrong" and `so many`.'],
        ['auto s = "// Who";  // of the whole'],
        ["/// Ranks in the order in which they came.", "/// Offset of a block."],
    ]

    def run(lines, pending=()):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "include" / "tutti" / "core" / "a.hpp"
            file.parent.mkdir(parents=True)
            file.write_text("\n".join(lines) + "\n")
            return check(pathlib.Path(folder), pending)

    failures = [f"not noticed: {lines}" for lines, at in planted if not any(f"a.hpp:{at}:" in v for v in run(lines)[0])]
    failures += [f"noticed: {lines}: {run(lines)[0]}" for lines in allowed if run(lines)[0]]
    if run(["/// What."], ("core",))[0]:
        failures.append("a pending folder is checked")
    if run(["/// A noun."], ("core",))[2] != ["core"]:
        failures.append("a pending folder without a violation is not named")
    return self_tests.report(failures, len(planted))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    violations, checked, clean = check(args.root, PENDING)
    for violation in violations:
        print(violation, file=sys.stderr)
    print(f"comments of {', '.join(sorted(checked))}: {len(violations)} violations")
    if clean:
        print(f"may leave PENDING: {', '.join(clean)}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
