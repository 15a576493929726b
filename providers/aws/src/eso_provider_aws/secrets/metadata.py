"""The `metadata` of a PushSecret entry for a secret.

Fields that the metadata does not name stay unchanged at an existing secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from eso_api.references import ObjectKeySelector
from eso_api.values import SecretBytes
from eso_provider_aws.ownership import decoded
from eso_sdk.errors import credentials_not_found, invalid_request
from eso_sdk.pushmetadata import Envelope, MetadataSpec
from eso_wire.values import PushItem

POLICY_MARK: Final = "external-secrets-resource-policy"
"""Tag of a secret whose resource policy we set; `alignment.PolicyMark` is its value."""

_POLICY: Final = "/spec/resourcePolicy/policySourceRef"
_REFERENCE: Final = frozenset({"kind", "name", "key", "namespace"})


class ResourcePolicy(MetadataSpec, frozen=True, kw_only=True):
    """The resource policy of the secret."""

    block_public_policy: bool | None = None
    """Let the service refuse a policy that grants broad access."""
    policy_source_ref: ObjectKeySelector
    """Key of a ConfigMap or Secret that holds the policy."""


class SecretMetadata(MetadataSpec, frozen=True, kw_only=True):
    """`spec` of the metadata."""

    tags: dict[str, str] | None = None
    """All tags of the secret, besides the marks of External Secrets; absent leaves tags alone."""
    description: str | None = None
    """Set at creation."""
    secret_push_format: Literal["binary", "string"] | None = None
    """The format of the value; absent keeps the format of an existing secret, and is binary for a new one."""
    kms_key_id: str | None = None
    """Key that encrypts the value; set at creation."""
    resource_policy: ResourcePolicy | None = None
    """Who else may use the secret."""
    replication_locations: list[str] | None = None
    """All regions with a replica; absent leaves replicas alone."""


PushMetadata = Envelope[SecretMetadata]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a secret from all items of one push."""

    metadata: SecretMetadata = field(default_factory=SecretMetadata)
    policy: bytes | None = field(default=None, repr=False)
    """The resource policy, as its source has it."""
    policy_property: str = ""
    """The property of the item that names the policy."""
    properties: frozenset[str] = frozenset()
    """The properties of all items; the empty one is the whole value."""
    has_metadata: bool = False
    """True if the push has metadata."""


def settings_of(item: PushItem) -> Settings:
    """Decode the metadata of one item, with the policy that it refers to."""
    key = item.remote.key
    properties = frozenset({item.remote.property})
    if not item.provider_metadata:
        return Settings(properties=properties)
    metadata = decoded(item.provider_metadata, SecretMetadata, key)
    if POLICY_MARK in (metadata.tags or ()):
        raise invalid_request(f'metadata of "{key}": tag {POLICY_MARK} is set by External Secrets; remove it')
    policy = _policy(item, item.provider_metadata) if metadata.resource_policy else None
    return Settings(metadata, policy, item.remote.property, properties, has_metadata=True)


def merged(settings: Iterable[Settings]) -> Settings:
    """Merge the settings of several items of one secret; for each field, the last item that sets it wins."""
    result = Settings()
    for each in settings:
        names = SecretMetadata.__struct_fields__
        named = {name: value for name in names if (value := getattr(each.metadata, name)) is not None}
        result = Settings(
            metadata=msgspec.structs.replace(result.metadata, **named),
            policy=result.policy if each.policy is None else each.policy,
            policy_property=result.policy_property if each.policy is None else each.policy_property,
            properties=result.properties | each.properties,
            has_metadata=result.has_metadata or each.has_metadata,
        )
    return result


def _policy(item: PushItem, plain: Mapping[str, Any]) -> bytes:
    """Return the policy that the metadata refers to; the operator has read it."""
    key = item.remote.key
    reference = plain["spec"]["resourcePolicy"]["policySourceRef"]
    if unknown := sorted(set(reference) - _REFERENCE):
        raise invalid_request(f'metadata of "{key}": policySourceRef has no field {unknown[0]}')
    source = f'key "{reference["key"]}" of {reference["kind"]} "{reference["name"]}"'
    sent = [credential.value for credential in item.resolved if credential.pointer == _POLICY]
    if not sent or not isinstance(sent[0], SecretBytes):
        raise credentials_not_found(f'resource policy of "{key}": the operator did not send {source}; upgrade it')
    raw = sent[0].reveal()
    try:
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise invalid_request(f'resource policy of "{key}": {source} is not a JSON object') from None
    return raw
