"""The stores that a reference to a missing one may mean: another kind or generation of that name, or a similar name."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from eso_operator.stores.loading import load
from eso_operator.stores.reference import Picked, Reference, alternatives, pick
from eso_operator.stores.referent import Referent
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_operator.stores.view import ClusterView, Scope
from eso_wire.kinds import KindId
from kubebase.hints import did_you_mean, similar
from kubebase.meta import ObjectKey, meta_of

_CONSIDERED: Final = 3
"""Similar names of each kind that are looked at."""


def load_or_suggest(reference: Reference, picked: Picked, snapshot: ClusterView) -> Referent:
    """Stage 3: return the object that a reference names. The error about a missing one suggests others."""
    try:
        return load(reference, picked, snapshot)
    except ResolutionError as error:
        if error.reason is Reason.NOT_FOUND and (hint := _hint(reference, picked, snapshot)):
            raise ResolutionError(error.reason, f"{error.message}; {hint}", subject=error.subject) from None
        raise


def _hint(reference: Reference, picked: Picked, snapshot: ClusterView) -> str:
    """Return a question about one object: of the same name if there is one, else the most similar one of its kind."""
    scopes = {kind: snapshot.objects.scope(kind) for kind in (picked.kind, *alternatives(reference, picked))}
    kinds = {kind: scope for kind, scope in scopes.items() if scope is not None}
    for kind, scope in kinds.items():
        # An object of the same kind and name in another group has its own remedy in the message.
        if kind.kind != picked.kind.kind and _may_be_meant(replace(reference, kind=kind), scope, snapshot):
            return did_you_mean([_described(kind, reference.name, picked)])
    for kind, scope in kinds.items():
        namespace = reference.caller.namespace if scope is Scope.NAMESPACED else ""
        names = {meta_of(each).name for each in snapshot.objects.list(kind, namespace)}
        for name in similar(reference.name, names, count=_CONSIDERED):
            if _may_be_meant(replace(reference, kind=kind, name=name), scope, snapshot):
                return did_you_mean([_described(kind, name, picked)])
    return ""


def _may_be_meant(other: Reference, scope: Scope, snapshot: ClusterView) -> bool:
    """Return whether the object exists and the caller's namespace may know of it.

    A cluster-scoped object is disclosed only to namespaces that it plainly admits.
    """
    namespace = other.caller.namespace
    if scope is Scope.NAMESPACED:
        return snapshot.objects.get(other.kind, ObjectKey(namespace, other.name)) is not None
    try:
        conditions = load(other, pick(other, snapshot), snapshot).behaviour.conditions
    except ResolutionError:
        return False
    return not conditions or any(namespace in condition.namespaces for condition in conditions)


def _described(kind: KindId, name: str, picked: Picked) -> str:
    group = "" if kind.group == picked.kind.group else f" of {kind.api_version}"
    return f"{kind.kind} {name}{group}"
