"""The plan of a push or a deletion on a remote Secret. Pure: `secretwriter.py` reads the Secret and writes the result.

    plan = plan_push(live, items, source)  ->  the object to write, and an outcome for each item

Many items of one Secret become one object, so that twelve properties are one write.

A push marks the Secrets that it creates with a label. `guarded` is for namespaces that PushSecrets chose: a Secret
there without the mark is neither overwritten nor deleted. In the store's own namespace every Secret may be, as with the
operator in Go, whose Secrets have no mark.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from eso_api.externalsecret import TOKEN_TYPES
from eso_api.values import SecretBytes
from eso_provider_kubernetes.pushmetadata import MARK, OWNER, PushMetadata, merged_metadata
from eso_provider_kubernetes.secretobject import json_text
from eso_sdk.errors import invalid_request, version_differs
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushItem, PushOutcome, PushPrecondition, SourceSecret
from kubebase.meta import JsonObject, version_of

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
