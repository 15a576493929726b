"""Which stores and generators use the identity of the provider's own process. Pure.

The operator in Go lets every store use the role, token or machine identity of its pod. Here it serves cluster-scoped
objects, unless the administrator opens it, and proofs of it go only to listed servers (`eso_sdk.processidentity`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from eso_tools.preflight.findings import CheckResult, Detail, Findings, Level, counted
from eso_tools.preflight.snapshot import Snapshot, Stored

Block = Mapping[str, Any]


class Use(NamedTuple):
    """A use of the identity of a provider."""

    provider: str
    field: str
    server: str = ""
    """The server that receives the proof, if the spec names it."""


def process_identities(snapshot: Snapshot) -> Findings:
    """Report objects that need a setting of the administrator to work as they do with the operator in Go."""
    found = [(stored, use) for stored in snapshot.objects for use in uses_of(stored)]
    for provider in sorted({use.provider for _, use in found}):
        uses = [(stored, use) for stored, use in found if use.provider == provider]
        yield from _namespaced(snapshot, provider, [each for each in uses if each[0].key.namespace])
        yield from _servers(snapshot, provider, [each for each in uses if each[1].server])


def _namespaced(snapshot: Snapshot, provider: str, uses: list[tuple[Stored, Use]]) -> Findings:
    if not uses or _setting(snapshot, provider).get("usedBy") == "namespaced":
        return
    yield CheckResult(
        Level.BLOCKER,
        f"{counted(len(uses), 'namespaced object')} without credentials: here the identity of the pod of provider"
        f" {provider} serves cluster-scoped objects only",
        tuple(Detail(str(stored), use.field, "names no credentials") for stored, use in uses),
        f"set providers.{provider}.identity.usedBy=namespaced in the chart's values if every namespace may use this"
        " identity; otherwise name credentials or a service account in these objects",
    )


def _servers(snapshot: Snapshot, provider: str, uses: list[tuple[Stored, Use]]) -> Findings:
    listed = _setting(snapshot, provider).get("hosts") or ()
    unlisted = [(stored, use) for stored, use in uses if not _is_listed(use.server, listed)]
    if not unlisted:
        return
    hosts = ", ".join(sorted({_entry(use.server) for _, use in unlisted}))
    yield CheckResult(
        Level.BLOCKER,
        f"{counted(len(unlisted), 'object')} would send proofs of the identity of the provider {provider} to a server"
        " that is not listed",
        tuple(Detail(str(stored), use.field, _entry(use.server)) for stored, use in unlisted),
        f"set providers.{provider}.identity.hosts=[{hosts}] in the chart's values if these servers may receive them",
    )


def uses_of(stored: Stored) -> Iterator[Use]:
    """Return where an object relies on the identity of the provider's process."""
    spec = _map(stored.obj, "spec")
    kind = stored.custom.name
    if kind in ("SecretStore", "ClusterSecretStore"):
        for key, block in _map(spec, "provider").items():
            if key in _STORES and isinstance(block, Mapping):
                yield from _STORES[key](block, f"spec.provider.{key}")
    elif kind in _GENERATORS:
        yield from _GENERATORS[kind](spec, "spec")


def _aws(block: Block, place: str) -> Iterator[Use]:
    auth = _map(block, "auth")
    if not auth.get("secretRef") and not auth.get("jwt"):
        yield Use("aws", f"{place}.auth")


def _google(block: Block, place: str) -> Iterator[Use]:
    auth = _map(block, "auth")
    federation = _map(auth, "workloadIdentityFederation")
    if not any(auth.get(name) for name in ("secretRef", "workloadIdentity", "workloadIdentityFederation")):
        yield Use("gcp", f"{place}.auth")
    elif federation.get("credConfig") and not auth.get("secretRef") and not auth.get("workloadIdentity"):
        yield Use("gcp", f"{place}.auth.workloadIdentityFederation.credConfig")


def _azure(block: Block, place: str) -> Iterator[Use]:
    kind = block.get("authType")
    if kind == "ManagedIdentity" or (kind == "WorkloadIdentity" and not block.get("serviceAccountRef")):
        yield Use("azure", f"{place}.authType")


def _registry(block: Block, place: str) -> Iterator[Use]:
    auth = _map(block, "auth")
    workload = auth.get("workloadIdentity")
    by_process = isinstance(workload, Mapping) and not workload.get("serviceAccountRef")
    if by_process or "managedIdentity" in auth:
        yield Use("azure", f"{place}.auth")


def _vault(block: Block, place: str) -> Iterator[Use]:
    auth, server = _map(block, "auth"), str(block.get("server", ""))
    named = {
        "kubernetes": ("serviceAccountRef", "secretRef"),
        "iam": ("jwt", "secretRef"),
        "gcp": ("secretRef", "workloadIdentity"),
    }
    for method, credentials in named.items():
        form = auth.get(method)
        if isinstance(form, Mapping) and not any(form.get(name) for name in credentials):
            yield Use("vault", f"{place}.auth.{method}", server)


def _vault_generator(spec: Block, place: str) -> Iterator[Use]:
    yield from _vault(_map(spec, "provider"), f"{place}.provider")


def _infisical(block: Block, place: str) -> Iterator[Use]:
    auth, server = _map(block, "auth"), str(block.get("hostAPI") or "https://app.infisical.com")
    for form in ("azure", "gcpIdToken", "gcpIam", "aws", "kubernetes"):
        if auth.get(f"{form}AuthCredentials"):
            yield Use("infisical", f"{place}.auth.{form}AuthCredentials", server)


_STORES: Final[Mapping[str, Callable[[Block, str], Iterator[Use]]]] = {
    "aws": _aws,
    "azurekv": _azure,
    "gcpsm": _google,
    "infisical": _infisical,
    "vault": _vault,
}
_GENERATORS: Final[Mapping[str, Callable[[Block, str], Iterator[Use]]]] = {
    "ACRAccessToken": _registry,
    "ECRAuthorizationToken": _aws,
    "GCRAccessToken": _google,
    "STSSessionToken": _aws,
    "VaultDynamicSecret": _vault_generator,
}


def _setting(snapshot: Snapshot, provider: str) -> Block:
    """Return what `--values` says of the identity of a provider."""
    values = snapshot.values or {}
    common = _map(_map(values, "providerDefaults"), "identity")
    return {**common, **_map(_map(_map(values, "providers"), provider), "identity")}


def _entry(server: str) -> str:
    parts = urlsplit(server)
    return parts.hostname or server if parts.scheme == "https" else f"http://{parts.hostname or server}"


def _is_listed(server: str, listed: object) -> bool:
    entries = listed if isinstance(listed, list | tuple) else ()
    found = _entry(server)
    return any(found == entry or (str(entry).startswith(".") and found.endswith(str(entry))) for entry in entries)


def _map(block: Block, name: str) -> Block:
    found = block.get(name)
    return found if isinstance(found, Mapping) else {}
