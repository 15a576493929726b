"""A provider: its name, its version and the kinds it serves.

    PROVIDER = Provider(name="notes", version="1.0.0", kinds=(Notes,))

This module also exports everything that authors need to write those kinds.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

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
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, STORE_CONFIG_GROUP, AnyKind, generator_config, store_kinds
from eso_sdk.accounts import ServiceAccount
from eso_sdk.backend import Backend, Call, config_type
from eso_sdk.credentials import patterns_of
from eso_sdk.store import (
    Check,
    DelegatingStore,
    Generator,
    Pushed,
    Store,
    Value,
    finds,
    generator_operations,
    pushes,
    reads,
    store_operations,
)
from eso_wire.values import (
    CallerDependence,
    Context,
    CredentialPath,
    KindId,
    KindInfo,
    KindRole,
    Limits,
    Operation,
    SpecCondition,
)
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
    "DelegatingStore",
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

# --- The decorators that turn a class into a kind: `@store_kind` and `@generator_kind` -------------------------------
#
# A decorator gives the names. Everything else follows from the class: operations from the overridden methods,
# credential paths and CRDs from the type of its configuration.


S = TypeVar("S", bound=Store[Any])
G = TypeVar("G", bound=Generator[Any])

_ATTRIBUTE = "_eso_kind"


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A class and everything known about it before it is opened."""

    backend: type[Backend[Any]]
    role: KindRole
    config: type[msgspec.Struct]
    operations: frozenset[Operation]
    credentials: tuple[CredentialPath, ...]
    owned: tuple[AnyKind, ...]
    """The kinds that this provider defines: it owns their CRDs."""
    bridged: tuple[AnyKind, ...] = ()
    """Kinds that are defined elsewhere and whose spec this class accepts."""
    v1_key: str = ""
    maintenance: str = "maintained"
    concurrency: int = 16
    caller_dependences: tuple[CallerDependence, ...] = ()
    metadata_references: tuple[CredentialPath, ...] = ()
    v1_when: SpecCondition | None = None
    v1_renames: Mapping[str, str] = field(default_factory=dict, hash=False)
    infos: tuple[KindInfo, ...] = field(init=False)

    def __post_init__(self) -> None:
        ids = [
            KindId(kind.group, version, kind.name) for kind in (*self.owned, *self.bridged) for version in kind.versions
        ]
        # Only one kind gets the key of the v1 block: the one whose configuration the block follows.
        infos = tuple(
            KindInfo(
                kind,
                self.role,
                self.operations,
                maintenance=self.maintenance,
                v1_provider_key=self.v1_key if kind == ids[0] else "",
                credentials=self.credentials,
                caller_dependences=self.caller_dependences,
                metadata_references=self.metadata_references,
                v1_when=self.v1_when if kind == ids[0] else None,
            )
            for kind in ids
        )
        object.__setattr__(self, "infos", infos)

    def own_spec(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Return a v1 block as the spec of this kind: without the member that chose the kind, renamed where needed."""
        chosen_by = self.v1_when.pointer.removeprefix("/") if self.v1_when is not None else ""
        renamed = {self.v1_renames.get(name, name): value for name, value in block.items() if name != chosen_by}
        return {name: value for name, value in renamed.items() if name}


ALWAYS: Final = CallerDependence()
"""Every result may depend on the namespace of the caller."""


def when(pointer: str, *, unless: tuple[str, ...]) -> CallerDependence:
    """Declare that results depend on the caller's namespace, unless the configuration has one of these texts there."""
    return CallerDependence(pointer, unless)


def store_kind(
    *,
    kind: str = "",
    plural: str = "",
    group: str = STORE_CONFIG_GROUP,
    cluster: str | None = None,
    objects: tuple[AnyKind, ...] = (),
    v1_key: str = "",
    v1_when: SpecCondition | None = None,
    v1_renames: Mapping[str, str] | None = None,
    caller_namespace: CallerDependence | None = None,
    push_metadata: type[msgspec.Struct] | None = None,
    maintenance: str = "maintained",
    concurrency: int = 16,
    operations: frozenset[Operation] | None = None,
) -> Callable[[type[S]], type[S]]:
    """Make a `Store` class a kind.

    Args:
        kind: the kind's name; the CRD is made from it, `plural` and `group`.
        plural: lower-case plural of `kind`.
        group: API group of the kind.
        cluster: name of the cluster-scoped twin; None for none. Its plural is `cluster` plus the other one.
        objects: the kinds themselves, if `eso_api.v2.owned` made them elsewhere; instead of the four above.
        v1_key: `spec.provider.<key>` of v1 stores whose block is this configuration.
        v1_when: which of those blocks; several kinds may share a key, each with its own condition.
        v1_renames: members of the block that the spec of the kind names differently; an empty name drops the member.
            `eso migrate` uses it. The class accepts both names.
        caller_namespace: when results depend on the caller's namespace (`ALWAYS`, `when(...)`). Then calls of two
            namespaces never share a session, and the operator never shares their reads. Without it, one read may serve
            callers of several namespaces, and `call.caller` names only the first.
        push_metadata: type of `spec.data[].metadata`, if its references are to be resolved (`PushItem.resolved`).
        maintenance: maintained, deprecated, unmaintained or experimental.
        concurrency: how many calls of one session run at a time.
        operations: narrows the operations of the class; it cannot add operations that the class does not override.
    """

    def decorate(store: type[S]) -> type[S]:
        check_overrides(store, Store)
        config = config_type(store)
        owned = objects
        if not owned:
            _named(kind, plural)
            owned = store_kinds(
                config, module=config.__module__, kind=kind, plural=plural, cluster=cluster or "", group=group
            )
        served = ServedKind(
            backend=store,
            role=KindRole.STORE,
            config=config,
            operations=_narrowed(store.__name__, store_operations(store), operations),
            credentials=patterns_of(config),
            owned=owned,
            v1_key=v1_key,
            maintenance=maintenance,
            concurrency=_positive(concurrency),
            caller_dependences=(caller_namespace,) if caller_namespace is not None else (),
            metadata_references=patterns_of(push_metadata) if push_metadata is not None else (),
            v1_when=v1_when,
            v1_renames=v1_renames or {},
        )
        return _mark(store, served)

    return decorate


def generator_kind(
    *,
    kind: str = "",
    plural: str = "",
    group: str = GENERATOR_CONFIG_GROUP,
    objects: tuple[AnyKind, ...] = (),
    bridged: tuple[AnyKind, ...] = (),
    maintenance: str = "maintained",
    concurrency: int = 16,
) -> Callable[[type[G]], type[G]]:
    """Make a `Generator` class a kind.

    Args:
        kind: the kind's name; the CRD is made from it, `plural` and `group`.
        plural: lower-case plural of `kind`.
        group: API group of the kind.
        objects: the kinds themselves, if `eso_api.v2.owned` made them elsewhere; instead of the three above.
        bridged: kinds of the core (v1alpha1 generators) with the same spec, which are served too.
        maintenance: maintained, deprecated, unmaintained or experimental.
        concurrency: how many calls of one session run at a time.
    """

    def decorate(generator: type[G]) -> type[G]:
        check_overrides(generator, Generator)
        config = config_type(generator)
        owned = objects
        if not owned:
            _named(kind, plural)
            owned = (generator_config(config, module=config.__module__, kind=kind, plural=plural, group=group),)
        served = ServedKind(
            backend=generator,
            role=KindRole.GENERATOR,
            config=config,
            operations=generator_operations(generator),
            credentials=patterns_of(config),
            owned=owned,
            bridged=bridged,
            maintenance=maintenance,
            concurrency=_positive(concurrency),
        )
        return _mark(generator, served)

    return decorate


def served_kind(backend: type[Backend[Any]]) -> ServedKind:
    """Return the kind that a decorator has attached to a class."""
    found = vars(backend).get(_ATTRIBUTE)
    if not isinstance(found, ServedKind):
        raise TypeError(f"{backend.__name__} is not a kind; decorate it with @store_kind or @generator_kind")
    return found


B = TypeVar("B", bound=Backend[Any])


def _mark(backend: type[B], served: ServedKind) -> type[B]:
    setattr(backend, _ATTRIBUTE, served)
    backend.OPERATIONS = served.operations
    return backend


def _named(kind: str, plural: str) -> None:
    if not kind or not plural:
        raise TypeError("a kind needs kind= and plural=, or objects=")


def _narrowed(name: str, real: frozenset[Operation], declared: frozenset[Operation] | None) -> frozenset[Operation]:
    if declared is None:
        return real
    if unreal := declared - real:
        raise TypeError(f"{name} declares {', '.join(sorted(unreal))} but does not override or mark the method for it")
    return declared


def _positive(concurrency: int) -> int:
    if concurrency < 1:
        raise ValueError("concurrency must be at least 1")
    return concurrency


_STREAMS: Final = frozenset({"find", "subscribe"})


# --- the methods of an author's class --------------------------------------------------------------------------------

# Checked when the class is defined: otherwise a `def` instead of an `async def` would fail only at the first call, as a
# TypeError that does not name the method.


def check_overrides(backend: type[Backend[Any]], base: type[Backend[Any]]) -> None:
    """Raise TypeError for the first overridden method that is of another sort than the method of the base."""
    for name, original in inspect.getmembers(base, inspect.isroutine):
        method = inspect.unwrap(getattr(backend, name))
        if name.startswith("_") or method is original or not inspect.isroutine(method):
            continue
        if wrong := _wrong(name, method, original):
            raise TypeError(f"{backend.__name__}.{name} {wrong}")


def _wrong(name: str, method: Callable[..., Any], original: Callable[..., Any]) -> str:
    """Return the problem and its correction; empty if nothing is wrong."""
    if name in _STREAMS:
        plain = inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method)
        return f"must give an async iterator: write `async def {name}(self, ...)` with `yield` in it" if plain else ""
    if inspect.iscoroutinefunction(original):
        due = inspect.iscoroutinefunction(method)
        return "" if due else f"must be awaitable: write `async def {name}(self, ...)`, with `return` and no `yield`"
    return f"is not awaited: write `def {name}(...)` without `async`" if inspect.iscoroutinefunction(method) else ""


# --- A provider ------------------------------------------------------------------------------------------------------


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
