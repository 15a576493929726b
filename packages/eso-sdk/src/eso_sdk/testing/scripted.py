"""A provider scripted by tests: every method calls a function of its `Script`.

script = Script.new(); script.get = lambda store, ref: ...
context = call_context(Scripted, {"script": script.name})
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from eso_api.marks import audiences
from eso_api.references import CaProvider, SecretKeySelector, SecretSelector, ServiceAccountSelector
from eso_api.shapes import Fragment
from eso_api.values import SecretBytes
from eso_sdk.errors import not_found
from eso_sdk.extract import property_in
from eso_sdk.matching import Matcher
from eso_sdk.operations import closing
from eso_sdk.provider import Provider, generator_kind, store_kind
from eso_sdk.store import Check, Generator, GetReturn, Pushed, Store, finds, pushes, reads
from eso_wire.values import (
    ChangeEvent,
    DeleteItem,
    FindQuery,
    Found,
    Generated,
    GenerateRequest,
    PushItem,
    PushOutcome,
    RemoteRef,
    SourceSecret,
    Validation,
    ValidationState,
    WatchItem,
)


class ScriptedConfig(Fragment, frozen=True, kw_only=True):
    """The name of a script, and one reference of every kind."""

    script: str
    """Name of the script."""
    token_ref: SecretKeySelector | None = None
    """A key of a Secret."""
    account_ref: Annotated[ServiceAccountSelector, audiences("backend")] | None = None
    """A service account."""
    whole_ref: SecretSelector | None = None
    """A whole Secret."""
    ca_provider: CaProvider | None = None
    """A CA bundle."""
    more: list[SecretKeySelector] = []  # noqa: RUF012 - msgspec gives every object one of its own
    """References in a list."""
    by_name: dict[str, SecretKeySelector] = {}  # noqa: RUF012 - msgspec gives every object one of its own
    """References in a map."""


@dataclass
class Script:
    """The behaviour of the scripted kinds. A test replaces the steps it is about."""

    name: str
    values: dict[str, bytes] = field(default_factory=dict, repr=False)
    log: list[str] = field(default_factory=list)
    """The methods that were called."""
    open: Callable[[Any], Awaitable[None]] | None = None
    close: Callable[[Any], Awaitable[None]] | None = None
    get: Callable[[Any, RemoteRef], Awaitable[GetReturn]] | None = None
    find: Callable[[Any, FindQuery], AsyncIterator[Found]] | None = None
    push: Callable[[Any, PushItem], Awaitable[PushOutcome | Pushed]] | None = None
    validate: Callable[[Any], Awaitable[Validation]] | None = None
    subscribe: Callable[[Any, Sequence[WatchItem], str], AsyncIterator[ChangeEvent]] | None = None
    acknowledged: Callable[[Any, str], Awaitable[None]] | None = None
    generate: Callable[[Any, GenerateRequest], Awaitable[Generated | Mapping[str, bytes]]] | None = None
    finds_by_key: bool = False
    """Whether generators find their values by the idempotency key of the call."""

    ALL: ClassVar[dict[str, Script]] = {}

    @classmethod
    def new(cls, **steps: Any) -> Self:
        script = cls(uuid.uuid4().hex, **steps)
        cls.ALL[script.name] = script
        return script


@store_kind(kind="Scripted", plural="scripteds", cluster="ClusterScripted", v1_key="scripted", concurrency=4)
class Scripted(Store[ScriptedConfig]):
    """A store with every operation."""

    @property
    def script(self) -> Script:
        return Script.ALL[self.config.script]

    async def open(self) -> None:
        self.script.log.append("open")
        if self.script.open is not None:
            await self.script.open(self)

    async def close(self) -> None:
        self.script.log.append("close")
        if self.script.close is not None:
            await self.script.close(self)

    @reads("metadata", "not_found")
    async def get(self, ref: RemoteRef) -> GetReturn:
        self.script.log.append("get")
        if self.script.get is not None:
            return await self.script.get(self, ref)
        if ref.key not in self.script.values:
            raise not_found(ref.key)
        return await property_in(self.script.values[ref.key], ref)

    @finds("name", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        if self.script.find is not None:
            async with closing(self.script.find(self, query)) as matches:
                async for found in matches:
                    yield found
            return
        matcher = Matcher(query)
        for key, value in sorted(self.script.values.items()):
            if await matcher.accepts(key):
                yield Found(key, SecretBytes(value))

    async def check(self, ref: RemoteRef) -> Check:
        if ref.key not in self.script.values:
            raise not_found(ref.key)
        return Check(exists=True, version="1")

    @pushes("if_absent")
    async def push(self, item: PushItem, _: SourceSecret) -> PushOutcome | Pushed:
        self.script.log.append(f"push {self.call.idempotency_key}")
        if self.script.push is not None:
            return await self.script.push(self, item)
        assert isinstance(item.payload, SecretBytes)  # noqa: S101 - whole Secrets are not offered
        self.script.values[item.remote.key] = item.payload.reveal()
        return Pushed(PushOutcome.CREATED, "1")

    async def delete(self, item: DeleteItem) -> bool:
        if item.remote.key not in self.script.values:
            raise not_found(item.remote.key)
        del self.script.values[item.remote.key]
        return True

    async def validate(self) -> Validation:
        self.script.log.append("validate")
        if self.script.validate is not None:
            return await self.script.validate(self)
        return Validation(ValidationState.READY)

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent]:
        self.script.log.append(f"subscribe {len(items)} {resume_token}".strip())
        if self.script.subscribe is not None:
            async with closing(self.script.subscribe(self, items, resume_token)) as events:
                async for event in events:
                    yield event

    async def acknowledged(self, resume_token: str) -> None:
        if self.script.acknowledged is not None:
            await self.script.acknowledged(self, resume_token)


@store_kind(kind="ReadOnly", plural="readonlies")
class ReadOnly(Store[ScriptedConfig]):
    """A store that only reads, in batches."""

    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[GetReturn | Any]:
        values = Script.ALL[self.config.script].values
        return [values[ref.key] if ref.key in values else not_found(ref.key) for ref in refs]


@generator_kind(kind="ScriptedMaker", plural="scriptedmakers")
class ScriptedMaker(Generator[ScriptedConfig]):
    """A generator with state."""

    async def generate(self, request: GenerateRequest) -> Generated | Mapping[str, bytes | SecretBytes]:
        script = Script.ALL[self.config.script]
        if script.generate is not None:
            return await script.generate(self, request)
        return Generated({"made": SecretBytes(b"value")}, state=SecretBytes(b'{"id":1}'))

    async def cleanup(self, state: SecretBytes) -> bool:
        script = Script.ALL[self.config.script]
        first = "cleanup" not in script.log
        script.log.append("cleanup")
        return first and bool(state)

    async def cleanup_lost(self, idempotency_key: str) -> bool | None:
        script = Script.ALL[self.config.script]
        if not script.finds_by_key:
            return await super().cleanup_lost(idempotency_key)
        script.log.append(f"cleanup lost {idempotency_key}")
        return True


@generator_kind(kind="PlainMaker", plural="plainmakers")
class PlainMaker(Generator[ScriptedConfig]):
    """A generator without state."""

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes | SecretBytes]:
        return {"key": request.idempotency_key.encode()}


SCRIPTED = Provider(name="scripted", version="1.2.3", kinds=(Scripted, ReadOnly, ScriptedMaker, PlainMaker))
