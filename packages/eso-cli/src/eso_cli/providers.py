"""Provider processes of `eso up`: the installed providers, their commands, and their objects in the API.

Each provider has a Service in the operator's namespace, as in a cluster. Without a cluster's DNS, flags tell the
operator which loopback address belongs to the Service of each installed provider, and to trust it. The Service is
created when the provider starts. The certificates that the operator issues for the Service are written into files for
the process, at first and after each renewal.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eso_api.values import SecretBytes
from eso_operator.certificates.local import replace_set
from eso_operator.certificates.secrets import CERTIFICATE, KEY, TRUST, TYPED_SECRETS, keys_of
from eso_operator.stores.resolved import ServiceKey
from eso_sdk.installed import ProviderNameError, installed, load
from eso_tools.providers import CORE_NAMESPACE, service_object
from eso_wire.tls import TlsMaterial, TlsMaterialError, client_id
from kubebase.clock import Clock
from kuberun.errors import ApiError

if TYPE_CHECKING:
    from kuberun.client import Client

CLIENT_IDENTITY: Final = client_id("cluster.local", CORE_NAMESPACE, "external-secrets")
_SOON, _LATER = 0.25, 15.0


class ReservedPort:
    """A loopback port that is kept for one server of ours from the plan until the end of this process.

    The socket is bound, but does not listen. While it is open, the system gives this port neither to a server that
    asks for any free port nor to an outgoing connection. Linux lets a server that asks for exactly this port listen on
    it, also after a restart. On other systems the port must be released before the server starts.
    """

    def __init__(self, number: int = 0) -> None:
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._held.bind(("127.0.0.1", number))
        except OSError:
            self.release()
            raise
        self.number: int = self._held.getsockname()[1]

    def hand_over(self) -> None:
        """Let our server listen on the port."""
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        self._held.close()


@dataclass(frozen=True, slots=True)
class Supervised:
    """One provider process with its reserved port and folder."""

    name: str
    reserved: ReservedPort
    folder: Path
    on_demand: bool = False

    @property
    def port(self) -> int:
        return self.reserved.number

    @property
    def service(self) -> ServiceKey:
        return service_of(self.name)

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
        serve = [sys.executable, "-m", "eso_cli.serving", self.name]
        files = ["--tls-dir", str(self.tls_folder), "--ready-file", str(self.ready_file)]
        return [*serve, "--listen", self.address, "--allowed-client", CLIENT_IDENTITY, *files]

    @property
    def trust(self) -> str:
        """The operator's flag for this provider."""
        return f"--expected-provider={self.service}={self.address}"

    def objects(self) -> list[dict[str, Any]]:
        """Return the Service that represents the provider in the API."""
        return [service_object(self.service, self.port, load(self.name).kind_infos)]


def shared_command(providers: Iterable[Supervised]) -> list[str]:
    """Return the command that runs these providers in one process, each as soon as it has certificates."""
    own: list[str] = []
    names: list[str] = []
    for provider in providers:
        names.append(provider.name)
        own.append(f"--{provider.name}.listen={provider.address}")
        own.append(f"--{provider.name}.tls-dir={provider.tls_folder}")
        own.append(f"--{provider.name}.ready-file={provider.ready_file}")
    common = ["--on-demand", "--allowed-client", CLIENT_IDENTITY]
    return [sys.executable, "-m", "eso_sdk.sharedmain", *names, *common, *own]


def plan(wanted: list[str], folder: Path) -> tuple[Supervised, ...]:
    """Return the processes for arguments of the form `NAME` or `NAME=PORT`, each with its own port."""
    ports: dict[str, int] = {}
    for text in wanted:
        match = re.fullmatch(r"([a-z][a-z0-9-]*)(?:=([0-9]{1,5}))?", text)
        if match is None or int(match[2] or 1) > 65535:
            raise ProviderNameError(f'"{text}" is no provider: write NAME or NAME=PORT')
        name, port = match[1], int(match[2] or 0)
        load(name)
        if name in ports:
            raise ProviderNameError(f'provider "{name}" is named twice')
        if port and port in ports.values():
            raise _in_use(port, name)
        ports[name] = port
    found: list[Supervised] = []
    with ExitStack() as undo:
        for name, port in ports.items():
            try:
                reserved = ReservedPort(port)
            except OSError:
                raise _in_use(port, name) from None
            undo.callback(reserved.release)
            found.append(Supervised(name, reserved, folder / name))
        undo.pop_all()
    return tuple(found)


def _in_use(port: int, name: str) -> ProviderNameError:
    return ProviderNameError(f'port {port} of provider "{name}" is in use; choose another one')


def plan_others(pinned: Sequence[Supervised], folder: Path) -> tuple[Supervised, ...]:
    """Return the processes of all other installed providers, which start on demand."""
    names = [name for name in installed() if name not in {provider.name for provider in pinned}]
    return tuple(Supervised(name, ReservedPort(), folder / name, on_demand=True) for name in names)


def service_of(name: str) -> ServiceKey:
    """Return the Service of a provider of this machine."""
    return ServiceKey(CORE_NAMESPACE, f"provider-{name}")


async def keep_certificates(
    name: str, folder: Path, client: Client, clock: Clock, *, warn: Callable[[str], None]
) -> None:
    """Write the certificates that the operator issued for a provider into the folder, now and whenever they change."""
    key = keys_of(service_of(name), CORE_NAMESPACE).server
    known = reported = ""
    while True:
        try:
            data = (await client.get(TYPED_SECRETS, key)).data
            material = TlsMaterial(data[TRUST], data[CERTIFICATE], SecretBytes(data[KEY]))
            material.check()
        except (ApiError, KeyError, TlsMaterialError):
            # Not issued yet, or the server is busy: retry. The provider waits for the files.
            await clock.sleep(_SOON)
            continue
        if material.fingerprint != known:
            problem = _written(folder, data)
            if not problem:
                known = material.fingerprint
            elif problem != reported:
                warn(f"certificates of provider {name}: {problem}; they are written again until it works")
            reported = problem
        await clock.sleep(_LATER)


def _written(folder: Path, data: Mapping[str, bytes]) -> str:
    """Write a set of certificates; return a description of the problem if that fails, such as a full disk."""
    try:
        replace_set(folder, {name: data[name] for name in (TRUST, CERTIFICATE, KEY)})
    except OSError as problem:
        return f"{problem.filename or folder}: {problem.strerror}"
    return ""
