"""The namespaces that a parent selects, and the work in each of them. Pure.

Namespaces are selected by name and by any number of label selectors; one match is enough. Without names and selectors
nothing matches; an empty selector matches everything. A selector that Kubernetes would reject is an error, because
acting on the rest of the selection could delete children.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from eso_api.references import LabelSelector, SelectorError
from kubebase.meta import ObjectKey, ObjectMeta

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Choice:
    """The selection of a spec: names, and selectors with their fields."""

    names: frozenset[str] = frozenset()
    selectors: tuple[tuple[str, LabelSelector], ...] = ()

    def check(self) -> None:
        """Raises a SelectorError that names the field, if Kubernetes would refuse one of the selectors."""
        for field, selector in self.selectors:
            try:
                _check(selector)
            except SelectorError as error:
                raise SelectorError(f"{field}: {error}") from None

    def matches(self, namespace: ObjectMeta) -> bool:
        """Return whether the namespace is selected, by its labels. Assumes `check`."""
        if namespace.name in self.names:
            return True
        return any(selector.matches(namespace.labels) for _, selector in self.selectors)


@dataclass(frozen=True, slots=True)
class Work:
    """The work to do: a child in each of `wanted`, none in `stale`."""

    wanted: tuple[ObjectKey, ...]
    stale: tuple[ObjectKey, ...]


@dataclass(frozen=True, slots=True)
class Gaps:
    """The parts of a selection that have no effect."""

    names: tuple[str, ...] = ()
    """Names of namespaces that do not exist."""
    selectors: tuple[str, ...] = ()
    """Fields of selectors that match no namespace."""
    nothing_chosen: bool = False
    """Neither names nor selectors."""


NO_GAPS: Final = Gaps()


def gaps(choice: Choice, namespaces: Iterable[ObjectMeta]) -> Gaps:
    """List namespaces that do not exist and selectors that match no namespace. Assumes `Choice.check`."""
    known = list(namespaces)
    labels = [namespace.labels for namespace in known if namespace.deletion_timestamp is None]
    idle = [field for field, selector in choice.selectors if not any(map(selector.matches, labels))]
    missing = choice.names - {namespace.name for namespace in known}
    return Gaps(tuple(sorted(missing)), tuple(idle), nothing_chosen=not choice.names and not choice.selectors)


def work(choice: Choice, name: str, *, namespaces: Iterable[ObjectMeta], children: Iterable[ObjectKey]) -> Work:
    """Return the difference between the selected namespaces and the existing children.

    `name` is the name of every child, `children` are the existing ones. A namespace that is being deleted deletes its
    child and accepts no new one, so it is skipped.
    """
    choice.check()
    known = list(namespaces)
    leaving = {namespace.name for namespace in known if namespace.deletion_timestamp is not None}
    meant = {namespace.name for namespace in known if choice.matches(namespace)} - leaving
    wanted = {ObjectKey(namespace, name) for namespace in meant}
    stale = {child for child in children if child not in wanted and child.namespace not in leaving}
    return Work(tuple(sorted(wanted)), tuple(sorted(stale)))


def _check(selector: LabelSelector) -> None:
    selector.check()
    for key, values in _labels(selector):
        prefix, slash, name = key.rpartition("/")
        if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
            raise SelectorError(f'"{key[:100]}" is no key of a label')
        for value in values:
            if value and not _NAME.fullmatch(value):
                raise SelectorError(f'"{value[:100]}" is no value of a label, asked for under "{key}"')


def _labels(selector: LabelSelector) -> Iterator[tuple[str, Iterable[str]]]:
    yield from ((key, (value,)) for key, value in selector.match_labels.items())
    yield from ((requirement.key, requirement.values) for requirement in selector.match_expressions)
