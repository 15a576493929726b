"""The base class of stores: the methods that a class overrides are the operations of its kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from eso_api.values import SecretBytes
from eso_sdk.backend import Backend, C
from eso_sdk.errors import not_json, unsupported
from eso_sdk.extract import NotAnObjectError, json_map
from eso_sdk.results import Check, Pushed, Value, results_of, value
from eso_wire.errors import ProviderError
from eso_wire.values import (
    ChangeEvent,
    DeleteItem,
    FindQuery,
    Found,
    Heartbeat,
    Operation,
    PushItem,
    PushOutcome,
    RemoteRef,
    SourceSecret,
    WatchItem,
)

GetReturn = bytes | SecretBytes | Value
F = TypeVar("F", bound=Callable[..., Any])

_OPERATIONS: Final = "_eso_operations"
_PROMISES: Final = "_eso_promises"


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


def members_of(raw: SecretBytes, key: str) -> Mapping[str, bytes]:
    """Return the members of the JSON object that a key holds."""
    try:
        return json_map(raw.reveal())
    except NotAnObjectError:
        raise not_json(key) from None


def store_operations(store: type[Store[Any]]) -> frozenset[Operation]:
    """Return the operations of a class: the methods that it overrides, and their marks."""
    found: set[Operation] = set()
    if _overrides(store, "get") or _overrides(store, "get_many"):
        found |= {Operation.GET, Operation.GET_MAP} | _marked(store.get) | _marked(store.get_many)
    if _overrides(store, "get_map"):
        found |= {Operation.GET_MAP}
    if _overrides(store, "find"):
        found |= _marked(store.find) or {Operation.FIND_BY_NAME}
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
    return found | getattr(store.push_many, _PROMISES, frozenset())


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
        setattr(method, _OPERATIONS, frozenset(operations))
        setattr(method, _PROMISES, promises)
        return method

    return mark


def _marked(method: Callable[..., Any]) -> frozenset[Operation]:
    return getattr(method, _OPERATIONS, frozenset())
