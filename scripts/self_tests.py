"""The end of the self-tests of scripts that check the sources."""

import sys


def report(failures, planted):
    """Prints what went wrong in a self-test that planted so many violations, and returns its exit status."""
    for failure in failures:
        print(f"self-test: {failure}", file=sys.stderr)
    if not failures:
        print(f"self-test: {planted} planted violations, all noticed")
    return 1 if failures else 0
