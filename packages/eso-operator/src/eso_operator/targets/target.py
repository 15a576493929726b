"""The interface of targets.

    look -> (fetch) -> plan, which renders -> apply

`SecretTarget` implements it for Secrets, `ManifestTarget` for all other kinds; the reconciler treats both alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from eso_api.externalsecret import ExternalSecret
from eso_operator.targets.changes import Change, Create, Update
from eso_operator.targets.marks import GeneratedMark
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


Look = Absent | Present


class UnknownKindError(Exception):
    """The kind of a target cannot be written: it is not served, not namespaced, or could grant rights."""


class PartlyAppliedError(Exception):
    """The target holds the new values, but the apply after the patch failed."""

    def __init__(self, problem: ApiError) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Done(Enum):
    """The kind of write. The texts are the messages of events."""

    CREATED = "secret created"
    UPDATED = "secret updated"


@dataclass(frozen=True, slots=True)
class Applied:
    """A change that was made."""

    done: Done
    name: str
    version: str = ""
    """The resourceVersion of a Secret after the change."""


class Target(Protocol):
    """The object that one ExternalSecret maintains."""

    async def look(self, es: ExternalSecret, *, live: bool = False) -> Look:
        """Return whether the target exists and is valid; `live` says that a cached state does not suffice."""
        ...

    async def plan(
        self, es: ExternalSecret, values: Values, objects: TemplateObjects, mark: GeneratedMark | None = None
    ) -> Change:
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
