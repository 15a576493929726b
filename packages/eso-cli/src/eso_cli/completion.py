"""Shell completion of kinds and names. If a name cannot be found quickly, completion offers none and prints nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from eso_operator.insight.kinds import kinds_named, known_words
from eso_operator.insight.sights import Eyes
from kuberun import config
from kuberun.client import Client
from kuberun.errors import KubeError
from kuberun.transport import AiohttpTransport

SECONDS: Final = 2.0


def kinds(incomplete: str) -> list[str]:
    """Return the kinds that begin with the text."""
    return [word for word in known_words() if word.startswith(incomplete.lower())]


def names(word: str, incomplete: str, *, namespace: str, kubeconfig: Path | None, context: str) -> list[str]:
    """Return the names of the objects of a kind that begin with the text."""
    try:
        found = asyncio.run(_names(word, namespace, kubeconfig, context))
    except (KubeError, TimeoutError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]


async def _names(word: str, namespace: str, kubeconfig: Path | None, context: str) -> list[str]:
    connection = config.load(kubeconfig, context=context)
    client = Client(AiohttpTransport(connection))
    try:
        async with asyncio.timeout(SECONDS):
            home = namespace or connection.namespace or "default"
            found = [await Eyes(client).names(kind.resource(), home) for kind in kinds_named(word)]
    finally:
        await client.close()
    return sorted({name for each in found for name in each})
