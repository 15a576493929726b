"""Reading secrets by id or by name.

| references in one batch | calls |
|---|---|
| one id | that secret |
| several ids | all of them at once |
| names | the list of the organization, then all secrets with these names at once |

Bitwarden responds with "not found" for secrets that a machine account may not read. So a secret counts as missing only
while the account can read at least one other secret of the project: otherwise it may have lost its access.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import yaml

from eso_provider_bitwarden.client import BitwardenClient, Entry, Listed
from eso_sdk.errors import backend_error, invalid_request, not_found
from eso_sdk.extract import NotAnObjectError, json_map
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock

PROVEN_SECONDS: Final = 600.0
"""For how long a secret of the project proves that the account sees the project."""
MAX_PROOFS: Final = 200
"""How many secrets are read at most to find one of the project."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def is_id(key: str) -> bool:
    return _UUID.fullmatch(key) is not None


class Reader:
    """Finds secrets for one session."""

    def __init__(self, client: BitwardenClient, project: str, clock: Clock) -> None:
        self._client = client
        self._project = project
        self._clock = clock
        self._proven = float("-inf")

    async def read(self, keys: Sequence[str]) -> dict[str, Entry | ProviderError]:
        """Return the secret or the error of each key."""
        found, listed = await self._found(keys)
        missing = [key for key in keys if key not in found]
        try:
            if missing:
                await self._prove(listed)
            return found | {key: not_found(key) for key in missing}
        except ProviderError as unclear:
            return found | dict.fromkeys(missing, unclear)

    async def one(self, key: str) -> Entry | None:
        """Return the secret of a key; None if the account sees none."""
        entry = (await self._found([key]))[0].get(key)
        if isinstance(entry, ProviderError):
            raise entry
        return entry

    async def _found(self, keys: Sequence[str]) -> tuple[dict[str, Entry | ProviderError], list[Listed] | None]:
        """Return the secrets of keys that exist, and the list if one was needed."""
        ids, names = {key for key in keys if is_id(key)}, {key for key in keys if not is_id(key)}
        listed = await self._client.listed() if names else None
        candidates = [each for each in listed or () if each.key in names and each.may_be_in(self._project)]
        entries = await self._entries([*ids, *(each.id for each in candidates if each.id not in ids)])
        found: dict[str, Entry | ProviderError] = {key: entries[key.lower()] for key in ids if key.lower() in entries}
        for name in names:
            here = [entries[each.id] for each in candidates if each.key == name and each.id in entries]
            found |= self._named(name, [entry for entry in here if entry.project_id == self._project])
        return found, listed

    async def named(self, name: str) -> list[Entry]:
        """Return all secrets of a name in the project."""
        listed = [each for each in await self._client.listed() if each.key == name and each.may_be_in(self._project)]
        entries = await self._client.get_all([each.id for each in listed])
        return [entry for entry in entries if entry.project_id == self._project]

    async def _entries(self, ids: Sequence[str]) -> dict[str, Entry]:
        if len(ids) == 1:
            entry = await self._client.get(ids[0])
            entries = [] if entry is None else [entry]
        else:
            entries = await self._client.get_all(ids) if ids else []
        self._note(entries)
        return {entry.id.lower(): entry for entry in entries}

    def _named(self, name: str, entries: Sequence[Entry]) -> dict[str, Entry | ProviderError]:
        if len(entries) > 1:
            message = f'project "{self._project}" has {len(entries)} secrets with the name "{name}"; use the id of one'
            return {name: invalid_request(message)}
        return {name: entries[0]} if entries else {}

    def _note(self, entries: Sequence[Entry]) -> None:
        if any(entry.project_id == self._project for entry in entries):
            self._proven = self._clock.monotonic()

    async def _prove(self, listed: list[Listed] | None) -> None:
        """Raise unless the account sees a secret of the project."""
        if self._clock.monotonic() - self._proven < PROVEN_SECONDS:
            return
        visible = await self._client.listed() if listed is None else listed
        if any(each.project_ids is not None and self._project in each.project_ids for each in visible):
            self._proven = self._clock.monotonic()
            return
        unknown = [each.id for each in visible if each.project_ids is None][:MAX_PROOFS]
        self._note(await self._client.get_all(unknown) if unknown else [])
        if self._clock.monotonic() - self._proven >= PROVEN_SECONDS:
            raise ProviderError(
                ErrorReason.PERMISSION_DENIED,
                f'the machine account sees no secret of project "{self._project}"; check projectID and organizationID,'
                " and give the account access to the project",
            )


_NULL: Final = "tag:yaml.org,2002:null"
_BINARY: Final = "tag:yaml.org,2002:binary"
_MAX_BYTES: Final = 1024 * 1024


def members_in(raw: bytes, key: str) -> dict[str, bytes]:
    """Return the members of a mapping.

    A text, a number or a truth value is what is written, null is empty, a mapping or a list is YAML.
    """
    try:
        return _yaml_members(raw)
    except (yaml.YAMLError, NotAnObjectError, UnicodeDecodeError, ValueError, RecursionError):
        # Errors of the parser quote the value.
        pass
    try:
        return json_map(raw)
    except NotAnObjectError:
        raise backend_error(
            f'the value of "{key}" is neither a YAML mapping nor a JSON object; read it as a single value instead'
        ) from None


def _yaml_members(raw: bytes) -> dict[str, bytes]:
    if len(raw) > _MAX_BYTES:
        raise NotAnObjectError("the value is too large for YAML")
    root = yaml.compose(raw.decode(), Loader=yaml.CSafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise NotAnObjectError("the value is not a mapping")
    if any(not isinstance(name, yaml.ScalarNode) for name, _ in root.value):
        raise NotAnObjectError("a name is not a text")
    return {name.value: _member(node) for name, node in root.value}


def _member(node: Any) -> bytes:
    if isinstance(node, yaml.ScalarNode):
        if node.tag == _BINARY:
            decoded: bytes = _constructed(node)
            return decoded
        return b"" if node.tag == _NULL else str(node.value).encode()
    text: str = yaml.dump(_constructed(node), Dumper=yaml.CSafeDumper, default_flow_style=False, allow_unicode=True)
    return text.strip().encode()


def _constructed(node: Any) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()
