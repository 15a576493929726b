"""Provider processes beside `eso up`: which are installed, how one is started, and what the API knows of it.

Each is a Service of the operator's namespace, as it would be in a cluster. Nothing resolves names here, so the operator
is told at which loopback address the Service's provider listens, and to trust it. It is told so of every installed
provider when it starts; the Service appears when the provider does. The certificates that the operator issues for the
Service are written into files for the process, and again whenever they are renewed.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eso_api.values import SecretBytes
from eso_operator.certs.local import replace_set
from eso_operator.certs.secrets import CERTIFICATE, KEY, TRUST, TYPED_SECRETS, keys_of
from eso_operator.stores.target import ServiceKey
from eso_wire.tls import TlsMaterial, TlsMaterialError, client_id
from kuberun.clock import Clock
from kuberun.errors import ApiError

if TYPE_CHECKING:
    from eso_sdk.provider import Provider
    from kuberun.client import Client

ENTRY_POINTS: Final = "eso.providers"
CORE_NAMESPACE: Final = "external-secrets"
CLIENT_IDENTITY: Final = client_id("cluster.local", CORE_NAMESPACE, "external-secrets")
STARTED_HERE: Final = {"app.kubernetes.io/managed-by": "eso-up"}
"""Labels of the Services that `eso up` makes, so that a later run can remove those it does not need."""
_SOON, _LATER = 0.25, 15.0


class ProviderNameError(ValueError):
    """A provider that cannot be started; the text says what is installed."""


def installed() -> tuple[str, ...]:
    """The names of all installed providers."""
    return tuple(sorted({entry_point.name for entry_point in entry_points(group=ENTRY_POINTS)}))


def load(name: str) -> Provider:
    """The provider of that name."""
    for entry_point in entry_points(group=ENTRY_POINTS, name=name):
        provider: Provider = entry_point.load()
        return provider
    known = ", ".join(installed()) or "none"
    raise ProviderNameError(f'no provider "{name}" is installed (installed: {known})')


@dataclass(frozen=True, slots=True)
class Supervised:
    """One provider process, and where it keeps its files."""

    name: str
    port: int
    folder: Path
    held: socket.socket | None = field(default=None, compare=False, repr=False)
    """A bound socket that reserves the port of a provider on demand until `release`."""

    @property
    def on_demand(self) -> bool:
        return self.held is not None

    def release(self) -> None:
        """Let the process have its port."""
        if self.held is not None:
            self.held.close()

    @property
    def service(self) -> ServiceKey:
        return ServiceKey(CORE_NAMESPACE, f"provider-{self.name}")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def tls_folder(self) -> Path:
        return self.folder / "tls"

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready.json"

    @property
    def command(self) -> list[str]:
        serve = [sys.executable, "-m", "eso_cli.main", "provider", "serve", self.name]
        files = ["--tls-dir", str(self.tls_folder), "--ready-file", str(self.ready_file)]
        return [*serve, "--listen", self.address, "--allowed-client", CLIENT_IDENTITY, *files]

    @property
    def trust(self) -> str:
        """The flag with which the operator is told about it."""
        return f"--expected-provider={self.service}={self.address}"

    def objects(self) -> list[dict[str, Any]]:
        """What stands for it in the API."""
        infos = load(self.name).kind_infos
        keys = sorted({info.v1_provider_key for info in infos if info.v1_provider_key})
        annotations = {"external-secrets.io/provider-kinds": ",".join(str(info.kind) for info in infos)}
        if keys:
            annotations["external-secrets.io/provider-v1-keys"] = ",".join(keys)
        metadata = {
            "name": self.service.name,
            "namespace": self.service.namespace,
            "labels": {"external-secrets.io/provider": "true", **STARTED_HERE},
            "annotations": annotations,
        }
        ports = [{"name": "grpc", "port": self.port, "targetPort": self.port}]
        return [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}}]


def plan(wanted: list[str], folder: Path) -> tuple[Supervised, ...]:
    """The processes for `NAME` or `NAME=PORT`, each with a port of its own."""
    found: dict[str, Supervised] = {}
    taken: set[int] = set()
    for text in wanted:
        match = re.fullmatch(r"([a-z][a-z0-9-]*)(?:=([0-9]{1,5}))?", text)
        if match is None or int(match[2] or 1) > 65535:
            raise ProviderNameError(f'"{text}" is no provider: write NAME or NAME=PORT')
        load(match[1])
        if match[1] in found:
            raise ProviderNameError(f'provider "{match[1]}" is named twice')
        port = int(match[2] or 0)
        if port and (port in taken or not _is_free(port)):
            raise ProviderNameError(f'port {port} of provider "{match[1]}" is in use; choose another one')
        taken.add(port)
        found[match[1]] = Supervised(match[1], port or free_port(), folder / match[1])
    return tuple(found.values())


def plan_others(pinned: Sequence[Supervised], folder: Path) -> tuple[Supervised, ...]:
    """Plan the processes of all other installed providers, to be started on demand. Their ports are held until then."""
    names = [name for name in installed() if name not in {provider.name for provider in pinned}]
    found = []
    for name in names:
        held = socket.socket()
        held.bind(("127.0.0.1", 0))
        found.append(Supervised(name, held.getsockname()[1], folder / name, held))
    return tuple(found)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a closed connection is no use
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


async def keep_certificates(provider: Supervised, client: Client, clock: Clock, *, warn: Callable[[str], None]) -> None:
    """Write the certificates that the operator issued into the provider's folder, now and whenever they change."""
    key = keys_of(provider.service, CORE_NAMESPACE).server
    known = said = ""
    while True:
        try:
            data = (await client.get(TYPED_SECRETS, key)).data
            material = TlsMaterial(data[TRUST], data[CERTIFICATE], SecretBytes(data[KEY]))
            material.check()
        except (ApiError, KeyError, TlsMaterialError):
            # Not issued yet, or the server is busy: it is asked again, and the provider waits for the files.
            await clock.sleep(_SOON)
            continue
        if material.fingerprint != known:
            problem = _written(provider.tls_folder, data)
            if not problem:
                known = material.fingerprint
            elif problem != said:
                warn(f"certificates of provider {provider.name}: {problem}; they are written again until it works")
            said = problem
        await clock.sleep(_LATER)


def _written(folder: Path, data: Mapping[str, bytes]) -> str:
    """Write a set of certificates; what is wrong if that cannot be done now, as on a full disk."""
    try:
        replace_set(folder, {name: data[name] for name in (TRUST, CERTIFICATE, KEY)})
    except OSError as problem:
        return f"{problem.filename or folder}: {problem.strerror}"
    return ""


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
