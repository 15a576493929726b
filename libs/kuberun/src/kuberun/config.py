"""Choose the connection settings: a kubeconfig or the pod's own service account.

The order is the usual one of controllers: an explicit kubeconfig, KUBECONFIG, the pod we run in, ~/.kube/config.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubebase.clock import Clock, SystemClock
from kuberun import kubeconfig as kubeconfig_files
from kuberun.connection import Connection, Credential, Tls
from kuberun.credentials import ReadCredentials, bearer, read_file
from kuberun.errors import ConfigError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load(
    kubeconfig: Path | None = None,
    *,
    context: str = "",
    clock: Clock | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Return the settings that apply here; `ConfigError` says what is missing."""
    clock = clock or SystemClock()
    if kubeconfig is not None:
        return _from_files([kubeconfig], context, clock)
    if listed := environ.get("KUBECONFIG"):
        return _from_files([Path(file).expanduser() for file in listed.split(os.pathsep) if file], context, clock)
    if environ.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(clock, environ=environ, service_account=service_account)
    home = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    if home.exists():
        return _from_files([home], context, clock)
    raise ConfigError(f"no Kubernetes configuration: KUBECONFIG is not set, {home} does not exist, and this is no pod")


def in_cluster(
    clock: Clock, *, environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT
) -> Connection:
    """Connect with the pod's service account. Its token is read repeatedly, because the kubelet rotates it."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError("not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token_file, origin = service_account / "token", "service account"

    def read() -> Credential:
        return Credential(bearer(read_file(token_file, origin).decode(errors="replace"), f"{origin}: {token_file}"))

    read()  # a pod without a mounted token fails at start, not at the first call
    namespace = service_account / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=ReadCredentials(read, clock),
        tls=Tls(ca=read_file(service_account / "ca.crt", origin)),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        origin=f"service account in {service_account}",
    )


def _from_files(files: list[Path], context: str, clock: Clock) -> Connection:
    return kubeconfig_files.connection(kubeconfig_files.read(files), context, clock)
