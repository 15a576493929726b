"""A provider: its name, its version and the kinds it serves.

    PROVIDER = Provider(name="notes", version="1.0.0", kinds=(Notes,))

This module also exports everything that authors need to write those kinds.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from eso_api.marks import (
    REFERENCE,
    STORE,
    ConfigMapKey,
    WholeSecret,
    annotation,
    audiences,
    default_key,
    lifetime,
    sibling,
)
from eso_api.v2.owned import AnyKind
from eso_sdk.accounts import ServiceAccount
from eso_sdk.backend import Backend, Call
from eso_sdk.generator import Generator
from eso_sdk.kinds import ALWAYS, ServedKind, generator_kind, served_kind, store_kind, when
from eso_sdk.results import Check, Pushed, Value
from eso_sdk.store import Store, finds, pushes, reads
from eso_wire.values import Context, KindId, KindInfo, Limits
from eso_wire.versions import SUPPORTED, ProtocolVersion
from kubebase.clock import Clock

__all__ = [
    "ALWAYS",
    "DEFAULT_LIMITS",
    "NAME_PATTERN",
    "REFERENCE",
    "STORE",
    "Call",
    "Check",
    "ConfigMapKey",
    "Generator",
    "Maturity",
    "Provider",
    "Pushed",
    "ServiceAccount",
    "Store",
    "Value",
    "WholeSecret",
    "annotation",
    "audiences",
    "default_key",
    "finds",
    "generator_kind",
    "lifetime",
    "pushes",
    "reads",
    "sibling",
    "store_kind",
    "when",
]

NAME_PATTERN: Final = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
"""A provider's name is used in labels, metrics, file names and Service names."""

DEFAULT_LIMITS: Final = Limits(
    max_batch_items=500, max_message_bytes=16 * 1024 * 1024, max_in_flight=256, max_deadline=60.0
)


class Maturity(StrEnum):
    """What a provider has been tested against; `providers/README.md` defines the words."""

    STABLE = "stable"
    """Every applicable profile of the conformance suite and the end-to-end tests, against a real server."""
    BETA = "beta"
    """The real service, by the provider's maintainers."""
    UNPROVEN = "unproven"
    """A stand-in for the service only."""


BeforeCall = Callable[[str, Context | None, Clock], Awaitable[None]]
"""Receives the protocol's name of the call and its envelope (None in a handshake); an exception fails the call."""


@dataclass(frozen=True, slots=True)
class Provider:
    """The kinds, version and settings of one provider process."""

    name: str
    version: str
    kinds: tuple[type[Backend[Any]], ...]
    limits: Limits = DEFAULT_LIMITS
    features: tuple[str, ...] = ()
    api_name: str = ""
    """Value of the label `provider` in the metrics of backend calls; if empty, the provider's name."""
    maturity: Maturity = Maturity.UNPROVEN
    before_call: BeforeCall | None = field(default=None, repr=False)
    """Awaited before every admitted call, within its deadline: for providers that inject faults."""
    served: dict[KindId, ServedKind] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise ValueError(f'"{self.name}" is no name for a provider; use lower-case letters, digits and dashes')
        served: dict[KindId, ServedKind] = {}
        for backend in self.kinds:
            kind = served_kind(backend)
            for info in kind.infos:
                if info.kind in served:
                    raise ValueError(f"{info.kind} is served by two classes of provider {self.name}")
                served[info.kind] = kind
        object.__setattr__(self, "served", served)

    @property
    def kind_infos(self) -> tuple[KindInfo, ...]:
        """Return the kinds as announced in the handshake."""
        return tuple(info for backend in self.kinds for info in served_kind(backend).infos)

    @property
    def kinds_for_crds(self) -> tuple[AnyKind, ...]:
        """Return the kinds that this provider defines; its entry point in `eso.kinds` refers to them."""
        return tuple(kind for backend in self.kinds for kind in served_kind(backend).owned)

    @property
    def packages(self) -> frozenset[str]:
        """Return the top-level names of the author's packages that define the kinds, without the SDK itself."""
        return frozenset(backend.__module__.partition(".")[0] for backend in self.kinds) - {"eso_sdk"}

    def manifest(self, protocols: tuple[ProtocolVersion, ...] = SUPPORTED) -> dict[str, Any]:
        """Return the content of `provider.json`, which describes the provider of an image, as plain JSON."""
        return {
            "name": self.name,
            "version": self.version,
            "maturity": self.maturity.value,
            "protocol": {"min": str(min(protocols)), "max": str(max(protocols))},
            "kinds": [_described(info) for info in self.kind_infos],
        }


def _described(info: KindInfo) -> dict[str, Any]:
    return {
        "group": info.kind.group,
        "version": info.kind.version,
        "kind": info.kind.kind,
        "role": info.role.value,
        "operations": sorted(info.operations),
        "maintenance": info.maintenance,
        "v1ProviderKey": info.v1_provider_key,
        "credentials": [
            {"pattern": path.pattern, "kind": path.kind.value, "audiences": list(path.audiences)}
            for path in info.credentials
        ],
    }
