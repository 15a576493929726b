"""The values and flags of the operator in Go, and what becomes of each here. Pure.

`VALUES` is the table of chart values. A path covers everything below it; the longest path that covers a value wins. A
value that no path covers is unknown. `eso_operator/flags.py` knows the flags. Values come from
`--values`, or else from the records of the Helm releases. Only their names are printed: a value may be a password.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from eso_operator.flags import FlagVerdict, Verdict, contradiction, examine, flags_in
from eso_tools.preflight.findings import CheckResult, Detail, Findings, Level, counted
from eso_tools.preflight.snapshot import Release, Snapshot, Workload, WorkloadRole
from kubebase.meta import JsonObject


class Effect(Enum):
    SAME = "with the same meaning"
    DIFFERENT = "with another meaning here"
    WITHOUT_FUNCTION = "accepted without a function"


@dataclass(frozen=True, slots=True)
class ValueRow:
    """`flag`: the value becomes this flag, and the operator's own knowledge of flags decides."""

    effect: Effect = Effect.SAME
    text: str = ""
    flag: str = ""
    quiet: bool | None = None
    """The switch position that needs no attention, if there is one."""


def _same(*paths: str) -> dict[str, ValueRow]:
    return dict.fromkeys(paths, ValueRow())


def _different(text: str, *, quiet: bool | None = None) -> ValueRow:
    return ValueRow(Effect.DIFFERENT, text, quiet=quiet)


def _idle(text: str, *, quiet: bool | None = None) -> ValueRow:
    return ValueRow(Effect.WITHOUT_FUNCTION, text, quiet=quiet)


_IMAGE: Final = "this operator has its own image, and each provider has one of its own"

VALUES: Final[Mapping[str, ValueRow]] = {
    # names, image, placement
    **_same("nameOverride", "fullnameOverride", "namespaceOverride", "commonLabels", "image.tag", "image.pullPolicy"),
    **_same("imagePullSecrets", "global", "replicaCount", "revisionHistoryLimit", "createOperator", "enabled"),
    "image.repository": _different(_IMAGE),
    "image.flavour": _idle("the image has one flavour; FIPS is not offered"),
    "global.repository": _different(f"one image cannot serve the operator and its providers: {_IMAGE}"),
    "bitwarden-sdk-server": _different(
        "the server is not part of this project: install its own chart before you upgrade, which would remove it",
        quiet=False,
    ),
    # CRDs
    **_same("installCRDs", "crds.annotations", "crds.createClusterExternalSecret", "crds.createClusterSecretStore"),
    **_same("crds.createClusterPushSecret", "crds.createPushSecret", "crds.createClusterGenerator"),
    "crds.createSecretStore": _idle("the operator always needs this CRD", quiet=True),
    "crds.conversion": _idle("v1 and v1beta1 have one schema, so objects are not converted", quiet=False),
    "crds.unsafeServeV1Beta1": _different("v1beta1 is always served, as a deprecated version"),
    # the operator
    "leaderElect": _different(
        "leader election is on by default here, and needed with more than one replica", quiet=True
    ),
    "leaderElectionID": ValueRow(flag="leader-election-id"),
    "leaderElectionLeaseDuration": ValueRow(flag="leader-election-lease-duration"),
    "leaderElectionRenewDeadline": ValueRow(flag="leader-election-renew-deadline"),
    "leaderElectionRetryPeriod": ValueRow(flag="leader-election-retry-period"),
    "controllerClass": ValueRow(flag="controller-class"),
    "extendedMetricLabels": ValueRow(flag="enable-extended-metric-labels"),
    "scopedNamespace": ValueRow(flag="namespace"),
    **_same("scopedRBAC"),
    "processClusterStore": ValueRow(flag="enable-cluster-store-reconciler"),
    "processClusterExternalSecret": ValueRow(flag="enable-cluster-external-secret-reconciler"),
    "processClusterPushSecret": ValueRow(flag="enable-cluster-push-secret-reconciler"),
    "processPushSecret": ValueRow(flag="enable-push-secret-reconciler"),
    "processSecretStore": ValueRow(flag="enable-secret-store-reconciler"),
    **_same("processClusterGenerator"),
    "storeRequeueInterval": ValueRow(flag="store-requeue-interval"),
    "concurrent": ValueRow(flag="concurrent"),
    "genericTargets.enabled": ValueRow(flag="unsafe-allow-generic-targets"),
    **_same("genericTargets.resources"),
    "enableHTTP2": ValueRow(flag="enable-http2", quiet=False),
    "vault.enableTokenCache": ValueRow(flag="enable-vault-token-cache", quiet=False),
    "vault.tokenCacheSize": ValueRow(flag="vault-token-cache-size"),
    "log.level": ValueRow(flag="loglevel"),
    "log.timeEncoding": ValueRow(flag="zap-time-encoding"),
    # service account and rights
    **_same("serviceAccount", "rbac", "openshiftFinalizers", "systemAuthDelegator"),
    "serviceAccount.annotations": _different(
        "the operator calls no cloud: give the identity of a cloud to the service account of its provider, and let the"
        " cloud trust that account"
    ),
    # pods
    **_same("podAnnotations", "podLabels", "deploymentAnnotations", "strategy", "podSecurityContext"),
    **_same("securityContext", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"),
    **_same("priorityClassName", "schedulerName", "runtimeClassName", "dnsPolicy", "extraContainers"),
    **_same("extraInitContainers", "hostNetwork", "hostUsers", "podSpecExtra", "service", "podDisruptionBudget"),
    **dict.fromkeys(
        ("extraEnv", "extraVolumes", "extraVolumeMounts", "hostAliases", "dnsConfig"),
        _different("the operator calls no backend: settings for backends belong to the pods of the providers"),
    ),
    "resources": _different("this operator needs more memory than the one in Go: keep the limit at 256Mi or more"),
    "livenessProbe": _different("probes are on by default"),
    "readinessProbe": _different("probes are on by default, and /readyz waits until the operator can work"),
    "networkPolicy": _different(
        "the operator must reach its providers, and the providers their backends: allow both", quiet=False
    ),
    # metrics and the rest
    **_same("metrics", "serviceMonitor", "extraObjects"),
    "metrics.listen.secure.certDir": ValueRow(flag="metrics-cert-dir"),
    "grafanaDashboard": _different("the dashboard is another one; panels of the webhook have no data"),
    "webhook": _idle("this operator has no webhook: its rules are in the CRDs"),
    "certController": _idle("this operator has no certificate controller"),
}

Leaf = tuple[str, Any]


def leaves(values: JsonObject, above: str = "") -> Iterator[Leaf]:
    """Yield the values that say something: neither empty nor null."""
    for name, value in values.items():
        path = f"{above}.{name}" if above else name
        if isinstance(value, dict) and not _is_one_value(path):
            yield from leaves(value, path)
        elif value not in (None, "", [], {}):
            yield path, value


def row_of(path: str) -> str | None:
    """Return the longest path of the table that covers a value."""
    steps = path.split(".")
    return next((known for end in range(len(steps), 0, -1) if (known := ".".join(steps[:end])) in VALUES), None)


def flags_set_by(values: JsonObject) -> frozenset[str]:
    """Return the flags that these values set."""
    extra = values.get(EXTRA_ARGS)
    rows = [row_of(path) for path, _ in leaves(values)]
    return frozenset({VALUES[row].flag for row in rows if row} | {*(extra if isinstance(extra, dict) else ())})


def _is_one_value(path: str) -> bool:
    """Return whether the table has the whole map at this path in one row that needs no attention."""
    row = VALUES.get(path)
    return row is not None and row.effect is Effect.SAME and not any(known.startswith(f"{path}.") for known in VALUES)


EXTRA_ARGS: Final = "extraArgs"
"""A map of flags: each key is one."""
SWITCHED_ON: Final = (
    "the chart in Go renders `false` and 0 as the bare flag, which switches it on; write the flag that you mean"
)


SENTENCES: Final = (
    (
        Verdict.REFUSED,
        "with a value that this operator refuses at its start",
        "change the value, or leave the flag out",
    ),
    (Verdict.UNKNOWN, "unknown to this operator, which refuses it at its start", "leave the flag out"),
    (Verdict.DIFFERENT, "with another meaning here", "check that the effect is still what you want"),
    (Verdict.WITHOUT_EFFECT, "accepted without a function", "leave the flag out, or keep it: it is only logged"),
)
_STOPPING: Final = frozenset({Verdict.REFUSED, Verdict.UNKNOWN})


def flags(snapshot: Snapshot) -> Findings:
    """Report flags of the operator in Go that mean something else here, or nothing.

    `chart_values` reports those that chart values set.
    """
    for workload in (each for each in snapshot.workloads if each.role is WorkloadRole.GO_OPERATOR):
        set_by_values = flags_set_by(_values(workload, snapshot))
        given = [(name, value) for name, value in flags_in(workload.arguments) if name not in set_by_values]
        judged = [examine(name, value) for name, value in given]
        yield from findings_for(judged, str(workload))
        if not any(each.verdict in _STOPPING for each in judged) and (problem := contradiction(workload.arguments)):
            text = f"{workload}: flags that this operator refuses together: {problem}"
            yield CheckResult(Level.WARNING, text, next="change one of these flags")
        same = sum(each.verdict is Verdict.ACCEPTED for each in judged)
        if same:
            yield CheckResult(Level.FACT, f"{workload}: {counted(same, 'flag')} with the same meaning here")


def _values(workload: Workload, snapshot: Snapshot) -> JsonObject:
    """Return the chart values that `chart_values` judges for this Deployment."""
    if snapshot.values is not None:
        return snapshot.values
    releases = [each for each in snapshot.releases if isinstance(each, Release) and each.owner == workload.owner]
    return releases[0].values if releases else {}


def findings_for(judged: Iterable[FlagVerdict], origin: str) -> Findings:
    """Yield one finding for each verdict but `ACCEPTED`."""
    by_verdict: dict[Verdict, list[FlagVerdict]] = {}
    for each in judged:
        by_verdict.setdefault(each.verdict, []).append(each)
    for verdict, text, advice in SENTENCES:
        if chosen := by_verdict.get(verdict):
            details = tuple(Detail(each.flag, text=each.reason) for each in chosen)
            yield CheckResult(Level.WARNING, f"{origin}: {counted(len(chosen), 'flag')} {text}", details, advice)


_ADVICE: Final = {
    Effect.DIFFERENT: "read each sentence, and write what you need into the values of our charts",
    Effect.WITHOUT_FUNCTION: "leave them out",
}


def chart_values(snapshot: Snapshot) -> Findings:
    """Report values that mean something else here, have no function, or are unknown."""
    if snapshot.values is not None:
        yield from judge_values(snapshot.values, "--values")
        return
    owners = {each.owner for each in snapshot.workloads if each.role is WorkloadRole.GO_OPERATOR}
    for release in snapshot.releases:
        if isinstance(release, Release) and release.owner in owners:
            yield from judge_values(release.values, f"Helm release {release.owner}")


def judge_values(values: JsonObject, origin: str) -> Findings:
    """Judge one tree of values."""
    by_effect: dict[Effect, dict[str, list[str]]] = {}
    unknown: list[str] = []
    flags: list[FlagVerdict] = list(_extra_flags(values.get(EXTRA_ARGS)))
    for path, value in leaves({name: value for name, value in values.items() if name != EXTRA_ARGS}):
        if (covering := row_of(path)) is None:
            unknown.append(path)
            continue
        row = VALUES[covering]
        is_quiet = row.quiet is not None and value is row.quiet
        if row.flag and not is_quiet:
            judged = examine(row.flag, _flag_text(value))
            flags.append(FlagVerdict(f"{path} ({judged.flag})", judged.verdict, judged.reason))
        else:
            effect = Effect.SAME if is_quiet else row.effect
            by_effect.setdefault(effect, {}).setdefault(covering, []).append(path)
    for effect in (Effect.DIFFERENT, Effect.WITHOUT_FUNCTION):
        if rows := by_effect.get(effect):
            details = tuple(
                Detail(_shown(paths, covering), text=VALUES[covering].text) for covering, paths in rows.items()
            )
            count = counted(sum(map(len, rows.values())), "chart value")
            yield CheckResult(Level.WARNING, f"{origin}: {count} {effect.value}", details, _ADVICE[effect])
    yield from findings_for(flags, origin)
    if unknown:
        details = tuple(Detail(path) for path in sorted(unknown))
        text = f"{origin}: {counted(len(unknown), 'chart value')} that neither chart knows"
        yield CheckResult(Level.WARNING, text, details, "check the spelling, or leave them out")
    same = sum(map(len, by_effect.get(Effect.SAME, {}).values())) + sum(
        each.verdict is Verdict.ACCEPTED for each in flags
    )
    yield CheckResult(Level.FACT, f"{origin}: {counted(same, 'chart value')} {Effect.SAME.value}")


def _extra_flags(extra: Any) -> Iterator[FlagVerdict]:
    if not isinstance(extra, dict):
        return
    for name, value in extra.items():
        flag = f"{EXTRA_ARGS}.{name}"
        if value == 0:  # also False
            yield FlagVerdict(flag, Verdict.DIFFERENT, SWITCHED_ON)
        else:
            judged = examine(name, None if value in (None, "") else _flag_text(value))
            yield FlagVerdict(flag, judged.verdict, judged.reason)


def _flag_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(paths: list[str], covering: str) -> str:
    return paths[0] if len(paths) == 1 else f"{covering} ({counted(len(paths), 'value')})"
