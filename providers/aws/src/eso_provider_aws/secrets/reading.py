"""Reading secrets: twenty to a call if the identity may read batches, else one by one.

| request | call |
|---|---|
| several current values | BatchGetSecretValue, 20 secrets each |
| one value, a version, a stage, or one that a batch did not return | GetSecretValue |
| `metadataPolicy: Fetch` | DescribeSecret: the tags as a JSON object |
| whether a secret has a value | DescribeSecret |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from eso_api.values import SecretBytes
from eso_provider_aws.api import Api
from eso_provider_aws.batching import Batching
from eso_sdk.batches import side_by_side
from eso_sdk.errors import backend_error
from eso_sdk.properties import part_of
from eso_sdk.provider import Check, Value
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import MetadataPolicy, RemoteRef, ValueMetadata

BATCH: Final = 20
CURRENT: Final = "AWSCURRENT"

_BY_ID: Final = "uuid/"
_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException"})
_OF_ALL: Final = frozenset(
    {
        ErrorReason.RATE_LIMITED,
        ErrorReason.BACKEND_UNAVAILABLE,
        ErrorReason.BACKEND_TIMEOUT,
        ErrorReason.CREDENTIALS_REJECTED,
        ErrorReason.CREDENTIALS_NOT_FOUND,
    }
)
"""Failures of a batch that would also fail each single read."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Question:
    """The content of one read. References with equal questions share the result."""

    secret_id: str
    version: str = ""
    metadata: bool = False

    @property
    def is_plain(self) -> bool:
        """Return whether a batch can read it."""
        return not self.version and not self.metadata


@dataclass(frozen=True, slots=True)
class Secret:
    """One version of a secret, or its tags."""

    value: bytes = field(repr=False)
    is_text: bool = False
    version_id: str = ""
    created: datetime | None = None


Answer = Secret | ProviderError


class Reader:
    """Reads the secrets of one session."""

    def __init__(self, api: Api, prefix: str, gate: asyncio.Semaphore) -> None:
        self._api = api
        self._prefix = prefix
        self._gate = gate
        self.batching = Batching(api, "BatchGetSecretValue", what="twenty secrets")

    def secret_id(self, key: str) -> str:
        """Return the name or ARN of the secret of a remote key."""
        return f"{self._prefix}{key}"

    def question(self, ref: RemoteRef) -> Question:
        """Return the question of a reference. Tags have no versions."""
        if ref.metadata_policy is MetadataPolicy.FETCH:
            return Question(self.secret_id(ref.key), metadata=True)
        return Question(self.secret_id(ref.key), ref.version)

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference, in order."""
        questions = [self.question(ref) for ref in refs]
        answers = await self.answers(dict.fromkeys(questions))
        return [await _value(answers[question], ref) for question, ref in zip(questions, refs, strict=True)]

    async def answers(self, asked: Iterable[Question]) -> dict[Question, Answer]:
        """Answer all questions with as few calls as possible: batches first, then single reads for the rest."""
        questions = list(asked)
        found = await self._by_batches([question for question in questions if question.is_plain])
        rest = [question for question in questions if question not in found]
        found |= zip(rest, await self._side_by_side(rest, self._one_or_error, _itself), strict=True)
        return found

    async def check(self, ref: RemoteRef) -> Check:
        """Tell whether a reference leads to a value. Only properties and versions need a look at the value."""
        if ref.property or (ref.version and ref.metadata_policy is not MetadataPolicy.FETCH):
            (found,) = await self.read([ref])
            if isinstance(found, ProviderError):
                raise found
            return Check(exists=True, version=found.metadata.provider_version)
        version = current_version(await self.live(self.secret_id(ref.key)))
        return Check(exists=bool(version), version=version)

    async def live(self, secret_id: str) -> dict[str, Any]:
        """Return the description of an existing secret. A secret that is marked for deletion does not exist."""
        told = await self.describe(secret_id)
        if told.get("DeletedDate"):
            words = f"{self._api.asked('DescribeSecret', about(secret_id))} is marked for deletion"
            raise ProviderError(ErrorReason.SECRET_NOT_FOUND, words)
        return told

    async def current(self, secret_id: str) -> Secret:
        """Return the current value, for a push to compare with."""
        return await self._one(Question(secret_id))

    async def describe(self, secret_id: str) -> dict[str, Any]:
        """Return everything except the value."""
        return await self._api.call("DescribeSecret", about=about(secret_id), SecretId=secret_id)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _by_batches(self, questions: list[Question]) -> dict[Question, Answer]:
        """Return the answers of batches, without the questions that they leave open."""
        if len(questions) < 2 or self.batching.is_denied:
            return {}
        groups = [questions[start : start + BATCH] for start in range(0, len(questions), BATCH)]
        done = await self._side_by_side(groups, self._batch, _all_of_it)
        return {question: answer for part in done for question, answer in part.items()}

    async def _side_by_side(
        self, items: Sequence[T], work: Callable[[T], Awaitable[R]], late: Callable[[T, ProviderError], R]
    ) -> Sequence[R]:
        return await side_by_side(items, work, late=late, gate=self._gate, clock=self._api.clock)

    async def _batch(self, group: list[Question]) -> dict[Question, Answer]:
        found: dict[str, Answer] = {}
        try:
            async for page in self._api.pages(
                "BatchGetSecretValue",
                about=f"{len(group)} secrets",
                SecretIdList=[question.secret_id for question in group],
            ):
                found |= self._of_page(page)
        except ProviderError as failed:
            if failed.reason in _OF_ALL:
                return dict.fromkeys(group, failed)
            # One secret may have caused the error. The others must not fail with it: "not found" deletes Secrets.
            if failed.backend_code in _DENIED:
                self.batching.deny()
            return {}
        answers = ((question, _answer_to(question, found)) for question in group)
        return {question: answer for question, answer in answers if answer is not None}

    def _of_page(self, page: dict[str, Any]) -> dict[str, Answer]:
        """Return the answers of a page, by name and by ARN."""
        found: dict[str, Answer] = {}
        for told in page.get("SecretValues", ()):
            found[told["ARN"]] = found[told["Name"]] = secret_of(told, told["Name"])
        for refused in page.get("Errors", ()):
            secret_id = refused.get("SecretId", "")
            asked = self._api.asked("GetSecretValue", about(secret_id))
            found[secret_id] = self._api.item_refused(refused.get("ErrorCode", ""), refused.get("Message", ""), asked)
        return found

    async def _one_or_error(self, question: Question) -> Answer:
        try:
            return await self._one(question)
        except ProviderError as failed:
            return failed

    async def _one(self, question: Question) -> Secret:
        secret_id = question.secret_id
        if question.metadata:
            return Secret(tags_json((await self.live(secret_id)).get("Tags", ())))
        told = await self._api.call(
            "GetSecretValue", about=about(secret_id), SecretId=secret_id, **_version(question.version)
        )
        found = secret_of(told, secret_id)
        if isinstance(found, ProviderError):
            raise found
        return found


def secret_of(told: dict[str, Any], name: str) -> Answer:
    """Return the value of an answer: its text if it has one, else its bytes."""
    raw = told.get("SecretString")
    value = raw.encode() if isinstance(raw, str) else told.get("SecretBinary")
    if value is None:
        return backend_error(f"{about(name)} has neither text nor bytes")
    return Secret(value, isinstance(raw, str), told.get("VersionId", ""), told.get("CreatedDate"))


def current_version(described: dict[str, Any]) -> str:
    """Return the id of the current version; empty if the secret has no value."""
    stages: dict[str, list[str]] = described.get("VersionIdsToStages") or {}
    return next((version for version, labels in stages.items() if CURRENT in labels), "")


def about(secret_id: str) -> str:
    """Return the name of a secret in errors."""
    return f'secret "{secret_id}"'


def tags_json(tags: Iterable[dict[str, str]]) -> bytes:
    return msgspec.json.encode({tag["Key"]: tag.get("Value", "") for tag in tags}, order="sorted")


def _answer_to(question: Question, found: dict[str, Answer]) -> Answer | None:
    """Return the result or error of one secret in a batch; None if the batch has neither."""
    secret_id = question.secret_id
    if secret_id in found:
        return found[secret_id]
    # A partial ARN lacks the dash and six random characters at the end.
    whole = [answer for known, answer in found.items() if secret_id.startswith("arn:") and known[:-7] == secret_id]
    return whole[0] if len(whole) == 1 else None


def _all_of_it(group: list[Question], error: ProviderError) -> dict[Question, Answer]:
    return dict.fromkeys(group, error)


def _itself(_question: Question, error: ProviderError) -> Answer:
    return error


def _version(version: str) -> dict[str, str]:
    """Return the parameters that select a version; none for the current one."""
    if version.startswith(_BY_ID):
        return {"VersionId": version.removeprefix(_BY_ID)}
    return {"VersionStage": version} if version else {}


async def _value(answer: Answer, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(answer, ProviderError):
        return answer
    try:
        raw = await part_of(answer.value, ref)
    except ProviderError as missing:
        return missing
    return Value(SecretBytes(raw), ValueMetadata(provider_version=answer.version_id, updated_at=answer.created))
