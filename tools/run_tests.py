"""pytest, and what failed once more, alone: the machines that run it are shared, and some tests wait for real servers.

A test that fails twice fails the run. One that passes alone is named at the end: it is a defect of the test, or a race
of ours that the noise brought to light. Either is to be mended, not to be waited for.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOME_FAILED = 1  # pytest's exit code; others mean that it could not even try


def main(arguments: list[str]) -> int:
    first = pytest(arguments)
    if first != SOME_FAILED:
        return first
    sys.stdout.write("\n==> what failed, once more and alone\n")
    again = pytest([*arguments, "-n0", "--last-failed", "--last-failed-no-failures=none", "--maxfail=1", "-v"])
    if again == 0:
        sys.stdout.write("==> passed alone, and failed beside others: see above, and mend it\n")
    return again


def pytest(arguments: list[str]) -> int:
    sys.stdout.flush()
    return subprocess.run([str(Path(sys.executable).parent / "pytest"), *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
