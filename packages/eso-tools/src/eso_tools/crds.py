"""The CRDs of the core and of providers: printed by `eso crds`, and advice on how a cluster gets missing ones.

A cluster has the CRDs of the core, and those of the providers that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from eso_api.crd import crd_yaml
from eso_api.kinds import KINDS, AnyKind, provider_kinds


class UnknownProviderError(ValueError):
    """No installed provider has this name."""


def printed(providers: Sequence[str], *, core: bool, broken: Callable[[str, Exception], None]) -> Iterator[str]:
    """Yield the chosen CRDs as YAML documents, by name; without a choice, those of the core and of every provider.

    Raises UnknownProviderError before the first one.
    """
    installed = provider_kinds(broken)
    for name in providers:
        if name not in installed:
            known = ", ".join(sorted(installed)) or "none"
            raise UnknownProviderError(f'no installed provider "{name}" has CRDs (installed: {known})')
    everything = not (providers or core)
    owned = [("", kind) for kind in (KINDS if core or everything else ())]
    owned += [(name, kind) for name in installed if everything or name in providers for kind in installed[name]]
    for name, kind in sorted(owned, key=lambda each: each[1].crd_name):
        yield f"---\n{crd_yaml(kind, provider=name)}"


def by_provider(kinds: Iterable[AnyKind]) -> dict[str, list[str]]:
    """Return the names of their CRDs by the provider that has them; those of the core have an empty name."""
    wanted = {kind.crd_name for kind in kinds}
    owned = {
        provider: sorted(kind.crd_name for kind in own if kind.crd_name in wanted)
        for provider, own in {"": KINDS, **provider_kinds(_ignore)}.items()
    }
    return {provider: names for provider, names in owned.items() if names}


def missing_crds(kinds: Iterable[AnyKind]) -> list[str]:
    """Return sentences that name the CRDs of kinds that a cluster lacks, and how it gets them."""
    return [
        f"the cluster has no {', '.join(names)}: {how_to_get(provider)}"
        for provider, names in by_provider(kinds).items()
    ]


def how_to_get(provider: str = "") -> str:
    """Return how a cluster gets the CRDs of a provider, or of the core."""
    if not provider:
        return "install the chart external-secrets, or run `eso crds --core | kubectl apply -f -`"
    return (
        f"set providers.{provider}.enabled=true (or crds.providers={{{provider}}}) in chart external-secrets, or run"
        f" `eso crds --provider {provider} | kubectl apply -f -`"
    )


def _ignore(_name: str, _problem: Exception) -> None:
    """Ignore a provider that cannot be loaded: `eso crds` and `eso migrate` warn about it."""
