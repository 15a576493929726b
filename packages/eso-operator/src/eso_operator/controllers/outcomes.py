"""What outcomes of ExternalSecrets and PushSecrets share: reasons of conditions, and the steps that can fail.

`code` is `status.outcomes[].step`, for programs. `summary` begins the message of `Ready`, and alerts of users compare
that message, so neither may change. Rules compare the step itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

SYNCED: Final = "Synced"
DELETED: Final = "Deleted"
MISSING: Final = "Missing"
FAILED: Final = "SyncedError"
"""The reasons of the Ready condition of an ExternalSecret; `Secret` or `Resource` precedes them."""


@unique
class Step(Enum):
    """A step of one kind. `path` is the field of the spec that the step is about."""

    # An ExternalSecret, in the order of its reconcile.
    VALIDATE = "Validate", "invalid ExternalSecret", "spec"
    ALLOW_TARGET = "AllowTarget", "invalid generic target", "spec.target.manifest"
    READ_TARGET = "ReadTarget", "could not update secret", "spec.target", "could not get target resource"
    FETCH = "Fetch", "could not get secret data from provider", "spec"
    RENDER = "Render", "could not update secret", "spec.target.template", "could not apply template to manifest"
    WRITE = "Write", "could not update secret", "spec.target"
    DELETE = "Delete", "could not delete secret", "spec.target", "could not delete resource"
    REMOVE_FORMER = "RemoveFormer", "could not delete orphaned secrets", "spec.target"

    # A PushSecret.
    VALIDATE_PUSH = "Validate", "invalid PushSecret", "spec"
    READ_SOURCE = "ReadSource", "could not get source secret", "spec.selector"
    RENDER_PUSH = "Render", "could not set secret", "spec.template"
    PUSH = "Push", "could not set secret", "spec"
    DELETE_PUSHED = "DeletePushed", "could not delete secret", "spec"

    def __init__(self, code: str, summary: str, path: str, generic_summary: str = "") -> None:
        self.code = code
        self.summary = summary
        self.path = path
        self.generic_summary = generic_summary or summary
        """The words for a target that is not a Secret."""


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Another writer changed an object at the same time."""

    what: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Another operator handles the object."""

    why: str
