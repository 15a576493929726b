"""Cluster: every verb of the API on every kind, for the HTTP layer and for the controllers of the server itself.

Each write is decided without an await (see storage), then waits for its commit. Every failure is a StatusError.
Who may do what is not asked here: the HTTP layer authenticates and authorizes before it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from kuberun.clock import Clock
from kuberun.meta import JsonObject
from localkube.cluster.catalog import Catalog
from localkube.cluster.tokens import Tokens
from localkube.cluster.watches import Watch
from localkube.model import DeleteOptions, ListQuery, ListResult, ServedKind, User, WatchQuery, WriteOptions, Written

PatchType = Literal["json", "merge", "strategic", "apply"]
Handler = Callable[[JsonObject, User], JsonObject]
"""Answers a create of a kind that is not stored (reviews): from the object and its user to the object with status."""


class Cluster:
    """`async with Cluster(...)` opens the store, creates what every cluster has and runs the controllers."""

    catalog: Catalog
    tokens: Tokens

    def __init__(self, data_dir: Path | None, *, clock: Clock) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def answer(self, storage_key: str, handler: Handler) -> None:
        """Register the handler of a kind that is not stored, such as subjectaccessreviews.authorization.k8s.io."""

    async def get(self, kind: ServedKind, namespace: str, name: str, *, resource_version: str = "") -> JsonObject: ...

    async def list(self, kind: ServedKind, query: ListQuery) -> ListResult: ...

    async def create(
        self,
        kind: ServedKind,
        namespace: str,
        obj: JsonObject,
        options: WriteOptions,
        *,
        name: str = "",
        subresource: str = "",
        duplicates: Sequence[str] = (),
    ) -> Written:
        """With a name and the subresource `token`: a TokenRequest. `obj` belongs to the cluster from here on."""

    async def update(
        self,
        kind: ServedKind,
        namespace: str,
        name: str,
        obj: JsonObject,
        options: WriteOptions,
        *,
        subresource: str = "",
        duplicates: Sequence[str] = (),
    ) -> Written: ...

    async def patch(
        self,
        kind: ServedKind,
        namespace: str,
        name: str,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions,
        *,
        subresource: str = "",
        duplicates: Sequence[str] = (),
    ) -> Written: ...

    async def delete(self, kind: ServedKind, namespace: str, name: str, options: DeleteOptions) -> JsonObject:
        """The object if it still exists (finalizers) or its kind returns what it deletes, else a Status of success."""

    async def delete_collection(self, kind: ServedKind, query: ListQuery, options: DeleteOptions) -> ListResult: ...

    def watch(self, kind: ServedKind, query: WatchQuery) -> Watch:
        """Bad options raise here; 410 and other trouble of a running watch raise from the iteration.

        The Watch is an async iterator of WatchEvent and must be closed (`async with` or `close()`).
        """
