"""Which v1 block or v1alpha1 generator becomes which kind. The provider packages declare it; nothing is listed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eso_api.references import GENERATORS_GROUP
from eso_api.v2.owned import AnyKind
from eso_sdk.installed import ProviderNameError, installed, load
from eso_sdk.provider import ServedKind, served_kind
from eso_wire.pointers import stands_for
from eso_wire.values import CredentialPath
from kubebase.meta import JsonObject


@dataclass(frozen=True, slots=True)
class Bridge:
    """A kind that takes over a v1 block or a v1alpha1 generator."""

    served: ServedKind

    @property
    def kind(self) -> AnyKind:
        """Return the provider's own namespaced kind; `served.infos` has the same one first."""
        return self.served.owned[0]

    @property
    def credentials(self) -> tuple[CredentialPath, ...]:
        return self.served.credentials


class Bridges:
    """The bridges of all installed providers; if two serve the same key, the first by name wins, as in `eso up`."""

    def __init__(self, served: list[ServedKind]) -> None:
        self._stores: dict[str, list[Bridge]] = {}
        self._generators: dict[str, Bridge] = {}
        for each in served:
            if each.v1_key and each.owned:
                self._stores.setdefault(each.v1_key, []).append(Bridge(each))
            for kind in each.bridged if each.owned else ():
                if kind.group == GENERATORS_GROUP:
                    self._generators.setdefault(kind.name, Bridge(each))

    def store(self, key: str, block: JsonObject) -> Bridge | None:
        """Return the kind for a block of `spec.provider`; None if no installed provider serves it."""
        found = self._stores.get(key, ())
        return next((each for each in found if stands_for(each.served.v1_when, block)), None)

    def generator(self, kind: str) -> Bridge | None:
        """Return the kind for a v1alpha1 generator; None if no installed provider serves it."""
        return self._generators.get(kind)

    @property
    def kinds(self) -> list[AnyKind]:
        """Return every kind that a migration may create as a configuration."""
        stores = [each.kind for bridges in self._stores.values() for each in bridges]
        return list(dict.fromkeys([*stores, *(each.kind for each in self._generators.values())]))


def installed_bridges(warn: Callable[[str], None]) -> Bridges:
    """Load every installed provider. One that cannot be loaded is left out with a warning."""
    served: list[ServedKind] = []
    for name in installed():
        try:
            provider = load(name)
        except ProviderNameError as problem:
            warn(str(problem))
            continue
        served += [served_kind(backend) for backend in provider.kinds]
    return Bridges(served)
