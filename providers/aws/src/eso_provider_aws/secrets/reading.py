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
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from eso_api.values import SecretBytes
from eso_provider_aws.api import MARK, Api, Batching
from eso_sdk.errors import backend_error, invalid_request
from eso_sdk.extract import part_of
from eso_sdk.matching import Matcher
from eso_sdk.operations import side_by_side
from eso_sdk.provider import Check, Value
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, Found, MetadataPolicy, RemoteRef, ValueMetadata

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
class SecretRequest:
    """The content of one read. References with equal requests share the result."""

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


SecretResult = Secret | ProviderError


class SecretReader:
    """Reads the secrets of one session."""

    def __init__(self, api: Api, prefix: str, gate: asyncio.Semaphore) -> None:
        self._api = api
        self._prefix = prefix
        self._gate = gate
        self.batching = Batching(api, "BatchGetSecretValue", what="twenty secrets")

    def secret_id(self, key: str) -> str:
        """Return the name or ARN of the secret of a remote key."""
        return f"{self._prefix}{key}"

    def request(self, ref: RemoteRef) -> SecretRequest:
        """Return the request of a reference. Tags have no versions."""
        if ref.metadata_policy is MetadataPolicy.FETCH:
            return SecretRequest(self.secret_id(ref.key), metadata=True)
        return SecretRequest(self.secret_id(ref.key), ref.version)

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference, in order."""
        requests = [self.request(ref) for ref in refs]
        results = await self.results(dict.fromkeys(requests))
        return [await _value(results[request], ref) for request, ref in zip(requests, refs, strict=True)]

    async def results(self, distinct: Iterable[SecretRequest]) -> dict[SecretRequest, SecretResult]:
        """SecretResult all requests with as few calls as possible: batches first, then single reads for the rest."""
        requests = list(distinct)
        found = await self._by_batches([request for request in requests if request.is_plain])
        rest = [request for request in requests if request not in found]
        found |= zip(rest, await self._side_by_side(rest, self._one_or_error, _itself), strict=True)
        return found

    async def check(self, ref: RemoteRef) -> Check:
        """Return whether a reference leads to a value. Only properties and versions need the value."""
        if ref.property or (ref.version and ref.metadata_policy is not MetadataPolicy.FETCH):
            (found,) = await self.read([ref])
            if isinstance(found, ProviderError):
                raise found
            return Check(exists=True, version=found.metadata.provider_version)
        version = current_version(await self.live(self.secret_id(ref.key)))
        return Check(exists=bool(version), version=version)

    async def live(self, secret_id: str) -> dict[str, Any]:
        """Return the description of an existing secret. A secret that is marked for deletion does not exist."""
        response = await self.describe(secret_id)
        if response.get("DeletedDate"):
            message = f"{self._api.subject('DescribeSecret', about(secret_id))} is marked for deletion"
            raise ProviderError(ErrorReason.SECRET_NOT_FOUND, message)
        return response

    async def current(self, secret_id: str) -> Secret:
        """Return the current value, for a push to compare with."""
        return await self._one(SecretRequest(secret_id))

    async def describe(self, secret_id: str) -> dict[str, Any]:
        """Return everything except the value."""
        return await self._api.call("DescribeSecret", about=about(secret_id), SecretId=secret_id)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _by_batches(self, requests: list[SecretRequest]) -> dict[SecretRequest, SecretResult]:
        """Return the results of batches, without the requests that they left out."""
        if len(requests) < 2 or self.batching.is_denied:
            return {}
        groups = [requests[start : start + BATCH] for start in range(0, len(requests), BATCH)]
        done = await self._side_by_side(groups, self._batch, _all_of_it)
        return {request: result for part in done for request, result in part.items()}

    async def _side_by_side(
        self, items: Sequence[T], work: Callable[[T], Awaitable[R]], late: Callable[[T, ProviderError], R]
    ) -> Sequence[R]:
        return await side_by_side(items, work, late=late, gate=self._gate, clock=self._api.clock)

    async def _batch(self, group: list[SecretRequest]) -> dict[SecretRequest, SecretResult]:
        found: dict[str, SecretResult] = {}
        try:
            async for page in self._api.pages(
                "BatchGetSecretValue",
                about=f"{len(group)} secrets",
                SecretIdList=[request.secret_id for request in group],
            ):
                found |= self._of_page(page)
        except ProviderError as failed:
            if failed.reason in _OF_ALL:
                return dict.fromkeys(group, failed)
            # One secret may have caused the error. The others must not fail with it: "not found" deletes Secrets.
            if failed.backend_code in _DENIED:
                self.batching.deny()
            return {}
        results = ((request, _result_for(request, found)) for request in group)
        return {request: result for request, result in results if result is not None}

    def _of_page(self, page: dict[str, Any]) -> dict[str, SecretResult]:
        """Return the results of a page, by name and by ARN."""
        found: dict[str, SecretResult] = {}
        for entry in page.get("SecretValues", ()):
            found[entry["ARN"]] = found[entry["Name"]] = secret_of(entry, entry["Name"])
        for refused in page.get("Errors", ()):
            secret_id = refused.get("SecretId", "")
            subject = self._api.subject("GetSecretValue", about(secret_id))
            found[secret_id] = self._api.item_refused(refused.get("ErrorCode", ""), refused.get("Message", ""), subject)
        return found

    async def _one_or_error(self, request: SecretRequest) -> SecretResult:
        try:
            return await self._one(request)
        except ProviderError as failed:
            return failed

    async def _one(self, request: SecretRequest) -> Secret:
        secret_id = request.secret_id
        if request.metadata:
            return Secret(tags_json((await self.live(secret_id)).get("Tags", ())))
        response = await self._api.call(
            "GetSecretValue", about=about(secret_id), SecretId=secret_id, **_version(request.version)
        )
        found = secret_of(response, secret_id)
        if isinstance(found, ProviderError):
            raise found
        return found


def secret_of(response: dict[str, Any], name: str) -> SecretResult:
    """Return the value of a response: its text if it has one, else its bytes."""
    raw = response.get("SecretString")
    value = raw.encode() if isinstance(raw, str) else response.get("SecretBinary")
    if value is None:
        return backend_error(f"{about(name)} has neither text nor bytes")
    return Secret(value, isinstance(raw, str), response.get("VersionId", ""), response.get("CreatedDate"))


def current_version(described: dict[str, Any]) -> str:
    """Return the id of the current version; empty if the secret has no value."""
    stages: dict[str, list[str]] = described.get("VersionIdsToStages") or {}
    return next((version for version, labels in stages.items() if CURRENT in labels), "")


def about(secret_id: str) -> str:
    """Return the name of a secret in errors."""
    return f'secret "{secret_id}"'


def tags_json(tags: Iterable[dict[str, str]]) -> bytes:
    return msgspec.json.encode({tag["Key"]: tag.get("Value", "") for tag in tags}, order="sorted")


def _result_for(request: SecretRequest, found: dict[str, SecretResult]) -> SecretResult | None:
    """Return the result or error of one secret in a batch; None if the batch has neither."""
    secret_id = request.secret_id
    if secret_id in found:
        return found[secret_id]
    # A partial ARN lacks the dash and six random characters at the end.
    whole = [result for known, result in found.items() if secret_id.startswith("arn:") and known[:-7] == secret_id]
    return whole[0] if len(whole) == 1 else None


def _all_of_it(group: list[SecretRequest], error: ProviderError) -> dict[SecretRequest, SecretResult]:
    return dict.fromkeys(group, error)


def _itself(_request: SecretRequest, error: ProviderError) -> SecretResult:
    return error


def _version(version: str) -> dict[str, str]:
    """Return the parameters that select a version; none for the current one."""
    if version.startswith(_BY_ID):
        return {"VersionId": version.removeprefix(_BY_ID)}
    return {"VersionStage": version} if version else {}


async def _value(result: SecretResult, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(result, ProviderError):
        return result
    try:
        raw = await part_of(result.value, ref)
    except ProviderError as missing:
        return missing
    return Value(SecretBytes(raw), ValueMetadata(provider_version=result.version_id, updated_at=result.created))


@dataclass(frozen=True, slots=True)
class SecretState:
    """A secret as the service describes it; without ARN if there is none."""

    arn: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    replicas: frozenset[str] = frozenset()
    """Regions with a replica of it."""
    primary: str = ""
    """The region of the primary secret, if the service reports it."""
    version: str = ""
    """Id of the current version; empty if there is no value."""
    marked_for_deletion: bool = False
    """True if it is marked for deletion: it does not exist, but its name is taken."""
    secret: Secret | None = None
    """The value, if it was read."""

    def is_of(self, owner: str) -> bool:
        return self.tags.get(MARK) == owner

    @property
    def exists(self) -> bool:
        return bool(self.arn) and not self.marked_for_deletion


async def read_state(reader: SecretReader, secret_id: str) -> SecretState:
    """Read the state of a secret, without its value."""
    try:
        return _described(await reader.describe(secret_id))
    except ProviderError as missing:
        if missing.reason is not ErrorReason.SECRET_NOT_FOUND:
            raise
        return SecretState()


async def with_value(reader: SecretReader, state: SecretState) -> SecretState:
    """Return the state with the value, if the secret has one."""
    try:
        return replace(state, secret=await reader.current(state.arn)) if state.version else state
    except ProviderError as missing:
        if missing.reason is not ErrorReason.VERSION_NOT_FOUND:
            raise
        return replace(state, version="")


def _described(response: dict[str, Any]) -> SecretState:
    return SecretState(
        arn=response["ARN"],
        tags={tag["Key"]: tag.get("Value", "") for tag in response.get("Tags", ())},
        replicas=frozenset(replica["Region"] for replica in response.get("ReplicationStatus", ())),
        primary=response.get("PrimaryRegion", ""),
        version=current_version(response),
        marked_for_deletion=bool(response.get("DeletedDate")),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Finding secrets: ListSecrets returns names and tags, then the values of matching secrets are read in batches.
#
# The service filters where it can. Its filters match prefixes, and match keys and values of tags separately, so the
# comparison here decides. Keys of the result are full names.


PAGE: Final = 100
MAX_SECRETS: Final = 20_000
READ_AT_ONCE: Final = 200

_PLAIN: Final = re.compile(r"[A-Za-z0-9/_+=.@:-]+")
"""The characters allowed in a filter; an exclamation mark would negate it."""
_NO_VALUE: Final = frozenset({ErrorReason.SECRET_NOT_FOUND, ErrorReason.VERSION_NOT_FOUND})


class SecretFinder:
    """Finds the secrets of one session."""

    def __init__(self, api: Api, reader: SecretReader) -> None:
        self._api = api
        self._reader = reader

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield all matching secrets with their values.

        Secrets without a value, or deleted since the listing, are left out.
        """
        names = await self.names(query)
        for start in range(0, len(names), READ_AT_ONCE):
            requests = [SecretRequest(name) for name in names[start : start + READ_AT_ONCE]]
            results = await self._reader.results(requests)
            for request in requests:
                result = results[request]
                if isinstance(result, Secret):
                    yield _found(request.secret_id, result)
                elif result.reason not in _NO_VALUE:
                    raise result

    async def names(self, query: FindQuery) -> list[str]:
        """Return the names of all matching secrets, sorted."""
        matcher = Matcher(query)
        names: list[str] = []
        async for page in self._api.pages("ListSecrets", MaxResults=PAGE, **_narrowed(query)):
            for secret in page.get("SecretList", ()):
                tags = {tag["Key"]: tag.get("Value", "") for tag in secret.get("Tags", ())}
                if not secret.get("DeletedDate") and await matcher.accepts(secret["Name"], tags):
                    names.append(secret["Name"])
            if len(names) > MAX_SECRETS:
                raise invalid_request(
                    f"more than {MAX_SECRETS} secrets match; narrow find.name, find.path or find.tags"
                )
        return sorted(names)


def _narrowed(query: FindQuery) -> dict[str, Any]:
    """Return list filters that narrow the search as far as the service can."""
    criteria = (("name", query.path), ("tag-key", min(query.tags, default="")))
    filters = [{"Key": key, "Values": [text]} for key, text in criteria if _PLAIN.fullmatch(text)]
    return {"Filters": filters} if filters else {}


def _found(name: str, secret: Secret) -> Found:
    metadata = ValueMetadata(provider_version=secret.version_id, updated_at=secret.created)
    return Found(name, SecretBytes(secret.value), metadata)
