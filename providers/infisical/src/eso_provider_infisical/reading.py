"""Reading values: one list call reads all keys of one folder.

| keys of a folder in one batch | calls |
|---|---|
| one | that secret |
| several | the list of the folder; nothing is sent again while its ETag is unchanged |
| several, and the identity may not list | each secret |
| missing in the list | that secret: the list omits what the identity may not read; only this proves "not found" |
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from eso_api.values import SecretBytes
from eso_provider_infisical.secrets import Secret, SecretLocation, Secrets, location_of
from eso_sdk.errors import version_not_found
from eso_sdk.extract import property_in
from eso_sdk.provider import Value
from eso_wire.errors import ProviderError
from eso_wire.values import RemoteRef
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock

AT_ONCE: Final = 8
"""Calls of one session at a time."""
MAX_UNLISTED: Final = 64
UNLISTED_SECONDS: Final = 600.0
"""A denied list is tried again after this time: rights may have been granted."""

_ReadRequest = tuple[SecretLocation, str]
"""A location and a version."""


class Reader:
    """Reads values for one session."""

    def __init__(self, secrets: Secrets, scope_path: str, clock: Clock) -> None:
        self._secrets = secrets
        self._scope_path = scope_path
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._unlisted: ExpiringDict[str, None] = ExpiringDict(MAX_UNLISTED, clock)
        """Folders that this identity could not list lately."""

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference."""
        requests: dict[_ReadRequest, str] = {}
        found_refs: list[_ReadRequest | ProviderError] = []
        for ref in refs:
            try:
                found = (location_of(ref.key, self._scope_path), _version(ref))
                requests.setdefault(found, ref.key)
                found_refs.append(found)
            except ProviderError as refused:
                found_refs.append(refused)
        secrets = await self._all(requests)
        return [
            await _value_or_error(ref, secrets[at] if isinstance(at, tuple) else at)
            for ref, at in zip(refs, found_refs, strict=True)
        ]

    async def _all(self, requests: dict[_ReadRequest, str]) -> dict[_ReadRequest, Secret | ProviderError]:
        folders: dict[str, dict[_ReadRequest, str]] = {}
        for (location, version), key in requests.items():
            folders.setdefault(location.folder, {})[location, version] = key
        done = await asyncio.gather(*(self._in_folder(folder, keys) for folder, keys in folders.items()))
        return {at: secret for part in done for at, secret in part.items()}

    async def _in_folder(
        self, folder: str, keys: dict[_ReadRequest, str]
    ) -> dict[_ReadRequest, Secret | ProviderError]:
        current = [at for at in keys if not at[1]]
        try:
            listed = await self._listed(folder) if len(current) > 1 else {}
        except ProviderError as failed:
            return dict.fromkeys(keys, failed)
        found: dict[_ReadRequest, Secret | ProviderError] = {
            at: listed[at[0].name] for at in current if at[0].name in listed
        }
        rest = [at for at in keys if at not in found]
        results = await asyncio.gather(*(self._one(at, keys[at]) for at in rest))
        return found | dict(zip(rest, results, strict=True))

    async def _listed(self, folder: str) -> dict[str, Secret]:
        if folder in self._unlisted:
            return {}
        async with self._gate:
            secrets = await self._secrets.folder(folder)
        if secrets is None:
            self._unlisted.put(folder, None, UNLISTED_SECONDS)
        return {each.secret_key: each for each in secrets or ()}

    async def _one(self, at: _ReadRequest, key: str) -> Secret | ProviderError:
        try:
            async with self._gate:
                return await self._secrets.one(at[0], key, at[1])
        except ProviderError as failed:
            return failed


def _version(ref: RemoteRef) -> str:
    if ref.version and not ref.version.isdecimal():
        raise version_not_found(ref.key, ref.version)  # Infisical counts versions
    return ref.version


async def _value_or_error(ref: RemoteRef, found: Secret | ProviderError) -> Value | ProviderError:
    if isinstance(found, ProviderError):
        return found
    try:
        return Value(SecretBytes(await property_in(found.value(ref.key), ref)))
    except ProviderError as refused:
        return refused
