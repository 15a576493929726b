"""The danger of taking over from Helm, and what the operator in Go leaves registered. Pure.

Go's chart renders its CRDs as templates, so its release owns them. An upgrade to a chart without them, and
`helm uninstall`, delete them, and with them every ExternalSecret and its Secret.
"""

from __future__ import annotations

from eso_cli.preflight.findings import Detail, Finding, Findings, Level, counted, named
from eso_cli.preflight.helmrecords import POLICY
from eso_cli.preflight.snapshot import (
    DEPLOYMENTS,
    WEBHOOKS,
    Definition,
    Owner,
    Release,
    Role,
    Snapshot,
    Unread,
    Workload,
)

_GO: tuple[Role, ...] = (Role.GO_OPERATOR, Role.GO_WEBHOOK, Role.GO_CERTIFICATES)


def helm_ownership(snapshot: Snapshot) -> Findings:
    """Report releases that would delete CRDs. Only the stored manifest protects a CRD from `helm uninstall`."""
    for release in snapshot.releases:
        match release:
            case Unread():
                yield from _unverified(release, snapshot)
            case Release():
                yield from _judged(release, snapshot)
    claimed = any(isinstance(each, Unread) or each.definitions for each in snapshot.releases)
    if snapshot.definitions and not claimed and not any(each.owner for each in snapshot.definitions):
        count = counted(len(snapshot.definitions), "CRD")
        yield Finding(Level.FACT, f"{count}, none of which belongs to a Helm release")


def _judged(release: Release, snapshot: Snapshot) -> Findings:
    loose = sorted(name for name, kept in release.definitions.items() if not kept)
    if not loose:
        if release.definitions:
            count = counted(len(release.definitions), "CRD")
            yield Finding(Level.FACT, f"Helm release {release.owner} ({release.chart}) keeps its {count} when it goes")
        return
    says = (
        f"Helm release {release.owner} ({release.chart}) would delete {counted(len(loose), 'CRD')}, and with them all"
        " their objects and Secrets: at `helm uninstall`, and at an upgrade to a chart without these CRDs"
    )
    if any(each.kept for each in _owned(release.owner, snapshot)):
        says += f"; the annotation {POLICY} of the live CRDs does not help, because Helm reads its stored manifest"
    yield Finding(Level.BLOCKER, says, named(loose), f"first write it into the release: {_keep(release.owner)}")


def _unverified(release: Unread, snapshot: Snapshot) -> Findings:
    owned = _owned(release.owner, snapshot)
    which = f"owns {counted(len(owned), 'CRD')}" if owned else "may own the CRDs"
    says = (
        f"Helm release {release.owner} {which}, and it could not be checked whether Helm would delete them with all"
        f" their objects and Secrets: {release.why}"
    )
    look = f"`helm get manifest {release.owner.name} -n {release.owner.namespace}` must show {POLICY}: keep for each"
    advice = f"run this command as a user who may read that Secret, or look yourself: {look}"
    level = Level.BLOCKER if owned else Level.WARNING
    yield Finding(level, says, named([each.name for each in owned]), advice)


def _owned(owner: Owner, snapshot: Snapshot) -> list[Definition]:
    return [each for each in snapshot.definitions if each.owner == owner]


def _keep(owner: Owner) -> str:
    policy = POLICY.replace(".", "\\.")
    return (
        f"helm upgrade {owner.name} GO-CHART --version THE-SAME -n {owner.namespace} --reuse-values"
        f" --set-string 'crds.annotations.{policy}=keep'"
    )


def operators(snapshot: Snapshot) -> Findings:
    """Report operators that run: never both on the same objects."""
    go, ours = snapshot.of(Role.GO_OPERATOR), snapshot.of(Role.OURS)
    if go and ours:
        yield Finding(
            Level.BLOCKER,
            "both operators run, and would overwrite each other's Secrets and statuses",
            _listed([*go, *ours]),
            _stop(go),
        )
    elif go:
        says = "the operator in Go runs: stop it before you start this one"
        yield Finding(Level.WARNING, says, _listed(snapshot.of(*_GO)), _stop(snapshot.of(*_GO)))
    elif ours:
        yield Finding(Level.FACT, "this operator runs, and the one in Go does not", _listed(ours))
    elif snapshot.sees(DEPLOYMENTS):
        yield Finding(Level.FACT, "no operator runs")


def selectors(snapshot: Snapshot) -> Findings:
    """Report Deployments that a chart cannot replace in place unless it selects pods by the same labels."""
    for each in snapshot.workloads:
        if each.role is Role.GO_OPERATOR and each.selector:
            says = f"{each} selects its pods by {', '.join(each.selector)}, and a selector cannot be changed"
            advice = (
                "delete this Deployment (only its pods go) before you install ours under the same name:"
                f" kubectl -n {each.key.namespace} delete deployment {each.key.name}"
            )
            yield Finding(Level.WARNING, says, next=advice)


def webhooks(snapshot: Snapshot) -> Findings:
    """Report validating webhooks and conversion webhooks: without their server, writes and reads fail.

    A server that may not be looked at counts as running: `permissions` reports it.
    """
    serves = bool(snapshot.of(Role.GO_WEBHOOK)) or not snapshot.sees(DEPLOYMENTS)
    level = Level.WARNING if serves else Level.BLOCKER
    if snapshot.webhooks:
        names = [each.name for each in snapshot.webhooks]
        says = f"{counted(len(names), 'validating webhook')} of the operator in Go registered"
        says += "; without its server every write is refused" if serves else " without a server: every write is refused"
        advice = f"after you stop its server: kubectl delete validatingwebhookconfigurations {' '.join(names)}"
        details = tuple(Detail(each.name, says=f"served by {', '.join(each.services)}") for each in snapshot.webhooks)
        yield Finding(level, says, details, advice)
    if converted := [each for each in snapshot.definitions if each.conversion]:
        says = f"{counted(len(converted), 'CRD')} with a conversion webhook"
        says += "; without its server other versions cannot be read" if serves else ", whose server does not run"
        details = tuple(Detail(each.name, says=f"served by {each.conversion}") for each in converted)
        advice = "replace the CRDs: eso crds > crds.yaml; kubectl replace -f crds.yaml (apply would keep the webhooks)"
        yield Finding(level, says, details, advice)
    if snapshot.sees(WEBHOOKS) and not snapshot.webhooks and not converted:
        yield Finding(Level.FACT, "no webhook of the operator in Go is registered")


def _listed(workloads: list[Workload]) -> tuple[Detail, ...]:
    return tuple(
        Detail(str(each), says=f"{each.role.value}, {counted(each.replicas, 'replica')}") for each in workloads
    )


def _stop(workloads: list[Workload]) -> str:
    return "; ".join(
        f"kubectl -n {each.key.namespace} scale deployment {each.key.name} --replicas=0" for each in workloads
    )
