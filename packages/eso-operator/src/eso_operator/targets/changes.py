"""Changes of a target as values: `plan` chooses one, `apply` carries it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from eso_api.externalsecret import SECRET_TYPE_LABEL
from kubebase.meta import JsonObject


class Untouched(Enum):
    """Reasons to write nothing that are not errors."""

    UNCHANGED = "the target is as it should be"
    POLICY_NONE = "creationPolicy None writes nothing"
    MISSING = "creationPolicy Merge writes to a target that exists, and there is none"


class Refusal(Enum):
    """Reasons why a target must not be written. The text is the message of the condition."""

    OWNED_BY_ANOTHER = "target is owned by another ExternalSecret"
    CONTROLLED = "failed to take ownership of target secret"
    RESERVED = (
        f"the target has the label {SECRET_TYPE_LABEL}, so it could be sent to a webhook with everything that is copied"
        " into it: remove the label, or choose another target"
    )
    TOKEN = "a token of the cluster may not be a target: choose another spec.target.name"  # noqa: S105 - a message
    IMMUTABLE = "could not update secret, target is immutable"
    TOO_LARGE = (
        "could not update secret, its data is larger than the 1048576 bytes that a Secret may hold: read fewer keys, or"
        " use several ExternalSecrets"
    )


@dataclass(frozen=True, slots=True)
class Create:
    """Create the object."""

    document: JsonObject = field(repr=False)
    wanted: str


@dataclass(frozen=True, slots=True)
class Overwritten:
    """Keys with values of other ExternalSecrets that a change replaces or removes."""

    keys: frozenset[str]
    managers: frozenset[str]
    """The field managers of these ExternalSecrets."""
    wish: str
    """A digest of the new values."""


@dataclass(frozen=True, slots=True)
class Update:
    """Change an existing object, in this order.

    `convert`   JSON patch of our old managedFields entries, so that apply can remove the fields they name
    `patch`     merge patch with the whole change, if fields have to go that apply would keep; atomic
    `document`  server-side apply, which makes us the owner of all wanted fields
    """

    document: JsonObject = field(repr=False)
    wanted: str
    convert: list[JsonObject] = field(default_factory=list, repr=False)
    patch: JsonObject | None = field(default=None, repr=False)
    overwritten: Overwritten | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """Write nothing."""

    why: Untouched
    version: str = ""
    """The resourceVersion of an unchanged Secret."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Write nothing and report an error. `by` names the object or size that prevents the write."""

    why: Refusal
    by: str = ""


Change = Create | Update | Keep | Refuse
