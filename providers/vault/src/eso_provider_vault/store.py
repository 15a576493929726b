"""An opened store: the key/value engine that either block describes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

from eso_api.stores.openbao import OpenBaoProvider
from eso_api.stores.vault import VaultProvider
from eso_provider_vault.api import Api
from eso_provider_vault.auth.choice import check_auth, open_tokens
from eso_provider_vault.connection import Connection, connect
from eso_provider_vault.finding import Finder
from eso_provider_vault.mounts import Mounts
from eso_provider_vault.reading import Question, Reader, Secret, value_in
from eso_provider_vault.settings import settings_of
from eso_provider_vault.tokens import TokenSource
from eso_provider_vault.validation import examined
from eso_provider_vault.watching import Watcher
from eso_provider_vault.writing import Writer
from eso_sdk.batches import side_by_side
from eso_sdk.provider import Check, Pushed, Store, Value, finds, pushes, reads
from eso_wire.errors import ProviderError
from eso_wire.values import (
    ChangeEvent,
    DeleteItem,
    FindQuery,
    Found,
    Heartbeat,
    PushItem,
    RemoteRef,
    SourceSecret,
    Validation,
    WatchItem,
)

C = TypeVar("C", VaultProvider, OpenBaoProvider)

CONCURRENCY: Final = 32
"""Requests to one server at a time, for each session."""


class KvStore(Store[C]):
    """One key/value engine. `VaultStore` and `OpenBaoStore` differ only in the block that configures them."""

    @classmethod
    def check_config(cls, config: C) -> tuple[str, ...]:
        settings_of(config)
        return check_auth(config)

    async def open(self) -> None:
        connection = connect(self, self.config)
        self.api = Api(connection, self.token_source(connection), observe=self.observe, clock=self.clock)
        self.mounts = Mounts(self.api)
        self.reader = Reader(self.api, self.mounts)
        self.finder = Finder(self.api, self.mounts, self.reader)
        self.writer = Writer(self.api, self.mounts)
        self.watcher = Watcher(self.api, self.finder)
        self._requests = asyncio.Semaphore(CONCURRENCY)

    def token_source(self, connection: Connection) -> TokenSource:
        """Choose the login of the configuration."""
        return open_tokens(self, self.config, connection)

    async def close(self) -> None:
        if hasattr(self, "api"):
            await self.api.close()

    async def validate(self) -> Validation:
        return await examined(self.api, self.mounts, self.watcher, self.OPERATIONS)

    # --- reading -----------------------------------------------------------------------------------------------------

    @reads("metadata", "not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        """Read every key and version of the batch once."""
        asked: dict[Question, str] = {}
        questions: list[Question | ProviderError] = []
        for ref in refs:
            try:
                question = self.reader.question(ref)
            except ProviderError as wrong:
                questions.append(wrong)
                continue
            asked.setdefault(question, ref.key)
            questions.append(question)
        answers = await self._answers(asked)
        return [
            await _value(found if isinstance(found, ProviderError) else answers[found], ref)
            for found, ref in zip(questions, refs, strict=True)
        ]

    async def _answers(self, asked: dict[Question, str]) -> dict[Question, Secret | ProviderError]:
        async def answer(question: Question) -> Secret | ProviderError:
            try:
                return await self.reader.answer(question, asked[question])
            except ProviderError as failed:
                return failed

        def late(_question: Question, error: ProviderError) -> ProviderError:
            return error

        questions = tuple(asked)
        answers = await side_by_side(questions, answer, late=late, gate=self._requests, clock=self.clock)
        return dict(zip(questions, answers, strict=True))

    async def check(self, ref: RemoteRef) -> Check:
        """Check whether the key exists and, if the reference names a property, has it."""
        try:
            found = await value_in(await self.reader.answer(self.reader.question(ref), ref.key), ref)
        except ProviderError as missing:
            if missing.is_not_found:
                return Check(exists=False)
            raise
        return Check(exists=True, version=found.metadata.provider_version)

    @finds("name", "tags", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        async for found in self.finder.find(query):
            yield found

    # --- writing -----------------------------------------------------------------------------------------------------

    @pushes("whole_secret", "if_absent", "if_version")
    async def push_many(self, items: Sequence[PushItem], source: SourceSecret) -> Sequence[Pushed | ProviderError]:
        """Write all items of one key as one new version."""
        del source
        return await self.writer.push(items)

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        """Remove all items of one key at once."""
        return await self.writer.delete(items)

    # --- changes -----------------------------------------------------------------------------------------------------

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        async for event in self.watcher.subscribe(items, resume_token):
            yield event


class VaultStore(KvStore[VaultProvider]):
    """A store of `spec.provider.vault`, `Vault` or `ClusterVault`."""


class OpenBaoStore(KvStore[OpenBaoProvider]):
    """A store of `spec.provider.openBao`, `OpenBao` or `ClusterOpenBao`."""


async def _value(answer: Secret | ProviderError, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(answer, ProviderError):
        return answer
    try:
        return await value_in(answer, ref)
    except ProviderError as missing:
        return missing
