"""What an ExternalSecret writes to, whatever its kind: looked at, rendered, planned, applied.

    look -> (fetch) -> render -> plan -> apply

`SecretTarget` and `ManifestTarget` do this for Secrets and for every other kind; the reconciler does not know which it
has. What was written last is remembered by resourceVersion, so an untouched target is not read again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from eso_api.externalsecret import ExternalSecret
from eso_operator.targets.changes import Change, Create, Update
from eso_render.secret import Values
from eso_render.sources import TemplateObjects
from kuberun.errors import ApiError
from kuberun.meta import ObjectKey, ObjectMeta

MAX_REMEMBERED: Final = 200_000


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such object."""


@dataclass(frozen=True, slots=True)
class Present:
    """There is one. `valid` means: marked as ours, and its content is what its hash says."""

    metadata: ObjectMeta
    valid: bool


Look = Absent | Present


class UnknownKindError(Exception):
    """The kind of a target cannot be written: the API server has none, it has no namespace, or it would give rights."""


class PartlyAppliedError(Exception):
    """The target holds the new values, and what had to follow failed."""

    def __init__(self, problem: ApiError) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Done(Enum):
    """What was written. The texts are those of the events."""

    CREATED = "secret created"
    UPDATED = "secret updated"


@dataclass(frozen=True, slots=True)
class Applied:
    """A change that was made."""

    done: Done
    name: str


class Target(Protocol):
    """The object that one ExternalSecret maintains."""

    async def look(self, es: ExternalSecret) -> Look:
        """Whether it is there, and valid."""
        ...

    async def plan(self, es: ExternalSecret, values: Values, objects: TemplateObjects) -> Change:
        """What has to be done so that it holds these values. Raises TargetError when they cannot be rendered."""
        ...

    async def apply(self, es: ExternalSecret, change: Create | Update) -> Applied:
        """Do it. Raises Conflict when somebody else wrote meanwhile, PartlyAppliedError when only the end failed."""
        ...

    async def delete(self, es: ExternalSecret) -> bool:
        """Delete it if the ExternalSecret controls it; whether there was something to delete. Raises Conflict."""
        ...


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of one target since it was last written or read."""

    uid: str
    resource_version: str
    wanted: str
    """The digest of the wish it fulfils; empty when it was only read."""
    valid: bool


class Memories:
    """By target; bounded, oldest out."""

    def __init__(self) -> None:
        self._known: OrderedDict[ObjectKey, Memory] = OrderedDict()

    def of(self, metadata: ObjectMeta) -> Memory | None:
        """What is known of this very version."""
        found = self._known.get(metadata.key)
        if found is None or (found.uid, found.resource_version) != (metadata.uid, metadata.resource_version):
            return None
        return found

    def keep(self, metadata: ObjectMeta, *, wanted: str, valid: bool) -> None:
        self._known[metadata.key] = Memory(metadata.uid, metadata.resource_version, wanted, valid)
        self._known.move_to_end(metadata.key)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

    def is_our_word(self, metadata: ObjectMeta) -> bool:
        """Whether this very version is what we wrote, and as it should be."""
        found = self.of(metadata)
        return found is not None and found.valid and bool(found.wanted)

    def has(self, key: ObjectKey) -> bool:
        """Whether something was there, in whatever version."""
        return key in self._known

    def forget(self, key: ObjectKey) -> None:
        self._known.pop(key, None)
