"""The cluster that a command talks to.

--kubeconfig, --context, KUBECONFIG   an explicit choice always wins
.eso/kubeconfig of this folder        written by `eso up`; the command says that it uses it
the pod's service account, ~/.kube/config
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from eso_cli.terminal import echo
from kubebase.meta import ObjectKey, Resource, metadata_of
from kuberun import config
from kuberun.client import Client
from kuberun.connection import Connection
from kuberun.errors import ApiError, KubeError, NotFound, Unreachable
from kuberun.transport import AiohttpTransport

LOCAL: Final = Path(".eso") / "kubeconfig"
"""Where `eso up` writes its kubeconfig by default."""
_NAMESPACES: Final = metadata_of(Resource("", "v1", "namespaces", "Namespace", namespaced=False))


class NoNamespaceError(KubeError):
    """The namespace that a command is asked about does not exist."""


def kubeconfig_for(
    given: Path | None, context: str = "", *, environ: Mapping[str, str] = os.environ, folder: Path | None = None
) -> Path | None:
    """Return the kubeconfig to load: the given one, or that of `eso up` in this folder if nothing else was chosen."""
    if given is not None or context or environ.get("KUBECONFIG"):
        return given
    local = LOCAL if folder is None else folder / LOCAL
    return local if local.is_file() else None


def load(kubeconfig: Path | None, context: str = "", *, command: str = "") -> Connection:
    """Return the settings of the chosen cluster. `command` says on standard error that it uses the local one."""
    chosen = kubeconfig_for(kubeconfig, context)
    if chosen is not None and kubeconfig is None and command:
        echo(f"eso {command}: using {chosen} of this folder", err=True)
    return config.load(chosen, context=context)


@asynccontextmanager
async def connected(
    kubeconfig: Path | None, context: str = "", *, command: str = "", field_manager: str = ""
) -> AsyncIterator[tuple[Client, Connection]]:
    """Connect to the chosen cluster. An error about a server that does not answer names the chosen kubeconfig."""
    connection = load(kubeconfig, context, command=command)
    client = Client(AiohttpTransport(connection), field_manager=field_manager)
    try:
        yield client, connection
    except Unreachable as problem:
        raise with_origin(problem, connection) from None
    finally:
        await client.close()


def with_origin(problem: Unreachable, connection: Connection) -> Unreachable:
    """Add where the address came from, and what to do if it came from `eso up`."""
    ours = connection.origin.startswith(str(LOCAL))
    advice = "; start `eso up` in this folder, or choose another with --kubeconfig" if ours else ""
    named = f"{problem.message}; the address is that of {connection.origin}{advice}"
    return Unreachable(named, where=problem.where)


async def check_namespace(client: Client, namespace: str) -> None:
    """Raise NoNamespaceError if the namespace does not exist; a user who may not read it is not checked."""
    try:
        await client.get(_NAMESPACES, ObjectKey("", namespace))
    except NotFound:
        raise NoNamespaceError(f'namespace "{namespace}" does not exist; choose another with -n') from None
    except Unreachable:
        raise
    except ApiError:
        return
