"""The state of all objects of both generations, in one value that `eso status` and the dashboard show.

    Objects (a client, or caches of informers) -> row_of each object, page by page -> Overview -> causes.py

A kind that is not installed or that the user may not list is a `Gap`; the other kinds are shown. `MAX_ROWS` bounds the
rows; objects beyond it are counted. A row never holds a spec, because the spec of a store may contain values. Decisions
use conditions, reasons and references, never the text of a message.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from eso_api.common import INVALID_PROVIDER_CONFIG, READY, KeyOutcome
from eso_api.crd import CustomKind
from eso_api.externalsecret import (
    CLUSTER_EXTERNAL_SECRET,
    EXTERNAL_SECRET,
    ClusterExternalSecret,
    ExternalSecret,
    ExternalSecretSpec,
)
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.kinds import KINDS, V2_KINDS
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET, ClusterPushSecret, PushSecret, PushSecretSpec
from eso_api.references import GeneratorRef, StoreRef
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.provider import CLUSTER_PROVIDER, PROVIDER
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_operator.sources.entries import Generate, entries_of
from eso_operator.stores.loading import normalise
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_tools.objects import conflict_of
from eso_wire.kinds import ObjectRef
from kubebase.meta import Condition, Malformed, ObjectKey
from kuberun.errors import ApiError, Forbidden, NotFound
from kuberun.requests import Selection
from kuberun.status import find_condition

if TYPE_CHECKING:
    from kuberun.cache import Cache
    from kuberun.client import Client

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
    where = "" if (kind.group, kind.kind) in _CLUSTER_IDS else namespace
    yield ObjectId(kind.group, kind.kind, ObjectKey(where, ref.name))


_CLUSTER_IDS: Final = frozenset((kind.group, kind.name) for kind in KINDS if not kind.namespaced)
_CLUSTER_SCOPED: Final = frozenset(kind for _, kind in _CLUSTER_IDS)


MAX_ROWS: Final = 20_000
_CHUNK: Final = 50

AnyKind = CustomKind[Any]


class Missing(Enum):
    """Why the objects of a kind are not shown."""

    NOT_INSTALLED = "its CRD is not installed"
    FORBIDDEN = "you may not list it"
    PARTLY = "you may list it in some namespaces only"
    NOT_WATCHED = "this operator does not watch it"
    UNREADABLE = "the API server could not list it"


@dataclass(frozen=True, slots=True)
class Gap:
    """A kind whose objects could not be listed."""

    custom: AnyKind
    why: Missing

    def __str__(self) -> str:
        return f"{self.custom.crd_name}: {self.why.value}"


class KindGap(Exception):  # noqa: N818 - not an error of the program
    """Raised by `Objects` for a kind that cannot be listed."""

    def __init__(self, why: Missing) -> None:
        super().__init__(why.value)
        self.why = why


class Objects(Protocol):
    """The objects of a cluster, decoded or `Malformed`."""

    def pages(self, custom: AnyKind) -> AsyncIterator[Iterable[Any]]:
        """Yield the objects of a kind. Raises `KindGap` if they cannot be listed."""
        ...


@dataclass(frozen=True, slots=True)
class Overview:
    """The rows of all kinds, in the order of `OVERVIEW_KINDS`."""

    rows: tuple[Row, ...] = ()
    gaps: tuple[Gap, ...] = ()
    left_out: int = 0
    """The number of objects beyond `MAX_ROWS`."""

    def counts(self, health: Health) -> dict[AnyKind, int]:
        """Return the number of rows of each kind with this health; kinds without any are left out."""
        counted: dict[AnyKind, int] = {}
        for row in self.rows:
            if row.health is health:
                counted[row.custom] = counted.get(row.custom, 0) + 1
        return counted

    def only(self, wanted: Callable[[Row], bool]) -> Overview:
        return Overview(tuple(filter(wanted, self.rows)), self.gaps, self.left_out)

    def find(self, identity: ObjectId) -> Row | None:
        return next((row for row in self.rows if row.id == identity), None)


async def gather(
    objects: Objects,
    kinds: Sequence[AnyKind] = OVERVIEW_KINDS,
    *,
    max_rows: int = MAX_ROWS,
    row: Callable[[AnyKind, Any], Row] = row_of,
) -> Overview:
    """Read every kind once."""
    rows: list[Row] = []
    gaps: list[Gap] = []
    left_out = 0
    for custom in kinds:
        try:
            async for page in objects.pages(custom):
                found = [row(custom, obj) for obj in page]
                rows_shown = found[: max_rows - len(rows)]
                rows += rows_shown
                left_out += len(found) - len(rows_shown)
        except KindGap as gap:
            gaps.append(Gap(custom, gap.why))
    return Overview(tuple(rows), tuple(gaps), left_out)


class ListedObjects:
    """The objects that an API server lists now. Cluster-scoped kinds are listed for every namespace."""

    def __init__(self, client: Client, namespace: str = "") -> None:
        self._client = client
        self._namespace = namespace

    async def pages(self, custom: AnyKind) -> AsyncIterator[Iterable[Any]]:
        selection = Selection(self._namespace if custom.namespaced else "")
        try:
            async for page in self._client.pages(custom.kind(), selection):
                yield page.items
        except NotFound:  # of a list: the resource itself
            raise KindGap(Missing.NOT_INSTALLED) from None
        except Forbidden:
            raise KindGap(Missing.FORBIDDEN) from None


class CachedObjects:
    """The objects in the caches of informers; `gaps` are the kinds that have none."""

    def __init__(self, caches: Mapping[AnyKind, Cache[Any]], gaps: Mapping[AnyKind, Missing]) -> None:
        self._caches = caches
        self._gaps = gaps

    async def pages(self, custom: AnyKind) -> AsyncIterator[Iterable[Any]]:
        cache = self._caches.get(custom)
        if cache is None or custom in self._gaps:
            raise KindGap(self._gaps.get(custom, Missing.NOT_WATCHED))
        found = [*cache.objects(), *cache.malformed()]
        for start in range(0, len(found), _CHUNK):
            yield found[start : start + _CHUNK]
            await asyncio.sleep(0)  # noqa: TID251 - lets other tasks of the operator run; nothing waits for time


async def gap_of(client: Client, custom: AnyKind, namespace: str = "") -> Missing | None:
    """Return why a kind cannot be listed; None if it can. Other errors of the API server are raised."""
    source = client.source(custom.kind(), Selection(namespace if custom.namespaced else ""))
    try:
        await source.list_page(limit=1, continue_token="", resource_version="")
    except NotFound:  # of a list: the resource itself
        return Missing.NOT_INSTALLED
    except Forbidden:
        return Missing.FORBIDDEN
    except ApiError:
        raise
    return None
