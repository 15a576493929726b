"""What is to be done about a target: values, decided in one place and done in another."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from eso_api.externalsecret import SECRET_TYPE_LABEL
from kuberun.meta import JsonObject


class Untouched(Enum):
    """Why nothing is written, and that is right."""

    UNCHANGED = "the target is as it should be"
    POLICY_NONE = "creationPolicy None writes nothing"
    MISSING = "creationPolicy Merge writes to a target that exists, and there is none"


class Refusal(Enum):
    """Why a target must not be written. The text is the condition's message."""

    OWNED_BY_ANOTHER = "target is owned by another ExternalSecret"
    CONTROLLED = "failed to take ownership of target secret"
    RESERVED = (
        f"the target has the label {SECRET_TYPE_LABEL}, so it could be sent to a webhook with everything that is copied"
        " into it: remove the label, or choose another target"
    )
    IMMUTABLE = "could not update secret, target is immutable"


@dataclass(frozen=True, slots=True)
class Create:
    """There is no such object yet."""

    document: JsonObject = field(repr=False)
    wanted: str


@dataclass(frozen=True, slots=True)
class Update:
    """Change an object that is there, in this order.

    `convert`   our old entries of managedFields, so that apply can give up what they name
    `patch`     all of the change at once, if something goes that apply would leave there: done as a whole, or refused
    `document`  is applied, so that what is wanted is ours
    """

    document: JsonObject = field(repr=False)
    wanted: str
    convert: list[JsonObject] = field(default_factory=list, repr=False)
    patch: JsonObject | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Keep:
    """Write nothing."""

    why: Untouched


@dataclass(frozen=True, slots=True)
class Refuse:
    """Write nothing, and say so. `by` names who stands in the way."""

    why: Refusal
    by: str = ""


Change = Create | Update | Keep | Refuse
