"""Puts test files into one translation unit: most of what compiling them takes is what they have in common.

    together.py OUT FILE...

Each file's own part goes into a namespace of its own, with its lines numbered as in the file; what stands before it is
preprocessor lines and comments.
"""

import pathlib
import re
import sys


def split(lines):
    """The number of lines before the first that is code."""
    return next(i for i, line in enumerate(lines) if line and not line.startswith(("#", "//")))


def main():
    out, *files = sys.argv[1:]
    heads, bodies = [], []
    for name in files:
        path = pathlib.Path(name).resolve()
        lines = path.read_text().splitlines()
        begin = split(lines)
        for line in lines[:begin]:
            near = re.match(r'#include "(.*)"', line)
            if near and (path.parent / near[1]).exists():
                line = f'#include "{path.parent / near[1]}"'
            if line.startswith("#") and line not in heads:
                heads.append(line)
        bodies += [f"namespace in_{path.parent.name}_{path.stem} {{", f'#line {begin + 1} "{path}"', *lines[begin:], "}"]
    pathlib.Path(out).write_text("\n".join(heads + bodies) + "\n")


if __name__ == "__main__":
    main()
