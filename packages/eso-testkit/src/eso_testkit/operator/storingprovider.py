"""A provider that stores pushed values: versions, owners, preconditions, rejections, and a record of every call.

`operations` sets what it supports, so that tests can use less capable providers. Remote values are stored by key and
property; a property is a separate value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from google.protobuf.message import Message

from eso_api.values import SecretBytes
from eso_testkit.operator.operators import BACKEND_ID, MAKER_ID
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire import codec, paths
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CheckResult,
    Context,
    CredentialPath,
    DeleteBatch,
    DeleteItem,
    DeleteResult,
    Generated,
    GetItem,
    GetResult,
    KindInfo,
    KindRole,
    Operation,
    PushBatch,
    PushItem,
    PushOutcome,
    PushPrecondition,
    PushResult,
    RemoteRef,
    Shape,
    ValueMetadata,
)
from kubebase.clock import SystemClock

READS: Final = frozenset({Operation.GET, Operation.GET_MAP})
WRITES: Final = READS | {Operation.PUSH, Operation.PUSH_WHOLE_SECRET, Operation.DELETE}
EVERYTHING: Final = WRITES | {Operation.EXISTS, Operation.PUSH_IF_ABSENT}


@dataclass(frozen=True, slots=True)
class StoredValue:
    """One remote value: bytes, or the map of a whole Secret as sorted text."""

    value: bytes
    owner: str
    version: str


@dataclass(slots=True)
class StoringProvider(ScriptedProvider):
    """`stored` is the backend of every store together, by `key` or `key#property`."""

    operations: frozenset[Operation] = EVERYTHING
    reports_versions: bool = True
    versions_keys: bool = False
    """Every write of a property gives its whole remote key a new version, as in a backend that stores one document."""
    metadata_references: tuple[CredentialPath, ...] = ()
    """Where the metadata of a push refers to objects."""
    marks_owners: bool = True
    """If false, all values belong to everyone, as in a backend without labels."""
    deletes_whole_keys: bool = False
    """If true, a deletion removes the whole remote key, as in a backend without properties."""
    stored: dict[str, StoredValue] = field(default_factory=dict)
    pushes: list[PushBatch] = field(default_factory=list)
    deletions: list[DeleteBatch] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)
    """How often each remote key was checked."""
    stores: list[str] = field(default_factory=list)
    """The store of every push, as `Kind/name`."""
    callers: list[str] = field(default_factory=list)
    """The namespace that every push came from."""
    push_errors: dict[str, ProviderError] = field(default_factory=dict)
    check_errors: dict[str, ProviderError] = field(default_factory=dict)
    delete_errors: dict[str, ProviderError] = field(default_factory=dict)
    generated: dict[str, bytes] = field(default_factory=lambda: {"password": b"generated"})
    state: bytes | None = None
    """The state that generated values leave for the clean-up."""
    lives: float = 0.0
    """Seconds until generated values must be renewed; 0 for values that do not expire."""
    meanwhile: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    """By call: a concurrent write that happens once, just before the call takes effect."""
    writes: int = 0

    def __post_init__(self) -> None:
        self.kinds = (
            KindInfo(
                BACKEND_ID,
                KindRole.STORE,
                self.operations,
                v1_provider_key="fake",
                metadata_references=self.metadata_references,
            ),
            KindInfo(MAKER_ID, KindRole.GENERATOR, frozenset({Operation.GENERATE, Operation.CLEANUP})),
        )

    @property
    def values(self) -> dict[str, bytes]:
        return {place: stored.value for place, stored in self.stored.items()}

    def put(self, place: str, value: bytes, owner: str = "") -> None:
        """Write a value as another writer would."""
        self.writes += 1
        self.stored[place] = StoredValue(value, owner if self.marks_owners else "", f"v{self.writes}")
        if self.versions_keys:
            key = place.partition("#")[0]
            parts = {part: stored for part, stored in self.stored.items() if part.partition("#")[0] == key}
            self.stored |= {part: replace(stored, version=f"v{self.writes}") for part, stored in parts.items()}

    async def unary(self, method: str, request: bytes) -> bytes:
        if (act := self.meanwhile.pop(paths.short_name(method), None)) is not None:
            await act()
        # Zero-argument super does not find its class here: a dataclass with slots is made twice.
        return await ScriptedProvider.unary(self, method, request)

    def _respond(self, method: str, request: bytes) -> Message:
        match paths.short_name(method):
            case "CheckSecrets":
                _, items = codec.from_check_request(pb.CheckSecretsRequest.FromString(request))
                return codec.to_check_response([self._checked(item) for item in items])
            case "PushSecrets":
                context, batch = codec.from_push_request(pb.PushSecretsRequest.FromString(request))
                self._note(context)
                self.pushes.append(batch)
                return codec.to_push_response([self._pushed(item) for item in batch.items])
            case "DeleteSecrets":
                _, batch_gone = codec.from_delete_request(pb.DeleteSecretsRequest.FromString(request))
                self.deletions.append(batch_gone)
                return codec.to_delete_response([self._deleted(item) for item in batch_gone.items])
            case "Generate":
                made = {key: SecretBytes(value) for key, value in self.generated.items()}
                state = None if self.state is None else SecretBytes(self.state)
                life = ValueMetadata(suggested_refresh=self.lives)
                return codec.to_generate_response(Generated(made, state=state, metadata=life))
        return ScriptedProvider._respond(self, method, request)  # noqa: SLF001 - it is our own

    def _get(self, item: GetItem) -> GetResult:
        """Return the stored value; a value of `data` if there is none."""
        if (found := self.stored.get(_place(item.ref))) is None:
            return ScriptedProvider._get(self, item)  # noqa: SLF001 - it is our own
        value = SecretBytes(found.value)
        return GetResult(item.item_id, {"value": value} if item.shape is Shape.MAP else value)

    def _note(self, context: Context) -> None:
        self.stores.append(f"{context.store.kind}/{context.store.name}")
        self.callers.append(context.caller.namespace)

    def _checked(self, item: GetItem) -> CheckResult:
        self.checked[item.ref.key] += 1
        if error := self.check_errors.get(item.ref.key):
            return CheckResult(item.item_id, error=error)
        found = self.stored.get(_place(item.ref))
        return CheckResult(item.item_id, found is not None, "" if found is None else self._version_of(found))

    def _pushed(self, item: PushItem) -> PushResult:
        place, old = _place(item.remote), self.stored.get(_place(item.remote))
        if error := self.push_errors.get(item.remote.key):
            return PushResult(item.item_id, error)
        if old is not None and item.precondition is PushPrecondition.IF_ABSENT:
            return PushResult(item.item_id, PushOutcome.SKIPPED_EXISTS, self._version_of(old))
        if old is not None and old.owner not in ("", item.owner_token):
            return PushResult(item.item_id, _foreign(place))
        value = _bytes_of(item)
        if old is not None and old.value == value:
            return PushResult(item.item_id, PushOutcome.UNCHANGED, self._version_of(old))
        self.put(place, value, item.owner_token)
        return PushResult(
            item.item_id,
            PushOutcome.CREATED if old is None else PushOutcome.UPDATED,
            self._version_of(self.stored[place]),
        )

    def _deleted(self, item: DeleteItem) -> DeleteResult:
        place, old = _place(item.remote), self.stored.get(_place(item.remote))
        if error := self.delete_errors.get(item.remote.key):
            return DeleteResult(item.item_id, error=error)
        if old is not None and old.owner not in ("", item.owner_token):
            return DeleteResult(item.item_id, error=_foreign(place))
        self.stored.pop(place, None)
        if self.deletes_whole_keys:
            self.stored = {
                other: stored for other, stored in self.stored.items() if other.partition("#")[0] != item.remote.key
            }
        return DeleteResult(item.item_id, existed=old is not None)

    def _version_of(self, value: StoredValue) -> str:
        return value.version if self.reports_versions else ""


def storing(**fields: object) -> StoringProvider:
    return StoringProvider(SystemClock(), **fields)  # type: ignore[arg-type]  # what it takes, it takes


def denied(key: str) -> ProviderError:
    return ProviderError(ErrorReason.PERMISSION_DENIED, f"no permission for {key}")


def _foreign(place: str) -> ProviderError:
    return ProviderError(ErrorReason.OWNERSHIP_CONFLICT, f"{place} has another mark")


def _place(ref: RemoteRef) -> str:
    return f"{ref.key}#{ref.property}" if ref.property else ref.key


def _bytes_of(item: PushItem) -> bytes:
    if isinstance(item.payload, SecretBytes):
        return item.payload.reveal()
    whole: Mapping[str, SecretBytes] = item.payload
    return b";".join(key.encode() + b"=" + whole[key].reveal() for key in sorted(whole))
