"""A store, as its author writes it: override what the backend can do; what is overridden is what the kind offers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from eso_api.values import SecretBytes
from eso_sdk.answers import Check, Pushed, Value, answers, value
from eso_sdk.backend import Backend, C
from eso_sdk.errors import not_json, unsupported
from eso_sdk.extract import NotAnObjectError, json_map
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

Answer = bytes | SecretBytes | Value
F = TypeVar("F", bound=Callable[..., Any])

_OPERATIONS: Final = "_eso_operations"
_PROMISES: Final = "_eso_promises"


def finds(*by: Literal["name", "tags", "path"]) -> Callable[[F], F]:
    """On `find`: which parts of a query it understands. Without it: name."""
    return _marks({Operation(f"FIND_BY_{part.upper()}") for part in by})


def reads(*more: Literal["metadata", "not_found"]) -> Callable[[F], F]:
    """On `get` or `get_many`: it also fetches metadata as a value, or reliably tells "absent" from other failures."""
    names = {"metadata": Operation.METADATA_FETCH, "not_found": Operation.NOT_FOUND_SEMANTICS}
    return _marks({names[part] for part in more})


def pushes(*more: Literal["whole_secret", "if_absent", "if_version"]) -> Callable[[F], F]:
    """On `push`: it also writes whole Secrets, creates atomically only what is absent, or honours expected versions."""
    names = {"whole_secret": Operation.PUSH_WHOLE_SECRET, "if_absent": Operation.PUSH_IF_ABSENT}
    return _marks({names[part] for part in more if part in names}, frozenset(more))


class Store(Backend[C]):
    """One opened store. Methods run concurrently, up to the kind's `concurrency`."""

    async def get(self, ref: RemoteRef) -> Answer:
        """The value behind a remote reference. A store that reads in batches need not override it."""
        if not reads_batches(type(self)):
            raise unsupported(f'this store reads no values; "{ref.key}" was asked for')
        (answer,) = answers(await self.get_many([ref]), 1)
        if isinstance(answer, Exception):
            raise answer
        return value(answer, "get_many")

    async def get_map(self, ref: RemoteRef) -> Mapping[str, bytes | SecretBytes]:
        """All properties of a remote key. Unless overridden: the members of the JSON object that `get` gives."""
        raw = value(await self.get(ref)).raw
        try:
            return json_map(raw.reveal())
        except NotAnObjectError:
            raise not_json(ref.key) from None

    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Answer | ProviderError]:
        """For backends that read in batches: one answer or error for each reference, in their order.

        What is wrong with one reference is an error in its place. What is raised here fails all of them.
        """
        raise NotImplementedError

    def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Everything that matches, one at a time; pages are made by the server."""
        del query
        raise unsupported("this store does not find keys")

    async def check(self, ref: RemoteRef) -> Check:
        """Whether a key is there, without reading its value."""
        raise unsupported(f'this store does not check keys; "{ref.key}" was asked for')

    async def push(self, item: PushItem, source: SourceSecret) -> PushOutcome | Pushed:
        """Write one value. A store that overrides `push_many` need not override it."""
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
        """Remove one value; says whether it was there. What is not there is no error."""
        raise unsupported(f'this store deletes nothing; "{item.remote.key}" was to be deleted')

    def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Changes at the backend, from the resume token on. Called anew when the items change; never ends by itself.

        Begin with a `Heartbeat` that carries a token: a stream on which nothing happens can then be gone on with too.
        """
        del items, resume_token
        raise unsupported("this store does not report changes")

    async def acknowledged(self, resume_token: str) -> None:
        """What happened up to this token has been read since: a backend that keeps events until taken may drop them.

        Opening a stream with a token says nothing of the kind. The token may be one of an earlier stream, of another
        process, or forgotten; one that is not known is no error. What fails here is logged and the stream goes on: the
        next token is for everything before it.
        """


def store_operations(store: type[Store[Any]]) -> frozenset[Operation]:
    """What a class does: what it overrides, and what its methods are marked with."""
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
    """What `push` is marked with, expected versions included, which have no operation of their own."""
    found: frozenset[str] = getattr(store.push, _PROMISES, frozenset())
    return found | getattr(store.push_many, _PROMISES, frozenset())


def reads_batches(store: type[Store[Any]]) -> bool:
    return _overrides(store, "get_many")


def writes_groups(store: type[Store[Any]]) -> bool:
    return _overrides(store, "push_many")


def deletes_groups(store: type[Store[Any]]) -> bool:
    return _overrides(store, "delete_many")


def _overrides(store: type[Store[Any]], method: str) -> bool:
    return getattr(store, method) is not getattr(Store, method)


def _marks(operations: set[Operation], kept: frozenset[str] = frozenset()) -> Callable[[F], F]:
    def mark(method: F) -> F:
        setattr(method, _OPERATIONS, frozenset(operations))
        setattr(method, _PROMISES, kept)
        return method

    return mark


def _marked(method: Callable[..., Any]) -> frozenset[Operation]:
    return getattr(method, _OPERATIONS, frozenset())
