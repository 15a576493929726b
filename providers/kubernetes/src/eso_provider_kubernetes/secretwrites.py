"""The plan of a push or a deletion on a remote Secret, which is pure, and the writer that carries it out.

    plan = plan_push(live, items, source)  ->  the object to write, and an outcome for each item

Many items of one Secret become one object, so that twelve properties are one write.

A push marks the Secrets that it creates with a label. `guarded` is for namespaces that PushSecrets chose: a Secret
there without the mark is neither overwritten nor deleted. In the store's own namespace every Secret may be, as with the
operator in Go, whose Secrets have no mark.
"""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from eso_api.externalsecret import TOKEN_TYPES
from eso_api.values import SecretBytes
from eso_provider_kubernetes.clusterstore import AnyClusterStore, Request
from eso_sdk.errors import invalid_request, not_json, property_not_found, unavailable, version_differs
from eso_sdk.extract import NotAnObjectError, json_map, property_of
from eso_sdk.provider import Pushed
from eso_sdk.push import MetadataSpec, decode_metadata
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, MetadataPolicy, PushItem, PushOutcome, PushPrecondition, RemoteRef, SourceSecret
from kubebase.backoff import ExponentialBackoff, system_random
from kubebase.meta import JsonObject, Kind, Object, ObjectKey, Resource, meta_of, raw, version_of
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.requests import DeleteOptions

# ---------------------------------------------------------------------------------------------------------------------
# `metadata` of a PushSecret entry: how labels and annotations are merged, and into which namespace to write.


MARK: Final = "reconcile.external-secrets.io/managed-by"
"""The label of Secrets that a push created. Only the provider sets it."""
OWNER: Final = "external-secrets"


class PushMetadata(MetadataSpec, frozen=True, kw_only=True):
    """The metadata of a PushSecret for the Secret that it writes."""

    source_merge_policy: Literal["", "Merge", "Replace"] = "Merge"
    target_merge_policy: Literal["", "Merge", "Replace", "Ignore"] = "Merge"
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    remote_namespace: Annotated[str, Meta(max_length=63)] = ""


def read_metadata(plain: Mapping[str, Any] | None, key: str) -> PushMetadata:
    """Decode the metadata of one pushed entry; without it, return the defaults."""
    found = decode_metadata(plain, PushMetadata, key)
    if MARK in found.labels:
        raise invalid_request(f'metadata of "{key}" sets the label {MARK}, which only External Secrets sets; remove it')
    return found


_NOT_COPIED: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration", MARK})
"""The first holds the values of the source Secret. The second says who created the source, not the target."""


def merged_metadata(
    live: Mapping[str, str], source: Mapping[str, str], given: Mapping[str, str], policy: PushMetadata
) -> dict[str, str]:
    """Merge the labels or annotations of the target, of the source Secret and of the entry."""
    if policy.target_merge_policy == "Ignore":
        return dict(live)
    copied = {} if policy.source_merge_policy == "Replace" else source
    ours = {name: value for name, value in copied.items() if name not in _NOT_COPIED} | dict(given)
    kept = {MARK: live[MARK]} if MARK in live else {}
    return {**ours, **kept} if policy.target_merge_policy == "Replace" else {**live, **ours}


# --- A Secret of the remote cluster, and the lookup of remote references in it ---------------------------------------


SECRETS: Final = Resource("", "v1", "secrets", "Secret")

_INVALID: Final = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as Python decodes them; Go writes U+FFFD for each."""


class Secret(Object, kw_only=True):
    """The part of a Secret that is read. Its repr shows no data."""

    type: str = ""
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.key})"

    @property
    def values(self) -> dict[str, bytes]:
        return self.data or {}


SECRET_KIND: Final = Kind(SECRETS, Secret)


async def value_of(secret: Secret, ref: RemoteRef) -> bytes:
    """Return the value that a reference names."""
    if ref.metadata_policy is MetadataPolicy.FETCH:
        return await _metadata_value(secret, ref)
    if not ref.property:
        return json_text(secret.values)
    found = await _property(secret.values, ref)
    if found is None:
        raise property_not_found(ref.key, ref.property, known=secret.values)
    return found


async def map_of(secret: Secret, ref: RemoteRef) -> dict[str, bytes]:
    """Return all members of the value that a reference names."""
    if ref.property:
        try:
            return json_map(await value_of(secret, ref))
        except NotAnObjectError:
            raise not_json(f"{ref.key}, property {ref.property}") from None
    if ref.metadata_policy is MetadataPolicy.FETCH:
        return {name: _plain_json(members) for name, members in _metadata(secret).items()}
    return secret.values


def json_text(values: Mapping[str, bytes]) -> bytes:
    """Return the data as one JSON object of strings, formatted as Go does without HTML escaping."""
    texts = {name: _INVALID.sub("\ufffd", raw.decode(errors="surrogateescape")) for name, raw in values.items()}
    text = msgspec.json.encode(texts, order="sorted")
    for separator in ("\u2028", "\u2029"):
        text = text.replace(separator.encode(), f"\\u{ord(separator):x}".encode())
    return text


async def _property(values: Mapping[str, bytes], ref: RemoteRef) -> bytes | None:
    """Return the data key of that name; else a path inside the value of the key before the first dot."""
    if ref.property in values:
        return values[ref.property]
    name, _, inner = ref.property.partition(".")
    if not inner or name not in values:
        return None
    return await property_of(values[name], inner, ref.key)


def _metadata(secret: Secret) -> dict[str, Mapping[str, str]]:
    return {"annotations": secret.metadata.annotations, "labels": secret.metadata.labels}


async def _metadata_value(secret: Secret, ref: RemoteRef) -> bytes:
    parts = _metadata(secret)
    if not ref.property:
        return _plain_json(parts)
    part, _, name = ref.property.partition(".")
    members = parts.get(part)
    found = None
    if members is not None:
        found = _plain_json(members) if not name else await _labelled(members, name, ref.key)
    if found is None:
        raise property_not_found(ref.key, ref.property)
    return found


async def _labelled(members: Mapping[str, str], name: str, remote_key: str) -> bytes | None:
    """Return the value under a key that may itself contain dots.

    The longest key wins; the rest is a path in its value.
    """
    if name in members:
        return members[name].encode()
    prefixes = [key for key in members if name.startswith(f"{key}.")]
    for key in sorted(prefixes, key=len, reverse=True):
        if (found := await property_of(members[key].encode(), name[len(key) + 1 :], remote_key)) is not None:
            return found
    return None


def _plain_json(value: Mapping[str, str] | Mapping[str, Mapping[str, str]]) -> bytes:
    return msgspec.json.encode(value, order="sorted")


# --- The plan of a push or a deletion on a remote Secret -------------------------------------------------------------


_OPAQUE: Final = "Opaque"


@dataclass(frozen=True, slots=True)
class Pushing:
    """One item with its metadata read."""

    item: PushItem
    metadata: PushMetadata


@dataclass(slots=True)
class PushPlan:
    """`document` is None when the Secret is already as wanted."""

    outcomes: list[PushOutcome | ProviderError]
    document: JsonObject | None = field(default=None, repr=False)
    creates: bool = False


def plan_push(
    live: JsonObject | None, pushings: Sequence[Pushing], source: SourceSecret, *, guarded: bool = False
) -> PushPlan:
    """Apply all items to the Secret, in their order. Items that fail leave it as it is."""
    owner = next((each.item.owner_token for each in pushings if each.item.owner_token), OWNER)
    foreign = guarded and live is not None and not is_marked(live, owner)
    document = copy.deepcopy(live) if live is not None else {}
    outcomes: list[PushOutcome | ProviderError] = []
    for pushing in pushings:
        try:
            outcomes.append(_apply(document, live, pushing, source, foreign=foreign))
        except ProviderError as error:
            outcomes.append(error)
    wrote = any(outcome in (PushOutcome.CREATED, PushOutcome.UPDATED) for outcome in outcomes)
    if wrote and live is None:
        metadata = document.get("metadata") or {}
        document["metadata"] = {**metadata, "labels": {**(metadata.get("labels") or {}), MARK: owner}}
    return PushPlan(outcomes, document if wrote else None, creates=live is None)


def _apply(
    document: JsonObject, live: JsonObject | None, pushing: Pushing, source: SourceSecret, *, foreign: bool
) -> PushOutcome | ProviderError:
    item, name = pushing.item, pushing.item.remote.property
    existed = name in data_of(document) if name else bool(document)
    if item.precondition is PushPrecondition.IF_ABSENT and existed:
        return PushOutcome.SKIPPED_EXISTS
    if foreign:
        raise _not_ours(item, pushing.metadata.remote_namespace)
    if item.precondition is PushPrecondition.IF_VERSION and item.expected_version != version_of(live or {}):
        raise version_differs(item.remote.key)
    values = _values(item)
    _refuse_token(document, item, source)
    before = copy.deepcopy(document)
    if name:
        document["data"] = {**data_of(document), **values}
        document.setdefault("type", _OPAQUE)
    else:
        document["data"] = values
        document["type"] = _type_of_whole(document, item.remote.key, source)
    _merge_metadata(document, pushing.metadata, source)
    if _content(document) == _content(before):
        return PushOutcome.UNCHANGED
    return PushOutcome.UPDATED if existed else PushOutcome.CREATED


def _refuse_token(document: JsonObject, item: PushItem, source: SourceSecret) -> None:
    """Raise for a Secret that its cluster would fill with a token, or accept as one.

    The author of a PushSecret chooses its type and annotations, and the store may have more rights than that author.
    """
    type_ = document.get("type") or (_OPAQUE if item.remote.property else source.type)
    if type_ in TOKEN_TYPES:
        raise invalid_request(
            f'"{item.remote.key}" would be a Secret of type {type_}, which may not be pushed; set'
            " spec.template.type: Opaque in the PushSecret, or push to another remoteKey"
        )


def _values(item: PushItem) -> dict[str, str]:
    """Return the data that an item writes, as the API encodes it."""
    name, payload = item.remote.property, item.payload
    if isinstance(payload, SecretBytes):
        if not name:
            raise invalid_request(
                f'"{item.remote.key}" is a Secret with named keys; set remoteRef.property to the key that the value of'
                " secretKey is written to"
            )
        return {name: _encoded(payload.reveal())}
    plain = {each: value.reveal() for each, value in payload.items()}
    return {name: _encoded(json_text(plain))} if name else {each: _encoded(raw) for each, raw in plain.items()}


def _type_of_whole(document: JsonObject, key: str, source: SourceSecret) -> str:
    """Return the source's type. The type of an existing Secret cannot be changed."""
    wanted = source.type or _OPAQUE
    live = document.get("type")
    if live is not None and live != wanted:
        raise invalid_request(
            f'"{key}" exists with type {live} and the source Secret has type {wanted}; the type of a Secret cannot be'
            " changed, so delete the remote Secret or push to another remoteKey"
        )
    return wanted


def _merge_metadata(document: JsonObject, policy: PushMetadata, source: SourceSecret) -> None:
    metadata: JsonObject = dict(document.get("metadata") or {})
    for part, ours, given in (
        ("labels", source.labels, policy.labels),
        ("annotations", source.annotations, policy.annotations),
    ):
        merged = merged_metadata(metadata.get(part) or {}, ours, given, policy)
        if merged or part in metadata:
            metadata[part] = merged
    if metadata:
        document["metadata"] = metadata


def _content(document: JsonObject) -> tuple[object, ...]:
    """Return the parts of a Secret that a push may change."""
    metadata = document.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return data_of(document), document.get("type"), labels, annotations


def is_marked(document: JsonObject, owner: str) -> bool:
    """Return whether a push of this owner created the Secret."""
    labels = (document.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(MARK) == owner)


def _not_ours(item: PushItem, namespace: str) -> ProviderError:
    return ProviderError(
        ErrorReason.OWNERSHIP_CONFLICT,
        f'Secret "{item.remote.key}" in namespace "{namespace}" exists and was not created by External Secrets: it has'
        f" no label {MARK}={OWNER}; choose another remoteKey, or let the administrator add that label to hand it over",
    )


# --- deletion ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class DeletionPlan:
    """`document` is the rest of the Secret; None with `removes` means that the whole Secret is deleted."""

    existed: list[bool]
    document: JsonObject | None = field(default=None, repr=False)
    removes: bool = False


def plan_deletion(live: JsonObject, properties: Sequence[str]) -> DeletionPlan:
    """Remove keys from the Secret; delete the Secret if no key is left or a property is empty."""
    data = data_of(live)
    existed = [not name or name in data for name in properties]
    kept = {name: value for name, value in data.items() if name not in properties}
    if "" in properties or (not kept and data):
        return DeletionPlan(existed, removes=True)
    return DeletionPlan(existed, {**live, "data": kept} if len(kept) < len(data) else None)


def data_of(document: Mapping[str, object]) -> dict[str, str]:
    data = document.get("data")
    return dict(data) if isinstance(data, dict) else {}


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# ---------------------------------------------------------------------------------------------------------------------
# Writes to one remote Secret: read, plan, write, and start again if another writer changed it in between.


_RAW_SECRETS: Final = raw(SECRETS)
_ATTEMPTS: Final = 8
_PAUSE: Final = ExponentialBackoff(first=0.05, cap=1.0, jitter=1.0)


class SecretWriter:
    """Writes with the resourceVersion it read, so that no other writer's change is lost."""

    def __init__(self, store: AnyClusterStore) -> None:
        self._store = store

    async def push(
        self, key: ObjectKey, pushings: Sequence[Pushing], source: SourceSecret, *, guarded: bool
    ) -> Sequence[Pushed | ProviderError]:
        """Write the items; return one outcome for each."""
        try:
            for attempt in range(_ATTEMPTS):
                await self._store.clock.sleep(_PAUSE.delay(attempt, system_random))
                live = await self._live(key)
                plan = plan_push(live, pushings, source, guarded=guarded)
                if plan.document is None:
                    return _outcomes(plan, version_of(live or {}))
                if (version := await self._write(key, plan)) is not None:
                    return _outcomes(plan, version)
        except ProviderError as error:
            return [error] * len(pushings)
        return [_beaten(key, pushing) for pushing in pushings]

    async def delete(
        self, key: ObjectKey, items: Sequence[DeleteItem], *, guarded: bool
    ) -> Sequence[bool | ProviderError]:
        """Delete properties (the Secret itself if empty); return for each whether it existed.

        A Secret of a guarded namespace that no push created counts as absent.
        """
        properties = [item.remote.property for item in items]
        owner = next((item.owner_token for item in items if item.owner_token), OWNER)
        try:
            if not guarded and not any(properties):
                existed = await self._delete(key, DeleteOptions())
                return [existed is not False] * len(properties)
            for attempt in range(_ATTEMPTS):
                await self._store.clock.sleep(_PAUSE.delay(attempt, system_random))
                live = await self._live(key)
                if live is None or (guarded and not is_marked(live, owner)):
                    return [False] * len(properties)
                plan = plan_deletion(live, properties)
                if plan.removes:
                    meta = meta_of(live)
                    options = DeleteOptions(uid=meta.uid, resource_version=meta.resource_version)
                    done = await self._delete(key, options) is not None
                else:
                    done = plan.document is None or await self._update(key, plan.document) is not None
                if done:
                    return plan.existed
        except ProviderError as error:
            return [error] * len(properties)
        return [_busy(key)] * len(properties)

    async def _live(self, key: ObjectKey) -> JsonObject | None:
        request = Request("get", SECRETS, key.namespace, key.name)
        try:
            with self._store.observe("GetSecret"):
                return await self._store.client.get(_RAW_SECRETS, key)
        except NotFound as error:
            problem = self._store.failure(error, request)
            if problem.is_not_found:
                return None
            raise problem from None
        except ApiError as error:
            raise self._store.failure(error, request) from None

    async def _write(self, key: ObjectKey, plan: PushPlan) -> str | None:
        """Carry out the plan; return the new version ("" if unchanged), or None if another writer was first."""
        if plan.document is None:
            return ""
        if not plan.creates:
            return await self._update(key, plan.document)
        metadata = {**(plan.document.get("metadata") or {}), "namespace": key.namespace, "name": key.name}
        try:
            with self._store.observe("CreateSecret"):
                made = await self._store.client.create(_RAW_SECRETS, {**plan.document, "metadata": metadata})
        except AlreadyExists:
            return None
        except ApiError as error:
            raise self._store.failure(error, Request("create", SECRETS, key.namespace, key.name)) from None
        return version_of(made)

    async def _update(self, key: ObjectKey, document: JsonObject) -> str | None:
        """Update the Secret; return its version, or None if it was changed or deleted since the read."""
        request = Request("update", SECRETS, key.namespace, key.name)
        try:
            with self._store.observe("UpdateSecret"):
                return version_of(await self._store.client.update(_RAW_SECRETS, document))
        except Conflict:
            return None
        except ApiError as error:
            problem = self._store.failure(error, request)
            if problem.is_not_found:
                return None
            raise problem from None

    async def _delete(self, key: ObjectKey, options: DeleteOptions) -> bool | None:
        """Delete the Secret; return whether it existed, or None if it changed since the read."""
        request = Request("delete", SECRETS, key.namespace, key.name)
        try:
            with self._store.observe("DeleteSecret"):
                await self._store.client.delete(_RAW_SECRETS, key, options)
        except Conflict:
            return None
        except ApiError as error:
            problem = self._store.failure(error, request)
            if problem.is_not_found:
                return False
            raise problem from None
        return True


def _outcomes(plan: PushPlan, version: str) -> Sequence[Pushed | ProviderError]:
    return [one if isinstance(one, ProviderError) else Pushed(one, version) for one in plan.outcomes]


def _beaten(key: ObjectKey, pushing: Pushing) -> Pushed | ProviderError:
    if pushing.item.precondition is PushPrecondition.IF_VERSION:
        return version_differs(key.name)
    return _busy(key)


def _busy(key: ObjectKey) -> ProviderError:
    return unavailable(
        f'other writers changed Secret "{key.name}" {_ATTEMPTS} times while it was written; it is retried'
    )
