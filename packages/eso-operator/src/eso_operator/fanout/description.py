"""A pair of parent and child as a value: everything in which one fan-out differs from another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from eso_api.conditions import FailedNamespace
from eso_operator.fanout.namespaces import Choice
from eso_operator.telemetry.objects import Subsystem
from kuberun.meta import Condition, JsonObject, Kind, ObjectMeta


class Parent(Protocol):
    """What all parents have in common. They decode with the child's spec as it is stored."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def spec(self) -> Any: ...

    @property
    def status(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Contents:
    """What every child of a parent holds. Labels and annotations are all it has; `spec` is as the parent stores it."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: JsonObject


@dataclass(frozen=True, slots=True)
class Texts:
    """Words that differ between the pairs."""

    taken: str
    """Why a namespace fails that has somebody else's object of that name."""


@dataclass(frozen=True, slots=True)
class FanOut:
    """One pair. The functions are pure and read the parent's spec; `status` makes a status that is written."""

    parent: Kind[Any]
    child: Kind[Any]
    subsystem: Subsystem
    texts: Texts
    field_manager: str
    choice: Callable[[Any], Choice]
    name: Callable[[Any], str]
    contents: Callable[[Any], Contents]
    comparable: Callable[[JsonObject | Any], Any]
    """The spec of a child, stored or decoded, in the one form in which two that mean the same are equal."""
    status: Callable[[str, Sequence[FailedNamespace], Sequence[str], Sequence[Condition]], Any]
    """From the child's name, the namespaces that failed, those that have it, and conditions."""
    component: str = "external-secrets"
    """Where events about parents come from."""
    finalizer: str = ""
    """On the parent, so that it stays until its children are asked to go; empty leaves that to garbage collection."""
    left_on_namespaces: str = ""
    """Prefix of the finalizers that the existing operator leaves on namespaces; the parent's name follows."""
