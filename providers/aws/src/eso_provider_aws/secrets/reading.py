"""Reading secrets: twenty to a call where the identity may do that, else one by one.

| what is asked for | call |
|---|---|
| several current values | BatchGetSecretValue, 20 secrets each |
| one value, a version, a stage, or no permission for batches | GetSecretValue |
| `metadataPolicy: Fetch` | DescribeSecret: the tags as a JSON object |
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
from eso_provider_aws.properties import part_of
from eso_sdk.batches import side_by_side
from eso_sdk.errors import backend_error
from eso_sdk.provider import Value
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import MetadataPolicy, RemoteRef, ValueMetadata

BATCH: Final = 20
NO_BATCH_SECONDS: Final = 3600.0
"""After a denied batch, secrets are read one by one for this long."""

_BY_ID: Final = "uuid/"


@dataclass(frozen=True, slots=True)
class Question:
    """What one read is about. References with equal questions share the answer."""

    secret_id: str
    version: str = ""
    metadata: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether a batch can answer it."""
        return not self.version and not self.metadata


@dataclass(frozen=True, slots=True)
class Secret:
    """One version of a secret, or its tags."""

    value: bytes = field(repr=False)
    version_id: str = ""
    created: datetime | None = None


Answer = Secret | ProviderError


class Reader:
    """Reads the secrets of one session."""

    def __init__(self, api: Api, prefix: str, gate: asyncio.Semaphore) -> None:
        self._api = api
        self._prefix = prefix
        self._gate = gate
        self._no_batch_until = 0.0

    @property
    def batches_denied(self) -> bool:
        return self._api.clock.monotonic() < self._no_batch_until

    def question(self, ref: RemoteRef) -> Question:
        """What to read for a reference. Tags have no versions."""
        secret_id = f"{self._prefix}{ref.key}"
        if ref.metadata_policy is MetadataPolicy.FETCH:
            return Question(secret_id, metadata=True)
        return Question(secret_id, ref.version)

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """One value or error for each reference, in their order."""
        questions = [self.question(ref) for ref in refs]
        answers = await self.answers(dict.fromkeys(questions))
        return [_value(answers[question], ref) for question, ref in zip(questions, refs, strict=True)]

    async def answers(self, asked: Iterable[Question]) -> dict[Question, Answer]:
        """Answer every question with as few calls as possible."""
        plain = [question for question in asked if question.is_plain]
        single = [question for question in asked if not question.is_plain]
        batched = len(plain) > 1 and not self.batches_denied
        groups = [plain[start : start + BATCH] for start in range(0, len(plain), BATCH)] if batched else []
        groups += [[question] for question in ([] if batched else plain) + single]

        async def answer(group: list[Question]) -> dict[Question, Answer]:
            return await (self._batch(group) if len(group) > 1 else self._one_by_one(group))

        def late(group: list[Question], error: ProviderError) -> dict[Question, Answer]:
            return dict.fromkeys(group, error)

        done = await side_by_side(groups, answer, late=late, gate=self._gate, clock=self._api.clock)
        return {question: found for part in done for question, found in part.items()}

    async def current(self, secret_id: str) -> Secret:
        """The value that a push compares with."""
        return await self._one(Question(secret_id))

    async def describe(self, secret_id: str) -> dict[str, Any]:
        """Everything but the value."""
        return await self._api.call("DescribeSecret", about=_about(secret_id), SecretId=secret_id)

    # --- calls -------------------------------------------------------------------------------------------------------

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
            if failed.reason is not ErrorReason.PERMISSION_DENIED:
                return dict.fromkeys(group, failed)
            self._no_batch_until = self._api.clock.monotonic() + NO_BATCH_SECONDS
            return await self._one_by_one(group)
        return {question: self._found(question, found) for question in group}

    def _of_page(self, page: dict[str, Any]) -> dict[str, Answer]:
        """What a page says, by name and by ARN."""
        found: dict[str, Answer] = {}
        for told in page.get("SecretValues", ()):
            found[told["ARN"]] = found[told["Name"]] = secret_of(told, told["Name"])
        for refused in page.get("Errors", ()):
            secret_id = refused.get("SecretId", "")
            asked = self._api.asked("GetSecretValue", _about(secret_id))
            found[secret_id] = self._api.item_refused(refused.get("ErrorCode", ""), refused.get("Message", ""), asked)
        return found

    def _found(self, question: Question, found: dict[str, Answer]) -> Answer:
        secret_id = question.secret_id
        if secret_id in found:
            return found[secret_id]
        # A partial ARN lacks the six random characters at the end.
        whole = [answer for known, answer in found.items() if secret_id.startswith("arn:") and known[:-7] == secret_id]
        missing = f"{_about(secret_id)}: the service left it out of its answer to BatchGetSecretValue"
        return whole[0] if len(whole) == 1 else backend_error(missing)

    async def _one_by_one(self, group: list[Question]) -> dict[Question, Answer]:
        found: dict[Question, Answer] = {}
        for question in group:
            try:
                found[question] = await self._one(question)
            except ProviderError as failed:
                found[question] = failed
        return found

    async def _one(self, question: Question) -> Secret:
        secret_id = question.secret_id
        if question.metadata:
            return Secret(tags_json((await self.describe(secret_id)).get("Tags", ())))
        told = await self._api.call(
            "GetSecretValue", about=_about(secret_id), SecretId=secret_id, **_version(question.version)
        )
        found = secret_of(told, secret_id)
        if isinstance(found, ProviderError):
            raise found
        return found


def secret_of(told: dict[str, Any], name: str) -> Answer:
    """The value of an answer: its text if it has one, else its bytes."""
    raw = told.get("SecretString")
    value = raw.encode() if isinstance(raw, str) else told.get("SecretBinary")
    if value is None:
        return backend_error(f"{_about(name)} has neither text nor bytes")
    return Secret(value, told.get("VersionId", ""), told.get("CreatedDate"))


def tags_json(tags: Iterable[dict[str, str]]) -> bytes:
    return msgspec.json.encode({tag["Key"]: tag.get("Value", "") for tag in tags}, order="sorted")


def _version(version: str) -> dict[str, str]:
    if version.startswith(_BY_ID):
        return {"VersionId": version.removeprefix(_BY_ID)}
    return {"VersionStage": version or "AWSCURRENT"}


def _value(answer: Answer, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(answer, ProviderError):
        return answer
    try:
        raw = part_of(answer.value, ref)
    except ProviderError as missing:
        return missing
    return Value(SecretBytes(raw), ValueMetadata(provider_version=answer.version_id, updated_at=answer.created))


def _about(secret_id: str) -> str:
    return f'secret "{secret_id}"'
