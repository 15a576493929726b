"""The state of a secret before a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eso_provider_aws.ownership import MARK
from eso_provider_aws.secrets.reading import Reader, Secret, current_version
from eso_wire.errors import ErrorReason, ProviderError


@dataclass(frozen=True, slots=True)
class Standing:
    """A secret as the service describes it; without ARN if there is none."""

    arn: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    replicas: frozenset[str] = frozenset()
    """Regions with a replica of it."""
    primary: str = ""
    """The region of the primary secret, if the service reports it."""
    version: str = ""
    """Id of the current version; empty if there is no value."""
    doomed: bool = False
    """True if it is marked for deletion: it does not exist, but its name is taken."""
    secret: Secret | None = None
    """The value, if it was read."""

    def is_of(self, owner: str) -> bool:
        return self.tags.get(MARK) == owner

    @property
    def exists(self) -> bool:
        return bool(self.arn) and not self.doomed


async def standing_of(reader: Reader, secret_id: str) -> Standing:
    """Read the state of a secret, without its value."""
    try:
        return _described(await reader.describe(secret_id))
    except ProviderError as missing:
        if missing.reason is not ErrorReason.SECRET_NOT_FOUND:
            raise
        return Standing()


async def with_value(reader: Reader, standing: Standing) -> Standing:
    """Return the state with the value, if the secret has one."""
    try:
        return replace(standing, secret=await reader.current(standing.arn)) if standing.version else standing
    except ProviderError as missing:
        if missing.reason is not ErrorReason.VERSION_NOT_FOUND:
            raise
        return replace(standing, version="")


def _described(told: dict[str, Any]) -> Standing:
    return Standing(
        arn=told["ARN"],
        tags={tag["Key"]: tag.get("Value", "") for tag in told.get("Tags", ())},
        replicas=frozenset(replica["Region"] for replica in told.get("ReplicationStatus", ())),
        primary=told.get("PrimaryRegion", ""),
        version=current_version(told),
        doomed=bool(told.get("DeletedDate")),
    )
