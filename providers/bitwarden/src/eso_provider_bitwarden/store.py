"""An opened store: one project of an organization, as one machine account."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import yaml
from yarl import URL

from eso_api.stores.bitwarden import BitwardenProvider
from eso_api.values import SecretBytes
from eso_provider_bitwarden import client
from eso_provider_bitwarden.client import BitwardenClient, Companion, Entry, Listed, status_of
from eso_provider_bitwarden.kinds import KINDS
from eso_provider_bitwarden.native import Native
from eso_sdk.errors import backend_error, invalid_config, invalid_request, not_found
from eso_sdk.extract import NotAnObjectError, json_map, property_in
from eso_sdk.http import ca_bundle
from eso_sdk.logins import FixedHeaders, header_text
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, DelegatingStore, Pushed, Value, finds, pushes, reads, store_kind
from eso_sdk.push import Draft, payload_of, removed, text_of
from eso_sdk.rest import Rest, RestSettings
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    DeleteItem,
    FindQuery,
    Found,
    PushItem,
    PushOutcome,
    RemoteRef,
    Validation,
    ValidationState,
)
from kubebase.clock import Clock

# --- Reading secrets by id or by name --------------------------------------------------------------------------------
#
# | references in one batch | calls |
# |---|---|
# | one id | that secret |
# | several ids | all of them at once |
# | names | the list of the organization, then all secrets with these names at once |
#
# Bitwarden responds with "not found" for secrets that a machine account may not read. So a secret counts as missing
# only while the account can read at least one other secret of the project: otherwise it may have lost its access.


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


# ---------------------------------------------------------------------------------------------------------------------
# Writing secrets. A name may occur several times in a project, so a push compares name, note and project.
#
# | present secrets of the name in the project | what a push does |
# |---|---|
# | one with this note and another value | updates it |
# | one with this note and this value | nothing |
# | none with this note | creates one more |


class Writer:
    """Writes the secrets of one session."""

    def __init__(self, bitwarden: client.BitwardenClient, reader: Reader) -> None:
        self._client = bitwarden
        self._reader = reader
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        """Write all items of one name; return one outcome for each."""
        key = items[0].remote.key
        if is_id(key):
            raise invalid_request(f'"{key}" is an id, and Bitwarden chooses ids itself; push to a name')
        note = note_of(items[0])
        async with self._locks.setdefault(key, asyncio.Lock()):
            present = next((entry for entry in await self._reader.named(key) if entry.note == note), None)
            draft = Draft(None if present is None else present.value.encode())
            refused = [await _put(draft, item, note) for item in items]
            done = Pushed(PushOutcome.UNCHANGED)
            if draft.value is not None and (present is None or draft.value != present.value.encode()):
                done = await self._write(client.Draft(key, draft.value.decode(), note), present)
        return [refusal or done for refusal in refused]

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        key = items[0].remote.key
        async with self._locks.setdefault(key, asyncio.Lock()):
            present = await self._reader.one(key)
            draft = Draft(None if present is None else present.value.encode())
            outcomes = [await removed(draft, item) for item in items]
            if present is not None and draft.value is None:
                await self._client.delete(present.id)
            elif present is not None and draft.value is not None and draft.value != present.value.encode():
                await self._write(client.Draft(present.key, draft.value.decode(), present.note), present)
        return outcomes

    async def _write(self, draft: client.Draft, present: client.Entry | None) -> Pushed:
        if present is None:
            await self._client.create(draft)
            return Pushed(PushOutcome.CREATED)
        await self._client.update(present.id, draft)
        return Pushed(PushOutcome.UPDATED)


def note_of(item: PushItem) -> str:
    """Return `note` of the metadata, wherever it is: the first one, depth first."""
    found = _first(item.provider_metadata or {})
    if found is not None and not isinstance(found, str):
        raise invalid_request(f'metadata of "{item.remote.key}": note must be a text')
    return found or ""


def _first(document: Any) -> Any:
    if isinstance(document, Mapping):
        for name, value in document.items():
            if name == "note":
                return value
            if (found := _first(value)) is not None:
                return found
    elif isinstance(document, list):
        for value in document:
            if (found := _first(value)) is not None:
                return found
    return None


async def _put(draft: Draft, item: PushItem, note: str) -> ProviderError | None:
    """Put one item into the draft; return its error if that is impossible."""
    try:
        if note_of(item) != note:
            raise invalid_request(f'entries for "{item.remote.key}" have different notes; use one note for a name')
        raw = payload_of(item)
        text_of(raw, item.remote.key, item.remote.property)
        await draft.put(item.remote.key, item.remote.property, raw)
    except ProviderError as refused:
        return refused
    return None


# --- An opened store -------------------------------------------------------------------------------------------------


_TOKEN = "/auth/secretRef/credentials"  # noqa: S105 - the name of a field


@store_kind(objects=KINDS, v1_key="bitwardensecretsmanager")
@pushes("whole_secret")
class BitwardenStore(DelegatingStore[BitwardenProvider]):
    """Secrets of one organization."""

    @classmethod
    def check_config(cls, config: BitwardenProvider) -> tuple[str, ...]:
        for field, text in (("/organizationID", config.organization_id), ("/projectID", config.project_id)):
            if not is_id(text):
                raise invalid_config(field, "must be a UUID, as Bitwarden shows it")
        if config.bitwarden_server_sdk_url and _scheme(config.bitwarden_server_sdk_url) not in ("http", "https"):
            raise invalid_config("/bitwardenServerSDKURL", "must be a URL such as https://bitwarden-sdk-server:9998")
        for field, text in (("/apiURL", config.api_url), ("/identityURL", config.identity_url)):
            if text and _scheme(text) != "https":
                raise invalid_config(field, "must be an https URL; Bitwarden's SDK connects to nothing else")
        _bundle(config)
        return ()

    async def open(self) -> None:
        self.check_config(self.config)
        token = self.secret(self.config.auth.secret_ref.credentials)
        companion = bool(self.config.bitwarden_server_sdk_url)
        self._client: BitwardenClient = self.close_later(self._companion(token) if companion else Native(self, token))
        self._reader = Reader(self._client, self.config.project_id, self.clock)
        self.writer = Writer(self._client, self._reader)

    async def validate(self) -> Validation:
        await self._client.listed()
        return Validation(ValidationState.READY)

    @reads("not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        found = await self._reader.read(list(dict.fromkeys(ref.key for ref in refs)))
        return [await _value_or_error(ref, found[ref.key]) for ref in refs]

    async def get_map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        entry = (await self._reader.read([ref.key]))[ref.key]
        if isinstance(entry, ProviderError):
            raise entry
        return members_in(await property_in(entry.value.encode(), ref), ref.key)

    async def check(self, ref: RemoteRef) -> Check:
        entry = await self._reader.one(ref.key)
        return Check(await Draft(None if entry is None else entry.value.encode()).has(ref.property))

    @finds("name")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield the secrets whose name matches, by id: names may occur several times."""
        matcher = Matcher(query)
        ids = [each.id for each in await self._client.listed() if await matcher.accepts(each.key)]
        for entry in await self._client.get_all(ids):
            yield Found(entry.id, SecretBytes(entry.value.encode()))

    def _companion(self, token: SecretBytes) -> Companion:
        config = self.config
        bundle = _bundle(config)
        if not bundle and config.ca_provider is not None:
            bundle = self.ca(config.ca_provider)
        base = URL(config.bitwarden_server_sdk_url)
        settings = RestSettings(
            f"the Bitwarden SDK server {base.host}",
            base,
            ca=bundle,
            field="/bitwardenServerSDKURL",
            status_of=status_of,
        )
        headers = {
            "Warden-Access-Token": header_text(SecretBytes(token.reveal().strip()), _TOKEN),
            "Warden-Api-Url": config.api_url.rstrip("/"),
            "Warden-Identity-Url": config.identity_url.rstrip("/"),
        }
        return Companion(Rest(self, settings, FixedHeaders(headers)), config)


def _scheme(address: str) -> str:
    """Return the scheme of an address; nothing if it is not the address of a host."""
    try:
        url = URL(address)
    except ValueError:
        return ""
    return url.scheme if url.host else ""


def _bundle(config: BitwardenProvider) -> bytes:
    """Return the authorities of `caBundle`, which is text: PEM, or PEM in base64."""
    text = config.ca_bundle
    if not text:
        return b""
    return text.encode() if "-----BEGIN" in text else ca_bundle(text)


async def _value_or_error(ref: RemoteRef, found: Entry | ProviderError) -> Value | ProviderError:
    if isinstance(found, ProviderError):
        return found
    try:
        return Value(SecretBytes(await property_in(found.value.encode(), ref)))
    except ProviderError as refused:
        return refused
