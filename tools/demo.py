"""`make demo`: everything on this machine, shown step by step, checked on the way, stopped at the end.

A person at a terminal is told where the kubeconfig is and can look around before it stops. Otherwise plain lines are
printed, and the exit code says whether everything was as it should be.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SECONDS = 60.0
TEAMS = ("demo-red", "demo-green", "demo-blue")

Json = dict[str, Any]


class DemoError(Exception):
    """What went wrong, for a person at a terminal."""


def main() -> int:
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    interrupted = interruptions()
    with tempfile.TemporaryDirectory(prefix="eso-demo-") as folder:
        try:
            with running(Path(folder)) as started:
                console.print(f"[bold]Kubernetes API, operator and providers run[/bold]; {started['server']}")
                look = f"KUBECONFIG={started['kubeconfig']} {BIN / 'kubectl'} get externalsecrets -A"
                console.print(f"look around with: {look}\n", soft_wrap=True)
                show(console, Cluster(Path(started["kubeconfig"])))
                if at_terminal:
                    console.input("\n[bold]everything as it should be[/bold]; press Enter to stop ")
        except (DemoError, KeyboardInterrupt, EOFError) as problem:
            if isinstance(problem, DemoError) and not interrupted:
                console.print(f"[red]demo failed:[/red] {problem}", soft_wrap=True)
                return 1
            console.print("\nstopped before its end")
            return 130
    console.print("stopped cleanly")
    return 0


def interruptions() -> list[int]:
    """The signals of a person who had enough, from now on.

    Python loses the exception of one that comes in the middle of an import. `eso up` hears it all the same, and what
    fails without it is no failure of the demo.
    """
    heard: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hear)
    return heard


@contextmanager
def running(folder: Path) -> Iterator[Json]:
    """`eso up` with two providers and the demo's manifests, for as long as the block lasts."""
    ready, log = folder / "ready.json", folder / "log.jsonl"
    command = [str(BIN / "eso"), "up", "--data-dir", str(folder / "data"), "--ready-file", str(ready)]
    command += ["--provider", "fake", "--provider", "generators", "--file", str(ROOT / "examples" / "demo")]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        until(lambda: ready.exists() or process.poll() is not None, "nothing is ready")
        if process.poll() is not None:
            raise DemoError(f"eso up ended with {process.returncode}: {log.read_text()[-2000:]}")
        yield json.loads(ready.read_text())
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=SECONDS)
    if code != 0:
        raise DemoError(f"eso up ended with {code}")


class Cluster:
    """The API through kubectl, as a user has it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def kubectl(self, *arguments: str) -> str:
        command = [str(BIN / "kubectl"), *arguments]
        with subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                said, complained = process.communicate(timeout=SECONDS)
            except BaseException:
                process.kill()
                process.wait()  # an interrupted `subprocess.run` does not
                raise
        if process.returncode:
            raise DemoError(f"kubectl {arguments[0]}: {complained.strip()[:2000]}")
        return said

    def get(self, kind: str, name: str = "", namespace: str = "") -> Json:
        where = ("--namespace", namespace) if namespace else ("--all-namespaces",)
        found: Json = json.loads(self.kubectl("get", kind, *((name,) if name else ()), *where, "--output", "json"))
        return found

    def ready(self, kind: str, name: str, namespace: str) -> Json | None:
        """The Ready condition; None before there is one."""
        if self.kubectl("get", kind, name, "--namespace", namespace, "--ignore-not-found") == "":
            return None
        conditions = self.get(kind, name, namespace).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Ready"), None)

    def value(self, secret: str, key: str, namespace: str) -> str:
        """Empty while there is no such Secret or key. Compared, never printed."""
        found = self.kubectl(
            "get", "secret", secret, "--namespace", namespace, "--ignore-not-found", "--output", "json"
        )
        data = json.loads(found or "{}").get("data", {})
        return base64.b64decode(data.get(key, "")).decode()


def show(console: Console, cluster: Cluster) -> None:
    """The story, each step checked."""
    synced(cluster, "database-url", "demo")
    synced(cluster, "generated-password", "demo")
    synced(cluster, "read-back", "demo")
    for team in TEAMS:
        synced(cluster, "shared-certificate", team)
    stores(console, cluster)
    objects(console, cluster)
    url = cluster.value("database-url", "DATABASE_URL", "demo")
    check(url == "postgres://app:first-value@db.internal:5432/app", "the template gave another value")
    check(
        len(cluster.value("generated-password", "password", "demo")) == 32, "the generated password has another length"
    )
    console.print("[bold]a template[/bold]: DATABASE_URL is made from two remote keys")
    console.print("[bold]a generator[/bold]: a password of 32 characters, made once")
    console.print(f"[bold]one object, many namespaces[/bold]: shared-certificate in {', '.join(TEAMS)}")
    round_trip(console, cluster)
    broken(console, cluster)
    changed(console, cluster)


def synced(cluster: Cluster, name: str, namespace: str) -> None:
    def is_ready() -> bool:
        ready = cluster.ready("externalsecret", name, namespace)
        return ready is not None and ready["status"] == "True"

    until(is_ready, f"ExternalSecret {namespace}/{name} is not ready")


def sync_now(cluster: Cluster, kind: str, name: str, namespace: str) -> None:
    """Ask for a sync, and wait until it has happened: only then does an unchanged value say something."""

    def synced_version() -> object:
        return cluster.get(kind, name, namespace)["status"].get("syncedResourceVersion")

    before = synced_version()
    cluster.kubectl("annotate", kind, name, "--namespace", namespace, "--overwrite", "force-sync=now")
    until(lambda: synced_version() != before, f"{kind} {namespace}/{name} is not synced")


def stores(console: Console, cluster: Cluster) -> None:
    table = Table("kind", "name", "status", "capabilities", title="stores", title_justify="left")
    table.box = table.box if console.is_terminal else None
    kinds = ("secretstores.external-secrets.io", "clustersecretstores.secretstore.external-secrets.io")
    for item in (item for kind in kinds for item in cluster.get(kind)["items"]):
        ready = next(each for each in item["status"]["conditions"] if each["type"] == "Ready")
        what = item["status"].get("capabilities", "")
        table.add_row(f"{item['kind']} ({item['apiVersion']})", item["metadata"]["name"], ready["reason"], what)
    check(table.row_count == 3, "a store is missing")
    console.print(table)


def objects(console: Console, cluster: Cluster) -> None:
    for kind in ("externalsecrets", "pushsecrets"):
        console.print(f"\n[bold]$ kubectl get {kind} -A[/bold]")
        console.print(cluster.kubectl("get", kind, "--all-namespaces").rstrip(), markup=False, soft_wrap=True)
    console.print()


def round_trip(console: Console, cluster: Cluster) -> None:
    """Generated, stored, pushed, read back; then generated anew, once for each update policy."""
    first = cluster.value("generated-password", "password", "demo")
    check(
        first and cluster.value("read-back", "current", "demo") == first, "another value than the pushed one came back"
    )
    check(cluster.value("read-back", "first", "demo") == first, "another value than the one pushed once came back")
    console.print("[bold]generate -> store -> push -> read back[/bold]: the same password in Secret, backend and copy")
    cluster.kubectl("delete", "secret", "generated-password", "--namespace", "demo")

    def is_replaced() -> bool:
        fresh = cluster.value("generated-password", "password", "demo")
        return fresh not in ("", first) and cluster.value("read-back", "current", "demo") == fresh

    until(is_replaced, "a new password does not come back from the backend")
    sync_now(cluster, "pushsecret", "first-password", "demo")
    sync_now(cluster, "externalsecret", "read-back", "demo")
    check(cluster.value("read-back", "first", "demo") == first, "IfNotExists replaced a value")
    console.print("[bold]a new password[/bold]: Replace pushed it, and it came back; IfNotExists kept the first one")


def broken(console: Console, cluster: Cluster) -> None:
    def says_why() -> bool:
        ready = cluster.ready("externalsecret", "broken", "demo")
        return ready is not None and "db/no-such-key" in ready["message"]

    until(says_why, "the broken ExternalSecret does not say why")
    ready = cluster.ready("externalsecret", "broken", "demo") or {}
    check(ready["reason"] == "SecretSyncedError", "the broken ExternalSecret has another reason")
    console.print(f"[bold]a broken one says why[/bold]: {ready['message']}", soft_wrap=True)


def changed(console: Console, cluster: Cluster) -> None:
    store = cluster.get("secretstores.external-secrets.io", "backend", "demo")
    data = store["spec"]["provider"]["fake"]["data"]
    data[0]["value"] = "second-value"
    patch = json.dumps({"spec": {"provider": {"fake": {"data": data}}}})
    target = ("secretstores.external-secrets.io", "backend", "--namespace", "demo")
    cluster.kubectl("patch", *target, "--type", "merge", "--patch", patch)
    began = time.monotonic()
    until(
        lambda: "second-value" in cluster.value("database-url", "DATABASE_URL", "demo"),
        "the changed value does not arrive",
    )
    console.print(f"[bold]a changed value arrives[/bold]: the Secret has it after {time.monotonic() - began:.1f} s")


def check(holds: object, otherwise: str) -> None:
    if not holds:
        raise DemoError(otherwise)


def until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise DemoError(f"{otherwise} after {SECONDS:.0f} s")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
