"""AWS for tests: moto as a process of its own, for providers that talk to AWS.

with Moto.started(folder) as moto:
    ...  # every service answers at moto.url
"""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from kubebase.testing.servers import Child, ServerFailedError, free_ports

# ---------------------------------------------------------------------------------------------------------------------
# Servers for tests that cannot be installed beside everything else; `requirements/README.md` says why.


def apart(name: str) -> Path:
    """Return the folder that `make test` installed a server into."""
    folder = Path(sys.prefix) / "apart" / name
    if not folder.is_dir():
        raise ServerFailedError(f"{name} is not installed; run `make test`, or `make .venv/.stamp/apart-{name}`")
    return folder


# --- AWS for tests ---------------------------------------------------------------------------------------------------


READY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Moto:
    """All services on one loopback port."""

    url: str
    child: Child = field(repr=False)

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Self]:
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        child = Child(command, folder / "moto.log", {"PYTHONPATH": str(apart("moto"))})
        moto = cls(f"http://127.0.0.1:{port}/", child)
        try:
            child.wait_until(moto._ready, seconds=READY_SECONDS)
            yield moto
        finally:
            child.stop()

    def verify_signatures(self, *, after: int = 0) -> None:
        """Let this many more requests pass; then verify signatures and policies of all others."""
        self.command("reset-auth", str(after))

    def command(self, name: str, body: str = "") -> None:
        """Send a command to the server itself: `reset`, `reset-auth`."""
        address, plain = f"{self.url}moto-api/{name}", {"Content-Type": "text/plain"}
        request = urllib.request.Request(address, body.encode(), plain, method="POST")  # noqa: S310 - loopback
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - same

    def _ready(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}moto-api/", timeout=1).close()  # noqa: S310 - loopback
        except OSError:
            return False
        return True
