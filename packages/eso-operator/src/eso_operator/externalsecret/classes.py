"""Which operator a store or generator is for: the controller class it names."""

from __future__ import annotations

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.externalsecret.gather import ControllerOf
from eso_operator.stores.loading import controller_named
from eso_operator.stores.reference import normalise, pick
from eso_operator.stores.snapshot import Scope, Snapshot
from eso_operator.stores.target import ResolutionError
from eso_wire.values import ObjectRef
from kuberun.meta import ObjectKey


def controller_classes(snapshot: Snapshot) -> ControllerOf:
    """Looked up in a live view of the cluster."""

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
