"""`make demo`: the embedded API server with our CRDs and every example, shown as kubectl shows them; then it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
START_SECONDS = 60.0
CALL_SECONDS = 60.0


class DemoError(Exception):
    """What went wrong, for a person at a terminal."""


def main() -> int:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory(prefix="eso-demo-") as folder:
        ready = Path(folder) / "ready.json"
        command = [str(BIN / "eso"), "up", "--no-operator", "--data-dir", str(Path(folder) / "data")]
        server = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=subprocess.DEVNULL)
        try:
            started = _await_ready(server, ready)
            console.print(f"[bold]embedded API server[/bold] at {started['server']}")
            _show(console, Path(started["kubeconfig"]))
        except DemoError as problem:
            console.print(f"[red]demo failed:[/red] {problem}")
            return 1
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(timeout=CALL_SECONDS)
    console.print("stopped cleanly" if code == 0 else f"the server ended with {code}")
    return code


def _await_ready(server: subprocess.Popen[bytes], ready: Path) -> dict[str, str]:
    deadline = time.monotonic() + START_SECONDS
    while not ready.exists():
        if server.poll() is not None:
            raise DemoError(f"the server ended with {server.returncode} before it was ready")
        if time.monotonic() > deadline:
            raise DemoError(f"the server was not ready after {START_SECONDS:.0f} s")
        time.sleep(0.05)
    answer: dict[str, str] = json.loads(ready.read_text())
    return answer


def _show(console: Console, kubeconfig: Path) -> None:
    definitions = _objects(kubeconfig, "get", "crds", "-o", "json")
    groups = Counter(item["spec"]["group"] for item in definitions)
    console.print(f"[bold]{len(definitions)} kinds installed[/bold] in {len(groups)} API groups")
    applied = _kubectl(kubeconfig, "apply", "-R", "-f", str(ROOT / "examples")).splitlines()
    console.print(f"[bold]{len(applied)} examples applied[/bold]")
    table = Table("kind", "namespace", "name", "apiVersion", title="External Secrets objects", title_justify="left")
    for item in _objects(kubeconfig, "get", "external-secrets", "-A", "-o", "json"):
        meta = item["metadata"]
        table.add_row(item["kind"], meta.get("namespace", ""), meta["name"], item["apiVersion"])
    if not table.row_count:
        raise DemoError("no example is there after applying them")
    console.print(table)
    console.print("\n[bold]$ kubectl get externalsecrets -A[/bold]")
    console.print(_kubectl(kubeconfig, "get", "externalsecrets", "-A"), markup=False, soft_wrap=True)


def _objects(kubeconfig: Path, *arguments: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(_kubectl(kubeconfig, *arguments))["items"]
    return items


def _kubectl(kubeconfig: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(BIN / "kubectl"), *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=CALL_SECONDS,
        check=False,
    )
    if done.returncode:
        raise DemoError(f"kubectl {arguments[0]}: {done.stderr.strip()[:2000]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
