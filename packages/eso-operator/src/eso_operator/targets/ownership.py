"""Which object controls a target, by its owner references. Pure."""

from __future__ import annotations

from eso_api.externalsecret import ExternalSecret
from eso_api.references import CORE_GROUP
from eso_operator.targets.changes import Refusal, Refuse
from eso_operator.targets.marks import OWNER, controller_reference_of
from kubebase.meta import ObjectMeta, OwnerReference
from kuberun.ownership import controller_of


def ownership_refusal(es: ExternalSecret, metadata: ObjectMeta) -> Refuse | None:
    """Refuse a target that another object controls. Group and kind of the reference count, not its version."""
    controller = controller_of(metadata.owner_references)
    if controller is None or _is(controller, es):
        return None
    by = f"{controller.kind} {controller.name}"
    if _is_external_secret(controller):
        return Refuse(Refusal.OWNED_BY_ANOTHER, f"{by}; choose another spec.target.name, or delete that ExternalSecret")
    if es.spec.target.creation_policy != OWNER:
        return None
    remedy = "choose another spec.target.name, or set spec.target.creationPolicy to Orphan or Merge to write into it"
    return Refuse(Refusal.CONTROLLED, f"{by}; {remedy}")


def owners_after(es: ExternalSecret, metadata: ObjectMeta) -> tuple[OwnerReference, ...]:
    """Return the owner references after the change: ours only under Owner, all others unchanged."""
    if es.spec.target.creation_policy != OWNER:
        return tuple(reference for reference in metadata.owner_references if not _is(reference, es))
    ours = controller_reference_of(es)
    if any(_is(reference, es) for reference in metadata.owner_references):
        return tuple(ours if _is(reference, es) else reference for reference in metadata.owner_references)
    return (*metadata.owner_references, ours)


def _is(reference: OwnerReference, es: ExternalSecret) -> bool:
    return _is_external_secret(reference) and reference.name == es.metadata.name


def _is_external_secret(reference: OwnerReference) -> bool:
    return reference.kind == "ExternalSecret" and reference.api_version.partition("/")[0] == CORE_GROUP
