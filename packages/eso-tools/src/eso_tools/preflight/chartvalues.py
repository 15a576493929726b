"""The values of the chart of the operator in Go, and what becomes of each here. `valuecheck.py` reads it.

A path covers everything below it; the longest path that covers a value wins. A value that no path covers is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kubebase.meta import JsonObject


class Fate(Enum):
    SAME = "with the same meaning"
    DIFFERENT = "with another meaning here"
    WITHOUT_FUNCTION = "accepted without a function"


@dataclass(frozen=True, slots=True)
class Row:
    """`flag`: the value becomes this flag, and the operator's own knowledge of flags decides."""

    fate: Fate = Fate.SAME
    says: str = ""
    flag: str = ""
    quiet: bool | None = None
    """The switch position that needs no attention, if there is one."""


def _same(*paths: str) -> dict[str, Row]:
    return dict.fromkeys(paths, Row())


def _different(says: str, *, quiet: bool | None = None) -> Row:
    return Row(Fate.DIFFERENT, says, quiet=quiet)


def _idle(says: str, *, quiet: bool | None = None) -> Row:
    return Row(Fate.WITHOUT_FUNCTION, says, quiet=quiet)


_IMAGE: Final = "this operator has its own image, and each provider has one of its own"

VALUES: Final[Mapping[str, Row]] = {
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
    "leaderElectionID": Row(flag="leader-election-id"),
    "leaderElectionLeaseDuration": Row(flag="leader-election-lease-duration"),
    "leaderElectionRenewDeadline": Row(flag="leader-election-renew-deadline"),
    "leaderElectionRetryPeriod": Row(flag="leader-election-retry-period"),
    "controllerClass": Row(flag="controller-class"),
    "extendedMetricLabels": Row(flag="enable-extended-metric-labels"),
    "scopedNamespace": Row(flag="namespace"),
    **_same("scopedRBAC"),
    "processClusterStore": Row(flag="enable-cluster-store-reconciler"),
    "processClusterExternalSecret": Row(flag="enable-cluster-external-secret-reconciler"),
    "processClusterPushSecret": Row(flag="enable-cluster-push-secret-reconciler"),
    "processPushSecret": Row(flag="enable-push-secret-reconciler"),
    "processSecretStore": Row(flag="enable-secret-store-reconciler"),
    **_same("processClusterGenerator"),
    "storeRequeueInterval": Row(flag="store-requeue-interval"),
    "concurrent": Row(flag="concurrent"),
    "genericTargets.enabled": Row(flag="unsafe-allow-generic-targets"),
    **_same("genericTargets.resources"),
    "enableHTTP2": Row(flag="enable-http2", quiet=False),
    "vault.enableTokenCache": Row(flag="enable-vault-token-cache", quiet=False),
    "vault.tokenCacheSize": Row(flag="vault-token-cache-size"),
    "log.level": Row(flag="loglevel"),
    "log.timeEncoding": Row(flag="zap-time-encoding"),
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
    "metrics.listen.secure.certDir": Row(flag="metrics-cert-dir"),
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
    return row is not None and row.fate is Fate.SAME and not any(known.startswith(f"{path}.") for known in VALUES)


EXTRA_ARGS: Final = "extraArgs"
"""A map of flags: each key is one."""
SWITCHED_ON: Final = (
    "the chart in Go renders `false` and 0 as the bare flag, which switches it on; write the flag that you mean"
)
