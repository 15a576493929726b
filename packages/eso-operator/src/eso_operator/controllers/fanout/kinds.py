"""A pair of parent and child as a value: everything in which one fan-out differs from another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from eso_api.common import FailedNamespace
from eso_operator.controllers.fanout.snapshot import Choice
from eso_operator.telemetry.subsystems import Subsystem
from kubebase.meta import Condition, JsonObject, Kind, ObjectMeta


class Parent(Protocol):
    """The base of all parents. They decode with the child's spec as it is stored."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def spec(self) -> Any: ...

    @property
    def status(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of every child of a parent.

    Labels and annotations are complete; `spec` is as the parent stores it.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: JsonObject


@dataclass(frozen=True, slots=True)
class Texts:
    """Words that differ between the pairs."""

    taken: str
    """The failure text for a namespace in which a foreign object has the name."""


@dataclass(frozen=True, slots=True)
class FanOut:
    """One pair of parent and child. The functions are pure and read the parent's spec; `status` builds its status."""

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
    status: Callable[[Any, str, Sequence[FailedNamespace], Sequence[str], Sequence[Condition]], Any]
    """Builds the status from the parent, the child's name, failed and provisioned namespaces, and the conditions."""
    component: str = "external-secrets"
    """The source of events about parents."""
    finalizer: str = ""
    """On the parent, so that it stays until its children are deleted; empty leaves that to garbage collection."""
    left_on_namespaces: str = ""
    """Prefix of the finalizers that the existing operator leaves on namespaces; the parent's name follows."""
