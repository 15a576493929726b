"""Stages 4 and 5: is the store ours, and may the caller's namespace use it?

The same rule of namespaces holds for `conditions` of cluster-scoped stores and for `allowedNamespaces` of classes: one
matching entry of one condition is enough, an empty condition matches nothing, an empty selector matches everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import re2

from eso_api.policies import NamespaceCondition
from eso_api.references import SelectorError
from eso_operator.stores.loading import malformed
from eso_operator.stores.need import Gate, Need
from eso_operator.stores.settings import ResolverSettings
from eso_operator.stores.snapshot import NAMESPACE, Snapshot
from eso_operator.stores.store import Store
from eso_operator.stores.target import Reason, ResolutionError
from eso_wire.errors import RetryClass
from eso_wire.values import ObjectRef
from kuberun.meta import ObjectKey, meta_of


def check_controller(store: Store, settings: ResolverSettings) -> None:
    """Stage 4: a store that names another class of operator is none of our business."""
    wanted = store.behaviour.controller
    if wanted not in ("", settings.controller_class):
        raise ResolutionError(
            Reason.UNMANAGED,
            f'{store} is handled by controller class "{wanted}"; this operator is "{settings.controller_class}"',
            subject=store.ref,
        )


def check_use(store: Store, caller: ObjectRef, need: Need, snapshot: Snapshot) -> None:
    """Stage 5: the caller may use it now."""
    if not caller.namespace and need.gate is not Gate.OFF:
        raise ResolutionError(
            Reason.NAMESPACE_DENIED, f"{store}: only an object of a namespace can use it", subject=store.ref
        )
    if store.deleted and need.gate is not Gate.OFF and not need.removes_only:
        raise ResolutionError(Reason.BEING_DELETED, f"{store} is being deleted", subject=store.ref)
    check_namespace(store.behaviour.conditions, caller.namespace, store.ref, snapshot)


def check_namespace(
    conditions: Sequence[NamespaceCondition], namespace: str, subject: ObjectRef, snapshot: Snapshot
) -> None:
    """No conditions allow every namespace. The validation of a cluster-scoped store has none: it only reads them."""
    if not conditions:
        return
    labels = _labels(namespace, subject, snapshot) if namespace else {}
    # Every condition is read, so that a broken one is reported whatever the others say.
    verdicts = [_matches(condition, namespace, labels, subject) for condition in conditions]
    if namespace and not any(verdicts):
        raise ResolutionError(
            Reason.NAMESPACE_DENIED,
            f"{subject.kind} {subject.name} does not allow namespace {namespace}: ask its owner to add the namespace"
            " to its conditions",
            subject=_namespace_ref(namespace),
        )


def _labels(namespace: str, subject: ObjectRef, snapshot: Snapshot) -> dict[str, str]:
    found: Any = snapshot.objects.get(NAMESPACE, ObjectKey("", namespace))
    if found is None:
        raise ResolutionError(
            Reason.NAMESPACE_DENIED,
            f"{subject.kind} {subject.name} is limited to some namespaces, and namespace {namespace} is not known",
            subject=_namespace_ref(namespace),
            retry=RetryClass.BACKOFF,
        )
    return meta_of(found).labels


def _namespace_ref(name: str) -> ObjectRef:
    """Its labels decide: a change of them is what those who are refused wait for. The store they watch anyway."""
    return ObjectRef(api_version=NAMESPACE.api_version, kind=NAMESPACE.kind, name=name)


def _matches(condition: NamespaceCondition, namespace: str, labels: dict[str, str], subject: ObjectRef) -> bool:
    selector = condition.namespace_selector
    try:
        selected = selector is not None and selector.matches(labels)
    except SelectorError as error:
        raise malformed(subject, str(error)) from None
    found = [_compiled(regexp, subject).search(namespace) is not None for regexp in condition.namespace_regexes]
    return selected or namespace in condition.namespaces or any(found)


def _compiled(regexp: str, subject: ObjectRef) -> Any:
    try:
        return _expression(regexp)
    except re2.error:
        raise malformed(subject, f'namespaceRegexes: "{regexp[:80]}" is no regular expression (RE2)') from None


@lru_cache(maxsize=1024)
def _expression(regexp: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(regexp, options)
