"""Listing of all secrets without their values: ListSecrets, 100 to a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from eso_provider_aws.changes.events import secret_names
from eso_provider_aws.changes.source import Source
from eso_provider_aws.changes.topics import CURRENT, Scope, State
from eso_provider_aws.endpoints import SECRETS_MANAGER


def _narrowed(scope: Scope) -> dict[str, Any]:
    wanted: dict[str, Any] = {"MaxResults": 100}
    if scope.prefixes:
        wanted["Filters"] = [{"Key": "name", "Values": list(scope.prefixes)}]
    return wanted


def _states(page: dict[str, Any]) -> Iterator[tuple[str, State]]:
    for entry in page.get("SecretList", ()):
        if entry.get("DeletedDate") is None:
            yield entry["Name"], _state(entry)


def _state(entry: dict[str, Any]) -> State:
    """Return the state of a secret, without descriptions, policies and pending versions, which readers do not see."""
    changed = entry.get("LastChangedDate") or entry.get("CreatedDate")
    stamp = changed.timestamp() if changed is not None else 0.0
    versions = {stage: each for each, stages in (entry.get("SecretVersionsToStages") or {}).items() for stage in stages}
    if CURRENT in versions:
        versions[""] = versions[CURRENT]
    tags = {tag["Key"]: tag.get("Value", "") for tag in entry.get("Tags") or ()}
    return State(versions, "" if versions else str(stamp), tags, stamp)


SECRETS: Final = Source(
    service=SECRETS_MANAGER,
    operation="ListSecrets",
    about="the secrets",
    naming=secret_names,
    narrowed=_narrowed,
    states=_states,
)
