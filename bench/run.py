"""Run every benchmark, or those named on the command line; exit 1 if a target is missed.

A full run writes its figures to docs/performance.md; notes.md says what limits them.
"""

from __future__ import annotations

import importlib
import logging
import os
import platform
import sys
from pathlib import Path

import structlog
from report import Row, print_rows

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BENCHMARKS = (
    "akeyless",
    "aws",
    "client_writes",
    "crd_writes",
    "externalsecrets",
    "footprint",
    "gcp",
    "gitlab",
    "infisical",
    "informer",
    "keyvault",
    "kubernetes",
    "one_password",
    "providers",
    "restarts",
    "scheduling",
    "server_writes",
    "shards",
    "shared_providers",
    "start",
    "templates",
    "tenants",
    "vault",
    "width",
)


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # log lines cost time
    measured: dict[str, list[Row]] = {}
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"{name}:", flush=True)
        module = importlib.import_module(name)
        measured[name] = module.measure()
        print_rows(measured[name])
    if not sys.argv[1:]:
        PAGE.write_text(page(measured), encoding="utf-8")
    rows = [row for each in measured.values() for row in each]
    missed = [row.name for row in rows if row.met is False]
    print(f"{len(rows)} rows, {len(missed)} targets missed")
    return 1 if missed else 0


def page(measured: dict[str, list[Row]]) -> str:
    """Return the figures as a page."""
    lines = [
        "# Performance",
        "",
        "Written by `make bench`. Ratios compare two things done in the same run on the same machine; bare times and",
        f"sizes are only good for a feeling. This run: {os.cpu_count()} CPUs, Python {platform.python_version()}.",
        "`bench/notes.md` says what limits the figures, and what was tried.",
    ]
    for name, rows in measured.items():
        lines += ["", f"## {name}", "| what | measured | target | |", "|---|---|---|---|"]
        verdicts = {True: "met", False: "missed", None: ""}
        lines += [f"| {row.name} | {row.value} | {row.target} | {verdicts[row.met]} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
