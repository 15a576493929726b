"""Run every benchmark, or those named on the command line; exit 1 if a target is missed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from report import Row, print_rows

BENCHMARKS = ("client_writes", "externalsecrets", "informer", "providers", "server_writes", "templates")


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    rows: list[Row] = []
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"{name}:", flush=True)
        measured: list[Row] = importlib.import_module(name).measure()
        print_rows(measured)
        rows += measured
    missed = [row.name for row in rows if row.met is False]
    print(f"{len(rows)} rows, {len(missed)} targets missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
