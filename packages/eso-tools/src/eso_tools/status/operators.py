"""Whether an operator works, as Leases say: of its leader, of its shards, or its heartbeat without an election.

    Lease with MEMBER_LABEL, or of the default name -> renewed within its duration -> its operator works

A wall clock decides, because this process knows no earlier version of the Lease. Leases of an operator that was
uninstalled may remain, so one operator that works is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from eso_api.crd import MEMBER_LABEL
from kubebase.clock import parse_rfc3339, rfc3339
from kubebase.meta import JsonObject, ObjectKey, Resource, raw
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotFound
from kuberun.requests import Selection

DEFAULT_LEASE: Final = "external-secrets-controller"
DEFAULT_NAMESPACE: Final = "external-secrets"
_MAX_NOTES: Final = 5
_LEASES: Final = raw(Resource("coordination.k8s.io", "v1", "leases", "Lease"))
_MEMBER: Final = re.compile(r"-member-(\d+)-[0-9a-f]+$")
_SHARD: Final = re.compile(r"-shard-(\d+)$")


class OperatorState(Enum):
    WORKS = "works"
    ABSENT = "absent"
    """No Lease is held: nothing is refreshed, and every status is as old as that."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OperatorLease:
    """The known parts of a Lease."""

    key: ObjectKey
    election: str
    """The name of the election that the Lease belongs to."""
    holder: str = ""
    renewed: datetime | None = None
    duration: timedelta = timedelta()

    def is_held(self, now: datetime) -> bool:
        return bool(self.holder) and self.renewed is not None and now - self.renewed <= self.duration


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators of a cluster at one moment."""

    state: OperatorState
    since: str = ""
    """When the last Lease was renewed, if none is held."""
    why: str = ""
    """A sentence about an operator that is absent or unknown."""
    unheld: tuple[str, ...] = ()
    """A sentence about each shard that none of the working replicas holds."""
    notes: tuple[str, ...] = ()
    """A sentence about each Lease that is not renewed, beside others that are."""

    @property
    def all_work(self) -> bool:
        """Return whether no part of the objects is known to be without an operator."""
        return self.state is not OperatorState.ABSENT and not self.unheld


NOT_READ: Final = Operators(OperatorState.UNKNOWN)


async def read_operators(client: Client, now: datetime, namespace: str = "", *, core_namespace: str = "") -> Operators:
    """Read the Leases of the core namespace if it is known, else of all namespaces.

    If the latter is forbidden, those of the default namespace and of `namespace` are read.
    """
    try:
        return operators_of(await _listed(client, core_namespace), now)
    except Forbidden:
        namespaces = list(dict.fromkeys(each for each in (DEFAULT_NAMESPACE, namespace) if each))
    except ApiError as problem:
        return Operators(OperatorState.UNKNOWN, why=f"Leases cannot be read: {problem.message}")
    found: list[OperatorLease] = []
    for candidate in namespaces:
        try:
            found += await _listed(client, candidate)
        except (ApiError, OSError):
            continue
    if found:
        return operators_of(found, now)
    return Operators(OperatorState.UNKNOWN, why="you may not list Leases in all namespaces")


def operators_of(leases: Sequence[OperatorLease], now: datetime) -> Operators:
    """Judge the Leases. Pure."""
    if not leases:
        return Operators(OperatorState.UNKNOWN, why="there is no Lease of an operator")
    held = [lease for lease in leases if lease.is_held(now)]
    if not held:
        last = max(leases, key=lambda lease: lease.renewed or datetime.min.replace(tzinfo=now.tzinfo))
        since = rfc3339(last.renewed) if last.renewed is not None else ""
        return Operators(OperatorState.ABSENT, since, f"no operator holds Lease {last.key}")
    working = {(lease.key.namespace, lease.election) for lease in held}
    left = [each for each in leases if each.holder and (each.key.namespace, each.election) not in working]
    return Operators(
        OperatorState.WORKS, unheld=tuple(_unheld_shards(leases, held)), notes=tuple(_leftovers(left))[:_MAX_NOTES]
    )


def _unheld_shards(leases: Iterable[OperatorLease], held: Sequence[OperatorLease]) -> Iterator[str]:
    """Yield the shards of working replicas that none of them holds. Names of members say how many shards there are."""
    for lease in leases:
        shard = _SHARD.search(lease.key.name)
        if shard is None or lease in held:
            continue
        members = (_MEMBER.search(each.key.name) for each in held if each.election == lease.election)
        if any(member is not None and int(shard[1]) < int(member[1]) for member in members):
            yield f"no operator holds Lease {lease.key}: the objects of this shard are not refreshed"


def _leftovers(leases: Iterable[OperatorLease]) -> Iterator[str]:
    for lease in leases:
        at = "never" if lease.renewed is None else f"last at {rfc3339(lease.renewed)}"
        yield f"Lease {lease.key} is not renewed ({at}); delete it if its operator was uninstalled"


async def _listed(client: Client, namespace: str) -> list[OperatorLease]:
    selections = (
        Selection(namespace, label_selector=MEMBER_LABEL),
        # An operator in Go has no label on its Lease.
        Selection(namespace, field_selector=f"metadata.name={DEFAULT_LEASE}"),
    )
    found: dict[ObjectKey, OperatorLease] = {}
    for selection in selections:
        try:
            page = await client.list(_LEASES, selection)
        except NotFound:
            continue
        for document in page.items:
            if isinstance(document, dict):
                lease = _lease_of(document)
                found[lease.key] = lease
    return list(found.values())


def _lease_of(document: JsonObject) -> OperatorLease:
    metadata: dict[str, Any] = document.get("metadata") or {}
    spec: dict[str, Any] = document.get("spec") or {}
    key = ObjectKey(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
    election = (metadata.get("labels") or {}).get(MEMBER_LABEL) or key.name
    try:
        renewed = parse_rfc3339(str(spec.get("renewTime") or ""))
        duration = timedelta(seconds=float(spec.get("leaseDurationSeconds") or 0))
    except (ValueError, TypeError, OverflowError):
        return OperatorLease(key, election)
    if renewed.tzinfo is None:
        return OperatorLease(key, election)
    return OperatorLease(key, election, str(spec.get("holderIdentity") or ""), renewed, duration)
