"""The settings of the dashboard, and the addresses that it may listen on. Imports nothing of the dashboard itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from eso_operator.telemetry.settings import Listener


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """Off unless `listen` is set. With `authenticated` it serves TLS, because tokens must not travel in the clear."""

    listen: Listener = field(default_factory=lambda: Listener("", -1))
    authenticated: bool = False
    certificate_folder: Path | None = None
    """Folder with tls.crt and tls.key; without one the certificate is self-signed."""

    @property
    def is_safe(self) -> bool:
        """Whether only users of this machine can connect, or every user must present a token."""
        return self.listen.disabled or self.authenticated or is_loopback(self.listen.host)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
