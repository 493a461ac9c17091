#!/usr/bin/env python3
"""Holds the pages and the comments of the headers to files that exist.

A relative link of a page must lead to a file or folder and, with #anchor, to a heading of it. A path such as
`core/args.hpp` that stands in backquotes in a page, or anywhere in a comment of include/, must exist below
include/tutti, include, the root of the repository, or the folder of the page or header. {a,b} and * stand for several
paths: each of {a,b} must exist, and one for *. Pages of PAST tell of earlier versions: only their links are checked. An
identifier in backquotes in the map, docs/architecture.md, must stand in a header or a file of CMake.

  check_links.py [--root DIR]   checks DIR, exit status 1 after a violation
  check_links.py --self-test    proves that every rule turns red
"""

import argparse
import pathlib
import re
import sys
import tempfile

import self_tests

PAST = ("docs/results/", "CHANGELOG.md")
MAP = "docs/architecture.md"
SKIPPED = ("build",)  # folders at the root that are not of the repository

ENDS = r"(?:hpp|cuh|inl|md|py|cpp|cu)"
PATH = re.compile(rf"(?<![\w./<>-])(?:[\w.*-]|{{[\w.,*-]+}})+(?:/(?:[\w.*-]|{{[\w.,*-]+}})+)+\.{ENDS}(?![\w/])")
IDENTIFIER = re.compile(r"[a-z]\w*_\w*(?:::\w+)*")
INCLUDE = re.compile(rf"<(tutti/[\w./-]+\.{ENDS})>")
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
FENCE = re.compile(r"^\s*(```|~~~)")
COMMENT = re.compile(r"(?:^|\s)//+<?\s(.*)$")
ABSOLUTE = re.compile(r"^[a-z][a-z+.-]*:|^//")


def prose(text):
    """Yields (number, line) of a page without its blocks of code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def anchors(path, known):
    """Returns the anchors that GitHub gives to the headings of a page."""
    if path not in known:
        found = set()
        for _, line in prose(path.read_text(encoding="utf-8")):
            if heading := HEADING.match(line):
                words = LINK.sub(lambda m: m[0][1 : m[0].index("]")], heading[1]).lower()
                slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
                again = 0
                while (name := f"{slug}-{again}" if again else slug) in found:
                    again += 1
                found.add(name)
        known[path] = found
    return known[path]


def alternatives(path):
    """Returns the paths that {a,b} stand for."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    before, after = path[: braces.start()], path[braces.end() :]
    return [one for part in braces[1].split(",") for one in alternatives(before + part + after)]


def exists(path, folders):
    if "*" in path:
        return any(next(folder.glob(path), None) for folder in folders)
    return any((folder / path).exists() for folder in folders)


def missing(text, folders):
    """Returns the paths in `text` that lie below none of the folders."""
    paths = [m[0] for m in PATH.finditer(text)] + [f"include/{m[1]}" for m in INCLUDE.finditer(text)]
    return [one for path in paths for one in alternatives(path) if not exists(one, folders)]


def pages(root):
    for path in sorted(root.rglob("*.md")):
        parts = path.relative_to(root).parts
        if not any(part.startswith(".") for part in parts) and parts[0] not in SKIPPED:
            yield path


def check(root):
    """Returns (violations, number of links, number of pages and headers)."""
    violations, links, files, known = [], 0, 0, {}
    base = root / "include" / "tutti"
    headers = [path for path in sorted(base.rglob("*")) if path.suffix in (".hpp", ".cuh", ".inl")]
    named = [*headers, *root.glob("CMakeLists.txt"), *root.glob("cmake/*")]
    words = {word for path in named for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    for page in pages(root):
        files += 1
        name = page.relative_to(root).as_posix()
        for number, line in prose(page.read_text(encoding="utf-8")):
            for link in LINK.finditer(QUOTED.sub(lambda m: "_" * len(m[0]) if "](" in m[0] else m[0], line)):
                if ABSOLUTE.match(link[1]):
                    continue
                links += 1
                where, _, anchor = link[1].partition("#")
                target = (page.parent / where).resolve() if where else page
                if not target.exists():
                    violations.append(f"{name}:{number}: {link[1]}: there is no such file")
                elif anchor and target.suffix == ".md" and anchor not in anchors(target, known):
                    violations.append(f"{name}:{number}: {link[1]}: there is no such heading")
            if not name.startswith(PAST):
                for quoted in QUOTED.finditer(line):
                    for path in missing(quoted[1], (base, base.parent, root, page.parent)):
                        violations.append(f"{name}:{number}: `{path}`: there is no such file")
                    if name == MAP and IDENTIFIER.fullmatch(quoted[1]) and words.isdisjoint(quoted[1].split("::")[-1:]):
                        violations.append(f"{name}:{number}: `{quoted[1]}`: there is no such identifier")
    for header in headers:
        files += 1
        for number, line in enumerate(header.read_text(encoding="utf-8").splitlines(), 1):
            if comment := COMMENT.search(line):
                for path in missing(comment[1], (base, base.parent, root, header.parent)):
                    violations.append(f"{header.relative_to(root).as_posix()}:{number}: {path}: there is no such file")
    return violations, links, files


def self_test():
    """Plants one violation per rule, and texts that are none."""
    page, header = "docs/a.md", "include/tutti/core/a.hpp"
    planted = [
        (page, "[b](c.md)"),
        (page, "[b](b.md#another)"),
        (page, "[here](#nowhere)"),
        (page, "Code: `core/b.hpp`."),
        (page, "Code: `core/{a,b}.hpp`."),
        (page, "Code: `core/b*.hpp`."),
        (page, "`<tutti/core/b.hpp>`"),
        (header, "/// Returns what core/b.hpp says."),
        (header, "int i;  ///< see docs/c.md"),
        ("docs/results/a.md", "[b](c.md)"),
        (MAP, "| flag (`cell_bytes`) |"),
    ]
    allowed = [
        (page, "[b](b.md#a-heading-of-b) and [again](b.md#a-heading-of-b-1), [c](https://example.org/c.md#d)"),
        (page, "`core/a.hpp`, `core/{a,a}.hpp`, `core/*.hpp`, `core/<name>.hpp`, `include/tutti/core/a.hpp`"),
        (page, "`<tutti/core/a.hpp>`, `tutti/core/a.hpp`"),
        (page, "```cpp\n[](c.md) `core/b.hpp`\n```"),
        (header, "/// As core/a.hpp and docs/b.md do."),
        (header, "#include <other/b.hpp>"),
        ("docs/results/a.md", "`core/b.hpp`"),
        (page, "`cell_bytes`"),
    ]

    def run(name, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {header: "", page: "", "docs/b.md": "# A heading, of `b`\n\n# A heading of b\n", name: text + "\n"}
            for path, content in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content)
            return check(root)[0]

    failures = []
    for name, text in planted:
        if not any(v.startswith(f"{name}:1:") for v in run(name, text)):
            failures.append(f"not noticed: {text}")
    for name, text in allowed:
        if found := run(name, text):
            failures.append(f"noticed: {text}: {found}")
    return self_tests.report(failures, len(planted))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    violations, links, files = check(args.root.resolve())
    for violation in violations:
        print(violation, file=sys.stderr)
    print(f"{links} links, and the paths in {files} pages and headers: {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
