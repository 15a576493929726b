"""The danger of taking over from Helm, and what the operator in Go leaves registered. Pure.

Go's chart renders its CRDs as templates, so its release owns them. An upgrade to a chart without them, and
`helm uninstall`, delete them, and with them every ExternalSecret and its Secret.
"""

from __future__ import annotations

from collections.abc import Iterator

from eso_tools.preflight.findings import CheckResult, Detail, Findings, Level, counted, named
from eso_tools.preflight.helmrecords import CHART, POLICY
from eso_tools.preflight.ourchart import Installation, Selector, installations
from eso_tools.preflight.snapshot import (
    DEPLOYMENTS,
    WEBHOOKS,
    Definition,
    Owner,
    Release,
    Snapshot,
    UnreadObject,
    Workload,
    WorkloadRole,
)

_GO: tuple[WorkloadRole, ...] = (WorkloadRole.GO_OPERATOR, WorkloadRole.GO_WEBHOOK, WorkloadRole.GO_CERTIFICATES)


def helm_ownership(snapshot: Snapshot) -> Findings:
    """Report releases that would delete CRDs. Only the stored manifest protects a CRD from `helm uninstall`."""
    for release in snapshot.releases:
        match release:
            case UnreadObject():
                yield from _unverified(release, snapshot)
            case Release():
                yield from _judged(release, snapshot)
    claimed = any(isinstance(each, UnreadObject) or each.definitions for each in snapshot.releases)
    if snapshot.definitions and not claimed and not any(each.owner for each in snapshot.definitions):
        count = counted(len(snapshot.definitions), "CRD")
        yield CheckResult(Level.FACT, f"{count}, none of which belongs to a Helm release")


def _judged(release: Release, snapshot: Snapshot) -> Findings:
    loose = sorted(name for name, is_retained in release.definitions.items() if not is_retained)
    if not loose:
        if release.definitions:
            count = counted(len(release.definitions), "CRD")
            yield CheckResult(
                Level.FACT, f"Helm release {release.owner} ({release.chart}) keeps its {count} when it goes"
            )
        return
    text = (
        f"Helm release {release.owner} ({release.chart}) would delete {counted(len(loose), 'CRD')}, and with them all"
        " their objects and Secrets: at `helm uninstall`, and at an upgrade to a chart without these CRDs"
    )
    if any(each.is_retained for each in _owned(release.owner, snapshot)):
        text += f"; the annotation {POLICY} of the live CRDs does not help, because Helm reads its stored manifest"
    advice = f"let the release keep them, with the chart and version that are installed: {_keep(release)}"
    yield CheckResult(Level.BLOCKER, text, named(loose), advice)


def _unverified(release: UnreadObject, snapshot: Snapshot) -> Findings:
    owned = _owned(release.owner, snapshot)
    which = f"owns {counted(len(owned), 'CRD')}" if owned else "may own the CRDs"
    text = (
        f"Helm release {release.owner} {which}, and it could not be checked whether Helm would delete them with all"
        f" their objects and Secrets: {release.why}"
    )
    look = f"`helm get manifest {release.owner.name} -n {release.owner.namespace}` must show {POLICY}: keep for each"
    advice = f"run this command as a user who may read that Secret, or look yourself: {look}"
    level = Level.BLOCKER if owned else Level.WARNING
    yield CheckResult(level, text, named([each.name for each in owned]), advice)


def _owned(owner: Owner, snapshot: Snapshot) -> list[Definition]:
    return [each for each in snapshot.definitions if each.owner == owner]


def _keep(release: Release) -> str:
    name, namespace = release.owner.name, release.owner.namespace
    policy = POLICY.replace(".", "\\.")
    above = f"{release.part}." if release.part and not release.chart.startswith(f"{CHART}-") else ""
    return (
        f"helm upgrade {name} GO-CHART --version {release.version or 'INSTALLED'} -n {namespace} --reuse-values"
        f" --set-string '{above}crds.annotations.{policy}=keep'"
    )


def operators(snapshot: Snapshot) -> Findings:
    """Report operators that run: never both on the same objects."""
    go, ours = snapshot.of(WorkloadRole.GO_OPERATOR), snapshot.of(WorkloadRole.OURS)
    if go and ours:
        yield CheckResult(
            Level.BLOCKER,
            "both operators run, and would overwrite each other's Secrets and statuses",
            _listed([*go, *ours]),
            _stop(go),
        )
    elif go:
        text = "the operator in Go runs: it must stop before this one starts"
        advice = f"before you start this operator: {_stop(snapshot.of(*_GO))}"
        if release := next((each.owner for each in go if each.owner), None):
            advice += (
                f"; or upgrade Helm release {release} to our chart with --set strategy.type=Recreate, which stops it"
            )
        yield CheckResult(Level.WARNING, text, _listed(snapshot.of(*_GO)), advice)
    elif ours:
        yield CheckResult(Level.FACT, "this operator runs, and the one in Go does not", _listed(ours))
    elif snapshot.sees(DEPLOYMENTS):
        yield CheckResult(Level.FACT, "no operator runs")


def selectors(snapshot: Snapshot) -> Findings:
    """Compare the selector of the Deployment of the operator in Go with the one that our chart renders for its release.

    The selector of a Deployment is immutable. If they are equal, Helm replaces the Deployment in place.
    """
    for installation in installations(snapshot):
        for each in snapshot.workloads:
            if each.role is not WorkloadRole.GO_OPERATOR:
                continue
            if installation.values is None:
                if each.owner == installation.release:
                    yield _uncompared(each, installation)
            elif each.key == installation.deployment:
                yield _compared(each, installation)


def _compared(workload: Workload, installation: Installation) -> CheckResult:
    if workload.selector == installation.selector:
        return CheckResult(Level.FACT, f"{workload} has the selector of our chart: Helm can upgrade it in place")
    text = (
        f"{workload}: Helm cannot upgrade it in place, because our chart has another selector for {installation}, and a"
        " selector cannot be changed"
    )
    advice = (
        "delete this Deployment right before the upgrade (the operator in Go stops, its Secrets stay):"
        f" kubectl -n {workload.key.namespace} delete deployment {workload.key.name}"
    )
    return CheckResult(Level.BLOCKER, text, tuple(_differences(workload.selector, installation.selector)), advice)


def _differences(today: Selector, ours: Selector) -> Iterator[Detail]:
    now, then = today.get("matchLabels") or {}, ours.get("matchLabels") or {}
    for label in sorted({*now, *then}):
        if now.get(label) != then.get(label):
            yield Detail(
                label, text=f"{now.get(label) or 'not set'} today, {then.get(label) or 'not set'} in our chart"
            )
    if today.get("matchExpressions"):
        yield Detail("matchExpressions", text="set today, not set in our chart")


def _uncompared(workload: Workload, installation: Installation) -> CheckResult:
    text = (
        f"{workload}: its selector could not be compared with that of our chart, because the values of {installation}"
        " could not be read"
    )
    name, namespace = installation.release.name, installation.release.namespace
    advice = f"run this command with --values: helm get values {name} -n {namespace} -o yaml > values.yaml"
    return CheckResult(Level.WARNING, text, next=advice)


def webhooks(snapshot: Snapshot) -> Findings:
    """Report validating webhooks: without their server, the API server refuses every write of the kinds they judge.

    A server that may not be looked at counts as running: `permissions` reports it.
    """
    if not snapshot.webhooks:
        if snapshot.sees(WEBHOOKS):
            yield CheckResult(Level.FACT, "no validating webhook of the operator in Go is registered")
        return
    serves = bool(snapshot.of(WorkloadRole.GO_WEBHOOK)) or not snapshot.sees(DEPLOYMENTS)
    names = [each.name for each in snapshot.webhooks]
    text = f"{counted(len(names), 'validating webhook')} of the operator in Go registered"
    text += "; without their server" if serves else ", and their server does not run:"
    text += " the API server refuses every write of the objects that they check"
    delete = f"kubectl delete validatingwebhookconfigurations {' '.join(names)}"
    owners = {each.owner for each in snapshot.webhooks}
    advice = f"after you stop their server: {delete}" if serves else delete
    if serves and None not in owners:
        releases = ", ".join(sorted(map(str, owners)))
        advice = f"an upgrade of Helm release {releases} to our chart removes them; otherwise, {advice}"
    details = tuple(Detail(each.name, text=f"served by {', '.join(each.services)}") for each in snapshot.webhooks)
    yield CheckResult(Level.WARNING if serves else Level.BLOCKER, text, details, advice)


def _listed(workloads: list[Workload]) -> tuple[Detail, ...]:
    return tuple(
        Detail(str(each), text=f"{each.role.value}, {counted(each.replicas, 'replica')}") for each in workloads
    )


def _stop(workloads: list[Workload]) -> str:
    """Return one command for each namespace."""
    names: dict[str, list[str]] = {}
    for each in workloads:
        names.setdefault(each.key.namespace, []).append(each.key.name)
    return "; ".join(
        f"kubectl -n {namespace} scale deployment --replicas=0 {' '.join(its)}" for namespace, its in names.items()
    )
