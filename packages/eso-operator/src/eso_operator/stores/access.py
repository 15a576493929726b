"""Stages 4, 5 and 10: does this operator handle the store, may the caller's namespace use it, and is it ready?

`conditions` of cluster-scoped stores and `allowedNamespaces` of classes have the same rule: one matching entry of one
condition is enough, an empty condition matches nothing, an empty selector matches everything.

A store that is not validated yet, or whose provider is starting, stops a caller without a failure: the caller waits.
The connection to the provider comes with the error: the caller can find out whether it is starting or unreachable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, assert_never

from eso_api.common import NamespaceCondition
from eso_api.references import SelectorError
from eso_operator.stores.loading import Gating, LoadedStore, malformed
from eso_operator.stores.resolved import (
    NAMESPACE,
    ClusterView,
    Connection,
    Gate,
    Need,
    Reason,
    ResolutionError,
    ResolverSettings,
)
from eso_wire.errors import RetryClass
from eso_wire.kinds import ObjectRef
from kubebase.meta import ObjectKey, meta_of
from kubebase.patterns import problem_in


def check_controller(store: LoadedStore, settings: ResolverSettings) -> None:
    """Stage 4: refuse a store that names another controller class."""
    wanted = store.behaviour.controller
    if wanted not in ("", settings.controller_class):
        raise ResolutionError(
            Reason.UNMANAGED,
            f'{store} is handled by controller class "{wanted}"; this operator is "{settings.controller_class}"',
            subject=store.ref,
        )


def check_use(store: LoadedStore, caller: ObjectRef, need: Need, view: ClusterView) -> None:
    """Stage 5: refuse a caller that may not use the store, or not while it is being deleted."""
    if not caller.namespace and need.gate is not Gate.OFF:
        raise ResolutionError(
            Reason.NAMESPACE_DENIED, f"{store}: only an object of a namespace can use it", subject=store.ref
        )
    if store.deleted and need.gate is not Gate.OFF and not need.removes_only:
        raise ResolutionError(Reason.BEING_DELETED, f"{store} is being deleted", subject=store.ref)
    check_namespace(store.behaviour.conditions, caller.namespace, store.ref, view)


def check_namespace(
    conditions: Sequence[NamespaceCondition], namespace: str, subject: ObjectRef, view: ClusterView
) -> None:
    """Refuse a namespace that no condition matches. No conditions allow every namespace.

    An empty `namespace`, in the validation of a cluster-scoped store, only checks that the conditions are valid.
    """
    if not conditions:
        return
    labels = _labels(namespace, subject, view) if namespace else {}
    # Evaluate every condition, so that an invalid one is reported even if another one matches.
    verdicts = [_matches(condition, namespace, labels, subject) for condition in conditions]
    if namespace and not any(verdicts):
        raise ResolutionError(
            Reason.NAMESPACE_DENIED,
            f"{subject.kind} {subject.name} does not allow namespace {namespace}: ask its owner to add the namespace"
            " to its conditions",
            subject=_namespace_ref(namespace),
        )


def _labels(namespace: str, subject: ObjectRef, view: ClusterView) -> dict[str, str]:
    found: Any = view.objects.get(NAMESPACE, ObjectKey("", namespace))
    if found is None:
        raise ResolutionError(
            Reason.NAMESPACE_DENIED,
            f"{subject.kind} {subject.name} is limited to some namespaces, and namespace {namespace} is not known",
            subject=_namespace_ref(namespace),
            retry=RetryClass.BACKOFF,
        )
    return meta_of(found).labels


def _namespace_ref(name: str) -> ObjectRef:
    """Return the namespace as the subject of a refusal: a change of its labels wakes the refused objects."""
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
    import re2  # here, because most stores have no such condition

    try:
        return _expression(regexp)
    except re2.error as failed:
        problem = f'namespaceRegexes: "{regexp[:80]}" is not a regular expression (RE2): {problem_in(failed)}'
        raise malformed(subject, problem) from None


@lru_cache(maxsize=1024)
def _expression(regexp: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(regexp, options)


_VALIDATION_SECONDS: Final = 30.0
"""A caller checks a store that is not validated yet again after this time, if no change of it comes first."""


def check_ready(store: LoadedStore, need: Need, settings: ResolverSettings, connection: Connection) -> None:
    """Stop a caller whose call would only add load while the store is not ready."""
    status = store.ready.status if store.ready is not None else ""
    match store.behaviour.gating:
        case Gating.FLOOD_GATE:
            stopped = settings.flood_gate and need.gate is Gate.FULL and status != "True"
        case Gating.POLICY:
            stopped = need.gate is not Gate.OFF and status == "False"
        case Gating.NONE:
            stopped = False
        case other:
            assert_never(other)
    if stopped:
        waits = status in ("", "Unknown")
        raise ResolutionError(
            Reason.NOT_READY,
            f"{store} is not ready: {_why(store)}",
            subject=store.ref,
            retry=RetryClass.BACKOFF,
            connection=connection if waits else None,
            store_connection=None if waits else connection,
            waits=_VALIDATION_SECONDS if waits else 0.0,
        )


def _why(store: LoadedStore) -> str:
    if store.ready is None:
        return "it has not been validated yet"
    explanation = ": ".join(part for part in (store.ready.reason, store.ready.message) if part)
    return explanation or f"its Ready condition is {store.ready.status}"
