"""AWS for tests, a second opinion: ministack as a process of its own."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eso_sdk.testing.apart import apart
from kubebase.testing.servers import Child, free_ports

READY_SECONDS: Final = 60.0


@contextmanager
def ministack(folder: Path) -> Iterator[str]:
    """Run all services on one loopback port; yields its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    environment = {"PYTHONPATH": str(apart("ministack")), "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}
    child = Child([sys.executable, "-m", "ministack"], folder / "ministack.log", environment)

    def ready() -> bool:
        try:
            urllib.request.urlopen(f"{url}/_ministack/health", timeout=1).close()  # noqa: S310 - loopback
        except OSError:
            return False
        return True

    try:
        child.wait_until(ready, seconds=READY_SECONDS)
        yield url
    finally:
        child.stop()
