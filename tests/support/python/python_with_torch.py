"""The interpreter for tests that need torch."""

import subprocess
import sys


def python_with_torch(module="torch"):
    """Returns the path of a python3 that has `module`; exits with 77, and says why, where there is none."""
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        if subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    print("skipped: no python3 here has torch (Debian: python3-torch)")
    sys.exit(77)
