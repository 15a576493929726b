"""First looks at many targets of one namespace, read in pages.

After a start the content of every target is unknown: another writer may have changed it while no operator ran. To read
50,000 Secrets one by one takes 50,000 requests. So when some targets of a namespace have been read on their own, all
managed Secrets of the namespace are read in pages. Only whether each is intact is kept, until its ExternalSecret looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from eso_operator.targets.marks import MANAGED, MANAGED_LABEL
from eso_operator.targets.plan import LiveSecret
from kubebase.bounded import BoundedDict
from kubebase.meta import JsonObject, Malformed, ObjectKey, ObjectMeta, Resource, raw
from kuberun.client import Client
from kuberun.controller import parked
from kuberun.errors import ApiError
from kuberun.requests import Selection

ENOUGH: Final = 10
"""The first look of this number reads the whole namespace."""
PAGE: Final = 50
"""Secrets on a page. One may have a mebibyte."""
_AT_A_TIME: Final = 2
_MAX_NAMESPACES: Final = 20_000
_MAX_FOUND: Final = 200_000

_SECRETS: Final = raw(Resource("", "v1", "secrets", "Secret"))


class _Found(NamedTuple):
    """One version of a Secret."""

    uid: str
    resource_version: str
    intact: bool


class Survey:
    """The results for all namespaces. `parse` turns a Secret into its parsed form. The process has one."""

    def __init__(self, client: Client, parse: Callable[[JsonObject], Awaitable[LiveSecret]]) -> None:
        self._client = client
        self._parse = parse
        self._looks: BoundedDict[str, int] = BoundedDict(_MAX_NAMESPACES)
        self._read: BoundedDict[str, asyncio.Event] = BoundedDict(_MAX_NAMESPACES)
        self._found: BoundedDict[ObjectKey, _Found] = BoundedDict(_MAX_FOUND)
        self._reading = asyncio.Semaphore(_AT_A_TIME)

    async def is_intact(self, metadata: ObjectMeta) -> bool | None:
        """Return whether this version of a Secret matches its hash; None if it must be read on its own."""
        namespace = metadata.namespace
        if (read := self._read.get(namespace)) is not None:
            async with parked(cancel_if_deleted=True):
                await read.wait()
        else:
            self._looks[namespace] = looks = self._looks.get(namespace, 0) + 1
            if looks < ENOUGH:
                return None
            await self._read_all(namespace)
        found = self._found.pop(metadata.key, None)
        if found is None or (found.uid, found.resource_version) != (metadata.uid, metadata.resource_version):
            return None
        return found.intact

    async def _read_all(self, namespace: str) -> None:
        """Read the managed Secrets of a namespace once. If that fails, the rest is read one by one."""
        self._read[namespace] = read = asyncio.Event()
        selection = Selection(namespace, label_selector=f"{MANAGED_LABEL}={MANAGED}")
        try:
            async with parked(cancel_if_deleted=True), self._reading:
                async for page in self._client.pages(_SECRETS, selection, size=PAGE):
                    for secret in page.items:
                        if not isinstance(secret, Malformed):
                            self._keep(await self._parse(secret))
        except ApiError:
            return
        finally:
            read.set()

    def _keep(self, live: LiveSecret) -> None:
        meta = live.metadata
        self._found[meta.key] = _Found(meta.uid, meta.resource_version, live.intact)
