"""Which operator a Deployment runs: the operator in Go, its webhook, its certificate controller, or this one. Pure.

Go's chart lets users change every name, so images, labels, container names and arguments are all looked at.
"""

from __future__ import annotations

from typing import Any, Final

from eso_operator.process.flagverdicts import flags_in
from eso_tools.preflight.helmrecords import owner_of
from eso_tools.preflight.snapshot import Role, Workload
from kubebase.meta import JsonObject, meta_of

_GO_IMAGE: Final = "external-secrets/external-secrets"
_OUR_IMAGE: Final = "eso-operator"
_OUR_FLAGS: Final = frozenset({"core-namespace", "provider-namespace", "trust-domain", "service-account"})
"""Flags that only this operator has."""
_NAME_LABEL: Final = "app.kubernetes.io/name"
_NAMES: Final = {
    "external-secrets": Role.GO_OPERATOR,
    "external-secrets-webhook": Role.GO_WEBHOOK,
    "external-secrets-cert-controller": Role.GO_CERTIFICATES,
}
"""Values of the name label in Go's chart."""
_SUBCOMMANDS: Final = {"webhook": Role.GO_WEBHOOK, "certcontroller": Role.GO_CERTIFICATES}
"""The first argument selects what the image in Go runs."""


def workload_of(deployment: JsonObject) -> Workload | None:
    """Return a Deployment of one of the operators; None for every other one."""
    metadata, spec = meta_of(deployment), deployment.get("spec") or {}
    labels = metadata.labels
    for container in ((spec.get("template") or {}).get("spec") or {}).get("containers") or ():
        if (role := _role(container, labels)) is not None:
            return Workload(
                metadata.key,
                role,
                replicas=spec.get("replicas", 1),
                arguments=_words(container),
                selector=spec.get("selector") or {},
                owner=owner_of(metadata.annotations),
            )
    return None


def _role(container: JsonObject, labels: dict[str, str]) -> Role | None:
    repository = str(container.get("image", "")).partition("@")[0]
    name = repository.rpartition("/")[2].partition(":")[0]
    words = _words(container)
    flags = {flag for flag, _ in flags_in(words)}
    is_named = labels.get(_NAME_LABEL) in _NAMES or container.get("name") == "external-secrets"
    if name == _OUR_IMAGE or (is_named and flags & _OUR_FLAGS):
        return Role.OURS
    is_go = _path(repository).endswith(_GO_IMAGE)
    if not is_go and not is_named:
        return None
    subcommand = next((_SUBCOMMANDS[word] for word in words if word in _SUBCOMMANDS), None)
    return subcommand or _NAMES.get(labels.get(_NAME_LABEL, ""), Role.GO_OPERATOR)


def _path(repository: str) -> str:
    """Return an image without its tag; a colon before the last slash belongs to a port."""
    folder, slash, last = repository.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def _words(container: JsonObject) -> tuple[str, ...]:
    given: list[Any] = [*(container.get("command") or ()), *(container.get("args") or ())]
    return tuple(str(word) for word in given)
