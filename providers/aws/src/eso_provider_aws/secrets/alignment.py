"""Updates tags, resource policy and replicas of an existing secret to match the metadata of its pushes.

A policy counts as ours while the tag `external-secrets-resource-policy` holds its digest. Any other policy stays
unchanged, unless the metadata names one. The tag is written before the policy: a failure in between leaves a tag
without a matching policy, never a policy that later pushes do not recognise as ours.

Our policy is revoked when the entry that set it no longer names it. The tag holds the property of that entry, so that
entries without metadata for other properties of the secret leave the policy alone.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from eso_provider_aws.api import Api
from eso_provider_aws.ownership import MARK
from eso_provider_aws.secrets.metadata import POLICY_MARK, Settings
from eso_provider_aws.secrets.reading import SecretState, about

_OF_AWS: Final = "aws:"
"""Tags that only AWS may write."""
_BETWEEN: Final = "/"


class Alignment:
    """The update of one secret."""

    def __init__(self, api: Api, secret_id: str, arn: str) -> None:
        self._api = api
        self._about = about(secret_id)
        self._arn = arn
        self._changed = False

    async def align(self, state: SecretState, settings: Settings) -> bool:
        """Update everything that differs; return whether anything changed."""
        await self._tags(state, settings)
        mark = PolicyMark.of(state)
        if settings.policy is not None:
            await self._set_policy(settings, mark)
        elif mark is not None and (settings.has_metadata or mark.is_of(settings.properties)):
            await self._revoke_policy(mark)
        await self._replicas(state, settings)
        return self._changed

    async def release_policy(self, state: SecretState, properties: frozenset[str]) -> None:
        """Revoke our policy if the entry that set it is being deleted."""
        mark = PolicyMark.of(state)
        if mark is not None and mark.is_of(properties):
            await self._revoke_policy(mark)

    async def put_policy(self, settings: Settings) -> None:
        """Set the policy that the metadata names."""
        source = settings.metadata.resource_policy
        block = source.block_public_policy if source else None
        options = {} if block is None else {"BlockPublicPolicy": block}
        await self._write("PutResourcePolicy", ResourcePolicy=(settings.policy or b"").decode(), **options)

    async def _set_policy(self, settings: Settings, mark: PolicyMark | None) -> None:
        """Set the policy that the metadata names, unless it is in place."""
        desired = policy_mark(settings)
        present = await self._policy()
        if present is not None and _digest(present) == _digest(settings.policy or b""):
            return
        if str(mark) != desired[POLICY_MARK]:
            await self._write("TagResource", Tags=tag_list(desired))
        await self.put_policy(settings)

    async def _revoke_policy(self, mark: PolicyMark) -> None:
        present = await self._policy()
        if present is not None and _digest(present) == mark.policy:
            await self._write("DeleteResourcePolicy")
        await self._write("UntagResource", TagKeys=[POLICY_MARK])

    async def _policy(self) -> bytes | None:
        response = await self._api.call("GetResourcePolicy", about=self._about, SecretId=self._arn)
        found = response.get("ResourcePolicy")
        return found.encode() if isinstance(found, str) and found else None

    async def _tags(self, state: SecretState, settings: Settings) -> None:
        desired = settings.metadata.tags
        if desired is None:
            return
        if missing := {name: value for name, value in desired.items() if state.tags.get(name) != value}:
            await self._write("TagResource", Tags=tag_list(missing))
        extra = sorted(set(state.tags) - set(desired) - {MARK, POLICY_MARK})
        if removable := [name for name in extra if not name.startswith(_OF_AWS)]:
            await self._write("UntagResource", TagKeys=removable)

    async def _replicas(self, state: SecretState, settings: Settings) -> None:
        locations = settings.metadata.replication_locations
        if locations is None:
            return
        if missing := [region for region in dict.fromkeys(locations) if region not in state.replicas]:
            await self._write("ReplicateSecretToRegions", AddReplicaRegions=replica_list(missing, settings))
        if extra := sorted(state.replicas - set(locations)):
            await self._write("RemoveRegionsFromReplication", RemoveReplicaRegions=extra)

    async def _write(self, operation: str, **parameters: Any) -> None:
        await self._api.call(operation, about=self._about, SecretId=self._arn, **parameters)
        self._changed = True


@dataclass(frozen=True, slots=True)
class PolicyMark:
    """The value of our tag: the digest of the policy, and that of the property whose entry set it."""

    policy: str
    property: str = ""
    """Empty in tags that hold the digest of the policy alone: earlier versions wrote them."""

    @staticmethod
    def of(state: SecretState) -> PolicyMark | None:
        tag = state.tags.get(POLICY_MARK)
        return None if tag is None else PolicyMark(*tag.split(_BETWEEN, 1))

    def is_of(self, properties: frozenset[str]) -> bool:
        """Return whether an entry of one of these properties set the policy."""
        if not self.property:
            return "" in properties
        return self.property in {_short_digest(name) for name in properties}

    def __str__(self) -> str:
        return f"{self.policy}{_BETWEEN}{self.property}" if self.property else self.policy


def policy_mark(settings: Settings) -> dict[str, str]:
    """Return the tag of the policy that we set."""
    if settings.policy is None:
        return {}
    return {POLICY_MARK: str(PolicyMark(_digest(settings.policy), _short_digest(settings.policy_property)))}


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": name, "Value": value} for name, value in sorted(tags.items())]


def replica_list(regions: list[str], settings: Settings) -> list[dict[str, str]]:
    """Return the replicas. They are encrypted with the key of the metadata, if it names one."""
    key = settings.metadata.kms_key_id
    return [{"Region": region, **({"KmsKeyId": key} if key else {})} for region in regions]


def _short_digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _digest(policy: bytes) -> str:
    """Return a digest that does not depend on the formatting of the policy."""
    with suppress(msgspec.DecodeError):
        policy = msgspec.json.encode(msgspec.json.decode(policy), order="sorted")
    return hashlib.sha256(policy).hexdigest()
