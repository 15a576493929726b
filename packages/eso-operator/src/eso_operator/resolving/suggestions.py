"""The stores that a reference to a missing one may mean: another kind or generation of that name, or a similar name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eso_operator.resolving.loading import load
from eso_operator.resolving.reference import Picked, Reference, alternatives, pick
from eso_operator.resolving.referent import Referent
from eso_operator.resolving.resolved import Reason, ResolutionError
from eso_operator.resolving.view import ClusterView, Scope
from eso_wire.values import KindId
from kubebase.hints import did_you_mean, similar
from kubebase.meta import meta_of


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
    known = {kind: _names(kind, reference, snapshot) for kind in (picked.kind, *alternatives(reference, picked))}
    for kind, names in known.items():
        # An object of the same kind and name in another group has its own remedy in the message.
        if reference.name in names and kind.kind != picked.kind.kind:
            return did_you_mean([_described(kind, reference.name, picked)])
    for kind, names in known.items():
        if close := similar(reference.name, names):
            return did_you_mean([_described(kind, close[0], picked)])
    return ""


def _described(kind: KindId, name: str, picked: Picked) -> str:
    group = "" if kind.group == picked.kind.group else f" of {kind.api_version}"
    return f"{kind.kind} {name}{group}"


def _names(kind: KindId, reference: Reference, snapshot: ClusterView) -> set[str]:
    """Return the names of the objects that the caller could refer to."""
    match snapshot.objects.scope(kind):
        case None:
            return set()
        case Scope.NAMESPACED:
            return {meta_of(each).name for each in snapshot.objects.list(kind, reference.caller.namespace)}
        case Scope.CLUSTER:
            return set(_admitting(kind, reference, snapshot))


def _admitting(kind: KindId, reference: Reference, snapshot: ClusterView) -> Iterator[str]:
    """Yield the cluster-scoped objects that plainly admit the caller's namespace. Others are not disclosed to it."""
    for each in snapshot.objects.list(kind):
        other = replace(reference, kind=kind, name=meta_of(each).name)
        try:
            conditions = load(other, pick(other, snapshot), snapshot).behaviour.conditions
        except ResolutionError:
            continue
        if not conditions or any(reference.caller.namespace in condition.namespaces for condition in conditions):
            yield other.name
