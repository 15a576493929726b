"""Build wheels or sdists of all distributions.

dist.py FOLDER FORMAT …
"""

from __future__ import annotations

import sys
from pathlib import Path

from delivery.wheels import BuildError, build


def main(arguments: list[str]) -> int:
    folder, *formats = arguments
    try:
        build(Path(folder), formats)
    except BuildError as problem:
        print(f"make dist: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
