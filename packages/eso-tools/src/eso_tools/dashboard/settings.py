"""The flags of the dashboard, and the addresses that it may listen on. Imports nothing of the pages."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NoReturn

from eso_operator import flagvalues as values
from eso_operator.build import this_build
from eso_operator.settings import SettingsError
from eso_operator.telemetry.settings import Listener, LogLevel, LogSettings, TimeEncoding

DEFAULT_ADDRESS: Final = "127.0.0.1:8090"


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """Where the operator serves its metrics; without a URL they are not read. A token is sent over TLS only."""

    url: str = ""
    ca_file: Path | None = None
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """With `authenticated` the dashboard serves TLS, because tokens must not travel in the clear."""

    listen: Listener = field(default_factory=lambda: Listener("127.0.0.1", 0))
    authenticated: bool = False
    certificate_folder: Path | None = None
    """Folder with tls.crt and tls.key; without one the certificate is self-signed."""
    kubeconfig: Path | None = None
    context: str = ""
    namespace: str = ""
    core_namespace: str = ""
    metrics: MetricsEndpoint = field(default_factory=MetricsEndpoint)
    logs: LogSettings = field(default_factory=LogSettings)

    @property
    def url(self) -> str:
        """Return where a browser of this machine finds the dashboard; empty if it is off."""
        if self.listen.disabled:
            return ""
        host = f"[{self.listen.host}]" if ":" in self.listen.host else self.listen.host or "127.0.0.1"
        return f"{'https' if self.authenticated else 'http'}://{host}:{self.listen.port}/"


def parser() -> argparse.ArgumentParser:
    flags = _Parser(prog="eso dashboard", allow_abbrev=False, description="A read-only web page of all objects")
    flags.add_argument("--version", action="version", version=f"eso dashboard {this_build()}", help="print the version")
    flags.add_argument(
        "--dashboard-addr", type=values.listener, default=DEFAULT_ADDRESS, help="where to listen; 0 for nowhere"
    )
    values.add_switch(flags, "dashboard-auth", "serve over TLS, to holders of a token only", default="false")
    flags.add_argument("--dashboard-cert-dir", type=Path, help="folder with tls.crt and tls.key")
    flags.add_argument("--kubeconfig", type=Path, help="kubeconfig file; else KUBECONFIG, the pod, ~/.kube/config")
    flags.add_argument("--context", default="", help="context of the kubeconfig")
    flags.add_argument("--namespace", default="", help="show this namespace only")
    flags.add_argument("--core-namespace", default="", help="where the operator lives, with its Leases")
    flags.add_argument("--metrics-url", default="", help="metrics of the operator, for the calls to providers")
    flags.add_argument("--metrics-ca-file", type=Path, help="authorities of the metrics' certificate")
    flags.add_argument("--metrics-token-file", type=Path, help="token for the metrics; sent over https only")
    flags.add_argument("--loglevel", type=values.level, default="info", help=values.listed(LogLevel))
    flags.add_argument("--zap-time-encoding", default="epoch", help=values.listed(TimeEncoding))
    return flags


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings of a command line. Raises `SettingsError`, which names the flag and what to write."""
    given = parser().parse_args(arguments)
    listen: Listener = given.dashboard_addr
    if not (listen.disabled or given.dashboard_auth or is_loopback(listen.host)):
        raise SettingsError("--dashboard-addr: listen on 127.0.0.1, or require a token with --dashboard-auth")
    if given.metrics_token_file and not given.metrics_url.startswith("https://"):
        raise SettingsError("--metrics-token-file needs an https URL: a token must not travel in the clear")
    return Settings(
        listen=listen,
        authenticated=given.dashboard_auth,
        certificate_folder=given.dashboard_cert_dir,
        kubeconfig=given.kubeconfig,
        context=given.context,
        namespace=given.namespace,
        core_namespace=given.core_namespace,
        metrics=MetricsEndpoint(given.metrics_url, given.metrics_ca_file, given.metrics_token_file),
        logs=LogSettings(given.loglevel, values.time_encoding(given.zap_time_encoding) or TimeEncoding.EPOCH),
    )


def split_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags of the dashboard, and all others: `eso up` accepts both beside each other."""
    ours: list[str] = []
    others: list[str] = []
    target = others
    for argument in arguments:
        if argument.startswith("-"):
            target = ours if argument.startswith("--dashboard-") else others
        target.append(argument)
        if "=" in argument:
            target = others
    return ours, others


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _Parser(argparse.ArgumentParser):
    """A parser that raises `SettingsError` instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message}; see {self.prog} --help")
