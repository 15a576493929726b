"""coordination.k8s.io/v1: Lease."""

from __future__ import annotations

from typing import Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import ServedKind
from localkube.schema import causes
from localkube.schema.builtin.kinds import age_column, at, builtin_kind, column
from localkube.schema.builtin.parts import integer, micro_time, struct, text

_COORDINATION: Final = "io.k8s.api.coordination.v1"


def coordination_kinds() -> list[ServedKind]:
    spec = struct(
        f"{_COORDINATION}.LeaseSpec",
        "Who holds the lease, and for how long.",
        {
            "holderIdentity": text("Who holds the lease; empty if it is free."),
            "leaseDurationSeconds": integer("How long others wait after the last renewal."),
            "acquireTime": micro_time("When the holder took the lease."),
            "renewTime": micro_time("When the holder last renewed it."),
            "leaseTransitions": integer("How often the lease changed hands."),
            "preferredHolder": text("Who should take the lease next."),
            "strategy": text("How holders are chosen."),
        },
    )
    lease = builtin_kind(
        Resource("coordination.k8s.io", "v1", "leases", "Lease"),
        f"{_COORDINATION}.Lease",
        "A lock that expires.",
        {"spec": spec},
        prepare=_prepare_lease,
        columns=(column("Holder", at("spec.holderIdentity", "")), age_column()),
    )
    return [lease]


def _prepare_lease(new: JsonObject, _old: JsonObject | None) -> list[Cause]:
    spec = new.setdefault("spec", {})
    found: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        found.append(causes.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(causes.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found
