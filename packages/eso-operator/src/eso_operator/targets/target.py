"""The interface of targets, and the record of targets in `status.manifests`.

    read -> (fetch) -> plan, which renders -> apply

`SecretTarget` implements it for Secrets, `ManifestTarget` for all other kinds; the reconciler treats both alike. An
object of a kind other than Secret is recorded before it is created, until it is known to be gone: without the record it
could not be found again once the spec names another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from eso_api.externalsecret import ExternalSecret, MadeManifest
from eso_api.validation import writes_secret
from eso_operator.targets.change import Create, TargetChange, Update
from eso_operator.targets.metadata import OWNER, GeneratedMark, target_name
from eso_render.secret import Values
from eso_render.sources import TemplateObjects
from kubebase.meta import ObjectMeta
from kuberun.errors import ApiError


@dataclass(frozen=True, slots=True)
class Absent:
    """The target does not exist."""


@dataclass(frozen=True, slots=True)
class Present:
    """The target exists. `valid` means: it has our label, and its content matches its hash."""

    metadata: ObjectMeta
    valid: bool


TargetState = Absent | Present


class UnknownKindError(Exception):
    """The kind of a target cannot be written: it is not served, not namespaced, or could grant rights."""


class PartlyAppliedError(Exception):
    """The target holds the new values, but the apply after the patch failed."""

    def __init__(self, problem: ApiError) -> None:
        super().__init__(str(problem))
        self.problem = problem


class WriteKind(Enum):
    """The kind of write. The texts are the messages of events."""

    CREATED = "secret created"
    UPDATED = "secret updated"


@dataclass(frozen=True, slots=True)
class Applied:
    """A change that was made."""

    done: WriteKind
    name: str
    version: str = ""
    """The resourceVersion of a Secret after the change."""


class Target(Protocol):
    """The object that one ExternalSecret maintains."""

    async def read(self, es: ExternalSecret, *, live: bool = False) -> TargetState:
        """Return whether the target exists and is valid; `live` says that a cached state does not suffice."""
        ...

    async def plan(
        self, es: ExternalSecret, values: Values, objects: TemplateObjects, mark: GeneratedMark | None = None
    ) -> TargetChange:
        """Render the values and choose the change. Raises TargetError if they cannot be rendered.

        Generated values are written with their mark.
        """
        ...

    async def apply(self, es: ExternalSecret, change: Create | Update) -> Applied:
        """Write the change. Raises Conflict if the target changed since the plan, PartlyAppliedError."""
        ...

    async def delete(self, es: ExternalSecret) -> bool:
        """Delete the target if the ExternalSecret controls it; return whether it was deleted. Raises Conflict."""
        ...


MAX_RECORDED: Final = 32
"""The most recorded objects. Evicted ones are the oldest; the garbage collector deletes them with their owner."""


@dataclass(frozen=True, slots=True)
class RemovedTargets:
    """The messages of the events for removed objects, and the new content of `status.manifests`."""

    messages: tuple[str, ...] = ()
    recorded: tuple[MadeManifest, ...] = ()


def record_of(es: ExternalSecret) -> MadeManifest | None:
    """Return the record that must exist before the target is written; None for Secrets and other policies."""
    target = es.spec.target
    if target.manifest is None or target.creation_policy != OWNER or writes_secret(target):
        return None
    return MadeManifest(api_version=target.manifest.api_version, kind=target.manifest.kind, name=target_name(es))


def is_recorded(es: ExternalSecret) -> bool:
    """Return whether the target is recorded, or needs no record."""
    made = record_of(es)
    return made is None or any(are_same(made, known) for known in es.status.manifests)


def with_record(es: ExternalSecret) -> Sequence[MadeManifest]:
    """Return the recorded objects including the current target."""
    made = record_of(es)
    known = es.status.manifests
    return known if made is None or is_recorded(es) else [*known, made][-MAX_RECORDED:]


def are_same(one: MadeManifest, other: MadeManifest) -> bool:
    """Return whether both name the same object; API versions are ignored."""
    return (group_of(one), one.kind, one.name) == (group_of(other), other.kind, other.name)


def group_of(made: MadeManifest) -> str:
    return made.api_version.rpartition("/")[0]
