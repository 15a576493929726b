"""Updates tags, resource policy and replicas of an existing secret to match the metadata of its pushes.

A policy counts as ours while the tag `external-secrets-resource-policy` holds its digest. Any other policy stays
unchanged, unless the metadata names one. The tag is written before the policy: a failure in between leaves a tag
without a matching policy, never a policy that later pushes do not recognise as ours.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any, Final

import msgspec

from eso_provider_aws.api import Api
from eso_provider_aws.ownership import MARK
from eso_provider_aws.secrets.metadata import POLICY_MARK, Settings
from eso_provider_aws.secrets.reading import about
from eso_provider_aws.secrets.standing import Standing

_OF_AWS: Final = "aws:"
"""Tags that only AWS may write."""


class Alignment:
    """The update of one secret."""

    def __init__(self, api: Api, secret_id: str, arn: str) -> None:
        self._api = api
        self._about = about(secret_id)
        self._arn = arn
        self._changed = False

    async def align(self, standing: Standing, settings: Settings) -> bool:
        """Update everything that differs; return whether anything changed."""
        await self._tags(standing, settings)
        if settings.policy is not None:
            await self._set_policy(settings, standing.tags.get(POLICY_MARK, ""))
        elif settings.said and POLICY_MARK in standing.tags:
            await self._revoke_policy(standing.tags[POLICY_MARK])
        await self._replicas(standing, settings)
        return self._changed

    async def put_policy(self, settings: Settings) -> None:
        """Set the policy that the metadata names."""
        source = settings.metadata.resource_policy
        block = source.block_public_policy if source else None
        asked = {} if block is None else {"BlockPublicPolicy": block}
        await self._write("PutResourcePolicy", ResourcePolicy=(settings.policy or b"").decode(), **asked)

    async def _set_policy(self, settings: Settings, mark: str) -> None:
        """Set the policy that the metadata names, unless it is in place."""
        wanted = policy_mark(settings)
        present = await self._policy()
        if present is not None and _digest(present) == wanted[POLICY_MARK]:
            return
        if mark != wanted[POLICY_MARK]:
            await self._write("TagResource", Tags=tag_list(wanted))
        await self.put_policy(settings)

    async def _revoke_policy(self, mark: str) -> None:
        present = await self._policy()
        if present is not None and _digest(present) == mark:
            await self._write("DeleteResourcePolicy")
        await self._write("UntagResource", TagKeys=[POLICY_MARK])

    async def _policy(self) -> bytes | None:
        told = await self._api.call("GetResourcePolicy", about=self._about, SecretId=self._arn)
        found = told.get("ResourcePolicy")
        return found.encode() if isinstance(found, str) and found else None

    async def _tags(self, standing: Standing, settings: Settings) -> None:
        wanted = settings.metadata.tags
        if wanted is None:
            return
        if missing := {name: value for name, value in wanted.items() if standing.tags.get(name) != value}:
            await self._write("TagResource", Tags=tag_list(missing))
        extra = sorted(set(standing.tags) - set(wanted) - {MARK, POLICY_MARK})
        if removable := [name for name in extra if not name.startswith(_OF_AWS)]:
            await self._write("UntagResource", TagKeys=removable)

    async def _replicas(self, standing: Standing, settings: Settings) -> None:
        locations = settings.metadata.replication_locations
        if locations is None:
            return
        if missing := [region for region in dict.fromkeys(locations) if region not in standing.replicas]:
            await self._write("ReplicateSecretToRegions", AddReplicaRegions=replica_list(missing, settings))
        if extra := sorted(standing.replicas - set(locations)):
            await self._write("RemoveRegionsFromReplication", RemoveReplicaRegions=extra)

    async def _write(self, operation: str, **parameters: Any) -> None:
        await self._api.call(operation, about=self._about, SecretId=self._arn, **parameters)
        self._changed = True


def policy_mark(settings: Settings) -> dict[str, str]:
    """Return the tag with the digest of the policy that we set."""
    return {} if settings.policy is None else {POLICY_MARK: _digest(settings.policy)}


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": name, "Value": value} for name, value in sorted(tags.items())]


def replica_list(regions: list[str], settings: Settings) -> list[dict[str, str]]:
    """Return the replicas. They are encrypted with the key of the metadata, if it names one."""
    key = settings.metadata.kms_key_id
    return [{"Region": region, **({"KmsKeyId": key} if key else {})} for region in regions]


def _digest(policy: bytes) -> str:
    """Return a digest that does not depend on the formatting of the policy."""
    with suppress(msgspec.DecodeError):
        policy = msgspec.json.encode(msgspec.json.decode(policy), order="sorted")
    return hashlib.sha256(policy).hexdigest()
