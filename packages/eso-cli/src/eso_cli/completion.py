"""Shell completion of kinds, names, namespaces and providers.

If names cannot be found quickly, completion offers none and prints nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from eso_cli.connecting import load
from eso_sdk.installed import installed
from eso_tools.objects import NAMESPACES, ObjectReader, kinds_named, known_names
from kubebase.meta import Resource
from kuberun.client import Client
from kuberun.errors import KubeError
from kuberun.transport import AiohttpTransport

SECONDS: Final = 2.0


def kinds(incomplete: str) -> list[str]:
    """Return the kinds that begin with the text."""
    return [kind for kind in sorted((*known_names(), "secret")) if kind.startswith(incomplete.lower())]


def providers(incomplete: str) -> list[str]:
    """Return the installed providers that begin with the text."""
    return [name for name in installed() if name.startswith(incomplete)]


def names(kind: str, incomplete: str, *, namespace: str, kubeconfig: Path | None, context: str) -> list[str]:
    """Return the names of the objects of a kind that begin with the text."""
    resources = [kind.resource() for kind in kinds_named(kind)]
    return _beginning_with(incomplete, resources, namespace, kubeconfig, context)


def namespaces(incomplete: str, *, kubeconfig: Path | None, context: str) -> list[str]:
    """Return the namespaces that begin with the text."""
    return _beginning_with(incomplete, [NAMESPACES], "", kubeconfig, context)


def _beginning_with(
    incomplete: str, resources: Sequence[Resource], namespace: str, kubeconfig: Path | None, context: str
) -> list[str]:
    try:
        found = asyncio.run(_names(resources, namespace, kubeconfig, context))
    except (KubeError, TimeoutError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]


async def _names(resources: Sequence[Resource], namespace: str, kubeconfig: Path | None, context: str) -> list[str]:
    connection = load(kubeconfig, context)
    client = Client(AiohttpTransport(connection))
    try:
        async with asyncio.timeout(SECONDS):
            home = namespace or connection.namespace or "default"
            found = [await ObjectReader(client).names(resource, home) for resource in resources]
    finally:
        await client.close()
    return sorted({name for each in found for name in each})
