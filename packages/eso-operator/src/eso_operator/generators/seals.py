"""Seals on GeneratorStates, by which the operator recognises the states that it wrote.

A user who may create objects in a namespace may create a GeneratorState there. The clean-up of a cluster-scoped
generator runs with the credentials of that generator, so it must not run on a state that a user forged. The operator
therefore seals such states (HMAC-SHA256) with a key from a Secret of its own namespace. The seal binds the state to its
namespace, its owner and the uid of the generator.

States of namespaced generators have no seal: their clean-up uses credentials of their own namespace.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubebase.meta import JsonObject, Kind, Object, ObjectKey, Resource, raw
from kuberun.client import Client
from kuberun.errors import AlreadyExists, NotFound

SEAL: Final = "generators.external-secrets.io/seal"
"""The annotation of a state that holds its seal."""
SECRET_NAME: Final = "external-secrets-generator-state-key"  # noqa: S105 - the name of a Secret
_KEY: Final = "key"
_KEY_BYTES: Final = 32
_SECRETS: Final = Resource("", "v1", "secrets", "Secret")


@dataclass(frozen=True, slots=True)
class Sealed:
    """The content that a seal covers. `call` is the idempotency key of a call without a response, else empty."""

    namespace: str
    owner: str
    generator: str
    resource: tuple[str, str, str]
    """API version, kind and name of the generator."""
    call: str
    state: Any = field(repr=False)

    def text(self) -> bytes:
        covered = [self.namespace, self.owner, self.generator, *self.resource, self.call, _plain(self.state)]
        return msgspec.json.encode(covered, order="deterministic")


class Seals:
    """Seals with the key in the core namespace. The first use creates the key. The process has one."""

    def __init__(self, client: Client, core_namespace: str) -> None:
        self._client = client
        self._secret = ObjectKey(core_namespace, SECRET_NAME)
        self._cached = b""
        self._reading = asyncio.Lock()

    async def seal(self, content: Sealed) -> str:
        """Return the seal of this content. Raises ApiError if the key can be neither read nor created."""
        return hmac.new(await self._key(), content.text(), hashlib.sha256).hexdigest()

    async def matches(self, content: Sealed, seal: str) -> bool:
        return hmac.compare_digest(await self.seal(content), seal)

    async def _key(self) -> bytes:
        async with self._reading:
            if not self._cached:
                self._cached = await self._read() or await self._create()
            return self._cached

    async def _read(self) -> bytes:
        try:
            found = await self._client.get(_KEYS, self._secret)
        except NotFound:
            return b""
        return (found.data or {}).get(_KEY, b"")

    async def _create(self) -> bytes:
        """Create the Secret with a new key. If it exists already, use its key, or add one if it has none."""
        key = secrets.token_bytes(_KEY_BYTES)
        document: JsonObject = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._secret.name, "namespace": self._secret.namespace},
            "data": {_KEY: key},
        }
        try:
            await self._client.create(raw(_SECRETS), document)
        except AlreadyExists:
            return await self._read() or await self._add(key)
        return key

    async def _add(self, key: bytes) -> bytes:
        await self._client.merge_patch(_KEYS, self._secret, {"data": {_KEY: key}})
        return key


class _KeySecret(Object, kw_only=True):
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.key})"


_KEYS: Final = Kind(_SECRETS, _KeySecret)


def _plain(value: Any) -> Any:
    """Return the value as an API server returns it: 1.0 becomes 1."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value
