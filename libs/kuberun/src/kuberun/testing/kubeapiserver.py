"""A real kube-apiserver with etcd and the controllers that complete deletions, on loopback, for tests.

    etcd <- kube-apiserver <- kube-controller-manager (garbage collection, namespaces, default service accounts)

The controller manager is optional. Without it, nothing is garbage-collected, namespaces stay Terminating, and no
`default` ServiceAccount appears. There are no nodes, so no pod ever runs.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from kubebase.clock import SystemClock
from kubebase.testing.servers import Child, ServerFailedError, find_program, free_ports, kubeconfig_text
from kuberun.testing.authority import write_keys

START_SECONDS = 90.0
CALL_SECONDS = 10.0
START_ATTEMPTS = 3
CONTROLLERS = "garbage-collector-controller,namespace-controller,serviceaccount-controller"
# A namespace deletion lists every resource once: the default of 20 requests per second would outlast the tests.
CONTROLLER_RATE = ("--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-namespace-syncs=50")


class KubeApiserver:
    """Started by its constructor; `stop` ends all processes. `controllers` names the controllers to run, if any."""

    name = "kube"

    def __init__(self, folder: Path, assets: Path, *, controllers: str = CONTROLLERS) -> None:
        self._folder = folder
        self._assets = assets
        self._controllers = controllers
        self._keys = write_keys(folder, SystemClock())
        self.token = secrets.token_hex(16)
        self.ca_file = self._keys.authority
        self.kubeconfig = folder / "kubeconfig"
        (folder / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        self._tls = ssl.create_default_context(cafile=str(self.ca_file))
        self._children: list[Child] = []
        self._start_on_free_ports()

    @property
    def pid(self) -> int:
        """The process id of the kube-apiserver."""
        return self._apiserver.pid

    def restart(self) -> None:
        self.stop_apiserver()
        self.start_apiserver()

    def stop_apiserver(self) -> None:
        """Kill kube-apiserver. etcd goes on."""
        self._apiserver.kill()

    def compact(self) -> None:
        """Compact etcd, then restart the server, whose watch cache would otherwise serve from memory."""
        self._etcd_call("/v3/kv/compaction", {"revision": self._revision(), "physical": True})
        self.restart()

    def stop(self) -> None:
        for child in reversed(self._children):
            child.kill()
        self._children.clear()

    def _start_on_free_ports(self) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            self._etcd_port, self._peer_port, self._port = free_ports(3)
            self.url = f"https://127.0.0.1:{self._port}"
            self.kubeconfig.write_text(kubeconfig_text(self.url, self.ca_file.read_bytes(), self.token))
            self.kubeconfig.chmod(0o600)
            try:
                self._start_etcd()
                self.start_apiserver()
                self._start_controllers()
            except ServerFailedError:
                self.stop()
                if attempt == START_ATTEMPTS:
                    raise
            else:
                return

    def _start_etcd(self) -> None:
        program = find_program("etcd", self._assets)
        if program is None:
            raise ServerFailedError("no etcd: neither in the assets, nor beside Python, nor on PATH (`make setup`)")
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        command = [
            str(program),
            f"--data-dir={self._folder / f'etcd-{self._etcd_port}'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # test data may be lost in a crash
            "--log-level=warn",
        ]
        child = self._child(command, "etcd.log")
        child.wait_until(lambda: _answers(f"{client}/health"), seconds=START_SECONDS)

    def start_apiserver(self) -> None:
        """Start kube-apiserver on its address, with the objects in etcd, and wait until it is ready."""
        command = [
            str(self._assets / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--etcd-compaction-interval=0",  # compact only when a test asks for it
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self._keys.certificate}",
            f"--tls-private-key-file={self._keys.key}",
            f"--cert-dir={self._folder}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",  # as on OpenShift
            f"--service-account-issuer={self.url}",
            f"--service-account-signing-key-file={self._keys.signing_key}",
            f"--service-account-key-file={self._keys.signing_key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            "--enable-priority-and-fairness=false",
        ]
        self._apiserver = self._child(command, "kube-apiserver.log")
        self._apiserver.wait_until(
            lambda: _answers(f"{self.url}/readyz", tls=self._tls, token=self.token), seconds=START_SECONDS
        )

    def _start_controllers(self) -> None:
        program = self._assets / "kube-controller-manager"
        if not self._controllers or not program.is_file():
            return
        command = [
            str(program),
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={self._controllers}",
            *CONTROLLER_RATE,
            "--leader-elect=false",
            "--secure-port=0",
        ]
        self._child(command, "kube-controller-manager.log")

    def _child(self, command: list[str], log: str) -> Child:
        child = Child(command, self._folder / log)
        self._children.append(child)
        return child

    def _revision(self) -> int:
        result = self._etcd_call("/v3/kv/range", {"key": "AA=="})
        return int(result["header"]["revision"])

    def _etcd_call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._etcd_port}{path}", data=json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=CALL_SECONDS) as response:  # noqa: S310 - same
            result: dict[str, Any] = json.load(response)
        return result


def find_assets() -> Path:
    """Return the folder with kube-apiserver: KUBEBUILDER_ASSETS, or the newest build in the cache."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eso-testbin"
    built = sorted(cache.glob("kubernetes-*/kube-apiserver"), key=_version)
    folders = [Path(given)] if given else [built[-1].parent] if built else []
    for folder in folders:
        if os.access(folder / "kube-apiserver", os.X_OK):
            return folder
    where = f"KUBEBUILDER_ASSETS={given}" if given else str(cache)
    raise ServerFailedError(f"no kube-apiserver in {where}: `make test-cluster` builds one (it needs Go once)")


def _version(binary: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in binary.parent.name.removeprefix("kubernetes-").split("."))


def _answers(url: str, *, tls: ssl.SSLContext | None = None, token: str = "") -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=CALL_SECONDS, context=tls) as response:  # noqa: S310 - same
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def main() -> None:
    """Run a server until interrupted (`python -m kuberun.testing.kubeapiserver`), to explore its behaviour."""
    import tempfile
    import threading

    with tempfile.TemporaryDirectory(prefix="kube-apiserver-") as folder:
        server = KubeApiserver(Path(folder), find_assets())
        try:
            sys.stdout.write(f"export KUBECONFIG={server.kubeconfig}\n")
            sys.stdout.flush()
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.stop()


if __name__ == "__main__":
    main()
