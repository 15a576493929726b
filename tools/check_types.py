"""Run mypy on one distribution: its sources and its tests, with a cache of its own.

One run for each distribution lets every tests/ folder keep plain names (conftest.py, test_client.py).
"""

import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    where = Path(sys.argv[1])
    folders = (
        ["tests", "tools", "bench"] if where == Path() else [str(where / name) for name in ("src", "tests", "examples")]
    )
    wanted = [folder for folder in folders if any((root / folder).rglob("*.py"))]
    if not wanted:
        return 0
    base = [] if where == Path() else [str(root / where / "src"), str(root / where / "tests")]
    command = ["mypy", "--cache-dir", str(root / ".mypy_cache" / where.name), "--no-error-summary", *wanted]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(base or [str(root / f) for f in folders])}
    return subprocess.run(
        [str(Path(sys.executable).parent / command[0]), *command[1:]], cwd=root, env=environment, check=False
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
