"""The record of targets in `status.manifests`: objects that could not be found again once the spec names another one.

An object of a kind other than Secret is recorded before it is created, until it is known to be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eso_api.externalsecret import ExternalSecret, MadeManifest
from eso_api.validation.externalsecret import writes_secret
from eso_operator.targets.marks import OWNER, target_name

MAX_ON_RECORD: Final = 32
"""The most recorded objects. Evicted ones are the oldest; the garbage collector deletes them with their owner."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The messages of the events for removed objects, and the new content of `status.manifests`."""

    told: tuple[str, ...] = ()
    on_record: tuple[MadeManifest, ...] = ()


def record_of(es: ExternalSecret) -> MadeManifest | None:
    """Return the record that must exist before the target is written; None for Secrets and other policies."""
    target = es.spec.target
    if target.manifest is None or target.creation_policy != OWNER or writes_secret(target):
        return None
    return MadeManifest(api_version=target.manifest.api_version, kind=target.manifest.kind, name=target_name(es))


def is_on_record(es: ExternalSecret) -> bool:
    """Return whether the target is recorded, or needs no record."""
    made = record_of(es)
    return made is None or any(are_same(made, known) for known in es.status.manifests)


def with_record(es: ExternalSecret) -> Sequence[MadeManifest]:
    """Return the recorded objects including the current target."""
    made = record_of(es)
    known = es.status.manifests
    return known if made is None or is_on_record(es) else [*known, made][-MAX_ON_RECORD:]


def are_same(one: MadeManifest, other: MadeManifest) -> bool:
    """Return whether both name the same object; API versions are ignored."""
    return (group_of(one), one.kind, one.name) == (group_of(other), other.kind, other.name)


def group_of(made: MadeManifest) -> str:
    return made.api_version.rpartition("/")[0]
