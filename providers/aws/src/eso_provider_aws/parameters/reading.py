"""Reading parameters: ten to a call if the identity may read batches, else one by one.

| request | call |
|---|---|
| several values, also of versions and labels | GetParameters, 10 parameters each |
| one value, or one that a batch did not return | GetParameter |
| `metadataPolicy: Fetch` | ListTagsForResource: the tags as a JSON object |
| whether a parameter exists | GetParameter without decryption |

GetParameters is refused as a whole if one of its parameters is denied or has a name that AWS does not accept. Then the
parameters are read one by one, and those at fault stay out of batches for an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_aws.api import Api
from eso_provider_aws.batching import NO_BATCH_SECONDS, Batching
from eso_provider_aws.errors import of_code
from eso_provider_aws.ownership import tags_of
from eso_provider_aws.parameters.names import Address, address_of
from eso_sdk.batches import side_by_side
from eso_sdk.errors import backend_error, unsupported
from eso_sdk.properties import part_of
from eso_sdk.provider import Check, Value
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import MetadataPolicy, RemoteRef, ValueMetadata
from kubebase.bounded import ExpiringDict

BATCH: Final = 10
MAX_APART: Final = 10_000
KIND: Final = "Parameter"
"""The resource type of a parameter in tag calls."""

_OF_ONE: Final = frozenset({ErrorReason.PERMISSION_DENIED, ErrorReason.INVALID_REQUEST})
"""Failures of a batch that one of its parameters may cause."""


@dataclass(frozen=True, slots=True)
class Question:
    """The content of one read. References with equal questions share the result."""

    address: Address
    metadata: bool = False

    @property
    def about(self) -> str:
        return about(str(self.address))


@dataclass(frozen=True, slots=True)
class Parameter:
    """One version of a parameter, or its tags."""

    value: bytes = field(repr=False)
    version: int = 0
    type: str = ""
    modified: datetime | None = None

    @classmethod
    def of(cls, told: dict[str, Any]) -> Parameter:
        modified = told.get("LastModifiedDate")
        return cls(told["Value"].encode(), told.get("Version", 0), told.get("Type", ""), modified)

    @property
    def metadata(self) -> ValueMetadata:
        # References to secrets of Secrets Manager have version 0, whatever their value is.
        return ValueMetadata(provider_version=str(self.version or ""), updated_at=self.modified)


Answer = Parameter | ProviderError


class Reader:
    """Reads the parameters of one session."""

    def __init__(self, api: Api, prefix: str, gate: asyncio.Semaphore) -> None:
        self.batching = Batching(api, "GetParameters", what="ten parameters")
        self._api = api
        self._prefix = prefix
        self._gate = gate
        self._apart: ExpiringDict[Question, None] = ExpiringDict(MAX_APART, api.clock)

    def key(self, key: str) -> str:
        """Return the parameter name of a remote key."""
        return f"{self._prefix}{key}"

    def question(self, ref: RemoteRef) -> Question:
        """Return the question of a reference. Tags have no versions."""
        if ref.metadata_policy is MetadataPolicy.FETCH:
            return Question(Address(address_of(self.key(ref.key)).name), metadata=True)
        return Question(address_of(self.key(ref.key), ref.version))

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference, in order."""
        questions = [self._question_or_error(ref) for ref in refs]
        asked = dict.fromkeys(question for question in questions if isinstance(question, Question))
        answers = await self.answers(asked)
        return [
            await _value(answers[question] if isinstance(question, Question) else question, ref)
            for question, ref in zip(questions, refs, strict=True)
        ]

    async def answers(self, asked: Iterable[Question]) -> dict[Question, Answer]:
        """Answer every question with as few calls as possible."""
        groups = self._groups(asked)

        async def answer(group: list[Question]) -> dict[Question, Answer]:
            return await (self._batch(group) if len(group) > 1 else self._one_by_one(group))

        def late(group: list[Question], error: ProviderError) -> dict[Question, Answer]:
            return dict.fromkeys(group, error)

        done = await side_by_side(groups, answer, late=late, gate=self._gate, clock=self._api.clock)
        return {question: found for part in done for question, found in part.items()}

    async def check(self, ref: RemoteRef) -> Check:
        """Tell whether a reference leads to a value. Only properties and tags need more than a look."""
        if ref.property or ref.metadata_policy is MetadataPolicy.FETCH:
            (found,) = await self.read([ref])
            if isinstance(found, ProviderError):
                raise found
            return Check(exists=True, version=found.metadata.provider_version)
        there = await self._one(self.question(ref), decrypted=False)
        return Check(exists=True, version=there.metadata.provider_version)

    async def current(self, name: str) -> Parameter:
        """Return the current value, for a push to compare with."""
        return await self._one(Question(Address(name)))

    async def tags(self, name: str) -> dict[str, str]:
        """Return the tags of a parameter."""
        told = await self._api.call("ListTagsForResource", about=about(name), ResourceType=KIND, ResourceId=name)
        return tags_of(told.get("TagList", ()))

    # --- batches -----------------------------------------------------------------------------------------------------

    def _groups(self, asked: Iterable[Question]) -> list[list[Question]]:
        """Return the questions grouped by call.

        A batch has at most one version of a parameter, because results are matched by name.
        """
        groups: list[list[Question]] = []
        batches: list[dict[str, Question]] = []
        for question in asked:
            if question.metadata or self.batching.is_denied or question in self._apart:
                groups.append([question])
                continue
            name = question.address.parameter
            room = (batch for batch in batches if len(batch) < BATCH and name not in batch)
            if (batch := next(room, None)) is None:
                batches.append(batch := {})
            batch[name] = question
        return [*(list(batch.values()) for batch in batches), *groups]

    async def _batch(self, group: list[Question]) -> dict[Question, Answer]:
        names = [str(question.address) for question in group]
        subject = f"{len(group)} parameters"
        try:
            told = await self._api.call("GetParameters", about=subject, Names=names, WithDecryption=True)
        except ProviderError as failed:
            if failed.reason not in _OF_ONE:
                return dict.fromkeys(group, failed)
            return await self._sorted_out(group, failed)
        found = {Address(each["Name"]).parameter: Parameter.of(each) for each in told.get("Parameters", ())}
        absent = frozenset(told.get("InvalidParameters", ()))
        return {
            question: found.get(question.address.parameter) or await self._missing(question, absent)
            for question in group
        }

    async def _missing(self, question: Question, absent: frozenset[str]) -> Answer:
        """Return the error for a question that a batch did not answer."""
        name = str(question.address)
        asked = self._api.asked("GetParameters", question.about)
        if name not in absent:
            return backend_error(f"{asked}: the service left it out of its answer to GetParameters")
        if question.address.selector or question.address.is_arn:
            # A batch does not report which is missing: the parameter, its version, or the permission to a shared one.
            return (await self._one_by_one([question]))[question]
        return of_code("ParameterNotFound", "", self._api.asked("GetParameter", question.about))

    async def _sorted_out(self, group: list[Question], failed: ProviderError) -> dict[Question, Answer]:
        """Read the parameters of a rejected batch one by one, and remember those that caused it."""
        found = await self._one_by_one(group)
        faulty = [question for question, answer in found.items() if _reason(answer) in _OF_ONE]
        for question in faulty:
            self._apart.put(question, None, NO_BATCH_SECONDS)
        answered = all(isinstance(answer, Parameter) or answer.is_not_found for answer in found.values())
        if answered and failed.reason is ErrorReason.PERMISSION_DENIED:
            self.batching.deny()
        return found

    # --- one by one --------------------------------------------------------------------------------------------------

    async def _one_by_one(self, group: list[Question]) -> dict[Question, Answer]:
        found: dict[Question, Answer] = {}
        for question in group:
            try:
                found[question] = await (self._tags(question) if question.metadata else self._one(question))
                self._apart.discard(question)
            except ProviderError as failed:
                found[question] = failed
        return found

    async def _one(self, question: Question, *, decrypted: bool = True) -> Parameter:
        try:
            return Parameter.of(await self._get(question.about, str(question.address), decrypted=decrypted))
        except ProviderError as failed:
            if failed.reason is ErrorReason.SECRET_NOT_FOUND and question.address.selector:
                raise await self._absence(question) from None
            raise

    async def _tags(self, question: Question) -> Parameter:
        try:
            tags = await self.tags(question.address.name)
        except ProviderError as failed:
            if failed.reason is ErrorReason.SECRET_NOT_FOUND:
                raise await self._absence(question) from None
            raise
        return Parameter(msgspec.json.encode(tags, order="sorted"))

    async def _absence(self, question: Question) -> ProviderError:
        """Tell a parameter that does not exist from one without that version, or whose tags cannot be listed."""
        name = question.address.name
        try:
            await self._get(about(name), name, decrypted=False)
        except ProviderError as failed:
            return failed
        asked = self._api.asked("GetParameter", question.about)
        if question.metadata:
            return unsupported(f"{asked} exists, but its tags cannot be listed; name it without ARN and account")
        return of_code("ParameterVersionNotFound", "", asked)

    async def _get(self, subject: str, name: str, *, decrypted: bool) -> dict[str, Any]:
        told = await self._api.call("GetParameter", about=subject, Name=name, WithDecryption=decrypted)
        found: dict[str, Any] = told["Parameter"]
        return found

    def _question_or_error(self, ref: RemoteRef) -> Question | ProviderError:
        try:
            return self.question(ref)
        except ProviderError as wrong:
            return wrong


def about(name: str) -> str:
    """Return the name of a parameter in errors."""
    return f'parameter "{name}"'


def _reason(answer: Answer) -> ErrorReason | None:
    return answer.reason if isinstance(answer, ProviderError) else None


async def _value(answer: Answer, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(answer, ProviderError):
        return answer
    try:
        return Value(SecretBytes(await part_of(answer.value, ref)), answer.metadata)
    except ProviderError as missing:
        return missing
