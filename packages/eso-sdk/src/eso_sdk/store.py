"""The base classes of stores and generators: the methods that a class overrides are the operations of its kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol, TypeVar

from eso_api.values import SecretBytes
from eso_sdk.backend import Backend, C
from eso_sdk.errors import not_json, unsupported
from eso_sdk.extract import NotAnObjectError, json_map
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    DeleteItem,
    FindQuery,
    Found,
    Generated,
    GenerateRequest,
    Heartbeat,
    Operation,
    PushItem,
    PushOutcome,
    RemoteRef,
    SourceSecret,
    Validation,
    ValueMetadata,
    WatchItem,
)

# --- The results of author code, and their checks: a value with its metadata, an existence check, a push -------------
#
# Authors may not run a type checker, so each type is checked here. An error names the method and the type,
# never the content. Unchecked, a wrong type could become a wrong value: `bytes(7)` is seven zeros.


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Value:
    """One remote value and the backend's metadata about it.

    If the metadata contains a version, readers that already have that version do not receive the value again.
    """

    raw: SecretBytes
    metadata: ValueMetadata = field(default_factory=ValueMetadata)

    @classmethod
    def of(cls, raw: bytes | SecretBytes, *, version: str = "") -> Value:
        """Make a value whose only metadata is its version."""
        return cls(secret(raw, "Value.of"), ValueMetadata(provider_version=version))


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a key exists, and its version."""

    exists: bool
    version: str = ""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The outcome of a push, and the version it created."""

    outcome: PushOutcome
    version: str = ""


# --- conversion of responses -----------------------------------------------------------------------------------------


def secret(raw: object, method: str) -> SecretBytes:
    """Wrap bytes so that they cannot be printed."""
    if isinstance(raw, SecretBytes):
        return raw
    if not isinstance(raw, (bytes, bytearray, memoryview)):
        raise unfit(method, raw, "bytes")
    return SecretBytes(raw)


def secrets(result: object, method: str) -> dict[str, SecretBytes]:
    """Wrap named values so that they cannot be printed."""
    if not isinstance(result, Mapping):
        raise unfit(method, result, "a mapping of names to bytes")
    if strange := [name for name in result if not isinstance(name, str)]:
        raise unfit(method, strange[0], "str as the name of a value")
    return {name: secret(raw, method) for name, raw in result.items()}


def value(result: object, method: str = "get") -> Value:
    """Convert every accepted form of response to a `Value`."""
    if isinstance(result, Value):
        return replace(result, raw=secret(result.raw, method))
    return Value(secret(result, method))


def results_of(returned: object, count: int, method: str = "get_many") -> Sequence[Any]:
    """Check the result of `get_many`, `push_many` or `delete_many`: one entry for each item."""
    one, many = ("reference", "references") if method == "get_many" else ("item", "items")
    if not isinstance(returned, Sequence) or isinstance(returned, (str, bytes)):
        raise unfit(method, returned, f"a list with one result for each {one}, in their order")
    if len(returned) != count:
        raise ProviderError(
            ErrorReason.INTERNAL,
            f"{method} returned {len(returned)} results for {count} {many}; return one for each, in their order",
        )
    return returned


def check_of(result: object) -> Check:
    if not isinstance(result, Check):
        raise unfit("check", result, "Check")
    return result


def push_of(result: object) -> Pushed:
    outcome, version = (result.outcome, result.version) if isinstance(result, Pushed) else (result, "")
    if not isinstance(outcome, PushOutcome):
        raise unfit("push", outcome, "PushOutcome or Pushed")
    return Pushed(outcome, version)


def existed_of(result: object) -> bool:
    """Return whether a deletion found something; None counts as False."""
    if result is not None and not isinstance(result, bool):
        raise unfit("delete", result, "bool")
    return bool(result)


def found_of(result: object) -> Found:
    if not isinstance(result, Found):
        raise unfit("find", result, "Found")
    if not isinstance(result.key, str):
        raise unfit("find", result.key, "str as the key of Found")
    return replace(result, value=secret(result.value, "find"))


def stream_of(result: AsyncIterator[T], method: str) -> AsyncIterator[T]:
    """Check that a method yields. A method that returns instead gives a coroutine."""
    if not hasattr(result, "__aiter__"):
        if close := getattr(result, "close", None):
            close()
        raise unfit(method, result, 'an async generator: use "yield"')
    return result


def generated_of(result: object) -> Generated:
    if isinstance(result, Generated):
        return replace(result, data=secrets(result.data, "generate"))
    return Generated(secrets(result, "generate"))


def validation_of(result: object) -> Validation:
    if not isinstance(result, Validation):
        raise unfit("validate", result, "Validation")
    return result


def warnings_of(result: object) -> tuple[str, ...]:
    if not isinstance(result, Sequence) or isinstance(result, str):
        raise unfit("check_config", result, "a tuple of warnings")
    return tuple(result)


def unfit(method: str, result: object, expected: str) -> ProviderError:
    """Return the error for a response of the wrong type."""
    return ProviderError(
        ErrorReason.INTERNAL,
        f"the provider failed: {method} returned {type(result).__name__}; it must return {expected}",
    )


# --- The base class of stores ----------------------------------------------------------------------------------------


GetReturn = bytes | SecretBytes | Value
F = TypeVar("F", bound=Callable[..., Any])

_OPERATIONS: Final = "_eso_operations"
_PROMISES: Final = "_eso_promises"
_FINDS: Final = frozenset({Operation.FIND_BY_NAME, Operation.FIND_BY_TAGS, Operation.FIND_BY_PATH})


def finds(*by: Literal["name", "tags", "path"]) -> Callable[[F], F]:
    """Declare on `find` which parts of a query it understands. Without this mark: the name."""
    return _marks({Operation(f"FIND_BY_{part.upper()}") for part in by})


def reads(*more: Literal["metadata", "not_found"]) -> Callable[[F], F]:
    """Declare on `get` or `get_many` that it fetches metadata, or reliably tells an absent key from other failures."""
    names = {"metadata": Operation.METADATA_FETCH, "not_found": Operation.NOT_FOUND_SEMANTICS}
    return _marks({names[part] for part in more})


def pushes(*more: Literal["whole_secret", "if_absent", "if_version"]) -> Callable[[F], F]:
    """Declare on `push` that it writes whole Secrets, creates absent keys atomically, or compares expected versions."""
    names = {"whole_secret": Operation.PUSH_WHOLE_SECRET, "if_absent": Operation.PUSH_IF_ABSENT}
    return _marks({names[part] for part in more if part in names}, frozenset(more))


class Store(Backend[C]):
    """One opened store. Methods run concurrently, up to the kind's `concurrency`."""

    async def get(self, ref: RemoteRef) -> GetReturn:
        """Return the value of a remote reference. A store that overrides `get_many` need not override this."""
        if not reads_batches(type(self)):
            raise unsupported(f'this store reads no values; "{ref.key}" was asked for')
        (result,) = results_of(await self.get_many([ref]), 1)
        if isinstance(result, Exception):
            raise result
        return value(result, "get_many")

    async def get_map(self, ref: RemoteRef) -> Mapping[str, bytes | SecretBytes]:
        """Return all properties of a remote key. By default: the members of the JSON object that `get` returns."""
        return members_of(value(await self.get(ref)).raw, ref.key)

    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[GetReturn | ProviderError]:
        """Read many references at once: return one response or error for each, in their order.

        If one reference fails, put its error in its place. An exception fails all of them.
        """
        raise NotImplementedError

    def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield every key that matches, with its value. The SDK makes the pages.

        If the backend says that the root of the search does not exist, raise `MissingPathError` before the first match:
        deletion policies act on it as they do on a missing key.
        """
        del query
        raise unsupported("this store does not find keys")

    async def check(self, ref: RemoteRef) -> Check:
        """Tell whether a key exists, without reading its value."""
        raise unsupported(f'this store does not check keys; "{ref.key}" was asked for')

    async def push(self, item: PushItem, source: SourceSecret) -> PushOutcome | Pushed:
        """Write one value. A store that overrides `push_many` need not override this."""
        del source
        raise unsupported(f'this store writes nothing; "{item.remote.key}" was pushed')

    async def push_many(
        self, items: Sequence[PushItem], source: SourceSecret
    ) -> Sequence[PushOutcome | Pushed | ProviderError]:
        """Write several properties of one remote key together: one outcome or error for each item, in their order.

        Override it where every write makes a version: twelve properties are then one version. All items name the same
        remote key. An exception fails all of them.
        """
        raise NotImplementedError

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        """Remove several properties of one remote key together, as `push_many` writes them."""
        raise NotImplementedError

    async def delete(self, item: DeleteItem) -> bool:
        """Remove one value, and return whether it existed. An absent key is not an error."""
        raise unsupported(f'this store deletes nothing; "{item.remote.key}" was to be deleted')

    def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Yield changes of the backend, from the resume token on. Called again when the items change; never returns.

        Begin with a `Heartbeat` that carries a token, so that a stream without changes can be resumed too.
        """
        del items, resume_token
        raise unsupported("this store does not report changes")

    async def acknowledged(self, resume_token: str) -> None:
        """Drop the events up to this token: the operator has read what they announced.

        Opening a stream with a token is not an acknowledgement. The token may come from an earlier stream or another
        process; an unknown token is not an error. An exception here is logged and the stream continues: the next token
        covers everything before it.
        """


class ReadsMany(Protocol):
    """A part of a store that reads values; `Store.get_many` says what it returns."""

    async def read(self, refs: Sequence[RemoteRef]) -> Sequence[GetReturn | ProviderError]: ...


class Finds(Protocol):
    """A part of a store that finds keys."""

    def find(self, query: FindQuery) -> AsyncIterator[Found]: ...


class WritesMany(Protocol):
    """A part of a store that writes and deletes; all items of a call have the same key."""

    async def push(self, items: Sequence[PushItem]) -> Sequence[PushOutcome | Pushed | ProviderError]: ...

    async def delete(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]: ...


class DelegatingStore(Store[C]):
    """A store made of parts that `open` sets. The marks `reads`, `finds` and `pushes` go on the class."""

    reader: ReadsMany
    finder: Finds
    writer: WritesMany

    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[GetReturn | ProviderError]:
        return await self.reader.read(refs)

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        async for found in self.finder.find(query):
            yield found

    async def push_many(
        self, items: Sequence[PushItem], source: SourceSecret
    ) -> Sequence[PushOutcome | Pushed | ProviderError]:
        """Write all items of one key as one new version."""
        del source
        return await self.writer.push(items)

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        """Remove all items of one key at once."""
        return await self.writer.delete(items)


def members_of(raw: SecretBytes, key: str) -> Mapping[str, bytes]:
    """Return the members of the JSON object that a key holds."""
    try:
        return json_map(raw.reveal())
    except NotAnObjectError:
        raise not_json(key) from None


def store_operations(store: type[Store[Any]]) -> frozenset[Operation]:
    """Return the operations of a class: the methods that it overrides, and their marks."""
    found: set[Operation] = set(_marked(store))
    if _overrides(store, "get") or _overrides(store, "get_many"):
        found |= {Operation.GET, Operation.GET_MAP} | _marked(store.get) | _marked(store.get_many)
    if _overrides(store, "get_map"):
        found |= {Operation.GET_MAP}
    if _overrides(store, "find"):
        found |= _marked(store.find) or _FINDS & found or {Operation.FIND_BY_NAME}
    if _overrides(store, "push"):
        found |= {Operation.PUSH} | _marked(store.push)
    if _overrides(store, "push_many"):
        found |= {Operation.PUSH, Operation.PUSH_GROUPED} | _marked(store.push) | _marked(store.push_many)
    if _overrides(store, "delete_many"):
        found |= {Operation.DELETE}
    plain = {"check": Operation.EXISTS, "delete": Operation.DELETE, "subscribe": Operation.SUBSCRIBE}
    return frozenset(found | {operation for name, operation in plain.items() if _overrides(store, name)})


def promises(store: type[Store[Any]]) -> frozenset[str]:
    """Return the marks of `push`. Expected versions have a mark, but no operation."""
    found: frozenset[str] = getattr(store.push, _PROMISES, frozenset())
    return found | getattr(store.push_many, _PROMISES, frozenset()) | getattr(store, _PROMISES, frozenset())


def reads_batches(store: type[Store[Any]]) -> bool:
    return _overrides(store, "get_many")


def makes_maps(store: type[Store[Any]]) -> bool:
    """Return whether a class has its own method for maps, instead of deriving them from the values it reads."""
    return _overrides(store, "get_map")


def writes_groups(store: type[Store[Any]]) -> bool:
    return _overrides(store, "push_many")


def deletes_groups(store: type[Store[Any]]) -> bool:
    return _overrides(store, "delete_many")


def _overrides(store: type[Store[Any]], method: str) -> bool:
    return getattr(store, method) is not getattr(Store, method)


def _marks(operations: set[Operation], promises: frozenset[str] = frozenset()) -> Callable[[F], F]:
    def mark(method: F) -> F:
        # A class may have several marks.
        setattr(method, _OPERATIONS, getattr(method, _OPERATIONS, frozenset()) | operations)
        setattr(method, _PROMISES, getattr(method, _PROMISES, frozenset()) | promises)
        return method

    return mark


def _marked(method: Callable[..., Any]) -> frozenset[Operation]:
    return getattr(method, _OPERATIONS, frozenset())


# --- The base class of generators ------------------------------------------------------------------------------------


class Generator(Backend[C]):
    """Generates values. Override `cleanup` if generation leaves something at the backend."""

    async def generate(self, request: GenerateRequest) -> Generated | Mapping[str, bytes | SecretBytes]:
        """Return new values; with a state if they need cleanup."""
        raise NotImplementedError

    async def cleanup(self, state: SecretBytes) -> bool | None:
        """Remove what `generate` created; return False if it was already gone. Called again after a failure."""
        raise NotImplementedError

    async def cleanup_lost(self, idempotency_key: str) -> bool | None:
        """Remove what `generate` created under this key, if anything: its response, with the state, was lost.

        Override it if the backend can find that, for example by a name that contains the key.
        """
        del idempotency_key
        message = "this generator cannot tell what a call made whose answer got lost"
        raise ProviderError(ErrorReason.UNSUPPORTED_OPERATION, message)


def generator_operations(generator: type[Generator[Any]]) -> frozenset[Operation]:
    if generator.generate is Generator.generate:
        raise TypeError(f"{generator.__name__} does not override generate")
    cleans = generator.cleanup is not Generator.cleanup
    return frozenset({Operation.GENERATE, Operation.CLEANUP} if cleans else {Operation.GENERATE})
