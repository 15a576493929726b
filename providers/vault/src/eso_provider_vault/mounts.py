"""The lookup of mounted engines: it confirms that a key is missing, and checks a store's path.

A server responds to a version 2 path on a version 1 engine exactly as for a missing key. Deletion policies act on
missing keys, so the provider reads the type of the engine: `sys/internal/ui/mounts/PATH`, which every token with any
right below the mount may read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eso_provider_vault.api import Api
from eso_provider_vault.documents import text
from eso_provider_vault.errors import misconfigured, not_vault, refusal
from eso_provider_vault.replies import Reply, shown
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import ExpiringDict

CONFIRMED_SECONDS: Final = 60.0
MAX_CONFIRMED: Final = 128

_KV_TYPES: Final = frozenset({"kv", "generic", "cubbyhole"})


@dataclass(frozen=True, slots=True)
class Engine:
    """One mounted engine, as the server describes it."""

    path: str
    type: str
    version: str

    @property
    def is_kv(self) -> bool:
        return self.type in _KV_TYPES


class Mounts:
    """Asks which engine serves a path, and remembers for a minute that it was the right one."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._confirmed: ExpiringDict[str, None] = ExpiringDict(MAX_CONFIRMED, api.clock)

    async def confirm(self, path: str) -> None:
        """Raise unless a key/value engine of the store's version serves this path."""
        if any(path.startswith(f"{mount}/") for mount in self._confirmed):
            return
        engine = await self.engine(path)
        self.check(engine)
        if differs := self.version_difference(engine):
            raise misconfigured(differs)
        self._confirmed.put(engine.path, None, CONFIRMED_SECONDS)

    async def engine(self, path: str) -> Engine:
        """Ask which engine serves a path."""
        return self.described(await self.fetch(path), path)

    def described(self, reply: Reply, path: str) -> Engine:
        """Read the response of `fetch`."""
        if not reply.ok:
            raise self._unknown(reply, path)
        if not text(reply.data, "type"):
            raise not_vault(self._api.endpoint(path), reply.status)
        return Engine(
            text(reply.data, "path").strip("/"),
            text(reply.data, "type"),
            text(reply.data, "options", "version") or "1",
        )

    async def fetch(self, path: str) -> Reply:
        return await self._api.send("GET", f"sys/internal/ui/mounts/{path}", call="ReadMounts")

    def check(self, engine: Engine) -> None:
        """Raise if this is not a key/value engine at the store's path. `version_difference` judges its version."""
        settings = self._api.settings
        server = shown(settings.server)
        if not engine.is_kv:
            raise misconfigured(f'"{engine.path}" on {server} is an engine of type {engine.type}, not kv; correct path')
        # A version 1 path is only joined with the key, so it may reach into the engine.
        inside = settings.mount.startswith(f"{engine.path}/") and "v1" in (settings.version, f"v{engine.version}")
        if settings.mount and engine.path != settings.mount and not inside:
            raise misconfigured(
                f'path is "{settings.mount}", but the engine is mounted at "{engine.path}" on {server}; correct path'
            )

    def version_difference(self, engine: Engine) -> str:
        """Return what is wrong with the store's `version`; empty if it is that of the engine."""
        settings = self._api.settings
        actual = f"v{engine.version}"
        if actual == settings.version:
            return ""
        reads = '"KEY"' if settings.version == "v1" else '"data/KEY"'
        return (
            f'the engine "{engine.path}" on {shown(settings.server)} has version {actual}, but the store has'
            f" {settings.version}, so a key is read at {reads} of the engine; set version: {actual}"
        )

    def _unknown(self, reply: Reply, path: str) -> ProviderError:
        endpoint = self._api.endpoint(path)
        if reply.status != 403:
            return refusal(reply, endpoint)
        return ProviderError(
            ErrorReason.PERMISSION_DENIED,
            f"the server does not show which engine serves {endpoint}: nothing is mounted there, or no policy of"
            " the token allows anything below it; correct path, or grant access",
            backend_code="HTTP 403",
        )
