"""One row of the overview for each object: is it ready, why not, since when, and which objects does it need.

A row never holds a spec, because the spec of a store may contain values. Decisions use conditions, reasons and
references, never the words of a message. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from eso_api.clusterexternalsecret import CLUSTER_EXTERNAL_SECRET, ClusterExternalSecret
from eso_api.clusterpushsecret import CLUSTER_PUSH_SECRET, ClusterPushSecret
from eso_api.clustersecretstore import CLUSTER_SECRET_STORE
from eso_api.conditions import INVALID_PROVIDER_CONFIG, READY, KeyOutcome
from eso_api.crd import CustomKind
from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret, ExternalSecretSpec
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.kinds import KINDS, V2_KINDS
from eso_api.pushsecret import PUSH_SECRET, PushSecret, PushSecretSpec
from eso_api.references import GeneratorRef, StoreRef
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.clustergenerator import CLUSTER_GENERATOR_V2
from eso_api.v2.clusterprovider import CLUSTER_PROVIDER
from eso_api.v2.clusterproviderclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.clustersecretstore import CLUSTER_SECRET_STORE_V2
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.generator import GENERATOR
from eso_api.v2.provider import PROVIDER
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.insight.facts import conflict_of
from eso_operator.sources.entries import Generate, entries_of
from eso_operator.stores.reference import normalise
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_wire.kinds import ObjectRef
from kubebase.meta import Condition, Malformed, ObjectKey
from kuberun.conditions import find_condition

PROVIDERS: Final[tuple[CustomKind[Any], ...]] = (CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS)
STORES: Final[tuple[CustomKind[Any], ...]] = (
    CLUSTER_SECRET_STORE,
    SECRET_STORE,
    CLUSTER_SECRET_STORE_V2,
    SECRET_STORE_V2,
    CLUSTER_PROVIDER,
    PROVIDER,
)
GENERATORS: Final[tuple[CustomKind[Any], ...]] = (CLUSTER_GENERATOR_V2, GENERATOR)
SYNCED: Final[tuple[CustomKind[Any], ...]] = (
    CLUSTER_EXTERNAL_SECRET,
    EXTERNAL_SECRET,
    CLUSTER_PUSH_SECRET,
    PUSH_SECRET,
)
OVERVIEW_KINDS: Final = (*PROVIDERS, *STORES, *GENERATORS, *SYNCED, GENERATOR_STATE)
"""Every kind with a state of its own, each after the kinds that it needs."""

NO_STATUS: Final = "NoStatus"
"""The reason of an object that no operator has reported on yet."""

_CAUSE: Final = re.compile(r"([A-Z][A-Za-z]+): ")
_SILENT: Final = frozenset({GENERATOR_STATE})
"""Kinds whose objects have a condition only after a failure."""


_OF_THE_STORE: Final = frozenset(
    {
        "AccessDenied",
        "AuthenticationFailed",
        "BackendTimeout",
        "BackendUnavailable",
        "ProviderTimeout",
        "ProviderUnreachable",
        "RateLimited",
        *Reason,
    }
)
"""Reasons that one change of the store, its provider or its backend repairs for all keys."""
_MISSING: Final = frozenset({"SecretNotFound", "VersionNotFound"})
"""Reasons that a change of one remote key repairs. Messages differ, because they name the entry."""

Fault = tuple[str, ...]


class Health(Enum):
    GOOD = "good"
    BAD = "bad"
    CONTENDED = "contended"
    """Ready, but in a conflict or a loop with other objects."""
    WAITING = "waiting"
    """No operator has reported on the object yet, or what it needs is starting."""
    ABSENT = "absent"
    """Other objects name the object, but it does not exist."""


class ObjectId(NamedTuple):
    """The identity of an object. Kinds of both generations have the same name, so the group belongs to it."""

    group: str
    kind: str
    key: ObjectKey

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class Row:
    """The state of one object."""

    id: ObjectId
    custom: CustomKind[Any]
    health: Health
    reason: str = ""
    """The cause in one CamelCase word; for objects whose entries failed, that of the first entry."""
    message: str = ""
    since: str = ""
    next_attempt: str = ""
    needs: tuple[ObjectId, ...] = ()
    """Stores, generators and classes that the spec names."""
    blamed: tuple[ObjectId, ...] = ()
    """Of these, the ones that the failed entries name; all, if no entry failed."""
    faults: frozenset[Fault] = frozenset()
    """What has to be repaired: objects with the same faults become ready together. Empty if it needs no repair."""

    @property
    def ready(self) -> bool:
        return self.health in (Health.GOOD, Health.CONTENDED)

    @property
    def generation(self) -> str:
        return generation_of(self.custom)

    @property
    def namespace(self) -> str:
        return self.id.key.namespace

    @property
    def name(self) -> str:
        return self.id.key.name


def generation_of(custom: CustomKind[Any]) -> str:
    return "v2" if custom in V2_KINDS else "v1"


def row_of(custom: CustomKind[Any], obj: Any) -> Row:
    """Return the row of a decoded object, or of one that does not decode."""
    key = ObjectKey(obj.metadata.namespace, obj.metadata.name)
    identity = ObjectId(custom.group, custom.name, key)
    if isinstance(obj, Malformed):
        faults = frozenset({(obj.error,)})
        return Row(identity, custom, Health.BAD, Reason.MALFORMED.value, obj.error, faults=faults)
    needs = tuple(dict.fromkeys(_needs(obj, key.namespace)))
    ready = find_condition(obj.status.conditions, READY)
    if ready is None:
        health = Health.GOOD if custom in _SILENT else Health.WAITING
        reason = "" if health is Health.GOOD else NO_STATUS
        return Row(identity, custom, health, reason, since=obj.metadata.creation_timestamp or "", needs=needs)
    if ready.status != "False" and (conflict := conflict_of(obj.status.conditions)) is not None:
        since = conflict.last_transition_time or ""
        fault = frozenset({(conflict.message,)})
        return Row(
            identity, custom, Health.CONTENDED, conflict.type, conflict.message, since, needs=needs, faults=fault
        )
    health = _health(ready)
    failed: Sequence[KeyOutcome] = () if health is Health.GOOD else getattr(obj.status, "outcomes", ())
    return Row(
        identity,
        custom,
        health,
        failed[0].reason if failed else _cause(ready),
        ready.message,
        ready.last_transition_time or "",
        getattr(obj.status, "next_attempt_time", None) or "",
        needs,
        tuple(_blamed(needs, failed)),
        frozenset(_faults(needs, failed) if failed else {(ready.message,)}) if health is Health.BAD else frozenset(),
    )


def _health(ready: Condition) -> Health:
    """Return the health. Stores whose credentials come from their users are "Unknown" too, and work."""
    if ready.status == "False":
        return Health.BAD
    works = ready.status == "True" or ready.reason == Reason.REFERENT_AUTH
    return Health.GOOD if works else Health.WAITING


def _cause(ready: Condition) -> str:
    """Return the cause. The reason of a v1 store is always the same; its cause is the first word of the message."""
    if (ready.reason == INVALID_PROVIDER_CONFIG or ready.status == "Unknown") and (
        found := _CAUSE.match(ready.message)
    ):
        return found.group(1)
    return ready.reason


def _faults(needs: Sequence[ObjectId], failed: Sequence[KeyOutcome]) -> Iterator[Fault]:
    """Yield the fault of each failed entry: of its store, of its remote key in that store, or only its own message."""
    for outcome in failed:
        stores = tuple(f"{need.group}/{need}" for need in _blamed(needs, [outcome])) if outcome.store else ()
        if stores and outcome.reason in _OF_THE_STORE:
            yield (outcome.reason, *stores)
        elif stores and outcome.remote_key and outcome.reason in _MISSING:
            yield (outcome.reason, *stores, outcome.remote_key)
        else:
            yield (outcome.reason, *stores, outcome.remote_key, outcome.message)


def _blamed(needs: Sequence[ObjectId], failed: Sequence[KeyOutcome]) -> Iterator[ObjectId]:
    """Yield the needed objects that the failed entries name, as an ExternalSecret or as a PushSecret spells them."""
    named = {outcome.store for outcome in failed}
    for need in needs:
        short = f"{need.kind} {need.key.name}"
        spellings = {short, f"{need.kind}/{need.key.name}", f"{need.group}/{need.kind}/{need.key.name}"}
        if not failed or spellings & named:
            yield need


def _needs(obj: Any, namespace: str) -> Iterator[ObjectId]:
    match obj:
        case ExternalSecret():
            yield from _read_by(obj.spec, namespace)
        case ClusterExternalSecret():
            yield from _shared(_read_by(obj.spec.external_secret_spec, ""))
        case PushSecret():
            yield from _pushed_by(obj.spec, namespace)
        case ClusterPushSecret():
            yield from _shared(_pushed_by(obj.spec.push_secret_spec, ""))
        case _:
            yield from _class_of(getattr(obj.spec, "provider_config", None), namespace)


def _read_by(spec: ExternalSecretSpec, namespace: str) -> Iterator[ObjectId]:
    refs = (want.generator if isinstance(want, Generate) else want.store for want in entries_of(spec))
    for ref in dict.fromkeys(refs):
        yield from _named(ref, namespace)


def _pushed_by(spec: PushSecretSpec, namespace: str) -> Iterator[ObjectId]:
    if spec.selector.generator_ref is not None:
        yield from _named(spec.selector.generator_ref, namespace)
    for ref in spec.secret_store_refs:
        if ref.label_selector is None:
            yield from _named(StoreRef(api_version=ref.api_version, kind=ref.kind, name=ref.name), namespace)


def _shared(needs: Iterator[ObjectId]) -> Iterator[ObjectId]:
    """Yield the cluster-scoped objects. A namespaced one is another object in each namespace."""
    return (need for need in needs if need.kind in _CLUSTER_SCOPED)


def _class_of(config: ProviderConfig | None, namespace: str) -> Iterator[ObjectId]:
    if config is None or config.class_ref is None:
        return
    ref = config.class_ref
    custom = PROVIDER_CLASS if ref.kind == PROVIDER_CLASS.name else CLUSTER_PROVIDER_CLASS
    yield ObjectId(custom.group, custom.name, ObjectKey(namespace if custom.namespaced else "", ref.name))


def _named(ref: StoreRef | GeneratorRef, namespace: str) -> Iterator[ObjectId]:
    try:
        kind = normalise(ref, ObjectRef()).kind
    except ResolutionError:
        return
    home = "" if (kind.group, kind.kind) in _CLUSTER_IDS else namespace
    yield ObjectId(kind.group, kind.kind, ObjectKey(home, ref.name))


_CLUSTER_IDS: Final = frozenset((kind.group, kind.name) for kind in KINDS if not kind.namespaced)
_CLUSTER_SCOPED: Final = frozenset(kind for _, kind in _CLUSTER_IDS)
