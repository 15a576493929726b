"""The building blocks of every kind: the base of its parts, and the shapes of its fields.

A shape is what the API server checks before it stores an object. It is part of the schema and never enforced while
decoding: a value that a later (or an earlier) schema admits must not make an object, and with it a whole list,
unreadable. Therefore an enumeration is a `str` here, and a duration stays text until its length is needed.

Every module that defines a kind uses it; `crd.py` reads it. It knows no particular kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

SEPARATOR = "; "
"""Between the messages of `one_rule`, where all of them are shown."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule. `expression` sees the object as `self`; the API server answers `message` if it is false.

    The API server runs every rule at every write of an object that has the field, also at writes of the status. A rule
    costs it about as much as five fields, and each field of `self` that it reads as much again. Therefore prefer other
    keywords of the schema, and `one_rule` for several conditions of one object.
    """

    expression: str
    message: str
    cases: tuple[Rule, ...] = ()
    """The conditions that `expression` combines: the API server answers the message of the first that is false."""


class Fragment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename="camel"):
    """Base of every part of a kind below `metadata`.

    A field's docstring becomes its description in the CRD. A field without a default is required there. A default says
    what absence means; decoding applies it, and the schema does not contain it, so that stored objects stay unchanged.
    """

    RULES: ClassVar[tuple[Rule, ...]] = ()
    SHAPE: ClassVar[dict[str, Any]] = {}
    """Schema keywords of the object itself, for example minProperties."""


def shaped(**keywords: Any) -> Meta:
    """Return schema keywords for one field; a leading `x_kubernetes_` is spelled with dashes."""
    return Meta(extra_json_schema={_keyword(name): value for name, value in keywords.items()})


def one_of(*values: str) -> Meta:
    return Meta(extra_json_schema={"enum": list(values)})


def shaped_as(fragment: type[Fragment]) -> Meta:
    """Give the field the schema of that fragment in the CRD. In Python it keeps its type, for example plain JSON."""
    return Meta(extra={"fragment": fragment})


def exactly_one() -> dict[str, Any]:
    """Return the `SHAPE` of an object with exactly one field."""
    return {"minProperties": 1, "maxProperties": 1}


def kind_needs_api_version(kinds: Sequence[str], group: str = "") -> dict[str, Any]:
    """Return the `SHAPE` of a reference: `kind` is one of these, unless `apiVersion` names another group than ours."""
    other_group = {"properties": {"apiVersion": {"not": {"pattern": f"^{re.escape(group)}/"}}}} if group else {}
    return {"anyOf": [{"properties": {"kind": {"enum": list(kinds)}}}, {"required": ["apiVersion"], **other_group}]}


def at_most_one(*fields: str) -> Rule:
    return Rule(f"{_count(fields)} <= 1", f"at most one of {', '.join(fields)} may be set")


def exactly_one_of(*fields: str) -> Rule:
    return Rule(f"{_count(fields)} == 1", f"exactly one of {', '.join(fields)} must be set")


def one_rule(expression: str, *cases: Rule) -> Rule:
    """Return one rule for several conditions; `expression` is true if all of them are, and reads few fields."""
    return Rule(expression, SEPARATOR.join(case.message for case in cases), cases)


def _count(fields: tuple[str, ...]) -> str:
    return " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields)


def _keyword(name: str) -> str:
    return name.replace("_", "-") if name.startswith("x_kubernetes_") else name


# Names. The limits are those of Kubernetes itself, so no existing object can exceed them.
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

API_VERSION_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
KIND_PATTERN = r"^[A-Za-z][A-Za-z0-9]*$"

ObjectName = Annotated[str, shaped(minLength=1, maxLength=253, pattern=_SUBDOMAIN)]
NamespaceName = Annotated[str, shaped(minLength=1, maxLength=63, pattern=_LABEL)]
DataKey = Annotated[str, shaped(minLength=1, maxLength=253, pattern=r"^[-._a-zA-Z0-9]+$")]
ApiVersion = Annotated[str, shaped(minLength=1, maxLength=317, pattern=API_VERSION_PATTERN)]
KindName = Annotated[str, shaped(minLength=1, maxLength=63, pattern=KIND_PATTERN)]
NonEmpty = Annotated[str, shaped(minLength=1)]

# A duration as Go writes it (`1h0m0s`), or a whole number of seconds. `kubebase.durations` parses it.
_DURATION = r"(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"
DURATION_PATTERN = rf"^[-+]?{_DURATION}"
POSITIVE_DURATION_PATTERN = rf"^[+]?{_DURATION}"
Interval = Annotated[int | str, shaped(pattern=DURATION_PATTERN)]
PositiveInterval = Annotated[int | str, shaped(pattern=POSITIVE_DURATION_PATTERN, minimum=0)]
Duration = Annotated[str, shaped(pattern=DURATION_PATTERN)]

Timestamp = Annotated[str | None, shaped(format="date-time")]
NullableTimestamp = Annotated[str | None, shaped(format="date-time", nullable=True)]
Base64 = Annotated[str, shaped(format="byte")]
Int32 = Annotated[int, shaped(format="int32")]
Int64 = Annotated[int, shaped(format="int64")]
Json = Any
"""Any JSON value, unchanged."""
JsonMap = dict[str, Any]
"""Any JSON object, unchanged."""
