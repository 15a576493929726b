"""Finds the controller class of a store or generator, which says which operator handles it."""

from __future__ import annotations

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.controllers.externalsecret.gather import ControllerOf
from eso_operator.stores.inputs import ClusterView, Scope
from eso_operator.stores.loading import controller_named
from eso_operator.stores.reference import normalise, pick
from eso_operator.stores.resolved import ResolutionError
from eso_wire.values import ObjectRef
from kubebase.meta import ObjectKey


def controller_classes(snapshot: ClusterView) -> ControllerOf:
    """Return a function that looks the class up in a live view of the cluster."""

    def controller_of(ref: StoreRef | GeneratorRef, namespace: str) -> str | None:
        try:
            reference = normalise(ref, ObjectRef(namespace=namespace))
            picked = pick(reference, snapshot)
        except ResolutionError:
            return None
        where = "" if picked.scope is Scope.CLUSTER else namespace
        found = snapshot.objects.get(picked.kind, ObjectKey(where, reference.name))
        return None if found is None else controller_named(picked, found)

    return controller_of
