"""Reading objects. References to one object and version share one call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from eso_api.values import SecretBytes
from eso_provider_azure import objects
from eso_provider_azure.api import Api
from eso_provider_azure.names import Kind, Name
from eso_provider_azure.objects import Stored
from eso_provider_azure.properties import metadata_map, metadata_of, value_of
from eso_sdk.batches import side_by_side
from eso_sdk.errors import invalid_request
from eso_sdk.provider import Check, Value
from eso_sdk.store import members_of
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import MetadataPolicy, RemoteRef

Question = tuple[Name, str]
"""An object and the version asked for; empty for the current one."""
Answer = Stored | ProviderError

_ABSENT: Final = frozenset({ErrorReason.SECRET_NOT_FOUND, ErrorReason.VERSION_NOT_FOUND})


class Reader:
    """Reads the objects of one session."""

    def __init__(self, api: Api, gate: asyncio.Semaphore) -> None:
        self._api = api
        self._gate = gate

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference, in order."""
        questions = [_question(ref) for ref in refs]
        asked = list(dict.fromkeys(question for question in questions if not isinstance(question, ProviderError)))
        answers = await self.answers(asked)
        return [
            question if isinstance(question, ProviderError) else await _value(answers[question], question[0], ref)
            for question, ref in zip(questions, refs, strict=True)
        ]

    async def read_map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        """Return the members of a secret, or its tags and times."""
        name = Name.parse(ref.key)
        if name.kind is not Kind.SECRET:
            raise invalid_request(f'"{ref.key}" cannot be extracted: a {name.kind.word} has no members')
        stored = await self.one(name, ref.version)
        if ref.metadata_policy is MetadataPolicy.FETCH:
            return await metadata_map(stored, name, ref)
        return members_of(SecretBytes(await value_of(stored, name, ref)), ref.key)

    async def check(self, ref: RemoteRef) -> Check:
        """Tell whether a reference leads to a value."""
        (found,) = await self.read([ref])
        if isinstance(found, ProviderError):
            raise found
        return Check(exists=True, version=found.metadata.provider_version)

    async def answers(self, asked: Sequence[Question]) -> dict[Question, Answer]:
        """Read many objects side by side."""
        found = await side_by_side(
            asked, self._one_or_error, late=lambda _, error: error, gate=self._gate, clock=self._api.clock
        )
        return dict(zip(asked, found, strict=True))

    async def one(self, name: Name, version: str = "") -> Stored:
        """Read one object."""
        vault, wanted = self._api.vault, version or None
        match name.kind:
            case Kind.SECRET:
                asked = self._api.asked("GetSecret", name, version)
                return objects.secret(await self._api.call(asked, lambda: vault.secrets.get_secret(name.name, wanted)))
            case Kind.KEY:
                asked = self._api.asked("GetKey", name, version)
                return objects.key(await self._api.call(asked, lambda: vault.keys.get_key(name.name, wanted)))
            case Kind.CERTIFICATE:
                asked = self._api.asked("GetCertificate", name, version)
                certificates = vault.certificates
                if version:
                    found = await self._api.call(
                        asked, lambda: certificates.get_certificate_version(name.name, version)
                    )
                else:
                    found = await self._api.call(asked, lambda: certificates.get_certificate(name.name))
                return objects.certificate(found)

    async def current(self, name: Name) -> Stored | None:
        """Return the present object for a write; None if there is none."""
        try:
            return await self.one(name)
        except ProviderError as failed:
            if failed.reason not in _ABSENT:
                raise
            return None

    async def _one_or_error(self, question: Question) -> Answer:
        try:
            return await self.one(*question)
        except ProviderError as failed:
            return failed


def _question(ref: RemoteRef) -> Question | ProviderError:
    try:
        return Name.parse(ref.key), ref.version
    except ProviderError as refused:
        return refused


async def _value(answer: Answer, name: Name, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(answer, ProviderError):
        return answer
    try:
        if ref.metadata_policy is MetadataPolicy.FETCH:
            # Tags change without a new version, so the version does not tell whether they did.
            return Value(SecretBytes(await metadata_of(answer, ref)))
        return Value(SecretBytes(await value_of(answer, name, ref)), answer.metadata)
    except ProviderError as missing:
        return missing
