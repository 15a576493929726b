"""`make demo`: everything on this machine with an OpenBao beside it, shown step by step and checked on the way.

A person at a terminal is told where the kubeconfig is and can look around before it stops. Otherwise plain lines are
printed, and the exit code says whether every check held. No value is printed.
"""

from __future__ import annotations

# ruff: noqa: E402 - the handler is set before everything that takes time
import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupted import has nothing to say; `interruptions` replaces it

import base64
import json
import os
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

from eso_provider_vault.testing.openbao import OpenBao
from kubebase.testing.servers import ServerFailedError

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
MANIFESTS = ROOT / "examples" / "openbao" / "openbao.yaml"
EXAMPLE_ADDRESS = "http://127.0.0.1:8200"
SECONDS = 60.0
SHOP, TEAMS = "shop", ("shop-red", "shop-blue")
POLICIES = {
    "shop-operator": """
path "secret/data/*" { capabilities = ["create", "read", "update", "delete"] }
path "secret/metadata/*" { capabilities = ["create", "read", "update", "delete", "list", "scan"] }
path "auth/token/create" { capabilities = ["update"] }
path "auth/token/revoke-accessor" { capabilities = ["update"] }
""",
    "shop-reader": 'path "secret/data/shared/*" { capabilities = ["read"] }',
}

Json = dict[str, Any]


class DemoError(Exception):
    """The error, for a user at a terminal."""


FAILURES = (DemoError, ServerFailedError, AssertionError, OSError)
"""The exceptions of a step: our own checks, or an OpenBao that does not start, rejects a request or has stopped."""


def main() -> int:
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    interrupted = interruptions()
    with tempfile.TemporaryDirectory(prefix="eso-demo-") as folder:
        try:
            with backend(Path(folder)) as bao, running(Path(folder), bao) as started:
                console.print(f"[bold]Kubernetes API, operator and OpenBao run[/bold]: {started['server']}, {bao.url}")
                look = f"KUBECONFIG={started['kubeconfig']} {BIN / 'kubectl'} get externalsecrets -A"
                console.print(f"look around with: {look}\n", soft_wrap=True)
                show(console, Cluster(Path(started["kubeconfig"])), bao, started)
                if at_terminal:
                    console.input("\n[bold]everything as it should be[/bold]; press Enter to stop ")
        except (*FAILURES, KeyboardInterrupt, EOFError) as problem:
            if isinstance(problem, FAILURES) and not interrupted:
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


# --- what runs --------------------------------------------------------------------------------------------------------


@contextmanager
def backend(folder: Path) -> Iterator[OpenBao]:
    """Run an OpenBao in memory: a key/value engine with values, and an AppRole that the operator may log in with."""
    with OpenBao.started(folder / "openbao") as bao:
        bao.enable("secret")
        rotate_password(bao, "first")
        bao.put("secret", "shared/licence", {"text": "a licence"})
        for name, rules in POLICIES.items():
            bao.policy(name, rules)
        bao.enable_auth("approle", "approle")
        bao.must("POST", "auth/approle/role/eso", {"token_policies": list(POLICIES), "token_ttl": "1h"})
        yield bao


def rotate_password(bao: OpenBao, word: str) -> None:
    bao.put("secret", "app/db", {"user": "app", "host": "db.internal", "port": 5432, "password": f"{word} password"})


@contextmanager
def running(folder: Path, bao: OpenBao) -> Iterator[Json]:
    """Run `eso up` with the demo's manifests and no other option about providers, for as long as the block lasts."""
    manifests, ready, log = folder / "manifests.yaml", folder / "ready.json", folder / "log.jsonl"
    manifests.write_text(MANIFESTS.read_text().replace(EXAMPLE_ADDRESS, bao.url) + "---\n" + json.dumps(login(bao)))
    manifests.chmod(0o600)
    command = [str(BIN / "eso"), "up", "--data-dir", str(folder / "data"), "--ready-file", str(ready)]
    command += ["--file", str(manifests)]
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


def login(bao: OpenBao) -> Json:
    """Return the Secret with which the operator logs in to OpenBao."""
    role = bao.must("GET", "auth/approle/role/eso/role-id")["data"]["role_id"]
    secret = bao.must("POST", "auth/approle/role/eso/secret-id", {})["data"]["secret_id"]
    metadata = {"name": "openbao-login", "namespace": SHOP}
    data = {"role-id": role, "secret-id": secret}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


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
        """Return the Ready condition; None before there is one."""
        if self.kubectl("get", kind, name, "--namespace", namespace, "--ignore-not-found") == "":
            return None
        conditions = self.get(kind, name, namespace).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Ready"), None)

    def value(self, secret: str, key: str, namespace: str = SHOP) -> str:
        """Return the value; empty while there is no such Secret or key. Compared, never printed."""
        found = self.kubectl(
            "get", "secret", secret, "--namespace", namespace, "--ignore-not-found", "--output", "json"
        )
        data = json.loads(found or "{}").get("data", {})
        return base64.b64decode(data.get(key, "")).decode()


# --- what is shown ----------------------------------------------------------------------------------------------------


def show(console: Console, cluster: Cluster, bao: OpenBao, started: Json) -> None:
    """Tell the story, each step checked."""
    for name in ("database-url", "session-password", "reader-token"):
        synced(cluster, name, SHOP)
    for team in TEAMS:
        synced(cluster, "licence", team)
    stores(console, cluster)
    objects(console, cluster)
    step = Steps(console)
    check({"vault", "generators"} <= set(started["providers"]), "the ready file does not name both providers")
    names = ", ".join(f"{name} at {address}" for name, address in started["providers"].items())
    step.done("providers on demand", f"{names}; each started when a store or generator needed it")
    templated(step, cluster, bao)
    fanned_out(step, cluster)
    pushed(step, cluster, bao)
    leased(step, cluster, bao)
    broken(step, cluster)
    counted(step, bao)


class Steps:
    """Prints the shown and checked steps."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def done(self, title: str, checked: str) -> None:
        self._console.print(f"[bold]{title}[/bold]: {checked}", soft_wrap=True)


def templated(step: Steps, cluster: Cluster, bao: OpenBao) -> None:
    """Show a templated Secret from OpenBao, which follows when the value is rotated there."""
    url = "postgres://app:{}+password@db.internal:5432/shop"
    check(cluster.value("database-url", "DATABASE_URL") == url.format("first"), "the template gave another value")
    step.done("a template", "DATABASE_URL is made from four properties of secret/app/db")
    rotate_password(bao, "second")
    began = time.monotonic()
    until(
        lambda: cluster.value("database-url", "DATABASE_URL") == url.format("second"),
        "the rotated password does not arrive",
    )
    step.done("a rotated value", f"version 2 of secret/app/db is in the Secret after {time.monotonic() - began:.1f} s")


def fanned_out(step: Steps, cluster: Cluster) -> None:
    for team in TEAMS:
        check(cluster.value("licence", "licence", team) == "a licence", f"namespace {team} has another licence")
    step.done("one object, many namespaces", f"shared/licence is in the Secret licence of {', '.join(TEAMS)}")


def pushed(step: Steps, cluster: Cluster, bao: OpenBao) -> None:
    """Show a generated password that is pushed to OpenBao: written when it changes, and only then."""
    first = cluster.value("session-password", "password")
    check(len(first) == 32, "the generated password has another length")
    until(lambda: remote_password(bao) == first, "the generated password does not arrive in OpenBao")
    marks = bao.custom_metadata("secret", "app/session")
    check(marks == {"managed-by": "external-secrets"}, "the pushed key does not carry the mark of its owner")
    sync_now(cluster, "pushsecret", "session-password", SHOP)
    check(remote_version(bao) == 1, "an unchanged value was written again")
    step.done(
        "a pushed Secret",
        "the generated password is version 1 of secret/app/session, marked managed-by external-secrets;"
        " after another sync it still is version 1",
    )
    cluster.kubectl("delete", "secret", "session-password", "--namespace", SHOP)
    until(lambda: remote_password(bao) not in ("", first), "the new password does not arrive in OpenBao")
    check(remote_password(bao) == cluster.value("session-password", "password"), "OpenBao has another password")
    check(remote_version(bao) == 2, "the new password is not version 2")
    step.done(
        "a changed Secret", "the Secret was deleted, a new password was generated, and OpenBao has it as version 2"
    )


def remote_password(bao: OpenBao) -> str:
    found = bao.read("secret", "app/session")
    return found["data"]["password"] if found else ""


def remote_version(bao: OpenBao) -> int:
    version: int = bao.read("secret", "app/session")["metadata"]["version"]
    return version


def leased(step: Steps, cluster: Cluster, bao: OpenBao) -> None:
    """Show a token that OpenBao issues for ten minutes: it works, and it is revoked when it is no longer used."""
    token = cluster.value("reader-token", "TOKEN")
    status, about = bao.call("GET", "auth/token/lookup-self", token=token)
    check(status == 200, "OpenBao does not know the issued token")
    check(bao.call("GET", "secret/data/shared/licence", token=token)[0] == 200, "the token may not read its path")
    check(
        bao.call("GET", "secret/data/app/db", token=token)[0] == 403, "the token may read what its policy does not name"
    )
    ttl = about["data"]["ttl"]
    check(0 < ttl <= 600, "the token is not leased for ten minutes")
    (state,) = cluster.get("generatorstates", namespace=SHOP)["items"]
    step.done(
        "a dynamic credential",
        f"a token of policy shop-reader reads its path and no other; {ttl} s of its lease are left;"
        f" GeneratorState {state['metadata']['name']} records how to revoke it",
    )
    cluster.kubectl("delete", "externalsecret", "reader-token", "--namespace", SHOP)
    until(lambda: bao.call("GET", "auth/token/lookup-self", token=token)[0] == 403, "the unused token is not revoked")
    until(lambda: not cluster.get("generatorstates", namespace=SHOP)["items"], "the GeneratorState stays")
    step.done("an unused credential", "its ExternalSecret was deleted, so the token is revoked and OpenBao refuses it")


def broken(step: Steps, cluster: Cluster) -> None:
    def says_why() -> bool:
        ready = cluster.ready("externalsecret", "broken", SHOP)
        return ready is not None and "app/no-such-key" in ready["message"]

    until(says_why, "the broken ExternalSecret does not say why")
    ready = cluster.ready("externalsecret", "broken", SHOP) or {}
    check(ready["reason"] == "SecretSyncedError", "the broken ExternalSecret has another reason")
    step.done("a broken one says why", ready["message"])


def counted(step: Steps, bao: OpenBao) -> None:
    """Read in OpenBao's audit log how often it was asked."""
    asked = bao.audited()
    check(asked.logins == 1, f"there were {asked.logins} logins")
    writes = asked.count("create", "secret/data/app/session") + asked.count("update", "secret/data/app/session")
    step.done(
        "what OpenBao was asked",
        f"{asked.logins} login, shared by two stores and a generator; {writes} writes for two passwords",
    )


def synced(cluster: Cluster, name: str, namespace: str) -> None:
    def is_ready() -> bool:
        ready = cluster.ready("externalsecret", name, namespace)
        return ready is not None and ready["status"] == "True"

    until(is_ready, f"ExternalSecret {namespace}/{name} is not ready")


def sync_now(cluster: Cluster, kind: str, name: str, namespace: str) -> None:
    """Request a sync and wait for it: only then does an unchanged value prove anything."""

    def synced_version() -> object:
        return cluster.get(kind, name, namespace)["status"].get("syncedResourceVersion")

    before = synced_version()
    cluster.kubectl("annotate", kind, name, "--namespace", namespace, "--overwrite", "force-sync=now")
    until(lambda: synced_version() != before, f"{kind} {namespace}/{name} is not synced")


def stores(console: Console, cluster: Cluster) -> None:
    table = Table("kind", "name", "status", "capabilities", title="stores", title_justify="left")
    table.box = table.box if console.is_terminal else None
    kinds = ("secretstores.external-secrets.io", "clustersecretstores.external-secrets.io")
    for item in (item for kind in kinds for item in cluster.get(kind)["items"]):
        ready = next(each for each in item["status"]["conditions"] if each["type"] == "Ready")
        what = item["status"].get("capabilities", "")
        table.add_row(item["kind"], item["metadata"]["name"], ready["reason"], what)
    check(table.row_count == 2, "a store is missing")
    console.print(table)


def objects(console: Console, cluster: Cluster) -> None:
    for kind in ("externalsecrets", "pushsecrets"):
        console.print(f"\n[bold]$ kubectl get {kind} -A[/bold]")
        console.print(cluster.kubectl("get", kind, "--all-namespaces").rstrip(), markup=False, soft_wrap=True)
    console.print()


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
